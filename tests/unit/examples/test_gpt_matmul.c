#include "tests/unit/gpt_support.h"

#include "kernels.h"
#include "matmul.h"
#include "random.h"

#define MOST 400

static float *random_matrix(uint64_t stream)
{
	float *values = malloc(MOST * MOST * sizeof(float));

	assert_non_null(values);
	for (size_t i = 0; i < MOST * MOST; i++)
		values[i] = random_normal(stream, i);
	return values;
}

static void round_to_bf16(const float *values, uint16_t *ret_values)
{
	for (size_t i = 0; i < MOST * MOST; i++)
		ret_values[i] = number_to_bf16(values[i]);
}

static float element(const struct matrix *matrix, size_t i, size_t j)
{
	return number_load(matrix->data, matrix->format,
			   matrix->is_transposed ? j * matrix->stride + i : i * matrix->stride + j);
}

/* One fma after the other: what every kernel must come to. */
static float expected(const struct product *product, size_t i, size_t j, float before)
{
	float sum = 0.0f;

	for (size_t k = 0; k < product->depth; k++)
		sum = __builtin_fmaf(element(&product->a, i, k), element(&product->b, k, j), sum);
	if (product->bias)
		sum += number_load(product->bias, product->bias_format, j);
	return product->is_added ? sum + before : sum;
}

static void check(struct team *team, struct product *product)
{
	_cleanup_free_ float *before = random_matrix(3), *c = random_matrix(3);

	product->c = c;
	product->c_stride = product->columns;
	matmul(team, product);
	for (size_t i = 0; i < product->rows; i += 1 + product->rows / 40) {
		for (size_t j = 0; j < product->columns; j += 1 + product->columns / 40) {
			size_t at = i * product->columns + j;
			float value = expected(product, i, j, before[at]);

			if (product->c_format == NUMBER_BF16)
				assert_int_equal(((uint16_t *)c)[at], number_to_bf16(value));
			else
				assert_int_equal(number_bits(c[at]), number_bits(value));
		}
	}
}

static void a_product_is_a_chain_of_fma_in_every_layout(void **state)
{
	static const size_t sizes[][3] = {
		{ 1, 1, 1 }, { 12, 32, 16 }, { 13, 33, 17 }, { 250, 270, 260 }, { 5, 300, 300 }
	};
	_cleanup_free_ float *a = random_matrix(1), *b = random_matrix(2);
	_cleanup_free_ uint16_t *narrow = malloc(MOST * MOST * sizeof(uint16_t));
	struct team *team;

	assert_non_null(narrow);
	round_to_bf16(b, narrow);
	kernels_choose();
	assert_int_equal(team_new(3, matmul_scratch_bytes(), &team), 0);
	for (unsigned layout = 0; layout < 32 * ARRAY_LENGTH(sizes); layout++) {
		const size_t *size = sizes[layout / 32];
		struct product product = {
			.rows = size[0],
			.columns = size[1],
			.depth = size[2],
			.a = { a, NUMBER_FP32, MOST, layout & 1 },
			.b = { layout & 4 ? (const void *)narrow : b, layout & 4 ? NUMBER_BF16 : NUMBER_FP32,
			       MOST, layout >> 1 & 1 },
			.c_format = layout & 8 ? NUMBER_BF16 : NUMBER_FP32,
			.bias = layout & 16 ? a : NULL,
			.is_added = layout & 16 && !(layout & 8),
		};

		check(team, &product);
	}
	team_free(team);
}

static void bf16_rounds_half_away_from_zero(void **state)
{
	assert_int_equal(number_to_bf16(number_from_bits(0x3f808000)), 0x3f81);
	assert_int_equal(number_to_bf16(number_from_bits(0xbf808000)), 0xbf81);
	assert_int_equal(number_to_bf16(number_from_bits(0x3f807fff)), 0x3f80);
	assert_int_equal(number_to_bf16(number_from_bits(0x7f7fffff)), 0x7f80);
	assert_true((number_to_bf16(number_from_bits(0x7f800001)) & 0x7fff) > 0x7f80);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_product_is_a_chain_of_fma_in_every_layout),
		cmocka_unit_test(bf16_rounds_half_away_from_zero),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
