/* SGD, with or without momentum. Compiled once for each level. */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "offload/optimizer/optimizer.h"

static int check(const struct optimizer_group *group, char *message, size_t size)
{
	/* Written so that a NaN fails too. */
	if (!(group->momentum >= 0) || !isfinite(group->momentum) || !isfinite(group->dampening)) {
		snprintf(message, size,
			 "momentum is %g and dampening %g; they are finite, the first 0 or above",
			 (double)group->momentum, (double)group->dampening);
		return -EINVAL;
	}
	if (group->is_nesterov && (group->momentum == 0 || group->dampening != 0)) {
		snprintf(message, size,
			 "nesterov with momentum %g and dampening %g; it wants a momentum and no "
			 "dampening",
			 (double)group->momentum, (double)group->dampening);
		return -EINVAL;
	}
	return 0;
}

static bool uses_slots(const struct optimizer_group *group)
{
	return group->momentum != 0;
}

/* The first update finds a momentum of zeros, and takes the gradient as it is. */
static void set(const struct optimizer_group *group, double rate, uint64_t update,
		struct optimizer_constants *ret_constants)
{
	ret_constants->sgd = (struct sgd_constants){
		.weight_decay = group->weight_decay,
		.momentum = group->momentum,
		.rest = update == 1 ? 1 : (float)(1 - (double)group->dampening),
		.rate = (float)rate,
		.has_momentum = uses_slots(group),
		.is_nesterov = group->is_nesterov,
	};
}

#define OPTIMIZER sgd
#include "offload/optimizer/optimizer_rows.h"

const struct optimizer VECTOR_NAME(sgd) = {
	.name = "sgd",
	.slots = { "momentum" },
	.slot_count = 1,
	.uses_slots = uses_slots,
	.check = check,
	.set = set,
	.kernels = OPTIMIZER_KERNELS,
};
