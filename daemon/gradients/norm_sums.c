#include "daemon/gradients/norm_sums.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "common/size.h"
#include "daemon/gradients/gradients.h"
#include "daemon/model/model.h"

/* Of all ranks' shards. */
static uint64_t count_blocks(const struct job *job, uint32_t unit)
{
	uint64_t elements = job->catalog.units[unit].trainable;
	uint64_t blocks = 0;

	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		uint64_t first = unit_layout_shard(elements, rank, job->options.world_size);
		uint64_t end = unit_layout_shard(elements, rank + 1, job->options.world_size);

		blocks += size_divide_up(end - first, NORM_BLOCK_ELEMENTS);
	}
	return blocks;
}

static double measure_block(const struct job *job, norm_kernel *kernel, const struct unit *unit,
			    const char *sum, uint64_t first, uint64_t count)
{
	double lanes[NORM_LANES] = { 0 };
	float room[SUM_TILE];

	for (uint64_t left = count; left > 0;) {
		uint64_t length = left;
		const float *values = sum_values(job, unit, sum, first + count - left, &length, room);

		kernel(lanes, values, length);
		left -= length;
	}
	return norm_combine(lanes);
}

void norm_measure(const struct job *job, struct norm_sums *sums, uint32_t index, const char *sum)
{
	const struct unit *unit = &job->catalog.units[index];
	uint64_t elements = unit->trainable;
	double *blocks = norm_sums_of(sums, index);

	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		uint64_t first = unit_layout_shard(elements, rank, job->options.world_size);
		uint64_t end = unit_layout_shard(elements, rank + 1, job->options.world_size);

		for (; first < end; first += NORM_BLOCK_ELEMENTS) {
			uint64_t count =
				end - first < NORM_BLOCK_ELEMENTS ? end - first : NORM_BLOCK_ELEMENTS;

			*blocks++ = measure_block(job, sums->kernel, unit, sum, first, count);
		}
	}
}

/* Units that are frozen have no blocks. */
void norm_measure_pack(const struct job *job, struct norm_sums *sums, uint32_t pack)
{
	const struct pack *units = &job->catalog.packs[pack];

	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++)
		norm_measure(job, sums, u, gradient_sum(job, u));
}

uint64_t norm_sums_bytes(const struct job *job)
{
	uint64_t bytes = (job->catalog.unit_count + UINT64_C(1)) * sizeof(uint64_t);

	for (uint32_t unit = 0; unit < job->catalog.unit_count; unit++)
		bytes += count_blocks(job, unit) * sizeof(double);
	return bytes;
}

int norm_sums_init(const struct job *job, struct norm_sums *ret_sums)
{
	struct norm_sums sums = { .kernel = norm_find_kernel(simd_level()),
				  .first = calloc(job->catalog.unit_count + UINT64_C(1),
						  sizeof(*sums.first)) };

	if (!sums.first)
		return -ENOMEM;
	for (uint32_t unit = 0; unit < job->catalog.unit_count; unit++)
		sums.first[unit + 1] = sums.first[unit] + count_blocks(job, unit);
	sums.blocks = calloc(sums.first[job->catalog.unit_count] + 1, sizeof(*sums.blocks));
	if (!sums.blocks) {
		norm_sums_free(&sums);
		return -ENOMEM;
	}
	*ret_sums = sums;
	return 0;
}

bool norm_sums_are_finite(const struct norm_sums *sums, uint32_t unit)
{
	const double *blocks = norm_sums_of(sums, unit);

	for (uint64_t i = 0; i < norm_sums_count(sums, unit); i++)
		if (!isfinite(blocks[i]))
			return false;
	return true;
}

void norm_sums_free(struct norm_sums *sums)
{
	free(sums->first);
	free(sums->blocks);
	*sums = (struct norm_sums){ 0 };
}
