#include "tests/unit/gpu/gpu_crew.h"

#include <string.h>

#include "collectives/reduce.h"
#include "daemon/gradients/own.h"
#include "tests/lib/gpu/cuda_calls.h"
#include "tests/lib/gpu/script.h"
#include "tests/unit/test.h"

/* Elements. */
#define LARGE 2600001
#define SMALL 300007
#define FEW_ELEMENTS 100003

const struct crew *crew;
struct actor crew_actors[CREW_RANKS];
const struct crew crew_pair = { .ranks = 2, .stage = 2, .gpus = { 0, 1 } };

static struct gpu_peer peer;
static struct gpus gpus;

int crew_setup(void **state)
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

int crew_teardown(void **state)
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

/* ---- Ranks ---- */

static void define_units(struct actor *actor)
{
	const struct actor_tensor tensors[] = {
		{ "halves", FORMAT_BF16, INITIALIZE_ONES, SMALL },
		{ "half", FORMAT_BF16, INITIALIZE_ONES, LARGE },
		{ "whole", FORMAT_FP32, INITIALIZE_ONES, SMALL },
		{ "few", FORMAT_BF16, INITIALIZE_ONES, FEW_ELEMENTS },
	};

	assert_int_equal(actor_define(actor, "halves", tensors, 1), 0);
	assert_int_equal(actor_define(actor, "both", tensors + 1, 2), 0);
	if (crew->has_few)
		assert_int_equal(actor_define(actor, "few", tensors + 3, 1), 0);
}

void crew_enter(unsigned rank)
{
	const struct actor_job job = {
		.rank = rank, .world_size = crew->ranks, .stage = crew->stage, .host_budget = 300 * MIB
	};

	assert_int_equal(actor_enter(&scene, &crew_actors[rank]), 0);
	assert_int_equal(actor_open(&crew_actors[rank], &job), 0);
	define_units(&crew_actors[rank]);
}

void crew_get_ready(void)
{
	uint32_t numbers[CREW_RANKS];

	for (unsigned rank = 0; rank < crew->ranks; rank++)
		numbers[rank] = actor_send_ready(&crew_actors[rank], -1);
	for (unsigned rank = 0; rank < crew->ranks; rank++)
		assert_int_equal(actor_finish_ready(&crew_actors[rank], numbers[rank]), 0);
}

int crew_try_to_attach(unsigned rank)
{
	struct actor *actor = &crew_actors[rank];
	uint32_t number = gpu_actor_send_attach(
		&peer, actor, (uint8_t *)gpus.gpus[crew->gpus[rank]].uuid.bytes, crew->budget);
	int r = actor_await(actor, number, 0)->status;

	return r < 0 ? r : actor_await(actor, gpu_actor_send_gradients(actor), 0)->status;
}

void crew_attach(unsigned rank)
{
	assert_int_equal(crew_try_to_attach(rank), 0);
}

void crew_learn_order(void)
{
	struct job *job = scene_job(NULL);

	for (unsigned rank = 0; rank < crew->ranks; rank++) {
		struct order *order = job->members.ranks[rank]->order;

		for (uint32_t unit = 0; unit < UNITS; unit++)
			order_note(order, unit);
		order_finish_pass(order);
	}
	prefetch_expect_anew(job);
	job_settle(job);
}

struct gpu_exchange *crew_exchange(void)
{
	return scene_job(NULL)->gpu->exchange;
}

void crew_await(enum exchange_state wanted)
{
	while (!crew_exchange() || crew_exchange()->state != wanted)
		scene_wait(&scene);
}

static enum gpu_sums_mode sums_mode(void)
{
	if (crew->has_no_sums)
		return GPU_SUMS_NEVER;
	return crew->is_measured ? GPU_SUMS_AUTO : GPU_SUMS_ALWAYS;
}

void crew_set_node(void)
{
	scene.node->settings.gpu_sums = sums_mode();
	scene.node->settings.gpu_exchange = crew->has_no_exchange ? GPU_EXCHANGE_NEVER : GPU_EXCHANGE_ALWAYS;
	scene.node->settings.gpu_exchange_seconds = 60;
}

struct job *crew_begin(const struct crew *whom)
{
	crew = whom;
	crew_set_node();
	for (unsigned rank = 0; rank < whom->ranks; rank++)
		crew_enter(rank);
	crew_get_ready();
	for (unsigned rank = 0; rank < whom->ranks; rank++)
		crew_attach(rank);
	return scene_job(NULL);
}

struct job *crew_play(const struct crew *whom)
{
	struct job *job = crew_begin(whom);

	crew_learn_order();
	crew_await(EXCHANGE_READY);
	/* What is fetched ahead is there, and takes no failure that is meant for a sum. */
	scene_settle(&scene);
	return job;
}

struct gpu_rank *crew_rank(unsigned rank)
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

/* Returns the buffer, which is in that memory. */
static uint32_t fill(char *memory, unsigned rank, uint32_t unit, unsigned salt)
{
	const struct job *job = scene_job(NULL);
	uint32_t buffer = buffer_of(job->members.ranks[rank], unit);
	uint64_t bytes = unit_gradient_bytes(&job->catalog.units[unit]);
	uint16_t *halves = (uint16_t *)(memory + gradient_buffer_offset(&job->gradient_buffers, buffer));

	for (uint64_t i = 0; i < bytes / sizeof(*halves); i++)
		halves[i] = half_of(rank, salt, i);
	return buffer;
}

/* The stand-in's memory is this process's. The event is one that nobody has recorded: it has passed. */
uint32_t crew_push(unsigned rank, uint32_t unit, unsigned salt)
{
	char *memory = (char *)(uintptr_t)crew_rank(rank)->gradients.memory.address;

	return gpu_actor_send_push(&crew_actors[rank], unit, fill(memory, rank, unit, salt), 1);
}

uint32_t crew_push_from_host(unsigned rank, uint32_t unit, unsigned salt)
{
	struct actor *actor = &crew_actors[rank];

	return actor_send_push(actor, unit, fill((char *)actor->gradients.base, rank, unit, salt));
}

int crew_result(unsigned rank, uint32_t number)
{
	int status = actor_await(&crew_actors[rank], number, 0)->status;

	if (status < 0)
		print_message("%s\n", actor_message(&crew_actors[rank]));
	return status;
}

void crew_push_all(uint32_t unit, unsigned salt)
{
	uint32_t numbers[CREW_RANKS];

	for (unsigned rank = 0; rank < crew->ranks; rank++)
		numbers[rank] = crew_push(rank, unit, salt);
	for (unsigned rank = 0; rank < crew->ranks; rank++)
		assert_int_equal(crew_result(rank, numbers[rank]), 0);
}

/* What a processor makes of the contributions of ranks from first on. */
static void add_expected(float *sum, uint32_t number, bool is_added, unsigned first, unsigned salt)
{
	const struct unit *unit = &scene_job(NULL)->catalog.units[number];
	uint64_t bytes = unit_gradient_bytes(unit), offset = 0;
	uint16_t *contributions[CREW_RANKS] = { NULL };

	for (unsigned rank = first; rank < crew->ranks; rank++) {
		contributions[rank] = malloc(bytes);
		assert_non_null(contributions[rank]);
		for (uint64_t i = 0; i < bytes / sizeof(uint16_t); i++)
			contributions[rank][i] = half_of(rank, salt, i);
	}
	for (uint32_t i = 0; i < unit->part_count; i++) {
		const struct unit_part *part = &unit->parts[i];
		const void *pointers[CREW_RANKS] = { NULL };

		for (unsigned rank = first; rank < crew->ranks; rank++)
			pointers[rank] = (char *)contributions[rank] + offset;
		reduce_sum_kernel(SIMD_SCALAR, unit_part_gradient_bytes(part) == part->elements * 4
						       ? REDUCE_FP32
						       : REDUCE_BF16)(sum + part->first, is_added, pointers,
								      crew->ranks, part->elements);
		offset += unit_part_gradient_bytes(part);
	}
	for (unsigned rank = first; rank < crew->ranks; rank++)
		free(contributions[rank]);
}

void crew_expect_from(unsigned first, uint32_t unit, unsigned micro_batches)
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

void crew_expect(uint32_t unit, unsigned micro_batches)
{
	crew_expect_from(0, unit, micro_batches);
}

uint64_t crew_bytes(uint32_t unit)
{
	return unit_gradient_bytes(&scene_job(NULL)->catalog.units[unit]);
}

/* Of those with the same GPU the first. */
uint64_t crew_copied_bytes(void)
{
	uint64_t bytes = 0;

	for (unsigned rank = 0; rank < crew->ranks; rank++) {
		bool is_first = true;

		for (unsigned other = 0; other < rank; other++)
			is_first &= crew->gpus[other] != crew->gpus[rank];
		if (is_first)
			bytes += gpu_engine_traffic(crew_rank(rank)->tier->gpu->engine, GPU_TO_HOST).bytes;
	}
	return bytes;
}

void crew_await_complete(const struct job *job)
{
	while (job->gradients->arriving > 0)
		scene_wait(&scene);
}
