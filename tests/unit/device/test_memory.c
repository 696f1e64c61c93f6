#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/cleanup.h"
#include "common/size.h"
#include "offload/device/memory.h"
#include "tests/unit/test.h"

#define LENGTH ((size_t)6 << 20)
#define NOBODY 65534

static void open_shared(struct memory *memory)
{
	*memory = (struct memory)MEMORY_INIT;
	assert_int_equal(memory_new_shared("tierd-test", LENGTH, memory), 0);
	memset(memory->base, 7, LENGTH);
	assert_int_equal(memory_seal(memory), 0);
}

/* Runs an attack in another process; the bits it returns are the attempts that succeeded. */
static int attack(int (*run)(int fd), int fd, bool as_nobody)
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0) {
		/* Changing the user hides /proc/self/fd, which an attacker would not suffer from. */
		if (as_nobody && (setuid(NOBODY) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0))
			_exit(255);
		_exit(run(fd));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_not_equal(WEXITSTATUS(status), 255);
	return WEXITSTATUS(status);
}

static int reopen(int fd, int flags)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

static bool can_map_for_writing(int fd)
{
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED;
}

static bool can_make_writable(int fd)
{
	void *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

	return map != MAP_FAILED && mprotect(map, 4096, PROT_READ | PROT_WRITE) == 0;
}

static bool can_punch(int fd)
{
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0;
}

/* One bit for each way to write, through the descriptor and through one opened again for writing. */
static int write_in_every_way(int fd)
{
	int own = reopen(fd, O_RDWR);
	int succeeded = 0;

	succeeded |= can_map_for_writing(fd) << 0;
	succeeded |= can_make_writable(fd) << 1;
	succeeded |= (pwrite(fd, "x", 1, 0) == 1) << 2;
	succeeded |= can_punch(fd) << 3;
	succeeded |= (ftruncate(fd, 4096) == 0) << 4;
	if (own < 0)
		return succeeded;
	succeeded |= can_map_for_writing(own) << 5;
	succeeded |= (pwrite(own, "x", 1, 0) == 1 || can_punch(own)) << 6;
	return succeeded;
}

static int open_for_writing(int fd)
{
	return reopen(fd, O_RDWR) >= 0;
}

static int read_all(int fd)
{
	const char *map = mmap(NULL, LENGTH, PROT_READ, MAP_SHARED, fd, 0);

	return map != MAP_FAILED && map[0] == 7 && map[LENGTH - 1] == 7;
}

static void another_user_can_read_but_not_write_read_only_memory(void **state)
{
	_cleanup_(memory_free) struct memory memory;
	_cleanup_close_ int fd = -1;

	if (geteuid() != 0)
		skip();
	open_shared(&memory);
	fd = memory_client_fd(&memory, MEMORY_READ_ONLY);
	assert_true(fd >= 0);
	assert_int_equal(attack(read_all, fd, true), 1);
	assert_int_equal(attack(open_for_writing, fd, true), 0);
	assert_int_equal(attack(write_in_every_way, fd, true), 0);
	assert_int_equal(memory.base[0], 7);
}

static void read_only_memory_is_lax_to_the_same_user(void **state)
{
	_cleanup_(memory_free) struct memory memory;
	_cleanup_close_ int fd = -1;

	open_shared(&memory);
	fd = memory_client_fd(&memory, MEMORY_READ_ONLY);
	assert_true(fd >= 0);
	/* Through a descriptor opened again. */
	assert_int_equal(attack(write_in_every_way, fd, false), 1 << 5 | 1 << 6);
}

static int shrink_grow_or_seal(int fd)
{
	int succeeded = 0;

	succeeded |= (ftruncate(fd, 0) == 0) << 0;
	succeeded |= (ftruncate(fd, 2 * LENGTH) == 0) << 1;
	succeeded |= (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0) << 2;
	return succeeded;
}

static int punch_everything(int fd)
{
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, LENGTH) == 0;
}

static void writable_memory_can_be_emptied_but_not_cut_or_sealed(void **state)
{
	_cleanup_(memory_free) struct memory memory;
	_cleanup_close_ int fd = -1;

	open_shared(&memory);
	fd = memory_client_fd(&memory, MEMORY_WRITABLE);
	assert_true(fd >= 0);
	assert_int_equal(attack(shrink_grow_or_seal, fd, false), 0);
	assert_int_equal(attack(punch_everything, fd, false), 1);
	/* The client hurts only itself: the daemon reads zeros, and no SIGBUS. */
	assert_int_equal(memory.base[0], 0);
	assert_int_equal(memory.base[LENGTH - 1], 0);
	memory.base[0] = 1;
}

static void memory_is_aligned_zero_and_of_the_length_asked_for(void **state)
{
	struct memory private = MEMORY_INIT, shared = MEMORY_INIT;

	assert_int_equal(memory_new_private(LENGTH + 1, &private), 0);
	assert_int_equal(memory_new_shared("tierd-test", LENGTH + 4096, &shared), 0);
	assert_int_equal((uintptr_t) private.base % (2 << 20), 0);
	assert_int_equal((uintptr_t)shared.base % (2 << 20), 0);
	assert_int_equal(private.length, LENGTH + 4096);
	assert_int_equal(shared.length, LENGTH + 4096);
	assert_int_equal(private.base[0] | private.base[LENGTH + 4095], 0);
	assert_int_equal(shared.base[0] | shared.base[LENGTH + 4095], 0);
	memory_free(&private);
	memory_free(&shared);
	assert_null(private.base);
	assert_int_equal(shared.fd, -1);
	memory_free(&shared);
}

static void senseless_lengths_are_refused(void **state)
{
	struct memory memory = MEMORY_INIT;

	assert_int_equal(memory_new_private(0, &memory), -EINVAL);
	assert_int_equal(memory_new_shared("tierd-test", 0, &memory), -EINVAL);
	assert_int_equal(memory_new_private(SIZE_MAX, &memory), -ENOMEM);
	assert_int_equal(memory_new_private((size_t)1 << 60, &memory), -ENOMEM);
	assert_true(memory_new_shared("tierd-test", (size_t)1 << 62, &memory) < 0);
	assert_null(memory.base);
}

static void resident_bytes_are_what_was_touched(void **state)
{
	struct memory memories[2] = { MEMORY_INIT, MEMORY_INIT };

	assert_int_equal(memory_new_private(LENGTH, &memories[0]), 0);
	assert_int_equal(memory_new_shared("tierd-test", LENGTH, &memories[1]), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(memory_resident(&memories[i]), 0);
		memories[i].base[0] = 1;
		memories[i].base[LENGTH - 1] = 1;
		assert_true(memory_resident(&memories[i]) >= 8192);
		assert_true(memory_resident(&memories[i]) < LENGTH);
		memset(memories[i].base, 1, LENGTH);
		assert_int_equal(memory_resident(&memories[i]), LENGTH);
		memory_free(&memories[i]);
	}
}

static void populating_gives_every_page_and_keeps_the_bytes(void **state)
{
	struct memory memories[2] = { MEMORY_INIT, MEMORY_INIT };

	assert_int_equal(memory_new_private(LENGTH + 8192, &memories[0]), 0);
	assert_int_equal(memory_new_shared("tierd-test", LENGTH + 8192, &memories[1]), 0);
	for (int i = 0; i < 2; i++) {
		memories[i].base[12345] = 5;
		memory_make_huge(&memories[i], true);
		print_message("%s memory: huge pages: %s\n", i ? "shared" : "private",
			      memories[i].is_huge ? "yes" : "no");
		assert_true(memory_resident(&memories[i]) >= LENGTH + 8192);
		assert_int_equal(memories[i].base[12345], 5);
		assert_int_equal(memories[i].base[LENGTH + 8191], 0);
		memory_free(&memories[i]);
	}
}

static int find_mapping(int unused)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];

	if (!maps)
		return 255;
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "tierd-test-fork"))
			return 1;
	return 0;
}

static void a_forked_child_has_no_mapping(void **state)
{
	_cleanup_(memory_free) struct memory memory = MEMORY_INIT;

	assert_int_equal(memory_new_shared("tierd-test-fork", LENGTH, &memory), 0);
	assert_int_equal(find_mapping(-1), 1);
	assert_int_equal(attack(find_mapping, -1, false), 0);
}

/* The flags that the kernel shows for the mapping at an address. */
static void read_flags(const char *base, char *flags, size_t size)
{
	FILE *maps = fopen("/proc/self/smaps", "re");
	unsigned long start, end, address = (unsigned long)base;
	bool is_there = false;
	char line[512];

	assert_non_null(maps);
	flags[0] = '\0';
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			is_there = start <= address && address < end;
		else if (is_there && strncmp(line, "VmFlags:", 8) == 0)
			snprintf(flags, size, "%s", line);
	}
	fclose(maps);
}

static void what_users_entrust_is_in_no_core_dump(void **state)
{
	_cleanup_(memory_free) struct memory shared = MEMORY_INIT, own = MEMORY_INIT;
	char flags[512];

	assert_int_equal(memory_new_shared("tierd-test-dump", LENGTH, &shared), 0);
	assert_int_equal(memory_new_private(LENGTH, &own), 0);
	read_flags(shared.base, flags, sizeof(flags));
	assert_non_null(strstr(flags, " dd"));
	read_flags(own.base, flags, sizeof(flags));
	assert_non_null(strstr(flags, " dd"));
}

static void the_kernel_gets_the_pages_of_a_part_back(void **state)
{
	_cleanup_(memory_free) struct memory memory;

	assert_int_equal(memory_new_shared("tierd-test", 8 * MIB, &memory), 0);
	assert_int_equal(memory_resident(&memory), 0);
	memory_populate(&memory, 2 * MIB, 4 * MIB);
	memory_populate(&memory, 6 * MIB, MIB);
	assert_int_equal(memory_resident(&memory), 5 * MIB);
	assert_int_equal(memory_seal(&memory), 0);
	memset(memory.base + 2 * MIB, 7, 5 * MIB);
	assert_int_equal(memory_discard(&memory, 3 * MIB, 2 * MIB), 0);
	assert_int_equal(memory_resident(&memory), 3 * MIB);
	assert_int_equal(memory.base[3 * MIB - 1], 7);
	assert_int_equal(memory.base[5 * MIB], 7);
	assert_int_equal(memory.base[3 * MIB], 0);
}

/* By several threads, where there are several processors. */
static void a_large_part_gets_all_of_its_pages_and_no_other(void **state)
{
	_cleanup_(memory_free) struct memory memory;

	assert_int_equal(memory_new_shared("tierd-test", 208 * MIB, &memory), 0);
	memory_populate(&memory, MIB, 201 * MIB + 4096);
	assert_int_equal(memory_resident(&memory), 201 * MIB + 4096);
	assert_int_equal(lseek(memory.fd, 0, SEEK_DATA), MIB);
	assert_int_equal(lseek(memory.fd, MIB, SEEK_HOLE), 202 * MIB + 4096);
}

/* Who has it open may keep it, and map it, but its pages are gone. */
static void memory_is_taken_back_from_who_has_it(void **state)
{
	_cleanup_(memory_free) struct memory memory;
	_cleanup_close_ int fd = -1;
	const char *map;

	assert_int_equal(memory_new_shared("tierd-test", LENGTH + 4096, &memory), 0);
	memory_make_huge(&memory, true);
	memset(memory.base, 7, LENGTH + 4096);
	assert_int_equal(memory_seal(&memory), 0);
	fd = memory_client_fd(&memory, MEMORY_READ_ONLY);
	map = mmap(NULL, LENGTH, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(map != MAP_FAILED && map[LENGTH - 1] == 7);
	assert_int_equal(memory_take_back(&memory), 0);
	assert_int_equal(map[0] | map[LENGTH - 1], 0);
	/* What is touched since counts, and is taken again. */
	assert_true(memory_resident(&memory) > 0);
	assert_int_equal(memory_take_back(&memory), 0);
	munmap((void *)map, LENGTH);
}

/* A part of each huge page goes into a pipe, from which nobody can take it. */
static unsigned fill_pipe(int pipe_fd, int fd)
{
	unsigned pages = 0;

	for (loff_t at = 0; at < (loff_t)LENGTH; at += (loff_t)2 << 20) {
		loff_t offset = at;

		pages += splice(fd, &offset, pipe_fd, NULL, 100, 0) == 100;
	}
	return pages;
}

static void huge_pages_in_pipes_are_not_lost_sight_of(void **state)
{
	_cleanup_(memory_free) struct memory memory;
	_cleanup_close_ int fd = -1;
	int ends[2];

	assert_int_equal(memory_new_shared("tierd-test", LENGTH, &memory), 0);
	memory_make_huge(&memory, true);
	if (!memory.is_huge)
		skip();
	assert_int_equal(memory_seal(&memory), 0);
	fd = memory_client_fd(&memory, MEMORY_READ_ONLY);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(fill_pipe(ends[1], fd), 3);
	fd = fd_close(fd);
	assert_true(memory_is_alone(&memory));
	assert_int_equal(memory_take_back(&memory), LENGTH);
	close(ends[0]);
	close(ends[1]);
	assert_int_equal(memory_take_back(&memory), 0);
}

static void who_else_has_it_is_noticed(void **state)
{
	enum memory_access accesses[] = { MEMORY_READ_ONLY, MEMORY_WRITABLE };
	_cleanup_(memory_free) struct memory memory;

	open_shared(&memory);
	assert_true(memory_is_alone(&memory));
	for (unsigned i = 0; i < 2; i++) {
		int prot = accesses[i] == MEMORY_WRITABLE ? PROT_READ | PROT_WRITE : PROT_READ;
		int fd = memory_client_fd(&memory, accesses[i]);
		void *map = mmap(NULL, 4096, prot, MAP_SHARED, fd, 0);

		assert_true(map != MAP_FAILED);
		assert_false(memory_is_alone(&memory));
		close(fd);
		assert_false(memory_is_alone(&memory));
		munmap(map, 4096);
		assert_true(memory_is_alone(&memory));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_is_aligned_zero_and_of_the_length_asked_for),
		cmocka_unit_test(senseless_lengths_are_refused),
		cmocka_unit_test(resident_bytes_are_what_was_touched),
		cmocka_unit_test(populating_gives_every_page_and_keeps_the_bytes),
		cmocka_unit_test(a_forked_child_has_no_mapping),
		cmocka_unit_test(what_users_entrust_is_in_no_core_dump),
		cmocka_unit_test(another_user_can_read_but_not_write_read_only_memory),
		cmocka_unit_test(read_only_memory_is_lax_to_the_same_user),
		cmocka_unit_test(writable_memory_can_be_emptied_but_not_cut_or_sealed),
		cmocka_unit_test(the_kernel_gets_the_pages_of_a_part_back),
		cmocka_unit_test(a_large_part_gets_all_of_its_pages_and_no_other),
		cmocka_unit_test(memory_is_taken_back_from_who_has_it),
		cmocka_unit_test(huge_pages_in_pipes_are_not_lost_sight_of),
		cmocka_unit_test(who_else_has_it_is_noticed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
