#include "offload/device/memory.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/size.h"

#define PAGE_BYTES ((size_t)4096)
#define HUGE_BYTES ((size_t)2 << 20)
/* At most, and of how much memory each has a part at least. */
#define POPULATE_THREADS 8
#define POPULATE_LEAST_BYTES ((size_t)64 << 20)
/* While the kernel allocates pages in one call, mmap() and munmap() of other threads wait, and behind those
 * everything that needs a page. It lets them in between huge pages that it collapses. */
#define TOUCH_BYTES ((size_t)8 << 20)

/* Newer than the C library's headers. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* Address space for length bytes from a huge page on; unmaps what is around it. */
static char *reserve_aligned(size_t length)
{
	size_t whole = length + HUGE_BYTES;
	char *start = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t before, after;

	if (start == MAP_FAILED)
		return NULL;
	before = -(uintptr_t)start % HUGE_BYTES;
	after = HUGE_BYTES - before;
	if (before > 0)
		munmap(start, before);
	if (after > 0)
		munmap(start + before + length, after);
	return start + before;
}

static int map(struct memory *memory)
{
	int flags = MAP_FIXED | (memory->fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
	char *base = reserve_aligned(memory->length);

	if (!base)
		return -ENOMEM;
	if (mmap(base, memory->length, PROT_READ | PROT_WRITE, flags, memory->fd, 0) == MAP_FAILED ||
	    madvise(base, memory->length, MADV_DONTFORK) < 0 ||
	    /* A core dump contains the daemon's own memory, not the users'. */
	    madvise(base, memory->length, MADV_DONTDUMP) < 0) {
		int r = -errno;

		munmap(base, memory->length);
		return r;
	}
	memory->base = base;
	return 0;
}

static int round_length(size_t length, size_t *ret_length)
{
	if (length == 0)
		return -EINVAL;
	if (length > (size_t)INT64_MAX - HUGE_BYTES)
		return -ENOMEM;
	*ret_length = size_align(length, PAGE_BYTES);
	return 0;
}

int memory_new_private(size_t length, struct memory *ret_memory)
{
	struct memory memory = MEMORY_INIT;
	int r = round_length(length, &memory.length);

	if (r == 0)
		r = map(&memory);
	if (r == 0)
		*ret_memory = memory;
	return r;
}

/* A new memfd can be opened again by anybody, for writing, through /proc: its mode is 0777. */
int memory_file_new(const char *name, size_t length)
{
	_cleanup_close_ int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || fchmod(fd, 0600) < 0 || ftruncate(fd, (off_t)length) < 0)
		return -errno;
	return TAKE_FD(fd);
}

int memory_new_shared(const char *name, size_t length, struct memory *ret_memory)
{
	_cleanup_close_ int fd = -1;
	struct memory memory = MEMORY_INIT;
	int r = round_length(length, &memory.length);

	if (r < 0)
		return r;
	fd = memory_file_new(name, memory.length);
	if (fd < 0)
		return fd;
	memory.fd = fd;
	r = map(&memory);
	if (r < 0)
		return r;
	(void)TAKE_FD(fd);
	*ret_memory = memory;
	return 0;
}

static int refuse(const char *reason, const char **ret_reason)
{
	*ret_reason = reason;
	return -EINVAL;
}

static int check_size(int fd, size_t length, const char **ret_reason)
{
	const int needed = F_SEAL_SHRINK | F_SEAL_GROW;
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat status;

	if (seals < 0 || (seals & needed) != needed)
		return refuse("its size is not sealed (F_SEAL_SHRINK, F_SEAL_GROW)", ret_reason);
	if (fstat(fd, &status) < 0 || (uint64_t)status.st_size != length)
		return refuse("it has another size", ret_reason);
	return 0;
}

/* After the seal nobody can make a hole. The number of blocks does not tell, because some may be behind the
 * end. */
static int seal_whole(int fd, size_t length, const char **ret_reason)
{
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) < 0)
		return refuse("it cannot be sealed (F_SEAL_FUTURE_WRITE)", ret_reason);
	if (lseek(fd, 0, SEEK_HOLE) != (off_t)length)
		return refuse("it has pages that were never written", ret_reason);
	return 0;
}

int memory_adopt(int fd, size_t length, struct memory *ret_memory, const char **ret_reason)
{
	struct memory memory = { .length = length, .fd = fd };
	int r = check_size(fd, length, ret_reason);

	if (r < 0)
		return r;
	if (map(&memory) < 0)
		return refuse("it cannot be mapped for writing", ret_reason);
	memory.fd = -1;
	r = seal_whole(fd, length, ret_reason);
	if (r < 0)
		memory_free(&memory);
	else
		*ret_memory = memory;
	return r;
}

/* A huge page without any page is not collapsed, so each gets its first one before. */
static bool collapse(const struct memory *memory, size_t begin, size_t length)
{
	size_t first = size_align(begin, HUGE_BYTES), end = (begin + length) / HUGE_BYTES * HUGE_BYTES;

	for (size_t offset = first; offset < end; offset += HUGE_BYTES)
		if (madvise(memory->base + offset, PAGE_BYTES, MADV_POPULATE_WRITE) < 0)
			return false;
	return first < end && madvise(memory->base + first, end - first, MADV_COLLAPSE) == 0;
}

void memory_touch(void *base, size_t length)
{
	for (size_t offset = 0, step; offset < length; offset += step) {
		step = length - offset < TOUCH_BYTES ? length - offset : TOUCH_BYTES;
		if (madvise((char *)base + offset, step, MADV_POPULATE_WRITE) < 0)
			return;
	}
}

struct part {
	const struct memory *memory;
	size_t offset, length;
	pthread_t thread;
	bool has_thread, is_huge;
};

static void *populate_part(void *argument)
{
	struct part *part = argument;

	part->is_huge = collapse(part->memory, part->offset, part->length);
	memory_touch(part->memory->base + part->offset, part->length);
	return NULL;
}

static size_t count_parts(size_t length)
{
	size_t processors = (size_t)sysconf(_SC_NPROCESSORS_ONLN), most = length / POPULATE_LEAST_BYTES;

	if (most > processors)
		most = processors;
	if (most > POPULATE_THREADS)
		most = POPULATE_THREADS;
	return most > 0 ? most : 1;
}

/* The kernel clears pages in the thread that asks, at a rate that memory exceeds. */
bool memory_populate(const struct memory *memory, size_t offset, size_t length)
{
	struct part parts[POPULATE_THREADS];
	size_t count = count_parts(length), end = offset + length, begin = offset;
	bool is_huge = true;

	for (size_t i = 0; i < count; i++) {
		size_t next = i + 1 < count ? size_align(offset + length / count * (i + 1), HUGE_BYTES) : end;

		parts[i] = (struct part){ .memory = memory, .offset = begin, .length = next - begin };
		begin = next;
	}
	for (size_t i = 1; i < count; i++)
		parts[i].has_thread = pthread_create(&parts[i].thread, NULL, populate_part, &parts[i]) == 0;
	for (size_t i = 0; i < count; i++) {
		if (parts[i].has_thread)
			pthread_join(parts[i].thread, NULL);
		else
			populate_part(&parts[i]);
		is_huge &= parts[i].is_huge;
	}
	return is_huge;
}

int memory_discard(const struct memory *memory, size_t offset, size_t length)
{
	assert(memory->fd >= 0);
	return fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
			 (off_t)length) < 0
		       ? -errno
		       : 0;
}

void memory_make_huge(struct memory *memory, bool should_populate)
{
	bool has_advice = madvise(memory->base, memory->length, MADV_HUGEPAGE) == 0;

	/* Of shared memory the kernel's shmem_enabled decides, and it is mostly off. */
	memory->is_huge = has_advice && memory->fd < 0 && memory->length >= HUGE_BYTES;
	if (should_populate)
		memory->is_huge = memory_populate(memory, 0, memory->length);
}

/* If a hole contains a whole huge page, the page leaves the file at once, also while somebody still has a
 * part of it (in a pipe, say), and is not counted any more. If a hole cuts a huge page, the kernel has to
 * split it, and does so only if nobody else has it. */
#define PIECE_BYTES (HUGE_BYTES / 2)

size_t memory_take_back(struct memory *memory)
{
	if (memory->base)
		munmap(memory->base, memory->length);
	memory->base = NULL;
	for (size_t offset = 0; offset < memory->length; offset += PIECE_BYTES) {
		size_t rest = memory->length - offset;

		(void)memory_discard(memory, offset, rest < PIECE_BYTES ? rest : PIECE_BYTES);
	}
	return memory_resident(memory);
}

static int open_again(const struct memory *memory, int flags)
{
	char path[32];
	int fd;

	assert(memory->fd >= 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory->fd);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* The kernel grants a write lease only if nobody else has the file open or mapped. The description of
 * memfd_create() does not count. */
bool memory_is_alone(const struct memory *memory)
{
	_cleanup_close_ int fd = open_again(memory, O_RDONLY);

	return fd >= 0 && fcntl(fd, F_SETLEASE, F_WRLCK) == 0;
}

int memory_seal(struct memory *memory)
{
	assert(memory->fd >= 0);
	return fcntl(memory->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 ? -errno : 0;
}

int memory_client_fd(const struct memory *memory, enum memory_access access)
{
	return open_again(memory, access == MEMORY_WRITABLE ? O_RDWR : O_RDONLY);
}

static size_t count_resident(char *base, size_t length)
{
	unsigned char pages[4096];
	size_t resident = 0;

	for (size_t offset = 0; offset < length; offset += sizeof(pages) * PAGE_BYTES) {
		size_t rest = length - offset;
		size_t part = rest < sizeof(pages) * PAGE_BYTES ? rest : sizeof(pages) * PAGE_BYTES;

		if (mincore(base + offset, part, pages) < 0)
			return length;
		for (size_t page = 0; page < part / PAGE_BYTES; page++)
			resident += pages[page] & 1;
	}
	return resident * PAGE_BYTES;
}

size_t memory_resident(const struct memory *memory)
{
	struct stat status;

	if (memory->fd < 0)
		return memory->base ? count_resident(memory->base, memory->length) : 0;
	return fstat(memory->fd, &status) < 0 ? memory->length : (size_t)status.st_blocks * 512;
}

void memory_free(struct memory *memory)
{
	if (memory->base)
		munmap(memory->base, memory->length);
	fd_close(memory->fd);
	*memory = (struct memory)MEMORY_INIT;
}
