/* Names: unique, and found quickly whoever chose them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "daemon/model/names.h"
#include "tests/unit/test.h"

#define COUNT 20000

static void a_name_is_there_from_its_addition_to_its_removal(void **state)
{
	char equal[] = "one";
	struct names names = { NULL };

	assert_false(names_have(&names, "one"));
	assert_int_equal(names_add(&names, "one"), 0);
	assert_int_equal(names_add(&names, "two"), 0);
	assert_true(names_have(&names, "one"));
	/* Another's name of the same text is not this one. */
	names_remove(&names, equal);
	assert_true(names_have(&names, "one"));
	names_remove(&names, "one");
	names_remove(&names, NULL);
	assert_false(names_have(&names, "one"));
	assert_true(names_have(&names, "two"));
	names_clear(&names);
	assert_false(names_have(&names, "two"));
}

static char *numbered_name(unsigned number)
{
	char text[16];

	snprintf(text, sizeof(text), "%x", number);
	return strdup(text);
}

/* Whatever is added and removed, in a table that is as full as it gets. */
static void what_is_removed_hides_nothing_else(void **state)
{
	static char *texts[COUNT];
	static bool is_there[COUNT];
	struct names names = { NULL };
	uint32_t random = 1;

	for (unsigned i = 0; i < COUNT; i++) {
		texts[i] = numbered_name(i);
		assert_non_null(texts[i]);
	}
	for (unsigned round = 0; round < 10 * COUNT; round++) {
		random = random * 1664525 + 1013904223;
		unsigned i = (random >> 8) % COUNT;

		assert_int_equal(names_have(&names, texts[i]), is_there[i]);
		if (is_there[i])
			names_remove(&names, texts[i]);
		else
			assert_int_equal(names_add(&names, texts[i]), 0);
		is_there[i] = !is_there[i];
	}
	for (unsigned i = 0; i < COUNT; i++)
		assert_int_equal(names_have(&names, texts[i]), is_there[i]);
	names_clear(&names);
	for (unsigned i = 0; i < COUNT; i++)
		free(texts[i]);
}

/* The next name whose hash without a key ends in the same ten bits. */
static char *crafted_name(unsigned *seed)
{
	char text[16];

	do
		snprintf(text, sizeof(text), "%x", (*seed)++);
	while ((XXH3_64bits(text, strlen(text)) & 0x3ff) != 0x155);
	return strdup(text);
}

/* Of names without a hole between them: who looks for one looks at no more. */
static unsigned longest_row(const struct names *names)
{
	unsigned longest = 0, row = 0;

	for (uint32_t i = 0; i < 2 * names->places; i++) {
		row = names->texts[i % names->places] ? row + 1 : 0;
		longest = row > longest ? row : longest;
	}
	return longest;
}

static void crafted_names_do_not_meet_in_one_place(void **state)
{
	static char *texts[COUNT];
	struct names names = { NULL };
	unsigned seed = 1;

	for (unsigned i = 0; i < COUNT; i++) {
		texts[i] = crafted_name(&seed);
		assert_non_null(texts[i]);
		assert_int_equal(names_add(&names, texts[i]), 0);
	}
	assert_true(longest_row(&names) < 300);
	names_clear(&names);
	for (unsigned i = 0; i < COUNT; i++)
		free(texts[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_is_there_from_its_addition_to_its_removal),
		cmocka_unit_test(what_is_removed_hides_nothing_else),
		cmocka_unit_test(crafted_names_do_not_meet_in_one_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
