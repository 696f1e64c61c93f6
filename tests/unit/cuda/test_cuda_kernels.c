/* The kernels of the update, wherever they run, give the bits of the scalars and of this processor's best
 * level. */
#include <stdio.h>
#include <string.h>

#include "offload/cuda/kernels/kernels.h"
#include "offload/optimizer/norm.h"
#include "tests/unit/cuda/kernel_place.h"
#include "tests/unit/cuda/update_sample.h"
#include "tests/unit/kernel_support.h"
#include "tests/unit/test.h"

/* Tails of groups, warps and blocks, of codes and of the grid. */
static const size_t counts[] = { 1,   2,   3,	4,   5,	  7,   127,  128,  129, 131,
				 255, 256, 257, 384, 511, 515, 1025, 1300, 4101 };

static void update_there(const struct sample *sample, struct state *ret_after)
{
	struct state there = { { NULL } };
	struct update_arguments with = { .constants = sample->constants,
					 .count = sample->count,
					 .master = sample->kind };

	state_new(sample, ret_after);
	for (unsigned i = 0; i < ARRAYS; i++)
		if (sample->bytes[i]) {
			there.arrays[i] = place_allocate(sample->bytes[i]);
			place_write(there.arrays[i], ret_after->arrays[i], sample->bytes[i]);
		}
	with.arrays = arrays_of(sample, &there);
	place_run(kernels_update(sample->optimizer, sample->format), &with,
		  kernels_update_blocks(sample->format, sample->count), UPDATE_THREADS);
	for (unsigned i = 0; i < ARRAYS; i++)
		if (sample->bytes[i]) {
			place_read(ret_after->arrays[i], there.arrays[i], sample->bytes[i]);
			place_free(there.arrays[i]);
		}
}

/* ---- Tests ---- */

static void check(const char *name, enum master_kind kind, enum moment_format format, size_t count,
		  unsigned number)
{
	struct sample sample = sample_new(name, kind, format, count, number);
	struct state ours, scalar, best;

	update_there(&sample, &ours);
	update_here(&sample, sample.optimizer, &scalar);
	update_here(&sample, sample.best, &best);
	assert_same(&sample, &ours, &scalar);
	assert_same(&sample, &ours, &best);
	state_free(&ours);
	state_free(&scalar);
	state_free(&best);
	sample_free(&sample);
}

static void every_update_has_the_bits_of_the_processor(void **state)
{
	for (unsigned i = 0; i < SAMPLE_OPTIMIZERS * ARRAY_LENGTH(counts); i++)
		for (unsigned kind = 0; kind < MASTER_KINDS; kind++)
			for (unsigned format = 0; format < MOMENT_FORMATS; format++)
				check(sample_optimizers[i % SAMPLE_OPTIMIZERS], kind, format,
				      counts[i / SAMPLE_OPTIMIZERS], i);
}

static void measure_there(const float *values, size_t count, double *ret_sums)
{
	size_t blocks = (count + NORM_BLOCK_ELEMENTS - 1) / NORM_BLOCK_ELEMENTS;
	void *there = place_allocate(count * sizeof(float)), *sums = place_allocate(blocks * sizeof(double));
	struct norm_arguments with = { .values = there, .sums = sums, .count = count };

	place_write(there, values, count * sizeof(float));
	place_run(KERNELS_NORM, &with, kernels_norm_blocks(count), NORM_THREADS);
	place_read(ret_sums, sums, blocks * sizeof(double));
	place_free(there);
	place_free(sums);
}

static void assert_norm(const float *values, size_t count)
{
	double sums[9];

	measure_there(values, count, sums);
	for (size_t first = 0; first < count; first += NORM_BLOCK_ELEMENTS) {
		size_t length = count - first < NORM_BLOCK_ELEMENTS ? count - first : NORM_BLOCK_ELEMENTS;
		double lanes[NORM_LANES] = { 0 }, sum = sums[first / NORM_BLOCK_ELEMENTS], expected;

		norm_find_kernel(simd_level())(lanes, values + first, length);
		expected = norm_combine(lanes);
		assert_true(isnan(expected) ? isnan(sum) : memcmp(&sum, &expected, sizeof(sum)) == 0);
	}
}

static void every_norm_has_the_bits_of_the_processor(void **state)
{
	static const size_t lengths[] = {
		1, 15, 16, 17, 33, 300, 65535, 65536, 65537, 2 * 65536 + 17, 8 * 65536 + 5
	};
	_cleanup_free_ float *values = allocate_floats(8 * 65536 + 5);

	for (size_t i = 0; i < 8 * 65536 + 5; i++)
		values[i] = ldexpf(random_ordinary(2), (int)(random_bits() % 16) - 100);
	for (unsigned i = 0; i < ARRAY_LENGTH(lengths); i++)
		assert_norm(values, lengths[i]);
	/* Infinite in the second block, no number in the third. */
	values[65536 + 77] = INFINITY;
	values[2 * 65536 + 3] = NAN;
	assert_norm(values, 8 * 65536 + 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_update_has_the_bits_of_the_processor),
		cmocka_unit_test(every_norm_has_the_bits_of_the_processor),
	};
	const char *why = place_open();

	if (why) {
		printf("skipped: %s\n", why);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
