#include "daemon/norm.h"

#include "common/size.h"

uint64_t norm_blocks(const struct job *job, uint32_t unit)
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

void norm_measure(const struct job *job, norm_kernel *kernel, uint32_t unit, const float *sum, double *blocks)
{
	uint64_t elements = job->catalog.units[unit].trainable;

	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		uint64_t first = unit_layout_shard(elements, rank, job->options.world_size);
		uint64_t end = unit_layout_shard(elements, rank + 1, job->options.world_size);

		for (; first < end; first += NORM_BLOCK_ELEMENTS) {
			uint64_t count =
				end - first < NORM_BLOCK_ELEMENTS ? end - first : NORM_BLOCK_ELEMENTS;

			*blocks++ = kernel(sum + first, count);
		}
	}
}
