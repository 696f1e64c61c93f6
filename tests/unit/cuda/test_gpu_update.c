/* Updates on a GPU have the bits of the processor's, wherever the state lies, in whatever chunks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offload/optimizer/norm.h"
#include "tests/unit/cuda/kernel_place.h"
#include "tests/unit/cuda/update_desk.h"
#include "tests/unit/kernel_support.h"

/* Of each stream a few hundred elements fit. */
#define CHUNK_BYTES GPU_UPDATES_LEAST_BYTES

static void check(struct desk *desk, const char *optimizer, enum master_kind kind, enum moment_format format,
		  unsigned number)
{
	static const size_t counts[] = { 1, 255, 257, 2305, 5003 };
	struct sample sample =
		sample_new(optimizer, kind, format, counts[number % ARRAY_LENGTH(counts)], number);
	struct test_update test;

	test_update_init(desk, &test, &sample, number % PLACES, 0);
	gpu_updater_update(desk->updater, &test.update);
	if (test_update_wait(desk, &test) < 0)
		fail_msg("%s", test.update.pass.problem.text);
	test_update_check(desk, &test);
	sample_free(&sample);
}

static void every_update_has_the_bits_of_the_processor(void **state)
{
	unsigned number = 0;
	struct desk desk;

	desk_open(&desk, CHUNK_BYTES);
	for (unsigned i = 0; i < 2 * SAMPLE_OPTIMIZERS; i++)
		for (unsigned kind = 0; kind < MASTER_KINDS; kind++)
			for (unsigned format = 0; format < MOMENT_FORMATS; format++)
				check(&desk, sample_optimizers[i % SAMPLE_OPTIMIZERS], kind, format,
				      number++);
	desk_close(&desk);
}

#define AT_ONCE 4

/* Their chunks share streams and memory. */
static void updates_at_once_have_the_same_bits(void **state)
{
	struct sample samples[AT_ONCE];
	struct test_update tests[AT_ONCE];
	struct desk desk;

	desk_open(&desk, CHUNK_BYTES);
	for (unsigned i = 0; i < AT_ONCE; i++) {
		samples[i] = sample_new("adamw", i % MASTER_KINDS, i % MOMENT_FORMATS, 5000 + i, i);
		test_update_init(&desk, &tests[i], &samples[i], IN_HOST, i * DESK_BYTES / AT_ONCE);
	}
	for (unsigned i = 0; i < AT_ONCE; i++)
		gpu_updater_update(desk.updater, &tests[i].update);
	for (unsigned i = 0; i < AT_ONCE; i++)
		assert_int_equal(test_update_wait(&desk, &tests[i]), 0);
	for (unsigned i = 0; i < AT_ONCE; i++) {
		test_update_check(&desk, &tests[i]);
		sample_free(&samples[i]);
	}
	desk_close(&desk);
}

/* Gradients in the parameters' format, as they were pushed. */
static void check_narrow(struct desk *desk, enum master_kind kind, enum moment_format format, unsigned number)
{
	struct sample sample = sample_new("adamw", kind, format, 2305, number);
	float *gradient = sample.before.arrays[GRADIENT];
	uint16_t narrow[2305];
	float beside[2305];
	struct test_update test;

	format_keep(kind, gradient, sample.count, narrow, beside);
	format_widen(kind, narrow, sample.count, gradient);
	test_update_init(desk, &test, &sample, IN_HOST, 0);
	test.update.is_narrow = true;
	memcpy(test.host[GRADIENT], narrow, sizeof(narrow));
	gpu_updater_update(desk->updater, &test.update);
	assert_int_equal(test_update_wait(desk, &test), 0);
	memcpy(test.host[GRADIENT], gradient, sample.bytes[GRADIENT]);
	test_update_check(desk, &test);
	sample_free(&sample);
}

static void gradients_as_they_were_pushed_give_the_same_bits(void **state)
{
	struct desk desk;

	desk_open(&desk, CHUNK_BYTES);
	for (unsigned format = 0; format < MOMENT_FORMATS; format++) {
		check_narrow(&desk, MASTER_SPLIT, format, format);
		check_narrow(&desk, MASTER_BESIDE, format, format + 1);
	}
	desk_close(&desk);
}

/* The gradients have none. */
static void add_mirrors(struct desk *desk, struct test_update *test)
{
	struct gpu_array *arrays[ARRAYS] = { [PARAMETER] = &test->update.parameter,
					     [MASTER] = &test->update.master,
					     [SLOTS] = &test->update.slots[0],
					     [SLOTS + 1] = &test->update.slots[1] };
	driver_address at = desk->state.address;

	for (unsigned i = 0; i < ARRAYS; i++) {
		if (!arrays[i] || test->sample->bytes[i] == 0)
			continue;
		arrays[i]->mirror = at;
		at += (test->sample->bytes[i] + 255) / 256 * 256;
	}
}

/* What the update after it begins with; the host forgets it. */
static void go_on_from_mirrors(struct sample *sample, struct test_update *test)
{
	for (unsigned i = 0; i < ARRAYS; i++) {
		if (i == GRADIENT || sample->bytes[i] == 0)
			continue;
		memcpy(sample->before.arrays[i], test->host[i], sample->bytes[i]);
		memset(test->host[i], 0x5a, sample->bytes[i]);
	}
	test->update.is_mirrored = true;
	test->ending.count = 0;
}

static void check_mirrors(struct desk *desk, enum master_kind kind, enum moment_format format,
			  unsigned number)
{
	struct sample sample = sample_new("adamw", kind, format, 5003, number);
	struct gpu_pass *pass;
	struct test_update test;
	uint64_t first_bytes;

	test_update_init(desk, &test, &sample, IN_HOST, 0);
	pass = &test.update.pass;
	add_mirrors(desk, &test);
	for (unsigned i = 0; i < 3; i++) {
		gpu_updater_update(desk->updater, &test.update);
		assert_int_equal(test_update_wait(desk, &test), 0);
		test_update_check(desk, &test);
		if (i == 0) {
			assert_int_equal(pass->spared, 0);
			first_bytes = pass->moved[GPU_FROM_HOST];
		} else {
			assert_int_equal(pass->moved[GPU_FROM_HOST], sample.bytes[GRADIENT]);
			assert_int_equal(pass->spared, first_bytes - sample.bytes[GRADIENT]);
		}
		go_on_from_mirrors(&sample, &test);
	}
	sample_free(&sample);
}

static void mirrors_have_what_the_host_has_and_are_not_copied_again(void **state)
{
	unsigned number = 0;
	struct desk desk;

	desk_open(&desk, CHUNK_BYTES);
	for (unsigned kind = 0; kind < MASTER_KINDS; kind++)
		for (unsigned format = 0; format < MOMENT_FORMATS; format++)
			check_mirrors(&desk, kind, format, number++);
	desk_close(&desk);
}

static void an_update_of_nothing_is_done(void **state)
{
	struct sample sample = sample_new("adamw", MASTER_SPLIT, MOMENTS_FP32, 1, 0);
	struct test_update test;
	struct desk desk;

	desk_open(&desk, CHUNK_BYTES);
	test_update_init(&desk, &test, &sample, IN_HOST, 0);
	test.update.pass.count = 0;
	gpu_updater_update(desk.updater, &test.update);
	assert_int_equal(test.ending.count, 0);
	assert_int_equal(test_update_wait(&desk, &test), 0);
	assert_memory_equal(test.host[MASTER], sample.before.arrays[MASTER], sample.bytes[MASTER]);
	sample_free(&sample);
	desk_close(&desk);
}

struct test_norm {
	struct gpu_norm norm;
	struct gpu_ending ending;
};

static void note_norm(struct gpu_pass *pass, int status)
{
	struct test_norm *test = container_of(pass, struct test_norm, norm.pass);

	test->ending.count++;
	test->ending.status = status;
}

static double expected_sum(const float *values, size_t count)
{
	double lanes[NORM_LANES] = { 0 };

	norm_find_kernel(simd_level())(lanes, values, count);
	return norm_combine(lanes);
}

/* The sums lie behind the values. */
static void check_norm(struct desk *desk, size_t count, bool is_on_gpu)
{
	size_t blocks = (count + NORM_BLOCK_ELEMENTS - 1) / NORM_BLOCK_ELEMENTS;
	size_t offset = (count * sizeof(float) + 15) / 16 * 16, bytes = offset + blocks * sizeof(double);
	driver_address base = is_on_gpu ? desk->state.address : host_address(desk->host);
	float *values = (float *)desk->host;
	double *sums = (double *)(desk->host + offset);
	struct test_norm test = { .norm = { .pass = { .done = note_norm, .count = count },
					    .values = { base, is_on_gpu },
					    .sums = { base + offset, is_on_gpu } } };

	for (size_t i = 0; i < count; i++)
		values[i] = random_ordinary(3);
	memset(sums, 0xff, blocks * sizeof(double));
	if (is_on_gpu)
		assert_int_equal(gpu_copy_now(desk->engine, GPU_FROM_HOST, base, host_address(values), bytes),
				 0);
	gpu_updater_norm(desk->updater, &test.norm);
	while (test.ending.count == 0)
		gpu_reap_once(desk->engine);
	assert_int_equal(test.ending.status, 0);
	if (is_on_gpu)
		assert_int_equal(gpu_copy_now(desk->engine, GPU_TO_HOST, host_address(values), base, bytes),
				 0);
	for (size_t i = 0, first = 0; i < blocks; i++, first += NORM_BLOCK_ELEMENTS) {
		size_t length = count - first < NORM_BLOCK_ELEMENTS ? count - first : NORM_BLOCK_ELEMENTS;
		double expected = expected_sum(values + first, length);

		assert_memory_equal(&sums[i], &expected, sizeof(expected));
	}
}

static void every_norm_has_the_bits_of_the_processor(void **state)
{
	static const size_t counts[] = { 1, 65536, 4 * 65536 + 17 };
	struct desk desk;

	desk_open(&desk, GPU_NORMS_LEAST_BYTES);
	for (size_t i = 0; i < ARRAY_LENGTH(counts); i++) {
		check_norm(&desk, counts[i], false);
		check_norm(&desk, counts[i], true);
	}
	desk_close(&desk);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_update_has_the_bits_of_the_processor),
		cmocka_unit_test(updates_at_once_have_the_same_bits),
		cmocka_unit_test(gradients_as_they_were_pushed_give_the_same_bits),
		cmocka_unit_test(mirrors_have_what_the_host_has_and_are_not_copied_again),
		cmocka_unit_test(an_update_of_nothing_is_done),
		cmocka_unit_test(every_norm_has_the_bits_of_the_processor),
	};
	const char *why = place_open();

	if (why) {
		printf("skipped: %s\n", why);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
