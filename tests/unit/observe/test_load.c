/* How busy the daemon and its devices are, in states that are certain: nothing to do, workers that are all
 * held, and a device of which nobody hears. */
#include "common/clock.h"
#include "daemon/observe/own.h"
#include "daemon/resources/resources.h"
#include "tests/unit/scene_test.h"

static struct actor actor;

/* A time that lies between two looks. */
struct while_looking {
	uint64_t began_ns, ended_ns;
};

static struct statistics_node look(void)
{
	struct statistics_node body;

	statistics_look(scene.node, &body);
	return body;
}

static struct statistics_node look_after(struct while_looking *span)
{
	span->began_ns = clock_now_ns();
	while ((span->ended_ns = clock_now_ns()) == span->began_ns)
		;
	return look();
}

static uint64_t length(struct while_looking span)
{
	return span.ended_ns - span.began_ns;
}

static const Tierd__Wire__NodeReply *node_reply(void)
{
	Tierd__Wire__NodeRead read = TIERD__WIRE__NODE_READ__INIT;
	const Tierd__Wire__Reply *reply;

	assert_int_equal(actor_ask(&actor, WIRE_REQUEST(NODE_READ, node_read, &read), &reply), 0);
	return reply->node;
}

static void who_has_nothing_to_do_is_not_busy(void **state)
{
	struct statistics_node before, now;
	struct while_looking span;

	actor_play(&scene, &actor);
	scene_settle(&scene);
	before = look();
	/* A worker has done its last work a little before it waits for more. */
	while ((now = look()).worker_busy_ns != before.worker_busy_ns)
		before = now;
	before = look();
	now = look_after(&span);
	assert_int_equal(now.worker_busy_ns, before.worker_busy_ns);
	assert_int_equal(now.paths[0].busy_ns, before.paths[0].busy_ns);
	assert_true(now.paths[0].busy_ns > 0);
	assert_int_equal(now.workers, workers_count(scene.node->workers));
	assert_int_equal(now.ranks, 1);
}

static void workers_that_are_all_held_are_busy_all_the_time(void **state)
{
	struct blockade blockade;
	struct statistics_node before, now;
	struct while_looking span;

	blockade_begin(&scene, scene.node->workers, &blockade);
	before = look();
	now = look_after(&span);
	assert_true(now.worker_busy_ns - before.worker_busy_ns >= now.workers * length(span));
	assert_int_equal(now.ranks, 0);
	blockade_end(&blockade);
}

static void a_device_of_which_nobody_hears_is_busy_while_a_rank_waits(void **state)
{
	struct job *job = actor_play(&scene, &actor);
	struct statistics_node before, now;
	struct while_looking span;
	uint32_t gather;

	scene_settle(&scene);
	scene_hear_nothing_of_devices(&scene);
	gather = actor_send_gather(&actor, scene_absent_unit(job), 0, true);
	before = look();
	now = look_after(&span);
	assert_true(now.paths[0].busy_ns - before.paths[0].busy_ns >= length(span));
	assert_true(now.figures.stall_ns[STATISTICS_NVME_READ] -
			    before.figures.stall_ns[STATISTICS_NVME_READ] >=
		    length(span));
	scene_hear_of_devices(&scene);
	assert_int_equal(actor_await(&actor, gather, 0)->status, 0);
}

/* With the kernel's figures, and, where it has none, by the processor time alone. */
static void a_loop_that_turns_is_busy(void **state)
{
	struct load alone = { .turns_fd = -1 };
	const struct load *loads[] = { &scene.node->observe->load, &alone };

	for (unsigned i = 0; i < 2; i++) {
		uint64_t before = load_loop_ns(loads[i]);

		assert_true(before > 0);
		while (load_loop_ns(loads[i]) == before)
			;
		assert_true(load_loop_ns(loads[i]) > before);
	}
}

static void a_report_tells_of_the_time_since_the_oldest_look(void **state)
{
	struct load *load = &scene.node->observe->load;
	struct statistics_node first, now;
	struct blockade blockade;
	struct while_looking span;

	assert_int_equal(actor_enter(&scene, &actor), 0);
	assert_null(node_reply()->load);
	blockade_begin(&scene, scene.node->workers, &blockade);
	first = look();
	load_note(load, &first);
	now = look_after(&span);
	for (unsigned i = 1; i < LOAD_LOOKS; i++)
		load_note(load, &now);
	const Tierd__Wire__Load *told = node_reply()->load;

	assert_true(told->interval_ns > now.heartbeat_ns - first.heartbeat_ns);
	assert_true(told->worker_ns >= now.workers * length(span));
	assert_int_equal(told->n_stall_ns, STATISTICS_CAUSES);
	assert_int_equal(told->stall_ns[STATISTICS_STEP], 0);
	assert_int_equal(node_reply()->paths[0]->busy_ns, 0);
	/* Another one takes the place of the first. */
	load_note(load, &now);
	now.heartbeat_ns -= first.heartbeat_ns;
	assert_true(node_reply()->load->interval_ns <=
		    clock_now_ns() - first.heartbeat_ns - now.heartbeat_ns);
	blockade_end(&blockade);
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(who_has_nothing_to_do_is_not_busy),
		TEST(workers_that_are_all_held_are_busy_all_the_time),
		TEST(a_device_of_which_nobody_hears_is_busy_while_a_rank_waits),
		TEST(a_loop_that_turns_is_busy),
		TEST(a_report_tells_of_the_time_since_the_oldest_look),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
