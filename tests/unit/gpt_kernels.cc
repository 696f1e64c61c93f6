#include "tests/unit/cuda/shim.h"

#include "examples/gpt/cuda/kernels.cu"
#include "tests/unit/gpt_kernels.h"

bool shim_run_gpt(const char *kernel, const void *arguments, uint32_t blocks, uint32_t threads)
{
#define RUN(name)                                                                                            \
	if (strcmp(kernel, #name) == 0) {                                                                    \
		shim_run(name, arguments, blocks, threads);                                                  \
		return true;                                                                                 \
	}
	RUN(gpt_norm)
	RUN(gpt_norm_backward)
	RUN(gpt_column_sums)
	RUN(gpt_column_totals)
	RUN(gpt_finish)
	RUN(gpt_gelu)
	RUN(gpt_gelu_backward)
	RUN(gpt_softmax)
	RUN(gpt_softmax_backward)
	RUN(gpt_embed)
	RUN(gpt_embed_backward)
	RUN(gpt_loss)
	return false;
}
