/* Snapshots of a store on devices; its lineage keeps them. */
#include <errno.h>
#include <string.h>

#include "common/size.h"
#include "offload/store/extent_store.h"

_Static_assert(STORE_MAX_SNAPSHOTS == HEAD_RECORDS - 1, "the table has room for the snapshots");
_Static_assert(STORE_SNAPSHOT_NAME_BYTES == HEAD_NAME_BYTES, "a record has room for the name");

static struct extent_store *store_of(struct store *base)
{
	return container_of(base, struct extent_store, store);
}

static int begin(struct store *base, const char *name, struct store_request *request,
		 int (*run)(struct extent_store *store),
		 void (*done)(struct lineage_request *request, int status))
{
	struct extent_store *store = store_of(base);

	if (store->request)
		return -EBUSY;
	extent_keep_name(store->asked.name, name);
	return extent_ask(store, request, run, done);
}

static int run_take(struct extent_store *store)
{
	return lineage_snapshot(&store->head, store->asked.name, &store->step);
}

static int take(struct store *base, const char *name, struct store_request *request)
{
	return begin(base, name, request, run_take, extent_ended);
}

static int run_drop(struct extent_store *store)
{
	return lineage_delete_snapshot(&store->head, store->asked.name, &store->step);
}

static int drop(struct store *base, const char *name, struct store_request *request)
{
	return begin(base, name, request, run_drop, extent_ended);
}

static int run_roll_back(struct extent_store *store)
{
	return lineage_roll_back(&store->head, store->asked.name, &store->step);
}

static int run_drop_lost(struct extent_store *store)
{
	return lineage_delete_lost(&store->head, store->asked.name, &store->step);
}

static int drop_lost(struct store *base, const char *name, struct store_request *request)
{
	return begin(base, name, request, run_drop_lost, extent_ended);
}

static int roll_back(struct store *base, const char *name, struct store_request *request)
{
	return begin(base, name, request, run_roll_back, extent_ended);
}

static unsigned list(const struct store *base, struct store_snapshot *ret_snapshots)
{
	const struct extent_store *store = container_of(base, const struct extent_store, store);
	struct head_record records[STORE_MAX_SNAPSHOTS];
	unsigned count = store->lineage ? lineage_snapshots(&store->head, records) : 0;

	for (unsigned i = 0; i < count; i++) {
		ret_snapshots[i].step = records[i].step;
		ret_snapshots[i].seconds = records[i].seconds;
		ret_snapshots[i].is_lost = lineage_lost(&store->head) >> i & 1;
		memcpy(ret_snapshots[i].name, records[i].name, sizeof(records[i].name));
	}
	return count;
}

/* ---- How large they are ---- */

static void measured(struct lineage_request *step, int status)
{
	struct extent_store *store = container_of(step, struct extent_store, step);

	if (status == 0)
		*store->ret_bytes = store->bytes * store->place_bytes;
	extent_end_request(store, status);
}

static int run_measure(struct extent_store *store)
{
	return lineage_measure_snapshot(&store->head, store->asked.name, &store->bytes, &store->step);
}

static int measure(struct store *base, const char *name, struct store_request *request, uint64_t *ret_bytes)
{
	struct extent_store *store = store_of(base);

	if (store->request)
		return -EBUSY;
	/* What is being read looks as if somebody else had it, too. */
	if (store->verified > 0)
		return -EAGAIN;
	store->ret_bytes = ret_bytes;
	return begin(base, name, request, run_measure, measured);
}

/* Blocks of zeros have no checksums, so an extent that only one of them has differs as a whole. */
static bool is_same_block(const struct node_extent *from, const struct node_extent *to, unsigned block)
{
	return from->place != PLACES_NONE && to->place != PLACES_NONE &&
	       from->checksums[block] == to->checksums[block];
}

static void add_difference(struct lineage_difference *difference, uint64_t extent,
			   const struct node_extent *from, const struct node_extent *to)
{
	struct extent_store *store = container_of(difference, struct extent_store, difference);
	struct store_piece piece = store_layout_piece(store->store.layout, extent);
	uint64_t block_bytes = store_block_bytes(&store->store, piece.stream);
	uint64_t length = store->map.extents[extent].length;

	for (uint64_t at = 0; at < length; at += block_bytes)
		if (!is_same_block(from, to, (unsigned)(at / block_bytes)))
			store->bytes += length - at < block_bytes ? length - at : block_bytes;
}

static void compared(struct lineage_request *step, int status)
{
	struct extent_store *store = container_of(step, struct extent_store, step);

	if (status == 0)
		*store->ret_bytes = store->bytes;
	extent_end_request(store, status);
}

static int run_diff(struct extent_store *store)
{
	store->bytes = 0;
	store->difference = (struct lineage_difference){
		.from = store->asked.name,
		.to = store->asked.has_other ? store->asked.other : NULL,
		.head = &store->head,
		.tell = add_difference,
	};
	return lineage_compare(&store->difference, &store->step);
}

static int diff(struct store *base, const char *from, const char *to, struct store_request *request,
		uint64_t *ret_bytes)
{
	struct extent_store *store = store_of(base);

	if (store->request)
		return -EBUSY;
	store->ret_bytes = ret_bytes;
	store->asked.has_other = to != NULL;
	extent_keep_name(store->asked.other, to ? to : "");
	return begin(base, from, request, run_diff, compared);
}

const struct store_snapshot_ops extent_snapshot_ops = {
	.take = take,
	.drop = drop,
	.drop_lost = drop_lost,
	.roll_back = roll_back,
	.list = list,
	.measure = measure,
	.diff = diff,
	.open = extent_open_snapshot,
	.reserve = extent_reserve,
	.reserved = extent_reserved,
	.room = extent_room,
	.verify = extent_verify,
};
