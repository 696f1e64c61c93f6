/* The map of an extent store: where each extent lies, with which checksums, and how far its rewrite is. Pure
 * state, no I/O. */
#ifndef TIERD_OFFLOAD_STORE_MAP_H
#define TIERD_OFFLOAD_STORE_MAP_H

#include "offload/store/map_tree.h"
#include "offload/store/places.h"
#include "offload/store/store_layout.h"

struct store_extent {
	uint64_t checksums[STORE_EXTENT_BLOCKS];
	uint64_t pending_checksums[STORE_EXTENT_BLOCKS];
	uint32_t place;		/* PLACES_NONE: never written, so zeros */
	uint32_t committed;	/* where the last commit has it */
	uint32_t frozen;	/* where the commit that is under way has it, once its leaf is made */
	uint32_t pending_place; /* of the rewrite; PLACES_NONE: none has begun */
	uint32_t length;	/* bytes of the section in this extent */
	uint32_t version;	/* counts rewrites that became visible */
	/* A bit each: the blocks that it has, and those of the rewrite. */
	uint8_t blocks, written, in_flight;
	bool has_failed; /* the rewrite is given up when nothing of it is in flight any more */
	bool is_broken;	 /* its place took an error, and is not used again */
	bool is_scratch; /* it gives its place up for its rewrite */
	bool is_fixed;	 /* once it is committed it is written no more */
	bool is_held;	 /* the rewrite becomes visible when it is published */
};

struct store_map {
	struct store_extent *extents;
	uint64_t count;
	unsigned device_count;
	struct places *devices[SUPERBLOCK_MAX_MEMBERS]; /* borrowed; extent i is on i mod device_count */
	struct map_tree *tree; /* that is to know what changes, or NULL: nothing is committed */
	uint64_t rewrites;     /* that have a place, and are not visible */
	uint64_t held_back;    /* of these: as long as nobody publishes them */
	struct queue peers;    /* a ring of maps on the same places: of a job and its forks */
	uint64_t held;	       /* extents that have a place */
	uint64_t shared;       /* of these: another map of the ring has it, too */
	/* Of each device: places of rewrites, visible or not, that the last commit does not have. */
	uint64_t uncommitted[SUPERBLOCK_MAX_MEMBERS];
};

/* All extents are zeros. -ENOMEM. */
int store_map_init(struct store_map *map, uint64_t extents, struct places *const *devices,
		   unsigned device_count);
/* Before any extent of it has a place: it is one of the ring in which other is. */
void store_map_join(struct store_map *map, struct store_map *other);
/* What the extents are, which the map does not say. */
void store_map_adopt(struct store_map *map, const struct store_layout *layout);
void store_map_destroy(struct store_map *map);

/* A write of these blocks begins at pending_place, found if there is none yet. -ENOSPC: no place is free;
 * -EIO: the rewrite has failed, and other writes of it are still in flight. */
int store_map_begin(struct store_map *map, uint64_t extent, uint8_t blocks);

/* The rewrite that has begun is held back. Its extent stands as the last commit has it: what it replaces
 * keeps its place until then, and a third one there is not. */
void store_map_hold(struct store_map *map, uint64_t extent);
/* One that is held back, and whole, becomes visible; of others nothing does. */
void store_map_publish(struct store_map *map, uint64_t extent);

/* It ended well: the last one makes the rewrite visible, unless it is held back. checksums[0] is of the first
 * of the blocks. */
void store_map_complete(struct store_map *map, uint64_t extent, uint8_t blocks, const uint64_t *checksums);

/* It failed, on the device or before it. */
void store_map_fail(struct store_map *map, uint64_t extent, uint8_t blocks, bool is_broken);

/* It failed, and goes on at another place, which is possible while the rewrite consists of these blocks only.
 * is_broken: the device took it, and the old place is not used again. -EIO: the rewrite has more blocks;
 * -ENOSPC. */
int store_map_move(struct store_map *map, uint64_t extent, uint8_t blocks, bool is_broken);

/* Gives up a rewrite of which nothing is in flight. */
void store_map_abandon(struct store_map *map, uint64_t extent);

/* Makes a leaf of the tree, and remembers it as frozen: all its places have a name more. */
void store_map_freeze(struct store_map *map, const struct node_header *header, uint8_t bytes[NODE_BYTES]);
/* What was frozen of a leaf is the last commit. */
void store_map_commit(struct store_map *map, uint64_t leaf);
/* Nothing leads to a leaf of the last commit, or of a view, any more: its places have a name less. */
void store_map_release(struct store_map *map, uint64_t leaf);
/* Whose leaves are loaded: those of a commit that is opened, of a fork, whose commit names its places
 * already, or of a view. */
enum store_map_source { MAP_OF_COMMIT, MAP_OF_FORK, MAP_OF_VIEW };
/* Takes over a leaf. -EBADMSG: it says what cannot be. */
int store_map_load(struct store_map *map, const struct node_header *header, const uint8_t bytes[NODE_BYTES],
		   enum store_map_source source);
/* Nobody uses it any more: what it has taken, and no commit names, is free. Nothing is in flight. */
void store_map_let_go(struct store_map *map);

uint64_t store_map_host_bytes(uint64_t extents);

#endif
