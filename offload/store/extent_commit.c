/* Commits of a store on devices. The store is a head of its lineage, which may have others. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "offload/store/extent_store.h"

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

static void feed(struct lineage_head *head)
{
	operation_feed(store_of(head));
}

/* Makes the map, with its tree, on the places of the lineage. */
static int init_map(struct extent_store *store, uint64_t extents)
{
	struct places *devices[SUPERBLOCK_MAX_MEMBERS];
	int r;

	for (unsigned device = 0; device < store->device_count; device++)
		devices[device] = lineage_places(store->lineage, device);
	r = tree_init(&store->head.tree, extents);
	if (r == 0)
		r = store_map_init(&store->map, extents, devices, store->device_count);
	if (r == 0 && store->sibling)
		store_map_join(&store->map, &TAKE_PTR(store->sibling)->map);
	store->map.tree = &store->head.tree;
	free(store->frozen_leaves);
	store->frozen_leaves = calloc(extents / NODE_EXTENTS + 1, sizeof(uint64_t));
	return r == 0 && !store->frozen_leaves ? -ENOMEM : r;
}

/* One stream of all extents, until store_adopt(). Its first bytes are at the same place in any layout. */
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
	int r;

	store->store.layout = store_layout_free(store->store.layout);
	tree_destroy(&head->tree);
	store_map_destroy(&store->map);
	r = make_found_layout(store, extents);
	/* A table with more extents than a layout can have is damaged. */
	if (r < 0)
		return r == -ENOMEM ? r : -EBADMSG;
	return init_map(store, extents);
}

static int load_node(struct lineage_head *head, const struct node_header *header,
		     const uint8_t bytes[NODE_BYTES])
{
	struct extent_store *store = store_of(head);

	return store_map_load(&store->map, header, bytes, store->is_fork ? MAP_OF_FORK : MAP_OF_COMMIT);
}

static void abandon_load(struct lineage_head *head)
{
	store_map_let_go(&store_of(head)->map);
}

static const struct lineage_head_ops head_ops = { .freeze_node = freeze_node,
						  .release_node = release_node,
						  .committed = committed,
						  .load_node = load_node,
						  .begin_load = begin_load,
						  .uncommitted = uncommitted,
						  .feed = feed,
						  .abandon_load = abandon_load };

void extent_fork_init(struct extent_store *fork, struct extent_store *store, const char *name)
{
	fork->head.ops = &head_ops;
	fork->lineage = store->lineage;
	fork->is_fork = true;
	fork->sibling = store;
	snprintf(fork->head.name, sizeof(fork->head.name), "%s", name);
}

/* ---- Life ---- */

/* After lineage_create() or lineage_open(). */
static void note_places(struct extent_store *store)
{
	struct lineage_geometry geometry = lineage_geometry(store->lineage);

	store->extents_offset = lineage_extents_offset(&geometry);
	store->place_bytes = geometry.place_bytes;
}

int extent_commit_init(struct extent_store *store, const struct store_config *config, struct tier **tiers)
{
	const struct store_layout *layout = store->store.layout;
	struct lineage_geometry geometry;
	int r;

	store->head.ops = &head_ops;
	snprintf(store->head.name, sizeof(store->head.name), "%s", config->name ? config->name : "");
	store->head.serial = config->serial;
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
	note_places(store);
	store->head.extents = store_layout_device_extents(layout, store->device_count);
	r = init_map(store, store_layout_extents(layout));
	if (r == 0)
		store_map_adopt(&store->map, layout);
	return r;
}

/* Other heads need the places that this one gives back. Without others nobody needs them. */
void extent_commit_free(struct extent_store *store)
{
	if (store->head.lineage && lineage_attached(store->lineage) > 1)
		store_map_let_go(&store->map);
	if (store->head.lineage)
		(void)lineage_detach(&store->head);
	store->lineage = NULL;
	tree_destroy(&store->head.tree);
	free(store->frozen_leaves);
}

/* ---- Requests ---- */

static void note_message(struct extent_store *store)
{
	snprintf(store->message, sizeof(store->message), "%s", lineage_message(store->lineage));
}

static void take_turn(struct lineage_turn *turn)
{
	struct extent_store *store = container_of(turn, struct extent_store, turn);
	int r = store->run(store);

	if (r < 0)
		store->step.done(&store->step, r);
}

int extent_may_ask(struct store *base, struct extent_store **ret_store)
{
	*ret_store = extent_find_durable(base);
	if (!*ret_store)
		return -EOPNOTSUPP;
	return (*ret_store)->request ? -EBUSY : 0;
}

int extent_ask(struct extent_store *store, struct store_request *request,
	       int (*run)(struct extent_store *store),
	       void (*done)(struct lineage_request *request, int status))
{
	int r;

	store->request = request;
	store->run = run;
	store->step.done = done;
	store->turn.take = take_turn;
	if (!lineage_begin_turn(store->lineage, &store->turn))
		return 0;
	r = run(store);
	if (r == 0)
		return 0;
	note_message(store);
	store->request = NULL;
	lineage_end_turn(store->lineage);
	return r;
}

/* A store that waits for its turn keeps the lineage, even if done() frees this one. */
void extent_end_request(struct extent_store *store, int status)
{
	struct store_request *request = store->request;
	struct lineage *lineage = store->lineage;
	bool is_awaited = lineage_is_awaited(lineage);

	note_message(store);
	store->request = NULL;
	lineage_end_turn(lineage);
	lineage_feed(lineage);
	request->done(request, status);
	if (is_awaited)
		lineage_pass_turn(lineage);
}

void extent_ended(struct lineage_request *step, int status)
{
	extent_end_request(container_of(step, struct extent_store, step), status);
}

void extent_keep_name(struct extent_store *store, const char *name)
{
	snprintf(store->asked.name, sizeof(store->asked.name), "%s", name);
}

void extent_keep_other(struct extent_store *store, const char *name)
{
	store->asked.has_other = name != NULL;
	snprintf(store->asked.other, sizeof(store->asked.other), "%s", name ? name : "");
}

const char *extent_other(const struct extent_store *store)
{
	return store->asked.has_other ? store->asked.other : NULL;
}

static int run_about(struct extent_store *store)
{
	return store->asked.run(&store->head, store->asked.name, &store->step);
}

int extent_ask_about(struct store *base, const char *name, struct store_request *request,
		     int (*run)(struct lineage_head *head, const char *name, struct lineage_request *request))
{
	struct extent_store *store;
	int r = extent_may_ask(base, &store);

	if (r < 0)
		return r;
	extent_keep_name(store, name);
	store->asked.run = run;
	return extent_ask(store, request, run_about, extent_ended);
}

static void store_opened(struct lineage_request *step, int status)
{
	struct extent_store *store = container_of(step, struct extent_store, step);

	if (status == 0)
		*store->ret_store = &store->opening->store;
	else
		store_free(&store->opening->store);
	store->opening = NULL;
	extent_end_request(store, status);
}

int extent_ask_for_store(struct extent_store *store, struct store_request *request,
			 int (*run)(struct extent_store *store), struct extent_store *opening,
			 struct store **ret_store)
{
	int r;

	store->opening = opening;
	store->ret_store = ret_store;
	r = extent_ask(store, request, run, store_opened);
	if (r < 0) {
		store_free(&opening->store);
		store->opening = NULL;
	}
	return r;
}

/* ---- Creating, opening, committing ---- */

static void opened(struct lineage_request *step, int status)
{
	struct extent_store *store = container_of(step, struct extent_store, step);

	if (status == 0)
		note_places(store);
	extent_end_request(store, status == 0 && !store->store.layout ? -ENOENT : status);
}

/* Parked writes go on, or fail. */
static void end_commit(struct extent_store *store)
{
	store->is_committing = false;
	store->frozen_count = 0;
	QUEUE_FOREACH (link, &store->parked)
		operation_unpark(queue_entry(link, struct operation, wait_link));
}

static void commit_ended(struct lineage_request *step, int status)
{
	struct extent_store *store = container_of(step, struct extent_store, step);

	end_commit(store);
	extent_end_request(store, status);
}

static int run_create(struct extent_store *store)
{
	return lineage_create(store->lineage, &store->step);
}

static int run_open(struct extent_store *store)
{
	return lineage_open(store->lineage, &store->step);
}

static int run_commit(struct extent_store *store)
{
	return lineage_commit(&store->head, &store->step);
}

int store_create(struct store *base, struct store_request *request)
{
	struct extent_store *store;
	int r = extent_may_ask(base, &store);

	return r < 0 ? r : extent_ask(store, request, run_create, extent_ended);
}

int store_open(struct store *base, struct store_request *request)
{
	struct extent_store *store;
	int r = extent_may_ask(base, &store);

	return r < 0 ? r : extent_ask(store, request, run_open, opened);
}

/* Freezes first, because others may have their turns before this commit. */
int store_commit(struct store *base, uint64_t step, struct store_request *request)
{
	struct extent_store *store;
	int r = extent_may_ask(base, &store);

	if (r < 0)
		return r;
	r = lineage_freeze(&store->head);
	if (r < 0) {
		note_message(store);
		return r;
	}
	store->head.step = step;
	store->is_committing = true;
	r = extent_ask(store, request, run_commit, commit_ended);
	if (r < 0) {
		end_commit(store);
		operation_feed(store);
	}
	return r;
}
