/* The optimizers, as the reference needs them: what each keeps, and the constants of an update. */
#ifndef GPT_OPTIMIZER_H
#define GPT_OPTIMIZER_H

#include "kernels.h"
#include "model.h"

struct options;

/* The optimizer's epsilon. */
#define OPTIMIZER_EPSILON 1e-8f

/* How many slots the optimizer keeps for each element, and their names. */
unsigned optimizer_slots(const struct options *options, const char *ret_names[KERNEL_SLOTS]);

/* Of the t-th update (from 1) of a unit; factor multiplies the gradients. */
struct update_constants optimizer_constants(const struct options *options, enum tensor_group group,
					    float learning_rate, double factor, uint64_t t);

#endif
