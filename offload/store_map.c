#include "offload/store_map.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/size.h"

_Static_assert(sizeof(struct store_extent) <= 128, "the plan of host memory counts on it");

static void init_section(struct store_extent *extents, const struct store_section *section, bool is_scratch)
{
	for (uint64_t offset = 0; offset < section->length; offset += STORE_EXTENT_BYTES) {
		uint64_t rest = section->length - offset;

		extents[section->first_extent + offset / STORE_EXTENT_BYTES] = (struct store_extent){
			.place = PLACES_NONE,
			.pending_place = PLACES_NONE,
			.length = (uint32_t)(rest < STORE_EXTENT_BYTES ? rest : STORE_EXTENT_BYTES),
			.is_scratch = is_scratch,
		};
	}
}

static void init_extents(struct store_map *map, const struct store_layout *layout)
{
	for (uint32_t i = 0; i < layout->stream_count; i++) {
		const struct store_stream *stream = &layout->streams[i];

		for (size_t section = 0; section < stream->section_count; section++)
			init_section(map->extents + stream->first_extent, &stream->sections[section],
				     stream->is_scratch);
	}
}

int store_map_init(struct store_map *map, const struct store_layout *layout, uint32_t places,
		   unsigned device_count)
{
	*map = (struct store_map){ .count = store_layout_extents(layout), .device_count = device_count };
	map->extents = calloc(map->count + 1, sizeof(map->extents[0]));
	map->devices = calloc(device_count, sizeof(map->devices[0]));
	if (!map->extents || !map->devices)
		return -ENOMEM;
	for (unsigned device = 0; device < device_count; device++) {
		int r = places_init(&map->devices[device], places);

		if (r < 0)
			return r;
	}
	init_extents(map, layout);
	return 0;
}

void store_map_destroy(struct store_map *map)
{
	for (unsigned device = 0; map->devices && device < map->device_count; device++)
		places_destroy(&map->devices[device]);
	free(map->devices);
	free(map->extents);
	*map = (struct store_map){ 0 };
}

static struct places *places_of(struct store_map *map, uint64_t extent)
{
	return &map->devices[extent % map->device_count];
}

static uint8_t all_blocks(const struct store_extent *entry)
{
	return (uint8_t)((1U << size_divide_up(entry->length, STORE_BLOCK_BYTES)) - 1);
}

static void drop_rewrite(struct store_map *map, uint64_t extent)
{
	struct store_extent *entry = &map->extents[extent];

	if (entry->pending_place != PLACES_NONE && !entry->is_broken)
		places_give(places_of(map, extent), entry->pending_place);
	entry->pending_place = PLACES_NONE;
	entry->written = 0;
	entry->has_failed = entry->is_broken = false;
}

static void make_visible(struct store_map *map, uint64_t extent)
{
	struct store_extent *entry = &map->extents[extent];

	if (entry->place != PLACES_NONE)
		places_give(places_of(map, extent), entry->place);
	entry->place = entry->pending_place;
	memcpy(entry->checksums, entry->pending_checksums, sizeof(entry->checksums));
	entry->version++;
	entry->pending_place = PLACES_NONE;
	entry->written = 0;
}

/* The version tells a read in progress that it must not look for the old bytes any more. */
static void give_up_place(struct store_map *map, uint64_t extent)
{
	struct store_extent *entry = &map->extents[extent];

	if (entry->place == PLACES_NONE)
		return;
	places_give(places_of(map, extent), entry->place);
	entry->place = PLACES_NONE;
	entry->version++;
}

int store_map_begin(struct store_map *map, uint64_t extent, uint8_t blocks)
{
	struct store_extent *entry = &map->extents[extent];

	assert(!(entry->in_flight & blocks));
	assert(!(blocks & ~all_blocks(entry)));
	if (entry->has_failed)
		return -EIO;
	if (entry->pending_place == PLACES_NONE) {
		if (entry->is_scratch)
			give_up_place(map, extent);
		entry->pending_place = places_take(places_of(map, extent));
		if (entry->pending_place == PLACES_NONE)
			return -ENOSPC;
	}
	entry->in_flight |= blocks;
	entry->written &= (uint8_t)~blocks;
	return 0;
}

static void settle(struct store_map *map, uint64_t extent)
{
	struct store_extent *entry = &map->extents[extent];

	if (entry->in_flight)
		return;
	if (entry->has_failed)
		drop_rewrite(map, extent);
	else if (entry->written == all_blocks(entry))
		make_visible(map, extent);
}

void store_map_complete(struct store_map *map, uint64_t extent, uint8_t blocks, const uint64_t *checksums)
{
	struct store_extent *entry = &map->extents[extent];

	for (unsigned block = 0; block < STORE_EXTENT_BLOCKS; block++)
		if (blocks & 1U << block)
			entry->pending_checksums[block] = *checksums++;
	entry->in_flight &= (uint8_t)~blocks;
	entry->written |= blocks;
	settle(map, extent);
}

void store_map_fail(struct store_map *map, uint64_t extent, uint8_t blocks, bool is_broken)
{
	struct store_extent *entry = &map->extents[extent];

	entry->in_flight &= (uint8_t)~blocks;
	entry->has_failed = true;
	entry->is_broken |= is_broken;
	settle(map, extent);
}

int store_map_move(struct store_map *map, uint64_t extent, uint8_t blocks, bool is_broken)
{
	struct store_extent *entry = &map->extents[extent];
	uint32_t place;

	if (entry->has_failed || entry->written || entry->in_flight != blocks)
		return -EIO;
	place = places_take(places_of(map, extent));
	if (place == PLACES_NONE)
		return -ENOSPC;
	if (!is_broken)
		places_give(places_of(map, extent), entry->pending_place);
	entry->pending_place = place;
	return 0;
}

void store_map_abandon(struct store_map *map, uint64_t extent)
{
	assert(!map->extents[extent].in_flight);
	drop_rewrite(map, extent);
}

uint64_t store_map_host_bytes(uint64_t extents, uint64_t places, unsigned device_count)
{
	return (extents + 1) * sizeof(struct store_extent) +
	       device_count * (sizeof(struct places) + places_host_bytes(places));
}
