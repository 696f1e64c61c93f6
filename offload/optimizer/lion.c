/* Lion: steps of one size, in the direction of the sign of an interpolated momentum. Compiled once for each
 * level. */
#include "offload/optimizer/optimizer.h"

static void set(const struct optimizer_group *group, double rate, uint64_t update,
		struct optimizer_constants *ret_constants)
{
	ret_constants->lion = (struct lion_constants){
		.beta1 = group->beta1,
		.beta1_rest = (float)(1 - (double)group->beta1),
		.beta2 = group->beta2,
		.beta2_rest = (float)(1 - (double)group->beta2),
		.decay = (float)(1 - rate * (double)group->weight_decay),
		.rate = (float)rate,
	};
}

#define OPTIMIZER lion
#include "offload/optimizer/optimizer_rows.h"

const struct optimizer VECTOR_NAME(lion) = {
	.name = "lion",
	.slots = { "m" },
	.slot_count = 1,
	.check = optimizer_check_betas,
	.set = set,
	.kernels = OPTIMIZER_KERNELS,
};
