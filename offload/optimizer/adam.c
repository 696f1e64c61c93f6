/* Adam, whose weight decay is a part of the gradient. Compiled once for each level. */
#include "offload/optimizer/adam.h"

static void set(const struct optimizer_group *group, double rate, uint64_t update,
		struct optimizer_constants *ret_constants)
{
	adam_set(group, rate, update, &ret_constants->adam);
	ret_constants->adam.weight_decay = group->weight_decay;
}

#define OPTIMIZER adam
#include "offload/optimizer/optimizer_rows.h"

const struct optimizer VECTOR_NAME(adam) = {
	.name = "adam",
	.slots = { "m", "v" },
	.slot_count = 2,
	.check = adam_check,
	.set = set,
	.kernels = OPTIMIZER_KERNELS,
};
