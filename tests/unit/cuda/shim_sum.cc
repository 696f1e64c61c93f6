#include "tests/unit/cuda/shim.h"

#include "collectives/cuda/sum.cu"
#include "tests/unit/cuda/shim_place.h"

bool shim_run_sum(const char *kernel, const void *arguments, uint32_t blocks, uint32_t threads)
{
	static const struct {
		const char *name;
		void (*run)(struct sum_arguments arguments);
	} kernels[] = { { "sum_fp32", sum_fp32 }, { "sum_bf16", sum_bf16 }, { "sum_fp16", sum_fp16 } };

	for (const auto &one : kernels)
		if (strcmp(one.name, kernel) == 0) {
			shim_run(one.run, arguments, blocks, threads);
			return true;
		}
	return false;
}
