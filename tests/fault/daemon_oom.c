/* Each allocation of a training fails in turn, the daemon's own and libevent's: whatever fails is answered
 * with an error or survived, and a client that comes afterwards trains as if nothing had happened.
 *   daemon_oom [PATTERN | !PATTERN]   those tests, or all but those */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "daemon/durability/own.h"
#include "daemon/durability/durable.h"
#include "daemon/recovery/restore.h"
#include "daemon/durability/job_file.h"
#include "daemon/resources/resources.h"
#include "tests/fault/alloc_fault.h"
#include "tests/fault/daemon_training.h"
#include "tests/unit/test.h"

static struct scene scene;
static struct actor actor;
static float reference[TRAINING_VALUES];

/* Through functions of this program, so that they are counted: --wrap does not see into the library. */
static void *counted_malloc(size_t size)
{
	return malloc(size);
}

static void *counted_realloc(void *pointer, size_t size)
{
	return realloc(pointer, size);
}

static void end_scene(void)
{
	actor_die(&actor);
	scene_close(&scene);
}

/* Nothing of the job that failed is in the way of the next. */
static void expect_that_others_train(void)
{
	actor_die(&actor);
	scene_settle(&scene);
	assert_int_equal(training_run(&scene, &actor, &(struct actor_job){ .name = "next", .stage = 3 }), 0);
}

/* What the daemon has said is durable; -1: nothing. */
static int64_t durable_step(void)
{
	const struct job *job = job_find(scene.node, geteuid(), "play");
	uint64_t step;

	return job && durable_has_step(job, &step) ? (int64_t)step : -1;
}

/* Under another daemon it stands where it was durable, at least, and trains to the bits of any other. */
static void expect_that_it_goes_on(const struct scene_options *options, const struct actor_job *job,
				   int64_t durable)
{
	const struct job *found;
	float result[TRAINING_VALUES];

	actor_die(&actor);
	scene_settle(&scene);
	assert_int_equal(scene_restart(options, &scene), 0);
	found = job_find(scene.node, geteuid(), "play");
	if (!found) {
		assert_true(durable < 0);
		return;
	}
	assert_int_equal(found->state, JOB_RELEASED);
	assert_true((int64_t)found->step >= durable);
	assert_int_equal(training_resume(&scene, &actor, job), 0);
	assert_int_equal(training_read(&actor, result), 0);
	assert_memory_equal(result, reference, sizeof(result));
}

/* Who asked has got an answer that says what happened. */
static void expect_refusal(int r)
{
	if (!actor.client)
		assert_int_equal(r, -ENOMEM);
	else if (!actor.is_closed)
		assert_string_not_equal(actor_message(&actor), "");
}

static void set_reference(const struct scene_options *options, const struct actor_job *job)
{
	assert_int_equal(scene_open(options, &scene), 0);
	assert_int_equal(training_run(&scene, &actor, job), 0);
	assert_int_equal(training_read(&actor, reference), 0);
	end_scene();
}

static void survive(const struct actor_job *job, bool is_without_nvme)
{
	const struct scene_options options = { .is_without_nvme = is_without_nvme };
	bool has_tripped = true;

	set_reference(&options, job);
	for (unsigned nth = alloc_fault_first(); has_tripped; nth += alloc_fault_stride()) {
		assert_int_equal(scene_open(&options, &scene), 0);
		alloc_fault_arm(nth);
		int r = training_run(&scene, &actor, job);

		has_tripped = alloc_fault_tripped();
		/* What was survived (a fallback, a prefetch) is no error. */
		if (!has_tripped)
			assert_int_equal(r, 0);
		if (r < 0)
			expect_refusal(r);
		int64_t durable = durable_step();

		expect_that_others_train();
		expect_that_it_goes_on(&options, job, durable);
		end_scene();
	}
}

static void a_training_on_nvme_survives(void **state)
{
	survive(&(struct actor_job){ .stage = 3 }, false);
}

/* All of what was written is there, or nothing; and all of it if nothing failed. */
static void expect_that_it_is_whole(const struct scene_options *options, const struct actor_job *job, int r)
{
	float result[TRAINING_VALUES];
	const struct job *found;

	actor_die(&actor);
	scene_settle(&scene);
	assert_int_equal(scene_restart(options, &scene), 0);
	found = job_find(scene.node, geteuid(), "play");
	assert_non_null(found);
	assert_true(found->step == 2 || found->step == 3);
	assert_true(r < 0 || found->step == 3);
	assert_int_equal(found->catalog.units[1].updates, found->step == 3 ? 9 : 2);
	assert_int_equal(training_resume(&scene, &actor, job), 0);
	assert_int_equal(actor_read(&actor, 0, 0, "master", 0, 1, found->step), 0);
	assert_true((*(float *)actor.window.base == 3.0f) == (found->step == 3));
	assert_int_equal(actor_read(&actor, 1, 1, "m", 0, 1, found->step), 0);
	assert_true((*(float *)actor.window.base == 5.0f) == (found->step == 3));
	if (found->step == 2) {
		assert_int_equal(training_read(&actor, result), 0);
		assert_memory_equal(result, reference, sizeof(result));
	}
}

static void survive_writing(const struct actor_job *job)
{
	const struct scene_options options = { 0 };
	bool has_tripped = true;

	set_reference(&options, job);
	for (unsigned nth = alloc_fault_first(); has_tripped; nth += alloc_fault_stride()) {
		assert_int_equal(scene_open(&options, &scene), 0);
		assert_int_equal(training_run(&scene, &actor, job), 0);
		while (durable_step() < 2)
			scene_wait(&scene);
		alloc_fault_arm(nth);
		int r = training_write(&actor);

		has_tripped = alloc_fault_tripped();
		if (!has_tripped)
			assert_int_equal(r, 0);
		if (r < 0)
			expect_refusal(r);
		expect_that_others_train();
		expect_that_it_is_whole(&options, job, r);
		end_scene();
	}
}

static void values_written_between_steps_survive(void **state)
{
	survive_writing(&(struct actor_job){ .stage = 3 });
}

static void values_written_in_host_memory_survive(void **state)
{
	survive_writing(&(struct actor_job){ .stage = 1,
					     .parameter_placement = PLACEMENT_HOST,
					     .optimizer_placement = PLACEMENT_HOST,
					     .durability = DURABILITY_STEP });
}

static void a_drafted_training_survives(void **state)
{
	survive(&(struct actor_job){ .stage = 3, .is_drafted = true }, false);
}

static void a_drafted_training_without_nvme_survives(void **state)
{
	survive(&(struct actor_job){ .stage = 0, .is_drafted = true }, true);
}

static void a_training_with_blobs_survives(void **state)
{
	survive(&(struct actor_job){ .stage = 3, .blob_bytes = TRAINING_BLOB_BYTES }, false);
}

static void a_training_with_backups_survives(void **state)
{
	survive(&(struct actor_job){ .stage = 1,
				     .optimizer_placement = PLACEMENT_HOST,
				     .durability = DURABILITY_STEP },
		false);
}

static void a_training_in_host_memory_survives(void **state)
{
	survive(&(struct actor_job){ .stage = 1 }, true);
}

static void a_training_with_spilled_sums_survives(void **state)
{
	survive(&(struct actor_job){ .stage = 2,
				     .optimizer_placement = PLACEMENT_HOST,
				     .gradient_placement = PLACEMENT_NVME,
				     .durability = DURABILITY_NONE },
		false);
}

static void a_training_by_its_owner_survives(void **state)
{
	survive(&(struct actor_job){ .stage = 3, .optimizer = OPTIMIZER_NONE }, false);
}

/* An idle job gives its memory to another one, and gets it back from that. */
static void a_training_with_what_an_idle_job_had_survives(void **state)
{
	const struct actor_job idle = { .stage = 3 }, next = { .name = "next", .stage = 3 };
	bool has_tripped = true;

	set_reference(&(struct scene_options){ 0 }, &idle);
	for (unsigned nth = alloc_fault_first(); has_tripped; nth += alloc_fault_stride()) {
		float result[TRAINING_VALUES];

		assert_int_equal(scene_open(&(struct scene_options){ 0 }, &scene), 0);
		assert_int_equal(training_run(&scene, &actor, &idle), 0);
		actor_die(&actor);
		scene_settle(&scene);
		scene.node->settings.host_budget = budget_host_used(scene.node) + MIB / 2;
		alloc_fault_arm(nth);
		int r = training_run(&scene, &actor, &next);

		has_tripped = alloc_fault_tripped();
		if (!has_tripped)
			assert_int_equal(r, 0);
		if (r == 0)
			assert_int_equal(job_find(scene.node, geteuid(), "play")->state, JOB_RELEASED);
		else
			expect_refusal(r);
		actor_die(&actor);
		scene_settle(&scene);
		assert_int_equal(training_resume(&scene, &actor, &idle), 0);
		assert_int_equal(training_read(&actor, result), 0);
		assert_memory_equal(result, reference, sizeof(result));
		end_scene();
	}
}

/* The reader has memory of its own. */
static int lend(uint32_t reader)
{
	static const char zeros[4096];
	int r = actor_reader_memory(&actor, reader, 0);

	if (r < 0)
		return r;
	assert_int_equal(ftruncate(actor.reader_file, sizeof(zeros)), 0);
	assert_int_equal(pwrite(actor.reader_file, zeros, sizeof(zeros), 0), sizeof(zeros));
	assert_int_equal(fcntl(actor.reader_file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	return actor_reader_memory(&actor, reader, sizeof(zeros));
}

/* Opens a reader, keeps two states, and reads of those and of what is not kept. */
static int read_all(void)
{
	static const char *const states[] = { "master", "v", "parameter" };
	Tierd__Wire__ReaderPiece pieces[2];
	Tierd__Wire__ReaderRead read = TIERD__WIRE__READER_READ__INIT;
	uint32_t reader;
	int r = actor_open_reader(&actor, "play", &reader);

	for (unsigned i = 0; i < ARRAY_LENGTH(pieces); i++) {
		tierd__wire__reader_piece__init(&pieces[i]);
		pieces[i].state = (char *)states[i];
		pieces[i].all_units = true;
	}
	if (r == 0)
		r = actor_await(&actor, actor_send_refresh(&actor, reader, pieces, 2), 0)->status;
	if (r == 0)
		r = lend(reader);
	read.to_memory = true;
	read.count = TRAINING_ELEMENTS;
	read.step = 2;
	for (unsigned i = 0; i < ARRAY_LENGTH(states) && r == 0; i++) {
		read.state = (char *)states[i];
		r = actor_await(&actor, actor_send_reader_read(&actor, reader, &read), 0)->status;
	}
	return r;
}

/* Opens one for which the job keeps its step, and reads of that. */
static int read_kept(void)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__ReaderOpen open = TIERD__WIRE__READER_OPEN__INIT;
	Tierd__Wire__ReaderRead read = TIERD__WIRE__READER_READ__INIT;
	const struct answer *answer;
	uint32_t reader;

	open.name = (char *)"play";
	open.as_snapshot = true;
	request.body_case = TIERD__WIRE__REQUEST__BODY_READER_OPEN;
	request.reader_open = &open;
	answer = actor_await(&actor, actor_send(&actor, &request), 0);
	if (answer->status < 0)
		return answer->status;
	reader = answer->reply->reader_open->reader;
	assert_int_equal(answer->reply->reader_open->step, 2);
	read.state = (char *)"master";
	read.count = TRAINING_ELEMENTS;
	read.step = 2;
	return actor_await(&actor, actor_send_reader_read(&actor, reader, &read), 0)->status;
}

static void survive_asking(const struct actor_job *job, int (*ask)(void))
{
	bool has_tripped = true;

	for (unsigned nth = alloc_fault_first(); has_tripped; nth += alloc_fault_stride()) {
		assert_int_equal(scene_open(&(struct scene_options){ 0 }, &scene), 0);
		assert_int_equal(training_run(&scene, &actor, job), 0);
		alloc_fault_arm(nth);
		int r = ask();

		has_tripped = alloc_fault_tripped();
		if (!has_tripped)
			assert_int_equal(r, 0);
		expect_that_others_train();
		end_scene();
	}
}

static void a_reader_survives(void **state)
{
	survive_asking(&(struct actor_job){ .stage = 3 }, read_all);
}

static void a_reader_as_of_a_snapshot_survives(void **state)
{
	survive_asking(&(struct actor_job){ .stage = 3, .snapshots = 1 }, read_kept);
}

/* Forks the job, and once more; and ends one of the two. */
static int fork_it(void)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobFork fork = TIERD__WIRE__JOB_FORK__INIT;
	Tierd__Wire__JobDrop drop = TIERD__WIRE__JOB_DROP__INIT;
	int r;

	fork.name = (char *)"play";
	fork.fork = (char *)"first";
	request.body_case = TIERD__WIRE__REQUEST__BODY_JOB_FORK;
	request.job_fork = &fork;
	r = actor_ask(&actor, &request, NULL);
	fork.fork = (char *)"second";
	if (r == 0)
		r = actor_ask(&actor, &request, NULL);
	drop.name = (char *)"first";
	request.body_case = TIERD__WIRE__REQUEST__BODY_JOB_DROP;
	request.job_drop = &drop;
	return r < 0 ? r : actor_ask(&actor, &request, NULL);
}

static void a_fork_survives(void **state)
{
	survive_asking(&(struct actor_job){ .stage = 3 }, fork_it);
}

/* Verifies all of the job, has it scrubbed, and looks at the node. */
static int look_after_it(void)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__Verify verify = TIERD__WIRE__VERIFY__INIT;
	Tierd__Wire__Scrub scrub = TIERD__WIRE__SCRUB__INIT;
	const Tierd__Wire__Reply *reply;
	int r;

	verify.name = (char *)"play";
	request.body_case = TIERD__WIRE__REQUEST__BODY_VERIFY;
	request.verify = &verify;
	r = actor_ask(&actor, &request, &reply);
	if (r < 0)
		return r;
	assert_true(reply->verify->next > 0 && reply->verify->n_findings == 0);
	scrub.action = 1;
	request.body_case = TIERD__WIRE__REQUEST__BODY_SCRUB;
	request.scrub = &scrub;
	r = actor_ask(&actor, &request, &reply);
	/* The job may have broken meanwhile: a commit had no memory. */
	if (r == 0 && !alloc_fault_tripped())
		assert_int_equal(reply->scrub->n_jobs, 1);
	return r;
}

static void verify_and_scrub_survive(void **state)
{
	survive_asking(&(struct actor_job){ .stage = 3 }, look_after_it);
}

static int count_job(struct node *node, const struct job_file *job, void *argument)
{
	(*(unsigned *)argument)++;
	return 0;
}

static int search(void)
{
	unsigned count = 0;
	int r = job_files_find(scene.node, count_job, &count);

	assert_int_equal(count, r == 0);
	return r;
}

static void a_search_for_jobs_survives(void **state)
{
	assert_int_equal(scene_open(&(struct scene_options){ 0 }, &scene), 0);
	assert_int_equal(training_run(&scene, &actor, &(struct actor_job){ .stage = 3 }), 0);
	alloc_fault_each(search);
	end_scene();
}

/* When there is more room than there was. */
static void try_again(struct job *job)
{
	if (!job_is_lost(job)) {
		life_step(job, LIFE_REOPEN);
		return;
	}
	scene.node->settings.host_budget++;
	job_settle(job);
}

/* It comes back, or is broken under its name until there is more memory; its files stay. */
static void an_opening_survives(void **state)
{
	const struct actor_job with_blobs = { .stage = 3, .blob_bytes = TRAINING_BLOB_BYTES };
	struct job *job;
	bool has_tripped = true;

	assert_int_equal(scene_open(&(struct scene_options){ 0 }, &scene), 0);
	assert_int_equal(training_run(&scene, &actor, &with_blobs), 0);
	scene_settle(&scene);
	actor_die(&actor);
	scene_settle(&scene);
	for (unsigned nth = 1; has_tripped; nth++) {
		job = job_find(scene.node, geteuid(), "play");
		assert_non_null(job);
		alloc_fault_arm(nth);
		try_again(job);
		scene_settle(&scene);
		has_tripped = alloc_fault_tripped();
	}
	job = job_find(scene.node, geteuid(), "play");
	assert_non_null(job);
	assert_int_equal(job->state, JOB_RELEASED);
	assert_int_equal(job->step, 2);
	assert_int_equal(job->durability->blobs.used, TRAINING_BLOB_BYTES);
	assert_int_equal(job->durability->blobs.image.base[TRAINING_BLOB_BYTES - 1], 'b');
	expect_that_others_train();
	end_scene();
}

static void a_node_survives(void **state)
{
	bool has_tripped = true;

	for (unsigned nth = 1; has_tripped; nth++) {
		alloc_fault_arm(nth);
		int r = scene_open(&(struct scene_options){ 0 }, &scene);

		has_tripped = alloc_fault_tripped();
		if (!has_tripped)
			assert_int_equal(r, 0);
		scene_close(&scene);
	}
}

static int setup(void **state)
{
	log_open(LOG_LEVEL_ERROR);
	event_set_mem_functions(counted_malloc, counted_realloc, free);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_node_survives),
		cmocka_unit_test(an_opening_survives),
		cmocka_unit_test(a_training_on_nvme_survives),
		cmocka_unit_test(values_written_between_steps_survive),
		cmocka_unit_test(values_written_in_host_memory_survive),
		cmocka_unit_test(a_drafted_training_survives),
		cmocka_unit_test(a_drafted_training_without_nvme_survives),
		cmocka_unit_test(a_training_with_blobs_survives),
		cmocka_unit_test(a_training_with_backups_survives),
		cmocka_unit_test(a_training_with_what_an_idle_job_had_survives),
		cmocka_unit_test(a_training_in_host_memory_survives),
		cmocka_unit_test(a_training_with_spilled_sums_survives),
		cmocka_unit_test(a_training_by_its_owner_survives),
		cmocka_unit_test(a_reader_survives),
		cmocka_unit_test(a_reader_as_of_a_snapshot_survives),
		cmocka_unit_test(a_fork_survives),
		cmocka_unit_test(verify_and_scrub_survive),
		cmocka_unit_test(a_search_for_jobs_survives),
	};

	if (argc > 1 && argv[1][0] == '!')
		cmocka_set_skip_filter(argv[1] + 1);
	else if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, setup, NULL);
}
