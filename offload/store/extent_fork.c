/* Forks of a store on devices: stores of their own, whose heads are of the same lineage. */
#include <errno.h>
#include <string.h>

#include "offload/store/extent_store.h"

static struct extent_store *store_of(struct store *base)
{
	return container_of(base, struct extent_store, store);
}

/* As one that was found: on the same devices, with a layout to come. */
static int make(struct extent_store *store, const char *name, uint64_t serial)
{
	struct extent_store *fork = extent_store_allocate(store->store.ops, NULL, store->device_count);
	int r;

	if (!fork)
		return -ENOMEM;
	fork->workers = store->workers;
	fork->extents_offset = store->extents_offset;
	fork->place_bytes = store->place_bytes;
	for (unsigned device = 0; device < store->device_count; device++)
		fork->devices[device].tier = store->devices[device].tier;
	extent_fork_init(fork, store, name);
	fork->head.serial = serial;
	r = extent_store_allocate_operations(fork, store->depth);
	if (r < 0) {
		store_free(&fork->store);
		return r;
	}
	store->opening = fork;
	return 0;
}

static void opened(struct lineage_request *step, int status)
{
	struct extent_store *store = container_of(step, struct extent_store, step);

	if (status == 0)
		*store->ret_store = &store->opening->store;
	else
		store_free(&store->opening->store);
	store->opening = NULL;
	extent_end_request(store, status);
}

static int begin(struct extent_store *store, const struct store_fork *fork, struct store_request *request,
		 int (*run)(struct extent_store *store), struct store **ret_store)
{
	int r = store->lineage ? 0 : -EOPNOTSUPP;

	if (r == 0)
		r = make(store, fork->name, fork->serial);
	if (r < 0)
		return r;
	store->ret_store = ret_store;
	r = extent_ask(store, request, run, opened);
	if (r < 0) {
		store_free(&store->opening->store);
		store->opening = NULL;
	}
	return r;
}

/* ---- A new one ---- */

static const char *asked_snapshot(const struct extent_store *store)
{
	return store->asked.has_other ? store->asked.other : NULL;
}

static int run_fork(struct extent_store *store)
{
	return lineage_fork(&store->head, asked_snapshot(store), &store->opening->head,
			    &store->growth.geometry, &store->step);
}

static int run_growth(struct extent_store *store)
{
	struct lineage_geometry geometry = lineage_geometry_with_fork(&store->head, store->asked.snapshots);
	int r = lineage_can_fork(&store->head, asked_snapshot(store), store->opening->head.name);

	return r < 0 ? r : extent_grow_for(store, &geometry, run_fork);
}

static int fork_job(struct store *base, const struct store_fork *fork, struct store_request *request,
		    struct store **ret_fork)
{
	struct extent_store *store = store_of(base);

	if (store->request)
		return -EBUSY;
	if (strlen(fork->name) >= STORE_SNAPSHOT_NAME_BYTES)
		return -EINVAL;
	store->asked.has_other = fork->snapshot != NULL;
	extent_keep_name(store->asked.other, fork->snapshot ? fork->snapshot : "");
	store->asked.snapshots = fork->snapshots;
	return begin(store, fork, request, run_growth, ret_fork);
}

/* ---- One that is there ---- */

static int run_attach(struct extent_store *store)
{
	return lineage_attach(store->lineage, &store->opening->head, &store->step);
}

static int attach(struct store *base, const char *name, struct store_request *request, struct store **ret_job)
{
	struct extent_store *store = store_of(base);

	if (store->request)
		return -EBUSY;
	return begin(store, &(struct store_fork){ .name = name }, request, run_attach, ret_job);
}

/* ---- The end of one ---- */

static void run_nothing(struct work *work)
{
}

static void last_dropped(struct work *work)
{
	struct extent_store *store = container_of(work, struct extent_store, last);

	store->step.done(&store->step, 0);
}

/* Of the last one there is nothing to wait for; but no request ends in the call that has made it. */
static int run_drop(struct extent_store *store)
{
	int r = lineage_drop(&store->head, &store->step);

	if (r <= 0)
		return r;
	store->last = (struct work){ .run = run_nothing, .done = last_dropped, .urgency = WORK_NORMAL };
	workers_submit(store->workers, &store->last);
	return 0;
}

static int drop(struct store *base, struct store_request *request)
{
	return extent_ask(store_of(base), request, run_drop, extent_ended);
}

static int run_drop_lost(struct extent_store *store)
{
	return lineage_drop_lost(&store->head, store->asked.name, &store->step);
}

static int drop_lost(struct store *base, const char *name, struct store_request *request)
{
	struct extent_store *store = store_of(base);

	if (store->request)
		return -EBUSY;
	extent_keep_name(store->asked.name, name);
	return extent_ask(store, request, run_drop_lost, extent_ended);
}

static unsigned list(const struct store *base, struct store_job *ret_jobs)
{
	const struct extent_store *store = container_of(base, const struct extent_store, store);
	struct head_record records[HEAD_RECORDS];
	unsigned count = store->lineage ? lineage_jobs(store->lineage, records) : 0;

	for (unsigned i = 0; i < count; i++) {
		ret_jobs[i].step = records[i].step;
		ret_jobs[i].serial = records[i].serial;
		ret_jobs[i].origin = records[i].origin;
		ret_jobs[i].is_lost = lineage_has_lost_job(store->lineage, &records[i]);
		memcpy(ret_jobs[i].name, records[i].name, sizeof(ret_jobs[i].name));
	}
	return count;
}

static void family(const struct store *base, struct store_family *ret_family)
{
	const struct extent_store *store = container_of(base, const struct extent_store, store);
	struct head_record records[HEAD_RECORDS];
	struct lineage_geometry geometry;

	ret_family->held_bytes = store->map.held * store->place_bytes;
	if (!store->lineage)
		return;
	geometry = lineage_geometry(store->lineage);
	*ret_family = (struct store_family){
		.jobs = lineage_jobs(store->lineage, records),
		.others = lineage_attached(store->lineage) - (store->head.lineage ? 1 : 0),
		.is_fenced = lineage_is_fenced(store->lineage),
		.has_lost = lineage_has_lost(store->lineage),
		.device_bytes = lineage_device_bytes(&geometry),
		.own_bytes = lineage_fork_extents(&store->head) * store->place_bytes,
		.held_bytes = store->map.held * store->place_bytes,
		.shared_bytes = store->map.shared * store->place_bytes,
	};
}

static struct store_room room(const struct store *base, unsigned snapshots)
{
	const struct extent_store *store = container_of(base, const struct extent_store, store);
	struct lineage_geometry geometry;

	if (!store->lineage)
		return (struct store_room){ 0, 0 };
	geometry = lineage_geometry_with_fork(&store->head, snapshots);
	return (struct store_room){ lineage_device_bytes(&geometry),
				    lineage_host_bytes(&geometry, store->device_count) };
}

const struct store_fork_ops extent_fork_ops = {
	.fork = fork_job,
	.attach = attach,
	.drop = drop,
	.drop_lost = drop_lost,
	.list = list,
	.family = family,
	.room = room,
};
