/* The space for snapshots of a store on devices, which can grow. */
#include <errno.h>

#include "offload/store/extent_store.h"

static void run_grow(struct work *work)
{
	struct extent_store *store = container_of(work, struct extent_store, growth.work);
	uint64_t bytes = lineage_device_bytes(&store->growth.geometry);
	int r = 0;

	for (unsigned device = 0; device < store->device_count && r == 0; device++)
		if (store->devices[device].tier->capacity < bytes)
			r = tier_grow(store->devices[device].tier, bytes);
	store->growth.status = r;
}

static void devices_grown(struct work *work)
{
	struct extent_store *store = container_of(work, struct extent_store, growth.work);
	int r = store->growth.status;

	if (r == 0)
		r = store->growth.run(store);
	if (r < 0)
		store->step.done(&store->step, r);
}

int extent_grow_for(struct extent_store *store, const struct lineage_geometry *geometry,
		    int (*run)(struct extent_store *store))
{
	if (!lineage_is_possible(geometry))
		return -EOVERFLOW;
	store->growth.geometry = *geometry;
	store->growth.run = run;
	store->growth.work = (struct work){ .run = run_grow, .done = devices_grown, .urgency = WORK_NORMAL };
	workers_submit(store->workers, &store->growth.work);
	return 0;
}

/* By the size of the devices, whatever the layout says. */
unsigned store_reserved(const struct store *base)
{
	const struct extent_store *store = extent_find_durable(base);
	unsigned snapshots = store ? STORE_MAX_SNAPSHOTS : 0;

	while (snapshots > 0 && lineage_geometry_with(&store->head, snapshots).extents >
					lineage_geometry(store->lineage).extents)
		snapshots--;
	return snapshots;
}

struct store_space extent_space_of(const struct extent_store *store, struct lineage_geometry geometry)
{
	return (struct store_space){ lineage_device_bytes(&geometry),
				     lineage_host_bytes(&geometry, store->device_count) };
}

struct store_space store_space_for(const struct store *base, unsigned snapshots)
{
	const struct extent_store *store = extent_find_durable(base);

	return store ? extent_space_of(store, lineage_geometry_with(&store->head, snapshots))
		     : (struct store_space){ 0, 0 };
}

static int run_reserve(struct extent_store *store)
{
	return lineage_grow(&store->head, &store->growth.geometry, &store->step);
}

static int run(struct extent_store *store)
{
	struct lineage_geometry geometry = lineage_geometry_with(&store->head, store->asked.snapshots);
	int r = lineage_can_grow(&store->head, &geometry);

	return r < 0 ? r : extent_grow_for(store, &geometry, run_reserve);
}

/* A device that has grown stays so if another one cannot grow: the next attempt finds it. */
int store_reserve(struct store *base, unsigned snapshots, struct store_request *request)
{
	struct extent_store *store;
	int r = extent_may_ask(base, &store);

	if (r < 0)
		return r;
	if (snapshots > STORE_MAX_SNAPSHOTS)
		return -EMFILE;
	store->asked.snapshots = snapshots;
	return extent_ask(store, request, run, extent_ended);
}
