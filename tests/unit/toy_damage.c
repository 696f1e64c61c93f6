/* Damage to what a toy store has on its disks. */
#include "offload/store/lineage_backend.h"
#include "tests/unit/test.h"
#include "tests/unit/toy_store.h"

#define NODES_OFFSET (1024 * 1024)
#define DEVICE_SHIFT 48

void toy_make_steps(struct toy *toy, unsigned steps)
{
	while (steps-- > 0) {
		for (unsigned i = 0; i < toy->extents; i++) {
			assert_int_equal(toy_update(toy, i, toy->head.step << 16 | i | 1), 0);
			toy->history[toy->head.step + 1][i] = toy->map[i].content;
		}
		toy->head.step++;
		assert_int_equal(toy_commit(toy), 0);
	}
}

bool toy_node(struct toy *toy, unsigned number, struct node_pointer *ret_pointer)
{
	if (number == 0) {
		*ret_pointer = toy->lineage->superblock.root;
		return true;
	}
	number--;
	for (unsigned level = 0; level < toy->head.tree.level_count; level++) {
		const struct tree_level *nodes = &toy->head.tree.levels[level];

		if (number < nodes->count) {
			*ret_pointer = nodes->pointers[number];
			return true;
		}
		number -= (unsigned)nodes->count;
	}
	return false;
}

struct sim_disk *toy_disk_of(struct toy *toy, const struct node_pointer *pointer, unsigned copy)
{
	return toy->disks[pointer->places[copy] >> DEVICE_SHIFT];
}

uint64_t toy_offset_of(const struct node_pointer *pointer, unsigned copy)
{
	return NODES_OFFSET + (pointer->places[copy] & UINT32_MAX) * NODE_BYTES;
}

void toy_flip_node(struct toy *toy, const struct node_pointer *pointer, unsigned copy, unsigned at)
{
	sim_disk_flip(toy_disk_of(toy, pointer, copy), toy_offset_of(pointer, copy) + at, 1U << at % 8);
}

void toy_flip_nodes(struct toy *toy, const struct node_pointer *pointer, unsigned at)
{
	toy_flip_node(toy, pointer, 0, at);
	toy_flip_node(toy, pointer, 1, at);
}
