#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/little_endian.h"
#include "offload/store/map_tree.h"
#include "tests/unit/test.h"

/* A device for nodes, which are only ever added. */
struct scene {
	struct map_tree tree;
	struct node_extent *extents; /* what the map says */
	uint8_t (*nodes)[NODE_BYTES];
	uint64_t count, capacity;
	uint64_t random;
};

static uint64_t next_random(struct scene *scene)
{
	scene->random = scene->random * 6364136223846793005 + 1442695040888963407;
	return scene->random >> 33;
}

static void open_scene(struct scene *scene, uint64_t extents)
{
	*scene = (struct scene){ .random = extents };
	assert_int_equal(tree_init(&scene->tree, extents), 0);
	scene->extents = calloc(extents + 1, sizeof(*scene->extents));
	for (uint64_t i = 0; i < extents; i++)
		scene->extents[i].place = UINT32_MAX;
}

static void close_scene(struct scene *scene)
{
	tree_destroy(&scene->tree);
	free(scene->extents);
	free(scene->nodes);
}

static void change(struct scene *scene, uint64_t extent)
{
	struct node_extent *entry = &scene->extents[extent];

	entry->place = (uint32_t)next_random(scene);
	entry->device = (uint16_t)next_random(scene);
	for (unsigned block = 0; block < STORE_EXTENT_BLOCKS; block++)
		entry->checksums[block] = next_random(scene);
	tree_change(&scene->tree, extent);
}

static uint8_t *new_node(struct scene *scene)
{
	if (scene->count == scene->capacity) {
		scene->capacity = 2 * scene->capacity + 16;
		scene->nodes = realloc(scene->nodes, scene->capacity * NODE_BYTES);
		assert_non_null(scene->nodes);
	}
	return scene->nodes[scene->count++];
}

static void write_node(struct scene *scene, struct node_header *header)
{
	uint8_t *bytes = new_node(scene);
	struct node_pointer pointer = { { scene->count - 1, scene->count - 1 }, 0 }, before;

	header->generation = 5;
	header->epoch = 6;
	if (header->level > 0) {
		tree_fill(&scene->tree, header, bytes);
	} else {
		node_begin(bytes, header);
		for (unsigned i = 0; i < header->count; i++)
			node_put_extent(bytes, i, &scene->extents[header->index * NODE_EXTENTS + i]);
	}
	pointer.checksum = node_checksum(bytes);
	before = scene->tree.levels[header->level].pointers[header->index];
	assert_null(tree_replaced(&scene->tree, header->level, header->index));
	tree_place(&scene->tree, header, &pointer);
	assert_memory_equal(tree_replaced(&scene->tree, header->level, header->index), &before,
			    sizeof(before));
}

/* Returns how many nodes were written. */
static uint64_t commit(struct scene *scene)
{
	struct node_header header;
	uint64_t written = 0;

	tree_freeze(&scene->tree);
	for (unsigned level = 0; level < scene->tree.level_count; level++)
		for (uint64_t index = 0; tree_next(&scene->tree, level, &index, &header); index++) {
			write_node(scene, &header);
			written++;
		}
	tree_forget_replaced(&scene->tree);
	return written;
}

static void load(struct scene *scene, struct map_tree *tree, unsigned level, uint64_t index,
		 struct node_extent *extents)
{
	const struct node_pointer *pointer = &tree->levels[level].pointers[index];
	struct node_header header = { .level = level, .index = index };
	uint64_t items = level == 0 ? tree->extents : tree->levels[level - 1].count;
	unsigned capacity = node_capacity(level);

	if (node_pointer_is_none(pointer))
		return;
	header.count = (uint32_t)(items - index * capacity < capacity ? items - index * capacity : capacity);
	assert_int_equal(tree_load(tree, level, index, scene->nodes[pointer->places[0]]), 0);
	for (unsigned i = 0; i < header.count; i++)
		if (level == 0)
			node_get_extent(scene->nodes[pointer->places[0]], i, &extents[index * capacity + i]);
		else
			load(scene, tree, level - 1, index * capacity + i, extents);
}

static void expect_same_after_open(struct scene *scene)
{
	uint64_t count = scene->tree.extents;
	struct node_extent *extents = calloc(count + 1, sizeof(*extents));
	struct map_tree tree;

	for (uint64_t i = 0; i < count; i++)
		extents[i].place = UINT32_MAX;
	assert_int_equal(tree_init(&tree, count), 0);
	tree_set_root(&tree, tree_root(&scene->tree));
	load(scene, &tree, tree.level_count - 1, 0, extents);
	for (uint64_t i = 0; i < count; i++) {
		assert_int_equal(extents[i].place, scene->extents[i].place);
		assert_int_equal(extents[i].device, scene->extents[i].device);
		assert_memory_equal(extents[i].checksums, scene->extents[i].checksums,
				    sizeof(extents[i].checksums));
	}
	tree_destroy(&tree);
	free(extents);
}

static const uint64_t sizes[] = { 1, 99, 100, 101, 168, 16800, 16801, 40000 };

static void what_was_committed_is_found_from_the_root(void **state)
{
	for (unsigned i = 0; i < ARRAY_LENGTH(sizes); i++) {
		struct scene scene;

		open_scene(&scene, sizes[i]);
		for (unsigned round = 0; round < 5; round++) {
			for (unsigned changes = 0; changes < 50; changes++)
				change(&scene, next_random(&scene) % sizes[i]);
			commit(&scene);
			expect_same_after_open(&scene);
		}
		close_scene(&scene);
	}
}

static void nothing_has_to_be_written_where_nothing_has_changed(void **state)
{
	struct scene scene;

	open_scene(&scene, 20000);
	assert_int_equal(commit(&scene), 0);
	assert_true(node_pointer_is_none(tree_root(&scene.tree)));
	change(&scene, 19999);
	/* The extent's node, the one above it, and the root. */
	assert_int_equal(scene.tree.level_count, 3);
	assert_int_equal(commit(&scene), 3);
	assert_int_equal(commit(&scene), 0);
	close_scene(&scene);
}

static void what_changes_after_the_freeze_waits_for_the_next_commit(void **state)
{
	struct node_header header;
	struct scene scene;
	uint64_t index = 0;

	open_scene(&scene, 500);
	change(&scene, 250);
	tree_freeze(&scene.tree);
	assert_true(tree_is_frozen(&scene.tree, 250));
	assert_true(tree_is_frozen(&scene.tree, 299));
	assert_false(tree_is_frozen(&scene.tree, 300));
	change(&scene, 300);
	assert_false(tree_is_frozen(&scene.tree, 300));
	assert_true(tree_next(&scene.tree, 0, &index, &header));
	assert_int_equal(index, 2);
	write_node(&scene, &header);
	assert_false(tree_is_frozen(&scene.tree, 250));
	assert_false(tree_next(&scene.tree, 0, &index, &header));
	change(&scene, 251);
	index = 0;
	assert_true(tree_next(&scene.tree, 1, &index, &header));
	write_node(&scene, &header);
	tree_forget_replaced(&scene.tree);
	assert_int_equal(commit(&scene), 3);
	expect_same_after_open(&scene);
	close_scene(&scene);
}

static void no_other_node_is_believed(void **state)
{
	struct node_pointer root, leaf;
	struct scene scene;

	open_scene(&scene, 500);
	for (uint64_t extent = 0; extent < 500; extent++)
		change(&scene, extent);
	commit(&scene);
	root = *tree_root(&scene.tree);
	for (unsigned bit = 0; bit < NODE_BYTES * 8; bit++) {
		scene.nodes[root.places[0]][bit / 8] ^= (uint8_t)(1U << bit % 8);
		assert_int_equal(tree_load(&scene.tree, 1, 0, scene.nodes[root.places[0]]), -EBADMSG);
		scene.nodes[root.places[0]][bit / 8] ^= (uint8_t)(1U << bit % 8);
	}
	assert_int_equal(tree_load(&scene.tree, 1, 0, scene.nodes[root.places[0]]), 0);
	/* The neighbour's bytes, even where the pointer has their checksum. */
	leaf = scene.tree.levels[0].pointers[3];
	assert_int_equal(tree_load(&scene.tree, 0, 2, scene.nodes[leaf.places[0]]), -EBADMSG);
	scene.tree.levels[0].pointers[2].checksum = leaf.checksum;
	assert_int_equal(tree_load(&scene.tree, 0, 2, scene.nodes[leaf.places[0]]), -EBADMSG);
	assert_int_equal(tree_load(&scene.tree, 0, 3, scene.nodes[leaf.places[0]]), 0);
	close_scene(&scene);
}

static void what_is_large_takes_little_memory_and_what_is_too_large_is_refused(void **state)
{
	struct map_tree tree;

	assert_true(tree_host_bytes(100000) <= 100000);
	assert_int_equal(tree_init(&tree, TREE_MAX_EXTENTS + 1), -EOVERFLOW);
}

static void a_node_is_the_bytes_of_the_format(void **state)
{
	struct node_header header = { .level = 0, .count = 2, .index = 7, .generation = 8, .epoch = 9 };
	struct node_extent extent = { .device = 3, .place = 4, .checksums = { 5, 6, 7, 8 } };
	struct node_pointer pointer = { { 10, 11 }, 12 };
	uint8_t bytes[NODE_BYTES];

	node_begin(bytes, &header);
	node_put_extent(bytes, 1, &extent);
	assert_memory_equal(bytes,
			    "tierd-nd\0\0\0\0\2\0\0\0\7\0\0\0\0\0\0\0\x8\0\0\0\0\0\0\0\x9\0\0\0\0\0\0\0", 40);
	assert_int_equal(get32(bytes + 104), 4);
	assert_int_equal(get16(bytes + 108), 3);
	assert_int_equal(get64(bytes + 136), 8);
	header.level = 1;
	node_begin(bytes, &header);
	node_put_pointer(bytes, 1, &pointer);
	assert_int_equal(get32(bytes + 8), 1);
	assert_int_equal(get64(bytes + 88), 10);
	assert_int_equal(get64(bytes + 96), 11);
	assert_int_equal(get64(bytes + 104), 12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_committed_is_found_from_the_root),
		cmocka_unit_test(nothing_has_to_be_written_where_nothing_has_changed),
		cmocka_unit_test(what_changes_after_the_freeze_waits_for_the_next_commit),
		cmocka_unit_test(no_other_node_is_believed),
		cmocka_unit_test(what_is_large_takes_little_memory_and_what_is_too_large_is_refused),
		cmocka_unit_test(a_node_is_the_bytes_of_the_format),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
