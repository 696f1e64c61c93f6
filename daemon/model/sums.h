/* Layout of the sum of a unit's gradients: its trained elements in the order of their numbers, in fp32. If a
 * single push is all that a step has, the sum has the format that was pushed. Before the first step the
 * memory of the sums has the first values. */
#ifndef TIERD_DAEMON_SUMS_H
#define TIERD_DAEMON_SUMS_H

#include "daemon/model/job.h"

/* Whole blocks of moments, and few enough to stay in the cache. */
#define SUM_TILE 2048

bool sums_are_as_pushed(const struct job *job);
/* The sums of this section have the format of its parameters, because they were pushed in it. */
bool sums_are_as_parameters(const struct job *job, const struct unit *unit, enum unit_section section);
uint64_t sum_bytes(const struct job *job, const struct unit *unit);

/* The element first of the unit's section, in a sum that begins at base. */
char *sum_element(const struct job *job, const struct unit *unit, char *base, enum unit_section section,
		  uint64_t first);

/* Values in fp32 from element first on, of a sum that begins at base. They lie in the sum, or, if they had to
 * be converted, in room, for SUM_TILE values. count: how many are wanted; then how many are there, which is a
 * multiple of a norm's lanes if it is less. */
const float *sum_values(const struct job *job, const struct unit *unit, const char *base, uint64_t first,
			uint64_t *count, float *room);

#endif
