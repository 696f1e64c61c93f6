/* Gradients that all ranks of a job push from one GPU, which sums them: when, with which bits, and what
 * becomes of them where one comes from elsewhere, a rank leaves, or something fails. The stand-in plays the
 * GPU, with the kernels of a GPU as functions. */
#include <errno.h>
#include <string.h>

#include "common/float16.h"
#include "daemon/gpu/own.h"
#include "daemon/gradients/own.h"
#include "daemon/gradients/spilled.h"
#include "offload/cuda/gpu_private.h"
#include "tests/lib/gpu/cuda_calls.h"
#include "tests/lib/gpu/script.h"
#include "tests/unit/gpu/gpu_actor.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"
#include "tests/unit/training.h"

#define RANKS 3
/* Of a unit of actor_define_units(), as it is pushed. */
#define UNIT_BYTES (PLAY_ELEMENTS * 2)

static struct rank {
	struct actor actor;
	struct gpu_peer peer;
} ranks[RANKS];
static uint8_t uuid[GPU_UUID_BYTES];
static bool is_played;
static bool is_spilling; /* sums: host memory has room for those of some units */

static int setup(void **state)
{
	struct gpus gpus;
	int r;

	standin_tell("STANDIN_GPUS", "1");
	standin_tell("STANDIN_BYTES", "134217728");
	standin_tell("STANDIN_FAILURES", NULL);
	is_spilling = false;
	gpus_find(&gpus);
	assert_true(gpus.count > 0);
	is_played = strcmp(gpus.gpus[0].name, "stand-in") == 0;
	memcpy(uuid, &gpus.gpus[0].uuid, sizeof(uuid));
	for (unsigned i = 0; i < RANKS; i++) {
		gpu_peer_start(&ranks[i].peer);
		ranks[i].peer.has_gradients = true;
	}
	r = scene_setup(state);
	if (r == 0)
		scene.node->settings.gpu_sums = GPU_SUMS_ALWAYS;
	return r;
}

static int teardown(void **state)
{
	int r;

	/* What a test that has failed has left. */
	standin_tell("STANDIN_FAILURES", NULL);
	gpu_peer_unblock();
	if (is_played)
		standin_hold(false);
	r = scene_teardown(state);
	for (unsigned i = 0; i < RANKS; i++)
		gpu_peer_end(&ranks[i].peer);
	return r;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* A real driver fails, and pauses, when it wants to. */
static void skip_without_stand_in(void)
{
	if (is_played)
		return;
	print_message("skipped: a real driver does not fail on demand\n");
	skip();
}

/* ---- What ranks do ---- */

/* Which formats follow one another: bf16, or both. */
static void define_units(struct actor *actor, bool has_both)
{
	const struct actor_tensor tensors[] = {
		{ "half", FORMAT_BF16, INITIALIZE_ONES, 1000000 },
		{ "whole", FORMAT_FP32, INITIALIZE_ONES, 300001 },
	};

	if (has_both)
		assert_int_equal(actor_define(actor, "both", tensors, 2), 0);
	else
		assert_int_equal(actor_define_units(actor, 4, PLAY_ELEMENTS), 0);
}

static void enter(unsigned i, unsigned count, bool has_both)
{
	const struct actor_job job = { .rank = i,
				       .world_size = count,
				       .stage = 2,
				       .host_budget = is_spilling ? 34 * MIB : 3 * PLAY_HOST_BUDGET,
				       .gradient_placement = is_spilling ? PLACEMENT_NVME : 0 };

	assert_int_equal(actor_enter(&scene, &ranks[i].actor), 0);
	assert_int_equal(actor_open(&ranks[i].actor, &job), 0);
	define_units(&ranks[i].actor, has_both);
}

static void use_gpu(struct rank *rank, uint64_t budget)
{
	struct actor *actor = &rank->actor;
	const struct answer *answer;

	assert_int_equal(
		actor_await(actor, gpu_actor_send_attach(&rank->peer, actor, uuid, budget), 0)->status, 0);
	answer = actor_await(actor, gpu_actor_send_gradients(actor), 0);
	assert_int_equal(answer->status, 0);
	gpu_peer_map_gradients(&rank->peer, actor->gpu_gradients, answer->reply->gpu_gradients->bytes);
}

static void get_ready(unsigned count)
{
	uint32_t numbers[RANKS];

	for (unsigned i = 0; i < count; i++)
		numbers[i] = actor_send_ready(&ranks[i].actor, 10000);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(actor_finish_ready(&ranks[i].actor, numbers[i]), 0);
}

static struct job *play_within(unsigned count, bool has_both, uint64_t budget)
{
	for (unsigned i = 0; i < count; i++)
		enter(i, count, has_both);
	get_ready(count);
	for (unsigned i = 0; i < count; i++)
		use_gpu(&ranks[i], budget);
	return scene_job(NULL);
}

static struct job *play(unsigned count)
{
	return play_within(count, false, 0);
}

/* The unit's gradients are made of pieces of equal bytes, which no chunk or page begins with. */
#define PIECE_BYTES 40004

static unsigned char byte_at(unsigned char byte, uint64_t offset)
{
	return (unsigned char)(byte + offset / PIECE_BYTES % 3);
}

static void write_pieces(struct rank *rank, uint64_t first, uint64_t bytes, unsigned char byte)
{
	for (uint64_t offset = 0; offset < bytes; offset += PIECE_BYTES) {
		uint64_t left = bytes - offset;

		gpu_peer_write(&rank->peer, first + offset, left < PIECE_BYTES ? left : PIECE_BYTES,
			       byte_at(byte, offset));
	}
}

static uint32_t push(struct rank *rank, uint32_t unit, uint32_t buffer, unsigned char byte)
{
	struct gpu_lease_header *leases = (struct gpu_lease_header *)rank->actor.gpu_leases.base;
	uint64_t number = atomic_fetch_add(&leases->recorded, 1) + 1;
	uint64_t bytes = unit_gradient_bytes(&scene_job(NULL)->catalog.units[unit]);

	write_pieces(rank, buffer * rank->actor.buffer_bytes, bytes, byte);
	gpu_peer_record(&rank->peer, number);
	return gpu_actor_send_push(&rank->actor, unit, buffer, number);
}

static int result(struct rank *rank, uint32_t number)
{
	return actor_await(&rank->actor, number, 0)->status;
}

static void push_by_all(unsigned count, uint32_t unit, const unsigned char *bytes)
{
	uint32_t numbers[RANKS];

	for (unsigned i = 0; i < count; i++)
		numbers[i] = push(&ranks[i], unit, 0, bytes[i]);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(result(&ranks[i], numbers[i]), 0);
}

static const unsigned char pair[] = { 0x3f, 0x40 };

/* Neighbouring elements of a contribution in one format. */
struct part {
	bool is_half;
	uint64_t offset, count;
};

static float value_at(const struct part *part, unsigned char byte, uint64_t i)
{
	unsigned char there = byte_at(byte, part->offset + i * (part->is_half ? 2 : 4));
	const unsigned char bytes[4] = { there, there, there, there };
	float value;

	memcpy(&value, bytes, sizeof(value));
	return part->is_half ? bfloat16_to_float((uint16_t)(there << 8 | there)) : value;
}

/* Of what so many ranks push, at most 3: their tree. */
static float tree_at(const struct part *part, const unsigned char *bytes, unsigned count, uint64_t i)
{
	float sum = value_at(part, bytes[0], i);

	for (unsigned rank = 1; rank < count; rank++)
		sum += value_at(part, bytes[rank], i);
	return sum;
}

static void assert_value(float sum, float value, uint64_t i)
{
	if (sum != value)
		fail_msg("sum %llu is %a, not %a", (unsigned long long)i, (double)sum, (double)value);
}

static void expect_sum(const struct job *job, uint32_t unit, const unsigned char *bytes, unsigned count)
{
	const struct part all = { true, 0, PLAY_ELEMENTS };
	const float *sums = (const float *)gradient_sum(job, unit);

	for (uint64_t i = 0; i < PLAY_ELEMENTS; i++)
		assert_value(sums[i], tree_at(&all, bytes, count, i), i);
}

static struct gpu_tier *tier_of(const struct rank *rank)
{
	return scene_job(NULL)->members.ranks[rank->actor.rank]->gpu->tier;
}

/* By copies; what a GPU has summed is moved by programs. */
static uint64_t copied_bytes(void)
{
	return gpu_engine_traffic(tier_of(&ranks[0])->gpu->engine, GPU_TO_HOST).bytes;
}

static void await_complete(const struct job *job)
{
	while (job->gradients->arriving > 0)
		scene_wait(&scene);
}

/* It is under way. */
static void await_sum(const struct job *job)
{
	while (job->gradients->reductions_running == 0)
		scene_wait(&scene);
}

static void await_quiet(const struct job *job)
{
	while (!gradients_are_quiet(job))
		scene_wait(&scene);
}

/* ---- Sums ---- */

static void what_all_ranks_push_is_summed_there(void **state)
{
	static const unsigned char first[] = { 0x3c, 0x41, 0x3e }, second[] = { 0x40, 0x3d, 0x3f };
	const struct part all = { true, 0, PLAY_ELEMENTS };
	struct job *job = play(3);
	const float *sums = (const float *)gradient_sum(job, 2);

	push_by_all(3, 2, first);
	expect_sum(job, 2, first, 3);
	assert_int_equal(gpu_summed_bytes(job), 3 * UNIT_BYTES);
	/* The next micro-batch is added. */
	push_by_all(3, 2, second);
	for (uint64_t i = 0; i < PLAY_ELEMENTS; i++)
		assert_value(sums[i], tree_at(&all, first, 3, i) + tree_at(&all, second, 3, i), i);
	assert_int_equal(gpu_summed_bytes(job), 6 * UNIT_BYTES);
	assert_int_equal(copied_bytes(), 0);
}

static void a_unit_of_two_formats_is_summed_there(void **state)
{
	static const unsigned char bytes[] = { 0x3f, 0x41 };
	struct job *job = play_within(2, true, 0);
	const struct unit *unit = &job->catalog.units[0];
	const float *sums = (const float *)gradient_sum(job, 0);

	push_by_all(2, 0, bytes);
	for (unsigned i = 0; i < 2; i++) {
		const struct part part = { i == 0, i == 0 ? 0 : 2 * unit->parts[0].elements,
					   unit->parts[i].elements };

		for (uint64_t j = 0; j < part.count; j++)
			assert_value(sums[unit->parts[i].first + j], tree_at(&part, bytes, 2, j), j);
	}
	assert_int_equal(copied_bytes(), 0);
}

static void sums_that_are_spilled_are_added_to(void **state)
{
	const struct part all = { true, 0, PLAY_ELEMENTS };
	struct job *job;

	is_spilling = true;
	job = play(2);
	assert_true(job->gradients->spill && job->gradients->spill->buffer_count < 4);
	for (uint32_t unit = 0; unit < 4; unit++)
		push_by_all(2, unit, pair);
	for (uint32_t unit = 0; unit < 4; unit++) {
		const float *sums;

		push_by_all(2, unit, pair);
		sums = (const float *)gradient_sum(job, unit);
		for (uint64_t i = 0; i < PLAY_ELEMENTS; i++)
			assert_value(sums[i], 2 * tree_at(&all, pair, 2, i), i);
	}
	assert_int_equal(copied_bytes(), 0);
}

static void what_is_pushed_waits_on_the_gpu(void **state)
{
	struct job *job = play(2);
	uint32_t number = push(&ranks[1], 0, 0, pair[1]);

	await_complete(job);
	assert_int_equal(actor_outstanding(&ranks[1].actor), 1);
	assert_true(job->members.ranks[1]->pusher->contributions[0].is_on_gpu);
	assert_int_equal(result(&ranks[0], push(&ranks[0], 0, 0, pair[0])), 0);
	assert_int_equal(result(&ranks[1], number), 0);
	expect_sum(job, 0, pair, 2);
	assert_int_equal(copied_bytes(), 0);
}

/* Two ranks' gradients in bf16 have the bytes of a sum. */
static void a_rank_that_closes_its_part_is_not_waited_for(void **state)
{
	struct job *job = play(3);
	uint32_t numbers[2];

	for (unsigned i = 0; i < 2; i++)
		numbers[i] = push(&ranks[i], 1, 0, 0x3f);
	await_complete(job);
	actor_send_step(&ranks[2].actor, 0.1f);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(result(&ranks[i], numbers[i]), 0);
	expect_sum(job, 1, (const unsigned char[]){ 0x3f, 0x3f }, 2);
	assert_int_equal(gpu_summed_bytes(job), 2 * UNIT_BYTES);
	assert_int_equal(copied_bytes(), 0);
}

/* ---- What is copied as it is ---- */

static void one_rank_s_is_smaller_than_a_sum(void **state)
{
	struct job *job = play(2);
	uint32_t number = push(&ranks[0], 1, 0, 0x3f);

	await_complete(job);
	actor_send_step(&ranks[1].actor, 0.1f);
	assert_int_equal(result(&ranks[0], number), 0);
	expect_sum(job, 1, pair, 1);
	assert_int_equal(gpu_summed_bytes(job), 0);
	assert_int_equal(copied_bytes(), UNIT_BYTES);
}

static void what_meets_host_memory_is_summed_there(void **state)
{
	const struct part all = { true, 0, PLAY_ELEMENTS };
	struct job *job = play(2);
	const float *sums = (const float *)gradient_sum(job, 0);
	uint32_t number = push(&ranks[0], 0, 0, pair[0]);

	await_complete(job);
	training_fill(&ranks[1].actor, 0, 1);
	actor_send_silent_push(&ranks[1].actor, 0, 0);
	assert_int_equal(result(&ranks[0], number), 0);
	for (uint64_t i = 0; i < PLAY_ELEMENTS; i++)
		assert_value(sums[i], tree_at(&all, pair, 1, i) + 1, i);
	assert_int_equal(gpu_summed_bytes(job), 0);
	assert_int_equal(copied_bytes(), UNIT_BYTES);
}

static void who_wants_its_buffer_back_gets_it(void **state)
{
	struct job *job = play(2);
	uint32_t wait;

	push(&ranks[0], 3, 0, 0x3f);
	push(&ranks[0], 2, 1, 0x40);
	await_complete(job);
	wait = actor_send_buffer_wait(&ranks[0].actor, 1, 2);
	assert_int_equal(result(&ranks[0], wait), 0);
	assert_int_equal(copied_bytes(), UNIT_BYTES);
	/* The other one waits there still. */
	assert_int_equal(result(&ranks[1], push(&ranks[1], 3, 0, 0x41)), 0);
	assert_int_equal(result(&ranks[1], push(&ranks[1], 2, 0, 0x41)), 0);
	expect_sum(job, 3, (const unsigned char[]){ 0x3f, 0x41 }, 2);
	expect_sum(job, 2, (const unsigned char[]){ 0x40, 0x41 }, 2);
	assert_int_equal(gpu_summed_bytes(job), 2 * UNIT_BYTES);
}

static void a_node_may_have_them_copied(void **state)
{
	struct job *job;

	scene.node->settings.gpu_sums = GPU_SUMS_NEVER;
	job = play(2);
	push_by_all(2, 0, pair);
	expect_sum(job, 0, pair, 2);
	assert_int_equal(gpu_summed_bytes(job), 0);
	assert_int_equal(gpu_passes_held_bytes(tier_of(&ranks[0])), 0);
}

/* Of two units and the ranks' gradients, with room for chunks beside them and without. */
static void a_budget_without_room_for_chunks_has_them_copied(void **state)
{
	uint64_t budget = 2 * UNIT_BYTES + 2 * 2 * UNIT_BYTES;
	struct job *job = play_within(2, false, budget);

	push_by_all(2, 0, pair);
	expect_sum(job, 0, pair, 2);
	assert_int_equal(gpu_summed_bytes(job), 0);
	assert_true(tier_of(&ranks[0])->memory.bytes + gpu_gradients_bytes(tier_of(&ranks[0])) <= budget);
}

static void chunks_come_out_of_the_budget(void **state)
{
	uint64_t budget = 2 * UNIT_BYTES + 2 * 2 * UNIT_BYTES + GPU_PASSES_BYTES;
	struct job *job = play_within(2, false, budget);
	const struct gpu_tier *tier = tier_of(&ranks[0]);

	push_by_all(2, 0, pair);
	assert_int_equal(gpu_summed_bytes(job), 2 * UNIT_BYTES);
	assert_true(tier->memory.bytes + gpu_gradients_bytes(tier) + gpu_passes_held_bytes(tier) <= budget);
}

/* ---- Ranks that go, and failures ---- */

static void expect_stale(struct rank *rank, uint32_t number, const char *problem)
{
	const struct answer *answer = actor_await(&rank->actor, number, 0);

	assert_int_equal(answer->status, -ESTALE);
	assert_non_null(strstr(answer->reply->status->message, problem));
}

/* It dies, and another one comes; both have their buffers. */
static void begin_again(struct job *job)
{

	enter(1, 2, false);
	get_ready(2);
	use_gpu(&ranks[1], 0);
	push_by_all(2, 0, pair);
	expect_sum(job, 0, pair, 2);
}

static void what_waits_is_void_when_a_rank_dies(void **state)
{
	struct job *job = play(2);
	uint32_t number = push(&ranks[0], 0, 0, 0x41);

	await_complete(job);
	actor_die(&ranks[1].actor);
	expect_stale(&ranks[0], number, "rank 1");
	await_quiet(job);
	begin_again(job);
}

static void what_is_being_summed_is_void_when_a_rank_dies(void **state)
{
	struct job *job;
	uint32_t number;

	skip_without_stand_in();
	job = play(2);
	number = push(&ranks[0], 0, 0, 0x41);
	await_complete(job);
	standin_hold(true);
	push(&ranks[1], 0, 0, 0x41);
	await_sum(job);
	actor_die(&ranks[1].actor);
	expect_stale(&ranks[0], number, "rank 1");
	assert_false(gradients_are_quiet(job));
	standin_hold(false);
	await_quiet(job);
	assert_false(gradient_has_content(job, 0));
	begin_again(job);
}

static void push_both(uint32_t numbers[2])
{
	for (unsigned i = 0; i < 2; i++)
		numbers[i] = push(&ranks[i], 0, 0, 0x3f);
}

/* That GPU sums no more, and what is pushed is copied. */
static void push_a_sum_that_fails(void)
{
	standin_tell("STANDIN_FAILURES", "cuLaunchKernel=1");
	push_by_all(2, 0, pair);
	standin_tell("STANDIN_FAILURES", NULL);
}

static void what_cannot_be_summed_there_is_copied(void **state)
{
	struct job *job;

	skip_without_stand_in();
	job = play(2);
	/* As a step leaves it. */
	memset(gradient_sum(job, 0), 0x40, PLAY_ELEMENTS * sizeof(float));
	push_a_sum_that_fails();
	expect_sum(job, 0, pair, 2);
	push_by_all(2, 1, pair);
	expect_sum(job, 1, pair, 2);
	assert_int_equal(gpu_summed_bytes(job), 0);
	assert_int_equal(copied_bytes(), 4 * UNIT_BYTES);
}

static void what_cannot_be_summed_is_added_to_what_was(void **state)
{
	const struct part all = { true, 0, PLAY_ELEMENTS };
	const float *sums;
	struct job *job;

	skip_without_stand_in();
	job = play(2);
	sums = (const float *)gradient_sum(job, 0);
	push_by_all(2, 0, pair);
	push_a_sum_that_fails();
	for (uint64_t i = 0; i < PLAY_ELEMENTS; i++)
		assert_value(sums[i], 2 * tree_at(&all, pair, 2, i), i);
	assert_int_equal(gpu_summed_bytes(job), 2 * UNIT_BYTES);
	assert_int_equal(copied_bytes(), 2 * UNIT_BYTES);
}

static void ranks_whose_sum_a_lost_gpu_may_write_are_sent_away(void **state)
{
	struct job *job;
	uint32_t numbers[2];

	skip_without_stand_in();
	job = play(2);
	standin_tell("STANDIN_FAILURES", "kernel=700");
	push_both(numbers);
	for (unsigned i = 0; i < 2; i++)
		expect_stale(&ranks[i], numbers[i], "has gradient buffers that a GPU may still write to");
	assert_int_equal(job->members.count, 0);
	await_quiet(job);
}

static void nobody_waits_for_a_sum_of_a_driver_that_hangs(void **state)
{
	struct job *job;
	struct gpu_engine *engine;
	uint32_t numbers[2];

	skip_without_stand_in();
	job = play(2);
	engine = tier_of(&ranks[0])->gpu->engine;
	gpu_peer_block("cuLaunchKernel");
	push_both(numbers);
	await_sum(job);
	gpu_peer_await_blocked();
	atomic_store(&engine->at_work_since_ns, 1);
	gpu_check_engines(scene.node);
	assert_true(gradients_are_quiet(job));
	assert_int_equal(job->members.count, 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(actor_outstanding(&ranks[i].actor), 0);
	/* What it may still write to is there. */
	assert_false(queue_is_empty(&job->members.lingering));
	gpu_peer_unblock();
	while (!queue_is_empty(&job->members.lingering))
		scene_wait(&scene);
}

static void what_waits_on_a_gpu_that_is_lost_ends_the_epoch(void **state)
{
	struct job *job = play(2);
	uint32_t number = push(&ranks[0], 0, 0, 0x3f);

	await_complete(job);
	gpu_tier_fail(tier_of(&ranks[0]), -ENODEV, "GPU 0 is lost");
	training_fill(&ranks[1].actor, 0, 1);
	actor_send_silent_push(&ranks[1].actor, 0, 0);
	expect_stale(&ranks[0], number,
		     "the gradients of unit \"u0\" that rank 0 has pushed cannot be read: job play: GPU 0 is "
		     "lost");
	await_quiet(job);
	assert_int_equal(job->gradients->waiting_of_step[0] + job->gradients->waiting_of_step[1], 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(what_all_ranks_push_is_summed_there),
		TEST(a_unit_of_two_formats_is_summed_there),
		TEST(sums_that_are_spilled_are_added_to),
		TEST(what_is_pushed_waits_on_the_gpu),
		TEST(a_rank_that_closes_its_part_is_not_waited_for),
		TEST(one_rank_s_is_smaller_than_a_sum),
		TEST(what_meets_host_memory_is_summed_there),
		TEST(who_wants_its_buffer_back_gets_it),
		TEST(a_node_may_have_them_copied),
		TEST(a_budget_without_room_for_chunks_has_them_copied),
		TEST(chunks_come_out_of_the_budget),
		TEST(what_waits_is_void_when_a_rank_dies),
		TEST(what_is_being_summed_is_void_when_a_rank_dies),
		TEST(what_cannot_be_summed_there_is_copied),
		TEST(what_cannot_be_summed_is_added_to_what_was),
		TEST(ranks_whose_sum_a_lost_gpu_may_write_are_sent_away),
		TEST(nobody_waits_for_a_sum_of_a_driver_that_hangs),
		TEST(what_waits_on_a_gpu_that_is_lost_ends_the_epoch),
	};

	if (argc > 1)
		return gpu_peer_run(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
