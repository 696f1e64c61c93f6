/* The inside of a lineage; for lineage.c and lineage_*.c. */
#ifndef TIERD_OFFLOAD_LINEAGE_BACKEND_H
#define TIERD_OFFLOAD_LINEAGE_BACKEND_H

#include "offload/store/lineage.h"
#include "offload/store/lineage_verify.h"
#include "offload/device/memory.h"
#include "offload/store/node_area.h"

#define LINEAGE_MAX_DEVICES SUPERBLOCK_MAX_MEMBERS
/* Places for the rewrites of a job that are under way. Fewer would do, as long as those that have begun can
 * end.
 */
#define LINEAGE_SPARE_EXTENTS 8

/* One transfer of a round, which goes to several devices at once. */
struct lineage_io {
	struct tier_io io;
	struct lineage *lineage;
	unsigned device;
	int status;
	bool is_second_try;
};

/* Reading a map, from the root of a tree down. */
struct lineage_walk {
	struct map_tree *tree; /* is filled in; has its root */
	/* 1: the node is to be read; 0: it is not; or an error. */
	int (*meet)(struct lineage *lineage, const struct node_pointer *pointer);
	/* Called for each node of level 0 that was read. */
	int (*take)(struct lineage *lineage, const struct node_read *read);
	void (*then)(struct lineage *lineage, int status);
};

struct lineage {
	struct tier *tiers[LINEAGE_MAX_DEVICES];
	unsigned device_count;
	struct lineage_geometry geometry;
	struct places extents[LINEAGE_MAX_DEVICES];
	struct node_area *nodes;
	struct lineage_head *attached[HEAD_RECORDS];
	unsigned attached_count;
	unsigned view_count;
	struct lineage_turn *turn; /* the present one, or NULL */
	struct queue turns;	   /* those that wait */

	struct superblock superblock; /* of the last commit; member means nothing */
	unsigned pair;		      /* of superblocks, that has the last commit */
	struct head_table heads;      /* of the last commit; empty before the first one */
	bool is_over;		      /* the last job was dropped; the table still has it */
	bool is_fenced;		      /* nothing is written any more */
	uint32_t lost;		      /* heads whose map cannot be read: a bit each */

	struct lineage_request *request; /* the present one, or NULL */
	bool is_inside;			 /* the call that began it has not returned */
	int inside_status;		 /* its status, if it ended in that call */
	struct lineage_head *head;	 /* that opens, or commits; NULL: a commit of a table alone */
	struct superblock next;		 /* of the commit under way */
	struct head_table next_heads;
	bool is_rooted;				    /* the table has its place, and is the last node */
	uint32_t next_extents;			    /* of each device, with this commit */
	void (*committed)(struct lineage *lineage); /* called after the commit */
	struct head_table dropped;		    /* records that the commit removes */
	unsigned level;				    /* of the nodes that are written, or read */
	uint64_t index;
	struct node_read reads[NODE_BATCH];
	unsigned read_count;
	struct lineage_walk walk;
	void (*walk_maps)(struct lineage *lineage); /* of a request that only reads */
	struct map_tree walked[2];		    /* of maps without a head, while they are read */
	unsigned opened;			    /* on open: the record whose map the head gets */
	unsigned head_index;			    /* on open: the record whose map is being read */
	unsigned next_index;			    /* on open: the next record to read */
	struct lineage_head *view;		    /* a view, or a fork, whose map is being read */
	struct lineage_difference *difference;
	struct lineage_verification *verification;
	uint64_t *measured; /* where count goes */
	uint64_t count;

	struct memory buffer; /* for all copies of the superblock on all devices */
	struct lineage_io ios[LINEAGE_MAX_DEVICES * SUPERBLOCK_COPIES];
	unsigned in_flight;
	void (*then)(struct lineage *lineage, int status);    /* once in_flight is 0 again */
	void (*flushed)(struct lineage *lineage, int status); /* of lineage_write_safely() */
	char message[512];
};

/* A number of places, as a geometry has it. */
static inline uint32_t lineage_count(uint64_t places)
{
	return places < PLACES_NONE ? (uint32_t)places : PLACES_NONE;
}

/* -ENOSPC: a device is smaller; -EOVERFLOW. */
int lineage_check_devices(const struct lineage *lineage, const struct lineage_geometry *geometry);
/* Allocates all that depends on the geometry, once. -ENOSPC, -EOVERFLOW. */
int lineage_set_geometry(struct lineage *lineage, const struct lineage_geometry *geometry);

/* Begins a request; returns what its call returns. */
int lineage_begin(struct lineage *lineage, struct lineage_request *request,
		  void (*run)(struct lineage *lineage));
/* Ends the request. */
void lineage_end(struct lineage *lineage, int status);
int lineage_refuse(struct lineage *lineage, int r, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* A round of transfers is opened, each is started with its own index below ARRAY_LENGTH(ios), and the round
 * is closed. then() runs once, when all are done; ios[index].status has the status of each. */
void lineage_open_round(struct lineage *lineage, void (*then)(struct lineage *lineage, int status));
void lineage_start(struct lineage *lineage, unsigned device, unsigned index, const struct tier_io *io);
void lineage_close_round(struct lineage *lineage);

/* Walks a map; then() runs once, also within the call. The walk is copied. */
void lineage_walk(struct lineage *lineage, const struct lineage_walk *walk);
/* Begins, and ends, a request that only reads maps. */
int lineage_begin_walk(struct lineage *lineage, struct lineage_request *request,
		       void (*walk_maps)(struct lineage *lineage));
void lineage_end_walk(struct lineage *lineage, int status);
/* Says why a map could not be read. */
int lineage_refuse_map(struct lineage *lineage, int r, const char *whose);

/* ---- lineage_names.c: references to places ---- */

/* meet() and take() of walks that add a snapshot's names to nodes and extents, that remove them, and that
 * count, in lineage->count, what only it names. */
int lineage_name_node(struct lineage *lineage, const struct node_pointer *pointer);
int lineage_name_extents(struct lineage *lineage, const struct node_read *read);
int lineage_give_node(struct lineage *lineage, const struct node_pointer *pointer);
int lineage_give_extents(struct lineage *lineage, const struct node_read *read);
int lineage_count_node(struct lineage *lineage, const struct node_pointer *pointer);
int lineage_count_extents(struct lineage *lineage, const struct node_read *read);
/* A node of a commit names those below it that the commit has not written. */
int lineage_name_children(struct lineage *lineage, const struct node_header *header);
/* After a commit: removes the names of what it has replaced. */
void lineage_give_replaced(struct lineage *lineage);
/* Places of each device for so many jobs as this one, with so many snapshots of all of them. */
uint32_t lineage_places_for(const struct lineage_head *head, unsigned jobs, unsigned snapshots);
/* Whether full rewrites always find places if the last commit of a job is kept. -ENOSPC. */
int lineage_check_space(struct lineage_head *head);

/* ---- lineage_lost.c ---- */

/* On open: the map of a record cannot be read. All names are counted again, without it. */
void lineage_lose(struct lineage *lineage, unsigned record);
/* From now on no place is given out: a free one may be a lost snapshot's. */
void lineage_lock_places(struct lineage *lineage);
/* Refuses with a message: -EROFS, because something is lost; -EBADMSG, if this record is. */
int lineage_refuse_writing(struct lineage *lineage);
int lineage_check_found(struct lineage *lineage, const struct head_record *record);

/* ---- lineage_snapshot.c ---- */

/* Ends the request, and all writing: what is in memory is void. */
void lineage_end_for_good(struct lineage *lineage);

/* Of requests that commit a table: -EROFS, -EBUSY. Clears the last message. */
int lineage_check_writable(const struct lineage_head *head);

/* The record of a snapshot of the job, or NULL: of its last commit. -ENOENT, -ENODATA. */
int lineage_find(struct lineage_head *head, const char *snapshot, struct head_record **ret_record);
/* Makes a tree for such a map, with its root. -ENOMEM. */
int lineage_make_tree(struct lineage_head *head, const char *snapshot, struct map_tree *tree);
/* Adds a name to the root of a map, unless the map is empty. */
int lineage_name_root(struct lineage *lineage, const struct node_pointer *root);
/* Commits next_heads, and then frees what only the records in dropped named. -ENOMEM. */
int lineage_commit_drop(struct lineage *lineage, struct lineage_request *request);
/* Reads the map of a head, whose root has a name for that. */
void lineage_load(struct lineage *lineage, struct lineage_head *head,
		  void (*then)(struct lineage *lineage, int status));
void lineage_set_record_name(struct head_record *record, const char *name);

/* ---- lineage_fork.c ---- */

/* Removes the records of a job and of its snapshots. ret_dropped: NULL, or gets them. */
void lineage_drop_records(struct head_table *heads, uint32_t job, struct head_table *ret_dropped);

/* ---- lineage_open.c ---- */

/* The newest superblock of those copies that were read that copies says, a bit each. -ENODATA: none of them
 * can be read; -EPROTONOSUPPORT: one is of another format. */
int lineage_find_newest(struct lineage *lineage, uint64_t copies, struct superblock *ret_superblock);
/* Clears copies that could not be read. */
void lineage_clear_unread(struct lineage *lineage);
/* All copies of the pairs that pairs says, a bit each, as lineage_write_superblocks() takes them. */
uint64_t lineage_copies(const struct lineage *lineage, unsigned pairs);
/* Encodes those in the buffer; returns the ones that have changed by that. */
uint64_t lineage_encode_copies(struct lineage *lineage, const struct superblock *superblock, unsigned pairs);

/* ---- lineage_commit.c ---- */

/* Commits next_heads, and nothing else. */
void lineage_commit_table(struct lineage *lineage);

/* Flushes all devices at once; then() gets the first error. */
void lineage_flush(struct lineage *lineage, void (*then)(struct lineage *lineage, int status));
/* The label of the device whose error then() got. */
const char *lineage_failed(const struct lineage *lineage);
/* Writes copies from the buffer, a bit each (of devices · copies); or reads all into it. */
void lineage_write_superblocks(struct lineage *lineage, uint64_t copies,
			       void (*then)(struct lineage *lineage, int status));
/* Writes copies, and then flushes all devices; then() gets the first error. */
void lineage_write_safely(struct lineage *lineage, uint64_t copies,
			  void (*then)(struct lineage *lineage, int status));
void lineage_read_superblocks(struct lineage *lineage, void (*then)(struct lineage *lineage, int status));
uint8_t *lineage_copy(const struct lineage *lineage, unsigned device, unsigned copy);

/* ---- lineage_grow.c ---- */

/* Before, and after, a commit by which devices that have grown get more places. -ENOSPC, -ENOMEM. */
int lineage_prepare_growth(struct lineage *lineage, const struct lineage_geometry *geometry);
void lineage_take_growth(struct lineage *lineage);

/* ---- lineage.c ---- */

void lineage_add_head(struct lineage *lineage, struct lineage_head *head);

#endif
