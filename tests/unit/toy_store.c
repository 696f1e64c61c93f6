#include "tests/unit/toy_store.h"

#include <stdlib.h>
#include <string.h>

#include "common/little_endian.h"
#include "common/size.h"
#include "offload/store/lineage_backend.h"
#include "tests/unit/test.h"

unsigned toy_choose(struct toy *toy, unsigned bound)
{
	toy->random = toy->random * 6364136223846793005 + 1442695040888963407;
	return (unsigned)((toy->random >> 33) % bound);
}

static struct toy *toy_of(struct lineage_head *head)
{
	return container_of(head, struct toy, head);
}

struct places *toy_places(struct toy *toy, unsigned extent)
{
	return lineage_places(toy->lineage, extent % toy->device_count);
}

static struct lineage_extents extents_of(const struct toy *toy)
{
	struct lineage_extents extents = lineage_extents_of(toy->extents - toy->fixed, toy->device_count);

	extents.fixed = (uint32_t)size_divide_up(toy->fixed, toy->device_count);
	return extents;
}

struct lineage_geometry toy_geometry(const struct toy *toy)
{
	return lineage_geometry_for(toy->extents, toy->place_bytes, toy->device_count, extents_of(toy),
				    TOY_SNAPSHOTS);
}

uint64_t toy_offset(const struct toy *toy, uint32_t place)
{
	struct lineage_geometry geometry = toy_geometry(toy);

	return lineage_extents_offset(&geometry) + place * toy->place_bytes;
}

/* ---- The head ---- */

static void freeze_node(struct lineage_head *head, const struct node_header *header,
			uint8_t bytes[NODE_BYTES])
{
	struct toy *toy = toy_of(head);

	node_begin(bytes, header);
	for (unsigned i = 0; i < header->count; i++) {
		unsigned number = (unsigned)header->index * NODE_EXTENTS + i;
		struct toy_extent *extent = &toy->map[number];
		struct node_extent entry = { (uint16_t)(number % toy->device_count),
					     extent->place,
					     { extent->content } };

		if (extent->place != UINT32_MAX)
			assert_int_equal(places_name(toy_places(toy, number), extent->place), 0);
		extent->frozen = extent->place;
		extent->frozen_content = extent->content;
		toy->is_frozen[number] = true;
		node_put_extent(bytes, i, &entry);
	}
}

static void release_node(struct lineage_head *head, uint64_t index)
{
	struct toy *toy = toy_of(head);

	for (uint64_t i = index * NODE_EXTENTS; i < toy->extents && i / NODE_EXTENTS == index; i++)
		if (toy->map[i].committed != UINT32_MAX)
			places_give(toy_places(toy, (unsigned)i), toy->map[i].committed);
}

static void committed(struct lineage_head *head)
{
	struct toy *toy = toy_of(head);

	for (unsigned i = 0; i < toy->extents; i++) {
		if (toy->is_frozen[i])
			toy->map[i].committed = toy->map[i].frozen;
		toy->is_frozen[i] = false;
	}
}

static uint64_t uncommitted(const struct lineage_head *head, unsigned device)
{
	const struct toy *toy = container_of(head, const struct toy, head);
	uint64_t count = 0;

	for (unsigned i = device; i < toy->extents; i += toy->device_count)
		count += toy->map[i].place != toy->map[i].committed;
	return count;
}

static int load_node(struct lineage_head *head, const struct node_header *header,
		     const uint8_t bytes[NODE_BYTES])
{
	struct toy *toy = toy_of(head);

	for (unsigned i = 0; i < header->count; i++) {
		unsigned number = (unsigned)header->index * NODE_EXTENTS + i;
		struct toy_extent *extent = &toy->map[number];
		struct node_extent entry;

		node_get_extent(bytes, i, &entry);
		assert_int_equal(entry.device, number % toy->device_count);
		extent->place = extent->committed = entry.place;
		extent->content = entry.checksums[0];
		if (entry.place == UINT32_MAX)
			continue;
		assert_int_equal(places_name(toy_places(toy, number), entry.place), 0);
		assert_int_equal(places_name(toy_places(toy, number), entry.place), 0);
	}
	return 0;
}

static const struct lineage_head_ops toy_ops = { .freeze_node = freeze_node,
						 .release_node = release_node,
						 .committed = committed,
						 .load_node = load_node,
						 .uncommitted = uncommitted };

/* ---- Sessions ---- */

static void on_done(struct lineage_request *request, int status)
{
	struct toy *toy = container_of(request, struct toy, request);

	toy->done_count++;
	toy->status = status;
}

bool toy_turn(struct toy *toy)
{
	unsigned first = toy_choose(toy, toy->device_count);

	for (unsigned i = 0; i < toy->device_count; i++)
		if (sim_disk_turn(toy->disks[(first + i) % toy->device_count]))
			return true;
	return false;
}

int toy_wait(struct toy *toy, int r)
{
	if (r < 0)
		return r;
	while (toy->done_count == 0)
		assert_true(toy_turn(toy));
	assert_int_equal(toy->done_count, 1);
	toy->done_count = 0;
	return toy->status;
}

void toy_begin(struct toy *toy)
{
	struct lineage_geometry geometry = toy_geometry(toy);
	struct tier *tiers[TOY_MAX_DEVICES];

	for (unsigned i = 0; i < toy->device_count; i++)
		tiers[i] = sim_disk_tier(toy->disks[i]);
	toy->head = (struct lineage_head){ .ops = &toy_ops, .name = "toy", .extents = extents_of(toy) };
	assert_int_equal(tree_init(&toy->head.tree, toy->extents), 0);
	memset(toy->map, 0, sizeof(toy->map));
	memset(toy->is_frozen, 0, sizeof(toy->is_frozen));
	toy->is_settled = false;
	for (unsigned i = 0; i < toy->extents; i++)
		toy->map[i].place = toy->map[i].committed = UINT32_MAX;
	toy->request.done = on_done;
	toy->done_count = 0;
	toy->session++;
	if (toy->watch)
		sim_watch_begin(toy->watch);
	assert_int_equal(lineage_new(tiers, toy->device_count, &geometry, &toy->head, &toy->lineage), 0);
}

void toy_end(struct toy *toy)
{
	toy->lineage = lineage_free(toy->lineage);
	tree_destroy(&toy->head.tree);
}

void toy_open(struct toy *toy, unsigned extents, unsigned devices, uint64_t seed)
{
	toy_open_fixed(toy, extents, 0, devices, seed);
}

void toy_open_fixed(struct toy *toy, unsigned extents, unsigned fixed, unsigned devices, uint64_t seed)
{
	struct lineage_geometry geometry;

	*toy = (struct toy){ .device_count = devices,
			     .extents = extents,
			     .place_bytes = seed % 2 ? STORE_EXTENT_BYTES : STORE_EXTENT_BYTES + 16 * KIB,
			     .fixed = fixed,
			     .random = seed * 2 + 1 };
	geometry = toy_geometry(toy);
	for (unsigned i = 0; i < devices; i++)
		toy->disks[i] = sim_disk_new(lineage_device_bytes(&geometry), seed * TOY_MAX_DEVICES + i);
	toy_begin(toy);
	assert_int_equal(toy_wait(toy, lineage_create(toy->lineage, &toy->request)), 0);
	toy->watch = sim_watch_new(toy->disks, devices);
}

void toy_close(struct toy *toy)
{
	toy_end(toy);
	sim_watch_free(toy->watch);
	for (unsigned i = 0; i < toy->device_count; i++)
		sim_disk_free(toy->disks[i]);
}

/* ---- Steps ---- */

struct page_write {
	struct tier_io io;
	_Alignas(SIM_SECTOR) uint8_t bytes[TOY_PAGE];
	bool is_done;
	int status;
};

static void page_done(struct tier_io *io, int status)
{
	struct page_write *write = container_of(io, struct page_write, io);

	write->is_done = true;
	write->status = status;
}

static int write_page(struct toy *toy, unsigned extent, uint32_t place, uint64_t content)
{
	struct page_write write = { .io = { .direction = TIER_WRITE,
					    .offset = toy_offset(toy, place),
					    .length = TOY_PAGE,
					    .done = page_done } };
	int r;

	for (unsigned i = 0; i < TOY_PAGE; i += 8)
		put64(write.bytes + i, content);
	write.io.buffer = write.bytes;
	r = tier_submit(toy->lineage->tiers[extent % toy->device_count], &write.io);
	if (r < 0)
		return r;
	while (!write.is_done)
		assert_true(toy_turn(toy));
	return write.status;
}

unsigned toy_first(const struct toy *toy)
{
	return toy->is_settled || lineage_has_commit(&toy->head) ? toy->fixed : 0;
}

int toy_update(struct toy *toy, unsigned number, uint64_t content)
{
	struct toy_extent *extent = &toy->map[number];
	uint32_t place = places_take(toy_places(toy, number));
	int r;

	assert_int_not_equal(place, PLACES_NONE);
	assert_true(number >= toy_first(toy));
	r = write_page(toy, number, place, content);
	if (r < 0)
		return r;
	if (extent->place != UINT32_MAX)
		places_give(toy_places(toy, number), extent->place);
	extent->place = place;
	extent->content = content;
	tree_change(&toy->head.tree, number);
	return 0;
}

int toy_take_step(struct toy *toy)
{
	uint64_t step = toy->head.step + 1;
	unsigned part = toy_choose(toy, 4);
	int r = 0;

	assert_true(step < TOY_STEPS);
	for (unsigned i = toy_first(toy); i < toy->extents && r == 0; i++)
		if (part == 0 || toy_choose(toy, 8) < part)
			r = toy_update(toy, i, toy->session << 32 | step << 16 | i);
	if (r < 0)
		return r;
	toy->head.step = step;
	for (unsigned i = 0; i < toy->extents; i++)
		toy->history[step][i] = toy->map[i].content;
	return 0;
}

int toy_begin_commit(struct toy *toy)
{
	int r = lineage_freeze(&toy->head);

	toy->is_settled = true;
	return r < 0 ? r : lineage_commit(&toy->head, &toy->request);
}

int toy_commit(struct toy *toy)
{
	int r = toy_wait(toy, toy_begin_commit(toy));

	if (r == 0)
		sim_watch_promise(toy->watch, toy->head.step);
	return r;
}

void toy_expect_step(struct toy *toy)
{
	uint64_t step = toy->head.step;

	for (unsigned i = 0; i < toy->extents; i++) {
		const struct toy_extent *extent = &toy->map[i];
		uint8_t page[TOY_PAGE];

		assert_int_equal(extent->content, toy->history[step][i]);
		if (extent->place == UINT32_MAX)
			continue;
		sim_disk_read(toy->disks[i % toy->device_count], toy_offset(toy, extent->place), page,
			      TOY_PAGE);
		/* All words are as the first one. Looking at each is most of what runs took. */
		assert_int_equal(get64(page), extent->content);
		assert_int_equal(memcmp(page, page + 8, TOY_PAGE - 8), 0);
	}
}

void toy_reopen(struct toy *toy)
{
	toy_end(toy);
	toy_begin(toy);
	assert_int_equal(toy_wait(toy, lineage_open(toy->lineage, &toy->request)), 0);
}

uint64_t toy_count(const struct toy *toy)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < toy->device_count; i++)
		count += sim_disk_count(toy->disks[i]);
	return count;
}

void toy_interrupt(struct toy *toy)
{
	void (*end)(struct sim_disk * disk) = toy_choose(toy, 2) ? sim_disk_fail_power : sim_disk_kill;

	for (unsigned i = 0; i < toy->device_count; i++)
		end(toy->disks[i]);
}

void toy_fail_power(struct toy *toy, unsigned turns)
{
	while (turns-- > 0 && toy->done_count == 0)
		assert_true(toy_turn(toy));
	for (unsigned i = 0; i < toy->device_count; i++)
		sim_disk_fail_power(toy->disks[i]);
	while (toy->done_count == 0)
		assert_true(toy_turn(toy));
	toy->done_count = 0;
	toy_reopen(toy);
}

void toy_keep(struct toy *toy, const char *name)
{
	assert_int_equal(toy_wait(toy, lineage_snapshot(&toy->head, name, &toy->request)), 0);
}
