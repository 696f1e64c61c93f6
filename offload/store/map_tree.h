/* The tree of a map in memory: a pointer to every node, and which nodes a commit must write. Pure state, no
 * I/O.
 *
 * Nodes are never overwritten. A commit writes those that lead to changed extents, to free places, from the
 * extents up. What changes meanwhile waits for the next commit. */
#ifndef TIERD_OFFLOAD_MAP_TREE_H
#define TIERD_OFFLOAD_MAP_TREE_H

#include "offload/store/map_node.h"

/* 4 PB of extents. */
#define TREE_MAX_EXTENTS (UINT64_C(1) << 32)
#define TREE_LEVELS 5
_Static_assert((uint64_t)NODE_EXTENTS *NODE_CHILDREN *NODE_CHILDREN *NODE_CHILDREN *NODE_CHILDREN >=
		       TREE_MAX_EXTENTS,
	       "the levels reach");

struct tree_level {
	struct node_pointer *pointers; /* to the nodes of this level */
	struct node_pointer *replaced; /* by nodes that the commit under way has placed */
	uint64_t *changed;	       /* a bit each: something below has changed since the last freeze */
	uint64_t *frozen;	       /* a bit each: the commit under way has yet to write the node */
	uint64_t *placed;	       /* a bit each: the commit under way has written the node */
	uint64_t count;
};

struct map_tree {
	uint64_t extents;
	unsigned level_count;
	struct tree_level levels[TREE_LEVELS];
};

/* A tree of an empty map. -ENOMEM, -EOVERFLOW. */
int tree_init(struct map_tree *tree, uint64_t extents);
void tree_destroy(struct map_tree *tree);
uint64_t tree_host_bytes(uint64_t extents);

/* Nodes of all levels. */
uint64_t tree_nodes(uint64_t extents);

static inline const struct node_pointer *tree_root(const struct map_tree *tree)
{
	return &tree->levels[tree->level_count - 1].pointers[0];
}

/* Notes that the entry of an extent has changed. */
void tree_change(struct map_tree *tree, uint64_t extent);

/* A commit begins: it writes the nodes that have changed. tree_forget_replaced() has ended the last one. */
void tree_freeze(struct map_tree *tree);

/* Whether the commit under way has yet to write the node with this extent's entry: the entry must not change
 * until then. */
bool tree_is_frozen(const struct map_tree *tree, uint64_t extent);

/* The header of a node, without generation and epoch. */
struct node_header tree_header(const struct map_tree *tree, unsigned level, uint64_t index);

/* The next node to write: the first frozen one of the level, from *index on. Levels are written from 0 up,
 * each after the one below. False: the level has no more. */
bool tree_next(const struct map_tree *tree, unsigned level, uint64_t *index, struct node_header *ret_header);

/* Encodes a node of a level above 0. */
void tree_fill(const struct map_tree *tree, const struct node_header *header, uint8_t bytes[NODE_BYTES]);

/* Sets the place of a frozen node that was encoded. */
void tree_place(struct map_tree *tree, const struct node_header *header, const struct node_pointer *pointer);

/* The pointer that a node of this commit replaces; NULL: the commit has not placed that node. */
const struct node_pointer *tree_replaced(const struct map_tree *tree, unsigned level, uint64_t index);

/* The commit has ended. */
void tree_forget_replaced(struct map_tree *tree);

/* On open, from the root down: takes over the pointers of a node that was read. The root's comes from
 * elsewhere. -EBADMSG: these are not the bytes of that node. */
void tree_clear(struct map_tree *tree); /* removes all pointers */
void tree_set_root(struct map_tree *tree, const struct node_pointer *root);
int tree_load(struct map_tree *tree, unsigned level, uint64_t index, const uint8_t bytes[NODE_BYTES]);

#endif
