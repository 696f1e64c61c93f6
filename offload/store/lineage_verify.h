/* Verifying what leads to extents: every copy of superblocks and nodes is read, not only the first that is
 * good, and a node's copy that is bad is written again from its good one. */
#ifndef TIERD_OFFLOAD_LINEAGE_VERIFY_H
#define TIERD_OFFLOAD_LINEAGE_VERIFY_H

#include "offload/store/lineage.h"

#define LINEAGE_VERIFY_BYTES (2 * HEAD_RECORDS * (size_t)NODE_BYTES)

enum lineage_part { LINEAGE_SUPERBLOCK, LINEAGE_TABLE, LINEAGE_NODE };

/* A copy that is not what it should be. */
struct lineage_flaw {
	enum lineage_part part;
	uint32_t heads; /* that it belongs to: a bit for each record of the table */
	unsigned level; /* of a node, in its map */
	uint64_t index;
	unsigned copy;
	const char *device;
	uint64_t device_offset;
	int status;	/* -EBADMSG: it is something else; the device's error */
	bool is_mended; /* it was written again, and is good now */
	bool has_other; /* a node's other copy is good */
};

/* An extent that snapshots keep. */
struct lineage_kept {
	uint32_t heads; /* that have it there */
	uint64_t extent;
	struct node_extent at;
};

/* Embedded in what is verified: the nodes of the maps of a job and its snapshots that lead to a leaf, with
 * the leaves. Nodes that several maps have are read once. Superblocks and table go with leaf 0. */
struct lineage_verification {
	uint64_t leaf;
	void *buffer; /* LINEAGE_VERIFY_BYTES for O_DIRECT; lent */
	void (*found)(struct lineage_verification *verification, const struct lineage_flaw *flaw);
	/* An extent below the leaf that a snapshot has, and the last commit has not there; each place once.
	 */
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

/* The records that bits stand for. */
const struct head_table *lineage_table(const struct lineage *lineage);

/* One of those requests that commits wait for. What is bad is told, and no error. -EBUSY; -ENODATA: nothing
 * has been committed. After a commit that has failed nothing is mended. */
int lineage_verify(struct lineage_head *head, struct lineage_verification *verification,
		   struct lineage_request *request);

#endif
