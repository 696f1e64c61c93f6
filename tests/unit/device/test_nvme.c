#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "common/size.h"
#include "offload/device/nvme.h"
#include "tests/unit/io_support.h"
#include "tests/unit/test.h"

struct fixture {
	struct scratch scratch;
	struct io_loop loop;
};

static bool is_plain;

static int open_fixture(void **state)
{
	static struct fixture fixture;
	struct engine_config config = { .queue_depth = 8, .is_plain = is_plain };

	fixture = (struct fixture){ 0 };
	scratch_open(&fixture.scratch);
	assert_int_equal(engine_new(&config, &fixture.loop.engine), 0);
	*state = &fixture;
	return 0;
}

static int close_fixture(void **state)
{
	struct fixture *fixture = *state;

	fixture->loop.engine = engine_free(fixture->loop.engine);
	scratch_close(&fixture->scratch);
	return 0;
}

static struct nvme_config make_config(const struct fixture *fixture)
{
	return (struct nvme_config){ .engine = fixture->loop.engine,
				     .directory_fd = fixture->scratch.fd,
				     .directory = fixture->scratch.path,
				     .name = "data" };
}

static int open_tier(struct fixture *fixture, uint64_t capacity, bool is_buffered, struct tier **ret_tier)
{
	struct nvme_config config = make_config(fixture);

	config.capacity = capacity;
	config.is_buffered = is_buffered;
	return nvme_tier_new(&config, ret_tier);
}

static int transfer(struct fixture *fixture, struct tier *tier, enum tier_direction direction, void *buffer,
		    uint64_t offset, size_t length)
{
	struct test_io test;

	test_io_init(&test, direction, buffer, offset, length);
	assert_int_equal(tier_submit(tier, &test.io), 0);
	return test_io_wait(&fixture->loop, &test);
}

static void round_trip(struct fixture *fixture, bool is_buffered)
{
	unsigned char *out = pages_new(MIB), *in = pages_new(MIB);
	struct tier *tier;

	assert_int_equal(open_tier(fixture, 4 * MIB, is_buffered, &tier), 0);
	if (is_buffered)
		assert_false(nvme_tier_is_direct(tier));
	assert_int_equal(nvme_tier_reserve(tier), 0);
	pages_fill(out, MIB, 9);
	assert_int_equal(transfer(fixture, tier, TIER_WRITE, out, 3 * MIB, MIB), 0);
	assert_int_equal(transfer(fixture, tier, TIER_READ, in, 3 * MIB, MIB), 0);
	assert_memory_equal(in, out, MIB);
	/* What was never written reads as zeros. */
	memset(out, 0, MIB);
	assert_int_equal(transfer(fixture, tier, TIER_READ, in, 0, MIB), 0);
	assert_memory_equal(in, out, MIB);
	assert_non_null(strstr(tier->label, "/data"));
	tier = tier_free(tier);
	free(out);
	free(in);
}

static void bytes_come_back_direct_and_buffered(void **state)
{
	round_trip(*state, false);
	round_trip(*state, true);
}

/* With its space, also where somebody still has it open. */
static void the_file_is_private_and_goes_with_the_tier(void **state)
{
	struct fixture *fixture = *state;
	struct stat status;
	struct tier *tier;
	int fd;

	assert_int_equal(open_tier(fixture, 2 * MIB, false, &tier), 0);
	assert_int_equal(fstatat(fixture->scratch.fd, "data", &status, 0), 0);
	assert_int_equal(status.st_mode & 07777, 0600);
	assert_int_equal(nvme_tier_reserve(tier), 0);
	assert_int_equal(fstatat(fixture->scratch.fd, "data", &status, 0), 0);
	assert_true((uint64_t)status.st_blocks * 512 >= 2 * MIB);
	fd = openat(fixture->scratch.fd, "data", O_RDONLY | O_CLOEXEC);
	tier = tier_free(tier);
	assert_int_equal(faccessat(fixture->scratch.fd, "data", F_OK, 0), -1);
	assert_int_equal(fstat(fd, &status), 0);
	assert_int_equal(status.st_blocks, 0);
	close(fd);
}

static void what_is_moved_is_counted_across_files(void **state)
{
	struct fixture *fixture = *state;
	unsigned char *buffer = pages_new(8192);
	uint64_t moved[2] = { 0, 0 };

	for (unsigned i = 0; i < 2; i++) {
		struct nvme_config config = make_config(fixture);
		struct tier *tier;

		config.capacity = MIB;
		config.moved = moved;
		assert_int_equal(nvme_tier_new(&config, &tier), 0);
		assert_int_equal(transfer(fixture, tier, TIER_WRITE, buffer, 0, 8192), 0);
		assert_int_equal(transfer(fixture, tier, TIER_READ, buffer, 4096, 4096), 0);
		assert_int_equal(transfer(fixture, tier, TIER_FLUSH, NULL, 0, 0), 0);
		tier_free(tier);
	}
	assert_int_equal(moved[TIER_WRITE], 2 * 8192);
	assert_int_equal(moved[TIER_READ], 2 * 4096);
	free(buffer);
}

static void a_kept_file_is_opened_again_by_one_alone(void **state)
{
	struct fixture *fixture = *state;
	struct nvme_config config = make_config(fixture);
	struct tier *tier, *second = NULL;

	assert_int_equal(nvme_tier_open(&config, 0, &second), -ENOENT);
	assert_int_equal(open_tier(fixture, 2 * MIB, false, &tier), 0);
	assert_int_equal(nvme_tier_open(&config, 40, &second), -EBUSY);
	tier_keep(tier, true);
	tier = tier_free(tier);
	assert_int_equal(nvme_tier_open(&config, 0, &tier), 0);
	assert_int_equal(tier->capacity, 2 * MIB);
	tier = tier_free(tier);
	assert_int_equal(nvme_tier_open(&config, 0, &tier), 0);
	tier_keep(tier, false);
	tier = tier_free(tier);
	assert_int_equal(nvme_tier_open(&config, 0, &second), -ENOENT);
	assert_null(second);
}

static void what_another_could_write_is_not_opened(void **state)
{
	struct fixture *fixture = *state;
	struct nvme_config config = make_config(fixture);
	struct tier *tier = NULL;
	int fd = openat(fixture->scratch.fd, "data", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	assert_int_equal(ftruncate(fd, 2 * MIB), 0);
	assert_int_equal(fchmod(fd, 0620), 0);
	assert_int_equal(nvme_tier_open(&config, 0, &tier), -EINVAL);
	assert_int_equal(fchmod(fd, 0600), 0);
	assert_int_equal(ftruncate(fd, 100), 0);
	assert_int_equal(nvme_tier_open(&config, 0, &tier), -EINVAL);
	close(fd);
	assert_int_equal(unlinkat(fixture->scratch.fd, "data", 0), 0);
	assert_int_equal(symlinkat("/dev/zero", fixture->scratch.fd, "data"), 0);
	assert_int_equal(nvme_tier_open(&config, 0, &tier), -ENXIO);
	assert_int_equal(unlinkat(fixture->scratch.fd, "data", 0), 0);
	assert_null(tier);
}

static void a_file_that_exists_is_left_alone(void **state)
{
	struct fixture *fixture = *state;
	struct tier *tier, *second = NULL;

	assert_int_equal(open_tier(fixture, MIB, false, &tier), 0);
	assert_int_equal(open_tier(fixture, MIB, false, &second), -EEXIST);
	assert_null(second);
	assert_int_equal(faccessat(fixture->scratch.fd, "data", F_OK, 0), 0);
	tier = tier_free(tier);
	assert_int_equal(symlinkat("/dev/null", fixture->scratch.fd, "data"), 0);
	assert_int_equal(open_tier(fixture, MIB, false, &second), -EEXIST);
	assert_int_equal(unlinkat(fixture->scratch.fd, "data", 0), 0);
}

static void a_senseless_capacity_is_refused(void **state)
{
	struct tier *tier = NULL;

	assert_int_equal(open_tier(*state, 0, false, &tier), -EINVAL);
	assert_int_equal(open_tier(*state, MIB + 4096, false, &tier), -EINVAL);
	assert_int_equal(open_tier(*state, UINT64_MAX / MIB * MIB, false, &tier), -EINVAL);
	assert_null(tier);
}

static void a_disk_that_is_too_small_keeps_nothing(void **state)
{
	struct fixture *fixture = *state;
	struct statvfs disk;
	struct stat status;
	struct tier *tier;
	uint64_t capacity;
	int r;

	assert_int_equal(fstatvfs(fixture->scratch.fd, &disk), 0);
	capacity = size_align((uint64_t)disk.f_blocks * disk.f_frsize + MIB, MIB);
	r = open_tier(fixture, capacity, false, &tier);
	/* Some file systems do not even take such a length. */
	if (r == -EFBIG)
		skip();
	assert_int_equal(r, 0);
	assert_int_equal(nvme_tier_reserve(tier), -ENOSPC);
	assert_int_equal(fstatat(fixture->scratch.fd, "data", &status, 0), 0);
	assert_int_equal(status.st_blocks, 0);
	tier = tier_free(tier);
}

static uint64_t size_of_file(const struct fixture *fixture)
{
	struct stat status;

	assert_int_equal(fstatat(fixture->scratch.fd, "data", &status, 0), 0);
	assert_true(status.st_blocks * 512 >= status.st_size);
	return (uint64_t)status.st_size;
}

/* What it holds stays; what is more than the disk has leaves it as it was. */
static void a_file_grows_or_stays_as_it_is(void **state)
{
	struct fixture *fixture = *state;
	unsigned char *out = pages_new(MIB), *in = pages_new(MIB);
	struct statvfs disk;
	struct test_io test;
	struct tier *tier;

	assert_int_equal(open_tier(fixture, 2 * MIB, false, &tier), 0);
	assert_int_equal(nvme_tier_reserve(tier), 0);
	pages_fill(out, MIB, 3);
	assert_int_equal(transfer(fixture, tier, TIER_WRITE, out, MIB, MIB), 0);
	assert_int_equal(fstatvfs(fixture->scratch.fd, &disk), 0);
	assert_int_equal(tier_grow(tier, size_align(disk.f_blocks * disk.f_frsize + 3 * MIB, MIB)), -ENOSPC);
	assert_int_equal(tier->capacity, 2 * MIB);
	assert_int_equal(size_of_file(fixture), 2 * MIB);
	test_io_init(&test, TIER_WRITE, out, 4 * MIB, MIB);
	assert_int_equal(tier_submit(tier, &test.io), -ERANGE);
	assert_int_equal(tier_grow(tier, 5 * MIB), 0);
	assert_int_equal(size_of_file(fixture), 5 * MIB);
	assert_int_equal(transfer(fixture, tier, TIER_WRITE, out, 4 * MIB, MIB), 0);
	for (unsigned at = 1; at < 5; at += 3) {
		assert_int_equal(transfer(fixture, tier, TIER_READ, in, at * MIB, MIB), 0);
		assert_memory_equal(in, out, MIB);
	}
	tier_free(tier);
	free(out);
	free(in);
}

static void a_file_that_was_cut_gives_an_error_and_no_zeros(void **state)
{
	struct fixture *fixture = *state;
	unsigned char *pages = pages_new(MIB);
	struct tier *tier;
	int fd;

	assert_int_equal(open_tier(fixture, 2 * MIB, false, &tier), 0);
	assert_int_equal(transfer(fixture, tier, TIER_WRITE, pages, MIB, MIB), 0);
	fd = openat(fixture->scratch.fd, "data", O_WRONLY | O_CLOEXEC);
	assert_int_equal(ftruncate(fd, (off_t)(MIB + MIB / 2)), 0);
	close(fd);
	assert_int_equal(transfer(fixture, tier, TIER_READ, pages, MIB, MIB), -EIO);
	assert_int_equal(transfer(fixture, tier, TIER_READ, pages, MIB, MIB / 2), 0);
	tier = tier_free(tier);
	free(pages);
}

#define FIXTURE_TEST(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(bytes_come_back_direct_and_buffered),
		FIXTURE_TEST(the_file_is_private_and_goes_with_the_tier),
		FIXTURE_TEST(what_is_moved_is_counted_across_files),
		FIXTURE_TEST(a_kept_file_is_opened_again_by_one_alone),
		FIXTURE_TEST(what_another_could_write_is_not_opened),
		FIXTURE_TEST(a_file_that_exists_is_left_alone),
		FIXTURE_TEST(a_senseless_capacity_is_refused),
		FIXTURE_TEST(a_disk_that_is_too_small_keeps_nothing),
		FIXTURE_TEST(a_file_grows_or_stays_as_it_is),
		FIXTURE_TEST(a_file_that_was_cut_gives_an_error_and_no_zeros),
	};
	int failed = cmocka_run_group_tests_name("io_uring", tests, NULL, NULL);

	is_plain = true;
	return failed + cmocka_run_group_tests_name("plain", tests, NULL, NULL);
}
