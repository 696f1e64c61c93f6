/* The store on devices.
 *
 * A transfer waits by priority, and is cut into operations of at most an extent. Each device has a fixed
 * number of operations. Some are reserved for each priority, because others may wait for long in the device's
 * schedule. A read: extent never written ─► zeros, on a worker; else device ─► verify, on a worker. A write:
 * checksums, on a worker unless the caller gave them ─► free place of the device ─► map. A transfer is done
 * when all that was issued has ended. After the first error no more is issued.
 *
 * A read does not lock its place. If its extent is rewritten meanwhile, the place may have other bytes: the
 * checksums do not match, the version differs, and the read starts again at the new place. A write that
 * fails, or is refused, goes to another place once. A broken place is not used again. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/size.h"
#include "offload/store/extent_store.h"

#define DEFAULT_DEPTH 16
#define MAX_DEPTH 1024
#define RESERVED_PART 4

/* ---- Transfers ---- */

/* Starts the next operation of the transfer, up to the end of its extent. */
static void issue(struct operation *operation, struct store_transfer *transfer, uint64_t extent)
{
	uint64_t extent_bytes = store_extent_bytes(&operation->store->store, transfer->stream);
	uint64_t rest = transfer->length - transfer->issued;
	uint64_t in_extent;

	operation->transfer = transfer;
	queue_push(&transfer->operations, &operation->link);
	operation->priority = transfer->priority;
	++*operation_used(operation);
	operation->extent = extent;
	operation->offset = transfer->offset + transfer->issued;
	operation->buffer = (char *)transfer->buffer + transfer->issued;
	in_extent = operation->offset % extent_bytes;
	operation->length = rest < extent_bytes - in_extent ? rest : extent_bytes - in_extent;
	operation->data_length = operation_entry(operation)->length - in_extent;
	if (operation->data_length > operation->length)
		operation->data_length = operation->length;
	transfer->issued += operation->length;
	operation_start(operation);
}

/* Reserves some operations for demand reads, and some each for prefetch and write-back. Idle transfers have
 * one, because it may wait for long. */
static bool may_use(const struct extent_store *store, const struct device *device,
		    enum tier_priority priority)
{
	unsigned rest = store->depth - store->depth / RESERVED_PART;

	if (priority == TIER_IDLE)
		return device->used[TIER_IDLE] == 0;
	return priority == TIER_DEMAND ||
	       (device->used[priority] < rest - rest / RESERVED_PART &&
		device->used[TIER_PREFETCH] + device->used[TIER_WRITE_BACK] < rest);
}

/* A free operation of the device, or NULL. */
static struct operation *take_operation(struct extent_store *store, struct device *device,
					enum tier_priority priority)
{
	struct queue *link = may_use(store, device, priority) ? queue_pop(&device->free) : NULL;

	if (!link)
		return NULL;
	store->free_count--;
	return queue_entry(link, struct operation, link);
}

/* Whether any device has a free operation for it. */
static bool has_operation(const struct extent_store *store, enum tier_priority priority)
{
	for (unsigned device = 0; device < store->device_count; device++)
		if (!queue_is_empty(&store->devices[device].free) &&
		    may_use(store, &store->devices[device], priority))
			return true;
	return false;
}

static void issue_transfer(struct extent_store *store, struct store_transfer *transfer)
{
	while (transfer->issued < transfer->length) {
		uint64_t extent = store_layout_extent(store->store.layout, transfer->stream,
						      transfer->offset + transfer->issued);
		struct operation *operation = take_operation(
			store, &store->devices[extent % store->device_count], transfer->priority);

		if (!operation)
			return;
		issue(operation, transfer, extent);
	}
	queue_remove(&transfer->link);
}

static void issue_queue(struct extent_store *store, enum tier_priority priority)
{
	struct queue *waiting = &store->waiting[priority];
	struct queue *link = waiting->next;

	/* A transfer whose next device is busy does not delay the others. */
	while (link != waiting && has_operation(store, priority)) {
		struct queue *next = link->next;

		issue_transfer(store, queue_entry(link, struct store_transfer, link));
		link = next;
	}
}

void extent_store_issue(struct extent_store *store)
{
	for (int priority = 0; priority < TIER_PRIORITIES; priority++)
		issue_queue(store, (enum tier_priority)priority);
}

/* Fixed extents have no places for rewrites. */
static bool is_settled(const struct extent_store *store, uint32_t stream)
{
	return store->lineage && store->store.layout->streams[stream].is_fixed &&
	       (store->is_committing || lineage_has_commit(&store->head));
}

int extent_submit(struct store *base, struct store_transfer *transfer)
{
	struct extent_store *store = container_of(base, struct extent_store, store);

	if (transfer->direction == TIER_WRITE && is_settled(store, transfer->stream))
		return -EROFS;
	transfer->issued = transfer->completed = 0;
	transfer->status = 0;
	transfer->fault.stream_offset = transfer->fault.device_offset = 0;
	transfer->fault.device = NULL;
	queue_init(&transfer->operations);
	queue_push(&store->waiting[transfer->priority], &transfer->link);
	extent_store_issue(store);
	return 0;
}

void extent_raise(struct store *base, struct store_transfer *transfer, enum tier_priority priority)
{
	struct extent_store *store = container_of(base, struct extent_store, store);

	transfer->priority = priority;
	QUEUE_FOREACH (link, &transfer->operations) {
		struct operation *operation = queue_entry(link, struct operation, link);

		--*operation_used(operation);
		operation->priority = priority;
		++*operation_used(operation);
		if (operation->is_submitted)
			tier_raise(store->devices[operation->device].tier, &operation->io, priority);
	}
	/* It is in no queue if all of it was issued, or it failed. */
	if (!queue_is_empty(&transfer->link)) {
		queue_remove(&transfer->link);
		queue_push(&store->waiting[priority], &transfer->link);
	}
	extent_store_issue(store);
}

static void for_each_extent(struct extent_store *store, uint32_t stream, uint64_t offset, uint64_t length,
			    void (*call)(struct store_map *map, uint64_t extent))
{
	uint64_t first = store_layout_extent(store->store.layout, stream, offset);
	uint64_t last = store_layout_extent(store->store.layout, stream, offset + length - 1);

	for (uint64_t extent = first; extent <= last; extent++)
		call(&store->map, extent);
	/* Places may have come free. */
	extent_feed(store);
}

int store_abandon(struct store *base, uint32_t stream, uint64_t offset, uint64_t length)
{
	struct extent_store *store = extent_find(base);

	if (!store_layout_has_range(base->layout, stream, offset, length))
		return -EINVAL;
	if (!store)
		return -EOPNOTSUPP;
	for_each_extent(store, stream, offset, length, store_map_abandon);
	return 0;
}

/* Not during a commit: leaves that are not encoded yet would contain the rewrite. */
int store_publish(struct store *base, uint32_t stream, uint64_t offset, uint64_t length)
{
	struct extent_store *store = extent_find_durable(base);

	if (!store_layout_has_range(base->layout, stream, offset, length))
		return -EINVAL;
	if (!store)
		return -EOPNOTSUPP;
	if (store->is_committing)
		return -EBUSY;
	for_each_extent(store, stream, offset, length, store_map_publish);
	return 0;
}

/* ---- The store itself ---- */

static void free_devices(struct extent_store *store)
{
	if (store->lineage) {
		extent_commit_free(store);
		return;
	}
	for (unsigned device = 0; device < store->device_count; device++) {
		tier_free(store->devices[device].tier);
		if (store->places)
			places_destroy(&store->places[device]);
	}
	free(store->places);
}

static void extent_free(struct store *base)
{
	struct extent_store *store = container_of(base, struct extent_store, store);

	assert(!store->operations || store->free_count == store->depth * store->device_count);
	free_devices(store);
	store_map_destroy(&store->map);
	free(store->operations);
	store_layout_free(base->layout);
	free(store);
}

int store_adopt(struct store *base, struct store_layout *layout)
{
	struct extent_store *store = extent_find_durable(base);

	if (!store)
		return -EOPNOTSUPP;
	if (store_layout_extents(layout) != store->map.count ||
	    store_layout_place_bytes(layout) > store->place_bytes)
		return -EINVAL;
	store_layout_free(base->layout);
	base->layout = layout;
	store->head.extents = store_layout_device_extents(layout, store->device_count);
	store_map_adopt(&store->map, layout);
	return 0;
}

void store_belong(struct store *base, const struct store_owner *owner)
{
	struct extent_store *store = extent_find(base);

	if (!store)
		return;
	store->owner = *owner;
	for (unsigned device = 0; owner->share.weight > 0 && !store->is_fork && device < store->device_count;
	     device++)
		tier_weigh(store->devices[device].tier, &owner->share);
}

void store_keep(struct store *base, bool is_kept)
{
	struct extent_store *store = extent_find(base);

	if (!store)
		return;
	/* They need not be open. */
	is_kept |= store->lineage && lineage_has_others(&store->head);
	for (unsigned device = 0; device < store->device_count; device++)
		tier_keep(store->devices[device].tier, is_kept);
}

static uint64_t extent_step(const struct store *base)
{
	const struct extent_store *store = container_of(base, const struct extent_store, store);

	return store->lineage ? lineage_step(&store->head) : 0;
}

const char *store_message(const struct store *base)
{
	const struct extent_store *store = extent_find(base);

	return store ? store->message : "";
}

static const struct store_ops extent_ops = {
	.submit = extent_submit,
	.raise = extent_raise,
	.step = extent_step,
	.free = extent_free,
};

struct extent_store *extent_find(const struct store *base)
{
	return base->ops == &extent_ops ? container_of(base, struct extent_store, store) : NULL;
}

struct extent_store *extent_find_durable(const struct store *base)
{
	struct extent_store *store = extent_find(base);

	return store && store->lineage ? store : NULL;
}

uint64_t store_extent_host_bytes(const struct store_layout *layout, unsigned devices, unsigned depth)
{
	uint64_t extents = store_layout_extents(layout);
	struct lineage_geometry geometry = store_layout_geometry(layout, devices);
	uint64_t bytes = sizeof(struct extent_store) + devices * sizeof(struct device) +
			 store_map_host_bytes(extents) +
			 (uint64_t)devices * (depth ? depth : DEFAULT_DEPTH) * sizeof(struct operation);

	if (layout->is_durable)
		return bytes + tree_host_bytes(extents) + lineage_host_bytes(&geometry, devices) +
		       (extents / NODE_EXTENTS + 1) * sizeof(uint64_t);
	return bytes +
	       devices * (sizeof(struct places) + places_host_bytes(store_layout_places(layout, devices)));
}

/* Without any operation or map. */
static struct extent_store *allocate(const struct store_ops *ops, struct store_layout *layout,
				     unsigned device_count)
{
	struct extent_store *store = calloc(1, sizeof(*store) + device_count * sizeof(store->devices[0]));

	if (!store)
		return NULL;
	store->store.ops = ops;
	store->store.layout = layout;
	store->device_count = device_count;
	for (int priority = 0; priority < TIER_PRIORITIES; priority++)
		queue_init(&store->waiting[priority]);
	queue_init(&store->starved);
	queue_init(&store->parked);
	for (unsigned device = 0; device < device_count; device++)
		queue_init(&store->devices[device].free);
	return store;
}

static int allocate_operations(struct extent_store *store, unsigned depth)
{
	store->operations = calloc((size_t)depth * store->device_count, sizeof(store->operations[0]));
	if (!store->operations)
		return -ENOMEM;
	store->depth = depth;
	store->free_count = depth * store->device_count;
	for (unsigned i = 0; i < store->free_count; i++) {
		struct operation *operation = &store->operations[i];

		operation->store = store;
		operation->device = i / depth;
		queue_init(&operation->wait_link);
		queue_push(&store->devices[operation->device].free, &operation->link);
	}
	return 0;
}

struct extent_store *extent_store_beside(const struct extent_store *store, const struct store_ops *ops,
					 struct store_layout *layout)
{
	struct extent_store *other = allocate(ops, layout, store->device_count);

	if (!other)
		return NULL;
	other->workers = store->workers;
	other->extents_offset = store->extents_offset;
	other->place_bytes = store->place_bytes;
	for (unsigned device = 0; device < store->device_count; device++)
		other->devices[device].tier = store->devices[device].tier;
	if (allocate_operations(other, store->depth) == 0)
		return other;
	free(other);
	return NULL;
}

/* Of a store that is not durable. */
static int init_places(struct extent_store *store)
{
	const struct store_layout *layout = store->store.layout;
	uint64_t places = store_layout_places(layout, store->device_count);
	uint64_t place_bytes = store_layout_place_bytes(layout);
	struct places *devices[SUPERBLOCK_MAX_MEMBERS];
	int r = 0;

	for (unsigned device = 0; device < store->device_count; device++)
		if (store->devices[device].tier->capacity / place_bytes < places)
			return -ENOSPC;
	store->place_bytes = place_bytes;
	store->places = calloc(store->device_count, sizeof(store->places[0]));
	for (unsigned device = 0; store->places && device < store->device_count && r == 0; device++) {
		devices[device] = &store->places[device];
		r = places_init(devices[device], (uint32_t)places);
	}
	if (!store->places || r < 0)
		return -ENOMEM;
	r = store_map_init(&store->map, store_layout_extents(layout), devices, store->device_count);
	if (r == 0)
		store_map_adopt(&store->map, layout);
	return r;
}

/* Takes over the tiers, also after an error. */
static int init_devices(struct extent_store *store, const struct store_config *config, struct tier **tiers)
{
	for (unsigned device = 0; device < store->device_count; device++)
		store->devices[device].tier = tiers[device];
	if (!store->store.layout || store->store.layout->is_durable)
		return extent_commit_init(store, config, tiers);
	return init_places(store);
}

static void free_all(struct store_layout *layout, struct tier **tiers, unsigned tier_count)
{
	for (unsigned device = 0; device < tier_count; device++)
		tier_free(tiers[device]);
	store_layout_free(layout);
}

static int make(const struct store_config *config, struct store_layout *layout, struct tier **tiers,
		unsigned tier_count, struct store **ret_store)
{
	unsigned depth = config->depth ? config->depth : DEFAULT_DEPTH;
	bool is_possible = tier_count > 0 && tier_count <= SUPERBLOCK_MAX_MEMBERS && depth <= MAX_DEPTH;
	struct extent_store *store = is_possible ? allocate(&extent_ops, layout, tier_count) : NULL;
	int r;

	if (!store) {
		free_all(layout, tiers, tier_count);
		return is_possible ? -ENOMEM : -EINVAL;
	}
	store->workers = config->workers;
	store->owner = config->owner;
	r = init_devices(store, config, tiers);
	if (r == 0)
		r = allocate_operations(store, depth);
	if (r < 0) {
		extent_free(&store->store);
		return r;
	}
	*ret_store = &store->store;
	return 0;
}

int store_new_nvme(const struct store_config *config, struct store_layout *layout, struct tier **tiers,
		   unsigned tier_count, struct store **ret_store)
{
	int r = make(config, layout, tiers, tier_count, ret_store);

	if (r == 0)
		(*ret_store)->host_bytes = store_layout_host_bytes(layout) +
					   store_extent_host_bytes(layout, tier_count, config->depth);
	return r;
}

int store_new_found(const struct store_config *config, struct tier **tiers, unsigned tier_count,
		    struct store **ret_store)
{
	return make(config, NULL, tiers, tier_count, ret_store);
}
