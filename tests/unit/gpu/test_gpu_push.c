/* Gradients that a rank pushes from the memory of its GPU: when they count, and what becomes of them, and of
 * that memory, when a rank leaves or something fails. The stand-in plays the GPU; as test_gpu_push of
 * tests/gpu it is a real one. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "daemon/gpu/own.h"
#include "daemon/gradients/own.h"
#include "daemon/resources/own.h"
#include "daemon/telemetry/telemetry.h"
#include "offload/cuda/gpu_private.h"
#include "tests/lib/gpu/cuda_calls.h"
#include "tests/lib/gpu/script.h"
#include "tests/unit/gpu/gpu_actor.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"
#include "tests/unit/training.h"

/* Of a unit of actor_play(), and of its gradients. */
#define UNIT_BYTES (PLAY_ELEMENTS * 2)
/* Of which bf16 has this value. */
#define BYTE 0x3f
#define VALUE 0.74609375f

static struct actor actor, other;
static struct gpu_peer peer;
static unsigned char uuid[GPU_UUID_BYTES];
static bool is_played;

static int setup(void **state)
{
	struct gpus gpus;

	standin_tell("STANDIN_GPUS", "1");
	standin_tell("STANDIN_BYTES", "67108864");
	standin_tell("STANDIN_FAILURES", NULL);
	gpus_find(&gpus);
	assert_true(gpus.count > 0);
	memcpy(uuid, &gpus.gpus[0].uuid, sizeof(uuid));
	is_played = strcmp(gpus.gpus[0].name, "stand-in") == 0;
	gpu_peer_start(&peer);
	peer.has_gradients = false;
	return scene_setup(state);
}

static int teardown(void **state)
{
	int r;

	/* What a test that has failed has left. */
	standin_tell("STANDIN_FAILURES", NULL);
	gpu_peer_hold(&peer, false);
	gpu_peer_unblock();
	if (is_played)
		standin_hold(false);
	r = scene_teardown(state);
	gpu_peer_end(&peer);
	return r;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* A real driver fails when it wants to. */
static void skip_without_stand_in(void)
{
	if (is_played)
		return;
	print_message("skipped: a real driver does not fail on demand\n");
	skip();
}

/* ---- What ranks do ---- */

static struct gpu_rank *rank_of(const struct actor *rank)
{
	return scene_job(NULL)->members.ranks[rank->rank]->gpu;
}

static void attach(struct actor *rank, uint64_t budget)
{
	const struct answer *answer = actor_await(rank, gpu_actor_send_attach(&peer, rank, uuid, budget), 0);

	assert_int_equal(answer->status, 0);
}

static void map_gradients(struct actor *rank)
{
	const struct answer *answer = actor_await(rank, gpu_actor_send_gradients(rank), 0);

	assert_int_equal(answer->status, 0);
	gpu_peer_map_gradients(&peer, rank->gpu_gradients, answer->reply->gpu_gradients->bytes);
}

static struct gpu_tier *tier_of(const struct actor *rank)
{
	return rank_of(rank)->tier;
}

static struct job *play(uint64_t budget)
{
	struct job *job = actor_play(&scene, &actor);

	attach(&actor, budget);
	map_gradients(&actor);
	return job;
}

static void open_two_ranks(uint32_t stage, pid_t first_pid)
{
	struct actor *ranks[] = { &actor, &other };

	for (unsigned i = 0; i < 2; i++) {
		const struct actor_job job = {
			.rank = i, .world_size = 2, .stage = stage, .host_budget = 2 * PLAY_HOST_BUDGET
		};

		assert_int_equal(actor_enter(&scene, ranks[i]), 0);
		if (i == 0 && first_pid > 0)
			ranks[i]->port.pid = first_pid;
		assert_int_equal(actor_open(ranks[i], &job), 0);
		assert_int_equal(actor_define_units(ranks[i], PLAY_UNITS, PLAY_ELEMENTS), 0);
	}
	actor_ready_both(&actor, &other);
}

/* As the library does. The next event of the peer's is the actor's. */
static uint32_t push(uint32_t unit, uint32_t buffer)
{
	struct gpu_lease_header *leases = (struct gpu_lease_header *)actor.gpu_leases.base;
	uint64_t number = atomic_fetch_add(&leases->recorded, 1) + 1;

	gpu_peer_write(&peer, buffer * UNIT_BYTES, UNIT_BYTES, BYTE);
	gpu_peer_record(&peer, number);
	return gpu_actor_send_push(&actor, unit, buffer, number);
}

static void hold(bool is_held)
{
	gpu_peer_hold(&peer, is_held);
}

static void expect_sum(const struct job *job, uint32_t unit, float value)
{
	const float *sum = (const float *)gradient_sum(job, unit);

	for (uint64_t i = 0; i < PLAY_ELEMENTS; i += PLAY_ELEMENTS - 1)
		assert_float_equal(sum[i], value, 0);
}

/* Nothing happens for a while. */
static void expect_quiet(const struct actor *rank, unsigned outstanding)
{
	for (unsigned i = 0; i < 20; i++) {
		event_base_loop(scene.loop, EVLOOP_NONBLOCK);
		assert_int_equal(actor_outstanding(rank), outstanding);
		usleep(1000);
	}
}

static const char *refused(uint32_t number, int status)
{
	const struct answer *answer = actor_await(&actor, number, 0);

	assert_int_equal(answer->status, status);
	return answer->reply->status->message;
}

/* ---- Values, and when they count ---- */

static void what_is_pushed_from_a_gpu_is_summed(void **state)
{
	struct job *job = play(0);

	assert_int_equal(actor_await(&actor, push(2, 0), 0)->status, 0);
	expect_sum(job, 2, VALUE);
	/* The next micro-batch comes from host memory. */
	training_push(&actor, 2, 1);
	expect_sum(job, 2, VALUE + 1);
	assert_int_equal(actor_await(&actor, push(2, 1), 0)->status, 0);
	expect_sum(job, 2, VALUE + 1 + VALUE);
}

static void gradients_are_read_when_their_stream_has_written_them(void **state)
{
	struct job *job = play(0);
	uint32_t number;

	hold(true);
	number = push(0, 0);
	expect_quiet(&actor, 1);
	assert_false(gradient_has_content(job, 0));
	assert_false(gradients_are_quiet(job));
	hold(false);
	assert_int_equal(actor_await(&actor, number, 0)->status, 0);
	expect_sum(job, 0, VALUE);
}

static void a_step_waits_for_gradients_that_come_from_a_gpu(void **state)
{
	struct job *job = play(0);
	uint32_t number, step;

	for (uint32_t unit = 1; unit < PLAY_UNITS; unit++)
		training_push(&actor, unit, 1);
	hold(true);
	number = push(0, 0);
	step = actor_send_step(&actor, 0.1f);
	expect_quiet(&actor, 2);
	assert_int_equal(job->decided, 0);
	hold(false);
	assert_int_equal(actor_await(&actor, step, 0)->status, 0);
	assert_int_equal(actor_await(&actor, number, 0)->status, 0);
}

/* First for the GPU, then for the other rank. */
static void what_a_wait_for_a_buffer_is_for_is_counted(void **state)
{
	const uint64_t *stalls;
	struct job *job;

	open_two_ranks(2, 0);
	job = scene_job(NULL);
	stalls = figures_of(job)->stall_ns;
	attach(&actor, 0);
	map_gradients(&actor);
	hold(true);
	push(0, 0);
	push(1, 1);
	actor_send_buffer_wait(&actor, 2, 2);
	stall_count(job);
	assert_true(stalls[STATISTICS_GPU] > 0);
	assert_int_equal(stalls[STATISTICS_GRADIENT_BUFFER], 0);
	hold(false);
	while (job->gradients->arriving > 0)
		scene_wait(&scene);
	stall_count(job);
	assert_true(stalls[STATISTICS_GRADIENT_BUFFER] > 0);
}

/* Whoever waits for a buffer is helped when the gradients in it have come. */
static void gradients_that_have_come_are_put_aside(void **state)
{
	uint32_t wait;

	open_two_ranks(3, 0);
	attach(&actor, 0);
	map_gradients(&actor);
	hold(true);
	push(3, 0);
	push(2, 1);
	wait = actor_send_buffer_wait(&actor, 1, 2);
	expect_quiet(&actor, 3);
	hold(false);
	assert_int_equal(actor_await(&actor, wait, 0)->status, 0);
}

/* ---- Epochs that end ---- */

/* A rank that has died comes back, and the other one goes on. */
static void begin_again(struct actor *dead, struct actor *alive)
{
	const struct actor_job job = {
		.rank = dead->rank, .world_size = 2, .stage = 2, .host_budget = 2 * PLAY_HOST_BUDGET
	};
	uint32_t ready = actor_send_ready(alive, 10000);

	assert_int_equal(actor_enter(&scene, dead), 0);
	assert_int_equal(actor_open(dead, &job), 0);
	assert_int_equal(actor_define_units(dead, PLAY_UNITS, PLAY_ELEMENTS), 0);
	assert_int_equal(actor_ready(dead), 0);
	assert_int_equal(actor_finish_ready(alive, ready), 0);
}

static void gradients_of_an_epoch_that_has_ended_are_void(void **state)
{
	struct job *job;
	uint32_t number;

	open_two_ranks(2, 0);
	job = scene_job(NULL);
	attach(&actor, 0);
	map_gradients(&actor);
	hold(true);
	number = push(0, 0);
	actor_die(&other);
	assert_int_equal(actor_await(&actor, number, 0)->status, -ESTALE);
	while (!gradients_are_quiet(job))
		scene_wait(&scene);
	assert_int_equal(job->gradients->waiting_of_step[0] + job->gradients->waiting_of_step[1], 0);
	assert_false(gradient_has_content(job, 0));
	hold(false);
	/* In the next one the buffer serves again. */
	begin_again(&other, &actor);
	training_fill(&other, 0, 1);
	number = push(0, 0);
	actor_send_silent_push(&other, 0, 0);
	assert_int_equal(actor_await(&actor, number, 0)->status, 0);
	expect_sum(job, 0, VALUE + 1);
}

static void memory_goes_when_the_process_has_gone(void **state)
{
	struct job *job;
	struct gpu_tier *tier;

	open_two_ranks(2, peer.pid);
	job = scene_job(NULL);
	attach(&actor, 0);
	attach(&other, 0);
	map_gradients(&actor);
	tier = tier_of(&other);
	hold(true);
	push(0, 0);
	actor_die(&actor);
	/* It has lost its connection, and its process lives. */
	while (!job->members.ranks[0] && tier->ranks[0]->gradients.state != GRADIENTS_CLOSED)
		scene_wait(&scene);
	assert_true(tier->ranks[0]->gradients.memory.address != 0);
	gpu_peer_end(&peer);
	while (tier->ranks[0])
		scene_wait(&scene);
	assert_int_equal(gpu_gradients_bytes(tier), 0);
	gpu_peer_start(&peer);
	assert_int_equal(actor_enter(&scene, &actor), 0);
}

static void who_leaves_in_good_order_gives_them_back(void **state)
{
	struct job *job = play(0);

	assert_int_equal(actor_await(&actor, push(0, 0), 0)->status, 0);
	assert_int_equal(actor_await(&actor, actor_send_leave(&actor, true), 0)->status, 0);
	while (!queue_is_empty(&job->gpu->tiers))
		scene_wait(&scene);
}

/* ---- Who gets none ---- */

static void a_rank_without_them_pushes_nothing_from_there(void **state)
{
	actor_play(&scene, &actor);
	assert_non_null(strstr(refused(gpu_actor_send_gradients(&actor), -EINVAL), "has asked for no GPU"));
	attach(&actor, 0);
	assert_non_null(strstr(refused(gpu_actor_send_push(&actor, 0, 0, 1), -EINVAL),
			       "rank 0 has no gradient buffers on a GPU"));
	map_gradients(&actor);
	/* Whoever asks again gets the same. */
	map_gradients(&actor);
	assert_int_equal(actor_await(&actor, push(0, 0), 0)->status, 0);
}

static void a_budget_without_room_for_them_is_said(void **state)
{
	const char *why;

	actor_play(&scene, &actor);
	attach(&actor, 2 * UNIT_BYTES);
	why = refused(gpu_actor_send_gradients(&actor), -ENOMEM);
	assert_non_null(strstr(why, "rank 0 has no gradient buffers on its GPU: they take 4.0 MiB, and of "
				    "gpu_budget, which is 4.0 MiB, parameters and other ranks have 4.0 MiB"));
	assert_non_null(strstr(why, "push from host memory"));
}

/* Both share the only GPU. */
static void parameters_leave_room_for_the_gradients_of_all_ranks(void **state)
{
	struct gpu_job_figures figures[GPUS_MAX];

	open_two_ranks(3, 0);
	peer.has_gradients = true;
	attach(&actor, 3 * UNIT_BYTES + 2 * actor.gradients.bytes);
	attach(&other, 0);
	assert_int_equal(tier_of(&actor)->slots.count, 3);
	assert_int_equal(gpu_figures_of_job(scene_job(NULL), figures), 1);
	assert_int_equal(figures[0].gradient_bytes, 0);
	map_gradients(&actor);
	assert_int_equal(gpu_figures_of_job(scene_job(NULL), figures), 1);
	assert_int_equal(figures[0].gradient_bytes, actor.gradients.bytes);
	assert_int_equal(figures[0].parameter_bytes, 3 * UNIT_BYTES);
	assert_int_equal(actor_await(&other, gpu_actor_send_gradients(&other), 0)->status, 0);
}

static void parameters_come_before_gradients(void **state)
{
	actor_play(&scene, &actor);
	peer.has_gradients = true;
	attach(&actor, 3 * UNIT_BYTES);
	assert_int_equal(tier_of(&actor)->slots.count, 3);
	refused(gpu_actor_send_gradients(&actor), -ENOMEM);
}

/* The process lives, and its stream stands still. */
static void who_comes_in_a_rank_s_place_waits_for_its_memory(void **state)
{
	uint32_t number;

	open_two_ranks(2, peer.pid);
	attach(&actor, PLAY_UNITS * UNIT_BYTES + actor.gradients.bytes);
	attach(&other, 0);
	map_gradients(&actor);
	hold(true);
	push(0, 0);
	actor_die(&actor);
	begin_again(&actor, &other);
	attach(&actor, 0);
	number = gpu_actor_send_gradients(&actor);
	expect_quiet(&actor, 1);
	gpu_peer_end(&peer);
	assert_int_equal(actor_await(&actor, number, 0)->status, 0);
	gpu_peer_start(&peer);
}

/* It has left before its memory was there, and another rank waits for its part of the budget. */
static void who_waits_is_tried_when_another_is_refused(void **state)
{
	uint32_t number;

	skip_without_stand_in();
	open_two_ranks(2, peer.pid);
	attach(&actor, PLAY_UNITS * UNIT_BYTES + actor.gradients.bytes);
	attach(&other, 0);
	standin_tell("STANDIN_FAILURES", "cuMemCreate#1=2");
	gpu_peer_block("cuMemCreate");
	gpu_actor_send_gradients(&actor);
	expect_quiet(&actor, 1);
	gpu_peer_await_blocked();
	actor_die(&actor);
	begin_again(&actor, &other);
	number = gpu_actor_send_gradients(&other);
	expect_quiet(&other, 1);
	gpu_peer_unblock();
	assert_int_equal(actor_await(&other, number, 0)->status, 0);
}

static void memory_that_a_gpu_does_not_have_is_said(void **state)
{
	skip_without_stand_in();
	actor_play(&scene, &actor);
	attach(&actor, 0);
	standin_tell("STANDIN_FAILURES", "cuMemCreate=2");
	assert_non_null(strstr(refused(gpu_actor_send_gradients(&actor), -ENOMEM), "GPU 0"));
	standin_tell("STANDIN_FAILURES", NULL);
	map_gradients(&actor);
	assert_int_equal(actor_await(&actor, push(0, 0), 0)->status, 0);
}

static void buffers_that_cannot_be_pinned_serve_all_the_same(void **state)
{
	struct job *job;

	skip_without_stand_in();
	job = actor_play(&scene, &actor);
	attach(&actor, 0);
	standin_tell("STANDIN_FAILURES", "cuMemHostRegister_v2=1");
	map_gradients(&actor);
	standin_tell("STANDIN_FAILURES", NULL);
	assert_int_equal(actor_await(&actor, push(0, 0), 0)->status, 0);
	expect_sum(job, 0, VALUE);
}

/* ---- Failures ---- */

static void a_copy_that_fails_ends_the_epoch(void **state)
{
	struct job *job;
	uint32_t number;

	skip_without_stand_in();
	job = play(0);
	standin_tell("STANDIN_FAILURES", "cuMemcpyAsync=1");
	number = push(0, 0);
	assert_non_null(strstr(refused(number, -ESTALE),
			       "the gradients of unit \"u0\" that rank 0 has pushed "
			       "cannot be read: GPU 0"));
	standin_tell("STANDIN_FAILURES", NULL);
	assert_int_equal(actor_ready(&actor), 0);
	assert_int_equal(actor_await(&actor, push(0, 0), 0)->status, 0);
	expect_sum(job, 0, VALUE);
}

static void a_gpu_that_is_lost_ends_the_epoch_and_takes_no_more(void **state)
{
	const char *why;

	skip_without_stand_in();
	play(0);
	standin_tell("STANDIN_FAILURES", "cuMemcpyAsync=719!");
	refused(push(0, 0), -ESTALE);
	standin_tell("STANDIN_FAILURES", NULL);
	assert_int_equal(actor_ready(&actor), 0);
	why = refused(gpu_actor_send_push(&actor, 0, 0, 1), -ENODEV);
	assert_non_null(strstr(why, "GPU 0"));
	training_push(&actor, 0, 1);
}

/* ---- A GPU that hangs: what it still does, nobody knows ---- */

static struct gpu_engine *engine(void)
{
	return tier_of(&actor)->gpu->engine;
}

static void await_hanging(const char *call)
{
	gpu_peer_block(call);
	push(0, 0);
	expect_quiet(&actor, 1);
	gpu_peer_await_blocked();
}

/* As if it had hung for long. */
static void lose_hanging(void)
{
	atomic_store(&engine()->at_work_since_ns, 1);
	gpu_check_engines(scene.node);
}

/* Over the same connection, with memory of its own that is new. */
static void go_on_without_gpu(void)
{
	const struct actor_job job = { .world_size = 1, .stage = 3, .host_budget = PLAY_HOST_BUDGET };

	assert_int_equal(actor_open(&actor, &job), 0);
	assert_int_equal(actor_define_units(&actor, PLAY_UNITS, PLAY_ELEMENTS), 0);
	assert_int_equal(actor_ready(&actor), 0);
	assert_int_equal(actor.gradients.base[0], 0);
	for (uint32_t unit = 0; unit < PLAY_UNITS; unit++)
		training_push(&actor, unit, 1);
	assert_int_equal(actor_take_step(&actor), 0);
}

static bool has_lingering(const struct job *job)
{
	return !queue_is_empty(&job->members.lingering);
}

static void nobody_waits_for_a_push_of_a_driver_that_hangs(void **state)
{
	struct job *job;
	uint32_t number;

	skip_without_stand_in();
	job = play(0);
	await_hanging("cuMemcpyAsync");
	assert_false(gradients_are_quiet(job));
	lose_hanging();
	assert_true(gradients_are_quiet(job));
	assert_null(job->members.ranks[0]);
	assert_int_equal(actor_outstanding(&actor), 0);
	go_on_without_gpu();
	number = gpu_actor_send_attach(&peer, &actor, uuid, 0);
	assert_non_null(strstr(refused(number, -ENODEV), "has not come back from a call"));
	/* What it may still write to is there. */
	assert_true(has_lingering(job));
	gpu_peer_unblock();
	while (has_lingering(job))
		scene_wait(&scene);
}

static void nobody_waits_for_memory_of_a_driver_that_hangs(void **state)
{
	uint32_t number;

	skip_without_stand_in();
	actor_play(&scene, &actor);
	attach(&actor, 0);
	gpu_peer_block("cuMemCreate");
	number = gpu_actor_send_gradients(&actor);
	expect_quiet(&actor, 1);
	gpu_peer_await_blocked();
	lose_hanging();
	assert_non_null(strstr(refused(number, -ENODEV), "has not come back from a call"));
	training_push(&actor, 0, 1);
	/* A daemon that ends without it would end the tests, too. */
	gpu_peer_unblock();
	while (gpu_engine_at_work_since(engine()) == 1)
		usleep(1000);
}

static void what_a_late_copy_writes_is_not_used_again(void **state)
{
	struct job *job;
	uint32_t number;

	skip_without_stand_in();
	job = play(0);
	engine()->patience_ns = 1000000;
	standin_hold(true);
	number = push(0, 0);
	assert_non_null(strstr(refused(number, -ESTALE), "has gradient buffers that a GPU may still write"));
	assert_null(job->members.ranks[0]);
	assert_int_equal(actor.gradients.base[0], 0);
	standin_hold(false);
	while (*(volatile char *)actor.gradients.base != BYTE)
		usleep(1000);
	go_on_without_gpu();
	while (has_lingering(job))
		scene_wait(&scene);
}

/* Beside what the job has, and what this process has mapped of it still. */
static uint64_t host_bytes_of_others(const struct job *job)
{
	return budget_host_used(scene.node) - budget_host_bytes(job) - disposal_withheld_by_all(scene.node);
}

/* The other rank has its context as long as it is there. */
static void what_a_lost_gpu_may_write_to_comes_back_with_its_context(void **state)
{
	struct job *job;
	uint64_t before;
	uint32_t number;

	skip_without_stand_in();
	open_two_ranks(2, 0);
	job = scene_job(NULL);
	before = host_bytes_of_others(job);
	attach(&actor, 0);
	map_gradients(&actor);
	attach(&other, 0);
	engine()->patience_ns = 1000000;
	standin_hold(true);
	number = push(0, 0);
	assert_non_null(strstr(refused(number, -ESTALE), "has gradient buffers that a GPU may still write"));
	standin_hold(false);
	while (*(volatile char *)actor.gradients.base != BYTE)
		usleep(1000);
	while (host_bytes_of_others(job) == before)
		scene_wait(&scene);
	assert_false(has_lingering(job));
	actor_die(&other);
	while (host_bytes_of_others(job) > before)
		scene_wait(&scene);
}

/* It reads on, and then not any more, which nobody tells. */
static void who_is_sent_away_keeps_a_lost_gpu_while_it_holds_leases(void **state)
{
	struct gpu_lease_header *leases;
	struct job *job;
	uint32_t number;

	skip_without_stand_in();
	open_two_ranks(2, 0);
	job = scene_job(NULL);
	attach(&actor, 0);
	map_gradients(&actor);
	leases = (struct gpu_lease_header *)actor.gpu_leases.base;
	assert_int_equal(actor_await(&actor, gpu_actor_send_gather(&actor, 0, 0), 0)->status, 0);
	scene_settle(&scene);
	engine()->patience_ns = 1000000;
	standin_hold(true);
	number = push(0, 0);
	assert_non_null(strstr(refused(number, -ESTALE), "has gradient buffers that a GPU may still write"));
	standin_hold(false);
	while (!has_lingering(job) ||
	       queue_entry(queue_first(&job->members.lingering), struct member, link)->busy > 0)
		scene_wait(&scene);
	scene_settle(&scene);
	assert_true(has_lingering(job));
	assert_int_equal(atomic_fetch_sub(&gpu_lease_counters(leases)[0], 1), 1);
	job_settle(job);
	while (!gpu_is_gone(job))
		scene_wait(&scene);
	assert_false(has_lingering(job));
}

static void a_gpu_that_was_lost_has_all_of_its_memory_again(void **state)
{
	const struct gpu_in_use *gpu;

	skip_without_stand_in();
	/* Nothing fits there twice. */
	standin_tell("STANDIN_BYTES", "25165824");
	play(0);
	gpu = tier_of(&actor)->gpu;
	standin_tell("STANDIN_FAILURES", "cuMemcpyAsync=719!");
	refused(push(0, 0), -ESTALE);
	standin_tell("STANDIN_FAILURES", NULL);
	assert_int_equal(actor_await(&actor, actor_send_leave(&actor, true), 0)->status, 0);
	while (gpu->tiers > 0 || gpu->is_closing)
		scene_wait(&scene);
	go_on_without_gpu();
	attach(&actor, PLAY_UNITS * UNIT_BYTES + actor.gradients.bytes + GPU_PASSES_BYTES);
	map_gradients(&actor);
	assert_int_equal(actor_await(&actor, push(0, 0), 0)->status, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(what_is_pushed_from_a_gpu_is_summed),
		TEST(gradients_are_read_when_their_stream_has_written_them),
		TEST(a_step_waits_for_gradients_that_come_from_a_gpu),
		TEST(what_a_wait_for_a_buffer_is_for_is_counted),
		TEST(gradients_that_have_come_are_put_aside),
		TEST(gradients_of_an_epoch_that_has_ended_are_void),
		TEST(memory_goes_when_the_process_has_gone),
		TEST(who_leaves_in_good_order_gives_them_back),
		TEST(a_rank_without_them_pushes_nothing_from_there),
		TEST(a_budget_without_room_for_them_is_said),
		TEST(parameters_leave_room_for_the_gradients_of_all_ranks),
		TEST(parameters_come_before_gradients),
		TEST(who_comes_in_a_rank_s_place_waits_for_its_memory),
		TEST(who_waits_is_tried_when_another_is_refused),
		TEST(memory_that_a_gpu_does_not_have_is_said),
		TEST(buffers_that_cannot_be_pinned_serve_all_the_same),
		TEST(a_copy_that_fails_ends_the_epoch),
		TEST(a_gpu_that_is_lost_ends_the_epoch_and_takes_no_more),
		TEST(nobody_waits_for_a_push_of_a_driver_that_hangs),
		TEST(nobody_waits_for_memory_of_a_driver_that_hangs),
		TEST(what_a_late_copy_writes_is_not_used_again),
		TEST(what_a_lost_gpu_may_write_to_comes_back_with_its_context),
		TEST(who_is_sent_away_keeps_a_lost_gpu_while_it_holds_leases),
		TEST(a_gpu_that_was_lost_has_all_of_its_memory_again),
	};

	if (argc > 1)
		return gpu_peer_run(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
