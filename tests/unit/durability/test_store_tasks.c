/* What clients ask a job's store for, and who asks: it has a bound, and outlives them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/durability/own.h"
#include "daemon/durability/store_task.h"
#include "daemon/durability/snapshot.h"
#include "daemon/model/job.h"
#include "daemon/recovery/restore.h"
#include "daemon/residency/residency.h"
#include "tests/unit/scene_test.h"

static struct actor rank, first, second;

/* Its turn comes with the loop's. */
static uint32_t send_delete(struct actor *actor, const char *snapshot)
{
	Tierd__Wire__SnapshotDelete body = TIERD__WIRE__SNAPSHOT_DELETE__INIT;

	body.name = (char *)"play";
	body.snapshot = (char *)snapshot;
	return actor_send(actor, WIRE_REQUEST(SNAPSHOT_DELETE, snapshot_delete, &body));
}

static int ask(struct actor *actor, Tierd__Wire__Request *request)
{
	const Tierd__Wire__Reply *reply;

	return actor_ask(actor, request, &reply);
}

static int reserve(unsigned snapshots)
{
	Tierd__Wire__JobReserve body = TIERD__WIRE__JOB_RESERVE__INIT;

	body.name = (char *)"play";
	body.snapshots = snapshots;
	return ask(&first, WIRE_REQUEST(JOB_RESERVE, job_reserve, &body));
}

static int take(const char *snapshot)
{
	Tierd__Wire__SnapshotTake body = TIERD__WIRE__SNAPSHOT_TAKE__INIT;

	body.name = (char *)"play";
	body.snapshot = (char *)snapshot;
	return ask(&first, WIRE_REQUEST(SNAPSHOT_TAKE, snapshot_take, &body));
}

static uint32_t send_roll_back(const char *snapshot, bool is_forced)
{
	Tierd__Wire__JobRollBack body = TIERD__WIRE__JOB_ROLL_BACK__INIT;

	body.name = (char *)"play";
	body.snapshot = (char *)snapshot;
	body.force = is_forced;
	return actor_send(&first, WIRE_REQUEST(JOB_ROLL_BACK, job_roll_back, &body));
}

static int roll_back(const char *snapshot)
{
	return actor_await(&first, send_roll_back(snapshot, false), 0)->status;
}

static int retain(uint64_t every, uint32_t keep)
{
	Tierd__Wire__JobRetain body = TIERD__WIRE__JOB_RETAIN__INIT;

	body.name = (char *)"play";
	body.every = every;
	body.keep = keep;
	return ask(&first, WIRE_REQUEST(JOB_RETAIN, job_retain, &body));
}

static unsigned count_tasks(const struct job *job)
{
	unsigned count = 0;

	QUEUE_FOREACH (link, &job->durability->tasks)
		count++;
	return count;
}

static void play(void)
{
	actor_play(&scene, &rank);
	assert_int_equal(actor_enter(&scene, &first), 0);
	assert_int_equal(actor_enter(&scene, &second), 0);
	scene_settle(&scene);
}

static void requests_of_clients_that_are_gone_have_a_bound(void **state)
{
	const struct answer *answer;
	const struct job *job;
	uint32_t number;

	play();
	job = scene_job(NULL);
	for (unsigned i = 0; i < STORE_TASKS_MAXIMUM / 2; i++) {
		send_delete(&first, "absent");
		send_delete(&second, "absent");
	}
	assert_int_equal(count_tasks(job), STORE_TASKS_MAXIMUM);
	actor_die(&first);
	actor_die(&second);
	assert_int_equal(actor_enter(&scene, &first), 0);
	number = send_delete(&first, "absent");
	answer = actor_find(&first, number, 0);
	assert_non_null(answer);
	assert_int_equal(answer->status, -EBUSY);
	assert_non_null(strstr(actor_message(&first), "256 requests for snapshots of job play wait"));
	assert_int_equal(count_tasks(job), STORE_TASKS_MAXIMUM);
	/* They are worked off, though nobody is there to hear of it. */
	scene_settle(&scene);
	assert_int_equal(count_tasks(job), 0);
	number = send_delete(&first, "absent");
	assert_int_equal(actor_await(&first, number, 0)->status, -ENOENT);
}

static struct job *come_back(const char *fault)
{
	scene.node->fault = fault;
	life_step(scene_job(NULL), LIFE_REOPEN);
	scene_settle(&scene);
	return scene_job(NULL);
}

/* The nth flush of the store fails: false: none was there. */
static bool roll_back_with(unsigned nth)
{
	const struct job *job;
	char fault[64];
	uint64_t stands;
	int r;

	snprintf(fault, sizeof(fault), "complete:flush:%u:EIO", nth);
	job = come_back(fault);
	/* The opening was what failed. */
	if (job_is_lost(job)) {
		assert_int_equal(come_back(NULL)->step, 2);
		return true;
	}
	r = roll_back("one");
	scene_settle(&scene);
	job = scene_job(NULL);
	if (r < 0)
		assert_non_null(strstr(actor_message(&first), "rolling back to snapshot one has failed"));
	/* What it says is what a later daemon finds. */
	stands = job_is_lost(job) ? 0 : job->step;
	job = come_back(NULL);
	assert_false(job_is_lost(job));
	if (stands > 0)
		assert_int_equal(stands, job->step);
	if (r == 0)
		assert_int_equal(job->step, 1);
	else if (job->step == 2)
		return true;
	/* Forward again. */
	assert_int_equal(roll_back("two"), 0);
	scene_settle(&scene);
	return r < 0;
}

static void a_job_is_what_its_devices_say_after_a_rollback_that_failed(void **state)
{
	unsigned nth = 1;

	play();
	assert_int_equal(reserve(2), 0);
	assert_int_equal(actor_take_step(&rank), 0);
	assert_int_equal(take("one"), 0);
	assert_int_equal(actor_take_step(&rank), 0);
	assert_int_equal(take("two"), 0);
	actor_die(&rank);
	scene_settle(&scene);
	while (roll_back_with(nth))
		nth++;
	/* Flushes of the opening, and both of the rollback. */
	assert_true(nth > 4);
}

static void take_durable_step(void)
{
	uint32_t step = actor_send_step(&rank, 0.1f);

	for (unsigned nth = 0; nth < 2; nth++)
		assert_int_equal(actor_await(&rank, step, nth)->status, 0);
	scene_settle(&scene);
}

static bool is_kept(const char *snapshot)
{
	struct store_snapshot found;

	return snapshot_look_for(scene_job(NULL), snapshot, &found);
}

static void of_the_steps_that_are_kept_the_oldest_goes_and_no_other_snapshot(void **state)
{
	play();
	assert_int_equal(reserve(3), 0);
	assert_int_equal(take("mine"), 0);
	assert_int_equal(retain(1, 2), 0);
	for (unsigned step = 1; step <= 4; step++)
		take_durable_step();
	assert_true(is_kept("mine") && is_kept("step-3") && is_kept("step-4"));
	assert_int_equal(snapshot_count(scene_job(NULL)), 3);
}

static void a_rollback_waits_for_what_is_in_flight(void **state)
{
	struct job *job;
	uint32_t number;

	play();
	assert_int_equal(reserve(2), 0);
	assert_int_equal(take("one"), 0);
	assert_int_equal(roll_back("one"), -EBUSY);
	assert_non_null(strstr(actor_message(&first), "in use by rank 0"));
	job = scene_job(NULL);
	assert_int_equal(residency_state(job, PLAY_UNITS - 1), DIRECTORY_ABSENT);
	scene_hear_nothing_of_devices(&scene);
	actor_send_gather(&rank, PLAY_UNITS - 1, 0, false);
	number = send_roll_back("one", true);
	assert_true(rank.ended_epochs == 1 && job->members.count == 0);
	for (unsigned turn = 0; turn < 10; turn++)
		event_base_loop(scene.loop, EVLOOP_NONBLOCK);
	assert_int_equal(count_tasks(job), 1);
	assert_false(
		queue_entry(queue_first(&job->durability->tasks), struct store_task, link)->is_under_way);
	assert_int_equal(take("two"), -EAGAIN);
	assert_non_null(strstr(actor_message(&first), "is being rolled back"));
	assert_int_equal(actor_open(&second, &(struct actor_job){ .stage = 3 }), -EAGAIN);
	assert_non_null(strstr(actor_message(&second), "is being rolled back"));
	scene_hear_of_devices(&scene);
	assert_int_equal(actor_await(&first, number, 0)->status, 0);
}

static int read_one(struct actor *actor, uint32_t reader)
{
	Tierd__Wire__ReaderRead read = TIERD__WIRE__READER_READ__INIT;

	read.state = (char *)"parameter";
	read.count = 1;
	return actor_await(actor, actor_send_reader_read(actor, reader, &read), 0)->status;
}

static void a_reader_of_what_was_rolled_back_is_told_to_try_again_with_another(void **state)
{
	uint32_t reader;

	play();
	assert_int_equal(reserve(1), 0);
	assert_int_equal(take("one"), 0);
	actor_die(&rank);
	assert_int_equal(actor_open_reader(&second, "play", &reader), 0);
	assert_int_equal(read_one(&second, reader), 0);
	assert_int_equal(roll_back("one"), 0);
	assert_int_equal(read_one(&second, reader), -EAGAIN);
	assert_non_null(strstr(actor_message(&second), "opened again"));
	assert_non_null(strstr(actor_message(&second), "try again, with another reader"));
	assert_int_equal(actor_open_reader(&second, "play", &reader), 0);
	assert_int_equal(read_one(&second, reader), 0);
	job_drop(scene_job(NULL));
	scene_settle(&scene);
	assert_int_equal(read_one(&second, reader), -ENOENT);
}

/* The job is there, and its blobs are not yet. */
static void a_rollback_waits_for_what_comes_back(void **state)
{
	const struct actor_job options = { .stage = 3, .blob_bytes = MIB };
	const struct actor_tensor tensor = { "w", FORMAT_FP32, INITIALIZE_ONES, PLAY_ELEMENTS, false };
	const struct job *job;
	uint32_t number;

	assert_int_equal(actor_enter(&scene, &rank), 0);
	assert_int_equal(actor_enter(&scene, &first), 0);
	assert_int_equal(actor_open(&rank, &options), 0);
	assert_int_equal(actor_define(&rank, "u0", &tensor, 1), 0);
	assert_int_equal(actor_ready(&rank), 0);
	assert_int_equal(actor_set_blob(&rank, "key", 10, 'k'), 0);
	take_durable_step();
	assert_int_equal(reserve(1), 0);
	assert_int_equal(take("one"), 0);
	actor_die(&rank);
	scene_settle(&scene);
	life_step(scene_job(NULL), LIFE_REOPEN);
	while (!(job = scene_job(NULL)) || !blobs_are_loading(job))
		scene_wait(&scene);
	number = send_roll_back("one", false);
	assert_true(blobs_are_loading(job));
	assert_int_equal(actor_await(&first, number, 0)->status, 0);
}

static int read_units(void)
{
	Tierd__Wire__UnitsRead body = TIERD__WIRE__UNITS_READ__INIT;

	body.job = (char *)"play";
	body.has_owner = true;
	body.owner = geteuid();
	return ask(&first, WIRE_REQUEST(UNITS_READ, units_read, &body));
}

static int open_as_member(uint32_t uid, uint32_t gid)
{
	first.port.uid = uid;
	first.port.gid = gid;
	return actor_open(&first, &(struct actor_job){ .stage = 3, .has_owner = true, .owner = geteuid() });
}

static void who_names_a_job_that_comes_back_is_told_so_if_he_may_see_it(void **state)
{
	const uint32_t group = 4321, other = geteuid() + 1;
	struct job *job;

	play();
	assert_int_equal(reserve(1), 0);
	assert_int_equal(take("one"), 0);
	actor_die(&rank);
	scene_settle(&scene);
	job = scene_job(NULL);
	job->options.sharing = SHARING_TRAIN;
	job->options.share_group = group;
	scene_hear_nothing_of_devices(&scene);
	life_step(job, LIFE_REOPEN);
	assert_null(scene_job(NULL));
	assert_int_equal(read_units(), -EAGAIN);
	assert_non_null(strstr(actor_message(&first), "job play comes back from its store; try again"));
	assert_int_equal(roll_back("one"), -EAGAIN);
	assert_int_equal(open_as_member(other, group), -EAGAIN);
	assert_int_equal(read_units(), -EAGAIN);
	assert_int_equal(open_as_member(other, group + 1), -ENOENT);
	assert_int_equal(read_units(), -ENOENT);
	first.port.uid = geteuid();
	scene_hear_of_devices(&scene);
	scene_settle(&scene);
	assert_int_equal(read_units(), 0);
}

static void a_released_job_remembers_which_steps_it_keeps(void **state)
{
	const struct job *job;

	play();
	assert_int_equal(reserve(3), 0);
	actor_die(&rank);
	scene_settle(&scene);
	for (uint32_t every = 1; every < 4; every++) {
		assert_int_equal(come_back(NULL)->state, JOB_RELEASED);
		assert_int_equal(retain(UINT64_MAX - every, every), 0);
		/* It is answered when that is on the devices. */
		job = come_back(NULL);
		assert_int_equal(job->options.snapshot_every, UINT64_MAX - every);
		assert_int_equal(job->options.snapshot_keep, every);
		assert_int_equal(job->step, 0);
	}
}

static void a_commit_that_fails_is_told_who_has_changed_the_retention(void **state)
{
	play();
	assert_int_equal(reserve(1), 0);
	actor_die(&rank);
	scene_settle(&scene);
	/* Those of the opening, and the first one of the commit. */
	come_back("complete:flush:3:EIO");
	assert_int_equal(retain(5, 1), -ECANCELED);
	assert_non_null(strstr(actor_message(&first), "job play has ended before that was done"));
	scene_settle(&scene);
	assert_int_equal(come_back(NULL)->options.snapshot_every, 0);
}

static int setup(void **state)
{
	return scene_setup_with(&(struct scene_options){ .capacity = GIB });
}

#define TEST(name) SCENE_TEST(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(requests_of_clients_that_are_gone_have_a_bound),
		TEST(a_job_is_what_its_devices_say_after_a_rollback_that_failed),
		TEST(of_the_steps_that_are_kept_the_oldest_goes_and_no_other_snapshot),
		TEST(a_rollback_waits_for_what_is_in_flight),
		TEST(a_reader_of_what_was_rolled_back_is_told_to_try_again_with_another),
		TEST(a_rollback_waits_for_what_comes_back),
		TEST(who_names_a_job_that_comes_back_is_told_so_if_he_may_see_it),
		TEST(a_released_job_remembers_which_steps_it_keeps),
		TEST(a_commit_that_fails_is_told_who_has_changed_the_retention),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
