#include "offload/store/store_device.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "offload/store/superblock.h"

_Static_assert(sizeof(((struct store_device *)NULL)->store) == SUPERBLOCK_IDENTITY_BYTES,
	       "it has room for what superblocks say");

static int read_copy(int fd, unsigned copy, struct superblock *ret_superblock)
{
	uint8_t bytes[SUPERBLOCK_BYTES];
	uint32_t format;
	ssize_t count = pread(fd, bytes, sizeof(bytes), (off_t)copy * SUPERBLOCK_STRIDE);

	if (count < 0)
		return -errno;
	return count == sizeof(bytes) ? superblock_decode(bytes, copy, ret_superblock, &format) : -ENODATA;
}

int store_device_read(int fd, struct store_device *ret_device)
{
	struct superblock found, newest = { .generation = 0 };
	unsigned pairs = 0;
	int r = -ENODATA;

	for (unsigned copy = 0; copy < SUPERBLOCK_COPIES; copy++) {
		int status = read_copy(fd, copy, &found);

		r = pairs == 0 ? status : r;
		if (status < 0)
			continue;
		if (pairs == 0 || found.generation > newest.generation)
			newest = found;
		pairs |= 1U << copy / 2;
		r = 0;
	}
	if (r < 0)
		return r;
	*ret_device = (struct store_device){ .member = newest.member,
					     .member_count = newest.member_count,
					     .generation = pairs == 3 ? newest.generation : 0 };
	memcpy(ret_device->store, newest.store, sizeof(newest.store));
	return 0;
}
