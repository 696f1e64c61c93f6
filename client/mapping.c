#include "client/mapping.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/size.h"

#define HUGE_PAGE (2 * MIB)

/* Address space whose huge pages begin where the file's do; what is too much is given back. */
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

int mapping_new(int fd, uint64_t bytes, int protection, struct mapping *ret_mapping)
{
	struct stat status;
	char *address = NULL;
	int r;

	if (fstat(fd, &status) < 0)
		return -errno;
	if (bytes == 0 || bytes > (uint64_t)status.st_size)
		return -EPROTO;
	r = reserve(size_align(bytes, 4096), &address);
	if (r < 0)
		return r;
	if (mmap(address, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED ||
	    madvise(address, bytes, MADV_DONTFORK) < 0) {
		r = -errno;
		munmap(address, bytes);
		return r;
	}
	*ret_mapping = (struct mapping){ address, bytes };
	return 0;
}

void mapping_free(struct mapping *mapping)
{
	if (mapping->address)
		munmap(mapping->address, mapping->bytes);
	*mapping = (struct mapping){ NULL, 0 };
}
