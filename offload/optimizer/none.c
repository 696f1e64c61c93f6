/* None: whoever owns a shard updates it himself, and what comes as its gradients are its new masters.
 * Compiled once for each level. */
#include "offload/optimizer/optimizer.h"

/* The owner looks at the groups, if anybody does. */
static int check(const struct optimizer_group *group, char *message, size_t size)
{
	return 0;
}

static void set(const struct optimizer_group *group, double rate, uint64_t update,
		struct optimizer_constants *ret_constants)
{
	ret_constants->factor = 1;
}

#define OPTIMIZER none
#include "offload/optimizer/optimizer_rows.h"

const struct optimizer VECTOR_NAME(none) = {
	.name = "none",
	.is_by_owner = true,
	.check = check,
	.set = set,
	.kernels = OPTIMIZER_KERNELS,
};
