/* Growth of a lineage: more places for extents, at the end of each device. */
#include <errno.h>

#include "offload/lineage_backend.h"

/* Nothing is written to the new places before that is durable. */
static void grown(struct lineage *lineage)
{
	lineage->geometry.extents = lineage->next_extents;
	for (unsigned device = 0; device < lineage->device_count; device++)
		places_grow(&lineage->extents[device], lineage->geometry.extents);
	lineage_end(lineage, 0);
}

int lineage_can_grow(struct lineage *lineage, const struct lineage_geometry *geometry)
{
	int r = lineage_check_writable(lineage);

	if (r < 0)
		return r;
	if (lineage->heads.count == 0)
		return -ENODATA;
	if (geometry->nodes != lineage->geometry.nodes || geometry->extents <= lineage->geometry.extents)
		return -EINVAL;
	return 0;
}

/* Memory first: once the commit is there it cannot fail any more. */
static int prepare(struct lineage *lineage, uint32_t extents)
{
	int r = 0;

	for (unsigned device = 0; device < lineage->device_count && r == 0; device++)
		r = places_prepare(&lineage->extents[device], extents);
	return r;
}

int lineage_grow(struct lineage *lineage, const struct lineage_geometry *geometry,
		 struct lineage_request *request)
{
	int r = lineage_can_grow(lineage, geometry);

	if (r == 0)
		r = lineage_check_devices(lineage, geometry);
	if (r == 0)
		r = prepare(lineage, geometry->extents);
	if (r < 0)
		return r;
	lineage->next_heads = lineage->heads;
	lineage->next_extents = geometry->extents;
	lineage->committed = grown;
	return lineage_begin(lineage, request, lineage_commit_table);
}
