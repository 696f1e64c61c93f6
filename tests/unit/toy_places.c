/* Who names which places of a toy store, counted anew from its disks. */
#include <stdlib.h>
#include <string.h>

#include "offload/store/lineage_backend.h"
#include "tests/unit/test.h"
#include "tests/unit/toy_store.h"

#define NODES_OFFSET (1024 * 1024)
#define DEVICE_SHIFT 48

struct count {
	struct toy *toy;
	unsigned *nodes[TOY_MAX_DEVICES], *extents[TOY_MAX_DEVICES];
};

static unsigned *node_names(const struct count *count, uint64_t place)
{
	return &count->nodes[place >> DEVICE_SHIFT][place & UINT32_MAX];
}

static void read_node(const struct count *count, uint64_t place, uint8_t bytes[NODE_BYTES])
{
	sim_disk_read(count->toy->disks[place >> DEVICE_SHIFT],
		      NODES_OFFSET + (place & UINT32_MAX) * NODE_BYTES, bytes, NODE_BYTES);
}

static void count_leaf(const struct count *count, const uint8_t bytes[NODE_BYTES])
{
	for (unsigned i = 0; i < node_count(bytes); i++) {
		struct node_extent extent;

		node_get_extent(bytes, i, &extent);
		if (extent.place != PLACES_NONE)
			count->extents[extent.device][extent.place]++;
	}
}

/* What lies below has a name once, however many lead here. */
static void count_node(const struct count *count, unsigned level, const struct node_pointer *pointer)
{
	uint8_t bytes[NODE_BYTES];

	if (node_pointer_is_none(pointer))
		return;
	++*node_names(count, pointer->places[1]);
	if (++*node_names(count, pointer->places[0]) > 1)
		return;
	read_node(count, pointer->places[0], bytes);
	if (level == 0)
		count_leaf(count, bytes);
	for (unsigned i = 0; level > 0 && i < node_count(bytes); i++) {
		struct node_pointer child;

		node_get_pointer(bytes, i, &child);
		count_node(count, level - 1, &child);
	}
}

static void count_heads(const struct count *count)
{
	const struct node_pointer *table = &count->toy->lineage->superblock.root;
	unsigned top = count->toy->head.tree.level_count - 1;
	struct head_table heads;
	uint8_t bytes[NODE_BYTES];

	for (unsigned i = 0; i < TOY_MAX_VIEWS; i++)
		if (count->toy->views[i].toy)
			count_node(count, top, tree_root(&count->toy->views[i].head.tree));
	if (node_pointer_is_none(table))
		return;
	for (unsigned copy = 0; copy < 2; copy++)
		++*node_names(count, table->places[copy]);
	read_node(count, table->places[0], bytes);
	assert_int_equal(head_table_get(bytes, &heads), 0);
	for (unsigned i = 0; i < heads.count; i++)
		count_node(count, top, &heads.records[i].root);
}

static void count_current(const struct count *count)
{
	const struct toy *toy = count->toy;

	for (unsigned i = 0; i < toy->extents; i++)
		if (toy->map[i].place != PLACES_NONE)
			count->extents[i % toy->device_count][toy->map[i].place]++;
}

static void expect_nodes(const struct count *count, unsigned device)
{
	for (uint32_t place = 0; place < count->toy->lineage->geometry.nodes; place++) {
		uint64_t number = (uint64_t)device << DEVICE_SHIFT | place;
		struct node_pointer pointer = { { number, number }, 0 };

		assert_int_equal(node_area_names(count->toy->lineage->nodes, &pointer),
				 count->nodes[device][place]);
	}
}

static void expect_extents(const struct count *count, unsigned device)
{
	const struct places *places = lineage_places(count->toy->lineage, device);
	unsigned free_count = 0;

	for (uint32_t place = 0; place < places->count; place++) {
		assert_int_equal(places->names[place], count->extents[device][place]);
		free_count += places_is_free(places, place);
	}
	assert_int_equal(places->free_count, free_count);
}

void toy_expect_places(struct toy *toy)
{
	struct count count = { .toy = toy };

	for (unsigned device = 0; device < toy->device_count; device++) {
		count.nodes[device] = calloc(toy->lineage->geometry.nodes, sizeof(unsigned));
		count.extents[device] = calloc(toy->lineage->geometry.extents, sizeof(unsigned));
		assert_true(count.nodes[device] && count.extents[device]);
	}
	count_heads(&count);
	count_current(&count);
	for (unsigned device = 0; device < toy->device_count; device++) {
		expect_nodes(&count, device);
		expect_extents(&count, device);
		free(count.nodes[device]);
		free(count.extents[device]);
	}
}
