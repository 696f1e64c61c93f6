/* Reads a map, level by level from the root down, in batches of nodes. */
#include <errno.h>
#include <string.h>

#include "offload/store/lineage_backend.h"

int lineage_refuse_map(struct lineage *lineage, int r, const char *whose)
{
	struct node_failure failure = node_area_failure(lineage->nodes);

	if (r == -ENOMEM)
		return lineage_refuse(lineage, r, "no memory for the map of %s", whose);
	if (!failure.device)
		return lineage_refuse(lineage, r, "the map of %s says what cannot be", whose);
	return lineage_refuse(lineage, r, "the map of %s cannot be read, last at byte %llu of %s: %s", whose,
			      (unsigned long long)failure.device_offset, failure.device,
			      r == -EBADMSG ? "it is not what its checksum says" : strerror(-r));
}

void lineage_end_walk(struct lineage *lineage, int status)
{
	for (unsigned i = 0; i < ARRAY_LENGTH(lineage->walked); i++)
		tree_destroy(&lineage->walked[i]);
	if (status < 0)
		lineage_refuse_map(lineage, status, "a snapshot");
	lineage_end(lineage, status);
}

static void table_read(void *argument, int status)
{
	struct lineage *lineage = argument;

	if (status < 0)
		lineage_end_walk(lineage, status);
	else
		lineage->walk_maps(lineage);
}

static void read_table(struct lineage *lineage)
{
	int r;

	lineage->reads[0] =
		(struct node_read){ .pointer = lineage->superblock.root, .expected = HEAD_TABLE_HEADER };
	r = node_area_read(lineage->nodes, lineage->reads, 1, table_read, lineage);
	if (r < 0)
		lineage_end_walk(lineage, r);
}

/* No request succeeds inside its call. Equal or empty maps need no reads, so the table is read first: there
 * always is one. */
int lineage_begin_walk(struct lineage *lineage, struct lineage_request *request,
		       void (*walk_maps)(struct lineage *lineage))
{
	lineage->walk_maps = walk_maps;
	return lineage_begin(lineage, request, read_table);
}

static int take_node(struct lineage *lineage, const struct node_read *read)
{
	const struct lineage_walk *walk = &lineage->walk;
	int r = tree_load(walk->tree, read->expected.level, read->expected.index, read->bytes);

	return r == 0 && read->expected.level == 0 ? walk->take(lineage, read) : r;
}

static void read_nodes(struct lineage *lineage);

static void nodes_read(void *argument, int status)
{
	struct lineage *lineage = argument;

	for (unsigned i = 0; i < lineage->read_count && status == 0; i++)
		status = take_node(lineage, &lineage->reads[i]);
	if (status < 0)
		lineage->walk.then(lineage, status);
	else
		read_nodes(lineage);
}

/* Chooses the next nodes of the level, or of the one below it. */
static int choose_nodes(struct lineage *lineage)
{
	const struct map_tree *tree = lineage->walk.tree;

	lineage->read_count = 0;
	while (lineage->read_count < NODE_BATCH) {
		struct node_read *read = &lineage->reads[lineage->read_count];
		int r;

		if (lineage->index == tree->levels[lineage->level].count) {
			if (lineage->level == 0 || lineage->read_count > 0)
				return 0;
			lineage->level--;
			lineage->index = 0;
		}
		read->pointer = tree->levels[lineage->level].pointers[lineage->index];
		read->expected = tree_header(tree, lineage->level, lineage->index++);
		if (node_pointer_is_none(&read->pointer))
			continue;
		r = lineage->walk.meet(lineage, &read->pointer);
		if (r < 0)
			return r;
		lineage->read_count += (unsigned)r;
	}
	return 0;
}

static void read_nodes(struct lineage *lineage)
{
	int r = choose_nodes(lineage);

	if (r == 0 && lineage->read_count > 0)
		r = node_area_read(lineage->nodes, lineage->reads, lineage->read_count, nodes_read, lineage);
	if (r < 0 || lineage->read_count == 0)
		lineage->walk.then(lineage, r);
}

void lineage_walk(struct lineage *lineage, const struct lineage_walk *walk)
{
	lineage->walk = *walk;
	lineage->level = walk->tree->level_count - 1;
	lineage->index = 0;
	read_nodes(lineage);
}
