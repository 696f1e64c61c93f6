/* Snapshots of a store on devices; its lineage keeps them. */
#include <errno.h>
#include <string.h>

#include "common/size.h"
#include "offload/store/extent_store.h"

_Static_assert(STORE_MAX_SNAPSHOTS == HEAD_RECORDS - 1, "the table has room for the snapshots");
_Static_assert(STORE_SNAPSHOT_NAME_BYTES == HEAD_NAME_BYTES, "a record has room for the name");

int store_snapshot(struct store *base, const char *name, struct store_request *request)
{
	return extent_ask_about(base, name, request, lineage_snapshot);
}

int store_delete_snapshot(struct store *base, const char *name, struct store_request *request)
{
	return extent_ask_about(base, name, request, lineage_delete_snapshot);
}

int store_delete_lost(struct store *base, const char *name, struct store_request *request)
{
	return extent_ask_about(base, name, request, lineage_delete_lost);
}

int store_roll_back(struct store *base, const char *name, struct store_request *request)
{
	return extent_ask_about(base, name, request, lineage_roll_back);
}

unsigned store_snapshots(const struct store *base, struct store_snapshot *ret_snapshots)
{
	const struct extent_store *store = extent_find_durable(base);
	struct head_record records[STORE_MAX_SNAPSHOTS];
	unsigned count = store ? lineage_snapshots(&store->head, records) : 0;

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

int store_measure_snapshot(struct store *base, const char *name, struct store_request *request,
			   uint64_t *ret_bytes)
{
	struct extent_store *store;
	int r = extent_may_ask(base, &store);

	/* Places that are being verified have one name more. */
	if (r == 0 && store->verified > 0)
		r = -EAGAIN;
	if (r < 0)
		return r;
	store->ret_bytes = ret_bytes;
	extent_keep_name(store, name);
	return extent_ask(store, request, run_measure, measured);
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
	struct store_range range = store_layout_range_of(store->store.layout, extent);
	uint64_t block_bytes = store_block_bytes(&store->store, range.stream);
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
		.to = extent_other(store),
		.head = &store->head,
		.tell = add_difference,
	};
	return lineage_compare(&store->difference, &store->step);
}

int store_diff(struct store *base, const char *from, const char *to, struct store_request *request,
	       uint64_t *ret_bytes)
{
	struct extent_store *store;
	int r = extent_may_ask(base, &store);

	if (r < 0)
		return r;
	store->ret_bytes = ret_bytes;
	extent_keep_name(store, from);
	extent_keep_other(store, to);
	return extent_ask(store, request, run_diff, compared);
}
