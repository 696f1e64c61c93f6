/* How the sum of a unit's gradients lies in memory: its trained elements in the order of their numbers, in
 * fp32; or, where one contribution is all there is, as that was pushed. Before the first step the first
 * values lie there. */
#ifndef TIERD_DAEMON_SUMS_H
#define TIERD_DAEMON_SUMS_H

#include "daemon/model/job.h"

/* Whole blocks of moments, and few enough to stay in the cache. */
#define SUM_TILE 2048

bool sums_are_as_pushed(const struct job *job);
/* Of the unit's section they are in the format of its parameters, then: they were pushed in that. */
bool sums_are_as_parameters(const struct job *job, const struct unit *unit, enum unit_section section);
uint64_t sum_bytes(const struct job *job, const struct unit *unit);

/* The element first of the unit's section, in a sum that begins at base. */
char *sum_element(const struct job *job, const struct unit *unit, char *base, enum unit_section section,
		  uint64_t first);

/* In fp32, from the element of that number on, in a sum that begins at base: where they lie, or in room,
 * which has SUM_TILE. count: how many are wanted; then how many there are, whole rows of a norm's lanes if
 * there are not all. */
const float *sum_values(const struct job *job, const struct unit *unit, const char *base, uint64_t first,
			uint64_t *count, float *room);

#endif
