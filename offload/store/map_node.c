#include "offload/store/map_node.h"

#include <assert.h>
#include <errno.h>

#include <xxhash.h>

/* docs/store.md describes it. */
enum {
	AT_MAGIC = 0,
	AT_LEVEL = 8,
	AT_COUNT = 12,
	AT_INDEX = 16,
	AT_GENERATION = 24,
	AT_EPOCH = 32,
	AT_ENTRIES = 64,
	EXTENT_BYTES = 8 + 8 * STORE_EXTENT_BLOCKS,
	POINTER_BYTES = 24,
};
_Static_assert(AT_ENTRIES + NODE_EXTENTS * EXTENT_BYTES <= NODE_BYTES, "a node has room for its extents");
_Static_assert(AT_ENTRIES + NODE_CHILDREN * POINTER_BYTES <= NODE_BYTES, "a node has room for its pointers");

static const char magic[8] = "tierd-nd";

void node_begin(uint8_t bytes[NODE_BYTES], const struct node_header *header)
{
	assert(header->count <= node_capacity(header->level));
	memset(bytes, 0, NODE_BYTES);
	memcpy(bytes + AT_MAGIC, magic, sizeof(magic));
	put32(bytes + AT_LEVEL, header->level);
	put32(bytes + AT_COUNT, header->count);
	put64(bytes + AT_INDEX, header->index);
	put64(bytes + AT_GENERATION, header->generation);
	put64(bytes + AT_EPOCH, header->epoch);
}

void node_put_extent(uint8_t bytes[NODE_BYTES], unsigned entry, const struct node_extent *extent)
{
	uint8_t *at = bytes + AT_ENTRIES + entry * EXTENT_BYTES;

	put32(at, extent->place);
	put16(at + 4, extent->device);
	for (unsigned block = 0; block < STORE_EXTENT_BLOCKS; block++)
		put64(at + 8 + 8 * block, extent->checksums[block]);
}

void node_put_pointer(uint8_t bytes[NODE_BYTES], unsigned entry, const struct node_pointer *pointer)
{
	node_pointer_put(bytes + AT_ENTRIES + entry * POINTER_BYTES, pointer);
}

uint64_t node_checksum(const uint8_t bytes[NODE_BYTES])
{
	return XXH3_64bits(bytes, NODE_BYTES);
}

int node_check(const uint8_t bytes[NODE_BYTES], uint64_t checksum, const struct node_header *expected)
{
	bool is_it = node_checksum(bytes) == checksum &&
		     memcmp(bytes + AT_MAGIC, magic, sizeof(magic)) == 0 &&
		     get32(bytes + AT_LEVEL) == expected->level &&
		     (expected->count == NODE_ANY_COUNT || get32(bytes + AT_COUNT) == expected->count) &&
		     get64(bytes + AT_INDEX) == expected->index;

	return is_it ? 0 : -EBADMSG;
}

uint32_t node_count(const uint8_t bytes[NODE_BYTES])
{
	return get32(bytes + AT_COUNT);
}

void node_get_extent(const uint8_t bytes[NODE_BYTES], unsigned entry, struct node_extent *ret_extent)
{
	const uint8_t *at = bytes + AT_ENTRIES + entry * EXTENT_BYTES;

	ret_extent->place = get32(at);
	ret_extent->device = get16(at + 4);
	for (unsigned block = 0; block < STORE_EXTENT_BLOCKS; block++)
		ret_extent->checksums[block] = get64(at + 8 + 8 * block);
}

void node_get_pointer(const uint8_t bytes[NODE_BYTES], unsigned entry, struct node_pointer *ret_pointer)
{
	*ret_pointer = node_pointer_get(bytes + AT_ENTRIES + entry * POINTER_BYTES);
}
