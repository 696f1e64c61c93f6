#include "tests/unit/cuda/shim.h"

#include "offload/cuda/kernels/kernels.cu"
#include "tests/unit/cuda/shim_place.h"

typedef void update_kernel(struct update_arguments arguments);

bool shim_run_update(const char *kernel, const void *arguments, uint32_t blocks, uint32_t threads)
{
#define KERNELS(optimizer)                                                                                   \
	{ #optimizer "_fp32", optimizer##_fp32 }, { #optimizer "_bf16", optimizer##_bf16 },                  \
	{                                                                                                    \
#optimizer "_int8", optimizer##_int8                                                         \
	}
	static const struct {
		const char *name;
		update_kernel *run;
	} kernels[] = { KERNELS(adamw), KERNELS(adam), KERNELS(sgd), KERNELS(lion), KERNELS(none) };

	for (const auto &one : kernels)
		if (strcmp(one.name, kernel) == 0) {
			shim_run(one.run, arguments, blocks, threads);
			return true;
		}
	if (strcmp(kernel, "norm_blocks") != 0)
		return false;
	shim_run(norm_blocks, arguments, blocks, threads);
	return true;
}
