/* Creates a lineage, and opens an existing one, however it ended: docs/store.md has the order, and why.
 * Nothing is written before the last commit has been found and read. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "offload/store/lineage_backend.h"

uint64_t lineage_copies(const struct lineage *lineage, unsigned pairs)
{
	uint64_t copies = 0;

	for (unsigned i = 0; i < lineage->device_count * SUPERBLOCK_COPIES; i++)
		if (pairs >> i % SUPERBLOCK_COPIES / 2 & 1)
			copies |= UINT64_C(1) << i;
	return copies;
}

uint64_t lineage_encode_copies(struct lineage *lineage, const struct superblock *superblock, unsigned pairs)
{
	struct superblock of_device = *superblock;
	uint64_t copies = lineage_copies(lineage, pairs);

	for (unsigned i = 0; i < lineage->device_count * SUPERBLOCK_COPIES; i++) {
		unsigned device = i / SUPERBLOCK_COPIES, copy = i % SUPERBLOCK_COPIES;
		uint8_t bytes[SUPERBLOCK_BYTES], *place = lineage_copy(lineage, device, copy);

		if (!(copies >> i & 1))
			continue;
		of_device.member = (uint16_t)device;
		superblock_encode(&of_device, copy, bytes);
		if (memcmp(bytes, place, SUPERBLOCK_BYTES) == 0)
			copies &= ~(UINT64_C(1) << i);
		memcpy(place, bytes, SUPERBLOCK_BYTES);
	}
	return copies;
}

/* ---- Create ---- */

static void created(struct lineage *lineage, int status)
{
	if (status < 0)
		lineage_refuse(lineage, status, "the store cannot be created: %s: %s; look at the disk",
			       lineage_failed(lineage), strerror(-status));
	lineage->is_fenced = status < 0;
	lineage_end(lineage, status);
}

static void create(struct lineage *lineage)
{
	struct superblock *superblock = &lineage->superblock;
	uint64_t identities[LINEAGE_MAX_DEVICES];

	*superblock = (struct superblock){ .generation = 1,
					   .epoch = 1,
					   .step = lineage->attached[0]->step,
					   .root = NODE_POINTER_NONE,
					   .previous = NODE_POINTER_NONE,
					   .format = superblock_format(lineage->geometry.place_bytes),
					   .place_bytes = lineage->geometry.place_bytes,
					   .member_count = (uint16_t)lineage->device_count };
	if (getrandom(superblock->store, sizeof(superblock->store), 0) != sizeof(superblock->store) ||
	    getrandom(identities, sizeof(identities), 0) != sizeof(identities)) {
		lineage_end(lineage, -EAGAIN);
		return;
	}
	for (unsigned device = 0; device < lineage->device_count; device++)
		superblock->members[device] =
			(struct superblock_member){ identities[device], lineage->geometry.extents,
						    lineage->geometry.nodes, MEMBER_PRESENT };
	/* Both pairs, because neither may be what was there before. */
	lineage_encode_copies(lineage, superblock, 3);
	lineage_write_safely(lineage, UINT64_MAX, created);
}

int lineage_create(struct lineage *lineage, struct lineage_request *request)
{
	return lineage_begin(lineage, request, create);
}

/* ---- Open: superblocks ---- */

int lineage_find_newest(struct lineage *lineage, uint64_t copies, struct superblock *ret_superblock)
{
	struct superblock found;
	uint32_t format;
	int r = -ENODATA;

	for (unsigned i = 0; i < lineage->device_count * SUPERBLOCK_COPIES; i++) {
		unsigned device = i / SUPERBLOCK_COPIES, copy = i % SUPERBLOCK_COPIES;
		int s;

		if (!(copies >> i & 1))
			continue;
		s = superblock_decode(lineage_copy(lineage, device, copy), copy, &found, &format);
		if (s == -EPROTONOSUPPORT)
			return lineage_refuse(lineage, s,
					      "%s is a store of format %u, and this tierd knows "
					      "formats 1 to %u: start the tierd that made it",
					      lineage->tiers[device]->label, format, SUPERBLOCK_FORMAT);
		if (s < 0 || (r == 0 && found.generation <= ret_superblock->generation))
			continue;
		*ret_superblock = found;
		r = 0;
	}
	return r;
}

/* Each device must be of this store, at its own number, and have the last commit or the one before: a commit
 * begins when the one before is on all devices. */
static int check_member(struct lineage *lineage, unsigned device)
{
	const struct superblock *store = &lineage->superblock;
	const char *label = lineage->tiers[device]->label;
	struct superblock found;

	if (lineage_find_newest(lineage, UINT64_C(0xf) << device * SUPERBLOCK_COPIES, &found) < 0)
		return lineage_refuse(lineage, -ENODATA,
				      "%s has no superblock that can be read: it is damaged, or no store",
				      label);
	if (memcmp(found.store, store->store, sizeof(found.store)) != 0)
		return lineage_refuse(
			lineage, -ENODEV,
			"%s belongs to another store than %s: bring back the file that was beside it", label,
			lineage->tiers[0]->label);
	if (found.member != device || found.members[device].identity != store->members[device].identity)
		return lineage_refuse(lineage, -ENODEV,
				      "%s is device %u of the store, not device %u: configure the NVMe paths "
				      "in the order that they had",
				      label, found.member, device);
	if (found.generation + 1 < store->generation)
		return lineage_refuse(lineage, -ENODEV,
				      "%s was left behind: it ends with commit %llu, the store with %llu; it "
				      "is an old copy, or its disk has lost writes: bring back the newest",
				      label, (unsigned long long)found.generation,
				      (unsigned long long)store->generation);
	return 0;
}

static int check_geometry(struct lineage *lineage, unsigned device)
{
	const struct superblock_member *member = &lineage->superblock.members[device];
	const struct lineage_geometry *geometry = &lineage->geometry;
	uint64_t place_bytes = lineage->superblock.place_bytes;

	if (member->extents == geometry->extents && member->nodes == geometry->nodes &&
	    place_bytes == geometry->place_bytes)
		return 0;
	return lineage_refuse(lineage, -ENODEV,
			      "%s has room for %u extents of %llu bytes and %u nodes, not %u of %llu and %u: "
			      "it was cut off, or is another store's",
			      lineage->tiers[device]->label, member->extents, (unsigned long long)place_bytes,
			      member->nodes, geometry->extents, (unsigned long long)geometry->place_bytes,
			      geometry->nodes);
}

static int check_members(struct lineage *lineage)
{
	int r = 0;

	for (unsigned device = 0; device < lineage->device_count && r == 0; device++) {
		r = check_geometry(lineage, device);
		if (r == 0)
			r = check_member(lineage, device);
	}
	return r;
}

/* Whether some layout has extents of this size. */
static bool can_have_places(uint64_t bytes)
{
	return bytes % (STORE_EXTENT_BLOCKS * STORE_PAGE_BYTES) == 0 && bytes >= STORE_EXTENT_BYTES &&
	       bytes <= STORE_MAX_EXTENT_BYTES;
}

/* Takes the geometry of the first device, if the caller gave none. */
static int find_geometry(struct lineage *lineage)
{
	const struct superblock_member *first = &lineage->superblock.members[0];
	struct lineage_geometry geometry = { .extents = first->extents,
					     .nodes = first->nodes,
					     .place_bytes = lineage->superblock.place_bytes };
	int r;

	if (lineage->nodes)
		return 0;
	if (!can_have_places(geometry.place_bytes))
		return lineage_refuse(
			lineage, -EBADMSG,
			"%s says that it has places of %llu bytes, and no store has such: it is "
			"damaged, or no tierd has made it",
			lineage->tiers[0]->label, (unsigned long long)geometry.place_bytes);
	r = lineage_set_geometry(lineage, &geometry);
	if (r == -ENOSPC)
		return lineage_refuse(
			lineage, r,
			"the store needs %llu bytes on each device, and one has less: its file was cut off",
			(unsigned long long)lineage_device_bytes(&geometry));
	if (r == -EOVERFLOW)
		return lineage_refuse(lineage, -EBADMSG, "%s says that it has more places than there can be",
				      lineage->tiers[0]->label);
	return r < 0 ? lineage_refuse(lineage, r, "out of memory") : 0;
}

static int choose_superblock(struct lineage *lineage)
{
	struct superblock newest[2];
	int r;

	for (unsigned pair = 0; pair < 2; pair++) {
		r = lineage_find_newest(lineage, lineage_copies(lineage, 1U << pair), &newest[pair]);

		/* No power failure leaves that, and the lost pair may have had the newest commit. */
		if (r == -ENODATA)
			return lineage_refuse(
				lineage, r, "no copy of the superblock's %s pair can be read, on any device",
				pair ? "second" : "first");
		if (r < 0)
			return r;
	}
	lineage->pair = newest[1].generation > newest[0].generation;
	lineage->superblock = newest[lineage->pair];
	if (lineage->superblock.member_count != lineage->device_count)
		return lineage_refuse(lineage, -ENODEV,
				      "the store lies on %u devices, and %u are there: configure the NVMe "
				      "paths that it was stored on",
				      lineage->superblock.member_count, lineage->device_count);
	r = find_geometry(lineage);
	return r < 0 ? r : check_members(lineage);
}

/* ---- Open: the commit that says so ---- */

static void opened(struct lineage *lineage, int status)
{
	if (status < 0)
		lineage_refuse(lineage, status, "the store cannot be opened: %s: %s; look at the disk",
			       lineage_failed(lineage), strerror(-status));
	lineage->is_fenced = status < 0;
	if (status == 0) {
		lineage->superblock = lineage->next;
		lineage->pair = 1 - lineage->pair;
	}
	lineage_end(lineage, status);
}

/* Commits a new generation and epoch, so that no commit of a former session is taken for one of this session.
 */
static void write_open_commit(struct lineage *lineage, int status)
{
	if (status < 0) {
		opened(lineage, status);
		return;
	}
	lineage->next = lineage->superblock;
	lineage->next.generation++;
	lineage->next.epoch++;
	lineage_write_safely(
		lineage, lineage_encode_copies(lineage, &lineage->next, 1U << (1 - lineage->pair)), opened);
}

/* Writes copies of the newest commit that differ from the best one; never a good one. */
static void repair(struct lineage *lineage)
{
	uint64_t copies = lineage_encode_copies(lineage, &lineage->superblock, 1U << lineage->pair);

	if (lineage->lost)
		lineage_lock_places(lineage);
	if (copies)
		lineage_write_safely(lineage, copies, write_open_commit);
	else
		write_open_commit(lineage, 0);
}

/* ---- Open: the maps ---- */

static int refuse_head(struct lineage *lineage, int r)
{
	const struct head_record *record = &lineage->heads.records[lineage->head_index];
	char whose[HEAD_NAME_BYTES + 32];

	if (lineage->head_index > 0)
		snprintf(whose, sizeof(whose), "%s %s", record->kind == HEAD_JOB ? "fork" : "snapshot",
			 record->name);
	else
		snprintf(whose, sizeof(whose), "commit %llu",
			 (unsigned long long)lineage->superblock.generation);
	return lineage_refuse_map(lineage, r, whose);
}

static void fail_map(struct lineage *lineage, int r)
{
	lineage_end(lineage, refuse_head(lineage, r));
}

/* The record of the first job that is not lost; the number of records: all are. */
static unsigned find_job(const struct lineage *lineage)
{
	unsigned i = 0;

	while (i < lineage->heads.count &&
	       (lineage->heads.records[i].kind != HEAD_JOB || lineage->lost >> i & 1))
		i++;
	return i;
}

static void read_table(struct lineage *lineage);

/* Reads all again without this head, if a job is left. */
static void lose_head(struct lineage *lineage, int r)
{
	refuse_head(lineage, r);
	lineage_lose(lineage, lineage->head_index);
	if (find_job(lineage) == lineage->heads.count)
		lineage_end(lineage, r);
	else
		read_table(lineage);
}

static void open_next_head(struct lineage *lineage);

static void head_read(struct lineage *lineage, int status)
{
	tree_destroy(&lineage->walked[0]);
	if (status == 0)
		open_next_head(lineage);
	else if (status == -ENOMEM)
		fail_map(lineage, status);
	else
		lose_head(lineage, status);
}

/* Whether the map has been read, or is lost. */
static bool is_settled(const struct lineage *lineage, unsigned record)
{
	return record == lineage->opened || lineage->lost >> record & 1;
}

/* Reads the next map, for the names of its places: only nodes that no map before it has. */
static void open_next_head(struct lineage *lineage)
{
	struct lineage_walk walk = { .tree = &lineage->walked[0],
				     .meet = lineage_name_node,
				     .take = lineage_name_extents,
				     .then = head_read };
	int r;

	while (lineage->next_index < lineage->heads.count && is_settled(lineage, lineage->next_index))
		lineage->next_index++;
	if (lineage->next_index == lineage->heads.count) {
		repair(lineage);
		return;
	}
	lineage->head_index = lineage->next_index++;
	r = tree_init(&lineage->walked[0], lineage->heads.records[lineage->head_index].extents);
	if (r < 0) {
		fail_map(lineage, r);
		return;
	}
	tree_set_root(&lineage->walked[0], &lineage->heads.records[lineage->head_index].root);
	lineage_walk(lineage, &walk);
}

static int meet_of_job(struct lineage *lineage, const struct node_pointer *pointer)
{
	return node_area_name(lineage->nodes, pointer) < 0 ? -EBADMSG : 1;
}

static int take_of_job(struct lineage *lineage, const struct node_read *read)
{
	return lineage->head->ops->load_node(lineage->head, &read->expected, read->bytes);
}

static void table_read(void *argument, int status)
{
	struct lineage *lineage = argument;
	struct lineage_head *head = lineage->head;
	const struct head_record *job;
	struct lineage_walk walk = {
		.tree = &head->tree, .meet = meet_of_job, .take = take_of_job, .then = head_read
	};

	if (status == 0)
		status = head_table_get(lineage->reads[0].bytes, &lineage->heads);
	lineage->opened = find_job(lineage);
	job = &lineage->heads.records[lineage->opened];
	if (status == 0 && head->ops->begin_load)
		status = head->ops->begin_load(head, job->extents);
	if (status == 0 && job->extents != head->tree.extents)
		status = -EBADMSG;
	if (status < 0) {
		fail_map(lineage, status);
		return;
	}
	memcpy(head->name, job->name, sizeof(head->name));
	head->step = job->step;
	head->job = job->job;
	head->serial = job->serial;
	tree_set_root(&head->tree, &job->root);
	lineage->head_index = lineage->opened;
	lineage->next_index = 0;
	lineage_walk(lineage, &walk);
}

static void read_table(struct lineage *lineage)
{
	int r;

	if (node_pointer_is_none(&lineage->superblock.root)) {
		repair(lineage);
		return;
	}
	lineage->head_index = 0;
	lineage->reads[0] =
		(struct node_read){ .pointer = lineage->superblock.root, .expected = HEAD_TABLE_HEADER };
	r = node_area_name(lineage->nodes, &lineage->superblock.root) < 0 ? -EBADMSG : 0;
	if (r == 0)
		r = node_area_read(lineage->nodes, lineage->reads, 1, table_read, lineage);
	if (r < 0)
		fail_map(lineage, r);
}

void lineage_clear_unread(struct lineage *lineage)
{
	for (unsigned i = 0; i < lineage->device_count * SUPERBLOCK_COPIES; i++)
		if (lineage->ios[i].status < 0)
			memset(lineage_copy(lineage, i / SUPERBLOCK_COPIES, i % SUPERBLOCK_COPIES), 0,
			       SUPERBLOCK_BYTES);
}

static void superblocks_read(struct lineage *lineage, int status)
{
	lineage_clear_unread(lineage);
	status = choose_superblock(lineage);
	if (status < 0) {
		lineage_end(lineage, status);
		return;
	}
	lineage->head = lineage->attached[0];
	lineage->head->step = lineage->superblock.step;
	read_table(lineage);
}

static void read_superblocks(struct lineage *lineage, int status)
{
	if (status < 0)
		opened(lineage, status);
	else
		lineage_read_superblocks(lineage, superblocks_read);
}

/* Flushes first, so that nothing that is read can be lost later. */
static void open_lineage(struct lineage *lineage)
{
	lineage_flush(lineage, read_superblocks);
}

int lineage_open(struct lineage *lineage, struct lineage_request *request)
{
	return lineage_begin(lineage, request, open_lineage);
}
