/* Views of a toy store. */
#include <string.h>

#include "common/little_endian.h"
#include "tests/unit/test.h"
#include "tests/unit/toy_store.h"

static struct toy_view *view_of(struct lineage_head *head)
{
	return container_of(head, struct toy_view, head);
}

static int load_node(struct lineage_head *head, const struct node_header *header,
		     const uint8_t bytes[NODE_BYTES])
{
	for (unsigned i = 0; i < header->count; i++)
		node_get_extent(bytes, i, &view_of(head)->map[header->index * NODE_EXTENTS + i]);
	return 0;
}

static void release_node(struct lineage_head *head, uint64_t index)
{
	struct toy_view *view = view_of(head);

	for (uint64_t i = index * NODE_EXTENTS; i < view->toy->extents && i / NODE_EXTENTS == index; i++)
		if (view->map[i].place != UINT32_MAX)
			places_give(toy_places(view->toy, (unsigned)i), view->map[i].place);
}

static int begin_load(struct lineage_head *head, uint64_t extents)
{
	struct toy_view *view = view_of(head);

	for (unsigned i = 0; i < TOY_MAX_EXTENTS; i++)
		view->map[i] = (struct node_extent){ .place = UINT32_MAX };
	return tree_init(&head->tree, extents);
}

static const struct lineage_head_ops view_ops = { .release_node = release_node,
						  .load_node = load_node,
						  .begin_load = begin_load };

static unsigned number_of(const struct toy_view *view)
{
	return (unsigned)(view - view->toy->views);
}

int toy_open_view(struct toy *toy, struct toy_view *view, const struct toy_kept *kept)
{
	const char *name = kept->name[0] ? kept->name : NULL;
	int r;

	view->kept = *kept;
	view->head = (struct lineage_head){ .ops = &view_ops };
	r = toy_wait(toy, lineage_open_view(&toy->head, name, &view->head, &toy->request));
	if (r < 0) {
		tree_destroy(&view->head.tree);
		return r;
	}
	view->toy = toy;
	sim_watch_view(toy->watch, number_of(view), tree_root(&view->head.tree), toy->extents);
	assert_int_equal(view->head.step, kept->step);
	if (name)
		assert_string_equal(view->head.name, name);
	toy_expect_view(view);
	return 0;
}

static void expect_extent(const struct toy_view *view, unsigned number)
{
	const struct node_extent *extent = &view->map[number];
	uint64_t content = view->kept.content[number];
	uint8_t page[TOY_PAGE];

	if (extent->place == UINT32_MAX) {
		assert_int_equal(content, 0);
		return;
	}
	assert_int_equal(extent->checksums[0], content);
	sim_disk_read(view->toy->disks[extent->device], toy_offset(view->toy, extent->place), page, TOY_PAGE);
	for (unsigned at = 0; at < TOY_PAGE; at += 8)
		assert_int_equal(get64(page + at), content);
}

void toy_expect_view(struct toy_view *view)
{
	for (unsigned i = 0; i < view->toy->extents; i++)
		expect_extent(view, i);
}

void toy_close_view(struct toy_view *view)
{
	sim_watch_end_view(view->toy->watch, number_of(view));
	lineage_close_view(&view->head);
	tree_destroy(&view->head.tree);
	view->toy = NULL;
}
