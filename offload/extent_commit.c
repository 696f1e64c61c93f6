/* Commits of a store on devices: the store is the one head of its lineage. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "offload/extent_store.h"

static struct extent_store *store_of(struct lineage_head *head)
{
	return container_of(head, struct extent_store, head);
}

/* ---- What the lineage asks for ---- */

static void unpark_leaf(struct extent_store *store, uint64_t leaf)
{
	QUEUE_FOREACH (link, &store->parked) {
		struct operation *operation = queue_entry(link, struct operation, wait_link);

		if (operation->extent / NODE_EXTENTS == leaf)
			operation_unpark(operation);
	}
}

static void freeze_node(struct lineage_head *head, const struct node_header *header,
			uint8_t bytes[NODE_BYTES])
{
	struct extent_store *store = store_of(head);

	store_map_freeze(&store->map, header, bytes);
	store->frozen_leaves[store->frozen_count++] = header->index;
	unpark_leaf(store, header->index);
}

static void release_node(struct lineage_head *head, uint64_t index)
{
	store_map_release(&store_of(head)->map, index);
}

static uint64_t uncommitted(const struct lineage_head *head, unsigned device)
{
	return container_of(head, const struct extent_store, head)->map.uncommitted[device];
}

static void committed(struct lineage_head *head)
{
	struct extent_store *store = store_of(head);

	for (uint64_t i = 0; i < store->frozen_count; i++)
		store_map_commit(&store->map, store->frozen_leaves[i]);
}

int extent_init_map(struct extent_store *store, uint64_t extents)
{
	struct places *devices[SUPERBLOCK_MAX_MEMBERS];
	int r;

	for (unsigned device = 0; device < store->device_count; device++)
		devices[device] = lineage_places(store->lineage, device);
	r = tree_init(&store->head.tree, extents);
	if (r == 0)
		r = store_map_init(&store->map, extents, devices, store->device_count);
	store->map.tree = &store->head.tree;
	store->frozen_leaves = calloc(extents / NODE_EXTENTS + 1, sizeof(uint64_t));
	return r == 0 && !store->frozen_leaves ? -ENOMEM : r;
}

/* One stream of all extents, until somebody knows better: its first bytes are where they are in any layout.
 */
static int make_found_layout(struct extent_store *store, uint64_t extents)
{
	uint64_t offset;
	int r = store_layout_new(&store->store.layout);

	if (r == 0)
		r = store_layout_add_stream(store->store.layout, "found");
	return r < 0 ? r
		     : store_layout_add_section(store->store.layout, 0, extents * STORE_EXTENT_BYTES,
						&offset);
}

static int begin_load(struct lineage_head *head, uint64_t extents)
{
	struct extent_store *store = store_of(head);
	int r = make_found_layout(store, extents);

	/* What no layout can have says the table, which is not to be believed then. */
	if (r < 0)
		return r == -ENOMEM ? r : -EBADMSG;
	return extent_init_map(store, extents);
}

static int load_node(struct lineage_head *head, const struct node_header *header,
		     const uint8_t bytes[NODE_BYTES])
{
	return store_map_load(&store_of(head)->map, header, bytes);
}

static const struct lineage_head_ops head_ops = { freeze_node, release_node, committed,
						  load_node,   begin_load,   uncommitted };

/* ---- Life ---- */

int extent_commit_init(struct extent_store *store, const char *name, struct tier **tiers)
{
	const struct store_layout *layout = store->store.layout;
	struct lineage_geometry geometry;
	int r;

	store->head.ops = &head_ops;
	snprintf(store->head.name, sizeof(store->head.name), "%s", name ? name : "");
	if (layout)
		geometry = store_layout_geometry(layout, store->device_count);
	r = lineage_new(tiers, store->device_count, layout ? &geometry : NULL, &store->head, &store->lineage);
	if (r < 0) {
		/* It has freed them. */
		store->device_count = 0;
		return r;
	}
	if (!layout)
		return 0;
	store->extents_offset = lineage_offset(store->lineage);
	r = extent_init_map(store, store_layout_extents(layout));
	if (r == 0)
		store_map_adopt(&store->map, layout);
	return r;
}

void extent_commit_free(struct extent_store *store)
{
	store->lineage = lineage_free(store->lineage);
	tree_destroy(&store->head.tree);
	free(store->frozen_leaves);
}

/* ---- Requests ---- */

int extent_take_request(struct extent_store *store, struct store_request *request,
			void (*done)(struct lineage_request *request, int status))
{
	if (!store->lineage)
		return -EOPNOTSUPP;
	if (store->request)
		return -EBUSY;
	store->request = request;
	store->step.done = done;
	return 0;
}

int extent_took_request(struct extent_store *store, int r)
{
	if (r < 0)
		store->request = NULL;
	return r;
}

static int begin(struct extent_store *store, struct store_request *request,
		 int (*run)(struct lineage *lineage, struct lineage_request *request),
		 void (*done)(struct lineage_request *request, int status))
{
	int r = extent_take_request(store, request, done);

	return r < 0 ? r : extent_took_request(store, run(store->lineage, &store->step));
}

/* Last, because the caller may free the store in it. */
void extent_end_request(struct extent_store *store, int status)
{
	struct store_request *request = store->request;

	store->request = NULL;
	request->done(request, status);
}

static void created(struct lineage_request *step, int status)
{
	extent_end_request(container_of(step, struct extent_store, step), status);
}

static void opened(struct lineage_request *step, int status)
{
	struct extent_store *store = container_of(step, struct extent_store, step);

	if (status == 0)
		store->extents_offset = lineage_offset(store->lineage);
	extent_end_request(store, status == 0 && !store->store.layout ? -ENOENT : status);
}

/* Writes that waited for it go on, or fail with it. */
static void end_commit(struct extent_store *store)
{
	store->is_committing = false;
	store->frozen_count = 0;
	QUEUE_FOREACH (link, &store->parked)
		operation_unpark(queue_entry(link, struct operation, wait_link));
	operation_feed(store);
}

static void commit_ended(struct lineage_request *step, int status)
{
	struct extent_store *store = container_of(step, struct extent_store, step);

	end_commit(store);
	extent_end_request(store, status);
}

int extent_create(struct store *base, struct store_request *request)
{
	return begin(container_of(base, struct extent_store, store), request, lineage_create, created);
}

int extent_open(struct store *base, struct store_request *request)
{
	return begin(container_of(base, struct extent_store, store), request, lineage_open, opened);
}

int extent_commit(struct store *base, uint64_t step, struct store_request *request)
{
	struct extent_store *store = container_of(base, struct extent_store, store);
	int r;

	if (store->request)
		return -EBUSY;
	store->head.step = step;
	store->is_committing = true;
	r = begin(store, request, lineage_commit, commit_ended);
	if (r < 0)
		end_commit(store);
	return r;
}
