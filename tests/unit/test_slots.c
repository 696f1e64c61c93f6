/* Slots: classes of sizes, the least that works, what the budget allows, taking and giving. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "common/cleanup.h"
#include "common/size.h"
#include "daemon/slots.h"

#define MAX_PACKS 16

/* A catalog of which slots need the sizes only. */
static struct pack packs[MAX_PACKS];

static struct slots plan(const uint64_t *sizes, uint32_t count, bool with_all, uint64_t budget)
{
	struct catalog catalog = { .packs = packs, .pack_count = count };
	struct slots slots;

	for (uint32_t i = 0; i < count; i++)
		packs[i] = (struct pack){ .slot_bytes = sizes[i] };
	assert_int_equal(slots_plan(&catalog, with_all, budget, &slots), 0);
	return slots;
}

static void expect_disjoint_places(const struct slots *slots)
{
	uint64_t end = 0;

	for (uint32_t c = 0; c < slots->class_count; c++)
		for (uint32_t i = 0; i < slots->classes[c].count; i++) {
			assert_int_equal(slots->offsets[slots->classes[c].first + i], end);
			end += slots->classes[c].bytes;
		}
	assert_int_equal(end, slots->bytes);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(similar_sizes_share_a_class),
		cmocka_unit_test(with_all_every_pack_has_a_slot),
		cmocka_unit_test(the_least_is_two_of_each_class),
		cmocka_unit_test(a_budget_is_shared_out_and_kept),
		cmocka_unit_test(more_budget_than_packs_gives_one_each),
		cmocka_unit_test(a_pack_takes_slots_of_its_class_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
