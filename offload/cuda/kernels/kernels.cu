/* The kernels of the update on a GPU. Their arithmetic is that of offload/optimizer, of which this includes
 * the scalars; what stands here is which lane has which elements, and how they come from memory and go back.
 */
#include "common/cuda_code.h"

#include "offload/cuda/kernels/arguments.h"
#include "offload/optimizer/formulas.h"
#include "offload/optimizer/master_rows.h"
#include "offload/optimizer/norm_kernels.h"

static_assert(UPDATE_GROUP == GROUP, "the grid has a thread for each group");

typedef vector formula(const struct optimizer_constants *constants, vector p, vector a,
		       struct moments *moments, size_t i);

/* ---- Masters of a group of elements, from first on ---- */

template <enum master_kind kind, typename parameter_type, typename master_type>
static inline void masters_load_as(const struct optimizer_arrays *arrays, size_t first, unsigned count,
				   vector *ret_p)
{
	parameter_type parameter[GROUP] = {};
	master_type master[GROUP] = {};
	struct optimizer_arrays here = {};

	here.parameter = parameter;
	here.master = master;
	if (kind != MASTER_BESIDE)
		group_load(parameter, (const parameter_type *)arrays->parameter + first, count);
	if (kind != MASTER_ITSELF)
		group_load(master, (const master_type *)arrays->master + first, count);
	UNROLL
	for (unsigned i = 0; i < GROUP; i++)
		ret_p[i] = load_master(&here, kind, i);
}

static inline void masters_load(const struct update_arguments *with, size_t first, unsigned count,
				vector *ret_p)
{
	if (with->master == MASTER_SPLIT)
		masters_load_as<MASTER_SPLIT, uint16_t, int16_t>(&with->arrays, first, count, ret_p);
	else if (with->master == MASTER_BESIDE)
		masters_load_as<MASTER_BESIDE, uint16_t, float>(&with->arrays, first, count, ret_p);
	else
		masters_load_as<MASTER_ITSELF, float, float>(&with->arrays, first, count, ret_p);
}

template <enum master_kind kind, typename parameter_type, typename master_type>
static inline void masters_store_as(const struct optimizer_arrays *arrays, size_t first, unsigned count,
				    const vector *p)
{
	parameter_type parameter[GROUP] = {};
	master_type master[GROUP] = {};
	struct optimizer_arrays here = {};

	here.parameter = parameter;
	here.master = master;
	UNROLL
	for (unsigned i = 0; i < GROUP; i++)
		store_master(&here, kind, i, p[i]);
	group_store((parameter_type *)arrays->parameter + first, parameter, count);
	if (kind != MASTER_ITSELF)
		group_store((master_type *)arrays->master + first, master, count);
}

static inline void masters_store(const struct update_arguments *with, size_t first, unsigned count,
				 const vector *p)
{
	if (with->master == MASTER_SPLIT)
		masters_store_as<MASTER_SPLIT, uint16_t, int16_t>(&with->arrays, first, count, p);
	else if (with->master == MASTER_BESIDE)
		masters_store_as<MASTER_BESIDE, uint16_t, float>(&with->arrays, first, count, p);
	else
		masters_store_as<MASTER_ITSELF, float, float>(&with->arrays, first, count, p);
}

/* ---- Their gradients ---- */

static inline float widened(const struct update_arguments *with, uint16_t narrow)
{
	return with->master == MASTER_BESIDE ? float16_to_float(narrow) : bfloat16_to_float(narrow);
}

static inline void gradients_load(const struct update_arguments *with, size_t first, unsigned count,
				  float *ret_gradient)
{
	uint16_t narrow[GROUP] = {};

	if (!with->is_narrow) {
		group_load(ret_gradient, with->arrays.gradient + first, count);
		return;
	}
	group_load(narrow, (const uint16_t *)with->arrays.gradient + first, count);
	UNROLL
	for (unsigned i = 0; i < GROUP; i++)
		ret_gradient[i] = widened(with, narrow[i]);
}

/* ---- Moments that are kept one by one: a group of elements for each lane ---- */

template <formula *update, enum moment_format format, typename kept>
static inline void update_group(const struct update_arguments *with, size_t first)
{
	const struct optimizer_arrays *arrays = &with->arrays;
	unsigned count = group_count(first, with->count);
	kept slots[OPTIMIZER_MAX_SLOTS][GROUP] = {};
	float gradient[GROUP] = {};
	struct moments moments = {};
	vector p[GROUP];

	moments.format = format;
	masters_load(with, first, count, p);
	gradients_load(with, first, count, gradient);
	UNROLL
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++) {
		moments.slots[slot] = slots[slot];
		if (arrays->slots[slot])
			group_load(slots[slot], (const kept *)arrays->slots[slot] + first, count);
	}
	UNROLL
	for (unsigned i = 0; i < GROUP; i++) {
		struct noise_source source = noise_source(&arrays->noise, first + i, lanes());

		if (format != MOMENTS_FP32)
			moments.noise = noise_mix(source.numbers, source.key);
		p[i] = update(&with->constants, p[i], gradient[i], &moments, i);
	}
	UNROLL
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++)
		if (arrays->slots[slot])
			group_store((kept *)arrays->slots[slot] + first, slots[slot], count);
	masters_store(with, first, count, p);
}

template <formula *update, enum moment_format format, typename kept>
static inline void update_groups(const struct update_arguments *with)
{
	FOREACH_LANE (lane) {
		size_t first = (warp_number() * WARP_LANES + lane) * GROUP;

		if (first < with->count)
			update_group<update, format, kept>(with, first);
	}
}

/* ---- Moments in blocks of codes: a block for each warp ---- */

/* So that the lanes' accesses lie side by side, each has every 32nd group of a block. */
#define LANE_GROUPS (MOMENT_BLOCK / WARP_LANES / GROUP)

/* What a lane has of a block: a beginning of one, to the kernels' eyes, whose struct moments points to it.
 * The two are apart, because what holds its own address does not become registers. */
struct coded_group {
	size_t first; /* element */
	size_t at;    /* of those, in the block */
	unsigned count;
	struct coded_moments coded[OPTIMIZER_MAX_SLOTS];
	float values[OPTIMIZER_MAX_SLOTS][MOMENT_BLOCK];
};

static inline void codes_load(const struct update_arguments *with, size_t block, struct coded_group *group,
			      struct moments *moments)
{
	void *slots[OPTIMIZER_MAX_SLOTS] = {};

	UNROLL
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++) {
		const struct coded_moments *from = (const struct coded_moments *)with->arrays.slots[slot];

		slots[slot] = &group->coded[slot];
		if (!from)
			continue;
		group->coded[slot].scale = from[block].scale;
		group_load(group->coded[slot].codes, from[block].codes + group->at, group->count);
	}
	moments->format = MOMENTS_INT8;
	moments->values = group->values;
	moments_begin_block(moments, slots, 0);
}

template <formula *update>
static inline void update_coded(const struct update_arguments *with, size_t block, size_t at,
				struct coded_group *group, struct moments *moments)
{
	float gradient[GROUP] = {};
	vector p[GROUP];

	group->at = at;
	group->first = block * MOMENT_BLOCK + at;
	group->count = group_count(group->first, with->count);
	codes_load(with, block, group, moments);
	masters_load(with, group->first, group->count, p);
	gradients_load(with, group->first, group->count, gradient);
	/* Behind the last element there are zeros, which make no scale larger. */
	UNROLL
	for (unsigned i = 0; i < GROUP; i++)
		p[i] = update(&with->constants, p[i], gradient[i], moments, i);
	masters_store(with, group->first, group->count, p);
}

static inline void codes_share_greatest(struct moments *moments, unsigned count)
{
	UNROLL
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++) {
		uint32_t values[LANES_HERE * LANE_GROUPS], greatest;

		UNROLL
		for (unsigned i = 0; i < count; i++)
			values[i] = moments[i].blocks[slot].greatest;
		greatest = warp_greatest(values, count);
		UNROLL
		for (unsigned i = 0; i < count; i++)
			moments[i].blocks[slot].greatest = greatest;
	}
}

static inline void codes_store(const struct update_arguments *with, size_t block, struct coded_group *group,
			       struct moments *moments)
{
	moments_end_block(moments, &with->arrays.noise, group->first, GROUP, with->arrays.gradient);
	UNROLL
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++) {
		struct coded_moments *to = (struct coded_moments *)with->arrays.slots[slot];

		if (!moments->blocks[slot].is_moved)
			continue;
		if (group->at == 0)
			to[block].scale = group->coded[slot].scale;
		group_store(to[block].codes + group->at, group->coded[slot].codes, group->count);
	}
}

template <formula *update> static inline void update_blocks(const struct update_arguments *with)
{
	struct coded_group groups[LANES_HERE * LANE_GROUPS] = {};
	struct moments moments[LANES_HERE * LANE_GROUPS] = {};
	size_t block = warp_number();

	if (block * MOMENT_BLOCK >= with->count)
		return;
	FOREACH_LANE (lane) {
		UNROLL
		for (unsigned n = 0; n < LANE_GROUPS; n++) {
			unsigned i = lane % LANES_HERE * LANE_GROUPS + n;

			update_coded<update>(with, block, (n * WARP_LANES + lane) * GROUP, &groups[i],
					     &moments[i]);
		}
	}
	codes_share_greatest(moments, LANES_HERE * LANE_GROUPS);
	UNROLL
	for (unsigned i = 0; i < LANES_HERE * LANE_GROUPS; i++)
		codes_store(with, block, &groups[i], &moments[i]);
}

#define DEFINE_UPDATES(optimizer)                                                                            \
	extern "C" __global__ void optimizer##_fp32(const __grid_constant__ struct update_arguments with)    \
	{                                                                                                    \
		update_groups<optimizer##_update, MOMENTS_FP32, float>(&with);                               \
	}                                                                                                    \
	extern "C" __global__ void optimizer##_bf16(const __grid_constant__ struct update_arguments with)    \
	{                                                                                                    \
		update_groups<optimizer##_update, MOMENTS_BF16, uint16_t>(&with);                            \
	}                                                                                                    \
	extern "C" __global__ void optimizer##_int8(const __grid_constant__ struct update_arguments with)    \
	{                                                                                                    \
		update_blocks<optimizer##_update>(&with);                                                    \
	}

DEFINE_UPDATES(adamw)
DEFINE_UPDATES(adam)
DEFINE_UPDATES(sgd)
DEFINE_UPDATES(lion)
DEFINE_UPDATES(none)

/* ---- Norm: a block for each half of a warp, a lane of the sum for each of its lanes ---- */

extern "C" __global__ void norm_blocks(const __grid_constant__ struct norm_arguments with)
{
	__shared__ double sums[NORM_THREADS / NORM_LANES][NORM_LANES];

	FOREACH_LANE (lane) {
		size_t thread = warp_number() * WARP_LANES + lane;
		size_t first = thread / NORM_LANES * NORM_BLOCK_ELEMENTS;
		size_t end =
			first + NORM_BLOCK_ELEMENTS < with.count ? first + NORM_BLOCK_ELEMENTS : with.count;
		double sum = 0;

		UNROLL_BY(16)
		for (size_t i = first + thread % NORM_LANES; i < end; i += NORM_LANES)
			norm_add_row(&sum, with.values + i, 1);
		sums[thread % NORM_THREADS / NORM_LANES][thread % NORM_LANES] = sum;
	}
	__syncwarp();
	FOREACH_LANE (lane) {
		size_t thread = warp_number() * WARP_LANES + lane;
		size_t block = thread / NORM_LANES;

		if (thread % NORM_LANES == 0 && block * NORM_BLOCK_ELEMENTS < with.count)
			with.sums[block] = norm_add_lanes(sums[thread % NORM_THREADS / NORM_LANES]);
	}
}
