/* Slots: classes of sizes, the least that works, what the budget allows, taking and giving. */
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/size.h"
#include "daemon/resources/slots.h"
#include "tests/unit/test.h"

#define MAX_PACKS 16

/* A catalog of which slots need the sizes only. */
static struct pack packs[MAX_PACKS];

static struct slots plan(const uint64_t *sizes, uint32_t count, bool with_all, uint64_t budget)
{
	struct catalog catalog = { .packs = packs, .pack_count = count };
	struct slots slots;

	for (uint32_t i = 0; i < count; i++)
		packs[i] = (struct pack){ .slot_bytes = sizes[i] };
	assert_int_equal(slots_plan(&catalog, with_all, budget, budget, &slots), 0);
	return slots;
}

static int compare_offsets(const void *a, const void *b)
{
	const uint64_t *left = a, *right = b;

	return *left < *right ? -1 : *left > *right;
}

/* Side by side, what is reserved in one region and the rest in the other. */
static void expect_disjoint_places(const struct slots *slots)
{
	uint64_t places[MAX_PACKS][2], end = 0, all = 0, reserved = 0;
	uint32_t count = 0;

	for (uint32_t c = 0; c < slots->class_count; c++)
		for (uint32_t i = 0; i < slots->classes[c].count; i++) {
			uint32_t slot = slots->classes[c].first + i;

			places[count][0] = slots->offsets[slot];
			places[count++][1] = slots->classes[c].bytes;
			all += slots->classes[c].bytes;
			assert_int_equal(slots->segment_of[slot] == SLOT_NONE,
					 i < slots->classes[c].reserved);
			reserved += i < slots->classes[c].reserved ? slots->classes[c].bytes : 0;
		}
	assert_int_equal(count, slots->count);
	qsort(places, count, sizeof(places[0]), compare_offsets);
	for (uint32_t i = 0; i < count; i++) {
		if (end == slots->reserved && i > 0)
			end = slots_cache_offset(slots);
		assert_int_equal(places[i][0], end);
		end += places[i][1];
	}
	assert_int_equal(all, slots->bytes);
	assert_int_equal(reserved, slots->reserved);
	assert_int_equal(reserved + slots->cache, slots->bytes);
}

static void similar_sizes_share_a_class(void **state)
{
	const uint64_t sizes[] = { 100 * 4096, 102 * 4096, 8 * 4096, 101 * 4096 };
	struct slots slots = plan(sizes, 4, true, 0);

	assert_int_equal(slots.class_count, 2);
	assert_int_equal(slots.classes[0].bytes, 8 * 4096);
	assert_int_equal(slots.classes[1].bytes, 102 * 4096);
	assert_int_equal(slots.classes[1].count, 3);
	expect_disjoint_places(&slots);
	slots_free(&slots);
}

static void with_all_every_pack_has_a_slot(void **state)
{
	const uint64_t sizes[] = { MIB, 2 * MIB, MIB, 4096 };
	struct slots slots = plan(sizes, 4, true, 0);

	assert_int_equal(slots.count, 4);
	for (uint32_t pack = 0; pack < 4; pack++)
		assert_int_not_equal(slots_take(&slots, pack), SLOT_NONE);
	expect_disjoint_places(&slots);
	slots_free(&slots);
}

static void with_all_slots_lie_in_the_order_of_packs(void **state)
{
	const uint64_t sizes[] = { 4 * MIB, MIB, 2 * MIB, 4 * MIB, MIB };
	struct slots slots = plan(sizes, 5, true, 0);
	uint64_t end = 0;

	for (uint32_t pack = 0; pack < 5; pack++) {
		uint32_t slot = slots_find_free(&slots, pack);

		assert_int_equal(slots_take(&slots, pack), slot);
		assert_int_equal(slots.offsets[slot], end);
		end += sizes[pack];
	}
	slots_free(&slots);
}

static void the_least_is_two_of_each_class(void **state)
{
	const uint64_t sizes[] = { MIB, MIB, MIB, MIB, 4 * MIB };
	struct slots slots = plan(sizes, 5, false, 0);

	assert_int_equal(slots.classes[0].count, 2);
	assert_int_equal(slots.classes[1].count, 1);
	assert_int_equal(slots.bytes, 6 * MIB);
	slots_free(&slots);
}

static void a_budget_is_shared_out_and_kept(void **state)
{
	uint64_t sizes[MAX_PACKS];

	for (uint32_t i = 0; i < MAX_PACKS; i++)
		sizes[i] = i % 4 ? MIB : 4 * MIB;
	for (uint64_t budget = 10 * MIB; budget < 28 * MIB; budget += MIB / 2) {
		struct slots slots = plan(sizes, MAX_PACKS, false, budget);

		assert_true(slots.bytes <= budget);
		assert_true(slots.bytes + 10 * MIB > budget);
		assert_true(slots.classes[0].count >= 2 && slots.classes[1].count >= 2);
		expect_disjoint_places(&slots);
		slots_free(&slots);
	}
}

static void more_budget_than_packs_gives_one_each(void **state)
{
	const uint64_t sizes[] = { MIB, MIB, 4 * MIB };
	struct slots slots = plan(sizes, 3, false, GIB);

	assert_int_equal(slots.count, 3);
	slots_free(&slots);
}

static void a_pack_takes_slots_of_its_class_alone(void **state)
{
	const uint64_t sizes[] = { MIB, MIB, 4 * MIB, 4 * MIB, 4 * MIB };
	struct slots slots = plan(sizes, 5, false, 0);

	assert_int_equal(slots_take(&slots, 0), 0);
	assert_int_equal(slots_take(&slots, 1), 1);
	assert_int_equal(slots_take(&slots, 0), SLOT_NONE);
	assert_int_equal(slots_take(&slots, 2), 2);
	assert_int_equal(slots_take(&slots, 3), 3);
	assert_int_equal(slots_take(&slots, 4), SLOT_NONE);
	slots_give(&slots, 0);
	assert_int_equal(slots_take(&slots, 4), SLOT_NONE);
	slots_give(&slots, 3);
	assert_int_equal(slots_take(&slots, 4), 3);
	assert_int_equal(slots.owners[3], 4);
	slots_free(&slots);
}

/* ---- Segments ---- */

static void segments_hold_all_that_is_not_reserved(void **state)
{
	const uint64_t sizes[] = {
		MIB, MIB, MIB, MIB, MIB, MIB, MIB, MIB, MIB, MIB, 4 * MIB, 4 * MIB, 4 * MIB
	};
	struct slots slots = plan(sizes, ARRAY_LENGTH(sizes), false, GIB);
	uint64_t end = 0;
	uint32_t first = 0;

	expect_disjoint_places(&slots);
	assert_int_equal(slots.reserved, 10 * MIB);
	assert_int_equal(slots.cache, 12 * MIB);
	assert_int_equal(slots.here, 4);
	assert_true(slots.segment_count > 4);
	for (uint32_t i = 0; i < slots.segment_count; i++) {
		assert_int_equal(slots.segments[i].offset, end);
		assert_int_equal(slots.segments[i].first, first);
		assert_int_equal(slots.segments[i].state, SEGMENT_AWAY);
		end += slots.segments[i].bytes;
		first += slots.segments[i].count;
	}
	assert_int_equal(end, slots.cache);
	assert_int_equal(first, 9);
	slots_free(&slots);
}

/* However much of the cache there is, classes have their share of it. */
static void segments_have_something_of_each_class(void **state)
{
	uint64_t sizes[MAX_PACKS];

	for (uint32_t i = 0; i < MAX_PACKS; i++)
		sizes[i] = i % 2 ? MIB : 2 * MIB;
	struct slots slots = plan(sizes, MAX_PACKS, false, GIB);
	uint32_t counts[2] = { 0, 0 };

	for (uint32_t i = 0; i < 12; i++) {
		counts[slots.in_segments[i] >= slots.classes[1].first]++;
		assert_in_range(counts[0], counts[1] - (counts[1] > 0), counts[1] + 1);
	}
	slots_free(&slots);
}

static void a_slot_that_is_away_is_not_taken(void **state)
{
	const uint64_t sizes[] = { MIB, MIB, MIB };
	struct slots slots = plan(sizes, 3, false, GIB);

	assert_int_equal(slots_take(&slots, 0), 0);
	assert_int_equal(slots_take(&slots, 1), 1);
	assert_int_equal(slots_take(&slots, 2), SLOT_NONE);
	assert_false(slots_has_pack(&slots, 2));
	slots_open_segment(&slots, 0);
	assert_int_equal(slots.here, 3);
	assert_int_equal(slots_take(&slots, 2), 2);
	assert_true(slots_has_pack(&slots, 2));
	slots_free(&slots);
}

static void a_segment_that_closes_is_empty_when_its_last_slot_is_given_back(void **state)
{
	const uint64_t sizes[] = { 64 * 4096, 64 * 4096, 64 * 4096, 64 * 4096 };
	struct slots slots = plan(sizes, 4, false, GIB);
	uint32_t slot = SLOT_NONE;

	for (uint32_t segment = 0; segment < slots.segment_count; segment++)
		slots_open_segment(&slots, segment);
	for (uint32_t pack = 0; pack < 3; pack++)
		slot = slots_take(&slots, pack);
	uint32_t segment = slots.segment_of[slot];

	slots_close_segment(&slots, segment);
	assert_false(slots_is_empty(&slots, segment));
	slots_give(&slots, slot);
	assert_true(slots_is_empty(&slots, segment));
	/* It was the last of the three to be taken; the fourth lies elsewhere. */
	assert_int_not_equal(slots_take(&slots, 3), slot);
	slots_open_segment(&slots, segment);
	assert_int_equal(slots.here, 4);
	assert_int_equal(slots_take(&slots, 2), slot);
	slots_free(&slots);
}

static void there_is_room_for_packs_whose_slots_have_memory(void **state)
{
	const uint64_t sizes[] = { 4096, 100 * 4096, 100 * 4096, 100 * 4096, 100 * 4096 };
	struct slots slots = plan(sizes, 5, false, 1000 * 4096);

	/* All segments are away: two slots of the larger class, and the smaller one's only pack has its own.
	 */
	assert_true(slots_have_room_for(&slots, 2));
	assert_false(slots_have_room_for(&slots, 3));
	for (uint32_t i = 0; i < slots.segment_count; i++)
		slots_open_segment(&slots, i);
	assert_true(slots_have_room_for(&slots, 5));
	slots_free(&slots);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(similar_sizes_share_a_class),
		cmocka_unit_test(with_all_every_pack_has_a_slot),
		cmocka_unit_test(with_all_slots_lie_in_the_order_of_packs),
		cmocka_unit_test(the_least_is_two_of_each_class),
		cmocka_unit_test(a_budget_is_shared_out_and_kept),
		cmocka_unit_test(more_budget_than_packs_gives_one_each),
		cmocka_unit_test(a_pack_takes_slots_of_its_class_alone),
		cmocka_unit_test(segments_hold_all_that_is_not_reserved),
		cmocka_unit_test(segments_have_something_of_each_class),
		cmocka_unit_test(there_is_room_for_packs_whose_slots_have_memory),
		cmocka_unit_test(a_slot_that_is_away_is_not_taken),
		cmocka_unit_test(a_segment_that_closes_is_empty_when_its_last_slot_is_given_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
