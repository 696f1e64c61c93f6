/* A lineage is what lies on the devices of a store: superblocks, maps, and extents. It commits a map, and
 * finds the last one that was committed.
 *
 * On each device: four copies of the superblock in the first MiB, then the nodes of maps, then extents.
 * Everything but superblocks is written to free places only, so the last commit stays whole until the next
 * one is acknowledged. */
#ifndef TIERD_OFFLOAD_LINEAGE_H
#define TIERD_OFFLOAD_LINEAGE_H

#include <stdbool.h>

#include "offload/head_record.h"
#include "offload/map_tree.h"
#include "offload/places.h"
#include "offload/tier.h"

struct lineage;
struct lineage_head;

/* Whose map it is, as the lineage sees them; all on the loop. */
struct lineage_head_ops {
	/* Makes a node of extents, as they are now. All places that it names get a name. */
	void (*freeze_node)(struct lineage_head *head, const struct node_header *header,
			    uint8_t bytes[NODE_BYTES]);
	/* What the last commit, or this view, had in a node of extents has a name less: nothing leads to that
	 * node any more. */
	void (*release_node)(struct lineage_head *head, uint64_t index);
	/* The commit that froze them is the last one. After all nodes that it does without. */
	void (*committed)(struct lineage_head *head);
	/* On open: takes over what a node says. -EBADMSG: it says what cannot be. */
	int (*load_node)(struct lineage_head *head, const struct node_header *header,
			 const uint8_t bytes[NODE_BYTES]);
	/* On open, before any node: how many extents its map has, so that its tree can be made. NULL: it has
	 * one, and knows. */
	int (*begin_load)(struct lineage_head *head, uint64_t extents);
	/* Places of that device that are taken for what no commit has. */
	uint64_t (*uncommitted)(const struct lineage_head *head, unsigned device);
};

/* Embedded in what has a map: a job, or a view of a snapshot. */
struct lineage_head {
	const struct lineage_head_ops *ops;
	struct map_tree tree;
	char name[HEAD_NAME_BYTES];
	uint64_t step; /* that the next commit contains; after open: that was found */
};

/* Something that takes time; the caller's until done(), which runs once, on the loop, never inside the call.
 */
struct lineage_request {
	void (*done)(struct lineage_request *request, int status);
};

/* The same on each device. */
struct lineage_geometry {
	uint32_t extents, nodes;
};

/* Of a job of so many extents, each on the device of its number modulo devices: places for what was
 * committed, for as much again while it is written, and for as many snapshots of which nothing is left in the
 * job. */
struct lineage_geometry lineage_geometry_for(uint64_t extents, unsigned devices, unsigned snapshots);
/* Bytes of each device; where extents begin. */
uint64_t lineage_device_bytes(const struct lineage_geometry *geometry);
uint64_t lineage_extents_offset(const struct lineage_geometry *geometry);

/* tiers: owned from here on, also after an error; each of lineage_device_bytes(), else -ENOSPC. geometry:
 * NULL for one that is to be opened, and says itself. head: borrowed. -EINVAL, -ENOMEM. */
int lineage_new(struct tier **tiers, unsigned tier_count, const struct lineage_geometry *geometry,
		struct lineage_head *head, struct lineage **ret_lineage);
/* No request is on its way. */
struct lineage *lineage_free(struct lineage *lineage);
DEFINE_FREEP(struct lineage *, lineage_free)

/* Makes it, with an empty map at step head->step, on devices whose content means nothing. */
int lineage_create(struct lineage *lineage, struct lineage_request *request);

/* Finds the last commit, and reads its map into the head; nothing is changed on the devices before all of it
 * has been found. -EPROTONOSUPPORT: another format; -ENODATA: no superblock on a device, or a pair of which
 * no copy can be read; -ENODEV: other devices than it was made of, or one that was left behind; -EBADMSG,
 * -EIO: the map cannot be read. lineage_message() says more. */
int lineage_open(struct lineage *lineage, struct lineage_request *request);

/* Makes what the head's map says now durable, as head->step. -EBUSY: a commit is on its way; -EROFS: an error
 * has ended the writing: what is on the devices then is the last commit, or this one, whole. Not before it
 * has been made or opened. */
int lineage_commit(struct lineage *lineage, struct lineage_request *request);

/* Makes use of more places on devices that have grown; there are as many nodes as there were. A commit of its
 * own: -EBUSY, -EROFS. -ENODATA: nothing has been committed; -EINVAL: it has as many; -ENOSPC: a device has
 * not grown; -ENOMEM. */
int lineage_grow(struct lineage *lineage, const struct lineage_geometry *geometry,
		 struct lineage_request *request);
/* Whether it would be refused, though all devices had grown. */
int lineage_can_grow(struct lineage *lineage, const struct lineage_geometry *geometry);

/* ---- Snapshots: a commit that is kept, under a name ---- */

/* What store.h says of those of a store; one request at a time, commits among them. */
int lineage_snapshot(struct lineage *lineage, const char *name, struct lineage_request *request);
int lineage_delete_snapshot(struct lineage *lineage, const char *name, struct lineage_request *request);
/* Nothing is written any more after it: what is in memory is not what the job is then. */
int lineage_roll_back(struct lineage *lineage, const char *name, struct lineage_request *request);
/* Extents that only this snapshot keeps: what its deletion would free. -EAGAIN: a view of it is open. */
int lineage_measure_snapshot(struct lineage *lineage, const char *name, uint64_t *ret_extents,
			     struct lineage_request *request);
/* A snapshot whose map neither copy of a node can tell keeps nobody from opening a store; but which places it
 * has nobody knows, so none is given out as long as it is there: commits, and all else that writes, are
 * -EROFS. It can be deleted, by somebody who knows that nothing of it comes back then; after that nothing is
 * written before the lineage is opened again. -EINVAL: it is not lost. */
int lineage_delete_lost(struct lineage *lineage, const char *name, struct lineage_request *request);
/* A bit each, in the order of lineage_snapshots(). */
uint32_t lineage_lost(const struct lineage *lineage);
/* All that there are, in the order in which they were taken. */
unsigned lineage_snapshots(const struct lineage *lineage, struct head_record *ret_records);

/* Reads the map of a snapshot into a head, which keeps its places until lineage_close_view(). -ENOENT. */
int lineage_open_view(struct lineage *lineage, const char *name, struct lineage_head *view,
		      struct lineage_request *request);
void lineage_close_view(struct lineage *lineage, struct lineage_head *view);

/* Tells of all extents that may differ between a snapshot and another, or the last commit (to: NULL): their
 * leaves differ, and their places. */
struct lineage_difference {
	const char *from, *to;
	void (*tell)(struct lineage_difference *difference, uint64_t extent, const struct node_extent *from,
		     const struct node_extent *to);
};
int lineage_compare(struct lineage *lineage, struct lineage_difference *difference,
		    struct lineage_request *request);

/* The last commit, and its step, which is durable. */
uint64_t lineage_generation(const struct lineage *lineage);
uint64_t lineage_step(const struct lineage *lineage);
/* A commit has failed: nothing is written any more. */
bool lineage_is_fenced(const struct lineage *lineage);
/* Where extents begin on each device; it has been made, or opened. */
uint64_t lineage_offset(const struct lineage *lineage);
/* It has been made, or opened. */
struct lineage_geometry lineage_geometry(const struct lineage *lineage);
/* Host memory that it takes. */
uint64_t lineage_host_bytes(const struct lineage_geometry *geometry, unsigned devices);

/* Why the last request failed, for a person. */
const char *lineage_message(const struct lineage *lineage);

/* Where extents are free. */
struct places *lineage_places(struct lineage *lineage, unsigned device);
struct tier *lineage_tier(struct lineage *lineage, unsigned device);

#endif
