/* The list of jobs as bytes, and the marks of paths: what was written is read again, and anything else is
 * refused. tests/fuzz/job_list.c makes lists that cannot be, with checksums that fit. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "common/cleanup.h"
#include "common/little_endian.h"
#include "daemon/durability/job_list.h"
#include "daemon/durability/state_file.h"
#include "offload/store/store_device.h"
#include "offload/store/superblock.h"
#include "tests/unit/test.h"

static const uint8_t marks[3][MARK_BYTES] = { { 1 }, { 2 }, { 3 } };

/* Two paths, a job of both with a fork that is given up, and one of the second alone. */
static void fill(struct job_list *list)
{
	struct job_list_store *store;

	*list = (struct job_list){ .highest = 77 };
	assert_int_equal(job_list_set_path(list, marks[0], "/mnt/a"), 0);
	assert_int_equal(job_list_set_path(list, marks[1], "/mnt/b c"), 1);
	store = job_list_add(list, "1000/gpt-5.store");
	assert_non_null(store);
	memset(store->store, 7, sizeof(store->store));
	store->generation = 12;
	store->path_count = 2;
	store->paths[0] = 1;
	store->paths[1] = 0;
	assert_int_equal(job_list_add_job(store, "gpt", 5), 0);
	assert_int_equal(job_list_add_job(store, "fork", 6), 0);
	job_list_find_job(store, "fork")->is_given_up = true;
	store = job_list_add(list, "0/a-b-1.store");
	store->path_count = 1;
	store->paths[0] = 1;
	assert_int_equal(job_list_add_job(store, "a-b", 1), 0);
}

static void expect_filled(const struct job_list *list)
{
	const struct job_list_store *store = job_list_find(list, "1000/gpt-5.store");

	assert_int_equal(list->highest, 77);
	assert_int_equal(list->path_count, 2);
	assert_int_equal(list->store_count, 2);
	assert_string_equal(list->paths[job_list_find_path(list, marks[1])].path, "/mnt/b c");
	assert_non_null(store);
	assert_int_equal(store->generation, 12);
	assert_int_equal(store->store[15], 7);
	assert_int_equal(store->path_count, 2);
	assert_int_equal(store->paths[0], 1);
	assert_int_equal(store->paths[1], 0);
	assert_int_equal(job_list_find_job(store, "gpt")->number, 5);
	assert_false(job_list_find_job(store, "gpt")->is_given_up);
	assert_true(job_list_find_job(store, "fork")->is_given_up);
	assert_int_equal(job_list_find(list, "0/a-b-1.store")->jobs[0].number, 1);
}

static uint8_t *encode(const struct job_list *list, size_t *ret_length)
{
	void *bytes;

	assert_int_equal(job_list_encode(list, &bytes, ret_length), 0);
	return bytes;
}

/* Of the list that fill() makes. */
static uint8_t *encode_filled(size_t *ret_length)
{
	struct job_list list;
	uint8_t *bytes;

	fill(&list);
	bytes = encode(&list, ret_length);
	job_list_clear(&list);
	return bytes;
}

static void seal(uint8_t *bytes, size_t length)
{
	put64(bytes + length - 8, XXH3_64bits(bytes, length - 8));
}

/* ---- The list ---- */

static void what_is_on_it_is_on_it_again(void **state)
{
	struct job_list copy = { 0 };
	size_t length;
	_cleanup_free_ uint8_t *bytes = encode_filled(&length);

	assert_int_equal(job_list_decode(&copy, bytes, length), 0);
	expect_filled(&copy);
	job_list_clear(&copy);
}

static void each_wrong_byte_and_each_wrong_length_is_found(void **state)
{
	struct job_list copy = { 0 };
	size_t length;
	_cleanup_free_ uint8_t *bytes = encode_filled(&length);

	for (size_t i = 0; i < length; i++) {
		bytes[i] ^= 1;
		assert_int_equal(job_list_decode(&copy, bytes, length), -EBADMSG);
		bytes[i] ^= 1;
		assert_int_equal(job_list_decode(&copy, bytes, i), -EBADMSG);
	}
	assert_int_equal(copy.store_count, 0);
}

static void a_later_format_is_told_from_damage(void **state)
{
	struct job_list copy = { 0 };
	size_t length;
	_cleanup_free_ uint8_t *bytes = encode_filled(&length);

	bytes[8] = 2;
	assert_int_equal(job_list_decode(&copy, bytes, length), -EBADMSG);
	seal(bytes, length);
	assert_int_equal(job_list_decode(&copy, bytes, length), -EPROTONOSUPPORT);
}

static void no_name_leads_out_of_a_path(void **state)
{
	static const char *const names[] = { "../gpt-5.store",	"1000/../x-5.store", "/tmp/gpt-5.store",
					     "1000/gpt-5.sums", "1000/gpt.store",    "gpt-5.store" };
	struct job_list list = { 0 }, copy = { 0 };

	for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
		struct job_list_store *store = job_list_add(&list, names[i]);
		size_t length;

		assert_int_equal(job_list_add_job(store, "gpt", 5), 0);
		_cleanup_free_ uint8_t *bytes = encode(&list, &length);

		assert_int_equal(job_list_decode(&copy, bytes, length), -EBADMSG);
		job_list_clear(&list);
	}
}

static void paths_keep_their_marks(void **state)
{
	struct job_list list;

	fill(&list);
	/* Swapped. */
	assert_int_equal(job_list_set_path(&list, marks[0], "/mnt/b c"), 0);
	assert_int_equal(job_list_set_path(&list, marks[1], "/mnt/a"), 1);
	assert_string_equal(list.paths[0].path, "/mnt/b c");
	job_list_remove(&list, job_list_find(&list, "1000/gpt-5.store"));
	job_list_remove_path(&list, 0);
	assert_int_equal(list.path_count, 1);
	assert_int_equal(job_list_find(&list, "0/a-b-1.store")->paths[0], 0);
	assert_int_equal(job_list_find_path(&list, marks[0]), -1);
	for (unsigned i = 1; i < JOB_LIST_MAX_PATHS; i++)
		assert_int_equal(job_list_set_path(&list, (uint8_t[MARK_BYTES]){ 9, (uint8_t)i }, "/x"), i);
	assert_int_equal(job_list_set_path(&list, marks[2], "/x"), -ENOSPC);
	job_list_clear(&list);
}

static void a_store_has_room_for_all_of_its_jobs(void **state)
{
	struct job_list list = { 0 };
	struct job_list_store *store = job_list_add(&list, "1/a-1.store");
	char name[16];

	for (unsigned i = 0; i < JOB_LIST_MAX_JOBS; i++) {
		snprintf(name, sizeof(name), "j%u", i);
		assert_int_equal(job_list_add_job(store, name, i), 0);
	}
	assert_int_equal(job_list_add_job(store, "more", 99), -ENOSPC);
	assert_int_equal(job_list_add_job(store, "j3", 77), 0);
	assert_int_equal(job_list_find_job(store, "j3")->number, 77);
	job_list_remove_job(store, "j0");
	assert_null(job_list_find_job(store, "j0"));
	assert_non_null(job_list_find_job(store, "j14"));
	assert_false(job_list_is_given_up(store));
	for (unsigned i = 0; i < store->job_count; i++)
		store->jobs[i].is_given_up = true;
	assert_true(job_list_is_given_up(store));
	job_list_clear(&list);
}

/* ---- Files ---- */

static char folder[64];
static int folder_fd;

static int make_folder(void **state)
{
	snprintf(folder, sizeof(folder), "/tmp/tierd-list-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return folder_fd < 0 ? -1 : 0;
}

static int remove_folder(void **state)
{
	fd_close(folder_fd);
	return rmdir(folder);
}

static void remove_file(const char *name)
{
	assert_int_equal(unlinkat(folder_fd, name, 0), 0);
}

static void expect_content(const char *name, const char *content)
{
	_cleanup_free_ char *bytes = NULL;
	size_t length;

	assert_int_equal(state_file_read_in(folder, name, 100, (void **)&bytes, &length), 0);
	assert_int_equal(length, strlen(content));
	assert_memory_equal(bytes, content, length);
}

static void a_file_is_written_and_read_as_a_whole(void **state)
{
	void *bytes;
	size_t length;

	assert_int_equal(state_file_read_in(folder, "x", 100, &bytes, &length), -ENOENT);
	assert_int_equal(state_file_write_in(folder, "x", "first", 5), 0);
	assert_int_equal(state_file_write_in(folder, "x", "second", 6), 0);
	expect_content("x", "second");
	assert_int_equal(state_file_read_in(folder, "x", 5, &bytes, &length), -EFBIG);
	remove_file("x");
	assert_int_equal(state_file_write_in("/nowhere", "x", "y", 1), -ENOENT);
	/* A folder in its place stays, and nothing is left beside it. */
	assert_int_equal(mkdirat(folder_fd, "x", 0700), 0);
	assert_int_equal(state_file_write_in(folder, "x", "y", 1), -EISDIR);
	assert_int_equal(unlinkat(folder_fd, "x", AT_REMOVEDIR), 0);
}

static void nothing_that_was_set_aside_is_lost(void **state)
{
	static const char *const names[] = { "x.damaged", "x.damaged-2", "x.damaged-3" };
	char name[STATE_FILE_NAME];

	assert_int_equal(state_file_set_aside(folder, "x", name), -ENOENT);
	for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
		assert_int_equal(state_file_write_in(folder, "x", names[i], strlen(names[i])), 0);
		assert_int_equal(state_file_set_aside(folder, "x", name), 0);
		assert_string_equal(name, names[i]);
	}
	for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
		expect_content(names[i], names[i]);
		remove_file(names[i]);
	}
}

static void a_mark_is_what_was_made(void **state)
{
	static const char *const wrong[] = { "",
					     "tierd 1 ",
					     "tierd 1 0123456789abcdef0123456789abcdex\n",
					     "tierd 2 0123456789abcdef0123456789abcdef\n",
					     "tierd 1 0123456789ABCDEF0123456789abcdef\n",
					     "tierd 1 0123456789abcdef0123456789abcdef\n\n" };
	uint8_t mark[MARK_BYTES], other[MARK_BYTES];

	assert_int_equal(mark_read(folder_fd, mark), -ENOENT);
	assert_int_equal(mark_make(folder_fd, mark), 0);
	assert_int_equal(mark_read(folder_fd, other), 0);
	assert_memory_equal(mark, other, MARK_BYTES);
	assert_int_equal(mark_make(folder_fd, other), 0);
	assert_memory_not_equal(mark, other, MARK_BYTES);
	for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
		assert_int_equal(state_file_write(folder_fd, MARK_NAME, wrong[i], strlen(wrong[i])), 0);
		assert_int_equal(mark_read(folder_fd, other), -EBADMSG);
	}
	remove_file(MARK_NAME);
}

/* ---- What a store says of itself ---- */

static void put_copy(int fd, unsigned copy, uint64_t generation)
{
	struct superblock superblock = {
		.generation = generation,
		.epoch = 1,
		.place_bytes = STORE_EXTENT_BYTES,
		.format = 1,
		.member_count = 1,
		.members = { { .identity = 1, .extents = 1, .nodes = 1, .state = MEMBER_PRESENT } }
	};
	uint8_t bytes[SUPERBLOCK_BYTES];

	superblock.store[3] = 5;
	superblock_encode(&superblock, copy, bytes);
	assert_int_equal(pwrite(fd, bytes, sizeof(bytes), (off_t)copy * SUPERBLOCK_STRIDE), sizeof(bytes));
}

static void spoil_copy(int fd, unsigned copy)
{
	static const uint8_t zeros[SUPERBLOCK_BYTES];

	assert_int_equal(pwrite(fd, zeros, sizeof(zeros), (off_t)copy * SUPERBLOCK_STRIDE), sizeof(zeros));
}

static void a_store_says_its_newest_generation_unless_that_may_be_lost(void **state)
{
	_cleanup_close_ int fd = memfd_create("store", MFD_CLOEXEC);
	struct store_device says = { 0 };

	assert_true(fd >= 0);
	assert_int_equal(store_device_read(fd, &says), -ENODATA);
	for (unsigned copy = 0; copy < SUPERBLOCK_COPIES; copy++)
		put_copy(fd, copy, copy < 2 ? 8 : 9);
	assert_int_equal(store_device_read(fd, &says), 0);
	assert_int_equal(says.generation, 9);
	assert_int_equal(says.store[3], 5);
	/* The other copy of the pair is as good. */
	spoil_copy(fd, 2);
	assert_int_equal(store_device_read(fd, &says), 0);
	assert_int_equal(says.generation, 9);
	/* What the whole pair said nobody knows. */
	spoil_copy(fd, 3);
	assert_int_equal(store_device_read(fd, &says), 0);
	assert_int_equal(says.generation, 0);
	assert_int_equal(says.member_count, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_on_it_is_on_it_again),
		cmocka_unit_test(each_wrong_byte_and_each_wrong_length_is_found),
		cmocka_unit_test(a_later_format_is_told_from_damage),
		cmocka_unit_test(no_name_leads_out_of_a_path),
		cmocka_unit_test(paths_keep_their_marks),
		cmocka_unit_test(a_store_has_room_for_all_of_its_jobs),
		cmocka_unit_test(a_store_says_its_newest_generation_unless_that_may_be_lost),
		cmocka_unit_test_setup_teardown(a_file_is_written_and_read_as_a_whole, make_folder,
						remove_folder),
		cmocka_unit_test_setup_teardown(nothing_that_was_set_aside_is_lost, make_folder,
						remove_folder),
		cmocka_unit_test_setup_teardown(a_mark_is_what_was_made, make_folder, remove_folder),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
