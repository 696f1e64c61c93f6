/* The names (references) of places.
 *
 * A node has one for each node, or record, that points to it; an extent,
 * one for each leaf that has it, and one for the job that uses it now. So a snapshot is one name more, of the
 * root of its map. A node that a commit writes names its children. The node that it replaces loses a name. If
 * that was its last, its children lose one, too; else a snapshot still points to it. */
#include <errno.h>

#include "common/size.h"
#include "offload/store/lineage_backend.h"

/* ---- Walks ---- */

bool lineage_has_place(const struct lineage *lineage, const struct node_extent *extent)
{
	return extent->device < lineage->device_count &&
	       extent->place < lineage->extents[extent->device].count;
}

static int for_extents(struct lineage *lineage, const struct node_read *read,
		       int (*act)(struct lineage *lineage, struct places *places, uint32_t place))
{
	int r = 0;

	for (unsigned i = 0; i < read->expected.count && r == 0; i++) {
		struct node_extent extent;

		node_get_extent(read->bytes, i, &extent);
		if (extent.place == PLACES_NONE)
			continue;
		r = lineage_has_place(lineage, &extent)
			    ? act(lineage, &lineage->extents[extent.device], extent.place)
			    : -EBADMSG;
	}
	return r;
}

/* All below a node that another map has is named already. */
int lineage_name_node(struct lineage *lineage, const struct node_pointer *pointer)
{
	int names = node_area_names(lineage->nodes, pointer);

	if (names < 0 || node_area_name(lineage->nodes, pointer) < 0)
		return -EBADMSG;
	return names == 0;
}

static int name_extent(struct lineage *lineage, struct places *places, uint32_t place)
{
	return places_name(places, place) < 0 ? -EBADMSG : 0;
}

int lineage_name_extents(struct lineage *lineage, const struct node_read *read)
{
	return for_extents(lineage, read, name_extent);
}

int lineage_give_node(struct lineage *lineage, const struct node_pointer *pointer)
{
	if (node_area_names(lineage->nodes, pointer) <= 0)
		return -EBADMSG;
	return node_area_give(lineage->nodes, pointer);
}

static int give_extent(struct lineage *lineage, struct places *places, uint32_t place)
{
	if (places_is_free(places, place))
		return -EBADMSG;
	places_give(places, place);
	return 0;
}

int lineage_give_extents(struct lineage *lineage, const struct node_read *read)
{
	return for_extents(lineage, read, give_extent);
}

int lineage_count_node(struct lineage *lineage, const struct node_pointer *pointer)
{
	int names = node_area_names(lineage->nodes, pointer);

	return names < 0 ? -EBADMSG : names == 1;
}

static int count_extent(struct lineage *lineage, struct places *places, uint32_t place)
{
	lineage->count += places->names[place] == 1;
	return 0;
}

int lineage_count_extents(struct lineage *lineage, const struct node_read *read)
{
	return for_extents(lineage, read, count_extent);
}

/* ---- What a commit changes ---- */

int lineage_name_children(struct lineage *lineage, const struct node_header *header)
{
	const struct node_pointer *below =
		lineage->head->tree.levels[header->level - 1].pointers + header->index * NODE_CHILDREN;

	for (unsigned i = 0; i < header->count; i++) {
		uint64_t index = header->index * NODE_CHILDREN + i;
		int r;

		/* Nodes of this commit got a name with their place. */
		if (node_pointer_is_none(&below[i]) ||
		    tree_replaced(&lineage->head->tree, header->level - 1, index))
			continue;
		r = node_area_name(lineage->nodes, &below[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Removes the names of a former map, or of a view's. Nodes that the commit has not replaced are those of the
 * present map. */
static void release_node(struct lineage *lineage, struct lineage_head *head, unsigned level, uint64_t index)
{
	const struct node_pointer *replaced = tree_replaced(&head->tree, level, index);
	const struct node_pointer *pointer = replaced ? replaced : &head->tree.levels[level].pointers[index];
	struct node_header header;

	if (node_pointer_is_none(pointer) || !node_area_give(lineage->nodes, pointer))
		return;
	if (level == 0) {
		head->ops->release_node(head, index);
		return;
	}
	header = tree_header(&head->tree, level, index);
	for (unsigned i = 0; i < header.count; i++)
		release_node(lineage, head, level - 1, index * NODE_CHILDREN + i);
}

void lineage_give_replaced(struct lineage *lineage)
{
	unsigned top = lineage->head ? lineage->head->tree.level_count - 1 : 0;

	if (lineage->superblock.root.places[0] != NODE_NOWHERE)
		node_area_give(lineage->nodes, &lineage->superblock.root);
	if (!lineage->head)
		return;
	if (tree_replaced(&lineage->head->tree, top, 0))
		release_node(lineage, lineage->head, top, 0);
	tree_forget_replaced(&lineage->head->tree);
}

void lineage_close_view(struct lineage_head *view)
{
	release_node(view->lineage, view, view->tree.level_count - 1, 0);
	view->lineage->view_count--;
	lineage_feed(view->lineage);
}

/* ---- Room ---- */

/* Places that the commit, the snapshots and the views need: those in use that are committed. */
static uint64_t kept_on(const struct lineage *lineage, unsigned device)
{
	const struct places *places = &lineage->extents[device];
	uint64_t kept = places->count - places->free_count;

	for (unsigned i = 0; i < lineage->attached_count; i++)
		kept -= lineage->attached[i]->ops->uncommitted(lineage->attached[i], device);
	return kept;
}

static struct lineage_extents extents_of(const struct lineage_head *head)
{
	return head->extents.changing + head->extents.fixed > 0
		       ? head->extents
		       : lineage_extents_of(head->tree.extents, head->lineage->device_count);
}

uint32_t lineage_places_for(const struct lineage_head *head, unsigned jobs, unsigned snapshots)
{
	return lineage_places_needed(extents_of(head), jobs, snapshots);
}

uint32_t lineage_fork_extents(const struct lineage_head *head)
{
	return 2 * extents_of(head).changing + LINEAGE_SPARE_EXTENTS;
}

static int refuse_space(struct lineage *lineage, unsigned device, uint64_t kept, uint64_t least)
{
	uint64_t bytes = lineage->geometry.place_bytes;

	return lineage_refuse(lineage, -ENOSPC,
			      "with this one they would keep %llu MiB on %s, which has %llu MiB for "
			      "snapshots",
			      (unsigned long long)(kept * bytes / MIB), lineage->tiers[device]->label,
			      (unsigned long long)((lineage->extents[device].count - least) * bytes / MIB));
}

/* If all that is kept stays, two more states of each job must fit: the next commit, and the one after it.
 * That counts the last commits of other jobs twice. So it is also enough if each snapshot and view has space
 * for a state of its own. */
static int check_device(struct lineage_head *head, unsigned device)
{
	struct lineage *lineage = head->lineage;
	unsigned jobs = head_table_count(&lineage->heads, HEAD_JOB);
	unsigned snapshots = head_table_count(&lineage->heads, HEAD_SNAPSHOT) + 1 + lineage->view_count;
	uint64_t least = lineage_places_for(head, jobs, 0), count = lineage->extents[device].count;
	uint64_t kept = size_rest(kept_on(lineage, device), extents_of(head).fixed);

	return least + kept <= count || lineage_places_for(head, jobs, snapshots) <= count
		       ? 0
		       : refuse_space(lineage, device, kept, least);
}

int lineage_check_space(struct lineage_head *head)
{
	struct lineage *lineage = head->lineage;
	uint64_t nodes = 4 * (tree_nodes(head->tree.extents) + 1);
	int r = 0;

	for (unsigned device = 0; device < lineage->device_count && r == 0; device++)
		r = check_device(head, device);
	if (r == 0 && node_area_free_places(lineage->nodes) < nodes)
		return lineage_refuse(lineage, -ENOSPC, "the reserve for the maps of snapshots is used");
	return r;
}
