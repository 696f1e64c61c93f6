/* Lion: steps of one size, in the direction of the sign of an interpolated momentum. Compiled once for each
 * level. */
#include "offload/optimizer/moment_rows.h"

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

static inline vector update(const struct optimizer_constants *constants, vector p, vector a,
			    struct moments *moments, size_t i)
{
	const struct lion_constants *with = &constants->lion;
	vector g = multiply(a, all(constants->factor)), m = moment_load(moments, 0, i);
	vector c = fused(all(with->beta1), m, multiply(all(with->beta1_rest), g));

	moment_store(moments, 0, i, fused(all(with->beta2), m, multiply(all(with->beta2_rest), g)));
	return fused_negative(all(with->rate), sign(c), multiply(p, all(with->decay)));
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
