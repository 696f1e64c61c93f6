/* Verifies level by level, from the table down. A bad copy is read again, because the error may be transient.
 * If it is still bad, and the other copy good, it is written again in its place. A good copy is never
 * overwritten, so the node stays readable whatever becomes of that write. The next commit flushes it; nothing
 * depends on it before.
 *
 * Superblocks are not written here: commits write a pair as a whole, and never the newest. */
#include "offload/store/lineage_verify.h"

#include <errno.h>
#include <string.h>

#include "offload/store/lineage_backend.h"

#define COPIES 2

static uint8_t *image(const struct lineage_verification *verification, unsigned copy)
{
	return (uint8_t *)verification->buffer + (size_t)copy * NODE_BYTES;
}

const struct head_table *lineage_table(const struct lineage *lineage)
{
	return &lineage->heads;
}

/* Only the job's own: those of other jobs are verified with them. */
static void choose_heads(struct lineage_verification *verification, const struct lineage *lineage)
{
	verification->job = verification->all = 0;
	for (unsigned i = 0; i < lineage->heads.count; i++) {
		const struct head_record *record = &lineage->heads.records[i];

		if (record->job != verification->head->job)
			continue;
		verification->all |= 1U << i;
		if (record->kind == HEAD_JOB)
			verification->job = 1U << i;
	}
}

static struct map_tree *tree_of(const struct lineage *lineage)
{
	return &lineage->verification->head->tree;
}

/* The index of the node of a level that leads to the leaf. */
static uint64_t index_of(const struct lineage_verification *verification, unsigned level)
{
	uint64_t index = verification->leaf;

	while (level-- > 0)
		index /= NODE_CHILDREN;
	return index;
}

/* ---- Superblocks ---- */

static void tell_superblock(struct lineage *lineage, unsigned number)
{
	unsigned device = number / SUPERBLOCK_COPIES, copy = number % SUPERBLOCK_COPIES;
	struct lineage_flaw flaw = {
		.part = LINEAGE_SUPERBLOCK,
		.copy = copy,
		.device = lineage->tiers[device]->label,
		.device_offset = (uint64_t)copy * SUPERBLOCK_STRIDE,
		.status = lineage->ios[number].status < 0 ? lineage->ios[number].status : -EBADMSG,
	};

	lineage->verification->found(lineage->verification, &flaw);
}

/* The other pair has the commit before this one. Its best copy says what the others should be. */
static uint64_t find_bad_copies(struct lineage *lineage)
{
	struct superblock older;
	uint64_t bad = lineage_encode_copies(lineage, &lineage->superblock, 1U << lineage->pair);
	unsigned pairs = 1U << (1 - lineage->pair);
	bool is_known = lineage_find_newest(lineage, lineage_copies(lineage, pairs), &older) == 0 &&
			older.generation + 1 >= lineage->superblock.generation;

	if (is_known)
		return bad | lineage_encode_copies(lineage, &older, pairs);
	return bad | lineage_copies(lineage, pairs);
}

static void read_level(struct lineage *lineage);

static void superblocks_read(struct lineage *lineage, int status)
{
	uint64_t bad;

	lineage_clear_unread(lineage);
	bad = find_bad_copies(lineage);
	for (unsigned i = 0; i < lineage->device_count * SUPERBLOCK_COPIES; i++)
		if (bad >> i & 1)
			tell_superblock(lineage, i);
	read_level(lineage);
}

/* ---- What was found of the nodes of a level ---- */

/* Reports a node with the first of its leaves, or when it was repaired, because it is good from then on. */
static bool is_told(const struct lineage_verification *verification, const struct node_header *node,
		    bool is_mended)
{
	uint64_t first = node->index;

	for (unsigned level = node->level == HEAD_TABLE_LEVEL ? 0 : node->level; level > 0; level--)
		first *= NODE_CHILDREN;
	return is_mended || first == verification->leaf;
}

/* NULL: neither is good. */
static const uint8_t *good_copy(const struct lineage_verification *verification, unsigned node)
{
	uint32_t bad = verification->bad & ~verification->mended;

	for (unsigned copy = 0; copy < COPIES; copy++)
		if (!(bad >> (node * COPIES + copy) & 1))
			return image(verification, node * COPIES + copy);
	return NULL;
}

static bool has_same_place(const struct node_extent *one, const struct node_extent *other)
{
	return one->place == other->place && one->device == other->device;
}

static void tell_copy(struct lineage *lineage, unsigned number)
{
	struct lineage_verification *verification = lineage->verification;
	unsigned node = number / COPIES, copy = number % COPIES, device;
	const struct node_header *expected = &verification->nodes[node].expected;
	bool is_table = expected->level == HEAD_TABLE_LEVEL;
	struct lineage_flaw flaw = {
		.part = is_table ? LINEAGE_TABLE : LINEAGE_NODE,
		.heads = verification->nodes[node].heads,
		.level = is_table ? 0 : expected->level,
		.index = expected->index,
		.copy = copy,
		.status = verification->statuses[number],
		.is_mended = verification->mended >> number & 1,
		.has_other = good_copy(verification, node) != NULL,
	};

	if (!is_told(verification, expected, flaw.is_mended))
		return;
	node_area_locate(lineage->nodes, verification->nodes[node].pointer.places[copy], &device,
			 &flaw.device_offset);
	flaw.device = lineage->tiers[device]->label;
	verification->found(verification, &flaw);
}

/* Reports the places of one extent that only snapshots have. */
static void tell_entry(struct lineage_verification *verification, unsigned entry)
{
	struct lineage_kept kept[HEAD_RECORDS];
	unsigned count = 0, known;

	for (unsigned node = 0; node < verification->count; node++) {
		const uint8_t *bytes = good_copy(verification, node);
		struct node_extent at;

		if (!bytes)
			continue;
		node_get_extent(bytes, entry, &at);
		if (at.place == PLACES_NONE)
			continue;
		for (known = 0; known < count && !has_same_place(&kept[known].at, &at); known++)
			;
		if (known == count)
			kept[count++] =
				(struct lineage_kept){ 0, verification->leaf * NODE_EXTENTS + entry, at };
		kept[known].heads |= verification->nodes[node].heads;
	}
	for (known = 0; known < count; known++)
		if (!(kept[known].heads & verification->job))
			verification->kept(verification, &kept[known]);
}

static void tell_extents(struct lineage *lineage)
{
	struct node_header leaf = tree_header(tree_of(lineage), 0, lineage->verification->leaf);

	for (unsigned entry = 0; entry < leaf.count; entry++)
		tell_entry(lineage->verification, entry);
}

/* An impossible pointer ends there, like a node that cannot be read. */
static struct node_pointer checked(const struct lineage *lineage, const struct node_pointer *pointer)
{
	return node_area_names(lineage->nodes, pointer) < 0 ? NODE_POINTER_NONE : *pointer;
}

/* The pointer to the next level. */
static struct node_pointer pointer_below(struct lineage *lineage, const uint8_t *bytes)
{
	const struct lineage_verification *verification = lineage->verification;
	uint64_t below = index_of(verification, verification->level - 1);
	struct node_pointer pointer;

	if (!bytes)
		return NODE_POINTER_NONE;
	node_get_pointer(bytes, (unsigned)(below % NODE_CHILDREN), &pointer);
	return checked(lineage, &pointer);
}

static void descend(struct lineage *lineage)
{
	struct lineage_verification *verification = lineage->verification;
	struct map_tree *tree = tree_of(lineage);
	unsigned below = verification->level - 1;

	for (unsigned head = 0; head < HEAD_RECORDS; head++)
		verification->pointers[head] = NODE_POINTER_NONE;
	for (unsigned node = 0; node < verification->count; node++) {
		struct node_pointer pointer = pointer_below(lineage, good_copy(verification, node));

		for (unsigned head = 0; head < HEAD_RECORDS; head++)
			if (verification->nodes[node].heads >> head & 1)
				verification->pointers[head] = pointer;
	}
	/* The job's pointer is in memory, even if its parents are bad. */
	verification->pointers[__builtin_ctz(verification->job)] =
		tree->levels[below].pointers[index_of(verification, below)];
	verification->level = below;
	read_level(lineage);
}

/* The next commit writes a bad node of the job again, with its parents, from memory. A snapshot that shares
 * it has lost it. */
static void write_again_later(struct lineage *lineage, unsigned node)
{
	const struct lineage_verification *verification = lineage->verification;

	if (!good_copy(verification, node) && verification->nodes[node].heads & verification->job &&
	    tree_of(lineage)->extents > 0)
		tree_change(tree_of(lineage), verification->leaf * NODE_EXTENTS);
}

static void end_level(struct lineage *lineage)
{
	struct lineage_verification *verification = lineage->verification;

	for (unsigned number = 0; number < verification->count * COPIES; number++)
		if (verification->bad >> number & 1)
			tell_copy(lineage, number);
	if (verification->level == tree_of(lineage)->level_count) {
		for (unsigned head = 0; head < lineage->heads.count; head++)
			verification->pointers[head] =
				verification->all >> head & 1
					? checked(lineage, &lineage->heads.records[head].root)
					: NODE_POINTER_NONE;
		verification->level--;
		read_level(lineage);
		return;
	}
	for (unsigned node = 0; node < verification->count; node++)
		write_again_later(lineage, node);
	if (verification->level > 0) {
		descend(lineage);
		return;
	}
	tell_extents(lineage);
	lineage_end(lineage, 0);
}

/* ---- Reading and mending ---- */

/* Returns the bad ones. */
static uint32_t check_copies(struct lineage *lineage, uint32_t copies)
{
	struct lineage_verification *verification = lineage->verification;
	uint32_t bad = 0;

	for (unsigned number = 0; number < verification->count * COPIES; number++) {
		const struct lineage_io *io = &lineage->ios[number];
		unsigned node = number / COPIES;

		if (!(copies >> number & 1))
			continue;
		if (io->status == 0 &&
		    node_check(image(verification, number), verification->nodes[node].pointer.checksum,
			       &verification->nodes[node].expected) == 0)
			continue;
		verification->statuses[number] = io->status < 0 ? io->status : -EBADMSG;
		bad |= 1U << number;
	}
	return bad;
}

static void move_copies(struct lineage *lineage, enum tier_direction direction, uint32_t copies,
			void (*then)(struct lineage *lineage, int status))
{
	struct lineage_verification *verification = lineage->verification;

	lineage_open_round(lineage, then);
	for (unsigned number = 0; number < verification->count * COPIES; number++) {
		struct tier_io io = { .direction = direction,
				      .priority = TIER_DEMAND,
				      .buffer = image(verification, number),
				      .length = NODE_BYTES };
		unsigned device;

		if (!(copies >> number & 1))
			continue;
		node_area_locate(lineage->nodes,
				 verification->nodes[number / COPIES].pointer.places[number % COPIES],
				 &device, &io.offset);
		lineage_start(lineage, device, number, &io);
	}
	lineage_close_round(lineage);
}

static void mended_read(struct lineage *lineage, int status)
{
	struct lineage_verification *verification = lineage->verification;

	verification->mended = verification->mending & ~check_copies(lineage, verification->mending);
	end_level(lineage);
}

/* Reads even if the write failed: only what is there counts. */
static void mended_written(struct lineage *lineage, int status)
{
	struct lineage_verification *verification = lineage->verification;

	for (unsigned number = 0; number < verification->count * COPIES; number++)
		if (verification->mending >> number & 1)
			memset(image(verification, number), 0, NODE_BYTES);
	move_copies(lineage, TIER_READ, verification->mending, mended_read);
}

static void read_twice(struct lineage *lineage, int status)
{
	struct lineage_verification *verification = lineage->verification;

	verification->bad = check_copies(lineage, verification->bad);
	for (unsigned number = 0; number < verification->count * COPIES; number++) {
		const uint8_t *good = good_copy(verification, number / COPIES);

		if (!(verification->bad >> number & 1) || !good || lineage->is_fenced)
			continue;
		memcpy(image(verification, number), good, NODE_BYTES);
		verification->mending |= 1U << number;
	}
	if (verification->mending)
		move_copies(lineage, TIER_WRITE, verification->mending, mended_written);
	else
		end_level(lineage);
}

static void read_once(struct lineage *lineage, int status)
{
	struct lineage_verification *verification = lineage->verification;

	verification->bad = check_copies(lineage, UINT32_MAX);
	if (verification->bad)
		move_copies(lineage, TIER_READ, verification->bad, read_twice);
	else
		end_level(lineage);
}

/* ---- What there is to read ---- */

static void add_node(struct lineage_verification *verification, const struct node_pointer *pointer,
		     const struct node_header *expected, uint32_t heads)
{
	unsigned node = 0;

	while (node < verification->count &&
	       memcmp(&verification->nodes[node].pointer, pointer, sizeof(*pointer)) != 0)
		node++;
	if (node == verification->count) {
		verification->nodes[node].pointer = *pointer;
		verification->nodes[node].expected = *expected;
		verification->nodes[node].heads = 0;
		verification->count++;
	}
	verification->nodes[node].heads |= heads;
}

/* The table is above the highest level. */
static void choose_nodes(struct lineage *lineage)
{
	struct lineage_verification *verification = lineage->verification;
	const struct map_tree *tree = tree_of(lineage);
	struct node_header expected;

	if (verification->level == tree->level_count) {
		add_node(verification, &lineage->superblock.root, &HEAD_TABLE_HEADER, 0);
		return;
	}
	expected = tree_header(tree, verification->level, index_of(verification, verification->level));
	for (unsigned head = 0; head < lineage->heads.count; head++)
		if (!node_pointer_is_none(&verification->pointers[head]))
			add_node(verification, &verification->pointers[head], &expected, 1U << head);
}

static void read_level(struct lineage *lineage)
{
	struct lineage_verification *verification = lineage->verification;

	verification->count = 0;
	verification->bad = verification->mending = verification->mended = 0;
	choose_nodes(lineage);
	if (verification->count > 0)
		move_copies(lineage, TIER_READ, UINT32_MAX, read_once);
	else
		lineage_end(lineage, 0);
}

/* After a failed commit nobody knows what superblocks should be. */
static void verify(struct lineage *lineage)
{
	lineage->verification->level = tree_of(lineage)->level_count;
	if (lineage->verification->leaf == 0 && !lineage->is_fenced)
		lineage_read_superblocks(lineage, superblocks_read);
	else
		read_level(lineage);
}

int lineage_verify(struct lineage_head *head, struct lineage_verification *verification,
		   struct lineage_request *request)
{
	struct lineage *lineage = head->lineage;

	if (lineage->request)
		return -EBUSY;
	if (!head_table_number(&lineage->heads, head->job))
		return lineage_refuse(lineage, -ENODATA, "nothing has been committed");
	verification->head = head;
	choose_heads(verification, lineage);
	lineage->verification = verification;
	return lineage_begin(lineage, request, verify);
}
