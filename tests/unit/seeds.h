/* Runs that follow from a seed each: $TIERD_SEEDS says how many, $TIERD_SEEDS_PART that one in so many
 * of the usual ones is enough, $TIERD_SEED repeats that one alone. */
#ifndef TIERD_TESTS_UNIT_SEEDS_H
#define TIERD_TESTS_UNIT_SEEDS_H

#include <stdint.h>

/* count: without any of them. */
void seeds_run(uint64_t count, void (*run)(uint64_t seed));

/* A test's teardown: says the seed of a run that has not come to its end. */
int seeds_tell(void **state);

#endif
