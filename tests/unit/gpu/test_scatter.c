/* Gradients that ranks push from several GPUs, which sum them together: with which bits, and what becomes of
 * them where there is no room, a rank leaves, or something fails or hangs. The stand-ins play GPUs and NCCL,
 * with the kernels of a GPU as functions. */
#include <errno.h>
#include <string.h>

#include "collectives/reduce.h"
#include "daemon/gpu/exchange.h"
#include "daemon/gradients/own.h"
#include "offload/cuda/gpu_private.h"
#include "tests/lib/gpu/cuda_calls.h"
#include "tests/lib/gpu/script.h"
#include "tests/unit/gpu/gpu_actor.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"
#include "tests/unit/training.h"

#define RANKS 4 /* at most */

static struct actor actors[RANKS];
static struct gpu_peer peer;
static struct gpus gpus;
static const struct play *playing;

static int setup(void **state)
{
	standin_tell("STANDIN_GPUS", "4");
	standin_tell("STANDIN_BYTES", "201326592");
	standin_tell("STANDIN_FAILURES", NULL);
	standin_tell("STANDIN_DELAY_US", NULL);
	gpus_find(&gpus);
	assert_int_equal(gpus.count, 4);
	gpu_peer_start(&peer);
	peer.has_gradients = true;
	return scene_setup_with(&(struct scene_options){ .host_budget = 1024 * MIB, .capacity = 512 * MIB });
}

static int teardown(void **state)
{
	int r;

	/* What a test that has failed has left. */
	standin_tell("STANDIN_FAILURES", NULL);
	gpu_peer_unblock();
	standin_hold(false);
	r = scene_teardown(state);
	gpu_peer_end(&peer);
	return r;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* ---- Ranks ---- */

struct play {
	unsigned ranks, stage;
	unsigned gpus[RANKS]; /* by rank */
	uint64_t budget;
	bool has_no_exchange, has_no_sums;
};

/* A round takes some of a unit, where a rank has 2^20 elements of it. Units of one format, and of two, that
 * divide into nothing. */
enum { HALVES, BOTH, UNITS };
#define LARGE 2600001
#define SMALL 300007

static void define_units(struct actor *actor)
{
	const struct actor_tensor tensors[] = {
		{ "halves", FORMAT_BF16, INITIALIZE_ONES, SMALL },
		{ "half", FORMAT_BF16, INITIALIZE_ONES, LARGE },
		{ "whole", FORMAT_FP32, INITIALIZE_ONES, SMALL },
	};

	assert_int_equal(actor_define(actor, "halves", tensors, 1), 0);
	assert_int_equal(actor_define(actor, "both", tensors + 1, 2), 0);
}

static void enter(unsigned rank)
{
	const struct actor_job job = {
		.rank = rank, .world_size = playing->ranks, .stage = playing->stage, .host_budget = 300 * MIB
	};

	assert_int_equal(actor_enter(&scene, &actors[rank]), 0);
	assert_int_equal(actor_open(&actors[rank], &job), 0);
	define_units(&actors[rank]);
}

static void get_ready(void)
{
	uint32_t numbers[RANKS];

	for (unsigned rank = 0; rank < playing->ranks; rank++)
		numbers[rank] = actor_send_ready(&actors[rank], -1);
	for (unsigned rank = 0; rank < playing->ranks; rank++)
		assert_int_equal(actor_finish_ready(&actors[rank], numbers[rank]), 0);
}

static void attach(unsigned rank)
{
	struct actor *actor = &actors[rank];
	uint32_t number = gpu_actor_send_attach(
		&peer, actor, (uint8_t *)gpus.gpus[playing->gpus[rank]].uuid.bytes, playing->budget);

	assert_int_equal(actor_await(actor, number, 0)->status, 0);
	assert_int_equal(actor_await(actor, gpu_actor_send_gradients(actor), 0)->status, 0);
}

/* As if each rank had gathered all units, one after the other. */
static void learn_order(void)
{
	struct job *job = scene_job(NULL);

	for (unsigned rank = 0; rank < playing->ranks; rank++) {
		struct order *order = job->members.ranks[rank]->order;

		for (uint32_t unit = 0; unit < UNITS; unit++)
			order_note(order, unit);
		order_finish_pass(order);
	}
	prefetch_expect_anew(job);
	job_settle(job);
}

static struct gpu_exchange *exchange(void)
{
	return scene_job(NULL)->gpu->exchange;
}

static void await_state(enum exchange_state wanted)
{
	while (!exchange() || exchange()->state != wanted)
		scene_wait(&scene);
}

static void set_node(void)
{
	scene.node->settings.gpu_sums = playing->has_no_sums ? GPU_SUMS_NEVER : GPU_SUMS_AUTO;
	scene.node->settings.gpu_exchange =
		playing->has_no_exchange ? GPU_EXCHANGE_NEVER : GPU_EXCHANGE_ALWAYS;
	scene.node->settings.gpu_exchange_seconds = 60;
}

/* Without an exchange yet. */
static struct job *begin(const struct play *play)
{
	playing = play;
	scene.node->settings.gpu_sums = play->has_no_sums ? GPU_SUMS_NEVER : GPU_SUMS_AUTO;
	scene.node->settings.gpu_exchange = play->has_no_exchange ? GPU_EXCHANGE_NEVER : GPU_EXCHANGE_ALWAYS;
	scene.node->settings.gpu_exchange_seconds = 60;
	for (unsigned rank = 0; rank < play->ranks; rank++)
		enter(rank);
	get_ready();
	for (unsigned rank = 0; rank < play->ranks; rank++)
		attach(rank);
	return scene_job(NULL);
}

static struct job *play(const struct play *play)
{
	struct job *job = begin(play);

	learn_order();
	await_state(EXCHANGE_READY);
	return job;
}

static const struct play pair = { .ranks = 2, .stage = 2, .gpus = { 0, 1 } };

static struct gpu_rank *rank_of(unsigned rank)
{
	return scene_job(NULL)->members.ranks[rank]->gpu;
}

/* ---- What they push ---- */

/* Sums of such values depend on their order. Both formats have them. */
static uint16_t half_of(unsigned rank, unsigned salt, uint64_t i)
{
	uint64_t bits =
		(i + 1) * UINT64_C(0x9e3779b97f4a7c15) + (rank * 8 + salt) * UINT64_C(0xd1b54a32d192ed03);

	bits ^= bits >> 29;
	return (uint16_t)((bits & 0x807f) | (uint16_t)(118 + (bits >> 16) % 12) << 7);
}

/* The last that takes it: each unit has another one. */
static uint32_t buffer_of(const struct member *member, uint32_t unit)
{
	uint32_t buffer = member->buffer_count - 1;

	while (!member_buffer_takes(member, buffer, unit))
		buffer--;
	return buffer;
}

/* The stand-in's memory is this process's. The event is one that nobody has recorded: it has passed. */
static uint32_t push(unsigned rank, uint32_t unit, unsigned salt)
{
	const struct job *job = scene_job(NULL);
	uint32_t buffer = buffer_of(rank_of(rank)->member, unit);
	uint64_t bytes = unit_gradient_bytes(&job->catalog.units[unit]);
	uint16_t *memory = (uint16_t *)(uintptr_t)(rank_of(rank)->gradients.memory.address +
						   gradient_buffer_offset(&job->gradient_buffers, buffer));

	for (uint64_t i = 0; i < bytes / sizeof(*memory); i++)
		memory[i] = half_of(rank, salt, i);
	return gpu_actor_send_push(&actors[rank], unit, buffer, 1);
}

static int result(unsigned rank, uint32_t number)
{
	int status = actor_await(&actors[rank], number, 0)->status;

	if (status < 0)
		print_message("%s\n", actor_message(&actors[rank]));
	return status;
}

static void push_by(unsigned first, unsigned end, uint32_t unit, unsigned salt)
{
	uint32_t numbers[RANKS];

	for (unsigned rank = first; rank < end; rank++)
		numbers[rank] = push(rank, unit, salt);
	for (unsigned rank = first; rank < end; rank++)
		assert_int_equal(result(rank, numbers[rank]), 0);
}

static void push_by_all(uint32_t unit, unsigned salt)
{
	push_by(0, playing->ranks, unit, salt);
}

/* What a processor makes of the contributions of ranks from first on. */
static void add_expected(float *sum, uint32_t number, bool is_added, unsigned first, unsigned salt)
{
	const struct unit *unit = &scene_job(NULL)->catalog.units[number];
	uint64_t bytes = unit_gradient_bytes(unit), offset = 0;
	uint16_t *contributions[RANKS] = { NULL };

	for (unsigned rank = first; rank < playing->ranks; rank++) {
		contributions[rank] = malloc(bytes);
		assert_non_null(contributions[rank]);
		for (uint64_t i = 0; i < bytes / sizeof(uint16_t); i++)
			contributions[rank][i] = half_of(rank, salt, i);
	}
	for (uint32_t i = 0; i < unit->part_count; i++) {
		const struct unit_part *part = &unit->parts[i];
		const void *pointers[RANKS] = { NULL };

		for (unsigned rank = first; rank < playing->ranks; rank++)
			pointers[rank] = (char *)contributions[rank] + offset;
		reduce_sum_kernel(SIMD_SCALAR, unit_part_gradient_bytes(part) == part->elements * 4
						       ? REDUCE_FP32
						       : REDUCE_BF16)(sum + part->first, is_added, pointers,
								      playing->ranks, part->elements);
		offset += unit_part_gradient_bytes(part);
	}
	for (unsigned rank = first; rank < playing->ranks; rank++)
		free(contributions[rank]);
}

/* So many micro-batches, each with its number as salt, by the ranks from first on. */
static void expect_sum_from(unsigned first, uint32_t unit, unsigned micro_batches)
{
	struct job *job = scene_job(NULL);
	uint64_t count = job->catalog.units[unit].trainable;
	const float *sum = (const float *)gradient_sum(job, unit);
	float *expected = malloc(count * sizeof(float));

	assert_non_null(expected);
	for (unsigned salt = 0; salt < micro_batches; salt++)
		add_expected(expected, unit, salt > 0, first, salt);
	for (uint64_t i = 0; i < count; i++)
		if (memcmp(&sum[i], &expected[i], sizeof(float)) != 0)
			fail_msg("sum %llu is %a, not %a", (unsigned long long)i, (double)sum[i],
				 (double)expected[i]);
	free(expected);
}

static void expect_sum(uint32_t unit, unsigned micro_batches)
{
	expect_sum_from(0, unit, micro_batches);
}

static uint64_t contribution_bytes(uint32_t unit)
{
	return unit_gradient_bytes(&scene_job(NULL)->catalog.units[unit]);
}

/* By the GPUs of the first ranks. */
static uint64_t copied_bytes(void)
{
	uint64_t bytes = 0;

	for (unsigned rank = 0; rank < playing->ranks; rank++) {
		bool is_first = true;

		for (unsigned other = 0; other < rank; other++)
			is_first &= playing->gpus[other] != playing->gpus[rank];
		if (is_first)
			bytes += gpu_engine_traffic(rank_of(rank)->tier->gpu->engine, GPU_TO_HOST).bytes;
	}
	return bytes;
}

static void await_complete(const struct job *job)
{
	while (job->gradients->arriving > 0)
		scene_wait(&scene);
}

static void await_quiet(const struct job *job)
{
	while (!gradients_are_quiet(job))
		scene_wait(&scene);
}

/* ---- Sums ---- */

/* Two micro-batches of each unit. What comes to host memory is the sums alone. */
static void expect_sums(const struct play *plan)
{
	struct job *job = play(plan);
	uint64_t summed = 0, copied = 0;

	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (unsigned salt = 0; salt < 2; salt++) {
			push_by_all(unit, salt);
			expect_sum(unit, salt + 1);
			summed += plan->ranks * contribution_bytes(unit);
			copied += job->catalog.units[unit].trainable * sizeof(float);
			assert_int_equal(gpu_summed_bytes(job), summed);
			assert_int_equal(copied_bytes(), copied);
		}
}

static void two_gpus_sum_what_a_rank_of_each_pushes(void **state)
{
	expect_sums(&pair);
}

static void some_ranks_may_share_a_gpu(void **state)
{
	expect_sums(&(struct play){ .ranks = 3, .stage = 3, .gpus = { 2, 0, 2 } });
}

static void four_gpus_sum_together(void **state)
{
	expect_sums(&(struct play){ .ranks = 4, .stage = 3, .gpus = { 3, 1, 0, 2 } });
}

/* Two ranks' gradients in bf16 have the bytes of a sum. */
static void a_rank_that_closes_its_part_is_not_waited_for(void **state)
{
	struct job *job = play(&(struct play){ .ranks = 3, .stage = 2, .gpus = { 0, 1, 2 } });
	uint32_t numbers[RANKS];

	for (unsigned rank = 1; rank < 3; rank++)
		numbers[rank] = push(rank, BOTH, 0);
	await_complete(job);
	actor_send_step(&actors[0], 0.1f);
	for (unsigned rank = 1; rank < 3; rank++)
		assert_int_equal(result(rank, numbers[rank]), 0);
	expect_sum_from(1, BOTH, 1);
	assert_int_equal(gpu_summed_bytes(job), 2 * contribution_bytes(BOTH));
}

/* More sums than rounds. */
static void what_comes_meanwhile_is_summed_after_it(void **state)
{
	struct job *job = play(&pair);
	uint32_t numbers[2][UNITS];

	standin_hold(true);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (unsigned rank = 0; rank < 2; rank++)
			numbers[rank][unit] = push(rank, unit, 0);
	while (job->gradients->reductions_running < UNITS)
		scene_wait(&scene);
	standin_hold(false);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		for (unsigned rank = 0; rank < 2; rank++)
			assert_int_equal(result(rank, numbers[rank][unit]), 0);
		expect_sum(unit, 1);
	}
	assert_int_equal(gpu_summed_bytes(job), 2 * (contribution_bytes(HALVES) + contribution_bytes(BOTH)));
}

/* ---- What is copied as it is ---- */

static void expect_copies(unsigned micro_batches)
{
	push_by_all(HALVES, micro_batches - 1);
	expect_sum(HALVES, micro_batches);
	assert_int_equal(gpu_summed_bytes(scene_job(NULL)), 0);
	assert_int_equal(copied_bytes(), micro_batches * playing->ranks * contribution_bytes(HALVES));
}

static void before_there_is_an_exchange_they_are_copied(void **state)
{
	begin(&pair);
	expect_copies(1);
	learn_order();
	await_state(EXCHANGE_READY);
	push_by_all(HALVES, 1);
	expect_sum(HALVES, 2);
	assert_int_equal(gpu_summed_bytes(scene_job(NULL)), 2 * contribution_bytes(HALVES));
}

/* The exchange has its GPU, and takes the rank for one that has none. */
static void of_a_rank_that_comes_later_they_are_copied(void **state)
{
	static const struct play later = { .ranks = 3, .stage = 2, .gpus = { 0, 1, 1 } };

	playing = &later;
	set_node();
	for (unsigned rank = 0; rank < 3; rank++)
		enter(rank);
	get_ready();
	for (unsigned rank = 0; rank < 2; rank++)
		attach(rank);
	learn_order();
	await_state(EXCHANGE_READY);
	attach(2);
	expect_copies(1);
	assert_int_equal(exchange()->state, EXCHANGE_READY);
}

static void a_node_may_have_none_exchange(void **state)
{
	begin(&(struct play){ .ranks = 2, .stage = 2, .gpus = { 0, 1 }, .has_no_exchange = true });
	learn_order();
	expect_copies(1);
	/* No memory is kept for it. */
	assert_int_equal(gpu_passes_held_bytes(rank_of(0)->tier), GPU_PASSES_BYTES);
}

static void a_node_may_have_none_sum(void **state)
{
	play(&(struct play){ .ranks = 2, .stage = 2, .gpus = { 0, 1 }, .has_no_sums = true });
	expect_copies(1);
	assert_int_equal(gpu_passes_held_bytes(rank_of(0)->tier), 0);
}

/* Of both units and a rank's gradients, 8 MiB each, and passes. */
static const uint64_t budget = 16 * MIB + GPU_PASSES_BYTES;

static void a_budget_without_room_has_them_copied(void **state)
{
	const struct gpu_tier *tier;

	play(&(struct play){ .ranks = 2, .stage = 2, .gpus = { 0, 1 }, .budget = budget });
	expect_copies(1);
	tier = rank_of(0)->tier;
	assert_int_equal(gpu_passes_held_bytes(tier), GPU_PASSES_BYTES);
	assert_true(tier->memory.bytes + gpu_gradients_bytes(tier) + gpu_passes_held_bytes(tier) <= budget);
}

static void memory_for_it_comes_out_of_the_budget(void **state)
{
	const struct gpu_tier *tier;

	play(&(struct play){ .ranks = 2, .stage = 2, .gpus = { 0, 1 }, .budget = budget + GPU_PIECES_BYTES });
	push_by_all(HALVES, 0);
	expect_sum(HALVES, 1);
	assert_int_equal(gpu_summed_bytes(scene_job(NULL)), 2 * contribution_bytes(HALVES));
	tier = rank_of(0)->tier;
	assert_int_equal(gpu_passes_held_bytes(tier), GPU_PASSES_BYTES + GPU_PIECES_BYTES);
	assert_true(tier->memory.bytes + gpu_gradients_bytes(tier) + gpu_passes_held_bytes(tier) <=
		    budget + GPU_PIECES_BYTES);
}

static void one_rank_s_is_smaller_than_a_sum(void **state)
{
	struct job *job = play(&pair);
	uint32_t number = push(1, HALVES, 0);

	await_complete(job);
	actor_send_step(&actors[0], 0.1f);
	assert_int_equal(result(1, number), 0);
	expect_sum_from(1, HALVES, 1);
	assert_int_equal(gpu_summed_bytes(job), 0);
}

/* ---- Failures ---- */

/* In the middle of a sum of several rounds; and of the first round of one. */
static void where_nccl_fails_all_come_home(void **state)
{
	static const char *const failures[] = { "asynchronous#2=6", "asynchronous#9=6" };

	for (size_t i = 0; i < ARRAY_LENGTH(failures); i++) {
		struct job *job = play(&pair);
		uint64_t summed;

		push_by_all(BOTH, 0);
		summed = gpu_summed_bytes(job);
		assert_int_equal(summed, 2 * contribution_bytes(BOTH));
		standin_tell("STANDIN_FAILURES", failures[i]);
		push_by_all(BOTH, 1);
		standin_tell("STANDIN_FAILURES", NULL);
		expect_sum(BOTH, 2);
		await_state(EXCHANGE_BROKEN);
		/* Until the epoch ends. */
		push_by_all(BOTH, 2);
		expect_sum(BOTH, 3);
		assert_int_equal(gpu_summed_bytes(job), summed);
		assert_int_equal(job->members.count, 2);
		if (i == 0) {
			(void)teardown(state);
			assert_int_equal(setup(state), 0);
		}
	}
}

static void where_a_kernel_fails_all_come_home(void **state)
{
	struct job *job = play(&pair);

	standin_tell("STANDIN_FAILURES", "cuLaunchKernel=1");
	push_by_all(BOTH, 0);
	standin_tell("STANDIN_FAILURES", NULL);
	expect_sum(BOTH, 1);
	assert_int_equal(gpu_summed_bytes(job), 0);
	await_state(EXCHANGE_BROKEN);
}

/* The exchange goes on, and sums no more. */
static void where_a_sum_cannot_be_copied_all_come_home(void **state)
{
	struct job *job = play(&pair);

	standin_tell("STANDIN_FAILURES", "cuMemcpyAsync#2=1");
	push_by_all(BOTH, 0);
	standin_tell("STANDIN_FAILURES", NULL);
	expect_sum(BOTH, 1);
	push_by_all(BOTH, 1);
	expect_sum(BOTH, 2);
	assert_int_equal(gpu_summed_bytes(job), 0);
	assert_int_equal(exchange()->state, EXCHANGE_READY);
	assert_int_equal(job->members.count, 2);
}

static void expect_stale(unsigned rank, uint32_t number, const char *problem)
{
	const struct answer *answer = actor_await(&actors[rank], number, 0);

	assert_int_equal(answer->status, -ESTALE);
	if (!strstr(answer->reply->status->message, problem))
		fail_msg("\"%s\" does not say \"%s\"", answer->reply->status->message, problem);
}

static bool is_under_way(enum gpu_round_state state)
{
	for (unsigned i = 0; i < GPU_ROUNDS; i++)
		if (exchange()->rounds[i].state == state)
			return true;
	return false;
}

/* Both ranks have pushed, and rounds are exchanged. */
static void push_held(uint32_t numbers[2])
{
	standin_hold(true);
	for (unsigned rank = 0; rank < 2; rank++)
		numbers[rank] = push(rank, BOTH, 0);
	while (!is_under_way(ROUND_EXCHANGING))
		scene_wait(&scene);
}

/* Rank 1 has died. */
static void begin_again(struct job *job)
{
	enter(1);
	get_ready();
	attach(1);
	learn_order();
	await_state(EXCHANGE_READY);
	push_by_all(BOTH, 0);
	expect_sum(BOTH, 1);
	assert_int_equal(gpu_summed_bytes(job), 2 * contribution_bytes(BOTH));
}

static void what_is_being_summed_is_void_when_a_rank_dies(void **state)
{
	struct job *job = play(&pair);
	uint32_t numbers[2];

	push_held(numbers);
	actor_die(&actors[1]);
	expect_stale(0, numbers[0], "rank 1");
	assert_false(gradients_are_quiet(job));
	standin_hold(false);
	await_quiet(job);
	assert_false(gradient_has_content(job, BOTH));
	await_state(EXCHANGE_NONE);
	begin_again(job);
}

static void what_waits_is_void_when_a_rank_dies(void **state)
{
	struct job *job = play(&pair);
	uint32_t number = push(0, BOTH, 0);

	await_complete(job);
	actor_die(&actors[1]);
	expect_stale(0, number, "rank 1");
	await_quiet(job);
	begin_again(job);
}

/* Its rank alone may find its buffers changed. */
static void a_gpu_that_is_lost_in_a_copy_has_its_rank_sent_away(void **state)
{
	struct job *job;
	uint32_t numbers[2];
	unsigned gone = 0;

	/* A copy fails after it has begun. */
	standin_tell("STANDIN_DELAY_US", "20000");
	job = play(&pair);
	for (unsigned rank = 0; rank < 2; rank++)
		while (rank_of(rank)->tier->outstanding > 0)
			scene_wait(&scene);
	standin_tell("STANDIN_FAILURES", "copy#1=700");
	/* In one round: nothing of NCCL's is on the streams then. */
	for (unsigned rank = 0; rank < 2; rank++)
		numbers[rank] = push(rank, HALVES, 0);
	for (unsigned rank = 0; rank < 2; rank++)
		expect_stale(rank, numbers[rank], "has gradient buffers that a GPU may still write to");
	for (unsigned rank = 0; rank < 2; rank++)
		gone += job->members.ranks[rank] == NULL;
	assert_int_equal(gone, 1);
	await_quiet(job);
	await_state(EXCHANGE_NONE);
}

static void await_broken(void)
{
	scene.node->settings.gpu_exchange_seconds = 1;
	while (exchange()->state != EXCHANGE_BROKEN) {
		usleep(1000);
		gpu_check_engines(scene.node);
	}
}

/* The GPUs' memory for sums is NCCL's, until it is back. */
static void nobody_waits_for_nccl_that_does_not_return(void **state)
{
	struct job *job = play(&pair);
	struct gpu_rank *gone;
	uint32_t numbers[2];

	push_by_all(BOTH, 0);
	gpu_peer_block("ncclGroupEnd,ncclCommAbort");
	for (unsigned rank = 0; rank < 2; rank++)
		numbers[rank] = push(rank, BOTH, 1);
	while (!is_under_way(ROUND_EXCHANGING))
		scene_wait(&scene);
	gpu_peer_await_blocked();
	await_broken();
	for (unsigned rank = 0; rank < 2; rank++)
		assert_int_equal(result(rank, numbers[rank]), 0);
	expect_sum(BOTH, 2);
	assert_int_equal(gpu_summed_bytes(job), 2 * contribution_bytes(BOTH));
	assert_true(is_under_way(ROUND_EXCHANGING));
	/* What is pushed is copied, and nobody is sent away. */
	push_by_all(BOTH, 2);
	expect_sum(BOTH, 3);
	assert_int_equal(job->members.count, 2);
	/* What it may still read is there, also when a rank has gone. */
	gone = rank_of(1);
	actor_die(&actors[1]);
	while (gone->draining != GPU_HAS_DRAINED)
		scene_wait(&scene);
	assert_true(gone->gradients.memory.address != 0);
	gpu_peer_unblock();
	while (is_under_way(ROUND_EXCHANGING))
		scene_wait(&scene);
	await_state(EXCHANGE_NONE);
	scene.node->settings.gpu_exchange_seconds = 60;
	enter(1);
	get_ready();
	attach(1);
	learn_order();
	await_state(EXCHANGE_READY);
	push_by_all(BOTH, 0);
	expect_sum(BOTH, 1);
}

/* With copies on their way. */
static void nobody_waits_for_a_driver_that_hangs(void **state)
{
	struct job *job = play(&pair);

	gpu_peer_block("cuMemcpyAsync");
	for (unsigned rank = 0; rank < 2; rank++)
		push(rank, BOTH, 0);
	while (exchange()->rounds[0].moving < 2 || exchange()->rounds[1].moving < 1)
		scene_wait(&scene);
	gpu_peer_await_blocked();
	for (unsigned rank = 0; rank < 2; rank++)
		atomic_store(&rank_of(rank)->tier->gpu->engine->at_work_since_ns, 1);
	gpu_check_engines(scene.node);
	assert_true(gradients_are_quiet(job));
	assert_int_equal(job->members.count, 0);
	for (unsigned rank = 0; rank < 2; rank++)
		assert_int_equal(actor_outstanding(&actors[rank]), 0);
	/* What they may still write to is there. */
	assert_false(queue_is_empty(&job->members.lingering));
	gpu_peer_unblock();
	while (!queue_is_empty(&job->members.lingering))
		scene_wait(&scene);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(two_gpus_sum_what_a_rank_of_each_pushes),
		TEST(some_ranks_may_share_a_gpu),
		TEST(four_gpus_sum_together),
		TEST(a_rank_that_closes_its_part_is_not_waited_for),
		TEST(what_comes_meanwhile_is_summed_after_it),
		TEST(before_there_is_an_exchange_they_are_copied),
		TEST(of_a_rank_that_comes_later_they_are_copied),
		TEST(a_node_may_have_none_exchange),
		TEST(a_node_may_have_none_sum),
		TEST(a_budget_without_room_has_them_copied),
		TEST(memory_for_it_comes_out_of_the_budget),
		TEST(one_rank_s_is_smaller_than_a_sum),
		TEST(where_nccl_fails_all_come_home),
		TEST(where_a_kernel_fails_all_come_home),
		TEST(where_a_sum_cannot_be_copied_all_come_home),
		TEST(what_is_being_summed_is_void_when_a_rank_dies),
		TEST(what_waits_is_void_when_a_rank_dies),
		TEST(a_gpu_that_is_lost_in_a_copy_has_its_rank_sent_away),
		TEST(nobody_waits_for_nccl_that_does_not_return),
		TEST(nobody_waits_for_a_driver_that_hangs),
	};

	if (argc > 1)
		return gpu_peer_run(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
