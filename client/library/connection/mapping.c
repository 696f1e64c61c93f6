#include "client/library/connection/mapping.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/size.h"

#define HUGE_PAGE (2 * MIB)

/* Reserves address space that is aligned for the huge pages of the file. */
static int reserve(size_t bytes, char **ret_address)
{
	size_t reserved = bytes + HUGE_PAGE;
	char *address = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (address == MAP_FAILED)
		return -errno;
	char *aligned = (char *)size_align((uintptr_t)address, HUGE_PAGE);

	if (aligned > address)
		munmap(address, (size_t)(aligned - address));
	munmap(aligned + bytes, (size_t)(address + reserved - (aligned + bytes)));
	*ret_address = aligned;
	return 0;
}

/* Checks that no mapping is empty, larger than its file, or overlaps the one before; *end: where the last one
 * ends. */
static int check(const struct mapping_file *file, uint64_t *end)
{
	struct stat status;

	if (fstat(file->fd, &status) < 0)
		return -errno;
	if (file->bytes == 0 || file->bytes > (uint64_t)status.st_size || file->offset < *end ||
	    file->offset % 4096 != 0 || file->offset > INT64_MAX - file->bytes - HUGE_PAGE)
		return -EPROTO;
	*end = file->offset + file->bytes;
	return 0;
}

static int map(char *address, const struct mapping_file *file, int protection)
{
	char *at = address + file->offset;

	if (mmap(at, file->bytes, protection, MAP_SHARED | MAP_FIXED, file->fd, 0) == MAP_FAILED ||
	    madvise(at, file->bytes, MADV_DONTFORK) < 0)
		return -errno;
	return 0;
}

int mapping_new_files(const struct mapping_file *files, unsigned count, int protection,
		      struct mapping *ret_mapping)
{
	char *address = NULL;
	uint64_t bytes = 0;
	int r = 0;

	for (unsigned i = 0; i < count && r == 0; i++)
		r = check(&files[i], &bytes);
	if (r == 0)
		r = reserve(size_align(bytes, 4096), &address);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < count && r == 0; i++)
		r = map(address, &files[i], protection);
	if (r < 0) {
		munmap(address, bytes);
		return r;
	}
	*ret_mapping = (struct mapping){ address, bytes };
	return 0;
}

int mapping_new(int fd, uint64_t bytes, int protection, struct mapping *ret_mapping)
{
	const struct mapping_file file = { fd, 0, bytes };

	return mapping_new_files(&file, 1, protection, ret_mapping);
}

int mapping_new_window(int fd, uint64_t bytes, struct mapping *ret_mapping)
{
	/* Any window that holds an element would do; less than a page is a mistake of the daemon's. */
	return bytes < 4096 ? -EPROTO : mapping_new(fd, bytes, PROT_READ | PROT_WRITE, ret_mapping);
}

bool mapping_has(const struct mapping *mapping, const void *address, uint64_t bytes)
{
	uintptr_t at = (uintptr_t)address - (uintptr_t)mapping->address;

	return at < mapping->bytes && bytes <= mapping->bytes - at && at % sizeof(float) == 0;
}

void mapping_free(struct mapping *mapping)
{
	if (mapping->address)
		munmap(mapping->address, mapping->bytes);
	*mapping = (struct mapping){ NULL, 0 };
}
