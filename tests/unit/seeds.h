/* Runs that follow from a seed each: $TIERD_SEEDS says how many, $TIERD_SEEDS_PART that one in so many
 * of the usual ones is enough, $TIERD_SEED repeats that one alone. */
#ifndef TIERD_TESTS_UNIT_SEEDS_H
#define TIERD_TESTS_UNIT_SEEDS_H

#include <stdint.h>
#include <stdlib.h>

/* One in so many is enough. */
static inline unsigned seeds_part(void)
{
	const char *part = getenv("TIERD_SEEDS_PART");

	return part ? (unsigned)strtoul(part, NULL, 10) : 1;
}

static inline unsigned seeds_first_case(unsigned count)
{
	return count < seeds_part() ? count - 1 : seeds_part() - 1;
}

/* Cases that differ in numbers alone: the last one of so many each. */
#define FOREACH_CASE(i, count) for (unsigned i = seeds_first_case(count); i < (count); i += seeds_part())

/* count: without any of them. */
void seeds_run(uint64_t count, void (*run)(uint64_t seed));

/* A test's teardown: says the seed of a run that has not come to its end. */
int seeds_tell(void **state);

#endif
