/* Room: the host memory that may still be taken, of the node's budget and of a user's. */
#ifndef TIERD_DAEMON_ROOM_H
#define TIERD_DAEMON_ROOM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/resources/holders.h"

struct job;
struct node;

/* Who wants it: a user, for a job or for a reader. */
struct claim {
	struct node *node;
	uid_t uid;
	uint64_t host_maximum; /* of all that is the user's; 0: none */
	const struct job *job; /* whose own cache is no help; NULL: each one is */
};

struct room {
	uint64_t bytes;
	enum { ROOM_OF_JOB, ROOM_OF_USER, ROOM_OF_NODE } bound;
};

/* Of a job, which is that job. */
struct claim room_claim(const struct job *job);

/* Without a job's own budget, and without what caches could give. */
struct room room_for(const struct claim *claim);

/* What others would have to give back, so that there are bytes, and what caches leave free beside them. */
uint64_t room_lacking(const struct claim *claim, uint64_t bytes);

/* With the names of three jobs. */
#define ROOM_TEXT (HOLDERS_TEXT + 80)

/* Of the host memory: whose it is, and who has the rest. */
const char *room_describe(const struct claim *claim, struct room room, char *text, size_t size);

#endif
