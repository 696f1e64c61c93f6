#include "tests/unit/sim_watch.h"

#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "offload/store/head_record.h"
#include "offload/store/map_tree.h"
#include "tests/unit/test.h"

#define MAX_DISKS 4
#define MAX_ROOTS 8
#define MAX_COMMITS 256
#define COPY_STRIDE (MIB / SUPERBLOCK_COPIES)
#define DEVICE_SHIFT 48

/* What a root leads to: bytes of a disk. */
struct range {
	unsigned disk;
	uint64_t offset, length;
	uint64_t checksum; /* of a node */
};

struct root {
	struct node_pointer pointer;
	struct range *ranges;
	unsigned count, capacity;
};

struct sim_watch {
	struct sim_observer observer;
	struct sim_disk *disks[MAX_DISKS];
	unsigned disk_count;
	uint64_t extents_offset, place_bytes;
	struct root roots[MAX_ROOTS]; /* that have been walked */
	unsigned root_count;
	struct root views[SIM_VIEWS];		/* of maps; of one that is not open nothing is needed */
	struct superblock commits[MAX_COMMITS]; /* the last that somebody began to write */
	unsigned commit_count;
	bool has_failed; /* a flush of this session */
	bool is_lost_allowed;
	bool is_read;
	struct range read;
};

/* ---- What a root needs ---- */

static void add_range(struct root *root, unsigned disk, uint64_t offset, uint64_t length)
{
	if (root->count == root->capacity) {
		root->capacity = root->capacity ? 2 * root->capacity : 64;
		root->ranges = realloc(root->ranges, root->capacity * sizeof(*root->ranges));
		assert_non_null(root->ranges);
	}
	root->ranges[root->count++] = (struct range){ disk, offset, length, 0 };
}

static struct range node_range(const struct sim_watch *watch, uint64_t place)
{
	struct range range = { (unsigned)(place >> DEVICE_SHIFT), MIB + (place & UINT32_MAX) * NODE_BYTES,
			       NODE_BYTES, 0 };

	assert_true(range.disk < watch->disk_count);
	return range;
}

/* Either copy does; both are needed as they are. */
static bool read_node(struct sim_watch *watch, struct root *root, const struct node_pointer *pointer,
		      const struct node_header *header, uint8_t bytes[NODE_BYTES])
{
	bool is_found = false;

	for (unsigned copy = 0; copy < 2; copy++) {
		struct range range = node_range(watch, pointer->places[copy]);
		uint8_t found[NODE_BYTES];

		add_range(root, range.disk, range.offset, range.length);
		root->ranges[root->count - 1].checksum = pointer->checksum;
		sim_disk_read(watch->disks[range.disk], range.offset, found, NODE_BYTES);
		if (is_found || node_check(found, pointer->checksum, header) < 0)
			continue;
		memcpy(bytes, found, NODE_BYTES);
		is_found = true;
	}
	if (!is_found && !watch->is_lost_allowed)
		fail_msg("a superblock leads to a node that is not there: level %u, index %llu",
			 header->level, (unsigned long long)header->index);
	return is_found;
}

static void walk_leaf(struct sim_watch *watch, struct root *root, const uint8_t bytes[NODE_BYTES],
		      unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct node_extent extent;

		node_get_extent(bytes, i, &extent);
		if (extent.place == UINT32_MAX)
			continue;
		assert_true(extent.device < watch->disk_count);
		add_range(root, extent.device, watch->extents_offset + extent.place * watch->place_bytes,
			  watch->place_bytes);
	}
}

static void walk_node(struct sim_watch *watch, struct root *root, const struct map_tree *shape,
		      unsigned level, uint64_t index, const struct node_pointer *pointer)
{
	struct node_header header = tree_header(shape, level, index);
	uint8_t bytes[NODE_BYTES];

	if (node_pointer_is_none(pointer))
		return;
	if (!read_node(watch, root, pointer, &header, bytes))
		return;
	if (level == 0) {
		walk_leaf(watch, root, bytes, header.count);
		return;
	}
	for (unsigned i = 0; i < header.count; i++) {
		struct node_pointer child;

		node_get_pointer(bytes, i, &child);
		walk_node(watch, root, shape, level - 1, index * NODE_CHILDREN + i, &child);
	}
}

static void walk_table(struct sim_watch *watch, struct root *root)
{
	struct head_table table;
	struct map_tree shape;
	uint8_t bytes[NODE_BYTES];

	assert_true(read_node(watch, root, &root->pointer, &HEAD_TABLE_HEADER, bytes));
	assert_int_equal(head_table_get(bytes, &table), 0);
	assert_int_equal(tree_init(&shape, table.records[0].extents), 0);
	for (unsigned i = 0; i < table.count; i++)
		walk_node(watch, root, &shape, shape.level_count - 1, 0, &table.records[i].root);
	tree_destroy(&shape);
}

static const struct root *find_root(struct sim_watch *watch, const struct node_pointer *pointer)
{
	struct root *root;

	for (unsigned i = 0; i < watch->root_count; i++)
		if (memcmp(&watch->roots[i].pointer, pointer, sizeof(*pointer)) == 0)
			return &watch->roots[i];
	if (watch->root_count == MAX_ROOTS) {
		free(watch->roots[0].ranges);
		memmove(watch->roots, watch->roots + 1, (MAX_ROOTS - 1) * sizeof(watch->roots[0]));
		watch->root_count--;
	}
	root = &watch->roots[watch->root_count++];
	*root = (struct root){ .pointer = *pointer };
	if (!node_pointer_is_none(pointer))
		walk_table(watch, root);
	return root;
}

/* ---- Superblocks ---- */

static bool read_copy(const struct sim_watch *watch, unsigned disk, unsigned copy, bool is_safe,
		      struct superblock *ret_superblock)
{
	uint8_t bytes[SUPERBLOCK_BYTES];
	uint32_t format;

	if (is_safe)
		sim_disk_read_safe(watch->disks[disk], copy * COPY_STRIDE, bytes, sizeof(bytes));
	else
		sim_disk_read(watch->disks[disk], copy * COPY_STRIDE, bytes, sizeof(bytes));
	return superblock_decode(bytes, copy, ret_superblock, &format) == 0;
}

/* The one that opening finds, if whatever is not safe is lost. */
static struct superblock newest_safe(const struct sim_watch *watch)
{
	struct superblock newest = { 0 }, found;

	for (unsigned i = 0; i < watch->disk_count * SUPERBLOCK_COPIES; i++)
		if (read_copy(watch, i / SUPERBLOCK_COPIES, i % SUPERBLOCK_COPIES, true, &found) &&
		    found.generation > newest.generation)
			newest = found;
	return newest;
}

static bool is_same_commit(const struct superblock *one, const struct superblock *other)
{
	return one->generation == other->generation && one->epoch == other->epoch;
}

/* (epoch, generation) is of one commit, whoever writes it, and however often. */
static void note_commit(struct sim_watch *watch, const struct superblock *superblock)
{
	for (unsigned i = 0; i < MAX_COMMITS && i < watch->commit_count; i++) {
		const struct superblock *known = &watch->commits[i];

		if (!is_same_commit(known, superblock))
			continue;
		if (known->step != superblock->step ||
		    memcmp(&known->root, &superblock->root, sizeof(known->root)) != 0)
			fail_msg("two commits are generation %llu of epoch %llu",
				 (unsigned long long)superblock->generation,
				 (unsigned long long)superblock->epoch);
		return;
	}
	watch->commits[watch->commit_count++ % MAX_COMMITS] = *superblock;
}

static void check_map_is_safe(struct sim_watch *watch, const struct superblock *superblock)
{
	const struct root *root = find_root(watch, &superblock->root);

	for (unsigned i = 0; i < root->count; i++)
		if (!sim_disk_is_safe(watch->disks[root->ranges[i].disk], root->ranges[i].offset,
				      root->ranges[i].length))
			fail_msg("a superblock is written before all that it leads to is safe");
}

/* Copies that wait for a flush are all of one pair, whatever disk they are on. */
static void check_one_pair(const struct sim_watch *watch, unsigned pair)
{
	for (unsigned i = 0; i < watch->disk_count * SUPERBLOCK_COPIES; i++) {
		unsigned copy = i % SUPERBLOCK_COPIES;

		if (copy / 2 != pair && !sim_disk_is_safe(watch->disks[i / SUPERBLOCK_COPIES],
							  copy * COPY_STRIDE, SUPERBLOCK_BYTES))
			fail_msg("both pairs of superblocks are dirty");
	}
}

/* After it has been made a store has the same commit in both pairs. */
static bool is_in_pair(const struct sim_watch *watch, unsigned disk, unsigned pair,
		       const struct superblock *superblock)
{
	struct superblock found;

	for (unsigned copy = 2 * pair; copy < 2 * pair + 2; copy++)
		if (read_copy(watch, disk, copy, true, &found) && is_same_commit(&found, superblock))
			return true;
	return false;
}

/* Not even by itself: a good copy of the newest commit is never written again. */
static void check_not_newest(const struct sim_watch *watch, unsigned disk, unsigned copy,
			     const struct tier_io *io, const struct superblock *superblock)
{
	struct superblock newest = newest_safe(watch), old;
	uint8_t before[SUPERBLOCK_BYTES];

	if (!read_copy(watch, disk, copy, true, &old) || !is_same_commit(&old, &newest) ||
	    is_in_pair(watch, disk, 1 - copy / 2, &newest))
		return;
	sim_disk_read(watch->disks[disk], io->offset, before, sizeof(before));
	if (!is_same_commit(superblock, &newest) || memcmp(before, io->buffer, sizeof(before)) == 0)
		fail_msg("a superblock is written over the newest commit's");
}

static void check_superblock(struct sim_watch *watch, unsigned disk, const struct tier_io *io)
{
	unsigned copy = (unsigned)(io->offset / COPY_STRIDE);
	struct superblock superblock;
	uint32_t format;

	assert_true(io->offset % COPY_STRIDE == 0 && io->length == SUPERBLOCK_BYTES);
	assert_int_equal(superblock_decode(io->buffer, copy, &superblock, &format), 0);
	assert_int_equal(superblock.member, disk);
	check_one_pair(watch, copy / 2);
	check_not_newest(watch, disk, copy, io, &superblock);
	note_commit(watch, &superblock);
	check_map_is_safe(watch, &superblock);
}

/* ---- Nodes and extents ---- */

/* A copy of a node that is bad may be written again as it should be, and no other. */
static bool is_mending(const struct sim_watch *watch, const struct range *range, const struct tier_io *io)
{
	uint8_t before[NODE_BYTES];

	if (range->checksum == 0 || io->offset != range->offset || io->length != NODE_BYTES)
		return false;
	sim_disk_read(watch->disks[range->disk], range->offset, before, sizeof(before));
	return node_checksum(io->buffer) == range->checksum && node_checksum(before) != range->checksum;
}

static bool needs(const struct sim_watch *watch, const struct root *root, unsigned disk,
		  const struct tier_io *io)
{
	for (unsigned i = 0; i < root->count; i++) {
		const struct range *range = &root->ranges[i];

		if (range->disk == disk && range->offset < io->offset + io->length &&
		    io->offset < range->offset + range->length && !is_mending(watch, range, io))
			return true;
	}
	return false;
}

static void check_not_needed(struct sim_watch *watch, unsigned disk, const struct tier_io *io,
			     const struct superblock *superblock)
{
	if (needs(watch, find_root(watch, &superblock->root), disk, io))
		fail_msg("a write to a place that generation %llu needs",
			 (unsigned long long)superblock->generation);
}

/* The next open may find the newest that is safe, or any that is newer and waits for its flush. */
static void check_write(struct sim_watch *watch, unsigned disk, const struct tier_io *io)
{
	struct superblock newest = newest_safe(watch), other;

	check_not_needed(watch, disk, io, &newest);
	for (unsigned i = 0; i < watch->disk_count * SUPERBLOCK_COPIES; i++)
		if (read_copy(watch, i / SUPERBLOCK_COPIES, i % SUPERBLOCK_COPIES, false, &other) &&
		    other.generation > newest.generation)
			check_not_needed(watch, disk, io, &other);
	for (unsigned view = 0; view < SIM_VIEWS; view++)
		if (needs(watch, &watch->views[view], disk, io))
			fail_msg("a write to a place that a view shows");
	if (watch->is_read && watch->read.disk == disk && watch->read.offset < io->offset + io->length &&
	    io->offset < watch->read.offset + watch->read.length)
		fail_msg("a write to a place that somebody reads");
}

/* ---- Sessions ---- */

static unsigned number_of(const struct sim_watch *watch, const struct sim_disk *disk)
{
	unsigned number = 0;

	while (watch->disks[number] != disk)
		number++;
	return number;
}

static void submitted(struct sim_observer *observer, struct sim_disk *disk, const struct tier_io *io)
{
	struct sim_watch *watch = container_of(observer, struct sim_watch, observer);
	unsigned number = number_of(watch, disk);

	if (io->direction == TIER_READ)
		return;
	if (watch->has_failed && (io->direction == TIER_FLUSH || io->offset < MIB))
		fail_msg("a flush or a superblock after a flush that has failed");
	if (io->direction == TIER_FLUSH)
		return;
	if (io->offset < MIB)
		check_superblock(watch, number, io);
	else
		check_write(watch, number, io);
}

static void ended(struct sim_observer *observer, struct sim_disk *disk, const struct tier_io *io, int status)
{
	struct sim_watch *watch = container_of(observer, struct sim_watch, observer);

	if (io->direction == TIER_FLUSH && status < 0)
		watch->has_failed = true;
}

struct sim_watch *sim_watch_new(struct sim_disk *const *disks, unsigned count)
{
	struct sim_watch *watch = calloc(1, sizeof(*watch));
	struct superblock superblock;

	assert_non_null(watch);
	assert_true(count <= MAX_DISKS);
	watch->observer = (struct sim_observer){ submitted, ended };
	watch->disk_count = count;
	for (unsigned i = 0; i < count; i++) {
		watch->disks[i] = disks[i];
		sim_disk_observe(disks[i], &watch->observer);
	}
	superblock = newest_safe(watch);
	watch->extents_offset = MIB + size_align(UINT64_C(1) * superblock.members[0].nodes * NODE_BYTES, MIB);
	watch->place_bytes = superblock.place_bytes;
	return watch;
}

void sim_watch_free(struct sim_watch *watch)
{
	if (!watch)
		return;
	for (unsigned i = 0; i < watch->disk_count; i++)
		sim_disk_observe(watch->disks[i], NULL);
	for (unsigned i = 0; i < watch->root_count; i++)
		free(watch->roots[i].ranges);
	for (unsigned view = 0; view < SIM_VIEWS; view++)
		sim_watch_end_view(watch, view);
	free(watch);
}

void sim_watch_allow_lost(struct sim_watch *watch)
{
	watch->is_lost_allowed = true;
}

void sim_watch_begin(struct sim_watch *watch)
{
	watch->has_failed = watch->is_read = false;
	for (unsigned view = 0; view < SIM_VIEWS; view++)
		sim_watch_end_view(watch, view);
}

void sim_watch_promise(struct sim_watch *watch, uint64_t step)
{
	struct superblock superblock;

	if (watch->has_failed)
		fail_msg("step %llu is promised after a flush that has failed", (unsigned long long)step);
	for (unsigned disk = 0; disk < watch->disk_count; disk++) {
		bool is_there = false;

		for (unsigned copy = 0; copy < SUPERBLOCK_COPIES; copy++)
			is_there |=
				read_copy(watch, disk, copy, true, &superblock) && superblock.step >= step;
		if (!is_there)
			fail_msg("step %llu is promised before disk %u has its superblock",
				 (unsigned long long)step, disk);
	}
}

void sim_watch_view(struct sim_watch *watch, unsigned view, const struct node_pointer *map, uint64_t extents)
{
	struct map_tree shape;

	watch->views[view] = (struct root){ .pointer = *map };
	assert_int_equal(tree_init(&shape, extents), 0);
	walk_node(watch, &watch->views[view], &shape, shape.level_count - 1, 0, map);
	tree_destroy(&shape);
}

void sim_watch_end_view(struct sim_watch *watch, unsigned view)
{
	free(watch->views[view].ranges);
	watch->views[view] = (struct root){ 0 };
}

void sim_watch_read(struct sim_watch *watch, unsigned disk, uint64_t offset)
{
	watch->is_read = true;
	watch->read = (struct range){ disk, offset, watch->place_bytes };
}

void sim_watch_end_read(struct sim_watch *watch)
{
	watch->is_read = false;
}
