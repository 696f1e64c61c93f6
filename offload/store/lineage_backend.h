/* The inside of a lineage; for lineage.c and lineage_*.c. */
#ifndef TIERD_OFFLOAD_LINEAGE_BACKEND_H
#define TIERD_OFFLOAD_LINEAGE_BACKEND_H

#include "offload/store/lineage.h"
#include "offload/store/lineage_verify.h"
#include "offload/device/memory.h"
#include "offload/store/node_area.h"

#define LINEAGE_MAX_DEVICES SUPERBLOCK_MAX_MEMBERS
/* Rewrites of a job that are under way have a place each, beside what they replace. Fewer would do, as long
 * as those that have begun can end. */
#define LINEAGE_SPARE_EXTENTS 8

/* What goes to, or comes from, all devices at once. */
struct lineage_io {
	struct tier_io io;
	struct lineage *lineage;
	unsigned device;
	int status;
	bool is_second_try;
};

/* Reading a map, from the root of a tree down. */
struct lineage_walk {
	struct map_tree *tree; /* that is filled in; its root is set */
	/* Whether a node is to be read, 1 or 0, or an error. */
	int (*meet)(struct lineage *lineage, const struct node_pointer *pointer);
	/* A node of level 0 that was read. */
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
	struct lineage_turn *turn; /* whose it is; NULL: nobody's */
	struct queue turns;	   /* that wait */

	struct superblock superblock; /* the last commit's; member means nothing */
	unsigned pair;		      /* that has it */
	struct head_table heads;      /* the same; without any nothing has been committed */
	bool is_over;		      /* the last job has ended, too, though the table has it still */
	bool is_fenced;
	uint32_t lost; /* snapshots whose map cannot be read: a bit each, of heads */

	struct lineage_request *request; /* on its way; NULL: none is */
	bool is_inside;			 /* the call that made it */
	int inside_status;		 /* how it has ended there */
	struct lineage_head *head;	 /* that opens, or commits; NULL: a table is all that is committed */
	struct superblock next;		 /* of the commit that is on its way */
	struct head_table next_heads;
	bool is_rooted;	       /* its table has a place: nothing follows */
	uint32_t next_extents; /* that each device has then: as many as it has, unless it grows */
	void (*committed)(struct lineage *lineage); /* once it is the last one */
	struct head_table dropped;		    /* records that it does without */
	unsigned level;				    /* of nodes that are being made, or read */
	uint64_t index;
	struct node_read reads[NODE_BATCH];
	unsigned read_count;
	struct lineage_walk walk;
	void (*walk_maps)(struct lineage *lineage); /* of a request that only reads */
	struct map_tree walked[2];		    /* of maps that are nobody's, while they are read */
	unsigned opened;	   /* on open: the record of the job whose map the head gets */
	unsigned head_index;	   /* whose map is being read */
	unsigned next_index;	   /* from which on others have not been read */
	struct lineage_head *view; /* whose map is being read */
	struct lineage_difference *difference;
	struct lineage_verification *verification;
	uint64_t *measured; /* where count goes */
	uint64_t count;

	struct memory buffer; /* all copies of the superblock, of all devices */
	struct lineage_io ios[LINEAGE_MAX_DEVICES * SUPERBLOCK_COPIES];
	unsigned in_flight;
	void (*then)(struct lineage *lineage, int status); /* once in_flight is 0 again */
	char message[512];
};

/* Places, as a geometry counts them. */
static inline uint32_t lineage_count(uint64_t places)
{
	return places < PLACES_NONE ? (uint32_t)places : PLACES_NONE;
}

/* Whether each device has room for it. -ENOSPC, -EOVERFLOW. */
int lineage_check_devices(const struct lineage *lineage, const struct lineage_geometry *geometry);
/* Once: what geometry says is made. -ENOSPC: a device is smaller; -EOVERFLOW. */
int lineage_set_geometry(struct lineage *lineage, const struct lineage_geometry *geometry);

/* Begins a request; what the call that makes it returns. */
int lineage_begin(struct lineage *lineage, struct lineage_request *request,
		  void (*run)(struct lineage *lineage));
/* It has ended. */
void lineage_end(struct lineage *lineage, int status);
int lineage_refuse(struct lineage *lineage, int r, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* A round of transfers: opened, each started with an index of its own below ARRAY_LENGTH(ios), closed. then()
 * runs once, when all have come back; ios[index].status is how each has ended. */
void lineage_open_round(struct lineage *lineage, void (*then)(struct lineage *lineage, int status));
void lineage_start(struct lineage *lineage, unsigned device, unsigned index, const struct tier_io *io);
void lineage_close_round(struct lineage *lineage);

/* Walks a map; then() runs once, also within the call. The walk is copied. */
void lineage_walk(struct lineage *lineage, const struct lineage_walk *walk);
/* A request that only reads maps of snapshots; its end. */
int lineage_begin_walk(struct lineage *lineage, struct lineage_request *request,
		       void (*walk_maps)(struct lineage *lineage));
void lineage_end_walk(struct lineage *lineage, int status);
/* Why a map, of what is named, could not be read. */
int lineage_refuse_map(struct lineage *lineage, int r, const char *whose);

/* ---- lineage_names.c: who names which places ---- */

/* meet(), take() of walks that give a snapshot's names to a map's nodes and extents, that take them away, and
 * that count, in lineage->count, what only it names. */
int lineage_name_node(struct lineage *lineage, const struct node_pointer *pointer);
int lineage_name_extents(struct lineage *lineage, const struct node_read *read);
int lineage_give_node(struct lineage *lineage, const struct node_pointer *pointer);
int lineage_give_extents(struct lineage *lineage, const struct node_read *read);
int lineage_count_node(struct lineage *lineage, const struct node_pointer *pointer);
int lineage_count_extents(struct lineage *lineage, const struct node_read *read);
/* A node that a commit has made names those below it that were there before. */
int lineage_name_children(struct lineage *lineage, const struct node_header *header);
/* A commit is the last one: the one before loses its names, and so does what only that led to. */
void lineage_give_replaced(struct lineage *lineage);
/* Places of each device for so many jobs as this one, with so many snapshots of all of them. */
uint32_t lineage_places_for(const struct lineage_head *head, unsigned jobs, unsigned snapshots);
/* Whether full rewrites always find places if the last commit of a job is kept. -ENOSPC. */
int lineage_check_room(struct lineage_head *head);

/* ---- lineage_lost.c ---- */

/* On open: the map of a record cannot be read. What was counted is void, and is to be counted again, without
 * it. */
void lineage_lose(struct lineage *lineage, unsigned record);
/* No place is given out any more: some of those that look free may be a lost snapshot's. */
void lineage_withhold(struct lineage *lineage);
/* Why something is refused: -EROFS of a store that has lost ones, -EBADMSG of one of them. */
int lineage_refuse_writing(struct lineage *lineage);
int lineage_check_found(struct lineage *lineage, const struct head_record *record);

/* ---- lineage_snapshot.c ---- */

/* What was in memory is void: nothing is written any more, and the request has ended. */
void lineage_end_for_good(struct lineage *lineage);

/* Of requests that commit a table: -EROFS, -EBUSY. What is said of the one before is forgotten. */
int lineage_check_writable(const struct lineage_head *head);

/* The record of a snapshot of the job, or NULL: of its last commit. -ENOENT, -ENODATA. */
int lineage_find(struct lineage_head *head, const char *snapshot, struct head_record **ret_record);
/* For such a map, with its root. -ENOMEM. */
int lineage_make_tree(struct lineage_head *head, const char *snapshot, struct map_tree *tree);
/* A map of which nothing was ever written has no root. */
int lineage_name_root(struct lineage *lineage, const struct node_pointer *root);
/* Commits next_heads, which do without the records in dropped: then what only they named is free. -ENOMEM. */
int lineage_commit_drop(struct lineage *lineage, struct lineage_request *request);
/* From the root of its tree on, which has got a name for that. */
void lineage_load(struct lineage *lineage, struct lineage_head *head,
		  void (*then)(struct lineage *lineage, int status));
void lineage_set_record_name(struct head_record *record, const char *name);

/* ---- lineage_fork.c ---- */

/* A job's, and those of its snapshots. ret_dropped: NULL, or which they were. */
void lineage_drop_records(struct head_table *heads, uint32_t job, struct head_table *ret_dropped);

/* ---- lineage_open.c ---- */

/* The newest superblock of those copies that were read that copies says, a bit each. -ENODATA: none of them
 * can be read; -EPROTONOSUPPORT: one is of another format. */
int lineage_find_newest(struct lineage *lineage, uint64_t copies, struct superblock *ret_superblock);
/* Copies that were not read are none. */
void lineage_clear_unread(struct lineage *lineage);
/* All copies of the pairs that pairs says, a bit each, as lineage_write_superblocks() takes them. */
uint64_t lineage_copies(const struct lineage *lineage, unsigned pairs);
/* Makes those in the buffer; returns which of them were something else. */
uint64_t lineage_encode_copies(struct lineage *lineage, const struct superblock *superblock, unsigned pairs);

/* ---- lineage_commit.c ---- */

/* Commits next_heads, and nothing else. */
void lineage_commit_table(struct lineage *lineage);

/* On all devices at once; then() runs when everything has come back, with the first error. */
void lineage_flush(struct lineage *lineage, void (*then)(struct lineage *lineage, int status));
/* The device whose error then() was told: its label. */
const char *lineage_failed(const struct lineage *lineage);
/* Copies of a pair that copies says (a bit each, of devices · copies), from the buffer; or all, into it. */
void lineage_write_superblocks(struct lineage *lineage, uint64_t copies,
			       void (*then)(struct lineage *lineage, int status));
void lineage_read_superblocks(struct lineage *lineage, void (*then)(struct lineage *lineage, int status));
uint8_t *lineage_copy(const struct lineage *lineage, unsigned device, unsigned copy);

/* ---- lineage_grow.c ---- */

/* Before a commit that makes use of what the devices have grown by, if they have; and after it. -ENOSPC,
 * -ENOMEM. */
int lineage_prepare_growth(struct lineage *lineage, const struct lineage_geometry *geometry);
void lineage_take_growth(struct lineage *lineage);

/* ---- lineage.c ---- */

void lineage_add_head(struct lineage *lineage, struct lineage_head *head);

#endif
