/* Which file systems and devices keep what is reserved, and which do not. */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/reservation.h"
#include "tests/unit/test.h"

static char devices[256];

/* ---- A tree like that of /sys ---- */

static int make_devices(void **state)
{
	snprintf(devices, sizeof(devices), "%s/tierd-devices-XXXXXX", getenv("TMPDIR") ?: "/var/tmp");
	return mkdtemp(devices) ? 0 : -1;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
	return remove(path);
}

static int remove_devices(void **state)
{
	return nftw(devices, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void make_folder(const char *name)
{
	char path[1024];

	snprintf(path, sizeof(path), "%s/%s", devices, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

/* name: with those that it is below. */
static void make_device(const char *name, const char *uuid)
{
	char path[600];
	FILE *file;

	make_folder(name);
	snprintf(path, sizeof(path), "%s/slaves", name);
	make_folder(path);
	snprintf(path, sizeof(path), "%s/dm", name);
	make_folder(path);
	snprintf(path, sizeof(path), "%s/%s/dm/uuid", devices, name);
	file = fopen(path, "w");
	assert_non_null(file);
	fprintf(file, "%s\n", uuid);
	fclose(file);
}

static bool is_thin(void)
{
	const struct reservation_breach *breach = reservation_of_device(devices, makedev(253, 7));

	assert_true(!breach || strcmp(breach->what, "a thin volume") == 0);
	return breach;
}

/* ---- Tests ---- */

static void file_systems_that_copy_on_write_or_are_memory_are_told(void **state)
{
	static const uint64_t copying[] = { 0x9123683e, 0x2fc12fc1, 0xca451a4e, 0x3434 };
	static const uint64_t memory[] = { 0x01021994, 0x858458f6, 0x958458f6 };
	static const uint64_t others[] = { 0xef53, 0x58465342, 0x794c7630, 0 };

	for (size_t i = 0; i < sizeof(copying) / sizeof(*copying); i++)
		assert_false(reservation_of_type(copying[i], true)->is_memory);
	for (size_t i = 0; i < sizeof(memory) / sizeof(*memory); i++)
		assert_true(reservation_of_type(memory[i], true)->is_memory);
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		assert_null(reservation_of_type(others[i], true));
}

static void btrfs_keeps_what_files_reserve_that_are_not_copied(void **state)
{
	assert_null(reservation_of_type(0x9123683e, false));
	assert_non_null(reservation_of_type(0x2fc12fc1, false));
}

static void a_device_that_is_not_known_is_not_thin(void **state)
{
	assert_false(is_thin());
}

static void a_plain_volume_is_not_thin(void **state)
{
	make_device("253:7", "LVM-abc");
	make_device("253:7/slaves/nvme0n1", "");
	assert_false(is_thin());
}

static void a_volume_of_a_thin_pool_is_thin(void **state)
{
	make_device("253:7", "LVM-abc");
	make_device("253:7/slaves/dm-3", "LVM-abcdef-tpool");
	assert_true(is_thin());
}

static void what_is_encrypted_on_one_is_thin_too(void **state)
{
	make_device("253:7", "CRYPT-LUKS2-abc");
	make_device("253:7/slaves/dm-2", "LVM-abc");
	make_device("253:7/slaves/dm-2/slaves/dm-1", "LVM-abcdef-tpool");
	assert_true(is_thin());
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_devices, remove_devices)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(file_systems_that_copy_on_write_or_are_memory_are_told),
		TEST(btrfs_keeps_what_files_reserve_that_are_not_copied),
		TEST(a_device_that_is_not_known_is_not_thin),
		TEST(a_plain_volume_is_not_thin),
		TEST(a_volume_of_a_thin_pool_is_thin),
		TEST(what_is_encrypted_on_one_is_thin_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
