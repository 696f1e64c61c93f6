/* Stalls: the time that ranks wait, by what they wait for. */
#ifndef TIERD_DAEMON_STALL_H
#define TIERD_DAEMON_STALL_H

#include "daemon/request/request.h"

struct job;

/* The rank that asked does nothing else from now on. */
void stall_begin(struct pending *pending, enum statistics_cause cause);
/* The rank waits for something else now. Does nothing if the stall has not begun. */
void stall_move(struct pending *pending, enum statistics_cause cause);
void stall_end(struct pending *pending);

/* Counts the time of stalls that go on, up to now. */
void stall_count(struct job *job);

#endif
