#include "offload/store/map_tree.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"

#define WORD_BITS 64

static uint64_t words_of(uint64_t bits)
{
	return size_divide_up(bits, WORD_BITS);
}

static bool has_bit(const uint64_t *bits, uint64_t index)
{
	return bits[index / WORD_BITS] >> index % WORD_BITS & 1;
}

static void set_bit(uint64_t *bits, uint64_t index)
{
	bits[index / WORD_BITS] |= UINT64_C(1) << index % WORD_BITS;
}

static void clear_bit(uint64_t *bits, uint64_t index)
{
	bits[index / WORD_BITS] &= ~(UINT64_C(1) << index % WORD_BITS);
}

/* The first bit that is set, from index on; count: none. */
static uint64_t next_bit(const uint64_t *bits, uint64_t count, uint64_t index)
{
	while (index < count) {
		uint64_t rest = bits[index / WORD_BITS] >> index % WORD_BITS;

		if (rest)
			return index + (unsigned)__builtin_ctzll(rest);
		index = (index / WORD_BITS + 1) * WORD_BITS;
	}
	return count;
}

/* ---- Life ---- */

static int init_level(struct tree_level *level, uint64_t count)
{
	level->count = count;
	level->pointers = malloc(count * sizeof(*level->pointers));
	level->changed = calloc(words_of(count), sizeof(uint64_t));
	/* Allocated here, so that a commit needs no memory. */
	level->replaced = malloc(count * sizeof(*level->replaced));
	level->frozen = calloc(words_of(count), sizeof(uint64_t));
	level->placed = calloc(words_of(count), sizeof(uint64_t));
	if (!level->pointers || !level->changed || !level->replaced || !level->frozen || !level->placed)
		return -ENOMEM;
	for (uint64_t i = 0; i < count; i++)
		level->pointers[i] = NODE_POINTER_NONE;
	return 0;
}

int tree_init(struct map_tree *tree, uint64_t extents)
{
	uint64_t count = extents;
	int r = 0;

	if (extents > TREE_MAX_EXTENTS)
		return -EOVERFLOW;
	*tree = (struct map_tree){ .extents = extents };
	do {
		unsigned level = tree->level_count++;

		count = count > 0 ? size_divide_up(count, node_capacity(level)) : 1;
		r = init_level(&tree->levels[level], count);
	} while (r == 0 && count > 1);
	if (r < 0)
		tree_destroy(tree);
	return r;
}

void tree_destroy(struct map_tree *tree)
{
	for (unsigned level = 0; level < tree->level_count; level++) {
		free(tree->levels[level].pointers);
		free(tree->levels[level].replaced);
		free(tree->levels[level].changed);
		free(tree->levels[level].frozen);
		free(tree->levels[level].placed);
	}
	*tree = (struct map_tree){ 0 };
}

uint64_t tree_nodes(uint64_t extents)
{
	uint64_t nodes = 0, count = extents;
	unsigned level = 0;

	do {
		count = count > 0 ? size_divide_up(count, node_capacity(level++)) : 1;
		nodes += count;
	} while (count > 1);
	return nodes;
}

uint64_t tree_host_bytes(uint64_t extents)
{
	uint64_t nodes = tree_nodes(extents);

	return nodes * 2 * sizeof(struct node_pointer) +
	       (words_of(nodes) + TREE_LEVELS) * 3 * sizeof(uint64_t);
}

/* ---- A commit ---- */

/* The parents of a changed node have changed, too. */
void tree_change(struct map_tree *tree, uint64_t extent)
{
	uint64_t index = extent / NODE_EXTENTS;

	assert(extent < tree->extents);
	for (unsigned level = 0; level < tree->level_count; level++, index /= NODE_CHILDREN) {
		if (has_bit(tree->levels[level].changed, index))
			return;
		set_bit(tree->levels[level].changed, index);
	}
}

void tree_freeze(struct map_tree *tree)
{
	for (unsigned i = 0; i < tree->level_count; i++) {
		struct tree_level *level = &tree->levels[i];
		uint64_t *none = level->frozen;

		for (uint64_t word = 0; word < words_of(level->count); word++)
			assert(none[word] == 0 && level->placed[word] == 0);
		level->frozen = level->changed;
		level->changed = none;
	}
}

bool tree_is_frozen(const struct map_tree *tree, uint64_t extent)
{
	return has_bit(tree->levels[0].frozen, extent / NODE_EXTENTS);
}

/* How many children, or extents, the level has in all. */
static uint64_t items_below(const struct map_tree *tree, unsigned level)
{
	return level == 0 ? tree->extents : tree->levels[level - 1].count;
}

struct node_header tree_header(const struct map_tree *tree, unsigned level, uint64_t index)
{
	uint64_t rest = items_below(tree, level) - index * node_capacity(level);

	return (struct node_header){
		.level = level,
		.count = rest < node_capacity(level) ? (uint32_t)rest : node_capacity(level),
		.index = index,
	};
}

bool tree_next(const struct map_tree *tree, unsigned level, uint64_t *index, struct node_header *ret_header)
{
	const struct tree_level *nodes = &tree->levels[level];

	*index = next_bit(nodes->frozen, nodes->count, *index);
	if (*index == nodes->count)
		return false;
	*ret_header = tree_header(tree, level, *index);
	return true;
}

void tree_fill(const struct map_tree *tree, const struct node_header *header, uint8_t bytes[NODE_BYTES])
{
	const struct node_pointer *below =
		tree->levels[header->level - 1].pointers + header->index * NODE_CHILDREN;

	node_begin(bytes, header);
	for (unsigned i = 0; i < header->count; i++)
		node_put_pointer(bytes, i, &below[i]);
}

void tree_place(struct map_tree *tree, const struct node_header *header, const struct node_pointer *pointer)
{
	struct tree_level *level = &tree->levels[header->level];

	assert(has_bit(level->frozen, header->index));
	clear_bit(level->frozen, header->index);
	set_bit(level->placed, header->index);
	level->replaced[header->index] = level->pointers[header->index];
	level->pointers[header->index] = *pointer;
}

const struct node_pointer *tree_replaced(const struct map_tree *tree, unsigned level, uint64_t index)
{
	const struct tree_level *nodes = &tree->levels[level];

	return has_bit(nodes->placed, index) ? &nodes->replaced[index] : NULL;
}

void tree_forget_replaced(struct map_tree *tree)
{
	for (unsigned level = 0; level < tree->level_count; level++)
		memset(tree->levels[level].placed, 0, words_of(tree->levels[level].count) * sizeof(uint64_t));
}

/* ---- Open ---- */

void tree_clear(struct map_tree *tree)
{
	for (unsigned level = 0; level < tree->level_count; level++)
		for (uint64_t i = 0; i < tree->levels[level].count; i++)
			tree->levels[level].pointers[i] = NODE_POINTER_NONE;
}

void tree_set_root(struct map_tree *tree, const struct node_pointer *root)
{
	tree->levels[tree->level_count - 1].pointers[0] = *root;
}

int tree_load(struct map_tree *tree, unsigned level, uint64_t index, const uint8_t bytes[NODE_BYTES])
{
	struct node_header header = tree_header(tree, level, index);
	int r = node_check(bytes, tree->levels[level].pointers[index].checksum, &header);

	if (r < 0 || level == 0)
		return r;
	for (unsigned i = 0; i < header.count; i++)
		node_get_pointer(bytes, i, &tree->levels[level - 1].pointers[index * NODE_CHILDREN + i]);
	return 0;
}
