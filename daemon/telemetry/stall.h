/* Stalls: the time that ranks wait, by what they wait for. */
#ifndef TIERD_DAEMON_STALL_H
#define TIERD_DAEMON_STALL_H

#include "daemon/request/request.h"

struct job;

/* The rank that asked does nothing else from now on. */
void stall_begin(struct pending *pending, enum statistics_cause cause);
/* It waits for something else now. Of one that has not begun: does nothing. */
void stall_move(struct pending *pending, enum statistics_cause cause);
void stall_end(struct pending *pending);

/* Counts what has passed of those that go on. */
void stall_count(struct job *job);

#endif
