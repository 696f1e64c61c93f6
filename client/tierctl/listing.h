/* A listing: entries that the daemon is asked for, printed as a table or as one array of JSON. */
#ifndef TIERD_CLIENT_TIERCTL_LISTING_H
#define TIERD_CLIENT_TIERCTL_LISTING_H

#include "client/tierctl/command.h"

struct listing {
	struct table *table;
	cJSON *json; /* NULL: the table */
};

/* They return exit codes, after a message. The titles stay the caller's; listing_end() follows in any case.
 */
int listing_begin(struct listing *listing, const struct command_context *context, const char *const *titles);
/* Prints it, unless something has failed: returns that code then. */
int listing_end(struct listing *listing, int code);

/* An exit code, after a message; the entry is valid for the call. */
typedef int listing_unit(void *context, const Tierd__Wire__UnitEntry *unit);
/* Asks for the units of a job, page by page, and gives each of them to take(). */
int listing_units(struct ask *ask, char *job, uint32_t owner, listing_unit *take, void *context);

#endif
