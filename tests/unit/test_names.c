/* Names: unique, and found quickly whoever chose them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/names.h"

#define COUNT 20000

static void a_name_is_there_from_its_addition_to_its_removal(void **state)
{
	char equal[] = "one";
	struct name *names = NULL;

	assert_false(names_have(names, "one"));
	assert_int_equal(names_add(&names, "one"), 0);
	assert_int_equal(names_add(&names, "two"), 0);
	assert_true(names_have(names, "one"));
	/* Another's name of the same text is not this one. */
	names_remove(&names, equal);
	assert_true(names_have(names, "one"));
	names_remove(&names, "one");
	names_remove(&names, NULL);
	assert_false(names_have(names, "one"));
	assert_true(names_have(names, "two"));
	names_clear(&names);
	assert_null(names);
}

/* The next name whose hash without a key ends in the same ten bits: no more are looked at by a table that
 * has given up growing. */
static char *crafted_name(unsigned *seed)
{
	char text[16];
	unsigned hash;

	do {
		snprintf(text, sizeof(text), "%x", (*seed)++);
		HASH_JEN(text, strlen(text), hash);
	} while ((hash & 0x3ff) != 0x155);
	return strdup(text);
}

static unsigned longest_chain(const struct name *names)
{
	const UT_hash_table *table = names->hh.tbl;
	unsigned longest = 0;

	for (unsigned i = 0; i < table->num_buckets; i++)
		if (table->buckets[i].count > longest)
			longest = table->buckets[i].count;
	return longest;
}

static void crafted_names_do_not_meet_in_one_bucket(void **state)
{
	static char *texts[COUNT];
	struct name *names = NULL;
	unsigned seed = 1;

	for (unsigned i = 0; i < COUNT; i++) {
		texts[i] = crafted_name(&seed);
		assert_non_null(texts[i]);
		assert_int_equal(names_add(&names, texts[i]), 0);
	}
	assert_true(longest_chain(names) < 100);
	names_clear(&names);
	for (unsigned i = 0; i < COUNT; i++)
		free(texts[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_is_there_from_its_addition_to_its_removal),
		cmocka_unit_test(crafted_names_do_not_meet_in_one_bucket),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
