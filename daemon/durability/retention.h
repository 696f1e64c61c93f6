/* Retention: of a job's durable steps every k-th is kept as a snapshot by itself, named step-N, and of those
 * the last ones. */
#ifndef TIERD_DAEMON_RETENTION_H
#define TIERD_DAEMON_RETENTION_H

#include <stdint.h>

struct job;

/* The job's rule counts from this step on: the first that is kept is a multiple, and none that was there
 * before whoever made the rule, or the fork, could see it. */
void retention_begin(struct job *job, uint64_t step);

#endif
