/* An operation of a store on devices reads and verifies at most an extent, or writes it to a free place. */
#include <errno.h>
#include <string.h>

#include "common/size.h"
#include "offload/store/extent_store.h"

static void start_read(struct operation *operation);

struct store_extent *operation_entry(const struct operation *operation)
{
	return &operation->store->map.extents[operation->extent];
}

static uint64_t block_bytes(const struct operation *operation)
{
	return store_block_bytes(&operation->store->store, operation->transfer->stream);
}

static unsigned first_block(const struct operation *operation)
{
	return (unsigned)(operation->offset / block_bytes(operation) % STORE_EXTENT_BLOCKS);
}

static unsigned block_count(const struct operation *operation)
{
	return (unsigned)size_divide_up(operation->data_length, block_bytes(operation));
}

static uint8_t block_mask(const struct operation *operation)
{
	return (uint8_t)(((1U << block_count(operation)) - 1) << first_block(operation));
}

static uint64_t checksum_of(const struct operation *operation, unsigned block)
{
	uint64_t bytes = block_bytes(operation), start = block * bytes;
	uint64_t rest = operation->data_length - start;

	return store_block_checksum(operation->transfer->stream, operation->offset / bytes + block,
				    operation->buffer + start, rest < bytes ? rest : bytes);
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

unsigned *operation_used(const struct operation *operation)
{
	return &operation->store->devices[operation->device].used[operation->priority];
}

static unsigned block_in_transfer(const struct operation *operation)
{
	return (unsigned)((operation->offset - operation->transfer->offset) / block_bytes(operation));
}

static void tell_expected(const struct operation *operation)
{
	memcpy(operation->transfer->expected + block_in_transfer(operation), operation->checksums,
	       block_count(operation) * sizeof(uint64_t));
}

static void end(struct operation *operation, int status)
{
	struct extent_store *store = operation->store;
	struct store_transfer *transfer = operation->transfer;

	if (status < 0)
		fail_transfer(operation, status);
	else if (transfer->direction == TIER_READ && transfer->expected)
		tell_expected(operation);
	transfer->completed += operation->length;
	--*operation_used(operation);
	queue_remove(&operation->link);
	queue_push_front(&store->devices[operation->device].free, &operation->link);
	store->free_count++;
	extent_store_issue(store);
	/* Last, because the caller may free the store in it. */
	if (transfer->completed == transfer->issued &&
	    (transfer->status < 0 || transfer->issued == transfer->length))
		transfer->done(transfer, transfer->status);
}

static void end_from_worker(struct work *work)
{
	struct operation *operation = container_of(work, struct operation, work);

	/* A refused write may have freed its place. */
	if (operation->transfer->direction == TIER_WRITE)
		extent_feed(operation->store);
	end(operation, operation->status);
}

static enum work_urgency urgency_of(const struct store_transfer *transfer)
{
	if (transfer->direction == TIER_WRITE)
		return WORK_NORMAL;
	if (transfer->priority == TIER_IDLE)
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

void operation_run_nothing(struct work *work)
{
}

/* done() never runs inside a submit, so an operation that cannot start ends on the way by a worker. */
static void end_later(struct operation *operation, int status)
{
	operation->status = status;
	run_on_worker(operation, operation_run_nothing, end_from_worker);
}

static int submit_io(struct operation *operation, uint32_t place,
		     void (*done)(struct tier_io *io, int status))
{
	int r;

	operation->io = (struct tier_io){
		.direction = operation->transfer->direction,
		.priority = operation->transfer->priority,
		.buffer = operation->buffer,
		.offset = extent_place_offset(operation->store, place) +
			  first_block(operation) * block_bytes(operation),
		.length = operation->length,
		.done = done,
	};
	r = tier_submit(operation->store->devices[operation->device].tier, &operation->io);
	operation->is_submitted = r == 0;
	return r;
}

/* ---- Reads ---- */

static void run_checksum(struct work *work)
{
	struct operation *operation = container_of(work, struct operation, work);

	for (unsigned block = 0; block < block_count(operation); block++)
		operation->checksums[block] = checksum_of(operation, block);
}

static void run_zeros(struct work *work)
{
	struct operation *operation = container_of(work, struct operation, work);

	memset(operation->buffer, 0, operation->length);
	if (operation->transfer->expected)
		run_checksum(work);
}

/* Sets status to the number of matching blocks. */
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
	} else if (operation->version != operation_entry(operation)->version) {
		start_read(operation);
	} else {
		operation->fault_offset = matching * block_bytes(operation);
		end(operation, -EBADMSG);
	}
}

/* What has not been rewritten meanwhile was not overwritten, either. */
static void hand_unverified(struct operation *operation)
{
	operation->store->store.bytes[TIER_READ] += operation->length;
	if (operation->version == operation_entry(operation)->version)
		end(operation, 0);
	else
		start_read(operation);
}

static void read_done(struct tier_io *io, int status)
{
	struct operation *operation = container_of(io, struct operation, io);

	operation->is_submitted = false;
	if (status < 0)
		end(operation, status);
	else if (operation->transfer->expected)
		hand_unverified(operation);
	else
		run_on_worker(operation, run_verify, read_verified);
}

static void start_read(struct operation *operation)
{
	const struct store_extent *entry = operation_entry(operation);
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

static void write_done(struct tier_io *io, int status);

static void tell_moved(const struct operation *operation, int status)
{
	const struct extent_store *store = operation->store;
	struct store_failure failure = {
		.device = store->devices[operation->device].tier->label,
		.device_offset = operation->io.offset,
		.status = status,
	};

	if (store->owner.on_moved)
		store->owner.on_moved(&failure, store->owner.argument);
}

/* Finds another place for a write that failed, or was refused. */
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
	int r = submit_io(operation, operation_entry(operation)->pending_place, write_done);

	if (r < 0 && find_second_place(operation, r, false))
		r = submit_io(operation, operation_entry(operation)->pending_place, write_done);
	if (r < 0) {
		store_map_fail(&operation->store->map, operation->extent, block_mask(operation), false);
		end_later(operation, r);
	}
}

static void complete_write(struct operation *operation)
{
	struct extent_store *store = operation->store;

	store_map_complete(&store->map, operation->extent, block_mask(operation), operation->checksums);
	extent_feed(store);
	end(operation, 0);
}

/* Whether the store is read only from now on. */
static bool has_ended(const struct extent_store *store)
{
	return store->lineage && (lineage_is_fenced(store->lineage) || store->head.has_ended);
}

static void complete_parked(struct work *work)
{
	struct operation *operation = container_of(work, struct operation, work);

	if (!has_ended(operation->store)) {
		complete_write(operation);
		return;
	}
	store_map_fail(&operation->store->map, operation->extent, block_mask(operation), false);
	end(operation, -EROFS);
}

/* Not at once, because the caller is encoding the leaf. */
void operation_unpark(struct operation *operation)
{
	queue_remove(&operation->wait_link);
	run_on_worker(operation, operation_run_nothing, complete_parked);
}

static void write_done(struct tier_io *io, int status)
{
	struct operation *operation = container_of(io, struct operation, io);
	struct extent_store *store = operation->store;
	uint8_t blocks = block_mask(operation);

	operation->is_submitted = false;
	if (status == 0) {
		store->store.bytes[TIER_WRITE] += operation->length;
		if (store->is_committing && tree_is_frozen(&store->head.tree, operation->extent))
			queue_push(&store->parked, &operation->wait_link);
		else
			complete_write(operation);
	} else if (find_second_place(operation, status, true)) {
		submit_write(operation);
	} else {
		store_map_fail(&store->map, operation->extent, blocks, true);
		extent_feed(store);
		end(operation, status);
	}
}

static void write_checksummed(struct work *work)
{
	submit_write(container_of(work, struct operation, work));
}

/* Whether places will come free: by other rewrites, by the commit under way, or from another job. Rewrites
 * that are held back free none before they are published. */
static bool may_wait(const struct extent_store *store)
{
	return store->map.rewrites > store->map.held_back ||
	       (store->lineage && (store->is_committing || lineage_attached(store->lineage) > 1));
}

/* A full rewrite takes all places between two commits. Fixed extents have no places for rewrites: before the
 * first commit they take those of others, or wait. */
static int find_place(struct operation *operation)
{
	struct extent_store *store = operation->store;
	int r;

	if (has_ended(store) || (store->lineage && lineage_has_lost(store->lineage)))
		return -EROFS;
	r = store_map_begin(&store->map, operation->extent, block_mask(operation));
	if (r == 0 && operation->transfer->is_held)
		store_map_hold(&store->map, operation->extent);
	return r == -ENOSPC && may_wait(store) ? -EAGAIN : r;
}

static void start_write(struct operation *operation)
{
	const struct store_transfer *transfer = operation->transfer;
	int r = find_place(operation);

	operation->is_second_try = false;
	if (r == -EAGAIN) {
		queue_push(&operation->store->starved, &operation->wait_link);
	} else if (r < 0) {
		end_later(operation, r);
	} else if (transfer->checksums) {
		memcpy(operation->checksums, transfer->checksums + block_in_transfer(operation),
		       block_count(operation) * sizeof(uint64_t));
		submit_write(operation);
	} else {
		run_on_worker(operation, run_checksum, write_checksummed);
	}
}

void operation_feed(struct extent_store *store)
{
	struct queue starved, *link;

	queue_init(&starved);
	while ((link = queue_pop(&store->starved)))
		queue_push(&starved, link);
	while ((link = queue_pop(&starved)))
		start_write(queue_entry(link, struct operation, wait_link));
}

void extent_feed(struct extent_store *store)
{
	if (store->lineage)
		lineage_feed(store->lineage);
	else
		operation_feed(store);
}

void operation_start(struct operation *operation)
{
	operation->io.done = NULL;
	operation->fault_offset = 0;
	if (operation->transfer->direction == TIER_READ)
		start_read(operation);
	else
		start_write(operation);
}
