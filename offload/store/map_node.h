/* A node of a store's map, as it lies on a device: 4 KiB of entries under a header. Bytes only, no I/O.
 *
 * The map of a job is a tree of fixed shape over its extents, which are numbered through: node i of level 0
 * has the entries of extents i · NODE_EXTENTS …, node i of level n + 1 the pointers to nodes i ·
 * NODE_CHILDREN … of level n. A pointer has its node's checksum, so whoever trusts the root can trust all
 * that it finds. */
#ifndef TIERD_OFFLOAD_MAP_NODE_H
#define TIERD_OFFLOAD_MAP_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "offload/store/store.h"
#include "offload/store/superblock.h"

#define NODE_BYTES 4096
#define NODE_EXTENTS 100
#define NODE_CHILDREN 168
#define NODE_NOWHERE UINT64_MAX
/* Of a node whose count is not known before it is read. */
#define NODE_ANY_COUNT UINT32_MAX

/* Where an extent lies, with the checksums of its blocks. */
struct node_extent {
	uint16_t device;
	uint32_t place; /* UINT32_MAX: it was never written, and is all zeros */
	uint64_t checksums[STORE_EXTENT_BLOCKS];
};

/* What a node is, beside its entries. */
struct node_header {
	uint32_t level;		    /* 0: extents, else pointers */
	uint32_t count;		    /* of entries */
	uint64_t index;		    /* of the node in its level */
	uint64_t generation, epoch; /* that wrote it */
};

/* A pointer to no node: all that lies below was never written. */
#define NODE_POINTER_NONE ((struct node_pointer){ { NODE_NOWHERE, NODE_NOWHERE }, 0 })
static inline bool node_pointer_is_none(const struct node_pointer *pointer)
{
	return pointer->places[0] == NODE_NOWHERE;
}

/* Entries a node of the level can have. */
static inline unsigned node_capacity(uint32_t level)
{
	return level == 0 ? NODE_EXTENTS : NODE_CHILDREN;
}

/* An empty node; then its entries are put, each of them. */
void node_begin(uint8_t bytes[NODE_BYTES], const struct node_header *header);
void node_put_extent(uint8_t bytes[NODE_BYTES], unsigned entry, const struct node_extent *extent);
void node_put_pointer(uint8_t bytes[NODE_BYTES], unsigned entry, const struct node_pointer *pointer);
uint64_t node_checksum(const uint8_t bytes[NODE_BYTES]);

/* Whether these are the bytes of the node that a pointer's checksum and its place in the tree promise:
 * -EBADMSG. */
int node_check(const uint8_t bytes[NODE_BYTES], uint64_t checksum, const struct node_header *expected);
/* Of a node that has been checked. */
uint32_t node_count(const uint8_t bytes[NODE_BYTES]);
void node_get_extent(const uint8_t bytes[NODE_BYTES], unsigned entry, struct node_extent *ret_extent);
void node_get_pointer(const uint8_t bytes[NODE_BYTES], unsigned entry, struct node_pointer *ret_pointer);

#endif
