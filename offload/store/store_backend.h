/* What the backends of a store share with its front door. */
#ifndef TIERD_OFFLOAD_STORE_BACKEND_H
#define TIERD_OFFLOAD_STORE_BACKEND_H

#include "offload/store/store_layout.h"

/* What more than one of them does: a store in host memory, one on devices, a view of one. All else is of one
 * on devices alone. */
struct store_ops {
	/* NULL: its state is reached by address. */
	int (*submit)(struct store *store, struct store_transfer *transfer);
	void (*raise)(struct store *store, struct store_transfer *transfer, enum tier_priority priority);
	/* NULL: it is reached by transfers. */
	void *(*address)(struct store *store, uint32_t stream, uint64_t offset);
	/* NULL: it commits nothing. */
	uint64_t (*step)(const struct store *store);
	void (*free)(struct store *store);
};

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
