/* Scans read beside all else that happens to a job; and where something lies that they find. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "daemon/gradients/gradients.h"
#include "daemon/life/idle.h"
#include "daemon/model/job.h"
#include "daemon/model/location.h"
#include "daemon/scrub/scan.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

static struct actor actor;

struct reading {
	struct scan scan;
	unsigned found;
	bool is_done;
	int status;
};

static void on_found(struct scan *scan, const struct store_flaw *flaw)
{
	container_of(scan, struct reading, scan)->found++;
}

static void on_done(struct scan *scan, int status)
{
	struct reading *reading = container_of(scan, struct reading, scan);

	reading->is_done = true;
	reading->status = status;
}

/* As a scrub does that somebody hurries: it would begin the next one at once. */
static void a_job_that_is_read_gives_its_memory_back(void **state)
{
	struct reading reading = { .scan = { .found = on_found, .done = on_done } };
	struct job *job = actor_play(&scene, &actor);

	actor_die(&actor);
	scene_settle(&scene);
	assert_int_equal(job->state, JOB_TRAINED);
	assert_int_equal(scan_start(&reading.scan, job, 0, store_extents(job_nvme_store(job))), 0);
	assert_true(idle_release(job));
	assert_int_equal(job->state, JOB_RELEASED);
	assert_false(reading.is_done);
	while (!reading.is_done)
		scene_wait(&scene);
	assert_int_equal(reading.status, 0);
	assert_int_equal(reading.found, 0);
	assert_int_equal(reading.scan.next, store_extents(job_nvme_store(job)));
	scan_clear(&reading.scan);
}

/* What it reads is there until it has ended. */
static void a_job_that_is_read_is_not_freed(void **state)
{
	struct reading reading = { .scan = { .found = on_found, .done = on_done } };
	struct job *job = actor_play(&scene, &actor);

	actor_die(&actor);
	scene_settle(&scene);
	assert_int_equal(scan_start(&reading.scan, job, 0, store_extents(job_nvme_store(job))), 0);
	assert_false(job_is_quiet(job));
	job_drop(job);
	while (!reading.is_done)
		scene_wait(&scene);
	assert_int_equal(reading.status, -ENOENT);
	scan_clear(&reading.scan);
	scene_settle(&scene);
	assert_true(queue_is_empty(&scene.node->jobs.dying));
}

/* A block of small tensors has dozens. */
static void what_lies_there_is_named_by_a_few_tensors(void **state)
{
	static char names[10][4];
	struct actor_tensor tensors[ARRAY_LENGTH(names)];
	struct store_range piece = { .length = STORE_BLOCK_BYTES };
	struct location location;
	struct job *job;

	for (unsigned i = 0; i < ARRAY_LENGTH(names); i++) {
		snprintf(names[i], sizeof(names[i]), "t%u", i);
		tensors[i] = (struct actor_tensor){ names[i], FORMAT_BF16, INITIALIZE_ONES, 256, false };
	}
	assert_int_equal(actor_enter(&scene, &actor), 0);
	assert_int_equal(actor_open(&actor, &(struct actor_job){ .name = "many", .stage = 3 }), 0);
	assert_int_equal(actor_define(&actor, "few", tensors, 3), 0);
	assert_int_equal(actor_define(&actor, "many", tensors + 3, 7), 0);
	assert_int_equal(actor_ready(&actor), 0);
	job = job_find(scene.node, geteuid(), "many");
	piece.stream = job->location.streams.parameter[SECTION_BF16];
	location_find(job, &piece, &location);
	assert_string_equal(location.unit, "few");
	assert_string_equal(location.tensors, "\"t0\", \"t1\", \"t2\" and 7 more");
	piece.length = 2 * 3 * 256;
	location_find(job, &piece, &location);
	assert_string_equal(location.tensors, "\"t0\", \"t1\", \"t2\"");
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_job_that_is_read_gives_its_memory_back),
		TEST(a_job_that_is_read_is_not_freed),
		TEST(what_lies_there_is_named_by_a_few_tensors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
