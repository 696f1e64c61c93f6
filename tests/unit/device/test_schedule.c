/* The order in which a device would see what flows want of it; no device, no clock. */
#include <stdlib.h>

#include "common/size.h"
#include "offload/device/schedule.h"
#include "tests/unit/test.h"

#define FLOWS 8
#define DEPTH 8

struct fixture {
	struct schedule schedule;
	struct schedule_flow flows[FLOWS];
	uint64_t moved[FLOWS][TIER_PRIORITIES];
};

static void open_fixture(struct fixture *fixture, const unsigned *weights, unsigned count)
{
	static const struct schedule_limits limits = { .depth = DEPTH, .background_bytes = 4 * MIB };

	*fixture = (struct fixture){ 0 };
	schedule_init(&fixture->schedule, &limits);
	for (unsigned i = 0; i < count; i++)
		schedule_flow_init(&fixture->flows[i], &fixture->schedule,
				   &(struct tier_share){ .weight = weights[i] });
}

static const unsigned equal[FLOWS] = { 100, 100, 100, 100, 100, 100, 100, 100 };

static struct tier_io *push(struct fixture *fixture, unsigned flow, struct tier_io *io,
			    enum tier_priority priority, size_t length)
{
	*io = (struct tier_io){ .priority = priority, .length = length };
	queue_init(&io->link);
	schedule_push(&fixture->flows[flow], io);
	return io;
}

static unsigned flow_of(const struct fixture *fixture, const struct tier_io *io)
{
	return (unsigned)(io->flow - fixture->flows);
}

static void expect_next(struct fixture *fixture, struct tier_io *expected)
{
	struct tier_io *io = schedule_next(&fixture->schedule);

	assert_ptr_equal(io, expected);
	if (io)
		schedule_finish(io);
}

/* Moves pieces one at a time; what has moved waits again, so that every queue stays as full as it was. */
static void run(struct fixture *fixture, uint64_t bytes)
{
	for (uint64_t moved = 0; moved < bytes;) {
		struct tier_io *io = schedule_next(&fixture->schedule);

		assert_non_null(io);
		moved += io->piece;
		fixture->moved[flow_of(fixture, io)][io->priority] += io->piece;
		schedule_finish(io);
		schedule_push(io->flow, io);
	}
}

static void expect_about(uint64_t value, uint64_t expected)
{
	if (value < expected - 2 * MIB || value > expected + 2 * MIB)
		fail_msg("%llu bytes, not about %llu", (unsigned long long)value,
			 (unsigned long long)expected);
}

static void expect_shares(enum tier_priority priority)
{
	static const unsigned weights[] = { 10, 20, 30, 140 };
	static const size_t lengths[] = { MIB, 4096, 3 * MIB, 300 << 10 };
	struct tier_io ios[ARRAY_LENGTH(weights)][2];
	struct fixture fixture;

	open_fixture(&fixture, weights, ARRAY_LENGTH(weights));
	for (unsigned flow = 0; flow < ARRAY_LENGTH(weights); flow++)
		for (unsigned i = 0; i < 2; i++)
			push(&fixture, flow, &ios[flow][i], priority, lengths[flow]);
	run(&fixture, 1000 * MIB);
	for (unsigned flow = 0; flow < ARRAY_LENGTH(weights); flow++)
		expect_about(fixture.moved[flow][priority], 1000 * MIB * weights[flow] / 200);
}

static void flows_share_in_proportion_to_their_weights(void **state)
{
	for (int priority = 0; priority < TIER_PRIORITIES; priority++)
		expect_shares((enum tier_priority)priority);
}

static void the_extreme_weights_share_too(void **state)
{
	static const unsigned weights[] = { 1, SCHEDULE_MAX_WEIGHT };
	struct tier_io ios[2];
	struct fixture fixture;

	open_fixture(&fixture, weights, 2);
	push(&fixture, 0, &ios[0], TIER_DEMAND, 4096);
	push(&fixture, 1, &ios[1], TIER_DEMAND, 4096);
	run(&fixture, 20000 * 4096);
	assert_in_range(fixture.moved[0][TIER_DEMAND] / 4096, 1, 3);
}

/* A job's prefetch and write-back together are its share: writing does not cost it its weight. */
static void prefetch_and_write_back_are_one_share(void **state)
{
	static const unsigned weights[] = { 100, 300 };
	struct tier_io ios[2];
	struct fixture fixture;

	open_fixture(&fixture, weights, 2);
	push(&fixture, 0, &ios[0], TIER_PREFETCH, MIB);
	push(&fixture, 1, &ios[1], TIER_WRITE_BACK, MIB);
	run(&fixture, 400 * MIB);
	expect_about(fixture.moved[0][TIER_PREFETCH], 100 * MIB);
	expect_about(fixture.moved[1][TIER_WRITE_BACK], 300 * MIB);
}

static void demand_goes_before_all_that_waited_longer(void **state)
{
	struct tier_io ios[6];
	struct fixture fixture;

	open_fixture(&fixture, equal, 2);
	push(&fixture, 0, &ios[0], TIER_WRITE_BACK, MIB);
	push(&fixture, 0, &ios[1], TIER_PREFETCH, MIB);
	push(&fixture, 1, &ios[2], TIER_DEMAND, MIB);
	push(&fixture, 0, &ios[3], TIER_DEMAND, MIB);
	push(&fixture, 1, &ios[4], TIER_DEMAND, MIB);
	push(&fixture, 0, &ios[5], TIER_PREFETCH, MIB);
	expect_next(&fixture, &ios[2]);
	expect_next(&fixture, &ios[3]);
	expect_next(&fixture, &ios[4]);
	expect_next(&fixture, &ios[1]);
	expect_next(&fixture, &ios[5]);
	expect_next(&fixture, &ios[0]);
	expect_next(&fixture, NULL);
}

static void nothing_starves(void **state)
{
	struct tier_io ios[3];
	struct fixture fixture;

	open_fixture(&fixture, equal, 2);
	push(&fixture, 0, &ios[0], TIER_DEMAND, MIB);
	push(&fixture, 1, &ios[1], TIER_PREFETCH, MIB);
	push(&fixture, 1, &ios[2], TIER_WRITE_BACK, MIB);
	run(&fixture, 17 * 9 * 4 * MIB);
	expect_about(fixture.moved[0][TIER_DEMAND], 16 * 9 * 4 * MIB);
	expect_about(fixture.moved[1][TIER_PREFETCH], 8 * 4 * MIB);
	expect_about(fixture.moved[1][TIER_WRITE_BACK], 4 * MIB);
}

static void what_is_idle_comes_last(void **state)
{
	struct tier_io ios[4];
	struct fixture fixture;

	open_fixture(&fixture, equal, 2);
	push(&fixture, 0, &ios[0], TIER_IDLE, MIB);
	push(&fixture, 1, &ios[1], TIER_WRITE_BACK, MIB);
	push(&fixture, 1, &ios[2], TIER_PREFETCH, MIB);
	push(&fixture, 0, &ios[3], TIER_DEMAND, MIB);
	assert_false(schedule_flow_is_idle(&fixture.flows[0]));
	expect_next(&fixture, &ios[3]);
	expect_next(&fixture, &ios[2]);
	expect_next(&fixture, &ios[1]);
	expect_next(&fixture, &ios[0]);
	expect_next(&fixture, NULL);
	assert_true(schedule_flow_is_idle(&fixture.flows[0]));
}

static void what_is_idle_does_not_starve(void **state)
{
	static const enum tier_priority others[] = { TIER_DEMAND, TIER_PREFETCH, TIER_WRITE_BACK };

	for (unsigned i = 0; i < ARRAY_LENGTH(others); i++) {
		struct tier_io ios[2];
		struct fixture fixture;

		open_fixture(&fixture, equal, 2);
		push(&fixture, 0, &ios[0], others[i], MIB);
		push(&fixture, 1, &ios[1], TIER_IDLE, MIB);
		run(&fixture, 65 * 20 * MIB);
		expect_about(fixture.moved[1][TIER_IDLE], 20 * MIB);
		expect_about(fixture.moved[0][others[i]], 64 * 20 * MIB);
	}
}

/* As many as may be are in flight, and the oldest ends first; what has ended waits again. */
static void run_full(struct fixture *fixture, uint64_t bytes)
{
	struct tier_io *in_flight[64];
	unsigned begun = 0, ended = 0;

	for (uint64_t moved = 0; moved < bytes;) {
		struct tier_io *io = schedule_next(&fixture->schedule);

		if (io) {
			in_flight[begun++ % ARRAY_LENGTH(in_flight)] = io;
			continue;
		}
		assert_true(ended < begun);
		io = in_flight[ended++ % ARRAY_LENGTH(in_flight)];
		moved += io->piece;
		fixture->moved[flow_of(fixture, io)][io->priority] += io->piece;
		schedule_finish(io);
		schedule_push(io->flow, io);
	}
}

/* The bound has grown, and all of it is in use: by larger pieces than what is idle, and by smaller ones. */
static void what_is_idle_does_not_starve_on_a_full_device(void **state)
{
	static const size_t lengths[][2] = { { MIB, MIB / 4 }, { MIB / 2, MIB } };

	for (unsigned i = 0; i < ARRAY_LENGTH(lengths); i++) {
		struct tier_io background[200], idle[4];
		struct fixture fixture;

		open_fixture(&fixture, equal, 2);
		fixture.schedule.limits.depth = 64;
		for (unsigned j = 0; j < ARRAY_LENGTH(background); j++)
			push(&fixture, 0, &background[j], j % 2 ? TIER_PREFETCH : TIER_WRITE_BACK,
			     lengths[i][0]);
		for (unsigned j = 0; j < ARRAY_LENGTH(idle); j++)
			push(&fixture, 1, &idle[j], TIER_IDLE, lengths[i][1]);
		run_full(&fixture, 65 * 20 * MIB);
		assert_in_range(fixture.schedule.load.background_bytes, 14 * MIB,
				SCHEDULE_GROWTH_MAX * 4 * MIB);
		expect_about(fixture.moved[1][TIER_IDLE], 20 * MIB);
	}
}

/* What the background has no room for, what is idle has none for either. */
static void what_is_idle_does_not_overtake_what_has_no_room(void **state)
{
	struct tier_io background[5], idle;
	struct fixture fixture;

	open_fixture(&fixture, equal, 2);
	for (unsigned i = 0; i < ARRAY_LENGTH(background); i++)
		push(&fixture, 0, &background[i], TIER_PREFETCH, MIB);
	push(&fixture, 1, &idle, TIER_IDLE, MIB);
	for (unsigned i = 0; i < 4; i++)
		assert_ptr_equal(schedule_next(&fixture.schedule), &background[i]);
	assert_null(schedule_next(&fixture.schedule));
	schedule_finish(&background[0]);
	assert_ptr_equal(schedule_next(&fixture.schedule), &background[4]);
	assert_null(schedule_next(&fixture.schedule));
	schedule_finish(&background[1]);
	assert_ptr_equal(schedule_next(&fixture.schedule), &idle);
}

/* Without a bound, what waited while nothing of it may start would come as a flood. */
static void waiting_earns_no_flood(void **state)
{
	struct tier_io demand, background[12];
	struct fixture fixture;
	struct tier_io *io;

	open_fixture(&fixture, equal, 2);
	for (unsigned i = 0; i < ARRAY_LENGTH(background); i++)
		push(&fixture, 1, &background[i], TIER_WRITE_BACK, MIB);
	for (unsigned i = 0; i < 4; i++)
		assert_ptr_equal(schedule_next(&fixture.schedule), &background[i]);
	push(&fixture, 0, &demand, TIER_DEMAND, MIB);
	run(&fixture, 200 * MIB);
	assert_int_equal(fixture.moved[1][TIER_WRITE_BACK], 0);
	for (unsigned i = 0; i < 4; i++)
		schedule_finish(&background[i]);
	assert_ptr_equal(io = schedule_next(&fixture.schedule), &background[4]);
	assert_ptr_equal(schedule_next(&fixture.schedule), &demand);
	push(&fixture, 0, &demand, TIER_DEMAND, MIB);
	assert_ptr_equal(schedule_next(&fixture.schedule), &demand);
}

static void a_flow_that_comes_back_is_served_at_once_but_has_saved_nothing(void **state)
{
	struct tier_io ios[4];
	struct fixture fixture;

	open_fixture(&fixture, equal, 2);
	push(&fixture, 0, &ios[0], TIER_DEMAND, MIB);
	push(&fixture, 0, &ios[1], TIER_DEMAND, MIB);
	run(&fixture, 1000 * MIB);
	push(&fixture, 1, &ios[2], TIER_DEMAND, MIB);
	push(&fixture, 1, &ios[3], TIER_DEMAND, MIB);
	run(&fixture, 3 * MIB);
	assert_in_range(fixture.moved[1][TIER_DEMAND], MIB, 2 * MIB);
	run(&fixture, 100 * MIB);
	expect_about(fixture.moved[1][TIER_DEMAND], 51 * MIB);
}

/* Of a flow with one transfer at a time nothing waits while it is moved, and it must not lose by that. */
static void a_flow_with_one_transfer_at_a_time_gets_its_share(void **state)
{
	struct tier_io flood[4], single;
	struct fixture fixture;
	uint64_t moved = 0;

	open_fixture(&fixture, equal, 2);
	for (unsigned i = 0; i < 4; i++)
		push(&fixture, 0, &flood[i], TIER_DEMAND, MIB);
	for (unsigned i = 0; i < 100; i++) {
		push(&fixture, 1, &single, TIER_DEMAND, MIB);
		while (single.flow->in_flight == 0) {
			struct tier_io *io = schedule_next(&fixture.schedule);

			moved += io->piece;
			if (io == &single)
				break;
			schedule_finish(io);
			schedule_push(io->flow, io);
		}
		schedule_finish(&single);
	}
	expect_about(moved, 200 * MIB);
}

static void the_rest_of_a_transfer_goes_on_in_its_turn(void **state)
{
	struct tier_io large, behind, small;
	struct fixture fixture;

	open_fixture(&fixture, equal, 2);
	push(&fixture, 0, &large, TIER_DEMAND, 5 * MIB / 2);
	push(&fixture, 0, &behind, TIER_DEMAND, MIB);
	push(&fixture, 1, &small, TIER_DEMAND, MIB);
	for (unsigned piece = 0; piece < 3; piece++) {
		assert_ptr_equal(schedule_next(&fixture.schedule), &large);
		assert_int_equal(large.piece, piece < 2 ? MIB : MIB / 2);
		schedule_finish(&large);
		large.finished += large.piece;
		if (large.finished < large.length)
			schedule_push_rest(large.flow, &large);
		if (piece == 0)
			expect_next(&fixture, &small);
	}
	expect_next(&fixture, &behind);
	assert_true(schedule_flow_is_idle(&fixture.flows[0]));
}

static void a_bounded_part_of_the_background_is_in_flight(void **state)
{
	struct tier_io background[8], demand[8];
	struct fixture fixture;
	unsigned started = 0;

	open_fixture(&fixture, equal, 2);
	for (unsigned i = 0; i < 8; i++)
		push(&fixture, 0, &background[i], TIER_PREFETCH, MIB);
	while (schedule_next(&fixture.schedule))
		started++;
	assert_int_equal(started, 4);
	for (unsigned i = 0; i < 8; i++)
		push(&fixture, 1, &demand[i], TIER_DEMAND, MIB);
	for (unsigned i = 0; i < DEPTH - 4; i++)
		assert_ptr_equal(schedule_next(&fixture.schedule), &demand[i]);
	assert_null(schedule_next(&fixture.schedule));
	/* Small ones take no more than their part of the depth. */
	open_fixture(&fixture, equal, 2);
	for (unsigned i = 0; i < 8; i++)
		push(&fixture, 0, &background[i], TIER_WRITE_BACK, 4096);
	for (started = 0; schedule_next(&fixture.schedule); started++)
		;
	assert_int_equal(started, DEPTH - DEPTH / 4);
}

static void less_of_the_background_is_in_flight_beside_demand(void **state)
{
	struct tier_io background[8], demand;
	struct fixture fixture;

	open_fixture(&fixture, equal, 2);
	push(&fixture, 1, &demand, TIER_DEMAND, MIB);
	assert_ptr_equal(schedule_next(&fixture.schedule), &demand);
	for (unsigned i = 0; i < 8; i++)
		push(&fixture, 0, &background[i], TIER_PREFETCH, MIB);
	assert_ptr_equal(schedule_next(&fixture.schedule), &background[0]);
	assert_null(schedule_next(&fixture.schedule));
	schedule_finish(&demand);
	for (unsigned i = 1; i < 4; i++)
		assert_ptr_equal(schedule_next(&fixture.schedule), &background[i]);
	assert_null(schedule_next(&fixture.schedule));
}

/* So many of the background are in flight, and no more can be. */
static void expect_room(struct fixture *fixture, struct tier_io *ios, unsigned *begun, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		assert_ptr_equal(schedule_next(&fixture->schedule), &ios[(*begun)++]);
	assert_null(schedule_next(&fixture->schedule));
}

static void the_background_has_more_room_where_no_demand_comes(void **state)
{
	struct tier_io background[96], demand;
	struct fixture fixture;
	unsigned begun = 0, ended = 0;

	open_fixture(&fixture, equal, 2);
	fixture.schedule.limits.depth = 32;
	for (unsigned i = 0; i < ARRAY_LENGTH(background); i++)
		push(&fixture, 0, &background[i], TIER_WRITE_BACK, MIB);
	expect_room(&fixture, background, &begun, 4);
	/* A quarter of what ends, up to four times what is configured. */
	for (unsigned room = 4; room < 16; room++)
		for (unsigned i = 0; i < SCHEDULE_GROWTH_PART; i++) {
			schedule_finish(&background[ended++]);
			expect_room(&fixture, background, &begun, i == SCHEDULE_GROWTH_PART - 1 ? 2 : 1);
		}
	for (unsigned i = 0; i < 8; i++) {
		schedule_finish(&background[ended++]);
		expect_room(&fixture, background, &begun, 1);
	}
	/* It begins anew when a demand read has come. */
	push(&fixture, 1, &demand, TIER_DEMAND, MIB);
	assert_ptr_equal(schedule_next(&fixture.schedule), &demand);
	schedule_finish(&demand);
	for (unsigned i = 0; i < 8; i++) {
		assert_null(schedule_next(&fixture.schedule));
		schedule_finish(&background[ended++]);
	}
}

static void what_is_idle_has_no_more_room(void **state)
{
	struct tier_io idle[32];
	struct fixture fixture;
	unsigned begun = 0;

	open_fixture(&fixture, equal, 1);
	for (unsigned i = 0; i < ARRAY_LENGTH(idle); i++)
		push(&fixture, 0, &idle[i], TIER_IDLE, MIB);
	expect_room(&fixture, idle, &begun, 4);
	for (unsigned i = 0; i < 24; i++) {
		schedule_finish(&idle[i]);
		expect_room(&fixture, idle, &begun, 1);
	}
}

static void a_raised_transfer_overtakes_its_own_kind(void **state)
{
	struct tier_io ios[5];
	struct fixture fixture;

	open_fixture(&fixture, equal, 2);
	for (unsigned i = 0; i < 4; i++)
		push(&fixture, i == 1 || i == 2, &ios[i], i < 2 ? TIER_PREFETCH : TIER_WRITE_BACK, MIB);
	push(&fixture, 1, &ios[4], TIER_DEMAND, MIB);
	schedule_raise(&ios[3], TIER_DEMAND);
	schedule_raise(&ios[0], TIER_DEMAND);
	schedule_raise(&ios[4], TIER_PREFETCH); /* no raise */
	expect_next(&fixture, &ios[4]);
	expect_next(&fixture, &ios[3]);
	expect_next(&fixture, &ios[0]);
	expect_next(&fixture, &ios[1]);
	expect_next(&fixture, &ios[2]);
	expect_next(&fixture, NULL);
}

static void the_rest_of_what_is_raised_in_flight_is_demand(void **state)
{
	struct tier_io large, other;
	struct fixture fixture;

	open_fixture(&fixture, equal, 2);
	push(&fixture, 0, &large, TIER_PREFETCH, 2 * MIB);
	assert_ptr_equal(schedule_next(&fixture.schedule), &large);
	push(&fixture, 1, &other, TIER_PREFETCH, MIB);
	schedule_raise(&large, TIER_DEMAND);
	schedule_finish(&large);
	assert_int_equal(fixture.schedule.load.background_bytes, 0);
	large.finished = MIB;
	schedule_push_rest(large.flow, &large);
	expect_next(&fixture, &large);
	expect_next(&fixture, &other);
}

static void a_flow_that_goes_leaves_the_others_their_turns(void **state)
{
	struct tier_io ios[FLOWS];
	struct fixture fixture;

	open_fixture(&fixture, equal, FLOWS);
	for (unsigned i = 0; i < FLOWS; i++)
		push(&fixture, i, &ios[i], TIER_DEMAND, MIB * (i + 1) / 16);
	run(&fixture, 100 * MIB);
	/* What it has waiting comes home before it goes; then another takes its place. */
	while (!schedule_flow_is_idle(&fixture.flows[3])) {
		struct tier_io *io = schedule_next(&fixture.schedule);

		schedule_finish(io);
		if (flow_of(&fixture, io) != 3)
			schedule_push(io->flow, io);
	}
	schedule_flow_init(&fixture.flows[3], &fixture.schedule, &(struct tier_share){ .weight = 700 });
	push(&fixture, 3, &ios[3], TIER_DEMAND, MIB);
	for (unsigned i = 0; i < FLOWS; i++)
		fixture.moved[i][TIER_DEMAND] = 0;
	run(&fixture, 1400 * MIB);
	for (unsigned i = 0; i < FLOWS; i++)
		expect_about(fixture.moved[i][TIER_DEMAND], i == 3 ? 700 * MIB : 100 * MIB);
}

/* Pushes, raises, starts and ends at random; every transfer is taken once for each time it was pushed. */
static void whatever_the_order_each_transfer_is_taken_once(void **state)
{
	enum { IOS = 64 };
	static const unsigned weights[FLOWS] = { 1, 10, 100, 1000, 10000, 7, 7, 7 };
	struct tier_io ios[IOS];
	bool is_free[IOS], is_flying[IOS] = { false };
	struct fixture fixture;
	uint64_t random = 1;
	unsigned pushed = 0, taken = 0;

	open_fixture(&fixture, weights, FLOWS);
	for (unsigned i = 0; i < IOS; i++)
		is_free[i] = true;
	for (unsigned round = 0; round < 500000; round++) {
		random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
		unsigned i = (unsigned)(random >> 33) % IOS, choice = (unsigned)(random >> 50) % 4;
		struct tier_io *io;

		if (choice == 0 && is_free[i]) {
			push(&fixture, (unsigned)(random >> 40) % FLOWS, &ios[i],
			     (enum tier_priority)((random >> 45) % TIER_PRIORITIES), 4096 * (1 + i % 7));
			is_free[i] = false;
			pushed++;
		} else if (choice == 1 && !is_free[i]) {
			schedule_raise(&ios[i], (enum tier_priority)((random >> 45) % TIER_PRIORITIES));
		} else if (choice == 2 && (io = schedule_next(&fixture.schedule))) {
			assert_false(is_free[io - ios] || is_flying[io - ios]);
			is_flying[io - ios] = true;
			taken++;
		} else if (choice == 3 && is_flying[i]) {
			schedule_finish(&ios[i]);
			is_flying[i] = false;
			is_free[i] = true;
		}
	}
	for (unsigned i = 0; i < IOS; i++)
		if (is_flying[i])
			schedule_finish(&ios[i]);
	for (struct tier_io *io; (io = schedule_next(&fixture.schedule)); taken++)
		schedule_finish(io);
	assert_int_equal(taken, pushed);
	assert_true(taken > 10000);
	for (unsigned flow = 0; flow < FLOWS; flow++)
		assert_true(schedule_flow_is_idle(&fixture.flows[flow]));
	assert_int_equal(fixture.schedule.load.in_flight + fixture.schedule.load.background_in_flight, 0);
	assert_int_equal(fixture.schedule.load.background_bytes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flows_share_in_proportion_to_their_weights),
		cmocka_unit_test(the_extreme_weights_share_too),
		cmocka_unit_test(prefetch_and_write_back_are_one_share),
		cmocka_unit_test(demand_goes_before_all_that_waited_longer),
		cmocka_unit_test(nothing_starves),
		cmocka_unit_test(what_is_idle_comes_last),
		cmocka_unit_test(what_is_idle_does_not_starve),
		cmocka_unit_test(what_is_idle_does_not_starve_on_a_full_device),
		cmocka_unit_test(what_is_idle_does_not_overtake_what_has_no_room),
		cmocka_unit_test(waiting_earns_no_flood),
		cmocka_unit_test(a_flow_that_comes_back_is_served_at_once_but_has_saved_nothing),
		cmocka_unit_test(a_flow_with_one_transfer_at_a_time_gets_its_share),
		cmocka_unit_test(the_rest_of_a_transfer_goes_on_in_its_turn),
		cmocka_unit_test(a_bounded_part_of_the_background_is_in_flight),
		cmocka_unit_test(less_of_the_background_is_in_flight_beside_demand),
		cmocka_unit_test(the_background_has_more_room_where_no_demand_comes),
		cmocka_unit_test(what_is_idle_has_no_more_room),
		cmocka_unit_test(a_raised_transfer_overtakes_its_own_kind),
		cmocka_unit_test(the_rest_of_what_is_raised_in_flight_is_demand),
		cmocka_unit_test(a_flow_that_goes_leaves_the_others_their_turns),
		cmocka_unit_test(whatever_the_order_each_transfer_is_taken_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
