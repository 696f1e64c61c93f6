/* The sets of configurations that the matrix runs. */
#ifndef TIERD_TESTS_MATRIX_CONFIGURATIONS_H
#define TIERD_TESTS_MATRIX_CONFIGURATIONS_H

#include "schedule.h"

#define CONFIGURATIONS_MAXIMUM 256

/* Fills all with the set of this name, ordered so that those of one reference follow each other; returns how
 * many there are, 0 for an unknown name. */
unsigned configurations_of(const char *set, struct configuration *all);

/* Whether both train the same, whatever the stage. */
bool configurations_are_alike(const struct configuration *a, const struct configuration *b);

#endif
