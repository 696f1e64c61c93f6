/* Whatever fails while the list of jobs is written, the file has it as it was, or as it is to be, and nothing
 * is left beside it; whatever allocation fails, a list that was there stays as it was. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "daemon/durability/job_list.h"
#include "daemon/durability/state_file.h"
#include "tests/fault/alloc_fault.h"
#include "tests/unit/test.h"

static char folder[64];
static const uint8_t mark[MARK_BYTES] = { 7 };

/* ---- System calls that fail ---- */

static unsigned calls_left; /* 0: none fails */
static bool has_failed;

static bool fails(void)
{
	if (calls_left == 0 || --calls_left > 0)
		return false;
	has_failed = true;
	errno = ENOSPC;
	return true;
}

ssize_t __real_write(int fd, const void *bytes, size_t count);
ssize_t __wrap_write(int fd, const void *bytes, size_t count);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_renameat(int from, const char *name, int to, const char *new_name);
int __wrap_renameat(int from, const char *name, int to, const char *new_name);

/* Of what does not fail only a part is written at once. */
ssize_t __wrap_write(int fd, const void *bytes, size_t count)
{
	return fails() ? -1 : __real_write(fd, bytes, calls_left > 0 && count > 100 ? 100 : count);
}

int __wrap_fsync(int fd)
{
	return fails() ? -1 : __real_fsync(fd);
}

int __wrap_renameat(int from, const char *name, int to, const char *new_name)
{
	return fails() ? -1 : __real_renameat(from, name, to, new_name);
}

/* ---- Lists ---- */

/* Of so many jobs. */
static void fill(struct job_list *list, unsigned jobs)
{
	char file[32];

	*list = (struct job_list){ .highest = jobs };
	assert_int_equal(job_list_set_path(list, mark, "/mnt/a"), 0);
	for (unsigned i = 0; i < jobs; i++) {
		snprintf(file, sizeof(file), "1000/gpt-%u.store", i);
		struct job_list_store *store = job_list_add(list, file);

		assert_non_null(store);
		store->path_count = 1;
		assert_int_equal(job_list_add_job(store, "gpt", i), 0);
	}
}

static int write_list(unsigned jobs)
{
	_cleanup_free_ void *bytes = NULL;
	struct job_list list;
	size_t length;
	int r;

	fill(&list, jobs);
	assert_int_equal(job_list_encode(&list, &bytes, &length), 0);
	job_list_clear(&list);
	r = state_file_write_in(folder, "jobs", bytes, length);
	return r;
}

static size_t read_list(void)
{
	_cleanup_free_ void *bytes = NULL;
	struct job_list list = { 0 };
	size_t length, count;

	assert_int_equal(state_file_read_in(folder, "jobs", JOB_LIST_MAX_BYTES, &bytes, &length), 0);
	assert_int_equal(job_list_decode(&list, bytes, length), 0);
	count = list.store_count;
	job_list_clear(&list);
	return count;
}

static void expect_nothing_beside(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/jobs.new", folder);
	assert_int_equal(access(path, F_OK), -1);
}

static void a_write_that_fails_leaves_the_old_list_or_the_new_one(void **state)
{
	unsigned failures = 0;

	assert_int_equal(write_list(3), 0);
	for (unsigned nth = 1;; nth++) {
		size_t before = read_list();
		unsigned jobs = before == 3 ? 5 : 3;
		int r;

		has_failed = false;
		calls_left = nth;
		r = write_list(jobs);
		calls_left = 0;
		expect_nothing_beside();
		if (!has_failed) {
			assert_int_equal(r, 0);
			assert_int_equal(read_list(), jobs);
			break;
		}
		failures++;
		assert_int_equal(r, -ENOSPC);
		assert_true(read_list() == before || read_list() == jobs);
	}
	/* Pieces, the file's flush, the change of names, and the folder's flush. */
	assert_true(failures > 4);
}

static void *encoded;
static size_t encoded_length;

static int read_and_write(void)
{
	_cleanup_free_ void *again = NULL;
	struct job_list copy = { .highest = 99 };
	size_t length;
	int r = job_list_decode(&copy, encoded, encoded_length);

	if (r == 0)
		r = job_list_set_path(&copy, (uint8_t[MARK_BYTES]){ 9 }, "/mnt/b");
	if (r >= 0)
		r = job_list_encode(&copy, &again, &length);
	assert_int_equal(copy.store_count, copy.highest == 99 ? 0 : 40);
	job_list_clear(&copy);
	return r;
}

static void an_allocation_that_fails_leaves_the_list_as_it_was(void **state)
{
	struct job_list list;

	fill(&list, 40);
	assert_int_equal(job_list_encode(&list, &encoded, &encoded_length), 0);
	alloc_fault_each(read_and_write);
	free(encoded);
	job_list_clear(&list);
}

static int read_bytes(void)
{
	_cleanup_free_ void *bytes = NULL;
	size_t length;

	return state_file_read_in(folder, "jobs", JOB_LIST_MAX_BYTES, &bytes, &length);
}

static void one_that_is_read_without_memory_is_not_damaged(void **state)
{
	assert_int_equal(write_list(3), 0);
	assert_true(alloc_fault_each(read_bytes) > 0);
	assert_int_equal(read_list(), 3);
}

static int make_folder(void **state)
{
	snprintf(folder, sizeof(folder), "/tmp/tierd-list-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/jobs", folder);
	(void)unlink(path);
	return rmdir(folder);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_write_that_fails_leaves_the_old_list_or_the_new_one),
		TEST(an_allocation_that_fails_leaves_the_list_as_it_was),
		TEST(one_that_is_read_without_memory_is_not_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
