#include <errno.h>
#include <stdlib.h>

#include "offload/device/pins.h"
#include "tests/unit/test.h"

/* Addresses are only compared, never used. */
static char *at(uintptr_t address)
{
	return (char *)address;
}

static int open_pins(void **state)
{
	struct pins *pins = malloc(sizeof(*pins));

	assert_non_null(pins);
	pins_init(pins);
	*state = pins;
	return 0;
}

static int close_pins(void **state)
{
	pins_destroy(*state);
	free(*state);
	return 0;
}

static void a_large_region_is_cut_in_pieces(void **state)
{
	struct pins *pins = *state;
	char *region = at(0x100000000000);
	struct pin piece;

	assert_int_equal(pins_take(pins, region, 2 * PINS_PIECE_BYTES + 4096), 0);
	assert_int_equal(pins_next(pins, region, 3 * PINS_PIECE_BYTES, 0, &piece), 0);
	assert_ptr_equal(piece.base, region);
	assert_int_equal(piece.length, PINS_PIECE_BYTES);
	assert_int_equal(pins_next(pins, region, 3 * PINS_PIECE_BYTES, 1, &piece), 1);
	assert_int_equal(pins_next(pins, region, 3 * PINS_PIECE_BYTES, 2, &piece), 2);
	assert_ptr_equal(piece.base, region + 2 * PINS_PIECE_BYTES);
	assert_int_equal(piece.length, 4096);
	assert_int_equal(pins_next(pins, region, 3 * PINS_PIECE_BYTES, 3, &piece), -1);
}

static void a_range_is_found_only_within_one_ready_piece(void **state)
{
	struct pins *pins = *state;
	char *region = at(0x100000000000);

	assert_int_equal(pins_take(pins, region, 2 * PINS_PIECE_BYTES), 0);
	assert_int_equal(pins_find(pins, region, 4096), -1);
	assert_int_equal(pins_bytes(pins), 0);
	pins_ready(pins, region, 2 * PINS_PIECE_BYTES);
	assert_int_equal(pins_bytes(pins), 2 * PINS_PIECE_BYTES);
	assert_int_equal(pins_find(pins, region, 4096), 0);
	assert_int_equal(pins_find(pins, region + PINS_PIECE_BYTES - 4096, 4096), 0);
	assert_int_equal(pins_find(pins, region + PINS_PIECE_BYTES - 4096, 8192), -1);
	assert_int_equal(pins_find(pins, region + PINS_PIECE_BYTES, PINS_PIECE_BYTES), 1);
	assert_int_equal(pins_find(pins, region + PINS_PIECE_BYTES, PINS_PIECE_BYTES + 1), -1);
	assert_int_equal(pins_find(pins, region + 2 * PINS_PIECE_BYTES, 1), -1);
	assert_int_equal(pins_find(pins, region - 1, 2), -1);
}

static void regions_side_by_side_go_one_by_one(void **state)
{
	struct pins *pins = *state;
	char *region = at(0x100000000000);
	struct pin piece;

	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pins_take(pins, region + i * 8192, 8192), 0);
	pins_ready(pins, region, 3 * 8192);
	assert_int_equal(pins_next(pins, region + 8192, 8192, 0, &piece), 1);
	assert_int_equal(pins_next(pins, region + 8192, 8192, 2, &piece), -1);
	pins_give(pins, 1);
	assert_int_equal(pins_find(pins, region + 8192, 4096), -1);
	assert_int_equal(pins_find(pins, region + 4096, 4096), 0);
	assert_int_equal(pins_find(pins, region + 2 * 8192, 8192), 2);
}

static void slots_are_used_again(void **state)
{
	struct pins *pins = *state;
	char *one = at(0x100000000000), *two = at(0x200000000000);

	assert_int_equal(pins_take(pins, one, PINS_SLOTS * PINS_PIECE_BYTES), 0);
	assert_int_equal(pins_take(pins, two, 4096), -ENOSPC);
	pins_give(pins, 7);
	assert_int_equal(pins_take(pins, two, PINS_PIECE_BYTES + 1), -ENOSPC);
	assert_int_equal(pins_take(pins, two, PINS_PIECE_BYTES), 0);
	pins_ready(pins, two, PINS_PIECE_BYTES);
	assert_int_equal(pins_find(pins, two, PINS_PIECE_BYTES), 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_large_region_is_cut_in_pieces, open_pins, close_pins),
		cmocka_unit_test_setup_teardown(a_range_is_found_only_within_one_ready_piece, open_pins,
						close_pins),
		cmocka_unit_test_setup_teardown(regions_side_by_side_go_one_by_one, open_pins, close_pins),
		cmocka_unit_test_setup_teardown(slots_are_used_again, open_pins, close_pins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
