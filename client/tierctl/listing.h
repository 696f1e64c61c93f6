/* A listing: entries that the daemon is asked for page by page, printed as a table or as one array of JSON.
 */
#ifndef TIERD_CLIENT_TIERCTL_LISTING_H
#define TIERD_CLIENT_TIERCTL_LISTING_H

#include "client/tierctl/command.h"

struct listing {
	struct table *table;
	cJSON *json;	/* NULL: the table */
	const void *of; /* what the entries of the pages that come are of; the taker's */
};

/* A request whose reply has as many entries as fit in a frame. */
struct listing_pages {
	const Tierd__Wire__Request *request;
	uint32_t *first; /* the number from which on it asks */
	/* Adds what a reply has, and says where the next page begins and how many entries there are; false:
	 * it is another reply. */
	bool (*take)(const struct listing *listing, const Tierd__Wire__Reply *reply, uint32_t *next,
		     uint32_t *ret_total);
};

/* They return exit codes, after a message. The titles stay the caller's; listing_end() follows in any case.
 */
int listing_begin(struct listing *listing, const struct command_context *context, const char *const *titles);
/* Until all are there, or a page brings none. */
int listing_ask(const struct listing *listing, struct ask *ask, const struct listing_pages *pages);
/* Prints it, unless something has failed: returns that code then. */
int listing_end(struct listing *listing, int code);

#endif
