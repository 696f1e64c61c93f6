/* What nobody trains gives its host memory up to who would be refused without, if its state is all on NVMe,
 * and to who says so; what is in host memory alone stays, and is named. */
#include <errno.h>
#include <string.h>

#include "daemon/durability/durable.h"
#include "daemon/gradients/gradients.h"
#include "daemon/life/idle.h"
#include "daemon/resources/own.h"
#include "tests/unit/scene_test.h"

#define ELEMENTS (UINT64_C(1) << 20) /* a pack each */

static struct actor first, second, third;
static unsigned units;

static int open_job(struct actor *actor, const char *name, uint32_t durability)
{
	const struct actor_job job = {
		.name = name, .stage = 3, .parameter_placement = PLACEMENT_HOST, .durability = durability
	};
	int r;

	assert_int_equal(actor_enter(&scene, actor), 0);
	r = actor_open(actor, &job);
	return r < 0 ? r : actor_define_units(actor, units, ELEMENTS);
}

static void start(struct actor *actor, const char *name, uint32_t durability)
{
	assert_int_equal(open_job(actor, name, durability), 0);
	assert_int_equal(actor_ready(actor), 0);
	assert_int_equal(actor_take_step(actor), 0);
}

/* Trained, left, at rest. */
static struct job *leave_idle(struct actor *actor, const char *name, uint32_t durability)
{
	struct job *job;

	start(actor, name, durability);
	actor_die(actor);
	scene_settle(&scene);
	job = scene_job(name);
	assert_true(job_is_idle(job) && job->state == JOB_TRAINED);
	return job;
}

/* But for a window and definitions: all is promised. */
static void leave_no_room(void)
{
	scene_await_disposals(&scene);
	scene.node->settings.host_budget = budget_host_used(scene.node) + 2 * MIB;
	QUEUE_FOREACH (link, &scene.node->jobs.live)
		scene.node->settings.host_budget -= budget_cache_bytes(queue_entry(link, struct job, link));
}

static void an_idle_job_gives_its_memory_to_the_next_one(void **state)
{
	struct job *job = leave_idle(&first, "first", DURABILITY_STEP);
	uint64_t held = budget_host_bytes(job);

	leave_no_room();
	start(&second, "second", DURABILITY_STEP);
	assert_int_equal(job->state, JOB_RELEASED);
	assert_true(budget_host_bytes(job) < MIB && held > 16 * MIB);
	assert_true(budget_host_used(scene.node) <= scene.node->settings.host_budget);
	/* Its ranks come back to it, when there is room. */
	assert_int_equal(open_job(&first, "first", DURABILITY_STEP), 0);
	assert_int_equal(actor_ready(&first), -ENOMEM);
	actor_die(&second);
	scene_settle(&scene);
	assert_int_equal(actor_ready(&first), 0);
	assert_int_equal(first.step, 1);
	assert_int_equal(scene_job("second")->state, JOB_RELEASED);
	assert_int_equal(actor_take_step(&first), 0);
}

static void who_is_idle_longest_gives_first_and_no_more_than_is_needed(void **state)
{
	struct job *oldest = leave_idle(&first, "oldest", DURABILITY_STEP);
	struct job *newest = leave_idle(&second, "newest", DURABILITY_STEP);

	/* Nor in the order in which they were opened. */
	assert_true(oldest->members.idle_since_ns < newest->members.idle_since_ns);
	oldest->members.idle_since_ns = newest->members.idle_since_ns + 1;
	leave_no_room();
	start(&third, "third", DURABILITY_STEP);
	assert_int_equal(newest->state, JOB_RELEASED);
	assert_int_equal(oldest->state, JOB_TRAINED);
}

static void what_does_not_help_is_left_alone(void **state)
{
	struct job *job = leave_idle(&first, "first", DURABILITY_STEP);

	leave_no_room();
	units *= 8;
	assert_int_equal(open_job(&second, "second", DURABILITY_STEP), 0);
	assert_int_equal(actor_ready(&second), -ENOMEM);
	assert_int_equal(job->state, JOB_TRAINED);
}

static void what_is_in_host_memory_alone_stays_and_is_named(void **state)
{
	struct job *job = leave_idle(&first, "first", DURABILITY_NONE);

	leave_no_room();
	assert_int_equal(open_job(&second, "second", DURABILITY_STEP), 0);
	assert_int_equal(actor_ready(&second), -ENOMEM);
	assert_non_null(strstr(actor_message(&second), "first has"));
	assert_non_null(strstr(actor_message(&second), "(idle, with its state in host memory)"));
	assert_non_null(strstr(actor_message(&second), "ends an idle job and destroys its state"));
	assert_int_equal(job->state, JOB_TRAINED);
}

static void a_window_takes_it_too(void **state)
{
	struct job *job = leave_idle(&first, "first", DURABILITY_STEP);

	scene_await_disposals(&scene);
	scene.node->settings.host_budget = budget_host_used(scene.node);
	assert_int_equal(open_job(&second, "second", DURABILITY_STEP), 0);
	assert_int_equal(job->state, JOB_RELEASED);
	assert_int_equal(actor_ready(&second), 0);
}

static void a_reader_takes_it_too(void **state)
{
	struct job *job = leave_idle(&first, "first", DURABILITY_STEP);
	uint32_t reader;

	scene_await_disposals(&scene);
	scene.node->settings.host_budget = budget_host_used(scene.node);
	assert_int_equal(actor_enter(&scene, &second), 0);
	assert_int_equal(actor_open_reader(&second, "first", &reader), 0);
	assert_int_equal(job->state, JOB_RELEASED);
}

static void a_commit_that_is_under_way_is_waited_for(void **state)
{
	struct job *job;
	uint32_t ready;

	start(&first, "first", DURABILITY_STEP);
	scene_settle(&scene);
	job = scene_job("first");
	scene_await_disposals(&scene);
	assert_int_equal(open_job(&second, "second", DURABILITY_STEP), 0);
	leave_no_room();
	scene_hear_nothing_of_devices(&scene);
	actor_send_step(&first, 0.1f);
	while (job->step < 2)
		scene_wait(&scene);
	actor_die(&first);
	assert_true(durable_is_behind(job));
	ready = actor_send_ready(&second, -1);
	while (!shortage_is_awaited(scene.node))
		scene_wait(&scene);
	assert_int_equal(job->state, JOB_TRAINED);
	scene_hear_of_devices(&scene);
	assert_int_equal(actor_finish_ready(&second, ready), 0);
	assert_int_equal(job->state, JOB_RELEASED);
}

/* A process that has left lives, and reads what it has leased. */
static void hold_what_was_gathered(void)
{
	start(&first, "first", DURABILITY_STEP);
	assert_int_equal(actor_gather(&first, 0, 1, NULL), 0);
	client_hang_up(first.client, "it closed the connection");
	scene_settle(&scene);
	assert_true(job_is_idle(scene_job("first")));
}

static void what_is_leased_is_not_taken(void **state)
{
	scene.node->settings.cache_patience_ms = 300;
	hold_what_was_gathered();
	leave_no_room();
	assert_int_equal(open_job(&second, "second", DURABILITY_STEP), 0);
	assert_int_equal(actor_ready(&second), -ENOMEM);
	assert_int_equal(scene_job("first")->state, JOB_TRAINED);
	actor_release(&first, 0);
	assert_int_equal(actor_ready(&second), 0);
	assert_int_equal(scene_job("first")->state, JOB_RELEASED);
}

static void a_broken_job_gives_what_is_lost(void **state)
{
	struct job *job;

	start(&first, "first", DURABILITY_NONE);
	scene_settle(&scene);
	job = scene_job("first");
	leave_no_room();
	job_break(job, NULL, "it is broken by a test");
	actor_die(&first);
	assert_int_equal(open_job(&second, "second", DURABILITY_STEP), 0);
	assert_int_equal(actor_ready(&second), 0);
	assert_int_equal(job->state, JOB_BROKEN);
	assert_int_equal(budget_nvme_bytes(job), 0);
}

/* Between its end and its return. */
static void a_broken_job_that_comes_back_gives_nothing(void **state)
{
	struct claim claim;

	start(&first, "first", DURABILITY_STEP);
	scene_settle(&scene);
	claim = claim_of_job(scene_job("first"));
	claim.job = NULL;
	job_break(scene_job("first"), NULL, "it is broken by a test");
	actor_die(&first);
	assert_false(idle_give(scene_job("first")));
	assert_int_equal(idle_give_up(&claim, GIB), 0);
	scene_settle(&scene);
	assert_int_equal(scene_job("first")->state, JOB_RELEASED);
	assert_int_equal(scene_job("first")->step, 1);
}

/* By its cache, and beside it. */
static void what_a_broken_job_gives_is_counted_once(void **state)
{
	Tierd__Wire__NodeRead read = TIERD__WIRE__NODE_READ__INIT;
	const Tierd__Wire__Reply *reply;
	struct job *job;

	start(&first, "first", DURABILITY_NONE);
	scene_settle(&scene);
	job = scene_job("first");
	job_break(job, NULL, "it is broken by a test");
	actor_die(&first);
	scene_settle(&scene);
	assert_true(budget_cache_bytes(job) > job->resources->charged_bytes);
	assert_int_equal(actor_enter(&scene, &second), 0);
	assert_int_equal(actor_ask(&second, WIRE_REQUEST(NODE_READ, node_read, &read), &reply), 0);
	assert_true(reply->node->host_idle_bytes > 0);
	assert_in_range(reply->node->limits->host_held, 0, job->resources->charged_bytes);
	assert_in_range(reply->node->host_cache_bytes + reply->node->host_idle_bytes, 0,
			reply->node->host_used_bytes);
}

/* ---- By hand ---- */

static int release(struct actor *actor, const char *name, uint64_t *ret_bytes)
{
	Tierd__Wire__JobRelease body = TIERD__WIRE__JOB_RELEASE__INIT;
	const Tierd__Wire__Reply *reply;
	int r;

	body.name = (char *)name;
	r = actor_ask(actor, WIRE_REQUEST(JOB_RELEASE, job_release, &body), &reply);
	if (r == 0)
		*ret_bytes = reply->job_release->bytes;
	return r;
}

static void it_is_released_by_hand(void **state)
{
	struct job *job = leave_idle(&first, "first", DURABILITY_STEP);
	uint64_t held = budget_host_bytes(job), bytes;

	assert_int_equal(actor_enter(&scene, &second), 0);
	assert_int_equal(release(&second, "first", &bytes), 0);
	assert_int_equal(job->state, JOB_RELEASED);
	assert_int_equal(bytes, held - budget_host_bytes(job));
	assert_int_equal(release(&second, "first", &bytes), 0);
	assert_int_equal(bytes, 0);
}

static void expect_refusal(const char *name, int r, const char *text)
{
	uint64_t bytes;

	assert_int_equal(release(&second, name, &bytes), r);
	assert_non_null(strstr(actor_message(&second), text));
}

static void who_cannot_be_released_says_why(void **state)
{
	assert_int_equal(actor_enter(&scene, &second), 0);
	expect_refusal("first", -ENOENT, "there is no job first");
	start(&first, "first", DURABILITY_STEP);
	expect_refusal("first", -EBUSY, "it is in use by rank 0");
	leave_idle(&third, "volatile", DURABILITY_NONE);
	expect_refusal("volatile", -EOPNOTSUPP, "in host memory alone");
	assert_int_equal(scene_job("volatile")->state, JOB_TRAINED);
}

static void what_is_held_is_not_released(void **state)
{
	uint64_t bytes;

	hold_what_was_gathered();
	assert_int_equal(actor_enter(&scene, &second), 0);
	expect_refusal("first", -EBUSY, "still holds what it gathered");
	actor_release(&first, 0);
	assert_int_equal(release(&second, "first", &bytes), 0);
	assert_true(bytes > MIB);
}

static int setup(void **state)
{
	units = 4;
	return scene_setup_with(&(struct scene_options){ .capacity = GIB });
}

#define TEST(name) SCENE_TEST(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_idle_job_gives_its_memory_to_the_next_one),
		TEST(who_is_idle_longest_gives_first_and_no_more_than_is_needed),
		TEST(what_does_not_help_is_left_alone),
		TEST(what_is_in_host_memory_alone_stays_and_is_named),
		TEST(a_window_takes_it_too),
		TEST(a_reader_takes_it_too),
		TEST(a_commit_that_is_under_way_is_waited_for),
		TEST(what_is_leased_is_not_taken),
		TEST(a_broken_job_gives_what_is_lost),
		TEST(a_broken_job_that_comes_back_gives_nothing),
		TEST(what_a_broken_job_gives_is_counted_once),
		TEST(it_is_released_by_hand),
		TEST(who_cannot_be_released_says_why),
		TEST(what_is_held_is_not_released),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
