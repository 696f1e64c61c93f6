#include "offload/store/store.h"

#include <assert.h>
#include <errno.h>
#include <xxhash.h>

#include "offload/store/store_backend.h"
#include "offload/store/store_verify.h"

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

int store_publish(struct store *store, uint32_t stream, uint64_t offset, uint64_t length)
{
	if (!store->ops->publish)
		return -EOPNOTSUPP;
	if (!store_layout_has_range(store->layout, stream, offset, length))
		return -EINVAL;
	return store->ops->publish(store, stream, offset, length);
}

void *store_address(struct store *store, uint32_t stream, uint64_t offset)
{
	return store->ops->address ? store->ops->address(store, stream, offset) : NULL;
}

int store_create(struct store *store, struct store_request *request)
{
	return store->ops->create ? store->ops->create(store, request) : -EOPNOTSUPP;
}

int store_open(struct store *store, struct store_request *request)
{
	return store->ops->open ? store->ops->open(store, request) : -EOPNOTSUPP;
}

int store_commit(struct store *store, uint64_t step, struct store_request *request)
{
	return store->ops->commit ? store->ops->commit(store, step, request) : -EOPNOTSUPP;
}

int store_adopt(struct store *store, struct store_layout *layout)
{
	return store->ops->adopt ? store->ops->adopt(store, layout) : -EOPNOTSUPP;
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

void store_find_extent(const struct store *store, uint64_t extent, struct store_piece *ret_piece)
{
	*ret_piece = store_layout_piece(store->layout, extent);
}

void store_find_blocks(const struct store *store, uint32_t stream, uint64_t offset, uint64_t length,
		       struct store_piece *ret_piece)
{
	struct store_piece bytes = { stream, offset, length };

	*ret_piece = store_layout_around(store->layout, &bytes, store_block_bytes(store, stream));
}

void store_find_extents(const struct store *store, uint32_t stream, uint64_t offset, uint64_t length,
			struct store_piece *ret_piece)
{
	struct store_piece bytes = { stream, offset, length };

	*ret_piece = store_layout_around(store->layout, &bytes, store_extent_bytes(store, stream));
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

const char *store_message(const struct store *store)
{
	return store->ops->message ? store->ops->message(store) : "";
}

void store_belong(struct store *store, const struct store_owner *owner)
{
	if (store->ops->belong)
		store->ops->belong(store, owner);
}

void store_keep(struct store *store, bool is_kept)
{
	if (store->ops->keep)
		store->ops->keep(store, is_kept);
}

int store_snapshot(struct store *store, const char *name, struct store_request *request)
{
	return store->ops->snapshots ? store->ops->snapshots->take(store, name, request) : -EOPNOTSUPP;
}

int store_delete_snapshot(struct store *store, const char *name, struct store_request *request)
{
	return store->ops->snapshots ? store->ops->snapshots->drop(store, name, request) : -EOPNOTSUPP;
}

int store_delete_lost(struct store *store, const char *name, struct store_request *request)
{
	return store->ops->snapshots ? store->ops->snapshots->drop_lost(store, name, request) : -EOPNOTSUPP;
}

int store_roll_back(struct store *store, const char *name, struct store_request *request)
{
	return store->ops->snapshots ? store->ops->snapshots->roll_back(store, name, request) : -EOPNOTSUPP;
}

int store_measure_snapshot(struct store *store, const char *name, struct store_request *request,
			   uint64_t *ret_bytes)
{
	if (!store->ops->snapshots)
		return -EOPNOTSUPP;
	return store->ops->snapshots->measure(store, name, request, ret_bytes);
}

int store_diff(struct store *store, const char *from, const char *to, struct store_request *request,
	       uint64_t *ret_bytes)
{
	if (!store->ops->snapshots)
		return -EOPNOTSUPP;
	return store->ops->snapshots->diff(store, from, to, request, ret_bytes);
}

int store_reserve(struct store *store, unsigned snapshots, struct store_request *request)
{
	return store->ops->snapshots ? store->ops->snapshots->reserve(store, snapshots, request)
				     : -EOPNOTSUPP;
}

unsigned store_reserved(const struct store *store)
{
	return store->ops->snapshots ? store->ops->snapshots->reserved(store) : 0;
}

struct store_room store_room_for(const struct store *store, unsigned snapshots)
{
	return store->ops->snapshots ? store->ops->snapshots->room(store, snapshots)
				     : (struct store_room){ 0, 0 };
}

int store_verify(struct store *store, struct store_verification *verification, struct store_request *request)
{
	return store->ops->snapshots ? store->ops->snapshots->verify(store, verification, request)
				     : -EOPNOTSUPP;
}

unsigned store_snapshots(const struct store *store, struct store_snapshot *ret_snapshots)
{
	return store->ops->snapshots ? store->ops->snapshots->list(store, ret_snapshots) : 0;
}

int store_open_snapshot(struct store *store, const char *name, struct store_request *request,
			struct store **ret_view)
{
	if (!store->ops->snapshots)
		return -EOPNOTSUPP;
	return store->ops->snapshots->open(store, name, request, ret_view);
}

int store_fork(struct store *store, const struct store_fork *fork, struct store_request *request,
	       struct store **ret_fork)
{
	return store->ops->forks ? store->ops->forks->fork(store, fork, request, ret_fork) : -EOPNOTSUPP;
}

int store_attach(struct store *store, const char *name, struct store_request *request, struct store **ret_job)
{
	return store->ops->forks ? store->ops->forks->attach(store, name, request, ret_job) : -EOPNOTSUPP;
}

int store_drop(struct store *store, struct store_request *request)
{
	return store->ops->forks ? store->ops->forks->drop(store, request) : -EOPNOTSUPP;
}

int store_drop_lost(struct store *store, const char *name, struct store_request *request)
{
	return store->ops->forks ? store->ops->forks->drop_lost(store, name, request) : -EOPNOTSUPP;
}

unsigned store_jobs(const struct store *store, struct store_job *ret_jobs)
{
	return store->ops->forks ? store->ops->forks->list(store, ret_jobs) : 0;
}

void store_get_family(const struct store *store, struct store_family *ret_family)
{
	*ret_family = (struct store_family){ .jobs = 1 };
	if (store->ops->forks)
		store->ops->forks->family(store, ret_family);
}

struct store_room store_room_for_fork(const struct store *store, unsigned snapshots)
{
	return store->ops->forks ? store->ops->forks->room(store, snapshots) : (struct store_room){ 0, 0 };
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
	return XXH3_64bits_withSeed(block, length, (uint64_t)stream << 48 | number);
}

uint64_t store_checksum(const struct store *store, uint32_t stream, uint64_t offset, const void *block,
			size_t length)
{
	uint64_t rest = store_layout_rest(store->layout, stream, offset);

	assert(rest > 0);
	return store_block_checksum(stream, offset / store_block_bytes(store, stream), block,
				    rest < length ? rest : length);
}
