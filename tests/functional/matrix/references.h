/* The references of the configurations under way, one for each order of sums, each trained once. */
#ifndef TIERD_TESTS_MATRIX_REFERENCES_H
#define TIERD_TESTS_MATRIX_REFERENCES_H

#include "reference.h"

/* A descriptor of the memory that a rank of the configuration compares with; the cache keeps it. Checks on
 * the way that the training is one in which mistakes would show. Prints and exits on failure. */
int references_get(const struct configuration *configuration);

#endif
