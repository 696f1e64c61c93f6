/* What updates and norms are made of, and how their kernels are launched. */
#include <assert.h>

#include "offload/cuda/gpu_update_private.h"
#include "offload/optimizer/norm.h"

static_assert(sizeof(struct update_arguments) <= GPU_ARGUMENTS_BYTES &&
		      sizeof(struct norm_arguments) <= GPU_ARGUMENTS_BYTES,
	      "a chunk has room for them");

enum { PARAMETER, MASTER, GRADIENT, SLOTS, VALUES = 0, SUMS };

static void *on_gpu(driver_address address)
{
	return (void *)(uintptr_t)address;
}

static const struct gpu_update *update_of(const struct gpu_pass *pass)
{
	return container_of(pass, struct gpu_update, pass);
}

static void note_mirrors(const struct gpu_update *update, struct gpu_pass_part parts[GPU_PARTS])
{
	for (unsigned i = 0; update->is_mirrored && i < GPU_PARTS; i++)
		parts[i].is_mirrored = parts[i].array.mirror != 0;
}

static void find_parts_of_update(const struct gpu_pass *pass, struct gpu_pass_part parts[GPU_PARTS])
{
	const struct gpu_update *update = update_of(pass);
	uint64_t moments = update->format == MOMENTS_INT8 ? MOMENT_BLOCK : 1;

	parts[PARAMETER] = (struct gpu_pass_part){ update->parameter, 1, master_parameter_bytes(update->kind),
						   update->kind != MASTER_BESIDE, true };
	parts[MASTER] = (struct gpu_pass_part){ update->master, 1, master_bytes(update->kind), true, true };
	parts[GRADIENT] =
		(struct gpu_pass_part){ update->gradient, 1,
					update->is_narrow ? sizeof(uint16_t) : sizeof(float), true, false };
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++)
		parts[SLOTS + slot] =
			(struct gpu_pass_part){ update->slots[slot], moments,
						moment_bytes(update->format, moments), true, true };
	note_mirrors(update, parts);
}

static const char *launch_update(const struct gpu_pass *pass, const struct gpu_chunk *chunk, void *arguments,
				 struct gpu_step *ret_step)
{
	const struct gpu_update *update = update_of(pass);
	struct update_arguments *with = arguments;

	*with = (struct update_arguments){
		.constants = update->constants,
		.arrays = { .parameter = on_gpu(chunk->here[PARAMETER]),
			    .master = on_gpu(chunk->here[MASTER]),
			    .gradient = on_gpu(chunk->here[GRADIENT]),
			    .noise = update->noise },
		.count = chunk->count,
		.master = update->kind,
		.is_narrow = update->is_narrow,
	};
	with->arrays.noise.first += chunk->first;
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++)
		with->arrays.slots[slot] = on_gpu(chunk->here[SLOTS + slot]);
	*ret_step = (struct gpu_step){ .arguments = with,
				       .blocks = kernels_update_blocks(update->format, chunk->count),
				       .threads = UPDATE_THREADS };
	return kernels_update(update->optimizer, update->format);
}

static void find_parts_of_norm(const struct gpu_pass *pass, struct gpu_pass_part parts[GPU_PARTS])
{
	const struct gpu_norm *norm = container_of(pass, struct gpu_norm, pass);

	parts[VALUES] = (struct gpu_pass_part){ norm->values, 1, sizeof(float), true, false };
	parts[SUMS] = (struct gpu_pass_part){ norm->sums, NORM_BLOCK_ELEMENTS, sizeof(double), false, true };
}

static const char *launch_norm(const struct gpu_pass *pass, const struct gpu_chunk *chunk, void *arguments,
			       struct gpu_step *ret_step)
{
	struct norm_arguments *with = arguments;

	*with = (struct norm_arguments){ on_gpu(chunk->here[VALUES]), on_gpu(chunk->here[SUMS]),
					 chunk->count };
	*ret_step = (struct gpu_step){ .arguments = with,
				       .blocks = kernels_norm_blocks(chunk->count),
				       .threads = NORM_THREADS };
	return KERNELS_NORM;
}

const struct gpu_pass_kind gpu_update_kind = { MOMENT_BLOCK, find_parts_of_update, launch_update };
const struct gpu_pass_kind gpu_norm_kind = { NORM_BLOCK_ELEMENTS, find_parts_of_norm, launch_norm };
