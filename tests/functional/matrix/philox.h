/* Philox4x32-10 and the distributions of docs/numerics.md, an element at a time. */
#ifndef TIERD_TESTS_MATRIX_PHILOX_H
#define TIERD_TESTS_MATRIX_PHILOX_H

#include <stdint.h>

struct philox {
	uint64_t seed, name;
};

void philox_init(struct philox *philox, uint64_t seed, const char *name);
float philox_uniform(const struct philox *philox, uint64_t element, double low, double high);
float philox_normal(const struct philox *philox, uint64_t element, double mean, double deviation);

#endif
