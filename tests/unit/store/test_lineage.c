/* Commits on disks that lose power. */
#include <errno.h>
#include <stdlib.h>

#include "common/little_endian.h"
#include "tests/unit/seeds.h"
#include "tests/unit/test.h"
#include "tests/unit/toy_store.h"

/* Somebody who reads an extent while it is written anew, and committed. */
struct reader {
	unsigned extent;
	uint32_t place; /* UINT32_MAX: he reads nothing */
	uint64_t content;
};

static void begin_read(struct toy *toy, struct reader *reader)
{
	reader->extent = toy_choose(toy, toy->extents);
	reader->place = toy->map[reader->extent].place;
	reader->content = toy->map[reader->extent].content;
	/* Places are reserved for two states, and one more. */
	if (reader->place == UINT32_MAX)
		return;
	assert_int_equal(places_name(toy_places(toy, reader->extent), reader->place), 0);
	sim_watch_read(toy->watch, reader->extent % toy->device_count, toy_offset(toy, reader->place));
}

static void end_read(struct toy *toy, struct reader *reader)
{
	uint8_t page[TOY_PAGE];

	if (reader->place == UINT32_MAX)
		return;
	sim_disk_read(toy->disks[reader->extent % toy->device_count], toy_offset(toy, reader->place), page,
		      TOY_PAGE);
	assert_int_equal(get64(page), reader->content);
	sim_watch_end_read(toy->watch);
	places_give(toy_places(toy, reader->extent), reader->place);
}

/* False: the session ends here, with whatever is on its way. */
static bool commit_until(struct toy *toy, uint64_t end)
{
	assert_int_equal(toy_begin_commit(toy), 0);
	while (toy->done_count == 0) {
		if (toy_count(toy) >= end)
			return false;
		assert_true(toy_turn(toy));
	}
	toy->done_count = 0;
	if (toy->status < 0)
		assert_int_equal(toy_begin_commit(toy), -EROFS);
	return toy->status == 0;
}

/* A step is one more than what the last commit has, at most: what is frozen cannot change before it is
 * written. */
static void run_until(struct toy *toy, uint64_t countdown, uint64_t *promised)
{
	uint64_t end = toy_count(toy) + countdown;

	while (toy->head.step + 1 < TOY_STEPS) {
		struct reader reader;

		begin_read(toy, &reader);
		if (toy_count(toy) >= end || toy_take_step(toy) < 0 || !commit_until(toy, end))
			return;
		end_read(toy, &reader);
		toy_expect_places(toy);
		*promised = toy->head.step;
		sim_watch_promise(toy->watch, *promised);
	}
}

static void interrupt(struct toy *toy)
{
	toy_interrupt(toy);
	toy_end(toy);
}

/* Opening is interrupted, too. */
static void open_interrupted(struct toy *toy, unsigned depth)
{
	for (unsigned i = 0; i < depth; i++) {
		unsigned turns = toy_choose(toy, 30);

		toy_begin(toy);
		assert_int_equal(lineage_open(toy->lineage, &toy->request), 0);
		while (turns-- > 0 && toy->done_count == 0)
			assert_true(toy_turn(toy));
		interrupt(toy);
	}
}

/* The step that was promised, or the one that was on its way. */
static void open_again(struct toy *toy, uint64_t *promised)
{
	toy_begin(toy);
	if (toy_wait(toy, lineage_open(toy->lineage, &toy->request)) < 0)
		fail_msg("%s", lineage_message(toy->lineage));
	for (unsigned i = 0; i < toy->device_count; i++)
		if (sim_disk_unsafe_reads(toy->disks[i]) > 0)
			fail_msg("what was read could still be lost");
	if (toy->head.step < *promised)
		fail_msg("step %llu was promised, and step %llu is there", (unsigned long long)*promised,
			 (unsigned long long)toy->head.step);
	*promised = toy->head.step;
	sim_watch_promise(toy->watch, *promised);
	assert_string_equal(toy->head.name, "toy");
	toy_expect_step(toy);
	toy_expect_places(toy);
}

static void run_seed(uint64_t seed)
{
	static struct toy toy;
	/* Most have one leaf. */
	unsigned extents = 1 + (unsigned)(seed * 37 % (seed % 20 ? 23 : TOY_MAX_EXTENTS));
	uint64_t promised = 0;

	toy_open_fixed(&toy, extents, toy_choose_fixed(extents, seed), 1 + (unsigned)(seed % TOY_MAX_DEVICES),
		       seed);
	for (unsigned session = 0; session < 4; session++) {
		if (toy_choose(&toy, 3) == 0)
			sim_disk_fail_flush(toy.disks[toy_choose(&toy, toy.device_count)],
					    1 + toy_choose(&toy, 6));
		run_until(&toy, toy_choose(&toy, 60), &promised);
		interrupt(&toy);
		open_interrupted(&toy, toy_choose(&toy, 4));
		open_again(&toy, &promised);
	}
	toy_close(&toy);
}

static void whatever_ends_a_session_the_next_one_finds_a_step_whole(void **state)
{
	seeds_run(1000, run_seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(whatever_ends_a_session_the_next_one_finds_a_step_whole,
					  seeds_tell),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
