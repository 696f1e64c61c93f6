#include "offload/store.h"

#include <assert.h>
#include <errno.h>
#include <xxhash.h>

#include "offload/store_backend.h"

struct store *store_free(struct store *store)
{
	if (store)
		store->ops->free(store);
	return NULL;
}

const char *store_name(const struct store *store)
{
	return store->ops->name;
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

int store_abandon(struct store *store, uint32_t stream, uint64_t offset, uint64_t length)
{
	if (!store->ops->abandon)
		return -EOPNOTSUPP;
	if (!store_layout_has_range(store->layout, stream, offset, length))
		return -EINVAL;
	return store->ops->abandon(store, stream, offset, length);
}

void *store_address(struct store *store, uint32_t stream, uint64_t offset)
{
	return store->ops->address ? store->ops->address(store, stream, offset) : NULL;
}

int store_commit(struct store *store)
{
	return store->ops->commit ? store->ops->commit(store) : -EOPNOTSUPP;
}

uint64_t store_bytes(const struct store *store, enum tier_direction direction)
{
	return store->bytes[direction];
}

uint64_t store_device_bytes(const struct store *store, unsigned device, enum tier_direction direction)
{
	return store->ops->device_bytes ? store->ops->device_bytes(store, device, direction) : 0;
}

uint64_t store_host_bytes(const struct store *store)
{
	return store->host_bytes;
}

uint64_t store_block_checksum(uint32_t stream, uint64_t offset, const void *block, size_t length)
{
	uint64_t seed = (uint64_t)stream << 48 | offset / STORE_BLOCK_BYTES;

	return XXH3_64bits_withSeed(block, length, seed);
}

uint64_t store_checksum(const struct store *store, uint32_t stream, uint64_t offset, const void *block,
			size_t length)
{
	const struct store_section *section = store_layout_find(store->layout, stream, offset);
	uint64_t rest;

	assert(section);
	rest = section->length - (offset - section->first_extent * STORE_EXTENT_BYTES);
	return store_block_checksum(stream, offset, block, rest < length ? rest : length);
}
