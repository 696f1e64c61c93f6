/* The optimizers' formulas by the words of docs/numerics.md, one element after the other. */
#ifndef TIERD_TESTS_MATRIX_FORMULA_H
#define TIERD_TESTS_MATRIX_FORMULA_H

#include "schedule.h"

struct formula {
	enum rule rule;
	const struct tierd_group *group;
	double rate;	 /* the step's times the group's */
	float factor;	 /* of the gradients */
	unsigned update; /* its number, from 1 */
};

void formula_apply(const struct formula *formula, uint64_t count, const float *gradients, float *masters,
		   float *first_slots, float *second_slots);

#endif
