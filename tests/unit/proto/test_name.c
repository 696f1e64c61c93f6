/* Names: what a terminal and a JSON parser can take, and nothing else. */
#include <errno.h>
#include <string.h>

#include "proto/name.h"
#include "tests/unit/test.h"

static void ordinary_names_are_taken(void **state)
{
	assert_int_equal(name_check("layer.0/attention weight", 64), 0);
	assert_int_equal(name_check("caf\xc3\xa9", 64), 0);
	assert_int_equal(name_check("\xe2\x82\xac \xf0\x9f\x90\x8e", 64), 0);
	assert_int_equal(
		name_check("\xc2\xa0\xdf\xba\xe0\xa0\x80\xef\xbf\xbd\xf0\x90\x80\x80\xf3\xa0\x84\x80", 64),
		0);
}

static void empty_and_long_names_are_told_apart(void **state)
{
	assert_int_equal(name_check(NULL, 4), -ENODATA);
	assert_int_equal(name_check("", 4), -ENODATA);
	assert_int_equal(name_check("four", 4), 0);
	assert_int_equal(name_check("five!", 4), -ENAMETOOLONG);
}

static void controls_and_broken_sequences_are_refused(void **state)
{
	static const char *const bad[] = {
		/* controls of ASCII, and of Latin-1: the start of an escape sequence */
		"\t", "\x7f", "\xc2\x80", "\xc2\x9bK",
		/* not UTF-8, and cut off */
		"caf\xe9", "\x80", "\xc3", "\xe2\x82",
		/* written too long, a surrogate, beyond Unicode */
		"\xc0\xaf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
		"\xf8\x88\x80\x80\x80"
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(name_check(bad[i], 64), -EILSEQ);
}

/* What shows nothing, turns a line around, or ends it; and what nobody knows. */
static const char *const unprintable[] = {
	"soft\xc2\xadhyphen",	    "\xe2\x80\x8djoiner",  "over\xe2\x80\xaeride", "line\xe2\x80\xa8",
	"paragraph\xe2\x80\xa9",    "isolate\xe2\x81\xa6", "\xef\xbb\xbfmark",	   "private\xee\x80\x80",
	"no character\xef\xbf\xbf", "tag\xf3\xa0\x81\x81", "\xf4\x8f\xbf\xbf"
};

static void names_with_formatting_are_refused_and_older_ones_kept(void **state)
{
	for (size_t i = 0; i < sizeof(unprintable) / sizeof(unprintable[0]); i++) {
		assert_int_equal(name_check(unprintable[i], 64), -EILSEQ);
		assert_int_equal(name_check_kept(unprintable[i], 64), 0);
	}
	assert_int_equal(name_check_kept("a\nb", 64), -EILSEQ);
	assert_int_equal(name_check_kept("a\xc2\x9b", 64), -EILSEQ);
	assert_int_equal(name_check_kept("a\xe2\x82", 64), -EILSEQ);
}

static void text_is_made_printable_byte_by_byte(void **state)
{
	char text[] = "a\tb\xc3\xa9\xe9\xc2\x9bz\xe2\x80\xae\xe2\x82";

	name_make_printable(text);
	assert_string_equal(text, "a?b\xc3\xa9???z?????");
	assert_int_equal(name_check(text, 64), 0);
}

/* Every string of three bytes: what is made printable passes, and what passes is left as it is. */
static void both_functions_agree(void **state)
{
	for (uint32_t bytes = 0; bytes < 1 << 24; bytes += 1 + bytes % 3) {
		char text[4] = { (char)(bytes | 1), (char)(bytes >> 8 | 1), (char)(bytes >> 16 | 1), '\0' },
		     copy[4];
		int r = name_check(text, 3);

		memcpy(copy, text, sizeof(copy));
		name_make_printable(copy);
		assert_true((strcmp(copy, text) == 0) == (r == 0));
		assert_int_equal(name_check(copy, 3), 0);
	}
}

static void a_text_is_cut_between_characters(void **state)
{
	assert_int_equal(name_fit("", 4), 0);
	assert_int_equal(name_fit("abc", 4), 3);
	assert_int_equal(name_fit("abcde", 4), 4);
	assert_int_equal(name_fit("abc\xc3\xa9", 4), 3);
	assert_int_equal(name_fit("ab\xc3\xa9z", 4), 4);
	assert_int_equal(name_fit("\xf0\x9f\x9a\x82", 3), 0);
	/* What is no name of ours ends before what is wrong with it. */
	assert_int_equal(name_fit("ab\xff", 4), 2);
	assert_int_equal(name_fit("a\tb", 4), 1);
}

static void what_may_be_a_part_of_a_path_is_a_word(void **state)
{
	static const char *const good[] = { "a", "0", "A", "Z9", "gpt-2_x.y", "a.b.c", "GPT-2_XL.v1" };
	static const char *const bad[] = { "",	 "..", "a..b", "a/b", "/a",	  "-a",
					   ".a", "_a", "a b",  "a\n", "\xc3\xa4", "a\xc3\x84" };

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(name_is_word(good[i], 63));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(name_is_word(bad[i], 63));
	assert_false(name_is_word(NULL, 63));
	assert_true(name_is_word("four", 4));
	assert_false(name_is_word("five5", 4));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ordinary_names_are_taken),
		cmocka_unit_test(empty_and_long_names_are_told_apart),
		cmocka_unit_test(controls_and_broken_sequences_are_refused),
		cmocka_unit_test(names_with_formatting_are_refused_and_older_ones_kept),
		cmocka_unit_test(text_is_made_printable_byte_by_byte),
		cmocka_unit_test(both_functions_agree),
		cmocka_unit_test(what_may_be_a_part_of_a_path_is_a_word),
		cmocka_unit_test(a_text_is_cut_between_characters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
