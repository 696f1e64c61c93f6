#include "offload/store_device.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "offload/superblock.h"

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
	struct superblock found;
	int r = -ENODATA;

	for (unsigned copy = 0; copy < SUPERBLOCK_COPIES && r < 0; copy++)
		r = read_copy(fd, copy, &found);
	if (r < 0)
		return r;
	*ret_device = (struct store_device){ .member = found.member, .member_count = found.member_count };
	memcpy(ret_device->store, found.store, sizeof(found.store));
	return 0;
}
