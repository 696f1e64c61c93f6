/* Verifies what leads to extents: reads every copy of superblocks and nodes, and writes a bad copy of a node
 * again from the good one. */
#ifndef TIERD_OFFLOAD_LINEAGE_VERIFY_H
#define TIERD_OFFLOAD_LINEAGE_VERIFY_H

#include "offload/store/lineage.h"

#define LINEAGE_VERIFY_BYTES (2 * HEAD_RECORDS * (size_t)NODE_BYTES)

enum lineage_part { LINEAGE_SUPERBLOCK, LINEAGE_TABLE, LINEAGE_NODE };

/* A bad copy. */
struct lineage_flaw {
	enum lineage_part part;
	uint32_t heads; /* that it belongs to: a bit for each record */
	unsigned level; /* of a node, in its map */
	uint64_t index;
	unsigned copy;
	const char *device;
	uint64_t device_offset;
	int status;	/* -EBADMSG: wrong bytes; or the device's error */
	bool is_mended; /* it was written again, and is good now */
	bool has_other; /* the other copy of the node is good */
};

/* An extent that snapshots keep. */
struct lineage_kept {
	uint32_t heads; /* that have it there */
	uint64_t extent;
	struct node_extent at;
};

/* Verifies the nodes that lead to one leaf, and the leaf, in the maps of a job and its snapshots. Nodes that
 * several maps have are read once. Superblocks and table go with leaf 0. */
struct lineage_verification {
	uint64_t leaf;
	void *buffer; /* LINEAGE_VERIFY_BYTES for O_DIRECT; lent */
	void (*found)(struct lineage_verification *verification, const struct lineage_flaw *flaw);
	/* Called for each place of an extent below the leaf that only snapshots have. */
	void (*kept)(struct lineage_verification *verification, const struct lineage_kept *kept);

	/* Of the lineage. */
	struct lineage_head *head;
	uint32_t job, all; /* of the heads: its own record; those that are verified */
	unsigned level;
	struct node_pointer pointers[HEAD_RECORDS]; /* of each head, on this level */
	struct {
		struct node_pointer pointer;
		struct node_header expected;
		uint32_t heads;
	} nodes[HEAD_RECORDS];
	unsigned count;
	/* A bit for each copy of each node. */
	uint32_t bad, mending, mended;
	int statuses[2 * HEAD_RECORDS];
};

/* The records, in the order of their bits. */
const struct head_table *lineage_table(const struct lineage *lineage);

/* A request, so commits wait for it. Damage is reported by found(), and is no error. After a commit that has
 * failed nothing is repaired. -EBUSY; -ENODATA: nothing was committed. */
int lineage_verify(struct lineage_head *head, struct lineage_verification *verification,
		   struct lineage_request *request);

#endif
