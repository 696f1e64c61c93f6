/* Fuzzes what reads a store's superblocks and nodes, with checksums repaired, as somebody would who knows the
 * format and means harm: what is taken for possible stays within its bounds, and is written again as it was
 * read. Then a whole store whose nodes are the input's is opened, or refused. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "common/little_endian.h"
#include "offload/device/host.h"
#include "offload/store/lineage.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

#define NODES 8
#define EXTENTS 4
#define MIB (1024 * 1024)
#define COPY_STRIDE (256 * 1024)

/* The most that a device has room for; what it says itself is what is opened. */
static const struct lineage_geometry geometry = { .extents = EXTENTS,
						  .nodes = NODES,
						  .place_bytes = STORE_MAX_EXTENT_BYTES };

/* ---- A device of the input ---- */

static void seal(uint8_t copy[SUPERBLOCK_BYTES], unsigned number)
{
	put64(copy + 504, XXH3_64bits_withSeed(copy, 504, number + 1));
	for (unsigned at = SUPERBLOCK_RECORD_BYTES; at < SUPERBLOCK_BYTES; at += SUPERBLOCK_RECORD_BYTES)
		memcpy(copy + at, copy, SUPERBLOCK_RECORD_BYTES);
}

/* What a pointer among the input's bytes says is made true: its place, and the checksum of what lies there.
 */
static void repair_pointer(uint8_t *pointer, const uint8_t *device)
{
	uint64_t first = get64(pointer);

	if (first == NODE_NOWHERE)
		return;
	put64(pointer, first % NODES);
	put64(pointer + 8, (first + 1) % NODES);
	put64(pointer + 16, node_checksum(device + MIB + first % NODES * NODE_BYTES));
}

/* From the last one up: a pointer to a node behind its own is right. */
static void repair_nodes(uint8_t *device)
{
	for (unsigned node = NODES; node-- > 0;) {
		uint8_t *at = device + MIB + node * NODE_BYTES;

		if (get32(at + 8) == HEAD_TABLE_LEVEL)
			for (unsigned i = 0; i < HEAD_RECORDS; i++)
				repair_pointer(at + 64 + 256 * i + 32, device);
		else if (get32(at + 8) > 0)
			for (unsigned i = 0; i < NODE_CHILDREN; i++)
				repair_pointer(at + 64 + 24 * i, device);
	}
}

/* ---- A head that believes what it may ---- */

struct fuzz_head {
	struct lineage_head head;
	bool has_tree;
};

static void freeze_node(struct lineage_head *head, const struct node_header *header,
			uint8_t bytes[NODE_BYTES])
{
	node_begin(bytes, header);
}

static void release_node(struct lineage_head *head, uint64_t index)
{
}

static void committed(struct lineage_head *head)
{
}

static int load_node(struct lineage_head *head, const struct node_header *header,
		     const uint8_t bytes[NODE_BYTES])
{
	struct node_extent extent;

	assert(header->count <= NODE_EXTENTS);
	for (unsigned i = 0; i < header->count; i++)
		node_get_extent(bytes, i, &extent);
	return 0;
}

static int begin_load(struct lineage_head *head, uint64_t extents)
{
	struct fuzz_head *fuzz = container_of(head, struct fuzz_head, head);
	int r;

	/* Of a job before this one, which is lost. */
	if (fuzz->has_tree)
		tree_destroy(&head->tree);
	r = extents > 100000 ? -EBADMSG : tree_init(&head->tree, extents);
	fuzz->has_tree = r == 0;
	return r;
}

static uint64_t uncommitted(const struct lineage_head *head, unsigned device)
{
	return 0;
}

static const struct lineage_head_ops ops = { .freeze_node = freeze_node,
					     .release_node = release_node,
					     .committed = committed,
					     .load_node = load_node,
					     .begin_load = begin_load,
					     .uncommitted = uncommitted };

struct fuzz_request {
	struct lineage_request request;
	bool is_done;
	int status;
};

static void on_done(struct lineage_request *request, int status)
{
	struct fuzz_request *fuzz = container_of(request, struct fuzz_request, request);

	fuzz->is_done = true;
	fuzz->status = status;
}

static int wait(struct tier *tier, struct fuzz_request *request, int r)
{
	request->is_done = false;
	if (r < 0)
		return r;
	while (!request->is_done)
		host_tier_reap(tier);
	return request->status;
}

static void ignore(struct lineage_difference *difference, uint64_t extent, const struct node_extent *from,
		   const struct node_extent *to)
{
	assert(extent < 100000);
}

static void use_snapshots(struct lineage_head *head, struct tier *tier, struct fuzz_request *request)
{
	struct head_record records[HEAD_RECORDS];
	unsigned count = lineage_snapshots(head, records);

	for (unsigned i = 0; i < count; i++) {
		struct lineage_difference difference = { .from = records[i].name,
							 .head = head,
							 .tell = ignore };
		uint64_t extents;

		wait(tier, request,
		     lineage_measure_snapshot(head, records[i].name, &extents, &request->request));
		wait(tier, request, lineage_compare(&difference, &request->request));
		wait(tier, request, lineage_delete_snapshot(head, records[i].name, &request->request));
	}
}

static void open_device(uint8_t *device)
{
	struct fuzz_head head = { .head = { .ops = &ops } };
	struct fuzz_request request = { .request = { on_done } };
	struct lineage *lineage;
	struct tier *tier;

	assert(host_tier_new(device, lineage_device_bytes(&geometry), &tier) == 0);
	assert(lineage_new(&tier, 1, NULL, &head.head, &lineage) == 0);
	if (wait(tier, &request, lineage_open(lineage, &request.request)) == 0) {
		struct lineage_geometry found = lineage_geometry(lineage);

		assert(found.place_bytes >= STORE_EXTENT_BYTES &&
		       found.place_bytes <= STORE_MAX_EXTENT_BYTES);
		assert(lineage_device_bytes(&found) <= lineage_device_bytes(&geometry));
		use_snapshots(&head.head, tier, &request);
	}
	lineage_free(lineage);
	if (head.has_tree)
		tree_destroy(&head.head.tree);
}

/* ---- The input ---- */

/* A byte says what the next ones, of a count of two bytes, are: those of a copy of the superblock, or of a
 * node. */
static void fill_device(uint8_t *device, const uint8_t *bytes, size_t length)
{
	while (length > 3) {
		unsigned what = bytes[0] % (SUPERBLOCK_COPIES + NODES), count = bytes[1] | bytes[2] << 8;
		uint8_t *at = what < SUPERBLOCK_COPIES
				      ? device + what * COPY_STRIDE
				      : device + MIB + (what - SUPERBLOCK_COPIES) * NODE_BYTES;

		bytes += 3;
		length -= 3;
		if (count > length)
			count = (unsigned)length;
		memcpy(at, bytes, count < NODE_BYTES ? count : NODE_BYTES);
		bytes += count;
		length -= count;
	}
}

/* What is read is written again as it was. */
static void check_superblock(const uint8_t *copy, unsigned number)
{
	uint8_t again[SUPERBLOCK_BYTES];
	struct superblock superblock, found;
	uint32_t format = 0;

	if (superblock_decode(copy, number, &superblock, &format) < 0)
		return;
	assert(superblock.member < superblock.member_count);
	assert(superblock.member_count <= SUPERBLOCK_MAX_MEMBERS);
	superblock_encode(&superblock, number, again);
	assert(superblock_decode(again, number, &found, &format) == 0);
	assert(memcmp(&superblock, &found, sizeof(found)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	static uint8_t *device;
	size_t size = lineage_device_bytes(&geometry);

	if (!device)
		assert(posix_memalign((void **)&device, 4096, size) == 0);
	memset(device, 0, size);
	fill_device(device, bytes, length);
	repair_nodes(device);
	for (unsigned copy = 0; copy < SUPERBLOCK_COPIES; copy++) {
		uint8_t *at = device + copy * COPY_STRIDE;

		if (get64(at) == 0)
			continue;
		repair_pointer(at + 56, device);
		seal(at, copy);
		check_superblock(at, copy);
	}
	open_device(device);
	return 0;
}
