/* Writing past the page cache: what was given is in the file, whatever its length, and an error of the disk
 * is told to whoever goes on. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "client/tierctl/direct.h"
#include "common/size.h"
#include "tests/unit/test.h"

#define LARGEST ((size_t)40 * MIB)

static char path[256];

static int make_path(void **state)
{
	const char *folder = getenv("TMPDIR");

	snprintf(path, sizeof(path), "%s/test-direct-%d", folder ? folder : "/var/tmp", (int)getpid());
	signal(SIGXFSZ, SIG_IGN);
	return 0;
}

static int open_file(void)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	return fd;
}

static char *make_bytes(void)
{
	uint32_t *words = malloc(LARGEST);

	assert_non_null(words);
	for (uint32_t i = 0; i < LARGEST / sizeof(*words); i++)
		words[i] = i * UINT32_C(2654435761);
	return (char *)words;
}

static void expect_content(int fd, const char *bytes, size_t length)
{
	char *found = malloc(length + 1);
	struct stat status;

	assert_non_null(found);
	assert_int_equal(fstat(fd, &status), 0);
	assert_int_equal(status.st_size, length);
	assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT), 0);
	for (size_t done = 0; done < length;) {
		ssize_t got = pread(fd, found + done, length - done, (off_t)done);

		assert_true(got > 0);
		done += (size_t)got;
	}
	assert_memory_equal(found, bytes, length);
	free(found);
}

static void files_of_any_length_are_what_was_given(void **state)
{
	static const size_t lengths[] = {
		0, 1, 4095, 4096, 4097, 4 * MIB, 4 * MIB + 8, 16 * MIB, LARGEST - 3
	};
	char *bytes = make_bytes();

	for (size_t i = 0; i < ARRAY_LENGTH(lengths); i++) {
		_cleanup_(direct_freep) struct direct *direct = NULL;
		_cleanup_close_ int fd = open_file();
		size_t piece = lengths[i] / 7 + 1;

		assert_int_equal(direct_new(fd, lengths[i], &direct), 0);
		for (size_t at = 0; at < lengths[i]; at += piece)
			assert_int_equal(direct_append(direct, bytes + at,
						       lengths[i] - at < piece ? lengths[i] - at : piece),
					 0);
		assert_int_equal(direct_finish(direct), 0);
		expect_content(fd, bytes, lengths[i]);
	}
	free(bytes);
}

static void one_that_is_given_up_ends_at_once(void **state)
{
	_cleanup_close_ int fd = open_file();
	struct direct *direct = NULL;
	char *room;
	size_t bytes;

	assert_int_equal(direct_new(fd, MIB, &direct), 0);
	assert_int_equal(direct_room(direct, &room, &bytes), 0);
	direct_advance(direct, bytes);
	assert_null(direct_free(direct));
	assert_null(direct_free(NULL));
}

/* Until somebody hears of it: more than is on its way at once. */
static int write_on(struct direct *direct, const char *bytes)
{
	int r = 0;

	for (size_t written = 0; r == 0 && written < LARGEST; written += MIB)
		r = direct_append(direct, bytes + written, MIB);
	return r;
}

static void a_file_that_may_not_grow_is_an_error(void **state)
{
	struct rlimit before, limit;
	char *bytes = make_bytes();

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = (struct rlimit){ .rlim_cur = 6 * MIB, .rlim_max = before.rlim_max };
	for (unsigned i = 0; i < 2; i++) {
		_cleanup_(direct_freep) struct direct *direct = NULL;
		_cleanup_close_ int fd = open_file();

		assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
		if (i == 0) {
			/* Known beforehand … */
			assert_int_equal(direct_new(fd, LARGEST, &direct), -EFBIG);
			assert_null(direct);
		} else {
			/* … or in the middle. */
			assert_int_equal(direct_new(fd, 0, &direct), 0);
			assert_int_equal(write_on(direct, bytes), -EFBIG);
			assert_int_equal(direct_finish(direct), -EFBIG);
		}
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	}
	free(bytes);
}

static int remove_file(void **state)
{
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_of_any_length_are_what_was_given),
		cmocka_unit_test(one_that_is_given_up_ends_at_once),
		cmocka_unit_test(a_file_that_may_not_grow_is_an_error),
	};

	return cmocka_run_group_tests(tests, make_path, remove_file);
}
