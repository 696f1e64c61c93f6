/* Verifying a store on devices: what no transfer reads is read here, the superblocks, both copies of each
 * node of its maps, and the extents that only snapshots have. */
#ifndef TIERD_OFFLOAD_STORE_VERIFY_H
#define TIERD_OFFLOAD_STORE_VERIFY_H

#include "common/workers.h"
#include "offload/store/lineage_verify.h"
#include "offload/store/store.h"

/* It goes by groups of extents, of which one node says where they are. */
#define STORE_GROUP_EXTENTS NODE_EXTENTS

enum store_part { STORE_SUPERBLOCK, STORE_TABLE, STORE_NODE, STORE_EXTENT };

/* "a, b and 3 more" */
#define STORE_NAMES_TEXT 320

/* What cannot be read as it was written. */
struct store_flaw {
	enum store_part part;
	bool is_of_job;
	char snapshots[STORE_NAMES_TEXT]; /* whose it is; "": of none */
	unsigned level;			  /* of a node: in its map, from 0 for those of extents up */
	uint64_t index;
	unsigned copy;		  /* of all but extents, from 0 */
	struct store_piece block; /* of an extent */
	const char *device;
	uint64_t device_offset, length;
	int status;
	bool is_mended; /* it is as it was written again */
	bool has_other; /* a node's other copy is good */
};

/* Embedded in whatever wants to know. First store_verify(), then store_verify_extents(), for each group. */
struct store_verification {
	uint64_t group;
	void *buffer; /* STORE_MAX_BLOCK_BYTES, page-aligned; lent */
	void (*found)(struct store_verification *verification, const struct store_flaw *flaw);
	/* Asked before each block; false: it ends early. */
	bool (*goes_on)(struct store_verification *verification);
	/* Of store_verify_extents(): once, on the loop, never inside the call. */
	void (*done)(struct store_verification *verification);

	/* Of the store. */
	struct lineage_verification nodes;
	struct extent_store *store;
	struct lineage_kept *kept;
	size_t count, room, next;
	int status;
	char names[HEAD_RECORDS][HEAD_NAME_BYTES];
	struct store_piece piece;
	uint64_t at; /* of the block in its extent */
	struct tier_io io;
	struct work work;
	uint64_t bytes; /* of extents that were read, since it was embedded */
};

/* Superblocks, with the first group, and nodes; a request as commits are, who wait for it. What is bad is
 * found, and no error. -EOPNOTSUPP, -EBUSY; -ENODATA: nothing was ever committed; -ENOMEM. */
int store_verify(struct store *store, struct store_verification *verification, struct store_request *request);
/* After it, beside commits: the extents that snapshots have, and the job has not any more. They keep their
 * places meanwhile. False: there are none, and done() never runs. */
bool store_verify_extents(struct store_verification *verification);
/* After an error, or in place of store_verify_extents(). */
void store_verification_clear(struct store_verification *verification);

#endif
