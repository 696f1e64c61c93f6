/* What was written to a path, by day and in all: its rate, the days that are left, and the file that keeps
 * it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/size.h"
#include "daemon/observe/wear_file.h"
#include "tests/unit/test.h"

/* Noon of some day. */
#define NOON (UINT64_C(20000) * WEAR_DAY_S + WEAR_DAY_S / 2)

static void bytes_count_for_their_day(void **state)
{
	struct wear wear = { 0 };

	wear_add(&wear, 5, NOON);
	wear_add(&wear, 7, NOON + 3600);
	assert_int_equal(wear_today(&wear, NOON + 7200), 12);
	assert_int_equal(wear_today(&wear, NOON + WEAR_DAY_S), 0);
	wear_add(&wear, 100, NOON + WEAR_DAY_S);
	assert_int_equal(wear_today(&wear, NOON + WEAR_DAY_S), 100);
	assert_int_equal(wear.total, 112);
	/* A clock that was set back. */
	wear_add(&wear, 1, NOON);
	assert_int_equal(wear_today(&wear, NOON + WEAR_DAY_S), 101);
}

static void the_rate_is_that_of_the_last_days_only(void **state)
{
	struct wear wear = { 0 };
	uint64_t rate;

	for (uint64_t day = 0; day < 30; day++)
		for (uint64_t hour = 0; hour < 24; hour++)
			wear_add(&wear, day < 20 ? 1024 * GIB : GIB, NOON + day * WEAR_DAY_S + hour * 3600);
	assert_true(wear_rate(&wear, NOON + 30 * WEAR_DAY_S, &rate));
	assert_in_range(rate, 24 * GIB - GIB, 24 * GIB + GIB);
	/* Then nothing: it fades away in a week. */
	assert_true(wear_rate(&wear, NOON + 33 * WEAR_DAY_S, &rate));
	assert_in_range(rate, 9 * GIB, 15 * GIB);
	assert_true(wear_rate(&wear, NOON + 40 * WEAR_DAY_S, &rate));
	assert_int_equal(rate, 0);
	assert_true(wear_rate(&wear, NOON + 4000 * WEAR_DAY_S, &rate));
	assert_int_equal(rate, 0);
}

static void the_rate_of_a_new_path_is_that_since_it_is_there(void **state)
{
	struct wear wear = { 0 };
	uint64_t rate;

	assert_false(wear_rate(&wear, NOON, &rate));
	wear_add(&wear, GIB, NOON);
	assert_false(wear_rate(&wear, NOON + 60, &rate));
	wear_add(&wear, GIB, NOON + 3600);
	assert_true(wear_rate(&wear, NOON + 7200, &rate));
	assert_in_range(rate, 24 * GIB - MIB, 24 * GIB + MIB);
}

static void the_days_left_are_what_is_left_over_the_rate(void **state)
{
	struct wear wear = { 0 };
	uint64_t days;

	for (uint64_t hour = 0; hour < 24 * 10; hour++)
		wear_add(&wear, 10 * GIB, NOON + hour * 3600);
	uint64_t now = NOON + 10 * WEAR_DAY_S;

	assert_true(wear_days_left(&wear, 2400 * GIB + 24000 * GIB, now, &days));
	assert_in_range(days, 99, 101);
	assert_true(wear_days_left(&wear, 2400 * GIB, now, &days));
	assert_int_equal(days, 0);
	assert_true(wear_days_left(&wear, 1, now, &days));
	assert_int_equal(days, 0);
	/* Not given; and a rate of nothing. */
	assert_false(wear_days_left(&wear, 0, now, &days));
	assert_false(wear_days_left(&wear, 24000 * GIB, now + 100 * WEAR_DAY_S, &days));
}

/* ---- The file ---- */

static void fill(struct wear_file *file)
{
	*file = (struct wear_file){ .count = 0 };
	wear_add(wear_file_find(file, "/mnt/a"), 3 * GIB, NOON);
	wear_add(wear_file_find(file, "/mnt/b"), 5, NOON + 9 * WEAR_DAY_S);
	wear_add(wear_file_find(file, "/mnt/a"), MIB, NOON + WEAR_DAY_S);
	assert_int_equal(file->count, 2);
}

static void expect_same(const struct wear_file *one, const struct wear_file *other)
{
	assert_int_equal(one->count, other->count);
	for (size_t i = 0; i < one->count; i++) {
		assert_string_equal(one->entries[i].path, other->entries[i].path);
		assert_memory_equal(&one->entries[i].wear, &other->entries[i].wear, sizeof(struct wear));
	}
}

static void what_was_written_comes_back_from_the_file(void **state)
{
	char directory[] = "/tmp/tierd-wear-XXXXXX", path[64];
	_cleanup_free_ void *bytes = NULL;
	struct wear_file file, copy = { .count = 0 };
	size_t length;

	assert_non_null(mkdtemp(directory));
	fill(&file);
	assert_int_equal(wear_file_read(&copy, directory), -ENOENT);
	assert_int_equal(wear_file_encode(&file, &bytes, &length), 0);
	assert_int_equal(wear_file_write(directory, bytes, length), 0);
	assert_int_equal(wear_file_write(directory, bytes, length), 0);
	assert_int_equal(wear_file_read(&copy, directory), 0);
	expect_same(&file, &copy);
	wear_file_clear(&copy);
	/* Half of it is none of it; and stays for who wants to look. */
	assert_int_equal(wear_file_write(directory, bytes, length / 2), 0);
	assert_int_equal(wear_file_read(&copy, directory), -EBADMSG);
	assert_int_equal(wear_file_read(&copy, directory), -ENOENT);
	snprintf(path, sizeof(path), "%s/written.damaged", directory);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(directory), 0);
	assert_int_equal(wear_file_write(directory, bytes, length), -ENOENT);
	wear_file_clear(&file);
}

static void each_wrong_byte_and_each_wrong_length_is_found(void **state)
{
	_cleanup_free_ uint8_t *bytes = NULL;
	struct wear_file file, copy = { .count = 0 };
	size_t length;

	fill(&file);
	assert_int_equal(wear_file_encode(&file, (void **)&bytes, &length), 0);
	for (size_t i = 0; i < length; i++) {
		bytes[i] ^= 1;
		assert_int_equal(wear_file_decode(&copy, bytes, length), -EBADMSG);
		bytes[i] ^= 1;
		assert_int_equal(wear_file_decode(&copy, bytes, i), -EBADMSG);
	}
	assert_int_equal(wear_file_decode(&copy, bytes, length), 0);
	expect_same(&file, &copy);
	wear_file_clear(&copy);
	wear_file_clear(&file);
}

static void there_is_room_for_so_many_paths(void **state)
{
	struct wear_file file = { .count = 0 };
	char path[16];

	for (unsigned i = 0; i < WEAR_FILE_MAX_PATHS; i++) {
		snprintf(path, sizeof(path), "/%u", i);
		assert_non_null(wear_file_find(&file, path));
	}
	assert_null(wear_file_find(&file, "/one/more"));
	assert_non_null(wear_file_find(&file, "/7"));
	wear_file_clear(&file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_count_for_their_day),
		cmocka_unit_test(the_rate_is_that_of_the_last_days_only),
		cmocka_unit_test(the_rate_of_a_new_path_is_that_since_it_is_there),
		cmocka_unit_test(the_days_left_are_what_is_left_over_the_rate),
		cmocka_unit_test(what_was_written_comes_back_from_the_file),
		cmocka_unit_test(each_wrong_byte_and_each_wrong_length_is_found),
		cmocka_unit_test(there_is_room_for_so_many_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
