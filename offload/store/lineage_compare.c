/* Compares two maps of a lineage, level by level. What both have below the same node is equal. */
#include <errno.h>
#include <string.h>

#include "offload/store/lineage_backend.h"

static const struct node_pointer *pointer_of(const struct lineage *lineage, unsigned map)
{
	return &lineage->walked[map].levels[lineage->level].pointers[lineage->index];
}

static bool is_same_node(const struct lineage *lineage)
{
	return memcmp(pointer_of(lineage, 0), pointer_of(lineage, 1), sizeof(struct node_pointer)) == 0;
}

/* ---- What was read ---- */

static struct node_extent extent_of(const struct node_read *read, unsigned entry)
{
	struct node_extent extent = { .place = PLACES_NONE };

	if (read)
		node_get_extent(read->bytes, entry, &extent);
	return extent;
}

/* The device of an extent that was never written has no meaning. */
static bool is_same_extent(const struct node_extent *from, const struct node_extent *to)
{
	return from->place == to->place && (from->place == PLACES_NONE || from->device == to->device);
}

/* reads: NULL: nothing below was ever written in that map. */
static void compare_extents(struct lineage *lineage, const struct node_header *header,
			    const struct node_read *const reads[2])
{
	for (unsigned i = 0; i < header->count; i++) {
		struct node_extent from = extent_of(reads[0], i), to = extent_of(reads[1], i);

		if (!is_same_extent(&from, &to))
			lineage->difference->tell(lineage->difference, header->index * NODE_EXTENTS + i,
						  &from, &to);
	}
}

/* Takes the node of one map, or that of each. Returns how many. */
static int take_pair(struct lineage *lineage, unsigned first)
{
	const struct node_read *reads[2] = { NULL, NULL };
	const struct node_header header = lineage->reads[first].expected;
	unsigned next = first;
	int r = 0;

	for (unsigned map = 0; map < 2 && r == 0; map++) {
		const struct node_pointer *pointer =
			&lineage->walked[map].levels[header.level].pointers[header.index];

		if (node_pointer_is_none(pointer))
			continue;
		reads[map] = &lineage->reads[next++];
		r = tree_load(&lineage->walked[map], header.level, header.index, reads[map]->bytes);
	}
	if (r == 0 && header.level == 0)
		compare_extents(lineage, &header, reads);
	return r < 0 ? r : (int)(next - first);
}

static void read_pairs(struct lineage *lineage);

static void pairs_read(void *argument, int status)
{
	struct lineage *lineage = argument;

	for (unsigned i = 0; i < lineage->read_count && status >= 0; i += (unsigned)status)
		status = take_pair(lineage, i);
	if (status < 0)
		lineage_end_walk(lineage, status);
	else
		read_pairs(lineage);
}

/* ---- What is to be read ---- */

static int choose_pair(struct lineage *lineage)
{
	for (unsigned map = 0; map < 2; map++) {
		struct node_read *read = &lineage->reads[lineage->read_count];

		read->pointer = *pointer_of(lineage, map);
		read->expected = tree_header(&lineage->walked[map], lineage->level, lineage->index);
		if (node_pointer_is_none(&read->pointer))
			continue;
		if (node_area_names(lineage->nodes, &read->pointer) <= 0)
			return -EBADMSG;
		lineage->read_count++;
	}
	return 0;
}

static int choose_pairs(struct lineage *lineage)
{
	int r = 0;

	lineage->read_count = 0;
	while (lineage->read_count <= NODE_BATCH - 2 && r == 0) {
		if (lineage->index == lineage->walked[0].levels[lineage->level].count) {
			if (lineage->level == 0 || lineage->read_count > 0)
				return 0;
			lineage->level--;
			lineage->index = 0;
		}
		if (!is_same_node(lineage))
			r = choose_pair(lineage);
		lineage->index++;
	}
	return r;
}

static void read_pairs(struct lineage *lineage)
{
	int r = choose_pairs(lineage);

	if (r == 0 && lineage->read_count > 0)
		r = node_area_read(lineage->nodes, lineage->reads, lineage->read_count, pairs_read, lineage);
	if (r < 0 || lineage->read_count == 0)
		lineage_end_walk(lineage, r);
}

static void compare(struct lineage *lineage)
{
	lineage->level = lineage->walked[0].level_count - 1;
	lineage->index = 0;
	read_pairs(lineage);
}

int lineage_compare(struct lineage_difference *difference, struct lineage_request *request)
{
	const char *names[2] = { difference->from, difference->to };
	struct lineage *lineage = difference->head->lineage;
	int r = lineage->request ? -EBUSY : 0;

	for (unsigned map = 0; map < 2 && r == 0; map++)
		r = lineage_make_tree(difference->head, names[map], &lineage->walked[map]);
	if (r < 0)
		return r;
	lineage->difference = difference;
	return lineage_begin_walk(lineage, request, compare);
}
