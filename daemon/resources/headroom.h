/* Headroom: the host memory that may still be taken, of the node's budget and of a user's. */
#ifndef TIERD_DAEMON_HEADROOM_H
#define TIERD_DAEMON_HEADROOM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/resources/holders.h"

struct job;
struct node;

/* Who wants host memory: a user, for a job or for a reader. */
struct claim {
	struct node *node;
	uid_t uid;
	uint64_t host_maximum; /* of all that the user has; 0: no limit */
	const struct job *job; /* whose own cache does not count as a source; NULL: all caches count */
};

struct headroom {
	uint64_t bytes;
	enum { HEADROOM_OF_JOB, HEADROOM_OF_USER, HEADROOM_OF_NODE } bound;
};

struct claim claim_of_job(const struct job *job);

/* Caches could give more; the job's own budget may allow less. */
struct headroom headroom_for(const struct claim *claim);

/* What others would have to give back for so many bytes, and for what caches have to leave free. */
uint64_t headroom_lacking(const struct claim *claim, uint64_t bytes);

/* With the names of three jobs. */
#define HEADROOM_TEXT (HOLDERS_TEXT + 80)

/* Which limit it is, and who has the rest. */
const char *headroom_describe(const struct claim *claim, struct headroom headroom, char *text, size_t size);

#endif
