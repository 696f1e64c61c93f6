/* Growth of a lineage: more places for extents, at the end of each device. */
#include <errno.h>

#include "offload/store/lineage_backend.h"

/* Only now, because nothing may be written to new places before they are durable. */
void lineage_take_growth(struct lineage *lineage)
{
	if (lineage->geometry.extents == lineage->next_extents)
		return;
	lineage->geometry.extents = lineage->next_extents;
	for (unsigned device = 0; device < lineage->device_count; device++)
		places_grow(&lineage->extents[device], lineage->geometry.extents);
}

static void grown(struct lineage *lineage)
{
	lineage_take_growth(lineage);
	lineage_end(lineage, 0);
}

int lineage_can_grow(const struct lineage_head *head, const struct lineage_geometry *geometry)
{
	const struct lineage *lineage = head->lineage;
	int r = lineage_check_writable(head);

	if (r < 0)
		return r;
	if (lineage->heads.count == 0)
		return -ENODATA;
	if (geometry->nodes != lineage->geometry.nodes || geometry->extents <= lineage->geometry.extents)
		return -EINVAL;
	return 0;
}

/* Allocates first, because nothing can fail after the commit. */
int lineage_prepare_growth(struct lineage *lineage, const struct lineage_geometry *geometry)
{
	int r = lineage_check_devices(lineage, geometry);

	for (unsigned device = 0; device < lineage->device_count && r == 0; device++)
		r = places_prepare(&lineage->extents[device], geometry->extents);
	if (r == 0)
		lineage->next_extents = geometry->extents;
	return r;
}

int lineage_grow(struct lineage_head *head, const struct lineage_geometry *geometry,
		 struct lineage_request *request)
{
	struct lineage *lineage = head->lineage;
	int r = lineage_can_grow(head, geometry);

	if (r == 0)
		r = lineage_prepare_growth(lineage, geometry);
	if (r < 0)
		return r;
	lineage->next_heads = lineage->heads;
	lineage->committed = grown;
	return lineage_begin(lineage, request, lineage_commit_table);
}
