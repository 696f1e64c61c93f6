/* Cache: what a job's arena holds beyond what is reserved for it, in segments. It shrinks when others need
 * the memory, and grows while there is more than enough. */
#ifndef TIERD_DAEMON_CACHE_H
#define TIERD_DAEMON_CACHE_H

#include "daemon/model/model.h"
#include "daemon/resources/resources.h"

/* A tenant has what of a cache is no segment: warm state. A module above this one has the table. */
struct cache_tenant {
	/* All that the job is charged for it; what of that may be given up; and what is given up, and has not
	 * gone. */
	uint64_t (*bytes)(const struct job *job);
	uint64_t (*bytes_here)(const struct job *job);
	uint64_t (*bytes_leaving)(const struct job *job);
	/* Of the segment that would come next; 0: none would. And of the one that would be given up first;
	 * there is one. */
	uint64_t (*bytes_next)(struct job *job);
	uint64_t (*bytes_last)(const struct job *job);
	/* The former, which is charged, is here later, and the job settled; the latter is given up. */
	void (*fetch)(struct job *job);
	void (*close)(struct job *job);
	/* In the job's turn: what is given up goes, once nobody uses it. */
	void (*go_on)(struct job *job);
	/* The job keeps what has not gone yet. */
	void (*keep_all)(struct job *job);
};

/* Caches begin to give up so many bytes, those that are on their way included. */
void cache_reclaim(const struct claim *claim, uint64_t bytes);
/* Jobs keep what has not gone yet. */
void cache_keep_all(struct node *node);

/* They are a holder of the node. */
extern const struct holder cache_holder;

/* Something of the tenant comes or goes, until the second call. Segments count themselves. */
void cache_begin_move(struct job *job);
void cache_end_move(struct job *job);
bool cache_is_quiet(const struct job *job);

/* In the job's turn: empties what it gives up, and takes memory that there is. */
void cache_go_on(struct job *job);

/* All ranks that have slots wait for others. True: the job gets more back, or may get it from other caches.
 */
bool cache_help_stuck(struct job *job);

#endif
