/* Waits: which ranks of a job the others wait for, for what, and since when. This is found out when somebody
 * asks. A wait that takes long is told once. */
#ifndef TIERD_DAEMON_WAITS_H
#define TIERD_DAEMON_WAITS_H

#include "daemon/model/model.h"

/* So many ranks are named. */
#define WAITS_MOST 16

enum waits_cause {
	WAITS_NOTHING,
	WAITS_READY, /* for tierd_job_ready */
	WAITS_PUSH,  /* of gradients that are to be summed with others, whose buffers are wanted */
	WAITS_STEP,  /* for the closing of the open step */
	WAITS_SHARD, /* of a reduced step, for what its owner writes */
	WAITS_WRITE, /* of a writing, for the end of its part */
};

struct waits {
	enum waits_cause cause; /* WAITS_NOTHING: no rank waits for another; the rest is not set then */
	uint64_t since_ns;	/* when the first of the others began to */
	uint32_t count, ranks[WAITS_MOST];
};

void waits_find(const struct job *job, struct waits *ret_waits);
/* "ready", "push", "step", "shard", "write"; "". */
const char *waits_name(enum waits_cause cause);

/* The member's process is stopped, by SIGSTOP or a debugger. False also if that cannot be found out. */
bool waits_for_stopped(const struct member *member);

/* Called now and then: tells of a wait that has become too long, if that was not told yet. */
void waits_check(struct job *job);

#endif
