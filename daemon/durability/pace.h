/* Pace: when a commit of a job's applied steps is due. Each step is, where a commit costs no more than the
 * step itself has written; else those of some seconds together, unless somebody waits for one. */
#ifndef TIERD_DAEMON_PACE_H
#define TIERD_DAEMON_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct job;

/* What counts of a job, never DURABILITY_DEFAULT; and until a commit of an applied step begins: 0 at once. */
uint32_t pace_durability(const struct job *job);
uint32_t pace_seconds(const struct job *job);

#endif
