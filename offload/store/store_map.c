#include "offload/store/store_map.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/size.h"

_Static_assert(sizeof(struct store_extent) <= 128, "the plan of host memory counts on it");

static void adopt_section(struct store_extent *extents, const struct store_stream *stream,
			  const struct store_section *section)
{
	uint64_t extent_bytes = store_stream_extent_bytes(stream);

	for (uint64_t offset = 0; offset < section->length; offset += extent_bytes) {
		struct store_extent *entry = &extents[section->first_extent + offset / extent_bytes];
		uint64_t rest = section->length - offset;

		entry->length = (uint32_t)(rest < extent_bytes ? rest : extent_bytes);
		entry->blocks = (uint8_t)((1U << size_divide_up(entry->length, stream->block_bytes)) - 1);
		entry->is_scratch = stream->is_scratch;
		entry->is_fixed = stream->is_fixed;
	}
}

void store_map_adopt(struct store_map *map, const struct store_layout *layout)
{
	for (uint32_t i = 0; i < layout->stream_count; i++) {
		const struct store_stream *stream = &layout->streams[i];

		for (size_t section = 0; section < stream->section_count; section++)
			adopt_section(map->extents + stream->first_extent, stream,
				      &stream->sections[section]);
	}
}

int store_map_init(struct store_map *map, uint64_t extents, struct places *const *devices,
		   unsigned device_count)
{
	*map = (struct store_map){ .count = extents, .device_count = device_count };
	memcpy(map->devices, devices, device_count * sizeof(map->devices[0]));
	queue_init(&map->peers);
	map->extents = calloc(extents + 1, sizeof(map->extents[0]));
	if (!map->extents)
		return -ENOMEM;
	for (uint64_t i = 0; i < extents; i++)
		map->extents[i] = (struct store_extent){ .place = PLACES_NONE,
							 .committed = PLACES_NONE,
							 .frozen = PLACES_NONE,
							 .pending_place = PLACES_NONE,
							 .length = STORE_EXTENT_BYTES,
							 .blocks = (1U << STORE_EXTENT_BLOCKS) - 1 };
	return 0;
}

void store_map_join(struct store_map *map, struct store_map *other)
{
	queue_push(&other->peers, &map->peers);
}

void store_map_destroy(struct store_map *map)
{
	/* The map of a view whose snapshot was not found was never made. */
	if (map->peers.next)
		queue_remove(&map->peers);
	free(map->extents);
	*map = (struct store_map){ 0 };
}

static struct places *places_of(struct store_map *map, uint64_t extent)
{
	return map->devices[extent % map->device_count];
}

static uint64_t *uncommitted_of(struct store_map *map, uint64_t extent)
{
	return &map->uncommitted[extent % map->device_count];
}

/* Maps share a place only for the same extent. */
static void count_place(struct store_map *map, uint64_t extent, int sign)
{
	uint32_t place = map->extents[extent].place;
	struct store_map *sharer = NULL;
	unsigned sharers = 0;

	if (place == PLACES_NONE)
		return;
	QUEUE_FOREACH (link, &map->peers) {
		struct store_map *peer = queue_entry(link, struct store_map, peers);

		if (peer->extents[extent].place == place) {
			sharer = peer;
			sharers++;
		}
	}
	map->held += sign;
	map->shared += sharers > 0 ? sign : 0;
	if (sharers == 1)
		sharer->shared += sign;
}

static void set_place(struct store_map *map, uint64_t extent, uint32_t place)
{
	count_place(map, extent, -1);
	map->extents[extent].place = place;
	count_place(map, extent, 1);
}

static void drop_rewrite(struct store_map *map, uint64_t extent)
{
	struct store_extent *entry = &map->extents[extent];

	if (entry->pending_place != PLACES_NONE) {
		map->rewrites--;
		map->held_back -= entry->is_held;
		--*uncommitted_of(map, extent);
		if (!entry->is_broken)
			places_give(places_of(map, extent), entry->pending_place);
	}
	entry->pending_place = PLACES_NONE;
	entry->written = 0;
	entry->has_failed = entry->is_broken = entry->is_held = false;
}

static void make_visible(struct store_map *map, uint64_t extent)
{
	struct store_extent *entry = &map->extents[extent];

	/* The rewrite counts already; what it replaces does not count any more. */
	*uncommitted_of(map, extent) -= entry->place != entry->committed;
	if (entry->place != PLACES_NONE)
		places_give(places_of(map, extent), entry->place);
	set_place(map, extent, entry->pending_place);
	memcpy(entry->checksums, entry->pending_checksums, sizeof(entry->checksums));
	entry->version++;
	entry->pending_place = PLACES_NONE;
	entry->written = 0;
	map->rewrites--;
	if (map->tree)
		tree_change(map->tree, extent);
}

/* The version tells a read in progress that the old bytes are gone. */
static void give_up_place(struct store_map *map, uint64_t extent)
{
	struct store_extent *entry = &map->extents[extent];

	if (entry->place == PLACES_NONE)
		return;
	places_give(places_of(map, extent), entry->place);
	--*uncommitted_of(map, extent);
	set_place(map, extent, PLACES_NONE);
	entry->version++;
}

int store_map_begin(struct store_map *map, uint64_t extent, uint8_t blocks)
{
	struct store_extent *entry = &map->extents[extent];

	assert(!(entry->in_flight & blocks));
	assert(!(blocks & ~entry->blocks));
	assert(!entry->is_fixed || entry->committed == PLACES_NONE);
	if (entry->has_failed)
		return -EIO;
	if (entry->pending_place == PLACES_NONE) {
		if (entry->is_scratch)
			give_up_place(map, extent);
		entry->pending_place = places_take(places_of(map, extent));
		if (entry->pending_place == PLACES_NONE)
			return -ENOSPC;
		map->rewrites++;
		++*uncommitted_of(map, extent);
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
	else if (entry->written == entry->blocks && !entry->is_held)
		make_visible(map, extent);
}

void store_map_hold(struct store_map *map, uint64_t extent)
{
	struct store_extent *entry = &map->extents[extent];

	assert(entry->pending_place != PLACES_NONE);
	assert(entry->place == entry->committed);
	map->held_back += !entry->is_held;
	entry->is_held = true;
}

void store_map_publish(struct store_map *map, uint64_t extent)
{
	struct store_extent *entry = &map->extents[extent];

	if (!entry->is_held || entry->in_flight || entry->written != entry->blocks)
		return;
	map->held_back--;
	entry->is_held = false;
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

/* ---- Commits ---- */

void store_map_freeze(struct store_map *map, const struct node_header *header, uint8_t bytes[NODE_BYTES])
{
	node_begin(bytes, header);
	for (unsigned i = 0; i < header->count; i++) {
		uint64_t extent = header->index * NODE_EXTENTS + i;
		struct store_extent *entry = &map->extents[extent];
		struct node_extent node = { .device = (uint16_t)(extent % map->device_count),
					    .place = entry->place };

		/* A fixed extent cannot change after this commit. */
		assert(!entry->is_fixed || entry->pending_place == PLACES_NONE);
		memcpy(node.checksums, entry->checksums, sizeof(node.checksums));
		node_put_extent(bytes, i, &node);
		entry->frozen = entry->place;
		/* A place has few names, so this does not fail. */
		if (entry->frozen != PLACES_NONE)
			(void)places_name(places_of(map, extent), entry->frozen);
	}
}

static uint64_t end_of_leaf(const struct store_map *map, uint64_t leaf)
{
	return (leaf + 1) * NODE_EXTENTS < map->count ? (leaf + 1) * NODE_EXTENTS : map->count;
}

void store_map_commit(struct store_map *map, uint64_t leaf)
{
	for (uint64_t extent = leaf * NODE_EXTENTS; extent < end_of_leaf(map, leaf); extent++) {
		struct store_extent *entry = &map->extents[extent];

		*uncommitted_of(map, extent) -= entry->place != entry->committed;
		entry->committed = entry->frozen;
		*uncommitted_of(map, extent) += entry->place != entry->committed;
	}
}

void store_map_release(struct store_map *map, uint64_t leaf)
{
	for (uint64_t extent = leaf * NODE_EXTENTS; extent < end_of_leaf(map, leaf); extent++)
		if (map->extents[extent].committed != PLACES_NONE)
			places_give(places_of(map, extent), map->extents[extent].committed);
}

/* How many names a place gets, and whether it has some before: one for the present map, and one for the
 * commit, which has named a fork's already. The root of a view keeps its places. */
static const struct {
	unsigned names;
	bool is_checked, is_named;
} sources[] = {
	[MAP_OF_COMMIT] = { 2, true, false },
	[MAP_OF_FORK] = { 1, true, true },
	[MAP_OF_VIEW] = { 0, false, false },
};

static int load_extent(struct store_map *map, uint64_t extent, const struct node_extent *node,
		       enum store_map_source source)
{
	struct store_extent *entry = &map->extents[extent];
	struct places *places = places_of(map, extent);

	if (node->device != extent % map->device_count || node->place >= places->count)
		return -EBADMSG;
	if (sources[source].is_checked && places_is_free(places, node->place) == sources[source].is_named)
		return -EBADMSG;
	for (unsigned i = 0; i < sources[source].names; i++)
		if (places_name(places, node->place) < 0)
			return -EBADMSG;
	set_place(map, extent, node->place);
	entry->committed = node->place;
	memcpy(entry->checksums, node->checksums, sizeof(entry->checksums));
	return 0;
}

int store_map_load(struct store_map *map, const struct node_header *header, const uint8_t bytes[NODE_BYTES],
		   enum store_map_source source)
{
	int r = 0;

	for (unsigned i = 0; i < header->count && r == 0; i++) {
		struct node_extent node;

		node_get_extent(bytes, i, &node);
		if (node.place != PLACES_NONE)
			r = load_extent(map, header->index * NODE_EXTENTS + i, &node, source);
	}
	return r;
}

void store_map_let_go(struct store_map *map)
{
	for (uint64_t extent = 0; extent < map->count; extent++) {
		struct store_extent *entry = &map->extents[extent];

		drop_rewrite(map, extent);
		if (entry->place != PLACES_NONE)
			places_give(places_of(map, extent), entry->place);
		set_place(map, extent, PLACES_NONE);
	}
}

uint64_t store_map_host_bytes(uint64_t extents)
{
	return (extents + 1) * sizeof(struct store_extent);
}
