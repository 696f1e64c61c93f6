/* The inside of listing.c and listing_start.c. */
#ifndef TIERD_DAEMON_LISTING_INSIDE_H
#define TIERD_DAEMON_LISTING_INSIDE_H

#include "daemon/listing.h"

struct listing {
	struct node *node;
	const char *directory;
	struct job_list list;
	int places[NODE_MAX_PATHS]; /* of the node's paths in the list; -1: not there */
	bool is_settled;	    /* it may be written */
	bool is_behind, has_failed; /* the file is older; that is told */
};

/* ---- listing.c ---- */

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
