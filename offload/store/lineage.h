/* A lineage is what lies on the devices of a store: superblocks, maps, and extents. It commits the map of a
 * job, and finds the last one that was committed. A job and its forks are heads of one lineage, and share
 * the extents in which they do not differ.
 *
 * On each device: four copies of the superblock in the first MiB, then the nodes of maps, then extents.
 * Everything but superblocks is written to free places only, so the last commit stays whole until the next
 * one is acknowledged. */
#ifndef TIERD_OFFLOAD_LINEAGE_H
#define TIERD_OFFLOAD_LINEAGE_H

#include <stdbool.h>

#include "offload/store/head_record.h"
#include "offload/store/map_tree.h"
#include "offload/store/places.h"
#include "offload/device/tier.h"

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
	/* On open, before any node: how many extents its map has, so that its tree can be made; again, if
	 * what was read since is void. NULL: it has one, and knows. */
	int (*begin_load)(struct lineage_head *head, uint64_t extents);
	/* Places of that device that are taken for what no commit has. */
	uint64_t (*uncommitted)(const struct lineage_head *head, unsigned device);
	/* Places may have become free. NULL: it waits for none. */
	void (*feed)(struct lineage_head *head);
	/* Of a fork: its map cannot be read; what begin_load() and load_node() took is given back. */
	void (*abandon_load)(struct lineage_head *head);
};

/* How many extents of a job a device has, at most: those that stay as they are from its first commit on,
 * which all jobs and snapshots share, and the others. */
struct lineage_share {
	uint32_t fixed, changing;
};

/* Of so many extents, each on the device of its number modulo devices, none of which is fixed. */
struct lineage_share lineage_share_of(uint64_t extents, unsigned devices);
/* Places that a device needs for so many jobs, which differ in what may change alone, and as many snapshots
 * of which nothing but what is fixed is left in any job: for what is fixed once; for the rest of each job
 * what was committed, and as much again while it is written. */
uint32_t lineage_share_places(struct lineage_share share, unsigned jobs, unsigned snapshots);

/* Embedded in what has a map: a job, or a view of a commit that is kept. One that is attached is borrowed,
 * and stays until it is detached. */
struct lineage_head {
	const struct lineage_head_ops *ops;
	struct lineage *lineage; /* while it is attached */
	struct map_tree tree;
	char name[HEAD_NAME_BYTES];
	uint64_t step;		    /* that the next commit contains; after open: that was found */
	uint32_t job;		    /* its number in the table */
	uint64_t serial;	    /* that its user knows it by; after open: that was found */
	struct lineage_share share; /* if nobody says so, nothing is fixed */
	bool has_ended;		    /* what it commits would not be the job any more */
};

/* Something that takes time; the caller's until done(), which runs once, on the loop, never inside the call.
 */
struct lineage_request {
	void (*done)(struct lineage_request *request, int status);
};

/* The same on each device. */
struct lineage_geometry {
	uint32_t extents, nodes;
	uint64_t place_bytes; /* of one for an extent: of the largest that there is */
};

/* Of a job of so many extents, of which a device has that share. */
struct lineage_geometry lineage_geometry_for(uint64_t extents, uint64_t place_bytes, unsigned devices,
					     struct lineage_share share, unsigned snapshots);
/* Whether so many places can be counted; what cannot is as many as no device has, in any geometry. */
bool lineage_is_possible(const struct lineage_geometry *geometry);
/* Bytes of each device; where extents begin. */
uint64_t lineage_device_bytes(const struct lineage_geometry *geometry);
uint64_t lineage_extents_offset(const struct lineage_geometry *geometry);

/* tiers: owned from here on, also after an error; each of lineage_device_bytes(), else -ENOSPC. geometry:
 * NULL for one that is to be opened, and says itself; -EOVERFLOW: one that is not possible. head: attached.
 * -EINVAL, -ENOMEM. */
int lineage_new(struct tier **tiers, unsigned tier_count, const struct lineage_geometry *geometry,
		struct lineage_head *head, struct lineage **ret_lineage);
/* No request is on its way. */
struct lineage *lineage_free(struct lineage *lineage);
DEFINE_FREEP(struct lineage *, lineage_free)
/* No request of this head is on its way, and all that it has taken is given back, but what the last commit
 * names. After the last one the lineage is freed: NULL. */
struct lineage *lineage_detach(struct lineage_head *head);
unsigned lineage_attached(const struct lineage *lineage);

/* Makes it, with an empty map at step head->step, on devices whose content means nothing. */
int lineage_create(struct lineage *lineage, struct lineage_request *request);

/* Finds the last commit, and reads the map of its first job that can be read into the head; nothing is
 * changed on the devices before all of it has been found. -EPROTONOSUPPORT: another format; -ENODATA: no
 * superblock on a device, or a pair of which no copy can be read; -ENODEV: other devices than it was made of,
 * or one that was left behind; -EBADMSG, -EIO: the map cannot be read. lineage_message() says more. */
int lineage_open(struct lineage *lineage, struct lineage_request *request);

/* Makes what the head's map said when it was frozen durable, as head->step: what it says from then on is for
 * the next commit. -EBUSY; -EROFS: an error has ended the writing: what is
 * on the devices then is the last commit, or this one, whole. Not before it has been made or opened. */
int lineage_freeze(struct lineage_head *head);
int lineage_commit(struct lineage_head *head, struct lineage_request *request);

/* Makes use of more places on devices that have grown; there are as many nodes as there were. A commit of its
 * own: -EBUSY, -EROFS. -ENODATA: nothing has been committed; -EINVAL: it has as many; -ENOSPC: a device has
 * not grown; -ENOMEM. */
int lineage_grow(struct lineage_head *head, const struct lineage_geometry *geometry,
		 struct lineage_request *request);
/* Whether it would be refused, though all devices had grown. */
int lineage_can_grow(const struct lineage_head *head, const struct lineage_geometry *geometry);

/* ---- Snapshots: a commit that is kept, under a name ---- */

/* What store.h says of those of a store; one request at a time, commits among them. */
int lineage_snapshot(struct lineage_head *head, const char *name, struct lineage_request *request);
int lineage_delete_snapshot(struct lineage_head *head, const char *name, struct lineage_request *request);
/* The head commits nothing any more after it: what is in memory is not what the job is then. */
int lineage_roll_back(struct lineage_head *head, const char *name, struct lineage_request *request);
/* Extents that only this snapshot keeps: what its deletion would free. -EAGAIN: a view of it is open. */
int lineage_measure_snapshot(struct lineage_head *head, const char *name, uint64_t *ret_extents,
			     struct lineage_request *request);
/* A snapshot whose map neither copy of a node can tell keeps nobody from opening a store; but which places it
 * has nobody knows, so none is given out as long as it is there: commits, and all else that writes, are
 * -EROFS, of all jobs. It can be deleted, by somebody who knows that nothing of it comes back then; after
 * that nothing is written before the lineage is opened again. -EINVAL: it is not lost. */
int lineage_delete_lost(struct lineage_head *head, const char *name, struct lineage_request *request);
/* The same with a job and its snapshots, whose own map is lost. */
int lineage_drop_lost(struct lineage_head *head, const char *job, struct lineage_request *request);
/* A bit each, in the order of lineage_snapshots(). */
uint32_t lineage_lost(const struct lineage_head *head);
/* Of any job, or a job itself. */
bool lineage_has_lost(const struct lineage *lineage);
/* That job's map; record: of lineage_jobs(). */
bool lineage_has_lost_job(const struct lineage *lineage, const struct head_record *record);
/* All that the job has, in the order in which they were taken. */
unsigned lineage_snapshots(const struct lineage_head *head, struct head_record *ret_records);

/* Reads the map of a snapshot of a job, or (name: NULL) of its last commit, into another head, which keeps
 * its places until lineage_close_view(). -ENOENT, -ENODATA; -ENOSPC: there is no room to keep the last
 * commit. */
int lineage_open_view(struct lineage_head *head, const char *name, struct lineage_head *view,
		      struct lineage_request *request);
void lineage_close_view(struct lineage_head *view);

/* Tells of all extents that may differ between a snapshot and another, or the last commit (to: NULL): their
 * leaves differ, and their places. */
struct lineage_difference {
	const char *from, *to;
	struct lineage_head *head;
	void (*tell)(struct lineage_difference *difference, uint64_t extent, const struct node_extent *from,
		     const struct node_extent *to);
};
int lineage_compare(struct lineage_difference *difference, struct lineage_request *request);

/* ---- Forks: several jobs in one lineage ---- */

/* A job that begins as a snapshot of another one is, or (snapshot: NULL) as its last commit. fork: its name
 * is set, attached from here on, unless an error comes back. geometry: what the devices have by then, as
 * lineage_grow() has it. -EEXIST: there is such a job; -EMFILE: the table is full; -ENOENT, -ENODATA. */
int lineage_fork(struct lineage_head *head, const char *snapshot, struct lineage_head *fork,
		 const struct lineage_geometry *geometry, struct lineage_request *request);
/* Whether it would be refused, though all devices had grown. */
int lineage_can_fork(struct lineage_head *head, const char *snapshot, const char *name);
/* One that is there already: its name is set. -ENOENT; -EBUSY: it is attached. */
int lineage_attach(struct lineage *lineage, struct lineage_head *head, struct lineage_request *request);
/* The job ends, and its snapshots with it; the head commits nothing any more. 1: there is no other, so that
 * nothing is done, and request has ended: devices have one job at least, and are to be removed with it;
 * whoever is attached still, on his way out, sees no other. */
int lineage_drop(struct lineage_head *head, struct lineage_request *request);
/* Whether there are jobs beside it, attached or not. */
bool lineage_has_others(const struct lineage_head *head);
/* Jobs, attached or not. ret_records: HEAD_RECORDS. */
unsigned lineage_jobs(const struct lineage *lineage, struct head_record *ret_records);
/* Extents of each device that a fork has for itself alone: what it may change, twice. */
uint32_t lineage_fork_extents(const struct lineage_head *head);
/* What all jobs need, with so many snapshots; with one job more: no less than there is. */
struct lineage_geometry lineage_geometry_with(const struct lineage_head *head, unsigned snapshots);
struct lineage_geometry lineage_geometry_with_fork(const struct lineage_head *head, unsigned snapshots);

/* ---- Turns: who may make a request ---- */

/* Heads of a lineage know nothing of each other, and it does one request at a time. */
struct lineage_turn {
	struct queue link;
	void (*take)(struct lineage_turn *turn); /* it has come */
};

/* True: it has come at once, and take() is not called. */
bool lineage_begin_turn(struct lineage *lineage, struct lineage_turn *turn);
bool lineage_is_awaited(const struct lineage *lineage);
void lineage_end_turn(struct lineage *lineage);
/* To whom comes next, if to anybody; apart, because who ends his turn may want the next one. */
void lineage_pass_turn(struct lineage *lineage);
/* Every head looks whether it has waited for a place. */
void lineage_feed(struct lineage *lineage);

/* There is a commit of it, as there is of every fork. */
bool lineage_has_commit(const struct lineage_head *head);
/* The step of a job in the last commit, which is durable. */
uint64_t lineage_step(const struct lineage_head *head);
/* A commit has failed: nothing is written any more. */
bool lineage_is_fenced(const struct lineage *lineage);
/* It has been made, or opened. */
struct lineage_geometry lineage_geometry(const struct lineage *lineage);
/* Host memory that it takes. */
uint64_t lineage_host_bytes(const struct lineage_geometry *geometry, unsigned devices);

/* Why the last request failed, for a person. */
const char *lineage_message(const struct lineage *lineage);

/* Where extents are free. */
struct places *lineage_places(struct lineage *lineage, unsigned device);

#endif
