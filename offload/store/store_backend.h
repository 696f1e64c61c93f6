/* What the backends of a store share with its front door. */
#ifndef TIERD_OFFLOAD_STORE_BACKEND_H
#define TIERD_OFFLOAD_STORE_BACKEND_H

#include "offload/store/store_layout.h"

/* Embedded first in every backend's own struct. */
struct store {
	const struct store_ops *ops;
	struct store_layout *layout; /* owned */
	uint64_t bytes[2];	     /* moved, by direction */
	uint64_t host_bytes;
};

/* The checksum of a block of a stream, by its number there; length is that of its bytes in the section. */
uint64_t store_block_checksum(uint32_t stream, uint64_t number, const void *block, size_t length);

/* Host memory of an extent store, without its layout. depth 0: the default. */
uint64_t store_extent_host_bytes(const struct store_layout *layout, unsigned devices, unsigned depth);

#endif
