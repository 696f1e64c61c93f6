/* Verifies a store on devices: reads the superblocks, both copies of each node, and the extents that only
 * snapshots have. Transfers read all else. */
#ifndef TIERD_OFFLOAD_STORE_VERIFY_H
#define TIERD_OFFLOAD_STORE_VERIFY_H

#include "common/workers.h"
#include "offload/store/lineage_verify.h"
#include "offload/store/store.h"

/* A verification goes group by group: the extents of one leaf. */
#define STORE_GROUP_EXTENTS NODE_EXTENTS

enum store_part { STORE_SUPERBLOCK, STORE_TABLE, STORE_NODE, STORE_EXTENT };

/* "a, b and 3 more" */
#define STORE_NAMES_TEXT 320

/* Damage. */
struct store_flaw {
	enum store_part part;
	bool is_of_job;
	char snapshots[STORE_NAMES_TEXT]; /* that it belongs to, or "" */
	unsigned level;			  /* of a node in its map; 0: leaves */
	uint64_t index;
	unsigned copy;		  /* of all but extents, from 0 */
	struct store_range block; /* of an extent */
	const char *device;
	uint64_t device_offset, length;
	int status;
	bool is_mended; /* it was repaired */
	bool has_other; /* the other copy of the node is good */
};

/* Embedded in the caller's struct. For each group: store_verify(), then store_verify_extents(). */
struct store_verification {
	uint64_t group;
	void *buffer; /* STORE_MAX_BLOCK_BYTES, page-aligned; lent */
	void (*found)(struct store_verification *verification, const struct store_flaw *flaw);
	/* Called before each block; false: end now. */
	bool (*goes_on)(struct store_verification *verification);
	/* store_verify_extents() has ended; on the loop, never inside the call. */
	void (*done)(struct store_verification *verification);

	/* Of the store. */
	struct lineage_verification nodes;
	struct extent_store *store;
	struct lineage_kept *kept;
	size_t count, capacity, next;
	int status;
	char names[HEAD_RECORDS][HEAD_NAME_BYTES];
	struct store_range range;
	uint64_t at; /* of the block in its extent */
	struct tier_io io;
	struct work work;
	uint64_t bytes; /* of extents that were read so far */
};

/* Reads nodes, and with group 0 superblocks; a request, so commits wait for it. Damage is reported by
 * found(), and is no error. -EOPNOTSUPP, -EBUSY; -ENODATA: nothing was ever committed; -ENOMEM. */
int store_verify(struct store *store, struct store_verification *verification, struct store_request *request);
/* Then reads the extents that only snapshots have, while commits go on. They keep their places meanwhile.
 * False: there are none, and done() does not run. */
bool store_verify_extents(struct store_verification *verification);
/* After an error, or in place of store_verify_extents(). */
void store_verification_clear(struct store_verification *verification);

#endif
