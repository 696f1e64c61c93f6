/* Regions: pieces lie side by side, none in another, and those that were given back are used again. */
#include <string.h>

#include "common/size.h"
#include "daemon/model/region.h"
#include "tests/unit/test.h"

#define PIECES 5000

static void pieces_are_zeroed_and_apart(void **state)
{
	static unsigned char *pieces[PIECES];
	static char *texts[PIECES];
	struct region region = { NULL };

	for (size_t i = 0; i < PIECES; i++) {
		texts[i] = region_copy_text(&region, "text");
		pieces[i] = region_alloc(&region, i % 100);
		assert_non_null(pieces[i]);
		assert_int_equal((uintptr_t)pieces[i] % sizeof(uint64_t), 0);
		for (size_t at = 0; at < i % 100; at++)
			assert_int_equal(pieces[i][at], 0);
		memset(pieces[i], (int)i, i % 100);
	}
	for (size_t i = 0; i < PIECES; i++) {
		assert_string_equal(texts[i], "text");
		for (size_t at = 0; at < i % 100; at++)
			assert_int_equal(pieces[i][at], i & 0xff);
	}
	region_clear(&region);
	assert_null(region.blocks);
}

/* Of one block, and of many. */
static void what_is_given_back_is_taken_again(void **state)
{
	static const size_t sizes[] = { 100, MIB };
	struct region region = { NULL };
	char *first = region_copy_text(&region, "first");

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct region before = region;
		char *piece = region_alloc(&region, 1);

		assert_non_null(piece);
		for (unsigned n = 0; n < 3; n++)
			memset(region_alloc(&region, sizes[i]), 1, sizes[i]);
		region_rewind(&region, before);
		assert_memory_equal(&region, &before, sizeof(region));
		assert_ptr_equal(region_alloc(&region, 200), piece);
		for (size_t at = 0; at < 200; at++)
			assert_int_equal(piece[at], 0);
		region_rewind(&region, before);
	}
	assert_string_equal(first, "first");
	region_clear(&region);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_are_zeroed_and_apart),
		cmocka_unit_test(what_is_given_back_is_taken_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
