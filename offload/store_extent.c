/* The store on devices.
 *
 * A transfer waits by priority, and is cut into operations of at most an extent, of which each device has a
 * fixed number; some are left for each priority, because others may wait for long in the device's schedule.
 * An operation that reads: extent never written ─► zeros, on a worker; else device ─► verify, on a worker.
 * One that writes: checksums, on a worker unless the caller gave them ─► free place of the device ─► map. The
 * transfer is done when all that was issued has ended; after the first error no more is.
 *
 * A read needs no lock on its place: where its extent was rewritten meanwhile, the place may hold other bytes
 * by now; then the checksums do not match, the version differs, and it starts again at the new place. A write
 * that fails, or is refused, goes to another place once; a broken place is not used again. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/size.h"
#include "offload/store_backend.h"
#include "offload/store_map.h"

#define DEFAULT_DEPTH 16
#define MAX_DEPTH 1024
#define RESERVED_PART 4

struct operation {
	struct work work;
	struct tier_io io;
	struct queue link; /* of its device while free, else of its transfer */
	struct extent_store *store;
	struct store_transfer *transfer;
	unsigned device;
	uint64_t extent;      /* in the layout */
	uint64_t offset;      /* in the stream */
	uint64_t length;      /* with padding to a page */
	uint64_t data_length; /* without */
	char *buffer;
	uint64_t checksums[STORE_EXTENT_BLOCKS]; /* of its blocks, from the first on */
	uint32_t version;
	bool is_second_try;
	enum tier_priority priority; /* it counts in its device's */
	bool is_submitted;	     /* to the tier */
	int status;
	uint64_t fault_offset; /* of what failed, from the start of the operation */
};

struct device {
	struct tier *tier;
	struct queue free;
	unsigned used[TIER_PRIORITIES];
};

struct extent_store {
	struct store store;
	struct workers *workers;
	struct store_map map;
	struct queue waiting[TIER_PRIORITIES];
	unsigned depth, free_count, device_count;
	struct operation *operations;
	void (*on_moved)(const struct store_failure *failure, void *argument);
	void *argument;
	struct device devices[];
};

static void start_read(struct operation *operation);

static struct store_extent *entry_of(const struct operation *operation)
{
	return &operation->store->map.extents[operation->extent];
}

static unsigned first_block(const struct operation *operation)
{
	return (unsigned)(operation->offset % STORE_EXTENT_BYTES / STORE_BLOCK_BYTES);
}

static unsigned block_count(const struct operation *operation)
{
	return (unsigned)size_divide_up(operation->data_length, STORE_BLOCK_BYTES);
}

static uint8_t block_mask(const struct operation *operation)
{
	return (uint8_t)(((1U << block_count(operation)) - 1) << first_block(operation));
}

static uint64_t device_offset(const struct operation *operation, uint32_t place)
{
	return place * STORE_EXTENT_BYTES + operation->offset % STORE_EXTENT_BYTES;
}

static uint64_t checksum_of(const struct operation *operation, unsigned block)
{
	uint64_t start = block * STORE_BLOCK_BYTES;
	uint64_t rest = operation->data_length - start;

	return store_block_checksum(operation->transfer->stream, operation->offset + start,
				    operation->buffer + start,
				    rest < STORE_BLOCK_BYTES ? rest : STORE_BLOCK_BYTES);
}

/* ---- The end of an operation and of a transfer ---- */

static void fail_transfer(struct operation *operation, int status)
{
	struct store_transfer *transfer = operation->transfer;

	if (transfer->status < 0)
		return;
	transfer->status = status;
	queue_remove(&transfer->link);
	transfer->fault.stream_offset = operation->offset + operation->fault_offset;
	if (!operation->io.done)
		return;
	transfer->fault.device_offset = operation->io.offset + operation->fault_offset;
	transfer->fault.device = operation->store->devices[operation->device].tier->label;
}

static void issue_waiting(struct extent_store *store);

static unsigned *used_by(const struct operation *operation)
{
	return &operation->store->devices[operation->device].used[operation->priority];
}

static void end(struct operation *operation, int status)
{
	struct extent_store *store = operation->store;
	struct store_transfer *transfer = operation->transfer;

	if (status < 0)
		fail_transfer(operation, status);
	transfer->completed += operation->length;
	--*used_by(operation);
	queue_remove(&operation->link);
	queue_push_front(&store->devices[operation->device].free, &operation->link);
	store->free_count++;
	issue_waiting(store);
	/* Last, because the caller may free the store in it. */
	if (transfer->completed == transfer->issued &&
	    (transfer->status < 0 || transfer->issued == transfer->length))
		transfer->done(transfer, transfer->status);
}

static void end_from_worker(struct work *work)
{
	struct operation *operation = container_of(work, struct operation, work);

	end(operation, operation->status);
}

static enum work_urgency urgency_of(const struct store_transfer *transfer)
{
	if (transfer->direction == TIER_WRITE)
		return WORK_NORMAL;
	return transfer->priority == TIER_DEMAND ? WORK_URGENT : WORK_SOON;
}

static void run_on_worker(struct operation *operation, void (*run)(struct work *work),
			  void (*done)(struct work *work))
{
	operation->work.run = run;
	operation->work.done = done;
	operation->work.urgency = urgency_of(operation->transfer);
	workers_submit(operation->store->workers, &operation->work);
}

static void run_nothing(struct work *work)
{
}

/* done() never runs inside a submit, so an operation that cannot start ends by way of a worker. */
static void end_later(struct operation *operation, int status)
{
	operation->status = status;
	run_on_worker(operation, run_nothing, end_from_worker);
}

static int submit_io(struct operation *operation, uint32_t place,
		     void (*done)(struct tier_io *io, int status))
{
	int r;

	operation->io = (struct tier_io){
		.direction = operation->transfer->direction,
		.priority = operation->transfer->priority,
		.buffer = operation->buffer,
		.offset = device_offset(operation, place),
		.length = operation->length,
		.done = done,
	};
	r = tier_submit(operation->store->devices[operation->device].tier, &operation->io);
	operation->is_submitted = r == 0;
	return r;
}

/* ---- Reads ---- */

static void run_zeros(struct work *work)
{
	struct operation *operation = container_of(work, struct operation, work);

	memset(operation->buffer, 0, operation->length);
}

/* Leaves in status the number of matching blocks. */
static void run_verify(struct work *work)
{
	struct operation *operation = container_of(work, struct operation, work);
	unsigned block = 0;

	while (block < block_count(operation) && checksum_of(operation, block) == operation->checksums[block])
		block++;
	operation->status = (int)block;
}

static void read_verified(struct work *work)
{
	struct operation *operation = container_of(work, struct operation, work);
	unsigned matching = (unsigned)operation->status;

	operation->store->store.bytes[TIER_READ] += operation->length;
	if (matching == block_count(operation)) {
		end(operation, 0);
	} else if (operation->version != entry_of(operation)->version) {
		start_read(operation);
	} else {
		operation->fault_offset = matching * STORE_BLOCK_BYTES;
		end(operation, -EBADMSG);
	}
}

static void read_done(struct tier_io *io, int status)
{
	struct operation *operation = container_of(io, struct operation, io);

	operation->is_submitted = false;
	if (status < 0)
		end(operation, status);
	else
		run_on_worker(operation, run_verify, read_verified);
}

static void start_read(struct operation *operation)
{
	const struct store_extent *entry = entry_of(operation);
	int r;

	operation->status = 0;
	if (entry->place == PLACES_NONE) {
		run_on_worker(operation, run_zeros, end_from_worker);
		return;
	}
	operation->version = entry->version;
	memcpy(operation->checksums, entry->checksums + first_block(operation),
	       block_count(operation) * sizeof(uint64_t));
	r = submit_io(operation, entry->place, read_done);
	if (r < 0)
		end_later(operation, r);
}

/* ---- Writes ---- */

static void run_checksum(struct work *work)
{
	struct operation *operation = container_of(work, struct operation, work);

	for (unsigned block = 0; block < block_count(operation); block++)
		operation->checksums[block] = checksum_of(operation, block);
}

static void write_done(struct tier_io *io, int status);

static void tell_moved(const struct operation *operation, int status)
{
	const struct extent_store *store = operation->store;
	struct store_failure failure = {
		.device = store->devices[operation->device].tier->label,
		.device_offset = operation->io.offset,
		.status = status,
	};

	if (store->on_moved)
		store->on_moved(&failure, store->argument);
}

/* Whether a write that has failed, or was refused, has another place to go to. */
static bool find_second_place(struct operation *operation, int status, bool is_broken)
{
	if (operation->is_second_try ||
	    store_map_move(&operation->store->map, operation->extent, block_mask(operation), is_broken) < 0)
		return false;
	operation->is_second_try = true;
	tell_moved(operation, status);
	return true;
}

static void submit_write(struct operation *operation)
{
	int r = submit_io(operation, entry_of(operation)->pending_place, write_done);

	if (r < 0 && find_second_place(operation, r, false))
		r = submit_io(operation, entry_of(operation)->pending_place, write_done);
	if (r < 0) {
		store_map_fail(&operation->store->map, operation->extent, block_mask(operation), false);
		end_later(operation, r);
	}
}

static void write_done(struct tier_io *io, int status)
{
	struct operation *operation = container_of(io, struct operation, io);
	struct extent_store *store = operation->store;
	uint8_t blocks = block_mask(operation);

	operation->is_submitted = false;
	if (status == 0) {
		store->store.bytes[TIER_WRITE] += operation->length;
		store_map_complete(&store->map, operation->extent, blocks, operation->checksums);
		end(operation, 0);
	} else if (find_second_place(operation, status, true)) {
		submit_write(operation);
	} else {
		store_map_fail(&store->map, operation->extent, blocks, true);
		end(operation, status);
	}
}

static void write_checksummed(struct work *work)
{
	submit_write(container_of(work, struct operation, work));
}

static void start_write(struct operation *operation)
{
	const struct store_transfer *transfer = operation->transfer;
	uint64_t first = (operation->offset - transfer->offset) / STORE_BLOCK_BYTES;
	int r = store_map_begin(&operation->store->map, operation->extent, block_mask(operation));

	operation->is_second_try = false;
	if (r < 0) {
		end_later(operation, r);
	} else if (transfer->checksums) {
		memcpy(operation->checksums, transfer->checksums + first,
		       block_count(operation) * sizeof(uint64_t));
		submit_write(operation);
	} else {
		run_on_worker(operation, run_checksum, write_checksummed);
	}
}

/* ---- Transfers ---- */

/* The next part of the transfer, up to the end of its extent. */
static void issue(struct operation *operation, struct store_transfer *transfer, uint64_t extent)
{
	uint64_t rest = transfer->length - transfer->issued;
	uint64_t in_extent;

	operation->transfer = transfer;
	queue_push(&transfer->operations, &operation->link);
	operation->priority = transfer->priority;
	++*used_by(operation);
	operation->extent = extent;
	operation->offset = transfer->offset + transfer->issued;
	operation->buffer = (char *)transfer->buffer + transfer->issued;
	in_extent = operation->offset % STORE_EXTENT_BYTES;
	operation->length = rest < STORE_EXTENT_BYTES - in_extent ? rest : STORE_EXTENT_BYTES - in_extent;
	operation->data_length = entry_of(operation)->length - in_extent;
	if (operation->data_length > operation->length)
		operation->data_length = operation->length;
	operation->io.done = NULL;
	operation->fault_offset = 0;
	transfer->issued += operation->length;
	if (transfer->direction == TIER_READ)
		start_read(operation);
	else
		start_write(operation);
}

/* Some operations are left for demand reads, and some each for prefetch and write-back. */
static bool may_use(const struct extent_store *store, const struct device *device,
		    enum tier_priority priority)
{
	unsigned rest = store->depth - store->depth / RESERVED_PART;

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

	/* One whose next device is busy does not hold up the others. */
	while (link != waiting && has_operation(store, priority)) {
		struct queue *next = link->next;

		issue_transfer(store, queue_entry(link, struct store_transfer, link));
		link = next;
	}
}

static void issue_waiting(struct extent_store *store)
{
	for (int priority = 0; priority < TIER_PRIORITIES; priority++)
		issue_queue(store, (enum tier_priority)priority);
}

static int extent_submit(struct store *base, struct store_transfer *transfer)
{
	struct extent_store *store = container_of(base, struct extent_store, store);

	transfer->issued = transfer->completed = 0;
	transfer->status = 0;
	transfer->fault.stream_offset = transfer->fault.device_offset = 0;
	transfer->fault.device = NULL;
	queue_init(&transfer->operations);
	queue_push(&store->waiting[transfer->priority], &transfer->link);
	issue_waiting(store);
	return 0;
}

static void extent_raise(struct store *base, struct store_transfer *transfer, enum tier_priority priority)
{
	struct extent_store *store = container_of(base, struct extent_store, store);

	transfer->priority = priority;
	QUEUE_FOREACH (link, &transfer->operations) {
		struct operation *operation = queue_entry(link, struct operation, link);

		--*used_by(operation);
		operation->priority = priority;
		++*used_by(operation);
		if (operation->is_submitted)
			tier_raise(store->devices[operation->device].tier, &operation->io, priority);
	}
	/* Not if all of it has been issued, or it has failed. */
	if (!queue_is_empty(&transfer->link)) {
		queue_remove(&transfer->link);
		queue_push(&store->waiting[priority], &transfer->link);
	}
	issue_waiting(store);
}

static int extent_abandon(struct store *base, uint32_t stream, uint64_t offset, uint64_t length)
{
	struct extent_store *store = container_of(base, struct extent_store, store);
	uint64_t first = store_layout_extent(base->layout, stream, offset);
	uint64_t last = store_layout_extent(base->layout, stream, offset + length - 1);

	for (uint64_t extent = first; extent <= last; extent++)
		store_map_abandon(&store->map, extent);
	return 0;
}

/* ---- The store itself ---- */

static void extent_free(struct store *base)
{
	struct extent_store *store = container_of(base, struct extent_store, store);

	assert(!store->operations || store->free_count == store->depth * store->device_count);
	for (unsigned device = 0; device < store->device_count; device++)
		store->devices[device].tier = tier_free(store->devices[device].tier);
	store_map_destroy(&store->map);
	free(store->operations);
	store_layout_free(base->layout);
	free(store);
}

static uint64_t extent_device_bytes(const struct store *base, unsigned device, enum tier_direction direction)
{
	const struct extent_store *store = container_of(base, const struct extent_store, store);

	return store->devices[device].tier->submitted[direction].bytes;
}

static const struct store_ops extent_ops = {
	.name = "nvme",
	.submit = extent_submit,
	.raise = extent_raise,
	.abandon = extent_abandon,
	.device_bytes = extent_device_bytes,
	.free = extent_free,
};

uint64_t store_extent_host_bytes(const struct store_layout *layout, unsigned devices, unsigned depth)
{
	uint64_t extents = store_layout_extents(layout), places = store_layout_places(layout, devices);

	if (depth == 0)
		depth = DEFAULT_DEPTH;
	return sizeof(struct extent_store) + devices * sizeof(struct device) +
	       store_map_host_bytes(extents, places, devices) +
	       (uint64_t)devices * depth * sizeof(struct operation);
}

static struct extent_store *allocate(struct store_layout *layout, struct tier **tiers, unsigned tier_count)
{
	struct extent_store *store = calloc(1, sizeof(*store) + tier_count * sizeof(store->devices[0]));

	if (!store) {
		for (unsigned device = 0; device < tier_count; device++)
			tier_free(tiers[device]);
		store_layout_free(layout);
		return NULL;
	}
	store->store.ops = &extent_ops;
	store->store.layout = layout;
	store->device_count = tier_count;
	for (int priority = 0; priority < TIER_PRIORITIES; priority++)
		queue_init(&store->waiting[priority]);
	for (unsigned device = 0; device < tier_count; device++) {
		store->devices[device].tier = tiers[device];
		queue_init(&store->devices[device].free);
	}
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
		queue_push(&store->devices[operation->device].free, &operation->link);
	}
	return 0;
}

static int allocate_map(struct extent_store *store)
{
	uint64_t places = store_layout_places(store->store.layout, store->device_count);

	for (unsigned device = 0; device < store->device_count; device++)
		if (store->devices[device].tier->capacity / STORE_EXTENT_BYTES < places)
			return -ENOSPC;
	return store_map_init(&store->map, store->store.layout, (uint32_t)places, store->device_count);
}

int store_new_nvme(const struct store_config *config, struct store_layout *layout, struct tier **tiers,
		   unsigned tier_count, struct store **ret_store)
{
	unsigned depth = config->depth ? config->depth : DEFAULT_DEPTH;
	struct extent_store *store = allocate(layout, tiers, tier_count);
	int r = 0;

	if (!store)
		return -ENOMEM;
	store->workers = config->workers;
	store->on_moved = config->on_moved;
	store->argument = config->argument;
	if (tier_count == 0 || depth > MAX_DEPTH)
		r = -EINVAL;
	if (r == 0)
		r = allocate_map(store);
	if (r == 0)
		r = allocate_operations(store, depth);
	if (r < 0) {
		extent_free(&store->store);
		return r;
	}
	store->store.host_bytes =
		store_layout_host_bytes(layout) + store_extent_host_bytes(layout, tier_count, depth);
	*ret_store = &store->store;
	return 0;
}
