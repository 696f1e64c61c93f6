#include "tests/unit/disk_store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/io_support.h"
#include "tests/unit/test.h"

/* ---- What it is ---- */

unsigned disk_store_choose(struct disk_store *disk, unsigned bound)
{
	disk->random = disk->random * 6364136223846793005 + 1442695040888963407;
	return (unsigned)((disk->random >> 33) % bound);
}

/* The extents of its first stream. */
static unsigned first_extents(const struct disk_store *disk)
{
	return disk->fixed > 0 ? disk->fixed : disk->extents / 2;
}

static struct store_layout *make_layout(const struct disk_store *disk)
{
	struct store_layout *layout;
	uint64_t offset;

	assert_int_equal(store_layout_new(&layout), 0);
	store_layout_set_durable(layout);
	store_layout_set_snapshots(layout, disk->snapshots);
	assert_int_equal(disk->fixed > 0 ? store_layout_add_fixed_stream(layout, "first")
					 : store_layout_add_stream(layout, "first"),
			 0);
	assert_int_equal(store_layout_add_stream(layout, "second"), 1);
	assert_int_equal(store_layout_set_blocks(layout, 1, disk->place_bytes / STORE_EXTENT_BLOCKS), 0);
	assert_int_equal(store_layout_add_scratch_stream(layout, "scratch"), -EINVAL);
	for (unsigned i = 0; i < disk->extents; i++)
		assert_int_equal(
			store_layout_add_section(layout, i >= first_extents(disk), DISK_PAGE, &offset), 0);
	return layout;
}

static void place_of(const struct disk_store *disk, unsigned extent, uint32_t *ret_stream,
		     uint64_t *ret_offset)
{
	*ret_stream = extent >= first_extents(disk);
	*ret_offset = *ret_stream ? (extent - first_extents(disk)) * disk->place_bytes
				  : extent * STORE_EXTENT_BYTES;
}

/* ---- The loop ---- */

static void on_request(struct store_request *request, int status)
{
	struct disk_store *disk = container_of(request, struct disk_store, request);

	disk->done_count++;
	disk->status = status;
}

bool disk_store_turn(struct disk_store *disk)
{
	unsigned first = disk_store_choose(disk, disk->device_count);

	workers_reap(disk->workers);
	for (unsigned i = 0; i < disk->device_count; i++)
		if (sim_disk_turn(disk->disks[(first + i) % disk->device_count]))
			return true;
	return false;
}

int disk_store_wait(struct disk_store *disk, int r)
{
	if (r < 0)
		return r;
	while (disk->done_count == 0)
		disk_store_turn(disk);
	assert_int_equal(disk->done_count, 1);
	disk->done_count = 0;
	return disk->status;
}

static unsigned count_busy(const struct disk_store *disk)
{
	unsigned count = 0;

	for (unsigned i = 0; i < DISK_SLOTS; i++)
		count += disk->slots[i].is_busy;
	return count;
}

void disk_store_drain(struct disk_store *disk)
{
	while (count_busy(disk) > 0)
		disk_store_turn(disk);
}

/* ---- Writing ---- */

static void on_written(struct store_transfer *transfer, int status)
{
	struct disk_slot *slot = container_of(transfer, struct disk_slot, transfer);

	slot->is_busy = false;
	slot->owner->is_written[slot->extent] = false;
	if (status < 0)
		slot->owner->is_dead = true;
	else if (transfer->is_held)
		slot->owner->held[slot->extent] = slot->content;
	else
		slot->owner->content[slot->extent] = slot->content;
}

static void on_read(struct store_transfer *transfer, int status)
{
	assert_int_equal(status, 0);
	container_of(transfer, struct disk_slot, transfer)->is_busy = false;
}

static struct disk_slot *find_slot(struct disk_store *disk)
{
	struct disk_slot *slot = disk->slots;

	while (slot->is_busy)
		slot++;
	return slot;
}

static void prepare_write(struct disk_store *disk, struct disk_slot *slot, unsigned extent)
{
	slot->extent = extent;
	slot->content = ++disk->next_content;
	pages_fill(slot->page, DISK_PAGE, slot->content);
	slot->transfer = (struct store_transfer){ .direction = TIER_WRITE,
						  .priority = extent % 2 ? TIER_DEMAND : TIER_WRITE_BACK,
						  .length = DISK_PAGE,
						  .buffer = slot->page,
						  .done = on_written };
	place_of(disk, extent, &slot->transfer.stream, &slot->transfer.offset);
}

static void rewrite(struct disk_store *disk, unsigned extent, bool is_held)
{
	struct disk_slot *slot = find_slot(disk);

	prepare_write(disk, slot, extent);
	slot->transfer.is_held = is_held;
	slot->is_busy = disk->is_written[extent] = true;
	if (store_submit(disk->store, &slot->transfer) < 0)
		abort();
}

static void end_hold(struct disk_store *disk, unsigned extent, bool is_seen)
{
	uint32_t stream;
	uint64_t offset;

	place_of(disk, extent, &stream, &offset);
	assert_int_equal((is_seen ? store_publish : store_abandon)(disk->store, stream, offset, DISK_PAGE),
			 0);
	if (is_seen)
		disk->content[extent] = disk->held[extent];
	disk->held[extent] = 0;
}

void disk_store_rewrite(struct disk_store *disk, unsigned extent)
{
	if (disk->held[extent])
		end_hold(disk, extent, false);
	rewrite(disk, extent, false);
}

bool disk_store_may_hold(const struct disk_store *disk, unsigned extent)
{
	const uint64_t *last = disk->history[disk->acknowledged];

	return extent >= disk->fixed && !disk->held[extent] &&
	       disk->content[extent] == (disk->acknowledged > 0 ? last[extent] : 0);
}

void disk_store_hold(struct disk_store *disk, unsigned extent)
{
	rewrite(disk, extent, true);
}

static void end_holds(struct disk_store *disk, bool is_seen)
{
	for (unsigned extent = 0; extent < disk->extents; extent++)
		if (disk->held[extent] && !disk->is_written[extent])
			end_hold(disk, extent, is_seen);
}

/* Of a commit that is under way nobody knows which leaves it has made. */
void disk_store_end_hold(struct disk_store *disk, bool is_seen)
{
	if (!is_seen || !disk->is_committing)
		end_holds(disk, is_seen);
	else
		assert_int_equal(store_publish(disk->store, 0, 0, DISK_PAGE), -EBUSY);
}

void disk_store_expect_settled(struct disk_store *disk, unsigned extent)
{
	struct disk_slot *slot = find_slot(disk);

	prepare_write(disk, slot, extent);
	assert_int_equal(store_submit(disk->store, &slot->transfer), -EROFS);
}

static void promise(struct disk_store *disk, uint64_t step)
{
	disk->acknowledged = step;
	if (disk->watch)
		sim_watch_promise(disk->watch, step);
}

/* A commit that is under way, and has ended. */
static void look_at_commit(struct disk_store *disk)
{
	if (!disk->is_committing || disk->done_count == 0)
		return;
	disk->done_count = 0;
	disk->is_committing = false;
	if (disk->status < 0)
		disk->is_dead = true;
	else
		promise(disk, disk->step);
}

void disk_store_rewrite_soon(struct disk_store *disk, unsigned extent)
{
	while (count_busy(disk) == DISK_SLOTS || disk->is_written[extent])
		disk_store_turn(disk);
	disk_store_rewrite(disk, extent);
}

/* The first extent that may be written. */
static unsigned find_first(const struct disk_store *disk)
{
	return disk->step > 0 ? disk->fixed : 0;
}

void disk_store_rewrite_all(struct disk_store *disk)
{
	for (unsigned extent = find_first(disk); extent < disk->extents; extent++)
		disk_store_rewrite_soon(disk, extent);
	disk_store_drain(disk);
}

void disk_store_await_commit(struct disk_store *disk)
{
	while (disk->is_committing) {
		disk_store_turn(disk);
		look_at_commit(disk);
	}
}

void disk_store_begin_commit(struct disk_store *disk)
{
	disk_store_drain(disk);
	look_at_commit(disk);
	if (disk->is_dead || disk->is_committing || disk->step + 1 == DISK_STEPS)
		return;
	disk->step++;
	if (!disk->history[disk->step])
		disk->history[disk->step] = calloc(disk->extents, sizeof(uint64_t));
	memcpy(disk->history[disk->step], disk->content, disk->extents * sizeof(uint64_t));
	disk->is_committing = true;
	int r = store_commit(disk->store, disk->step, &disk->request);

	if (r < 0) {
		disk->is_committing = false;
		disk->is_dead = true;
	}
}

void disk_store_commit(struct disk_store *disk)
{
	disk_store_begin_commit(disk);
	disk_store_await_commit(disk);
	assert_int_equal(disk->acknowledged, disk->step);
}

int disk_store_take(struct disk_store *disk, const char *name)
{
	return disk_store_wait(disk, store_snapshot(disk->store, name, &disk->request));
}

int disk_store_delete(struct disk_store *disk, const char *name)
{
	return disk_store_wait(disk, store_delete_snapshot(disk->store, name, &disk->request));
}

static void rewrite_or_hold(struct disk_store *disk, unsigned extent)
{
	if (disk_store_choose(disk, 2) && disk_store_may_hold(disk, extent))
		disk_store_hold(disk, extent);
	else
		disk_store_rewrite(disk, extent);
}

void disk_store_act(struct disk_store *disk)
{
	unsigned first = find_first(disk);
	unsigned extent = first + disk_store_choose(disk, disk->extents - first);

	look_at_commit(disk);
	if (disk_store_choose(disk, 60) == 0)
		disk_store_begin_commit(disk);
	else if (disk_store_choose(disk, 100) == 0)
		disk_store_end_hold(disk, disk_store_choose(disk, 3) > 0);
	else if (count_busy(disk) < DISK_SLOTS && !disk->is_written[extent] && disk_store_choose(disk, 2))
		rewrite_or_hold(disk, extent);
	else
		disk_store_turn(disk);
}

/* ---- Sessions ---- */

static void begin_session(struct disk_store *disk, bool is_new)
{
	struct store_config config = { .workers = disk->workers, .name = "job" };
	struct tier *tiers[DISK_MAX_DEVICES];

	for (unsigned i = 0; i < disk->device_count; i++)
		tiers[i] = sim_disk_tier(disk->disks[i]);
	if (disk->watch)
		sim_watch_begin(disk->watch);
	disk->is_dead = disk->is_committing = false;
	memset(disk->held, 0, disk->extents * sizeof(uint64_t));
	disk->done_count = 0;
	disk->request.done = on_request;
	if (is_new)
		assert_int_equal(
			store_new_nvme(&config, make_layout(disk), tiers, disk->device_count, &disk->store),
			0);
	else
		assert_int_equal(store_new_found(&config, tiers, disk->device_count, &disk->store), 0);
}

void disk_store_end(struct disk_store *disk)
{
	disk_store_drain(disk);
	disk_store_await_commit(disk);
	disk->store = store_free(disk->store);
}

static void read_extent(struct disk_store *disk, struct store *store, unsigned extent)
{
	struct disk_slot *slot = &disk->slots[2];

	slot->transfer = (struct store_transfer){
		.direction = TIER_READ, .length = DISK_PAGE, .buffer = disk->slots[1].page, .done = on_read
	};
	slot->is_busy = true;
	place_of(disk, extent, &slot->transfer.stream, &slot->transfer.offset);
	assert_int_equal(store_submit(store, &slot->transfer), 0);
	disk_store_drain(disk);
}

void disk_store_expect(struct disk_store *disk, struct store *store, const uint64_t *content)
{
	unsigned char *expected = disk->slots[0].page, *found = disk->slots[1].page;

	disk_store_drain(disk);
	for (unsigned extent = 0; extent < disk->extents; extent++) {
		read_extent(disk, store, extent);
		if (content[extent])
			pages_fill(expected, DISK_PAGE, content[extent]);
		else
			memset(expected, 0, DISK_PAGE);
		assert_memory_equal(found, expected, DISK_PAGE);
	}
}

static void create(struct disk_store *disk)
{
	sim_watch_free(disk->watch);
	disk->watch = NULL;
	begin_session(disk, true);
	assert_int_equal(disk_store_wait(disk, store_create(disk->store, &disk->request)), 0);
	if (disk->extents <= DISK_FEW_EXTENTS)
		disk->watch = sim_watch_new(disk->disks, disk->device_count);
}

void disk_store_open_again(struct disk_store *disk)
{
	struct store_layout *layout = make_layout(disk);

	begin_session(disk, false);
	int r = disk_store_wait(disk, store_open(disk->store, &disk->request));

	if (r == -ENOENT && disk->acknowledged == 0) {
		store_layout_free(layout);
		disk->store = store_free(disk->store);
		memset(disk->content, 0, disk->extents * sizeof(uint64_t));
		disk->step = 0;
		create(disk);
		return;
	}
	assert_int_equal(r, 0);
	uint64_t step = store_step(disk->store);

	assert_true(step == disk->acknowledged || step == disk->step);
	disk->step = step;
	promise(disk, step);
	memcpy(disk->content, disk->history[step], disk->extents * sizeof(uint64_t));
	assert_int_equal(store_adopt(disk->store, layout), 0);
	disk_store_expect(disk, disk->store, disk->content);
}

void disk_store_open(struct disk_store *disk, unsigned extents, unsigned devices, unsigned snapshots,
		     uint64_t seed)
{
	disk_store_open_fixed(disk, extents, 0, devices, snapshots, seed);
}

void disk_store_open_fixed(struct disk_store *disk, unsigned extents, unsigned fixed, unsigned devices,
			   unsigned snapshots, uint64_t seed)
{
	struct store_layout *layout;
	uint64_t bytes;

	*disk = (struct disk_store){ .device_count = devices,
				     .extents = extents,
				     .fixed = fixed,
				     .place_bytes = seed % 2 ? STORE_EXTENT_BYTES : DISK_WIDE_EXTENT,
				     .snapshots = snapshots,
				     .random = seed * 2 + 1 };
	layout = make_layout(disk);
	bytes = store_layout_device_bytes(layout, devices) / devices;
	disk->content = calloc(extents, sizeof(uint64_t));
	disk->is_written = calloc(extents, sizeof(bool));
	disk->held = calloc(extents, sizeof(uint64_t));
	assert_true(disk->content && disk->is_written && disk->held);
	layout = store_layout_free(layout);
	for (unsigned i = 0; i < devices; i++)
		disk->disks[i] = sim_disk_new(bytes, seed + i);
	for (unsigned i = 0; i < DISK_SLOTS; i++) {
		disk->slots[i].owner = disk;
		disk->slots[i].page = pages_new(DISK_PAGE);
	}
	assert_int_equal(workers_new(1, "test", &disk->workers), 0);
	create(disk);
}

void disk_store_close(struct disk_store *disk)
{
	disk_store_end(disk);
	disk->workers = workers_free(disk->workers);
	sim_watch_free(disk->watch);
	for (unsigned i = 0; i < disk->device_count; i++)
		sim_disk_free(disk->disks[i]);
	for (unsigned i = 0; i < DISK_SLOTS; i++)
		free(disk->slots[i].page);
	for (unsigned i = 0; i < DISK_STEPS; i++)
		free(disk->history[i]);
	free(disk->content);
	free(disk->is_written);
	free(disk->held);
}

void disk_store_fail_all(struct disk_store *disk, void (*end)(struct sim_disk *disk))
{
	for (unsigned i = 0; i < disk->device_count; i++)
		end(disk->disks[i]);
}
