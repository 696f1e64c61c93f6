#include "offload/store/store_layout.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/size.h"
#include "offload/store/store_backend.h"

/* A checksum's seed has 16 bits for the stream. */
#define MAX_STREAMS 65536

int store_layout_new(struct store_layout **ret_layout)
{
	struct store_layout *layout = calloc(1, sizeof(*layout));

	if (!layout)
		return -ENOMEM;
	*ret_layout = layout;
	return 0;
}

void store_layout_set_durable(struct store_layout *layout)
{
	layout->is_durable = true;
}

void store_layout_set_snapshots(struct store_layout *layout, unsigned snapshots)
{
	layout->snapshots = snapshots;
}

struct store_layout *store_layout_free(struct store_layout *layout)
{
	if (!layout)
		return NULL;
	for (uint32_t stream = 0; stream < layout->stream_count; stream++) {
		free(layout->streams[stream].name);
		free(layout->streams[stream].sections);
	}
	free(layout->streams);
	free(layout);
	return NULL;
}

static int grow_streams(struct store_layout *layout)
{
	uint32_t capacity = layout->stream_capacity ? 2 * layout->stream_capacity : 8;
	struct store_stream *streams;

	if (layout->stream_count < layout->stream_capacity)
		return 0;
	streams = realloc(layout->streams, capacity * sizeof(*streams));
	if (!streams)
		return -ENOMEM;
	layout->streams = streams;
	layout->stream_capacity = capacity;
	return 0;
}

static int add_stream(struct store_layout *layout, const char *name, bool is_scratch, bool is_fixed)
{
	size_t size = strlen(name) + 1;
	char *copy;
	int r;

	if (layout->stream_count == MAX_STREAMS)
		return -EOVERFLOW;
	if (is_scratch && layout->is_durable)
		return -EINVAL;
	r = grow_streams(layout);
	if (r < 0)
		return r;
	copy = malloc(size);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, name, size);
	layout->streams[layout->stream_count] = (struct store_stream){
		.name = copy,
		.is_scratch = is_scratch,
		.is_fixed = is_fixed,
		.block_bytes = STORE_BLOCK_BYTES,
		.first_extent = store_layout_extents(layout),
		.first_byte = store_layout_whole_bytes(layout),
	};
	return (int)layout->stream_count++;
}

int store_layout_add_stream(struct store_layout *layout, const char *name)
{
	return add_stream(layout, name, false, false);
}

int store_layout_add_scratch_stream(struct store_layout *layout, const char *name)
{
	return add_stream(layout, name, true, false);
}

int store_layout_add_fixed_stream(struct store_layout *layout, const char *name)
{
	return add_stream(layout, name, false, true);
}

int store_layout_set_blocks(struct store_layout *layout, uint32_t stream, uint64_t bytes)
{
	if (stream >= layout->stream_count || layout->streams[stream].extents > 0 ||
	    bytes % STORE_PAGE_BYTES != 0 || bytes < STORE_BLOCK_BYTES || bytes > STORE_MAX_BLOCK_BYTES)
		return -EINVAL;
	layout->streams[stream].block_bytes = bytes;
	return 0;
}

static int grow_sections(struct store_stream *stream)
{
	size_t capacity = stream->section_capacity ? 2 * stream->section_capacity : 16;
	struct store_section *sections;

	if (stream->section_count < stream->section_capacity)
		return 0;
	sections = realloc(stream->sections, capacity * sizeof(*sections));
	if (!sections)
		return -ENOMEM;
	stream->sections = sections;
	stream->section_capacity = capacity;
	return 0;
}

int store_layout_add_section(struct store_layout *layout, uint32_t stream, uint64_t length,
			     uint64_t *ret_offset)
{
	struct store_stream *grown;
	uint64_t extents, extent_bytes;
	int r;

	if (stream >= layout->stream_count || length == 0)
		return -EINVAL;
	grown = &layout->streams[stream];
	extent_bytes = store_stream_extent_bytes(grown);
	extents = size_divide_up(length, extent_bytes);
	if (extents > STORE_MAX_EXTENTS - store_layout_extents(layout))
		return -EOVERFLOW;
	r = grow_sections(grown);
	if (r < 0)
		return r;
	grown->sections[grown->section_count++] = (struct store_section){ grown->extents, length };
	*ret_offset = grown->extents * extent_bytes;
	grown->extents += extents;
	for (uint32_t later = stream + 1; later < layout->stream_count; later++) {
		layout->streams[later].first_extent += extents;
		layout->streams[later].first_byte += extents * extent_bytes;
	}
	return 0;
}

static const struct store_stream *last_stream(const struct store_layout *layout)
{
	return layout->stream_count > 0 ? &layout->streams[layout->stream_count - 1] : NULL;
}

uint64_t store_layout_extents(const struct store_layout *layout)
{
	const struct store_stream *last = last_stream(layout);

	return last ? last->first_extent + last->extents : 0;
}

uint64_t store_layout_whole_bytes(const struct store_layout *layout)
{
	const struct store_stream *last = last_stream(layout);

	return last ? last->first_byte + last->extents * store_stream_extent_bytes(last) : 0;
}

uint64_t store_layout_place_bytes(const struct store_layout *layout)
{
	uint64_t most = STORE_EXTENT_BYTES;

	for (uint32_t i = 0; i < layout->stream_count; i++)
		if (layout->streams[i].extents > 0 && store_stream_extent_bytes(&layout->streams[i]) > most)
			most = store_stream_extent_bytes(&layout->streams[i]);
	return most;
}

/* Where a section begins in its stream. */
static uint64_t start_of(const struct store_stream *stream, const struct store_section *section)
{
	return section->first_extent * store_stream_extent_bytes(stream);
}

const struct store_section *store_layout_find(const struct store_layout *layout, uint32_t stream,
					      uint64_t offset)
{
	const struct store_stream *found;
	const struct store_section *section;
	size_t low = 0, high;
	uint64_t extent;

	if (stream >= layout->stream_count)
		return NULL;
	found = &layout->streams[stream];
	extent = offset / store_stream_extent_bytes(found);
	if (extent >= found->extents)
		return NULL;
	/* The last section that starts at or before the extent. */
	high = found->section_count;
	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (found->sections[middle].first_extent <= extent)
			low = middle;
		else
			high = middle;
	}
	section = &found->sections[low];
	return offset - start_of(found, section) < section->length ? section : NULL;
}

uint64_t store_layout_rest(const struct store_layout *layout, uint32_t stream, uint64_t offset)
{
	const struct store_section *section = store_layout_find(layout, stream, offset);

	return section ? section->length - (offset - start_of(&layout->streams[stream], section)) : 0;
}

bool store_layout_has_range(const struct store_layout *layout, uint32_t stream, uint64_t offset,
			    uint64_t length)
{
	uint64_t rest = store_layout_rest(layout, stream, offset), block_bytes;

	if (rest == 0 || length == 0)
		return false;
	block_bytes = layout->streams[stream].block_bytes;
	if (offset % block_bytes != 0)
		return false;
	return (length <= rest && length % block_bytes == 0) || length == size_align(rest, STORE_PAGE_BYTES);
}

uint64_t store_layout_extent(const struct store_layout *layout, uint32_t stream, uint64_t offset)
{
	const struct store_stream *found = &layout->streams[stream];

	return found->first_extent + offset / store_stream_extent_bytes(found);
}

struct store_range store_layout_range_of(const struct store_layout *layout, uint64_t extent)
{
	const struct store_stream *stream = layout->streams;
	struct store_range range;
	uint64_t extent_bytes, rest;

	assert(extent < store_layout_extents(layout));
	while (extent >= stream->first_extent + stream->extents)
		stream++;
	extent_bytes = store_stream_extent_bytes(stream);
	range.stream = (uint32_t)(stream - layout->streams);
	range.offset = (extent - stream->first_extent) * extent_bytes;
	rest = size_align(store_layout_rest(layout, range.stream, range.offset), STORE_PAGE_BYTES);
	range.length = rest < extent_bytes ? rest : extent_bytes;
	return range;
}

struct store_range store_layout_around(const struct store_layout *layout, const struct store_range *bytes,
				       uint64_t unit_bytes)
{
	uint64_t rest = store_layout_rest(layout, bytes->stream, bytes->offset);
	uint64_t section_end = size_align(bytes->offset + rest, STORE_PAGE_BYTES);
	uint64_t end = size_round_up(bytes->offset + bytes->length, unit_bytes);
	struct store_range range = { .stream = bytes->stream,
				     .offset = bytes->offset / unit_bytes * unit_bytes };

	assert(bytes->length <= rest);
	range.length = (end < section_end ? end : section_end) - range.offset;
	return range;
}

/* Extents of a run that a device has. */
static uint32_t count_on(uint64_t first, uint64_t count, unsigned device, unsigned devices)
{
	uint64_t end = first + count;

	return (uint32_t)((end + devices - 1 - device) / devices - (first + devices - 1 - device) / devices);
}

struct lineage_extents store_layout_device_extents(const struct store_layout *layout, unsigned devices)
{
	struct lineage_extents most = { 0, 0 };

	for (unsigned device = 0; device < devices; device++) {
		struct lineage_extents each = { 0, 0 };

		for (uint32_t i = 0; i < layout->stream_count; i++) {
			const struct store_stream *stream = &layout->streams[i];
			uint32_t count = count_on(stream->first_extent, stream->extents, device, devices);

			*(stream->is_fixed || stream->is_scratch ? &each.fixed : &each.changing) += count;
		}
		most.fixed = each.fixed > most.fixed ? each.fixed : most.fixed;
		most.changing = each.changing > most.changing ? each.changing : most.changing;
	}
	return most;
}

uint64_t store_layout_places(const struct store_layout *layout, unsigned devices)
{
	return lineage_places_needed(store_layout_device_extents(layout, devices), 1, 0);
}

struct lineage_geometry store_layout_geometry(const struct store_layout *layout, unsigned devices)
{
	return lineage_geometry_for(store_layout_extents(layout), store_layout_place_bytes(layout), devices,
				    store_layout_device_extents(layout, devices), layout->snapshots);
}

uint64_t store_layout_device_bytes(const struct store_layout *layout, unsigned devices)
{
	struct lineage_geometry geometry = store_layout_geometry(layout, devices);

	if (layout->is_durable)
		return devices * lineage_device_bytes(&geometry);
	return devices * size_align(geometry.place_bytes * store_layout_places(layout, devices), MIB);
}

uint64_t store_layout_host_bytes(const struct store_layout *layout)
{
	uint64_t bytes = sizeof(*layout) + layout->stream_capacity * sizeof(layout->streams[0]);

	for (uint32_t stream = 0; stream < layout->stream_count; stream++) {
		bytes += strlen(layout->streams[stream].name) + 1;
		bytes += layout->streams[stream].section_capacity * sizeof(struct store_section);
	}
	return bytes;
}

uint64_t store_layout_state_bytes(const struct store_layout *layout)
{
	uint64_t bytes = 0;

	for (uint32_t stream = 0; stream < layout->stream_count; stream++)
		for (size_t i = 0; i < layout->streams[stream].section_count; i++)
			bytes += size_align(layout->streams[stream].sections[i].length, STORE_PAGE_BYTES);
	return bytes;
}

uint64_t store_layout_metadata_bytes(const struct store_layout *layout)
{
	return store_layout_host_bytes(layout) + store_extent_host_bytes(layout, 8, 0);
}
