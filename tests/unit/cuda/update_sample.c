#include "tests/unit/cuda/update_sample.h"

#include <string.h>

#include "offload/optimizer/moments.h"
#include "tests/unit/kernel_support.h"
#include "tests/unit/test.h"

const char *const sample_optimizers[SAMPLE_OPTIMIZERS] = { "adamw", "adam", "sgd", "lion", "none" };

static const struct optimizer_group groups[] = {
	{ 1.0f, 0.9f, 0.999f, 1e-8f, 0.01f, 0.9f, 0.1f, false },
	{ 0.3f, 0.9f, 0.95f, 1e-10f, 0.1f, 0.7f, 0.0f, true },
	{ 1.0f, 0.0f, 0.0f, 1e-20f, 0.0f, 0.0f, 0.5f, false },
};

void state_new(const struct sample *sample, struct state *ret_state)
{
	for (unsigned i = 0; i < ARRAYS; i++) {
		ret_state->arrays[i] = sample->bytes[i] ? allocate(sample->bytes[i]) : NULL;
		if (sample->bytes[i] && sample->before.arrays[i])
			memcpy(ret_state->arrays[i], sample->before.arrays[i], sample->bytes[i]);
	}
}

void state_free(struct state *state)
{
	for (unsigned i = 0; i < ARRAYS; i++)
		free(state->arrays[i]);
}

/* ---- Samples ---- */

/* In most blocks of many elements there is something so large that all else has the least code: so some
 * samples have only what lies within 24 powers of two. */
static float random_value(bool is_near)
{
	return is_near ? ldexpf(random_ordinary(2), -(int)(random_bits() % 24)) : random_any();
}

static void fill(const struct sample *sample, bool is_near)
{
	void *const *arrays = sample->before.arrays;
	_cleanup_free_ float *values = allocate_floats(sample->count);

	for (unsigned i = 0; i < ARRAYS; i++) {
		for (size_t j = 0; j < sample->count; j++)
			values[j] = random_value(is_near);
		if (i == PARAMETER)
			format_keep(sample->kind, values, sample->count, arrays[PARAMETER], arrays[MASTER]);
		else if (i == GRADIENT)
			memcpy(arrays[i], values, sample->bytes[i]);
		else if (i >= SLOTS && arrays[i]) {
			memset(arrays[i], 0, sample->bytes[i]);
			moments_keep(sample->format, i - SLOTS, values, 0, sample->count, arrays[i]);
		}
	}
}

struct sample sample_new(const char *name, enum master_kind kind, enum moment_format format, size_t count,
			 unsigned number)
{
	struct sample sample = { .optimizer = optimizer_find(name, SIMD_SCALAR),
				 .best = optimizer_find(name, simd_level()),
				 .kind = kind,
				 .format = format,
				 .count = count,
				 /* From some element on their numbers have more than 32 bits. */
				 .noise = { { 0x12345678, 0x9abcdef0 }, 0xffffff00 } };

	if (format != MOMENTS_INT8)
		sample.noise.first += number % 256;
	optimizer_set(sample.optimizer, &groups[number % ARRAY_LENGTH(groups)], 1e-3, 1 + number * 7 % 40,
		      number % 2 ? 1.0f : 0.37f, &sample.constants);
	sample.bytes[PARAMETER] = count * master_parameter_bytes(kind);
	sample.bytes[MASTER] = count * master_bytes(kind);
	sample.bytes[GRADIENT] = count * sizeof(float);
	for (unsigned slot = 0; slot < sample.optimizer->slot_count; slot++)
		sample.bytes[SLOTS + slot] = moment_bytes(format, count);
	state_new(&sample, &sample.before);
	fill(&sample, number % 2);
	return sample;
}

void sample_free(struct sample *sample)
{
	state_free(&sample->before);
}

/* ---- Updates ---- */

struct optimizer_arrays arrays_of(const struct sample *sample, const struct state *state)
{
	return (struct optimizer_arrays){ .parameter = state->arrays[PARAMETER],
					  .master = state->arrays[MASTER],
					  .slots = { state->arrays[SLOTS], state->arrays[SLOTS + 1] },
					  .gradient = state->arrays[GRADIENT],
					  .noise = sample->noise };
}

void update_here(const struct sample *sample, const struct optimizer *optimizer, struct state *ret_after)
{
	struct optimizer_arrays arrays;

	state_new(sample, ret_after);
	arrays = arrays_of(sample, ret_after);
	optimizer->kernels[sample->format][sample->kind](&sample->constants, sample->count, &arrays);
}

/* ---- Comparison ---- */

static void assert_same_values(const struct sample *sample, const struct state *a, const struct state *b,
			       void (*restore)(const struct sample *sample, const struct state *state,
					       unsigned array, float *ret_values),
			       unsigned array)
{
	_cleanup_free_ float *left = allocate_floats(sample->count), *right = allocate_floats(sample->count);

	restore(sample, a, array, left);
	restore(sample, b, array, right);
	for (size_t i = 0; i < sample->count; i++)
		if (!is_same(left[i], right[i]))
			fail_msg("%s, master %d, moments %d, %zu elements: array %u of element %zu is %a, "
				 "not %a",
				 sample->optimizer->name, sample->kind, sample->format, sample->count, array,
				 i, (double)left[i], (double)right[i]);
}

static void restore_parameters(const struct sample *sample, const struct state *state, unsigned array,
			       float *ret_values)
{
	format_widen(sample->kind, state->arrays[PARAMETER], sample->count, ret_values);
}

static void restore_masters(const struct sample *sample, const struct state *state, unsigned array,
			    float *ret_values)
{
	format_restore(sample->kind, state->arrays[PARAMETER], state->arrays[MASTER], sample->count,
		       ret_values);
}

static void restore_moments(const struct sample *sample, const struct state *state, unsigned array,
			    float *ret_values)
{
	moments_restore(sample->format, array - SLOTS, state->arrays[array], 0, sample->count, ret_values);
}

/* Which NaN arithmetic makes is not promised, nor is its sign: and that is what is left of one in a code. */
static bool may_be_nan(const struct sample *sample, size_t i)
{
	float p, gradient = ((const float *)sample->before.arrays[GRADIENT])[i] * sample->constants.factor;
	const char *master = sample->before.arrays[MASTER];

	format_restore(sample->kind,
		       (const char *)sample->before.arrays[PARAMETER] +
			       i * master_parameter_bytes(sample->kind),
		       master ? master + i * master_bytes(sample->kind) : NULL, 1, &p);
	return !isfinite(p) || !isfinite(gradient);
}

/* Also of what lies behind the last element of a block. */
static void assert_same_codes(const struct sample *sample, const struct coded_moments *a,
			      const struct coded_moments *b, size_t bytes)
{
	for (size_t block = 0; block * sizeof(*a) < bytes; block++) {
		assert_int_equal(float_bits(a[block].scale), float_bits(b[block].scale));
		for (size_t i = 0; i < MOMENT_BLOCK; i++) {
			size_t element = block * MOMENT_BLOCK + i;
			unsigned differ = a[block].codes[i] ^ b[block].codes[i];

			if (differ == 0x80 && element < sample->count && may_be_nan(sample, element))
				continue;
			if (differ)
				fail_msg("%s, master %d, %zu elements: code %zu is %02x, not %02x",
					 sample->optimizer->name, sample->kind, sample->count, element,
					 a[block].codes[i], b[block].codes[i]);
		}
	}
}

void assert_same(const struct sample *sample, const struct state *a, const struct state *b)
{
	assert_same_values(sample, a, b, restore_parameters, PARAMETER);
	assert_same_values(sample, a, b, restore_masters, MASTER);
	for (unsigned array = SLOTS; array < GRADIENT; array++)
		if (sample->bytes[array] && sample->format == MOMENTS_INT8)
			assert_same_codes(sample, a->arrays[array], b->arrays[array], sample->bytes[array]);
		else if (sample->bytes[array])
			assert_same_values(sample, a, b, restore_moments, array);
	assert_memory_equal(a->arrays[GRADIENT], sample->before.arrays[GRADIENT], sample->bytes[GRADIENT]);
}
