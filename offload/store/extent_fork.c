/* Forks of a store on devices: each is a store, and its head is of the same lineage. */
#include <errno.h>
#include <string.h>

#include "offload/store/extent_store.h"

/* The store of a fork, as from store_new_found(): store_adopt() gives it its layout. */
static int begin(struct extent_store *store, const struct store_fork *fork, struct store_request *request,
		 int (*run)(struct extent_store *store), struct store **ret_store)
{
	struct extent_store *opening = extent_store_beside(store, store->store.ops, NULL);

	if (!opening)
		return -ENOMEM;
	extent_fork_init(opening, store, fork->name);
	opening->head.serial = fork->serial;
	return extent_ask_for_store(store, request, run, opening, ret_store);
}

/* ---- A new one ---- */

static int run_fork(struct extent_store *store)
{
	return lineage_fork(&store->head, extent_other(store), &store->opening->head, &store->growth.geometry,
			    &store->step);
}

static int run_growth(struct extent_store *store)
{
	struct lineage_geometry geometry = lineage_geometry_with_fork(&store->head, store->asked.snapshots);
	int r = lineage_can_fork(&store->head, extent_other(store), store->opening->head.name);

	return r < 0 ? r : extent_grow_for(store, &geometry, run_fork);
}

int store_fork(struct store *base, const struct store_fork *fork, struct store_request *request,
	       struct store **ret_fork)
{
	struct extent_store *store;
	int r = extent_may_ask(base, &store);

	if (r < 0)
		return r;
	if (strlen(fork->name) >= STORE_SNAPSHOT_NAME_BYTES)
		return -EINVAL;
	extent_keep_other(store, fork->snapshot);
	store->asked.snapshots = fork->snapshots;
	return begin(store, fork, request, run_growth, ret_fork);
}

/* ---- One that is there ---- */

static int run_attach(struct extent_store *store)
{
	return lineage_attach(store->lineage, &store->opening->head, &store->step);
}

int store_attach(struct store *base, const char *name, struct store_request *request, struct store **ret_job)
{
	struct extent_store *store;
	int r = extent_may_ask(base, &store);

	return r < 0 ? r : begin(store, &(struct store_fork){ .name = name }, request, run_attach, ret_job);
}

/* ---- The end of one ---- */

static void last_dropped(struct work *work)
{
	struct extent_store *store = container_of(work, struct extent_store, last);

	store->step.done(&store->step, 0);
}

/* The last job's end needs no I/O. But no request ends in its call, so it takes the way by a worker. */
static int run_drop(struct extent_store *store)
{
	int r = lineage_drop(&store->head, &store->step);

	if (r <= 0)
		return r;
	store->last =
		(struct work){ .run = operation_run_nothing, .done = last_dropped, .urgency = WORK_NORMAL };
	workers_submit(store->workers, &store->last);
	return 0;
}

int store_drop(struct store *base, struct store_request *request)
{
	struct extent_store *store;
	int r = extent_may_ask(base, &store);

	return r < 0 ? r : extent_ask(store, request, run_drop, extent_ended);
}

int store_drop_lost(struct store *base, const char *name, struct store_request *request)
{
	return extent_ask_about(base, name, request, lineage_drop_lost);
}

/* ---- What there is ---- */

unsigned store_jobs(const struct store *base, struct store_job *ret_jobs)
{
	const struct extent_store *store = extent_find_durable(base);
	struct head_record records[HEAD_RECORDS];
	unsigned count = store ? lineage_jobs(store->lineage, records) : 0;

	for (unsigned i = 0; i < count; i++) {
		ret_jobs[i].step = records[i].step;
		ret_jobs[i].serial = records[i].serial;
		ret_jobs[i].origin = records[i].origin;
		ret_jobs[i].is_lost = lineage_has_lost_job(store->lineage, &records[i]);
		memcpy(ret_jobs[i].name, records[i].name, sizeof(ret_jobs[i].name));
	}
	return count;
}

void store_get_family(const struct store *base, struct store_family *ret_family)
{
	const struct extent_store *store = extent_find(base);
	struct head_record records[HEAD_RECORDS];
	struct lineage_geometry geometry;

	*ret_family = (struct store_family){ .jobs = 1 };
	if (!store)
		return;
	ret_family->held_bytes = store->map.held * store->place_bytes;
	ret_family->shared_bytes = store->map.shared * store->place_bytes;
	if (!store->lineage)
		return;
	geometry = lineage_geometry(store->lineage);
	ret_family->jobs = lineage_jobs(store->lineage, records);
	ret_family->others = lineage_attached(store->lineage) - (store->head.lineage ? 1 : 0);
	ret_family->is_fenced = lineage_is_fenced(store->lineage);
	ret_family->has_lost = lineage_has_lost(store->lineage);
	ret_family->device_bytes = lineage_device_bytes(&geometry);
	ret_family->own_bytes = lineage_fork_extents(&store->head) * store->place_bytes;
}

struct store_space store_space_for_fork(const struct store *base, unsigned snapshots)
{
	const struct extent_store *store = extent_find_durable(base);

	if (!store)
		return (struct store_space){ 0, 0 };
	return extent_space_of(store, lineage_geometry_with_fork(&store->head, snapshots));
}
