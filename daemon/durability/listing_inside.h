/* The inside of listing.c, listing_entry.c and listing_start.c. */
#ifndef TIERD_DAEMON_LISTING_INSIDE_H
#define TIERD_DAEMON_LISTING_INSIDE_H

#include "daemon/durability/listing.h"

struct listing {
	struct node *node;
	const char *directory;
	struct job_list list;
	int places[NODE_MAX_PATHS]; /* of the node's paths in the list; -1: not there */
	bool is_settled;	    /* it may be written */
	bool is_behind, has_failed; /* the file is older; that is told */
};

/* ---- listing.c ---- */

#define LISTING_NAME "jobs"
/* Reads the list, marks paths that have no mark, and says which are absent. directory: borrowed. Errors are
 * logged. -EPROTONOSUPPORT: a later tierd has written the list; -ENOMEM. A list that cannot be read is set
 * aside. */
int listing_new(struct node *node, const char *directory, struct listing **ret_listing);
/* Again, if it could not be written. */
void listing_retry(struct node *node);
/* Writes it once more; jobs and disposals have ended. */
struct listing *listing_free(struct listing *listing);
/* Which of the node's paths has this mark of the list; -1: none. On any thread. */
int listing_find_path(const struct node *node, unsigned path);
/* NULL: the node keeps none. Its paths stay as they are, for any thread. */
const struct job_list *listing_list(const struct node *node);

/* NULL: it keeps none. */
struct listing *listing_of(const struct node *node);

/* Writes it on a worker; done is set, and runs on the loop. -ENOMEM: it does not run. */
int listing_write(struct listing *listing, struct listing_write *write);
/* The job is on the list as it is now. -ENOMEM, -ENOSPC. */
int listing_put(struct listing *listing, const struct job *job, bool *ret_has_changed);
/* At once, on this thread. */
void listing_save_now(struct listing *listing);
bool listing_are_paths_here(const struct node *node, const struct job_list_store *store);

/* ---- listing_start.c ---- */

/* Errors as listing_new(). */
int listing_read(struct listing *listing);
/* Which paths are those that are on it. */
void listing_look_at_paths(struct listing *listing);
/* What has been committed since. */
void listing_look_at_files(struct listing *listing);

#endif
