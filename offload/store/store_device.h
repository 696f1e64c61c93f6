/* What a file of a store says of itself before the store is opened: which of its devices it is. */
#ifndef TIERD_OFFLOAD_STORE_DEVICE_H
#define TIERD_OFFLOAD_STORE_DEVICE_H

#include <stdint.h>

struct store_device {
	unsigned member, member_count; /* the first one is 0 */
	uint8_t store[16];	       /* random: the same on all of its devices, and on no others */
	uint64_t generation;	       /* of the newest copy; 0: a pair has no whole one, so it may be lost */
};

/* Of the whole copies of its superblock. But for the generation no commit ever changes it, so nobody need be
 * waited for who still writes. -ENODATA: none is whole; -EPROTONOSUPPORT: another format; or what reading has
 * failed with. */
int store_device_read(int fd, struct store_device *ret_device);

#endif
