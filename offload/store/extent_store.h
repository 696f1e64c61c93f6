/* The inside of a store on devices; for store_extent.c and extent_*.c. */
#ifndef TIERD_OFFLOAD_EXTENT_STORE_H
#define TIERD_OFFLOAD_EXTENT_STORE_H

#include "offload/store/lineage.h"
#include "offload/store/store_backend.h"
#include "offload/store/store_map.h"

struct operation {
	struct work work;
	struct tier_io io;
	struct queue link;	/* of its device while free, else of its transfer */
	struct queue wait_link; /* of those that wait for a place, or for a commit */
	struct extent_store *store;
	struct store_transfer *transfer;
	unsigned device;
	uint64_t extent;      /* in the layout */
	uint64_t offset;      /* in the stream */
	uint64_t length;      /* with padding to a page */
	uint64_t data_length; /* without */
	char *buffer;
	uint64_t checksums[STORE_EXTENT_BLOCKS]; /* of its blocks, from the first on */
	uint32_t version;
	bool is_second_try;
	enum tier_priority priority; /* it counts in its device's */
	bool is_submitted;	     /* to the tier */
	int status;
	uint64_t fault_offset; /* of what failed, from the start of the operation */
};

struct device {
	struct tier *tier;
	struct queue free;
	unsigned used[TIER_PRIORITIES];
};

struct extent_store {
	struct store store;
	struct workers *workers;
	struct store_map map;
	struct queue waiting[TIER_PRIORITIES];
	unsigned depth, free_count, device_count;
	struct operation *operations;
	struct store_owner owner;
	bool is_fork;		      /* a fork, on devices that another store has brought, and weighed */
	struct extent_store *sibling; /* one that is there, until a guest has a map */

	struct places *places; /* one each device, where nothing is committed; else the lineage has them */
	uint64_t extents_offset, place_bytes;
	struct queue starved; /* writes that find no place free */

	/* Of a durable store; lineage is NULL otherwise. */
	struct lineage *lineage;
	struct lineage_head head;
	struct lineage_request step; /* on its way for request, or for its turn */
	struct lineage_turn turn;
	int (*run)(struct extent_store *store);
	struct {
		/* One byte more, so that a name that is too long is one still. */
		char name[STORE_SNAPSHOT_NAME_BYTES + 1], other[STORE_SNAPSHOT_NAME_BYTES + 1];
		bool has_other;
		unsigned snapshots;
		int (*run)(struct lineage_head *head, const char *name, struct lineage_request *request);
	} asked; /* of that request */
	struct store_request *request;
	char message[512];
	bool is_committing;
	uint64_t *frozen_leaves;
	uint64_t frozen_count;
	struct queue parked; /* writes that have ended, of leaves that are frozen and not made yet */

	/* Of a view: it uses the workers, the layout and the tiers of the store that it is of, and its own
	 * head; lineage is NULL. */
	struct extent_store *viewed;
	/* What a request that is on its way has yet to fill in. */
	struct extent_store *opening;
	struct store **ret_store;
	struct {
		struct work work;
		struct lineage_geometry geometry;
		int (*run)(struct extent_store *store);
		int status;
	} growth;
	struct work last; /* of the last job of the devices, which is dropped */
	struct store_verification *verification;
	uint64_t verified; /* places that have a name more until they were read */
	struct lineage_difference difference;
	uint64_t *ret_bytes;
	uint64_t bytes;

	struct device devices[];
};

/* Where a place lies on its device. */
static inline uint64_t extent_place_offset(const struct extent_store *store, uint32_t place)
{
	return store->extents_offset + place * store->place_bytes;
}

/* Starts an operation that issue() has filled in. */
void operation_start(struct operation *operation);
/* Writes that wait for a place look again: one may have become free, or none will. */
void operation_feed(struct extent_store *store);
/* Those of all that have places where this one has given some back. */
void extent_feed(struct extent_store *store);
/* A write that was parked: its leaf has been made. */
void operation_unpark(struct operation *operation);
/* Of work that only has to end later. */
void operation_run_nothing(struct work *work);
/* Counts in its device's. */
unsigned *operation_used(const struct operation *operation);
struct store_extent *operation_entry(const struct operation *operation);
/* What waits is issued as far as there are operations for it. */
void extent_store_issue(struct extent_store *store);

/* ---- store_extent.c ---- */

/* NULL: it is in host memory, or a view; the second: or it commits nothing. */
struct extent_store *extent_find(const struct store *store);
struct extent_store *extent_find_durable(const struct store *store);
/* Another one on the devices of a store, without a map. NULL: no memory. */
struct extent_store *extent_store_beside(const struct extent_store *store, const struct store_ops *ops,
					 struct store_layout *layout);
int extent_submit(struct store *store, struct store_transfer *transfer);
void extent_raise(struct store *store, struct store_transfer *transfer, enum tier_priority priority);

/* ---- extent_commit.c ---- */

/* Takes over the tiers, also after an error. layout: NULL for one that is to be opened. */
int extent_commit_init(struct extent_store *store, const struct store_config *config, struct tier **tiers);
void extent_commit_free(struct extent_store *store);
/* Whether a request may begin. -EOPNOTSUPP, -EBUSY. */
int extent_may_ask(struct store *store, struct extent_store **ret_store);
/* run() makes the request of the lineage, which is store->step, when its turn has come; its error is the
 * answer if it came at once, else done() is told. */
int extent_ask(struct extent_store *store, struct store_request *request,
	       int (*run)(struct extent_store *store),
	       void (*done)(struct lineage_request *request, int status));
/* One about the snapshot, or the job, of that name. -EOPNOTSUPP, -EBUSY. */
int extent_ask_about(struct store *store, const char *name, struct store_request *request,
		     int (*run)(struct lineage_head *head, const char *name,
				struct lineage_request *request));
/* One that gives a store, which is freed if it fails. */
int extent_ask_for_store(struct extent_store *store, struct store_request *request,
			 int (*run)(struct extent_store *store), struct extent_store *opening,
			 struct store **ret_store);
/* Last, because the caller may free the store in it. */
void extent_end_request(struct extent_store *store, int status);
/* done() of a request that needs nothing else at its end. */
void extent_ended(struct lineage_request *step, int status);
/* A copy of a name that is asked for; of a second one, which may be NULL. */
void extent_keep_name(struct extent_store *store, const char *name);
void extent_keep_other(struct extent_store *store, const char *name);
const char *extent_other(const struct extent_store *store);
/* What a fork is of its store's lineage. */
void extent_fork_init(struct extent_store *fork, struct extent_store *store, const char *name);

/* ---- extent_reserve.c ---- */

/* Devices that have less get more, on a worker; then run(), within the same request. */
int extent_grow_for(struct extent_store *store, const struct lineage_geometry *geometry,
		    int (*run)(struct extent_store *store));
/* What a store of this geometry takes. */
struct store_space extent_space_of(const struct extent_store *store, struct lineage_geometry geometry);

#endif
