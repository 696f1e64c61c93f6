/* The layout of a store, as its backends see it: which extents there are, and how full each is. */
#ifndef TIERD_OFFLOAD_STORE_LAYOUT_H
#define TIERD_OFFLOAD_STORE_LAYOUT_H

#include "offload/store/lineage.h"
#include "offload/store/store.h"

struct store_stream {
	char *name;
	struct store_section *sections;
	size_t section_count, section_capacity;
	bool is_scratch, is_fixed;
	uint64_t block_bytes;
	uint64_t first_extent, extents; /* extents of all streams are numbered through */
	uint64_t first_byte;		/* where it begins, if they all lie side by side */
};

struct store_layout {
	struct store_stream *streams;
	uint32_t stream_count, stream_capacity;
	bool is_durable;
	unsigned snapshots; /* that it has room for */
};

static inline uint64_t store_stream_extent_bytes(const struct store_stream *stream)
{
	return STORE_EXTENT_BLOCKS * stream->block_bytes;
}

/* What a place has room for: the largest extent, though it may be none of the default's. */
uint64_t store_layout_place_bytes(const struct store_layout *layout);

/* The section that holds this offset of the stream, or NULL. */
const struct store_section *store_layout_find(const struct store_layout *layout, uint32_t stream,
					      uint64_t offset);

/* Bytes from an offset of the stream to the end of its section; 0: it is in none. */
uint64_t store_layout_rest(const struct store_layout *layout, uint32_t stream, uint64_t offset);

/* Whether the range is whole blocks (or reaches the end of the section, rounded up to a page) of one
 * section. */
bool store_layout_has_range(const struct store_layout *layout, uint32_t stream, uint64_t offset,
			    uint64_t length);

/* The number, in the layout, of the extent that holds this offset. */
uint64_t store_layout_extent(const struct store_layout *layout, uint32_t stream, uint64_t offset);

/* And back: what of the section lies in it, up to a page. */
struct store_range store_layout_range_of(const struct store_layout *layout, uint64_t extent);

/* Bytes of a section, with what else of it lies in the same units: blocks of the stream, or extents. */
struct store_range store_layout_around(const struct store_layout *layout, const struct store_range *bytes,
				       uint64_t unit_bytes);

/* Places that each of several devices needs, if it is not durable. */
uint64_t store_layout_places(const struct store_layout *layout, unsigned devices);

/* Of each of several devices, if it is durable. */
struct lineage_geometry store_layout_geometry(const struct store_layout *layout, unsigned devices);

/* The same, of its extents; those of scratch streams, which have one place each as well, count as fixed. */
struct lineage_extents store_layout_device_extents(const struct store_layout *layout, unsigned devices);

/* What is in use of its extents, in whole pages. */
uint64_t store_layout_state_bytes(const struct store_layout *layout);

/* Host memory that the layout itself holds. */
uint64_t store_layout_host_bytes(const struct store_layout *layout);

#endif
