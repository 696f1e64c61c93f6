#include "tests/unit/cuda/shim_image.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/cuda/sum.h"
#include "common/cleanup.h"
#include "offload/cuda/kernels/arguments.h"
#include "offload/optimizer/norm.h"
#include "tests/unit/cuda/shim_place.h"

static void run(const struct standin_kernel *kernel, const void *arguments, unsigned blocks, unsigned threads)
{
	if (!shim_run_update(kernel->name, arguments, blocks, threads) &&
	    !shim_run_sum(kernel->name, arguments, blocks, threads))
		abort();
}

static struct standin_range range_of(const void *array, size_t bytes, bool is_read, bool is_written)
{
	return (struct standin_range){ (uintptr_t)array, bytes, is_read, is_written };
}

/* By its last letters. */
static enum moment_format format_of(const struct standin_kernel *kernel)
{
	static const char *const ends[MOMENT_FORMATS] = { "_fp32", "_bf16", "_int8" };
	enum moment_format format = MOMENTS_FP32;

	while (strcmp(strrchr(kernel->name, '_'), ends[format]) != 0)
		format++;
	return format;
}

static unsigned ranges_of_update(const struct standin_kernel *kernel, const void *arguments,
				 struct standin_range *ret_ranges)
{
	const struct update_arguments *with = arguments;
	const struct optimizer_arrays *arrays = &with->arrays;
	unsigned count = 0;

	ret_ranges[count++] = range_of(arrays->parameter, with->count * master_parameter_bytes(with->master),
				       with->master != MASTER_BESIDE, true);
	ret_ranges[count++] =
		range_of(arrays->gradient, with->count * (with->is_narrow ? sizeof(uint16_t) : sizeof(float)),
			 true, false);
	if (arrays->master)
		ret_ranges[count++] =
			range_of(arrays->master, with->count * master_bytes(with->master), true, true);
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++)
		if (arrays->slots[slot])
			ret_ranges[count++] =
				range_of(arrays->slots[slot], moment_bytes(format_of(kernel), with->count),
					 true, true);
	return count;
}

static unsigned ranges_of_norm(const struct standin_kernel *kernel, const void *arguments,
			       struct standin_range *ret_ranges)
{
	const struct norm_arguments *with = arguments;
	uint64_t blocks = (with->count + NORM_BLOCK_ELEMENTS - 1) / NORM_BLOCK_ELEMENTS;

	ret_ranges[0] = range_of(with->values, with->count * sizeof(float), true, false);
	ret_ranges[1] = range_of(with->sums, blocks * sizeof(double), false, true);
	return 2;
}

static enum reduce_format format_of_sum(const struct standin_kernel *kernel)
{
	enum reduce_format format = 0;

	while (strcmp(sum_kernel(format), kernel->name) != 0)
		format++;
	return format;
}

static unsigned ranges_of_sum(const struct standin_kernel *kernel, const void *arguments,
			      struct standin_range *ret_ranges)
{
	const struct sum_arguments *with = arguments;
	size_t element_bytes = reduce_element_bytes(format_of_sum(kernel));
	unsigned count = 0;

	ret_ranges[count++] = range_of(with->sum, with->count * sizeof(float), with->is_added, true);
	for (unsigned rank = 0; rank < with->rank_count; rank++) {
		if (with->contributions[rank] && count == STANDIN_RANGES)
			abort();
		if (with->contributions[rank])
			ret_ranges[count++] =
				range_of(with->contributions[rank], with->count * element_bytes, true, false);
	}
	return count;
}

#define UPDATE(name)                                                                                         \
	{                                                                                                    \
		name, sizeof(struct update_arguments), UPDATE_THREADS, ranges_of_update, run                 \
	}
#define UPDATES(optimizer) UPDATE(optimizer "_fp32"), UPDATE(optimizer "_bf16"), UPDATE(optimizer "_int8")

static const struct standin_kernel kernels[] = {
	UPDATES("adamw"), UPDATES("adam"),
	UPDATES("sgd"),	  UPDATES("lion"),
	UPDATES("none"),  { "norm_blocks", sizeof(struct norm_arguments), NORM_THREADS, ranges_of_norm, run },
};

const struct standin_image shim_image = { STANDIN_IMAGE, ARRAY_LENGTH(kernels), kernels };

#define SUM(name)                                                                                            \
	{                                                                                                    \
		name, sizeof(struct sum_arguments), SUM_THREADS, ranges_of_sum, run                          \
	}

static const struct standin_kernel sums[] = { SUM("sum_fp32"), SUM("sum_bf16"), SUM("sum_fp16") };

const struct standin_image shim_sum_image = { STANDIN_IMAGE, ARRAY_LENGTH(sums), sums };
