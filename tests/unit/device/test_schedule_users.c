/* How users share a device, whatever their jobs ask for; no device, no clock. */
#include <stdlib.h>

#include "common/size.h"
#include "offload/device/schedule.h"
#include "tests/unit/test.h"

#define FLOWS 9
#define VICTIM 8 /* a flow alone; the others are those of one other user */
#define DEPTH 64
#define TRANSFERS 8 /* of each flow and priority */

struct fixture {
	struct schedule schedule;
	struct schedule_flow flows[FLOWS];
	struct tier_io ios[FLOWS][TIER_PRIORITIES][TRANSFERS];
	struct tier_io *device[DEPTH]; /* in the order of their coming, which is that of their end */
	unsigned first, count;
	uint64_t moved[FLOWS];
};

static void open_fixture(struct fixture *fixture, unsigned share, unsigned victims_share)
{
	static const struct schedule_limits limits = { .depth = DEPTH, .background_bytes = 4 * MIB };

	*fixture = (struct fixture){ 0 };
	schedule_init(&fixture->schedule, &limits);
	for (unsigned i = 0; i < VICTIM; i++)
		schedule_flow_init(&fixture->flows[i], &fixture->schedule,
				   &(struct tier_share){ 1001, share, SCHEDULE_MAX_WEIGHT });
	schedule_flow_init(&fixture->flows[VICTIM], &fixture->schedule,
			   &(struct tier_share){ 1002, victims_share, 1 });
}

static void push(struct fixture *fixture, unsigned flow, enum tier_priority priority, unsigned count,
		 size_t length)
{
	for (unsigned i = 0; i < count; i++) {
		struct tier_io *io = &fixture->ios[flow][priority][i];

		*io = (struct tier_io){ .priority = priority, .length = length };
		if (length == 0)
			io->direction = TIER_FLUSH;
		queue_init(&io->link);
		schedule_push(&fixture->flows[flow], io);
	}
}

static void attack(struct fixture *fixture, enum tier_priority priority, size_t length)
{
	for (unsigned flow = 0; flow < VICTIM; flow++)
		push(fixture, flow, priority, TRANSFERS, length);
}

static void start(struct fixture *fixture)
{
	for (struct tier_io *io; (io = schedule_next(&fixture->schedule)); fixture->count++) {
		assert_true(fixture->count < DEPTH);
		fixture->device[(fixture->first + fixture->count) % DEPTH] = io;
	}
}

static struct tier_io *finish(struct fixture *fixture)
{
	struct tier_io *io = fixture->device[fixture->first];

	assert_true(fixture->count > 0);
	fixture->first = (fixture->first + 1) % DEPTH;
	fixture->count--;
	schedule_finish(io);
	fixture->moved[io->flow - fixture->flows] += io->direction == TIER_FLUSH ? MIB : io->piece;
	return io;
}

/* The device is never idle, and what has moved is wanted once more. Returns what the other user had. */
static uint64_t run(struct fixture *fixture, uint64_t victims_bytes)
{
	uint64_t others = 0;

	while (fixture->moved[VICTIM] < victims_bytes) {
		struct tier_io *io;

		start(fixture);
		io = finish(fixture);
		schedule_push(io->flow, io);
		assert_true(fixture->schedule.bytes <= DEPTH * MIB);
	}
	for (unsigned flow = 0; flow < VICTIM; flow++)
		others += fixture->moved[flow];
	return others;
}

#define VICTIMS_BYTES (500 * MIB)

static void expect_at_most(struct fixture *fixture, uint64_t most)
{
	uint64_t others = run(fixture, VICTIMS_BYTES);

	if (others > most + 16 * MIB)
		fail_msg("the other user has moved %llu MiB, not at most %llu",
			 (unsigned long long)(others / MIB), (unsigned long long)(most / MIB));
}

/* One transfer at a time is the least that somebody can ask for. */
static void half_is_a_users_whatever_another_asks_for(void **state)
{
	static struct fixture fixture;

	for (int asked = 0; asked < TIER_IDLE; asked++)
		for (int flood = 0; flood < TIER_PRIORITIES; flood++)
			for (unsigned count = 1; count <= TRANSFERS; count *= TRANSFERS) {
				open_fixture(&fixture, 0, 0);
				attack(&fixture, (enum tier_priority)flood, 16 * MIB);
				push(&fixture, VICTIM, (enum tier_priority)asked, count, MIB);
				expect_at_most(&fixture, VICTIMS_BYTES);
			}
}

static void all_priorities_together_are_no_more_than_one(void **state)
{
	static struct fixture fixture;

	open_fixture(&fixture, 0, 0);
	for (int flood = 0; flood < TIER_PRIORITIES; flood++)
		attack(&fixture, (enum tier_priority)flood, 3 * MIB);
	push(&fixture, VICTIM, TIER_WRITE_BACK, 1, MIB);
	expect_at_most(&fixture, VICTIMS_BYTES);
}

/* A device may do as much for a page as for some more of them, and more for a flush. */
static void small_transfers_and_flushes_cost_what_the_device_does_for_them(void **state)
{
	static struct fixture fixture;

	open_fixture(&fixture, 0, 0);
	attack(&fixture, TIER_DEMAND, 4096);
	push(&fixture, VICTIM, TIER_DEMAND, TRANSFERS, MIB);
	expect_at_most(&fixture, VICTIMS_BYTES * 4096 / SCHEDULE_LEAST_BYTES);
	open_fixture(&fixture, 0, 0);
	attack(&fixture, TIER_WRITE_BACK, 0);
	push(&fixture, VICTIM, TIER_DEMAND, TRANSFERS, MIB);
	expect_at_most(&fixture, VICTIMS_BYTES);
}

static void users_share_in_proportion_to_their_shares(void **state)
{
	static struct fixture fixture;
	uint64_t others;

	open_fixture(&fixture, 25, 100);
	attack(&fixture, TIER_DEMAND, MIB);
	push(&fixture, VICTIM, TIER_DEMAND, TRANSFERS, MIB);
	others = run(&fixture, VICTIMS_BYTES);
	assert_in_range(others, VICTIMS_BYTES / 4 - 16 * MIB, VICTIMS_BYTES / 4 + 16 * MIB);
}

static void what_is_idle_comes_after_what_another_user_wants(void **state)
{
	static struct fixture fixture;

	open_fixture(&fixture, 0, 0);
	attack(&fixture, TIER_IDLE, MIB);
	push(&fixture, VICTIM, TIER_WRITE_BACK, TRANSFERS, MIB);
	expect_at_most(&fixture, VICTIMS_BYTES / SCHEDULE_IDLE_PART);
}

static void the_share_of_who_is_away_goes_to_the_others(void **state)
{
	static struct fixture fixture;

	open_fixture(&fixture, 1, SCHEDULE_MAX_SHARE);
	push(&fixture, VICTIM, TIER_DEMAND, 1, MIB);
	start(&fixture);
	finish(&fixture);
	attack(&fixture, TIER_DEMAND, 16 * MIB);
	for (unsigned i = 0; i < 1000; i++) {
		struct tier_io *io;

		start(&fixture);
		assert_true(fixture.count > 0);
		io = finish(&fixture);
		schedule_push(io->flow, io);
	}
	assert_int_equal(fixture.count, DEPTH - 1);
}

/* He has not saved up what he did not use, and his next transfer waits for a piece, and not for a queue. */
static void who_was_away_for_a_moment_is_next_and_no_more(void **state)
{
	static struct fixture fixture;
	unsigned others = 0;

	open_fixture(&fixture, 0, 0);
	attack(&fixture, TIER_DEMAND, 16 * MIB);
	push(&fixture, VICTIM, TIER_DEMAND, 1, MIB);
	run(&fixture, MIB);
	for (unsigned i = 0; i < 4; i++) {
		struct tier_io *io;

		while ((io = finish(&fixture))->flow == &fixture.flows[VICTIM])
			start(&fixture);
		schedule_push(io->flow, io);
		start(&fixture);
	}
	if (queue_is_empty(&fixture.ios[VICTIM][TIER_DEMAND][0].link))
		push(&fixture, VICTIM, TIER_DEMAND, TRANSFERS, MIB);
	assert_in_range(fixture.count, 1, 3);
	start(&fixture);
	for (unsigned i = 0; i < 2 * TRANSFERS; i++) {
		struct tier_io *io = finish(&fixture);

		others += io->flow != &fixture.flows[VICTIM];
		schedule_push(io->flow, io);
		start(&fixture);
	}
	assert_in_range(others, TRANSFERS - 3, TRANSFERS + 3);
}

/* More than a schedule remembers. */
static void many_users_may_come_and_go(void **state)
{
	static struct fixture fixture;

	open_fixture(&fixture, 0, 0);
	attack(&fixture, TIER_DEMAND, MIB);
	for (unsigned user = 0; user < 3 * SCHEDULE_MAX_FLOWS; user++) {
		uint64_t before = fixture.moved[VICTIM];
		struct tier_io *io;

		schedule_flow_weigh(&fixture.flows[VICTIM], &(struct tier_share){ .user = 2000 + user });
		push(&fixture, VICTIM, TIER_DEMAND, 1, MIB);
		for (unsigned turns = 0; fixture.moved[VICTIM] == before; turns++) {
			assert_true(turns < 4);
			start(&fixture);
			io = finish(&fixture);
			if (io->flow != &fixture.flows[VICTIM])
				schedule_push(io->flow, io);
		}
	}
	assert_int_equal(fixture.schedule.user_count, SCHEDULE_MAX_FLOWS);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(half_is_a_users_whatever_another_asks_for),
	cmocka_unit_test(all_priorities_together_are_no_more_than_one),
	cmocka_unit_test(small_transfers_and_flushes_cost_what_the_device_does_for_them),
	cmocka_unit_test(users_share_in_proportion_to_their_shares),
	cmocka_unit_test(what_is_idle_comes_after_what_another_user_wants),
	cmocka_unit_test(the_share_of_who_is_away_goes_to_the_others),
	cmocka_unit_test(who_was_away_for_a_moment_is_next_and_no_more),
	cmocka_unit_test(many_users_may_come_and_go),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
