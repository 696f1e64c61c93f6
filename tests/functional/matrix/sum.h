/* The sum of a unit's gradients over micro-batches and ranks, in the order that docs/numerics.md writes. */
#ifndef TIERD_TESTS_MATRIX_SUM_H
#define TIERD_TESTS_MATRIX_SUM_H

#include "schedule.h"

/* Room for a unit's trainable elements. Exits on failure. */
float *sum_buffer(const struct model_unit *unit);

/* False: nobody has pushed the unit in this step. */
bool sum_unit(const struct configuration *configuration, const struct model *model, unsigned step,
	      unsigned unit, float *sums);

#endif
