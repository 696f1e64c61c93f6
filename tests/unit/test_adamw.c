#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "offload/adamw.h"
#include "tests/unit/kernel_support.h"

struct element {
	float p, m, v;
};

/* docs/numerics.md, line by line. */
static struct element updated(const struct adamw_constants *c, struct element old, float a)
{
	struct element new;
	float g = a * c->factor;
	float m_part = c->beta1_rest * g;
	float v_part = c->beta2_rest * g;
	float denominator, decayed = old.p * c->decay;

	v_part = v_part * g;
	new.m = fmaf(c->beta1, old.m, m_part);
	new.v = fmaf(c->beta2, old.v, v_part);
	denominator = fmaf(sqrtf(new.v), c->scale, c->epsilon);
	new.p = fmaf(-c->step, new.m / denominator, decayed);
	return new;
}

struct arrays {
	size_t count;
	uint16_t *parameter;
	int16_t *remainder;
	float *p, *m, *v, *gradient;
	struct element *expected;
};

static struct arrays arrays_new(size_t count, const struct adamw_constants *constants)
{
	struct arrays arrays = {
		.count = count,
		.parameter = allocate(count * sizeof(uint16_t)),
		.remainder = allocate(count * sizeof(int16_t)),
		.p = allocate_floats(count),
		.m = allocate_floats(count),
		.v = allocate_floats(count),
		.gradient = allocate_floats(count),
		.expected = allocate(count * sizeof(struct element)),
	};

	for (size_t i = 0; i < count; i++) {
		struct element old = { random_any(), random_any(), random_any() };
		uint16_t high = (uint16_t)((float_bits(old.p) + 0x8000) >> 16);

		if (random_bits() % 4 > 0)
			old.v = fabsf(old.v);
		arrays.p[i] = old.p;
		arrays.parameter[i] = high;
		arrays.remainder[i] = (int16_t)(int32_t)(float_bits(old.p) - ((uint32_t)high << 16));
		arrays.m[i] = old.m;
		arrays.v[i] = old.v;
		arrays.gradient[i] = random_any();
		arrays.expected[i] = updated(constants, old, arrays.gradient[i]);
	}
	return arrays;
}

static void arrays_free(struct arrays *arrays)
{
	free(arrays->parameter);
	free(arrays->remainder);
	free(arrays->p);
	free(arrays->m);
	free(arrays->v);
	free(arrays->gradient);
	free(arrays->expected);
}

static void assert_moments(const struct arrays *arrays)
{
	for (size_t i = 0; i < arrays->count; i++) {
		assert_true(is_same(arrays->m[i], arrays->expected[i].m));
		assert_true(is_same(arrays->v[i], arrays->expected[i].v));
	}
}

static void assert_split(const struct arrays *arrays)
{
	for (size_t i = 0; i < arrays->count; i++) {
		uint32_t bits = float_bits(arrays->expected[i].p);
		uint16_t high = (uint16_t)((bits + 0x8000) >> 16);
		uint32_t joined =
			((uint32_t)arrays->parameter[i] << 16) + (uint32_t)(int32_t)arrays->remainder[i];

		if (isnan(arrays->expected[i].p)) {
			assert_true(isnan(float_from_bits((uint32_t)arrays->parameter[i] << 16)));
			assert_true(isnan(float_from_bits(joined)));
			continue;
		}
		assert_int_equal(arrays->parameter[i], high);
		assert_int_equal(joined, bits);
	}
}

static const struct adamw_constants *some_constants(unsigned number)
{
	static struct adamw_constants constants;
	static const struct adamw_rates rates[] = {
		{ 1e-3, 0.9f, 0.999f, 1e-8f, 0.01f },
		{ 3e-4, 0.9f, 0.95f, 1e-10f, 0.1f },
		{ 1e-2, 0.0f, 0.0f, 0.0f, 0.0f },
		{ 0.0, 0.9f, 0.999f, 1e-8f, 0.5f },
	};

	adamw_constants(&rates[number % 4], 1 + number * 7, number % 3 == 0 ? 1.0f : 0.37f, &constants);
	return &constants;
}

static void split_kernels_follow_the_document(void **state)
{
	FOREACH_LEVEL(level)
	for (unsigned i = 0; i < ARRAY_LENGTH(kernel_counts); i++) {
		const struct adamw_constants *constants = some_constants(i);
		struct arrays arrays = arrays_new(kernel_counts[i], constants);

		adamw_kernels(level)->split(constants, arrays.count, arrays.parameter, arrays.remainder,
					    arrays.m, arrays.v, arrays.gradient);
		assert_moments(&arrays);
		assert_split(&arrays);
		arrays_free(&arrays);
	}
}

static void fp32_kernels_follow_the_document(void **state)
{
	FOREACH_LEVEL(level)
	for (unsigned i = 0; i < ARRAY_LENGTH(kernel_counts); i++) {
		const struct adamw_constants *constants = some_constants(i);
		struct arrays arrays = arrays_new(kernel_counts[i], constants);

		adamw_kernels(level)->fp32(constants, arrays.count, arrays.p, arrays.m, arrays.v,
					   arrays.gradient);
		assert_moments(&arrays);
		for (size_t j = 0; j < arrays.count; j++)
			assert_true(is_same(arrays.p[j], arrays.expected[j].p));
		arrays_free(&arrays);
	}
}

static void any_alignment_of_elements_will_do(void **state)
{
	const struct adamw_constants *constants = some_constants(1);

	FOREACH_LEVEL(level)
	for (size_t skip = 1; skip < 16; skip++) {
		struct arrays arrays = arrays_new(200, constants);

		adamw_kernels(level)->split(constants, skip, arrays.parameter, arrays.remainder, arrays.m,
					    arrays.v, arrays.gradient);
		adamw_kernels(level)->split(constants, arrays.count - skip, arrays.parameter + skip,
					    arrays.remainder + skip, arrays.m + skip, arrays.v + skip,
					    arrays.gradient + skip);
		assert_moments(&arrays);
		assert_split(&arrays);
		arrays_free(&arrays);
	}
}

static void constants_are_rounded_once(void **state)
{
	const struct adamw_rates rates = { 2e-3, 0.9f, 0.999f, 1e-8f, 0.1f };
	double beta1 = 0.9f, beta2 = 0.999f;
	struct adamw_constants constants;

	adamw_constants(&rates, 5, 0.25f, &constants);
	assert_true(constants.factor == 0.25f);
	assert_true(constants.beta1 == 0.9f && constants.beta2 == 0.999f && constants.epsilon == 1e-8f);
	assert_true(constants.beta1_rest == (float)(1.0 - beta1));
	assert_true(constants.beta2_rest == (float)(1.0 - beta2));
	assert_true(constants.decay == (float)(1.0 - 2e-3 * (double)0.1f));

	/* 5 = 4 + 1: first the base itself, then its square squared. */
	double square1 = beta1 * beta1, square2 = beta2 * beta2;

	assert_true(constants.step == (float)(2e-3 / (1.0 - beta1 * (square1 * square1))));
	assert_true(constants.scale == (float)(1.0 / sqrt(1.0 - beta2 * (square2 * square2))));
}

static void late_updates_need_no_correction(void **state)
{
	const struct adamw_rates rates = { 1.0, 0.9f, 0.999f, 1e-8f, 0.0f };
	struct adamw_constants constants;

	adamw_constants(&rates, UINT64_C(1) << 40, 1.0f, &constants);
	assert_true(constants.step == 1.0f);
	assert_true(constants.scale == 1.0f);
}

/* Against the textbook, in fp64, with another order of operations. */
static void many_updates_follow_the_paper(void **state)
{
	const struct adamw_rates rates = { 1e-2, 0.9f, 0.999f, 1e-8f, 0.1f };
	float p = 0.5f, m = 0, v = 0;
	double exact_p = 0.5, exact_m = 0, exact_v = 0;

	for (int t = 1; t <= 100; t++) {
		float gradient = random_ordinary(1);
		struct adamw_constants constants;

		adamw_constants(&rates, (uint64_t)t, 1.0f, &constants);
		adamw_kernels(simd_level())->fp32(&constants, 1, &p, &m, &v, &gradient);

		exact_m = 0.9 * exact_m + 0.1 * gradient;
		exact_v = 0.999 * exact_v + 0.001 * gradient * gradient;
		exact_p -=
			1e-2 * (exact_m / (1 - pow(0.9, t)) / (sqrt(exact_v / (1 - pow(0.999, t))) + 1e-8) +
				0.1 * exact_p);
		assert_true(fabs(p - exact_p) < 1e-5);
	}
	assert_true(fabs(exact_p - 0.5) > 1e-3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(split_kernels_follow_the_document),
		cmocka_unit_test(fp32_kernels_follow_the_document),
		cmocka_unit_test(any_alignment_of_elements_will_do),
		cmocka_unit_test(constants_are_rounded_once),
		cmocka_unit_test(late_updates_need_no_correction),
		cmocka_unit_test(many_updates_follow_the_paper),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
