/* The map of an extent store: the place, the checksums and the rewrite of each extent. Pure state, no I/O. */
#ifndef TIERD_OFFLOAD_STORE_MAP_H
#define TIERD_OFFLOAD_STORE_MAP_H

#include "offload/store/map_tree.h"
#include "offload/store/places.h"
#include "offload/store/store_layout.h"

struct store_extent {
	uint64_t checksums[STORE_EXTENT_BLOCKS];
	uint64_t pending_checksums[STORE_EXTENT_BLOCKS];
	uint32_t place;		/* PLACES_NONE: never written, so zeros */
	uint32_t committed;	/* its place in the last commit */
	uint32_t frozen;	/* its place in the commit under way, once the leaf is encoded */
	uint32_t pending_place; /* of the rewrite; PLACES_NONE: there is none */
	uint32_t length;	/* bytes of the section in this extent */
	uint32_t version;	/* counts rewrites that became visible */
	/* A bit for each block: that it has, that the rewrite has written, or is writing. */
	uint8_t blocks, written, in_flight;
	bool has_failed; /* the rewrite ends when nothing of it is in flight */
	bool is_broken;	 /* the rewrite's place had an error, and is not used again */
	bool is_scratch; /* a rewrite frees the old place first */
	bool is_fixed;	 /* never written after its first commit */
	bool is_held;	 /* the rewrite waits for store_map_publish() */
};

struct store_map {
	struct store_extent *extents;
	uint64_t count;
	unsigned device_count;
	struct places *devices[SUPERBLOCK_MAX_MEMBERS]; /* borrowed; extent i is on i mod device_count */
	struct map_tree *tree;				/* is told of changes; NULL: nothing is committed */
	uint64_t rewrites;				/* that have a place, and are not visible */
	uint64_t held_back;				/* of these, those that wait to be published */
	struct queue peers; /* a ring of maps on the same places: a job and its forks */
	uint64_t held;	    /* extents that have a place */
	uint64_t shared;    /* of these, those that another map of the ring has, too */
	/* Of each device: places of extents and rewrites that are not in the last commit. */
	uint64_t uncommitted[SUPERBLOCK_MAX_MEMBERS];
};

/* All extents are zeros. -ENOMEM. */
int store_map_init(struct store_map *map, uint64_t extents, struct places *const *devices,
		   unsigned device_count);
/* Adds it to the ring of other, before any of its extents has a place. */
void store_map_join(struct store_map *map, struct store_map *other);
/* Sets length and kind of each extent. */
void store_map_adopt(struct store_map *map, const struct store_layout *layout);
void store_map_destroy(struct store_map *map);

/* Begins a write of these blocks at pending_place, which is taken if there is none. -ENOSPC: no place is
 * free; -EIO: the rewrite has failed, and other writes of it are in flight. */
int store_map_begin(struct store_map *map, uint64_t extent, uint8_t blocks);

/* Holds the rewrite back. The extent must be as the last commit has it, because there is no third place. */
void store_map_hold(struct store_map *map, uint64_t extent);
/* Makes a rewrite visible if it is held back and whole. */
void store_map_publish(struct store_map *map, uint64_t extent);

/* The write succeeded. The last one makes the rewrite visible, unless it is held back. checksums[0] is of the
 * first of the blocks. */
void store_map_complete(struct store_map *map, uint64_t extent, uint8_t blocks, const uint64_t *checksums);

/* The write failed; is_broken: on the device. */
void store_map_fail(struct store_map *map, uint64_t extent, uint8_t blocks, bool is_broken);

/* The write failed, and goes on at another place, if the rewrite has no other blocks. is_broken: the old
 * place is not used again. -EIO: it has other blocks; -ENOSPC. */
int store_map_move(struct store_map *map, uint64_t extent, uint8_t blocks, bool is_broken);

/* Gives up a rewrite of which nothing is in flight. */
void store_map_abandon(struct store_map *map, uint64_t extent);

/* Encodes a leaf of the tree, and notes it as frozen: each of its places gets a name. */
void store_map_freeze(struct store_map *map, const struct node_header *header, uint8_t bytes[NODE_BYTES]);
/* The last commit has what was frozen of this leaf. */
void store_map_commit(struct store_map *map, uint64_t leaf);
/* Nothing leads to a leaf of the last commit, or of a view, any more: each of its places loses a name. */
void store_map_release(struct store_map *map, uint64_t leaf);
/* Whose leaves are loaded: those of a commit that is opened, of a fork, whose commit names its places
 * already, or of a view. */
enum store_map_source { MAP_OF_COMMIT, MAP_OF_FORK, MAP_OF_VIEW };
/* Takes over a leaf. -EBADMSG: its content is impossible. */
int store_map_load(struct store_map *map, const struct node_header *header, const uint8_t bytes[NODE_BYTES],
		   enum store_map_source source);
/* Frees all places that are not committed. Nothing is in flight. */
void store_map_let_go(struct store_map *map);

uint64_t store_map_host_bytes(uint64_t extents);

#endif
