#include "offload/store/store.h"

#include <assert.h>
#include <errno.h>

#include "offload/store/checksum.h"
#include "offload/store/store_backend.h"

struct store *store_free(struct store *store)
{
	if (store)
		store->ops->free(store);
	return NULL;
}

int store_submit(struct store *store, struct store_transfer *transfer)
{
	assert(transfer->done);
	assert((unsigned)transfer->priority < TIER_PRIORITIES);
	if (!store->ops->submit)
		return -EOPNOTSUPP;
	if (!store_layout_has_range(store->layout, transfer->stream, transfer->offset, transfer->length) ||
	    (uintptr_t)transfer->buffer % STORE_PAGE_BYTES != 0)
		return -EINVAL;
	return store->ops->submit(store, transfer);
}

void store_raise(struct store *store, struct store_transfer *transfer, enum tier_priority priority)
{
	assert((unsigned)priority < TIER_PRIORITIES);
	if (priority < transfer->priority)
		store->ops->raise(store, transfer, priority);
}

void *store_address(struct store *store, uint32_t stream, uint64_t offset)
{
	return store->ops->address ? store->ops->address(store, stream, offset) : NULL;
}

uint64_t store_extents(const struct store *store)
{
	return store_layout_extents(store->layout);
}

uint64_t store_placed_bytes(const struct store *store)
{
	return store_extents(store) * store_layout_place_bytes(store->layout);
}

uint64_t store_block_bytes(const struct store *store, uint32_t stream)
{
	assert(stream < store->layout->stream_count);
	return store->layout->streams[stream].block_bytes;
}

uint64_t store_extent_bytes(const struct store *store, uint32_t stream)
{
	return STORE_EXTENT_BLOCKS * store_block_bytes(store, stream);
}

uint64_t store_state_bytes(const struct store *store)
{
	return store_layout_state_bytes(store->layout);
}

void store_find_extent(const struct store *store, uint64_t extent, struct store_range *ret_range)
{
	*ret_range = store_layout_range_of(store->layout, extent);
}

void store_find_blocks(const struct store *store, uint32_t stream, uint64_t offset, uint64_t length,
		       struct store_range *ret_range)
{
	struct store_range bytes = { stream, offset, length };

	*ret_range = store_layout_around(store->layout, &bytes, store_block_bytes(store, stream));
}

void store_find_extents(const struct store *store, uint32_t stream, uint64_t offset, uint64_t length,
			struct store_range *ret_range)
{
	struct store_range bytes = { stream, offset, length };

	*ret_range = store_layout_around(store->layout, &bytes, store_extent_bytes(store, stream));
}

const char *store_stream_name(const struct store *store, uint32_t stream)
{
	assert(stream < store->layout->stream_count);
	return store->layout->streams[stream].name;
}

uint64_t store_step(const struct store *store)
{
	return store->ops->step ? store->ops->step(store) : 0;
}

uint64_t store_bytes(const struct store *store, enum tier_direction direction)
{
	return store->bytes[direction];
}

uint64_t store_host_bytes(const struct store *store)
{
	return store->host_bytes;
}

uint64_t store_block_checksum(uint32_t stream, uint64_t number, const void *block, size_t length)
{
	return checksum(block, length, (uint64_t)stream << 48 | number);
}

uint64_t store_checksum(const struct store *store, uint32_t stream, uint64_t offset, const void *block,
			size_t length)
{
	uint64_t rest = store_layout_rest(store->layout, stream, offset);

	assert(rest > 0);
	return store_block_checksum(stream, offset / store_block_bytes(store, stream), block,
				    rest < length ? rest : length);
}

static uint64_t checksum_at(const struct store *store, const struct store_transfer *transfer, uint64_t at)
{
	uint64_t left = transfer->length - at, bytes = store_block_bytes(store, transfer->stream);

	return store_checksum(store, transfer->stream, transfer->offset + at, (char *)transfer->buffer + at,
			      left < bytes ? left : bytes);
}

void store_find_checksums(const struct store *store, const struct store_transfer *transfer, uint64_t from,
			  uint64_t to, uint64_t *checksums)
{
	uint64_t bytes = store_block_bytes(store, transfer->stream);
	uint64_t end = to < transfer->length ? to / bytes * bytes : transfer->length;

	for (uint64_t at = from / bytes * bytes; at < end; at += bytes)
		checksums[at / bytes] = checksum_at(store, transfer, at);
}

bool store_has_checksums(const struct store *store, const struct store_transfer *transfer,
			 const uint64_t *checksums)
{
	uint64_t bytes = store_block_bytes(store, transfer->stream);

	for (uint64_t at = 0; at < transfer->length; at += bytes)
		if (checksum_at(store, transfer, at) != checksums[at / bytes])
			return false;
	return true;
}
