/* Snapshots of a store on devices; its lineage keeps them. */
#include <errno.h>
#include <string.h>

#include "common/size.h"
#include "offload/extent_store.h"

_Static_assert(STORE_MAX_SNAPSHOTS == HEAD_RECORDS - 1, "the table has room for the snapshots");
_Static_assert(STORE_SNAPSHOT_NAME_BYTES == HEAD_NAME_BYTES, "a record has room for the name");

static struct extent_store *store_of(struct store *base)
{
	return container_of(base, struct extent_store, store);
}

/* Places may have become free that writes wait for. */
static void ended(struct lineage_request *step, int status)
{
	struct extent_store *store = container_of(step, struct extent_store, step);

	operation_feed(store);
	extent_end_request(store, status);
}

static int begin(struct store *base, const char *name, struct store_request *request,
		 int (*run)(struct lineage *lineage, const char *name, struct lineage_request *request))
{
	struct extent_store *store = store_of(base);
	int r = extent_take_request(store, request, ended);

	return r < 0 ? r : extent_took_request(store, run(store->lineage, name, &store->step));
}

static int take(struct store *base, const char *name, struct store_request *request)
{
	return begin(base, name, request, lineage_snapshot);
}

static int drop(struct store *base, const char *name, struct store_request *request)
{
	return begin(base, name, request, lineage_delete_snapshot);
}

static int drop_lost(struct store *base, const char *name, struct store_request *request)
{
	return begin(base, name, request, lineage_delete_lost);
}

static int roll_back(struct store *base, const char *name, struct store_request *request)
{
	return begin(base, name, request, lineage_roll_back);
}

static unsigned list(const struct store *base, struct store_snapshot *ret_snapshots)
{
	const struct extent_store *store = container_of(base, const struct extent_store, store);
	struct head_record records[STORE_MAX_SNAPSHOTS];
	unsigned count = store->lineage ? lineage_snapshots(store->lineage, records) : 0;

	for (unsigned i = 0; i < count; i++) {
		ret_snapshots[i].step = records[i].step;
		ret_snapshots[i].seconds = records[i].seconds;
		ret_snapshots[i].is_lost = lineage_lost(store->lineage) >> i & 1;
		memcpy(ret_snapshots[i].name, records[i].name, sizeof(records[i].name));
	}
	return count;
}

/* ---- How large they are ---- */

static void measured(struct lineage_request *step, int status)
{
	struct extent_store *store = container_of(step, struct extent_store, step);

	if (status == 0)
		*store->ret_bytes = store->bytes * STORE_EXTENT_BYTES;
	extent_end_request(store, status);
}

static int measure(struct store *base, const char *name, struct store_request *request, uint64_t *ret_bytes)
{
	struct extent_store *store = store_of(base);
	/* What is being read looks as if somebody else had it, too. */
	int r = store->verified > 0 ? -EAGAIN : extent_take_request(store, request, measured);

	if (r < 0)
		return r;
	store->ret_bytes = ret_bytes;
	r = lineage_measure_snapshot(store->lineage, name, &store->bytes, &store->step);
	return extent_took_request(store, r);
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
	uint64_t length = store->map.extents[extent].length;

	for (uint64_t at = 0; at < length; at += STORE_BLOCK_BYTES)
		if (!is_same_block(from, to, (unsigned)(at / STORE_BLOCK_BYTES)))
			store->bytes += length - at < STORE_BLOCK_BYTES ? length - at : STORE_BLOCK_BYTES;
}

static void compared(struct lineage_request *step, int status)
{
	struct extent_store *store = container_of(step, struct extent_store, step);

	if (status == 0)
		*store->ret_bytes = store->bytes;
	extent_end_request(store, status);
}

static int diff(struct store *base, const char *from, const char *to, struct store_request *request,
		uint64_t *ret_bytes)
{
	struct extent_store *store = store_of(base);
	int r = extent_take_request(store, request, compared);

	if (r < 0)
		return r;
	store->ret_bytes = ret_bytes;
	store->bytes = 0;
	store->difference = (struct lineage_difference){ from, to, add_difference };
	r = lineage_compare(store->lineage, &store->difference, &store->step);
	return extent_took_request(store, r);
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
