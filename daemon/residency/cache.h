/* Cache: what a job's arena holds beyond what is reserved for it, in segments. It shrinks when others need
 * the memory, and grows while there is more than enough. */
#ifndef TIERD_DAEMON_CACHE_H
#define TIERD_DAEMON_CACHE_H

#include "daemon/model/model.h"
#include "daemon/resources/resources.h"

/* A tenant has that part of a cache which is no segment. A module above this one has the table. */
struct cache_tenant {
	/* All that is charged to the job; of that, what may be given up, and what is given up already, and
	 * has not gone. */
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
	/* In the job's turn: what is given up goes, if nobody uses it any more. */
	void (*go_on)(struct job *job);
	/* What has not gone yet is not given up. */
	void (*keep_all)(struct job *job);
};

/* Caches that may give to who claims it begin to give up as many bytes, with what is on its way already. */
void cache_reclaim(const struct claim *claim, uint64_t bytes);
/* What has not gone yet is not given up. */
void cache_keep_all(struct node *node);

/* They are a holder of the node. */
extern const struct holder cache_holder;

/* What comes to a cache or leaves it, of its tenant: a segment is counted by itself. */
void cache_begin_move(struct job *job);
void cache_end_move(struct job *job);
bool cache_is_quiet(const struct job *job);

/* In the job's turn: empties what it gives up, and takes what there is. */
void cache_go_on(struct job *job);

/* All that has a slot waits for another: the job gets some back, if there are any. */
bool cache_help_stuck(struct job *job);

#endif
