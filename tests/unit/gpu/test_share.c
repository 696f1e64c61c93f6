/* Packs that come to two GPUs of a job together: with the values of host memory, and without anybody who
 * waits for a GPU that waits for another one. */
#include <string.h>
#include <sys/resource.h>

#include "daemon/gpu/exchange.h"
#include "tests/lib/gpu/script.h"
#include "tests/unit/gpu/gpu_actor.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"
#include "tests/unit/training.h"

#define UNIT_BYTES (PLAY_ELEMENTS * 2)
#define RANKS 3 /* at most */

static struct actor actors[RANKS];
static unsigned ranks;
static struct gpu_peer peer;
static struct gpus gpus;

static int setup(void **state)
{
	ranks = 2;
	standin_tell("STANDIN_GPUS", "2");
	standin_tell("STANDIN_BYTES", "67108864");
	standin_tell("STANDIN_FAILURES", NULL);
	gpus_find(&gpus);
	assert_int_equal(gpus.count, 2);
	gpu_peer_start(&peer);
	/* For two jobs. */
	return scene_setup_with(&(struct scene_options){ .host_budget = 512 * MIB, .capacity = 512 * MIB });
}

static int teardown(void **state)
{
	int r;

	standin_tell("STANDIN_FAILURES", NULL);
	r = scene_teardown(state);
	gpu_peer_end(&peer);
	return r;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* ---- Ranks ---- */

static void enter(unsigned rank)
{
	const struct actor_job job = {
		.rank = rank, .world_size = ranks, .stage = 3, .host_budget = 2 * PLAY_HOST_BUDGET
	};

	assert_int_equal(actor_enter(&scene, &actors[rank]), 0);
	assert_int_equal(actor_open(&actors[rank], &job), 0);
	assert_int_equal(actor_define_units(&actors[rank], PLAY_UNITS, PLAY_ELEMENTS), 0);
}

static struct gpu_exchange *exchange(void)
{
	return scene_job(NULL)->gpu->exchange;
}

static struct gpu_tier *tier_of(unsigned rank)
{
	return actors[rank].client ? scene_job(NULL)->members.ranks[rank]->gpu->tier : NULL;
}

/* Of three the first two share one. */
static unsigned gpu_of(unsigned rank)
{
	return ranks == 2 ? rank : rank / 2;
}

static void attach(unsigned rank, uint64_t budget)
{
	uint32_t number = gpu_actor_send_attach(&peer, &actors[rank],
						(uint8_t *)gpus.gpus[gpu_of(rank)].uuid.bytes, budget);

	assert_int_equal(actor_await(&actors[rank], number, 0)->status, 0);
}

/* As if each rank from the first on had gathered all units, one after the other, and the others one. */
static void learn_order_of(struct job *job, unsigned first)
{
	for (unsigned rank = 0; rank < ranks; rank++) {
		struct order *order = job->members.ranks[rank]->order;

		for (uint32_t unit = 0; unit < (rank < first ? 1 : PLAY_UNITS); unit++)
			order_note(order, unit);
		order_finish_pass(order);
	}
	prefetch_expect_anew(job);
	job_settle(job);
}

static void learn_order_from(unsigned first)
{
	learn_order_of(scene_job(NULL), first);
}

static void learn_order(void)
{
	learn_order_from(0);
}

static void begin(uint64_t budget)
{
	uint32_t numbers[RANKS];

	scene.node->settings.gpu_exchange = GPU_EXCHANGE_ALWAYS;
	scene.node->settings.gpu_exchange_seconds = 60;
	for (unsigned rank = 0; rank < ranks; rank++)
		enter(rank);
	for (unsigned rank = 0; rank < ranks; rank++)
		numbers[rank] = actor_send_ready(&actors[rank], -1);
	for (unsigned rank = 0; rank < ranks; rank++)
		assert_int_equal(actor_finish_ready(&actors[rank], numbers[rank]), 0);
	for (unsigned rank = 0; rank < ranks; rank++)
		attach(rank, budget);
}

static const struct gpu_pack *pack_of(unsigned rank, uint32_t unit)
{
	const struct gpu_tier *tier = tier_of(rank);

	return &tier->packs[tier->job->catalog.units[unit].pack];
}

static bool has_come(unsigned rank, uint32_t unit, uint64_t version)
{
	return pack_of(rank, unit)->state == GPU_RESIDENT && pack_of(rank, unit)->version == version;
}

/* The stand-in's memory is this process's. */
static void expect_host_values(unsigned rank, uint32_t unit, uint64_t version)
{
	const struct gpu_tier *tier = tier_of(rank);
	const void *address;

	while (!has_come(rank, unit, version))
		scene_wait(&scene);
	assert_int_equal(actor_gather(&actors[rank], unit, version, &address), 0);
	assert_memory_equal(
		(void *)(uintptr_t)(tier->memory.address + tier->slots.offsets[pack_of(rank, unit)->slot]),
		address, UNIT_BYTES);
	actor_release(&actors[rank], unit);
}

static void expect_all(uint64_t version)
{
	for (unsigned rank = 0; rank < ranks; rank++)
		for (uint32_t unit = 0; unit < PLAY_UNITS; unit++)
			expect_host_values(rank, unit, version);
}

static void await_state(enum exchange_state wanted)
{
	while (!exchange() || exchange()->state != wanted)
		scene_wait(&scene);
}

/* All units change. */
static void take_step(void)
{
	uint32_t pushes[RANKS], steps[RANKS];

	for (uint32_t unit = 0; unit < PLAY_UNITS; unit++) {
		for (unsigned rank = 0; rank < ranks; rank++) {
			training_fill(&actors[rank], unit, 1);
			pushes[rank] = actor_send_push(&actors[rank], unit, 0);
		}
		for (unsigned rank = 0; rank < ranks; rank++)
			assert_int_equal(actor_await(&actors[rank], pushes[rank], 0)->status, 0);
	}
	for (unsigned rank = 0; rank < ranks; rank++)
		steps[rank] = actor_send_step(&actors[rank], 0.1f);
	for (unsigned rank = 0; rank < ranks; rank++)
		assert_int_equal(actor_await(&actors[rank], steps[rank], 0)->status, 0);
}

/* ---- Tests ---- */

/* The first values come while there is no communicator. */
static void each_gpu_copies_its_part_and_has_all_of_it(void **state)
{
	begin(0);
	assert_null(exchange());
	learn_order();
	expect_all(0);
	await_state(EXCHANGE_READY);
	take_step();
	learn_order();
	expect_all(1);
	/* What is next is not waited for. */
	assert_in_range(exchange()->bytes, (PLAY_UNITS - 2) * UNIT_BYTES, PLAY_UNITS * UNIT_BYTES);
	assert_int_equal(exchange()->bytes % UNIT_BYTES, 0);
	assert_string_equal(gpu_exchange_of_job(scene_job(NULL)).problem, "");
}

/* The first GPU's first rank expects little. */
static void what_any_rank_of_a_gpu_expects_comes(void **state)
{
	ranks = 3;
	begin(0);
	learn_order_from(1);
	await_state(EXCHANGE_READY);
	expect_all(0);
	take_step();
	learn_order_from(1);
	expect_all(1);
}

static void another_epoch_has_another_one(void **state)
{
	begin(0);
	learn_order();
	await_state(EXCHANGE_READY);
	assert_int_equal(exchange()->epoch, 1);
	actor_die(&actors[1]);
	await_state(EXCHANGE_NONE);
	enter(1);
	actor_ready_both(&actors[0], &actors[1]);
	attach(1, 0);
	learn_order();
	await_state(EXCHANGE_READY);
	assert_int_equal(exchange()->epoch, 2);
	expect_all(0);
}

static void where_the_exchange_fails_each_gpu_copies_all(void **state)
{
	begin(0);
	learn_order();
	await_state(EXCHANGE_READY);
	expect_all(0);
	standin_tell("STANDIN_FAILURES", "asynchronous#2=6");
	take_step();
	learn_order();
	expect_all(1);
	await_state(EXCHANGE_BROKEN);
	assert_non_null(strstr(gpu_exchange_of_job(scene_job(NULL)).problem, "another member has ended"));
	/* Until the epoch ends. */
	standin_tell("STANDIN_FAILURES", NULL);
	take_step();
	learn_order();
	expect_all(2);
	assert_int_equal(exchange()->state, EXCHANGE_BROKEN);
	actor_die(&actors[1]);
	await_state(EXCHANGE_NONE);
}

static bool is_moving(void)
{
	for (unsigned i = 0; exchange() && i < GPU_SHARES; i++)
		if (exchange()->shares[i].is_moving)
			return true;
	return false;
}

/* One that comes while NCCL does not return begins no exchange. */
static void expect_no_exchange_of_another_job(void)
{
	static struct actor others[2];
	struct actor_job options = {
		.name = "other", .world_size = 2, .stage = 3, .host_budget = 2 * PLAY_HOST_BUDGET
	};
	const struct gpu_exchange *its;
	struct job *job;

	for (unsigned rank = 0; rank < 2; rank++) {
		options.rank = rank;
		assert_int_equal(actor_enter(&scene, &others[rank]), 0);
		assert_int_equal(actor_open(&others[rank], &options), 0);
		assert_int_equal(actor_define_units(&others[rank], PLAY_UNITS, PLAY_ELEMENTS), 0);
	}
	actor_ready_both(&others[0], &others[1]);
	for (unsigned rank = 0; rank < 2; rank++) {
		uint32_t number = gpu_actor_send_attach(
			&peer, &others[rank], (uint8_t *)gpus.gpus[rank].uuid.bytes, 2 * UNIT_BYTES);

		assert_int_equal(actor_await(&others[rank], number, 0)->status, 0);
	}
	job = scene_job("other");
	learn_order_of(job, 0);
	while (!job->gpu->exchange)
		scene_wait(&scene);
	its = job->gpu->exchange;
	assert_int_equal(its->state, EXCHANGE_NONE);
	assert_string_equal(its->problem, "NCCL has not come back from a call for 1 s");
	for (unsigned rank = 0; rank < 2; rank++) {
		uint32_t number = gpu_actor_send_gather(&others[rank], 0, 0);

		assert_int_equal(actor_await(&others[rank], number, 0)->status, 0);
	}
}

/* It has a pack on its way to both GPUs, and nobody knows when that arrives. */
static void nobody_waits_for_nccl_that_does_not_return(void **state)
{
	begin(0);
	learn_order();
	await_state(EXCHANGE_READY);
	expect_all(0);
	gpu_peer_block("ncclGroupEnd,ncclCommAbort");
	take_step();
	learn_order();
	while (!is_moving())
		scene_wait(&scene);
	scene.node->settings.gpu_exchange_seconds = 1;
	while (exchange()->state != EXCHANGE_BROKEN) {
		usleep(1000);
		gpu_check_engines(scene.node);
	}
	for (unsigned rank = 0; rank < ranks; rank++) {
		uint32_t number = gpu_actor_send_gather(&actors[rank], 0, 1);
		const void *address;

		assert_int_equal(actor_await(&actors[rank], number, 0)->status, -ENODEV);
		assert_non_null(
			strstr(actor_message(&actors[rank]), "NCCL has not come back from a call for 1 s"));
		assert_int_equal(actor_gather(&actors[rank], 0, 1, &address), 0);
		actor_release(&actors[rank], 0);
	}
	expect_no_exchange_of_another_job();
	/* It returns, and all that it had comes home. */
	gpu_peer_unblock();
	for (unsigned rank = 0; rank < ranks; rank++)
		actor_die(&actors[rank]);
}

static struct gpu_lease_header *leases_of(const struct actor *rank)
{
	return (struct gpu_lease_header *)rank->gpu_leases.base;
}

/* Gathers and releases it behind an event that the peer has not come to. */
static void use(unsigned rank, uint32_t unit)
{
	struct actor *actor = &actors[rank];
	uint64_t number;

	assert_int_equal(actor_await(actor, gpu_actor_send_gather(actor, unit, 0), 0)->status, 0);
	number = atomic_fetch_add(&leases_of(actor)->recorded, 1) + 1;
	gpu_peer_record(&peer, number);
	atomic_store(&gpu_lease_released(leases_of(actor), PLAY_UNITS)[unit], number);
	assert_true(lease_give(&gpu_lease_counters(leases_of(actor))[unit]));
}

/* Both have used units 0 and 1, for which they have room, and unit 2 is next. */
static void use_both(void)
{
	unsigned char ignored[PEER_READ_BYTES];

	begin(2 * UNIT_BYTES);
	for (uint32_t unit = 0; unit < PLAY_UNITS; unit++) {
		const void *address;

		assert_int_equal(actor_gather(&actors[0], unit, 0, &address), 0);
		actor_release(&actors[0], unit);
	}
	learn_order();
	await_state(EXCHANGE_READY);
	for (unsigned rank = 0; rank < ranks; rank++)
		for (uint32_t unit = 0; unit < 2; unit++)
			expect_host_values(rank, unit, 0);
	/* They have one peer: each its half of the events. */
	atomic_store(&leases_of(&actors[1])->recorded, GPU_EVENTS / 2);
	for (unsigned rank = 0; rank < ranks; rank++) {
		gpu_peer_hold(&peer, rank == 1);
		for (uint32_t unit = 0; unit < 2; unit++)
			use(rank, unit);
		/* What the first rank has queued has ended before the peer stands still. */
		if (rank == 0)
			gpu_peer_look(&peer, ignored);
	}
	for (unsigned rank = 0; rank < ranks; rank++)
		for (uint32_t unit = 0; unit < 2; unit++)
			order_note(scene_job(NULL)->members.ranks[rank]->order, unit);
	prefetch_expect_anew(scene_job(NULL));
	job_settle(scene_job(NULL));
	while (!exchange()->shares[0].packs || !exchange()->shares[0].is_there[0])
		scene_wait(&scene);
	assert_false(exchange()->shares[0].is_there[1]);
}

/* The slots of the second GPU are in use: what its rank has queued there may wait for the first one's rank.
 */
static void who_asks_for_a_pack_does_not_wait_for_another_gpu(void **state)
{
	use_both();
	for (uint32_t unit = 2; unit < 4; unit++) {
		uint32_t number = gpu_actor_send_gather(&actors[0], unit, 0);

		assert_int_equal(actor_await(&actors[0], number, 0)->status, 0);
		expect_host_values(0, unit, 0);
		assert_true(lease_give(&gpu_lease_counters(leases_of(&actors[0]))[unit]));
	}
	assert_false(has_come(1, 2, 0));
	gpu_peer_hold(&peer, false);
	expect_host_values(1, 2, 0);
	assert_int_equal(exchange()->bytes, 0);
}

/* All slots of its GPU have packs whose other parts do not come. */
static void who_wants_a_slot_does_not_wait_for_another_gpu(void **state)
{
	uint32_t number;

	use_both();
	number = gpu_actor_send_gather(&actors[0], 5, 0);
	assert_int_equal(actor_await(&actors[0], number, 0)->status, 0);
	expect_host_values(0, 5, 0);
	assert_false(has_come(1, 2, 0));
	gpu_peer_hold(&peer, false);
}

/* A part is there, and waits for the other one. */
static void who_leaves_in_the_middle_leaves_nothing_behind(void **state)
{
	struct job *job;

	use_both();
	job = scene_job(NULL);
	for (unsigned rank = 0; rank < ranks; rank++)
		actor_die(&actors[rank]);
	gpu_peer_hold(&peer, false);
	while (!queue_is_empty(&job->gpu->tiers))
		scene_wait(&scene);
	assert_int_equal(job->gpu->exchange->state, EXCHANGE_NONE);
}

/* The thread needs one. */
static void without_descriptors_it_is_tried_again(void **state)
{
	struct rlimit before, none;

	begin(0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	learn_order();
	while (!exchange() || !exchange()->problem[0])
		scene_wait(&scene);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_string_equal(exchange()->problem, "tierd has no memory, or no thread, for that");
	assert_int_equal(exchange()->state, EXCHANGE_NONE);
	job_settle(scene_job(NULL));
	await_state(EXCHANGE_READY);
	assert_string_equal(exchange()->problem, "");
}

static void gpus_that_do_not_want_the_same_exchange_nothing(void **state)
{
	begin(0);
	for (unsigned rank = 0; rank < ranks; rank++) {
		struct order *order = scene_job(NULL)->members.ranks[rank]->order;

		for (uint32_t unit = 0; unit < PLAY_UNITS; unit++)
			order_note(order, rank == 0 ? unit / 2 : PLAY_UNITS / 2 + unit / 2);
		order_finish_pass(order);
	}
	prefetch_expect_anew(scene_job(NULL));
	job_settle(scene_job(NULL));
	for (uint32_t unit = 0; unit < PLAY_UNITS; unit++)
		expect_host_values(unit < PLAY_UNITS / 2 ? 0 : 1, unit, 0);
	await_state(EXCHANGE_READY);
	assert_int_equal(exchange()->bytes, 0);
	assert_false(has_come(1, 0, 0));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(each_gpu_copies_its_part_and_has_all_of_it),
		TEST(what_any_rank_of_a_gpu_expects_comes),
		TEST(another_epoch_has_another_one),
		TEST(where_the_exchange_fails_each_gpu_copies_all),
		TEST(nobody_waits_for_nccl_that_does_not_return),
		TEST(who_asks_for_a_pack_does_not_wait_for_another_gpu),
		TEST(who_wants_a_slot_does_not_wait_for_another_gpu),
		TEST(who_leaves_in_the_middle_leaves_nothing_behind),
		TEST(without_descriptors_it_is_tried_again),
		TEST(gpus_that_do_not_want_the_same_exchange_nothing),
	};

	if (argc > 1)
		return gpu_peer_run(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
