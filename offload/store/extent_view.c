/* A view of a snapshot, or of the last commit, of a store on devices. It has its own map and operations, and
 * the devices of its store. */
#include <assert.h>
#include <errno.h>

#include "offload/store/extent_store.h"

static struct extent_store *view_of(struct lineage_head *head)
{
	return container_of(head, struct extent_store, head);
}

/* ---- What the lineage asks for ---- */

static int load_node(struct lineage_head *head, const struct node_header *header,
		     const uint8_t bytes[NODE_BYTES])
{
	return store_map_load(&view_of(head)->map, header, bytes, MAP_OF_VIEW);
}

static void release_node(struct lineage_head *head, uint64_t index)
{
	store_map_release(&view_of(head)->map, index);
}

static int begin_load(struct lineage_head *head, uint64_t extents)
{
	struct extent_store *view = view_of(head);
	const struct store_map *map = &view->viewed->map;
	int r = tree_init(&head->tree, extents);

	if (r == 0)
		r = store_map_init(&view->map, extents, map->devices, map->device_count);
	if (r == 0)
		store_map_adopt(&view->map, view->store.layout);
	return r;
}

static const struct lineage_head_ops view_head_ops = { .release_node = release_node,
						       .load_node = load_node,
						       .begin_load = begin_load };

/* ---- The store that it is ---- */

static int view_submit(struct store *base, struct store_transfer *transfer)
{
	return transfer->direction == TIER_READ ? extent_submit(base, transfer) : -EROFS;
}

static uint64_t view_step(const struct store *base)
{
	return container_of(base, const struct extent_store, store)->head.step;
}

static void view_free(struct store *base)
{
	struct extent_store *view = container_of(base, struct extent_store, store);

	assert(view->free_count == view->depth * view->device_count);
	/* A map that was not read names nothing. */
	if (view->head.lineage)
		lineage_close_view(&view->head);
	tree_destroy(&view->head.tree);
	store_map_destroy(&view->map);
	free(view->operations);
	free(view);
}

static const struct store_ops view_ops = {
	.submit = view_submit,
	.raise = extent_raise,
	.step = view_step,
	.free = view_free,
};

/* ---- Opening one ---- */

static uint64_t host_bytes_of(const struct extent_store *store)
{
	return sizeof(*store) + store->device_count * sizeof(struct device) +
	       store_map_host_bytes(store->map.count) + tree_host_bytes(store->map.count) +
	       (uint64_t)store->device_count * store->depth * sizeof(struct operation);
}

static int run_open(struct extent_store *store)
{
	return lineage_open_view(&store->head, extent_other(store), &store->opening->head, &store->step);
}

int store_open_snapshot(struct store *base, const char *name, struct store_request *request,
			struct store **ret_view)
{
	struct extent_store *store, *view;
	int r = extent_may_ask(base, &store);

	if (r < 0)
		return r;
	view = extent_store_beside(store, &view_ops, base->layout);
	if (!view)
		return -ENOMEM;
	view->viewed = store;
	view->head.ops = &view_head_ops;
	view->store.host_bytes = host_bytes_of(store);
	extent_keep_other(store, name);
	return extent_ask_for_store(store, request, run_open, view, ret_view);
}
