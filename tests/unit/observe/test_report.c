/* What is told of all jobs fits in a frame, however much there is to tell of each. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/durability/family.h"
#include "daemon/life/life.h"
#include "proto/frame.h"
#include "tests/unit/scene_test.h"

/* More than fit, whatever the length of what is told of each. */
#define JOBS 1100

static struct actor actor;

const char *__wrap_family_name_others(const struct job *job, char *text, size_t size);

/* As if each were one of as many forks as there can be, with names of full length. */
const char *__wrap_family_name_others(const struct job *job, char *text, size_t size)
{
	memset(text, 'f', size - 1);
	text[size - 1] = '\0';
	return text;
}

static struct job *break_job(const struct job_options *options, unsigned number)
{
	char name[WIRE_MAX_JOB_NAME + 1];
	struct job *job;

	snprintf(name, sizeof(name), "%063u", number);
	assert_int_equal(job_new(scene.node, geteuid(), &(struct quota){ 0 }, name, options, &job), 0);
	job->state = JOB_BROKEN;
	memset(job->epoch.reason, 'r', sizeof(job->epoch.reason) - 1);
	return job;
}

static void broken_jobs_with_much_to_tell_fit_in_a_frame(void **state)
{
	Tierd__Wire__JobsRead read = TIERD__WIRE__JOBS_READ__INIT;
	const struct job_options options = actor_play(&scene, &actor)->options;
	const Tierd__Wire__Reply *reply;
	static struct job *jobs[JOBS];
	size_t packed, entry;

	for (unsigned i = 0; i < JOBS; i++)
		jobs[i] = break_job(&options, i);
	assert_int_equal(actor_ask(&actor, WIRE_REQUEST(JOBS_READ, jobs_read, &read), &reply), 0);
	assert_int_equal(reply->jobs->total, JOBS + 1);
	packed = FRAME_HEADER_BYTES + protobuf_c_message_get_packed_size(&reply->base);
	assert_in_range(packed, 0, FRAME_MAX_BYTES);
	/* It is full, but for what is kept for the rest of the reply, and a few entries: on a machine that
	 * has just started times are short numbers, and the bound for the number of jobs comes before that of
	 * bytes. */
	entry = protobuf_c_message_get_packed_size(&reply->jobs->jobs[reply->jobs->n_jobs - 1]->base);
	assert_in_range(packed + 8 * entry + 2048, FRAME_MAX_BYTES, SIZE_MAX);
	for (unsigned i = 0; i < JOBS; i++)
		job_free(jobs[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SCENE_TEST(broken_jobs_with_much_to_tell_fit_in_a_frame, scene_setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
