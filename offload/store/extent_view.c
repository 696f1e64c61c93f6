/* A view: a snapshot of a store on devices, or its last commit, to be read. It has a map and operations of
 * its own, and the devices of its store. */
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
	return store_map_load_view(&view_of(head)->map, header, bytes);
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

/* Of one whose map was not read nothing is named. */
static void free_parts(struct extent_store *view)
{
	tree_destroy(&view->head.tree);
	store_map_destroy(&view->map);
	free(view->operations);
	free(view);
}

static void view_free(struct store *base)
{
	struct extent_store *view = container_of(base, struct extent_store, store);

	assert(view->free_count == view->depth * view->device_count);
	lineage_close_view(&view->head);
	free_parts(view);
}

static const struct store_ops view_ops = {
	.name = "nvme",
	.submit = view_submit,
	.raise = extent_raise,
	.step = view_step,
	.free = view_free,
};

/* ---- Opening one ---- */

static void opened(struct lineage_request *step, int status)
{
	struct extent_store *store = container_of(step, struct extent_store, step);

	if (status == 0)
		*store->ret_store = &store->opening->store;
	else
		free_parts(store->opening);
	store->opening = NULL;
	extent_end_request(store, status);
}

static uint64_t host_bytes_of(const struct extent_store *store)
{
	return sizeof(*store) + store->device_count * sizeof(struct device) +
	       store_map_host_bytes(store->map.count) + tree_host_bytes(store->map.count) +
	       (uint64_t)store->device_count * store->depth * sizeof(struct operation);
}

static int make(struct extent_store *store, struct extent_store **ret_view)
{
	struct extent_store *view =
		extent_store_allocate(&view_ops, store->store.layout, store->device_count);
	int r;

	if (!view)
		return -ENOMEM;
	view->viewed = store;
	view->workers = store->workers;
	view->extents_offset = store->extents_offset;
	view->place_bytes = store->place_bytes;
	view->head.ops = &view_head_ops;
	for (unsigned device = 0; device < store->device_count; device++)
		view->devices[device].tier = store->devices[device].tier;
	r = extent_store_allocate_operations(view, store->depth);
	if (r < 0) {
		free_parts(view);
		return r;
	}
	view->store.host_bytes = host_bytes_of(store);
	*ret_view = view;
	return 0;
}

static int run_open(struct extent_store *store)
{
	return lineage_open_view(&store->head, store->asked.has_other ? store->asked.other : NULL,
				 &store->opening->head, &store->step);
}

int extent_open_snapshot(struct store *base, const char *name, struct store_request *request,
			 struct store **ret_view)
{
	struct extent_store *store = container_of(base, struct extent_store, store);
	int r;

	if (store->request)
		return -EBUSY;
	store->asked.has_other = name != NULL;
	extent_keep_name(store->asked.other, name ? name : "");
	store->ret_store = ret_view;
	r = make(store, &store->opening);
	if (r < 0)
		return r;
	r = extent_ask(store, request, run_open, opened);
	if (r < 0) {
		free_parts(store->opening);
		store->opening = NULL;
	}
	return r;
}
