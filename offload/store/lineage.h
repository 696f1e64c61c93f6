/* A lineage is what the devices of a store have: superblocks, maps and extents. It commits the map of a job,
 * and finds the last commit. A job and its forks are heads of one lineage, and share equal extents.
 *
 * Each device has four copies of the superblock in its first MiB, then the nodes of maps, then extents. All
 * but superblocks is written to free places, so the last commit stays whole until the next one is
 * acknowledged. */
#ifndef TIERD_OFFLOAD_LINEAGE_H
#define TIERD_OFFLOAD_LINEAGE_H

#include <stdbool.h>

#include "offload/store/head_record.h"
#include "offload/store/map_tree.h"
#include "offload/store/places.h"
#include "offload/device/tier.h"

struct lineage;
struct lineage_head;

/* What a lineage calls of a head; all on the loop. */
struct lineage_head_ops {
	/* Encodes a node of extents, as they are now. Each place in it gets a name. */
	void (*freeze_node)(struct lineage_head *head, const struct node_header *header,
			    uint8_t bytes[NODE_BYTES]);
	/* Nothing leads to this node of the last commit, or of this view, any more: each place in it loses a
	 * name. */
	void (*release_node)(struct lineage_head *head, uint64_t index);
	/* The commit that froze nodes is the last one. Called after release_node() of what it replaced. */
	void (*committed)(struct lineage_head *head);
	/* On open: takes over a node. -EBADMSG: its content is impossible. */
	int (*load_node)(struct lineage_head *head, const struct node_header *header,
			 const uint8_t bytes[NODE_BYTES]);
	/* On open, before any node: makes the tree of so many extents. Called again if what was read since is
	 * void. NULL: the head has a tree. */
	int (*begin_load)(struct lineage_head *head, uint64_t extents);
	/* Places of the device with extents that are not committed. */
	uint64_t (*uncommitted)(const struct lineage_head *head, unsigned device);
	/* Places may have become free. May be NULL. */
	void (*feed)(struct lineage_head *head);
	/* The map of a fork cannot be read: gives back what begin_load() and load_node() took. */
	void (*abandon_load)(struct lineage_head *head);
};

/* How many extents of a job each device has at most. Fixed ones never change after the first commit, and all
 * jobs and snapshots share them. */
struct lineage_extents {
	uint32_t fixed, changing;
};

/* Those of a map of so many extents, none of them fixed. Extent i is on device i modulo devices. */
struct lineage_extents lineage_extents_of(uint64_t extents, unsigned devices);
/* Places that a device needs for so many jobs, and snapshots that share nothing but fixed extents with them:
 * one for each fixed extent; for each other one of a job one that is committed, and one while it is
 * rewritten.
 */
uint32_t lineage_places_needed(struct lineage_extents each, unsigned jobs, unsigned snapshots);

/* A head has a map: embedded in a job, or in a view. An attached head is borrowed until it is detached. */
struct lineage_head {
	const struct lineage_head_ops *ops;
	struct lineage *lineage; /* while it is attached */
	struct map_tree tree;
	char name[HEAD_NAME_BYTES];
	uint64_t step;			/* of the next commit; after open: of the last one */
	uint32_t job;			/* its number in the table */
	uint64_t serial;		/* as its user counts */
	struct lineage_extents extents; /* all zeros: of the tree, none of them fixed */
	bool has_ended;			/* it commits nothing any more */
};

/* A request takes time. It is the caller's; done() runs once, on the loop, never inside the call. */
struct lineage_request {
	void (*done)(struct lineage_request *request, int status);
};

/* The same on each device. */
struct lineage_geometry {
	uint32_t extents, nodes;
	uint64_t place_bytes; /* of a place for an extent: the size of the largest */
};

/* Of a job of so many extents, of which each device has so many. */
struct lineage_geometry lineage_geometry_for(uint64_t extents, uint64_t place_bytes, unsigned devices,
					     struct lineage_extents each, unsigned snapshots);
/* Whether so many places can be numbered. Geometries that have too many have PLACES_NONE. */
bool lineage_is_possible(const struct lineage_geometry *geometry);
/* Bytes of each device, and the offset of its extents. */
uint64_t lineage_device_bytes(const struct lineage_geometry *geometry);
uint64_t lineage_extents_offset(const struct lineage_geometry *geometry);

/* Owns tiers, also after an error; each has lineage_device_bytes(), else -ENOSPC. geometry: NULL: to be
 * opened, the superblocks say; -EOVERFLOW: it is not possible. head: attached. -EINVAL, -ENOMEM. */
int lineage_new(struct tier **tiers, unsigned tier_count, const struct lineage_geometry *geometry,
		struct lineage_head *head, struct lineage **ret_lineage);
/* No request is on its way. */
struct lineage *lineage_free(struct lineage *lineage);
DEFINE_FREEP(struct lineage *, lineage_free)
/* No request of this head is on its way, and it has given back all places that are not committed. The last
 * detach frees the lineage, and returns NULL. */
struct lineage *lineage_detach(struct lineage_head *head);
unsigned lineage_attached(const struct lineage *lineage);

/* Makes it, with an empty map at step head->step. What the devices had is lost. */
int lineage_create(struct lineage *lineage, struct lineage_request *request);

/* Finds the last commit, and reads the map of its first readable job into the head. It writes nothing before
 * that. -EPROTONOSUPPORT: another format; -ENODATA: a device has no superblock, or a pair has no readable
 * copy; -ENODEV: these are other devices, or one that missed commits; -EBADMSG, -EIO: no map can be read.
 * lineage_message() says more. */
int lineage_open(struct lineage *lineage, struct lineage_request *request);

/* Freezes the head's map, and makes what was frozen durable as head->step. Later changes are of the next
 * commit. After lineage_create() or lineage_open(). -EBUSY; -EROFS: an error has ended the writing; the
 * devices have the last commit, or this one, whole. */
int lineage_freeze(struct lineage_head *head);
int lineage_commit(struct lineage_head *head, struct lineage_request *request);

/* Commits that the devices, which have grown, have more places; nodes stay as many. -EBUSY, -EROFS; -ENODATA:
 * nothing was committed; -EINVAL: it has as many; -ENOSPC: a device has not grown; -ENOMEM. */
int lineage_grow(struct lineage_head *head, const struct lineage_geometry *geometry,
		 struct lineage_request *request);
/* Its error if all devices had grown. */
int lineage_can_grow(const struct lineage_head *head, const struct lineage_geometry *geometry);

/* ---- Snapshots: a commit that is kept, under a name ---- */

/* As those of store.h; one request at a time, commits included. */
int lineage_snapshot(struct lineage_head *head, const char *name, struct lineage_request *request);
int lineage_delete_snapshot(struct lineage_head *head, const char *name, struct lineage_request *request);
/* The head commits nothing after it, because the map in memory is void. */
int lineage_roll_back(struct lineage_head *head, const char *name, struct lineage_request *request);
/* Counts the extents that its deletion would free. -EAGAIN: a view of it is open. */
int lineage_measure_snapshot(struct lineage_head *head, const char *name, uint64_t *ret_extents,
			     struct lineage_request *request);
/* A snapshot is lost if both copies of a node of its map are bad. The store opens nevertheless. But nobody
 * knows the places of the snapshot, so no place is given out while it exists: all that writes is -EROFS, of
 * all jobs. Deleting it gives it up for good; then nothing is written until the lineage is opened again.
 * -EINVAL: it is not lost. */
int lineage_delete_lost(struct lineage_head *head, const char *name, struct lineage_request *request);
/* The same for a lost job, with its snapshots. */
int lineage_drop_lost(struct lineage_head *head, const char *job, struct lineage_request *request);
/* Lost snapshots: a bit each, in the order of lineage_snapshots(). */
uint32_t lineage_lost(const struct lineage_head *head);
/* Whether any snapshot, or any job, is lost. */
bool lineage_has_lost(const struct lineage *lineage);
/* Whether that job is lost; record: of lineage_jobs(). */
bool lineage_has_lost_job(const struct lineage *lineage, const struct head_record *record);
/* All snapshots of the job, the oldest first. */
unsigned lineage_snapshots(const struct lineage_head *head, struct head_record *ret_records);

/* Reads the map of a snapshot, or (name: NULL) of the last commit, into another head. That keeps its places
 * until lineage_close_view(). -ENOENT, -ENODATA; -ENOSPC: no space to keep the last commit. */
int lineage_open_view(struct lineage_head *head, const char *name, struct lineage_head *view,
		      struct lineage_request *request);
void lineage_close_view(struct lineage_head *view);

/* Calls tell() for each extent with another place in a snapshot than in another one, or in the last commit
 * (to: NULL). */
struct lineage_difference {
	const char *from, *to;
	struct lineage_head *head;
	void (*tell)(struct lineage_difference *difference, uint64_t extent, const struct node_extent *from,
		     const struct node_extent *to);
};
int lineage_compare(struct lineage_difference *difference, struct lineage_request *request);

/* ---- Forks: several jobs in one lineage ---- */

/* Makes a job that begins as a snapshot of another one, or (snapshot: NULL) as its last commit. fork: has a
 * name; attached unless an error comes back. geometry: of the devices by then, as for lineage_grow().
 * -EEXIST: there is such a job; -EMFILE: the table is full; -ENOENT, -ENODATA. */
int lineage_fork(struct lineage_head *head, const char *snapshot, struct lineage_head *fork,
		 const struct lineage_geometry *geometry, struct lineage_request *request);
/* Its error if all devices had grown. */
int lineage_can_fork(struct lineage_head *head, const char *snapshot, const char *name);
/* Attaches an existing job of the head's name. -ENOENT; -EBUSY: it is attached. */
int lineage_attach(struct lineage *lineage, struct lineage_head *head, struct lineage_request *request);
/* Ends the job, with its snapshots; the head commits nothing after it. 1: it is the last job; nothing is
 * written, and request has ended. The devices are to be removed then, and lineage_has_others() is false for
 * heads that are still attached. */
int lineage_drop(struct lineage_head *head, struct lineage_request *request);
/* Whether there are other jobs, attached or not. */
bool lineage_has_others(const struct lineage_head *head);
/* All jobs, attached or not. ret_records: HEAD_RECORDS. */
unsigned lineage_jobs(const struct lineage *lineage, struct head_record *ret_records);
/* Extents of each device for what one job may change, twice. */
uint32_t lineage_fork_extents(const struct lineage_head *head);
/* What all jobs need with so many snapshots; with one job more, and no less than there is. */
struct lineage_geometry lineage_geometry_with(const struct lineage_head *head, unsigned snapshots);
struct lineage_geometry lineage_geometry_with_fork(const struct lineage_head *head, unsigned snapshots);

/* ---- Turns: who may make a request ---- */

/* A lineage does one request at a time, and its heads do not know each other. */
struct lineage_turn {
	struct queue link;
	void (*take)(struct lineage_turn *turn); /* called when the turn comes */
};

/* True: the turn has come at once, and take() is not called. */
bool lineage_begin_turn(struct lineage *lineage, struct lineage_turn *turn);
bool lineage_is_awaited(const struct lineage *lineage);
void lineage_end_turn(struct lineage *lineage);
/* Gives the turn to the next in line. Separate, because whoever ends a turn may want the next one. */
void lineage_pass_turn(struct lineage *lineage);
/* Calls feed() of every head. */
void lineage_feed(struct lineage *lineage);

/* Whether the head has a commit; every fork has one. */
bool lineage_has_commit(const struct lineage_head *head);
/* The step of a job in the last commit, which is durable. */
uint64_t lineage_step(const struct lineage_head *head);
/* Whether a commit has failed, so that nothing is written any more. */
bool lineage_is_fenced(const struct lineage *lineage);
/* After lineage_create() or lineage_open(). */
struct lineage_geometry lineage_geometry(const struct lineage *lineage);
/* Host memory of a lineage. */
uint64_t lineage_host_bytes(const struct lineage_geometry *geometry, unsigned devices);

/* Why the last request failed, for people. */
const char *lineage_message(const struct lineage *lineage);

/* Whether there is such a place. */
bool lineage_has_place(const struct lineage *lineage, const struct node_extent *extent);
/* The places of extents on a device. */
struct places *lineage_places(struct lineage *lineage, unsigned device);

#endif
