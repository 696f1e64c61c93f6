/* Summing the contributions of four ranks, in bf16, over streaming as much. */
#include "collectives/reduce.h"

#include <stdlib.h>

#include "common/cleanup.h"
#include "common/simd.h"
#include "tests/bench/kernels.h"
#include "tests/bench/passes.h"

#define LIMIT 0.9

struct reduction {
	struct pass pass;
	float *sum;
	const void *contributions[STREAM_RANKS];
};

static void contributions_from(const struct reduction *reduction, size_t first,
			       const void *ret_contributions[STREAM_RANKS])
{
	for (int rank = 0; rank < STREAM_RANKS; rank++)
		ret_contributions[rank] = (const uint16_t *)reduction->contributions[rank] + first;
}

static void reduce(const struct pass *pass, size_t first, size_t count)
{
	const struct reduction *reduction = container_of(pass, struct reduction, pass);
	const void *contributions[STREAM_RANKS];

	contributions_from(reduction, first, contributions);
	reduce_sum_kernel(simd_level(), REDUCE_BF16)(reduction->sum + first, true, contributions,
						     STREAM_RANKS, count);
}

static void stream(const struct pass *pass, size_t first, size_t count)
{
	const struct reduction *reduction = container_of(pass, struct reduction, pass);
	const void *contributions[STREAM_RANKS];

	contributions_from(reduction, first, contributions);
	kernels_streams()->reduce(kernels_no_mask, count, reduction->sum + first, contributions);
}

/* Small numbers, positive and negative. */
static uint16_t *allocate_contribution(int rank)
{
	uint16_t *values = pass_allocate(PASS_ELEMENTS * sizeof(uint16_t));

	for (size_t i = 0; i < PASS_ELEMENTS; i++)
		values[i] = (uint16_t)((0x3a00 + rank) ^ ((i * 2654435761u >> 8) & 0x807f));
	return values;
}

int bench_reduce(struct bench *bench)
{
	struct reduction ours = { .pass.run = reduce }, theirs;
	int r;

	ours.sum = pass_allocate(PASS_ELEMENTS * sizeof(float));
	for (size_t i = 0; i < PASS_ELEMENTS; i++)
		ours.sum[i] = 1;
	for (int rank = 0; rank < STREAM_RANKS; rank++)
		ours.contributions[rank] = allocate_contribution(rank);
	theirs = ours;
	theirs.pass.run = stream;
	r = bench_compare(bench, &(struct bench_comparison){ .name = "reduce_ratio",
							     .bound = BENCH_AT_LEAST,
							     .limit = LIMIT,
							     .unit = "G elements/s",
							     .scale = 1e9,
							     .ours = { pass_run, &ours.pass },
							     .theirs = { pass_run, &theirs.pass } });
	for (int rank = 0; rank < STREAM_RANKS; rank++)
		free((void *)ours.contributions[rank]);
	free(ours.sum);
	return r;
}
