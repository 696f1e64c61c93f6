/* The tree of a map, as the daemon remembers it: a pointer to every node, and which nodes a commit must
 * write. Pure state, no I/O.
 *
 * Nodes are never overwritten: a commit writes those on the way to what has changed, to free places, from the
 * extents up; what has changed meanwhile waits for the next commit. */
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
	struct node_pointer *replaced; /* by those that the commit under way has placed */
	uint64_t *changed;	       /* a bit each: what lies below has changed since it was frozen last */
	uint64_t *frozen;	       /* a bit each: the commit that is under way has not written it yet */
	uint64_t *placed;	       /* a bit each: it has */
	uint64_t count;
};

struct map_tree {
	uint64_t extents;
	unsigned level_count;
	struct tree_level levels[TREE_LEVELS];
};

/* No extent was ever written. -ENOMEM, -EOVERFLOW. */
int tree_init(struct map_tree *tree, uint64_t extents);
void tree_destroy(struct map_tree *tree);
uint64_t tree_host_bytes(uint64_t extents);

/* Nodes of all levels. */
uint64_t tree_nodes(uint64_t extents);

static inline const struct node_pointer *tree_root(const struct map_tree *tree)
{
	return &tree->levels[tree->level_count - 1].pointers[0];
}

/* The entry of an extent has changed. */
void tree_change(struct map_tree *tree, uint64_t extent);

/* A commit begins: it writes the nodes that have changed. The last one's are all written, and forgotten. */
void tree_freeze(struct map_tree *tree);

/* Whether the node with this extent's entry is still to be written as it was frozen: then the entry must
 * stay. */
bool tree_is_frozen(const struct map_tree *tree, uint64_t extent);

/* Of a node, but generation and epoch. */
struct node_header tree_header(const struct map_tree *tree, unsigned level, uint64_t index);

/* The next node to write: the first of its level, from *index on, that is frozen, with its header but
 * generation and epoch. Levels go from 0 up; a level's nodes can be made once all nodes of the level below
 * are written. False: the level has no more. */
bool tree_next(const struct map_tree *tree, unsigned level, uint64_t *index, struct node_header *ret_header);

/* A node of pointers, of a level above 0. */
void tree_fill(const struct map_tree *tree, const struct node_header *header, uint8_t bytes[NODE_BYTES]);

/* A frozen node has been made, and will lie there. */
void tree_place(struct map_tree *tree, const struct node_header *header, const struct node_pointer *pointer);

/* What a node replaces that this commit has placed; NULL: it has not placed that one. */
const struct node_pointer *tree_replaced(const struct map_tree *tree, unsigned level, uint64_t index);

/* The commit is the last one: it replaces nothing any more. */
void tree_forget_replaced(struct map_tree *tree);

/* On open, from the root down: what a node that was read says of those below it. The root's pointer comes
 * from elsewhere. -EBADMSG: it is not the node that is expected there. */
void tree_clear(struct map_tree *tree); /* it leads nowhere */
void tree_set_root(struct map_tree *tree, const struct node_pointer *root);
int tree_load(struct map_tree *tree, unsigned level, uint64_t index, const uint8_t bytes[NODE_BYTES]);

#endif
