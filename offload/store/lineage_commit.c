/* A commit, in the order of docs/store.md and tests/model/commit.py: writes nodes to free places, from the
 * extents up; flushes every device; writes the superblocks of the other pair; flushes again. Only then is it
 * acknowledged, and are places freed. The first error ends all writing: the next open finds out what the
 * devices have. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "offload/store/lineage_backend.h"

/* What was written may be lost. Nothing may depend on it, and nothing may overwrite the last commit. */
static void fail(struct lineage *lineage, int status, const char *what)
{
	lineage->is_fenced = true;
	lineage_end(lineage, lineage_refuse(lineage, status, "%s: %s", what, strerror(-status)));
}

static void fail_on_device(struct lineage *lineage, int status, const char *what)
{
	char text[sizeof(lineage->message) - 64];

	snprintf(text, sizeof(text), "%s cannot be %s", lineage_failed(lineage), what);
	fail(lineage, status, text);
}

/* ---- The second half: superblocks ---- */

static void acknowledge(struct lineage *lineage, int status)
{
	if (status < 0) {
		fail_on_device(lineage, status, "flushed at the end of a commit");
		return;
	}
	lineage_give_replaced(lineage);
	lineage->superblock = lineage->next;
	lineage->heads = lineage->next_heads;
	lineage->pair = 1 - lineage->pair;
	lineage->committed(lineage);
}

static void flush_superblocks(struct lineage *lineage, int status)
{
	if (status < 0)
		fail_on_device(lineage, status, "written at a superblock");
	else
		lineage_flush(lineage, acknowledge);
}

static void write_superblocks(struct lineage *lineage, int status)
{
	unsigned pairs = 1U << (1 - lineage->pair);

	if (status < 0) {
		fail_on_device(lineage, status, "flushed in a commit");
		return;
	}
	(void)lineage_encode_copies(lineage, &lineage->next, pairs);
	lineage_write_superblocks(lineage, lineage_copies(lineage, pairs), flush_superblocks);
}

/* ---- The first half: nodes ---- */

static int place_node(struct lineage *lineage, struct node_header *header, uint8_t *bytes)
{
	struct lineage_head *head = lineage->head;
	struct node_pointer pointer;
	int r = 0;

	header->generation = lineage->next.generation;
	header->epoch = lineage->next.epoch;
	if (header->level == 0) {
		head->ops->freeze_node(head, header, bytes);
	} else {
		tree_fill(&head->tree, header, bytes);
		r = lineage_name_children(lineage, header);
	}
	if (r == 0)
		r = node_area_add(lineage->nodes, &pointer);
	if (r < 0)
		return r;
	tree_place(&head->tree, header, &pointer);
	return 0;
}

static void note_job(struct lineage *lineage)
{
	const struct lineage_head *head = lineage->head;
	struct head_record *record = head_table_number(&lineage->next_heads, head->job);
	uint64_t origin = record ? record->origin : head->serial;

	/* Of the first commit. */
	if (!record)
		record = &lineage->next_heads.records[lineage->next_heads.count++];
	*record = (struct head_record){
		.kind = HEAD_JOB,
		.job = head->job,
		.step = head->step,
		.extents = head->tree.extents,
		.seconds = (uint64_t)time(NULL),
		.serial = head->serial,
		.origin = origin,
		.root = *tree_root(&head->tree),
	};
	memcpy(record->name, head->name, sizeof(record->name));
}

/* The table is the last node, and the root. */
static int place_table(struct lineage *lineage, uint8_t *bytes)
{
	if (lineage->head)
		note_job(lineage);
	lineage->next.step = lineage->next_heads.records[0].step;
	lineage->is_rooted = true;
	head_table_put(bytes, &lineage->next_heads, lineage->next.generation, lineage->next.epoch);
	/* While something is lost, only the places of the table before the last one are known to be free. */
	if (lineage->lost)
		return node_area_add_at(lineage->nodes, &lineage->superblock.previous, &lineage->next.root);
	return node_area_add(lineage->nodes, &lineage->next.root);
}

/* Fills a batch; the table ends the last one. A node is encoded after its children have their places. */
static int fill_batch(struct lineage *lineage)
{
	const struct map_tree *tree = lineage->head ? &lineage->head->tree : NULL;
	uint8_t *bytes;
	int r = 0;

	while (r == 0 && (bytes = node_area_next(lineage->nodes))) {
		struct node_header header;

		if (!tree || lineage->level == tree->level_count)
			return place_table(lineage, bytes);
		if (!tree_next(tree, lineage->level, &lineage->index, &header)) {
			lineage->level++;
			lineage->index = 0;
			continue;
		}
		lineage->index++;
		r = place_node(lineage, &header, bytes);
	}
	return r;
}

static void write_nodes(struct lineage *lineage);

static void batch_written(void *argument, int status)
{
	struct lineage *lineage = argument;

	if (status < 0)
		fail(lineage, status, "the map cannot be written");
	else if (lineage->is_rooted)
		lineage_flush(lineage, write_superblocks);
	else
		write_nodes(lineage);
}

static void write_nodes(struct lineage *lineage)
{
	int r = fill_batch(lineage);

	if (r == 0)
		r = node_area_write(lineage->nodes, batch_written, lineage);
	if (r < 0)
		fail(lineage, r, "the map cannot be written");
}

static void begin(struct lineage *lineage, struct lineage_head *head)
{
	lineage->head = head;
	lineage->next = lineage->superblock;
	lineage->next.generation++;
	lineage->next.previous = lineage->superblock.root;
	for (unsigned device = 0; device < lineage->device_count; device++)
		lineage->next.members[device].extents = lineage->next_extents;
	lineage->is_rooted = false;
	lineage->level = 0;
	lineage->index = 0;
	write_nodes(lineage);
}

static void end_commit(struct lineage *lineage)
{
	lineage->head->ops->committed(lineage->head);
	lineage_end(lineage, 0);
}

static void begin_commit(struct lineage *lineage)
{
	lineage->next_heads = lineage->heads;
	lineage->committed = end_commit;
	begin(lineage, lineage->head);
}

void lineage_commit_table(struct lineage *lineage)
{
	begin(lineage, NULL);
}

int lineage_freeze(struct lineage_head *head)
{
	if (head->lineage->is_fenced || head->has_ended)
		return -EROFS;
	if (head->lineage->lost)
		return lineage_refuse_writing(head->lineage);
	tree_freeze(&head->tree);
	return 0;
}

int lineage_commit(struct lineage_head *head, struct lineage_request *request)
{
	struct lineage *lineage = head->lineage;

	if (lineage->is_fenced || head->has_ended)
		return -EROFS;
	if (lineage->request)
		return -EBUSY;
	lineage->head = head;
	return lineage_begin(lineage, request, begin_commit);
}
