#include "tests/unit/gpt_support.h"

#include <math.h>

#include "kernels.h"
#include "plain_unit.h"
#include "random.h"

#define RANKS 3
#define PUSHED 0.7109375f /* exact in bf16 */

/* One unit of a bf16 matrix and an fp32 vector, and what three ranks push. */
struct one_unit {
	struct unit description;
	struct plain_unit unit;
	struct team *team;
};

static void one_unit_open(struct one_unit *one, unsigned stage)
{
	*one = (struct one_unit){ .description = { .name = "unit", .tensor_count = 2 } };
	one->description.tensors[0] =
		(struct tensor){ .format = NUMBER_FP32, .dimensions = 1, .shape = { 100 } };
	one->description.tensors[1] =
		(struct tensor){ .format = NUMBER_BF16, .dimensions = 2, .shape = { 700, 310 } };
	kernels_choose();
	assert_int_equal(team_new(2, 64, &one->team), 0);
	assert_int_equal(plain_unit_open(&one->description, RANKS, stage, &one->unit), 0);
}

static void one_unit_close(struct one_unit *one)
{
	plain_unit_close(&one->unit);
	one->team = team_free(one->team);
}

static float pushed(unsigned rank, unsigned micro_batch, uint64_t index)
{
	return number_from_bf16(number_to_bf16(random_normal(rank * 10 + micro_batch, index)));
}

static void push(struct one_unit *one, unsigned rank, unsigned micro_batch)
{
	struct plain_gradients *gradients = plain_gradients_new(&one->unit);
	struct unit_view view = plain_unit_gradients(&one->unit, gradients);

	for (unsigned tensor = 0; tensor < 2; tensor++) {
		const struct tensor *description = &one->description.tensors[tensor];

		for (uint64_t i = 0; i < tensor_elements(description); i++)
			number_store(view.tensor[tensor], description->format, i,
				     pushed(rank, micro_batch, tensor * 1000000 + i));
	}
	assert_int_equal(plain_unit_push(&one->unit, one->team, rank, gradients), 0);
}

static double finish(struct one_unit *one)
{
	double sum = 0.0;

	assert_int_equal(plain_unit_finish_sum(&one->unit, one->team, &sum), 0);
	return sum;
}

static float tree(unsigned micro_batch, uint64_t index)
{
	return (pushed(0, micro_batch, index) + pushed(1, micro_batch, index)) +
	       pushed(2, micro_batch, index);
}

static void elements_are_numbered_through_the_bf16_section_first(void **state)
{
	struct one_unit one;

	one_unit_open(&one, 2);
	assert_int_equal(one.unit.offset[1], 0);
	assert_int_equal(one.unit.narrow_elements, 217088);
	assert_int_equal(one.unit.offset[0], 217088);
	assert_int_equal(one.unit.elements, 217088 + 256);
	one_unit_close(&one);
}

static void stage_2_sums_each_micro_batch_over_the_ranks(void **state)
{
	struct one_unit one;

	one_unit_open(&one, 2);
	/* Rank 2 comes late, rank 0 is a micro-batch ahead. */
	push(&one, 0, 0);
	push(&one, 0, 1);
	push(&one, 1, 0);
	push(&one, 2, 0);
	push(&one, 2, 1);
	push(&one, 1, 1);
	finish(&one);
	for (uint64_t i = 0; i < 700 * 310; i++)
		assert_int_equal(number_bits(one.unit.sum[i]),
				 number_bits(tree(0, 1000000 + i) + tree(1, 1000000 + i)));
	one_unit_close(&one);
}

static void stage_1_sums_the_micro_batches_of_each_rank_first(void **state)
{
	struct one_unit one;

	one_unit_open(&one, 1);
	for (unsigned rank = 0; rank < RANKS; rank++) {
		push(&one, rank, 0);
		push(&one, rank, 1);
	}
	finish(&one);
	for (uint64_t i = 0; i < 100; i++) {
		float own[RANKS];

		for (unsigned rank = 0; rank < RANKS; rank++)
			own[rank] = pushed(rank, 0, i) + pushed(rank, 1, i);
		assert_int_equal(number_bits(one.unit.sum[one.unit.offset[0] + i]),
				 number_bits((own[0] + own[1]) + own[2]));
	}
	one_unit_close(&one);
}

static void all_stages_sum_one_micro_batch_alike(void **state)
{
	struct one_unit one[4];
	double sum[4];

	for (unsigned stage = 0; stage < 4; stage++) {
		one_unit_open(&one[stage], stage);
		for (unsigned rank = 0; rank < RANKS; rank++)
			push(&one[stage], rank, 0);
		sum[stage] = finish(&one[stage]);
		assert_true(sum[stage] == sum[0]);
		assert_memory_equal(one[stage].unit.sum, one[0].unit.sum,
				    one[0].unit.elements * sizeof(float));
	}
	for (unsigned stage = 0; stage < 4; stage++)
		one_unit_close(&one[stage]);
}

static void an_absent_rank_contributes_nothing(void **state)
{
	for (unsigned stage = 1; stage <= 2; stage++) {
		struct one_unit one;

		one_unit_open(&one, stage);
		push(&one, 2, 0);
		push(&one, 0, 0);
		finish(&one);
		for (uint64_t i = 0; i < 100; i++)
			assert_int_equal(number_bits(one.unit.sum[one.unit.offset[0] + i]),
					 number_bits(pushed(0, 0, i) + pushed(2, 0, i)));
		one_unit_close(&one);
	}
}

static void a_unit_that_nobody_pushed_has_no_sum(void **state)
{
	for (unsigned stage = 1; stage <= 2; stage++) {
		struct one_unit one;

		one_unit_open(&one, stage);
		assert_true(finish(&one) == 0.0);
		assert_false(one.unit.has_sum);
		one_unit_close(&one);
	}
}

static void the_norm_adds_blocks_of_each_shard(void **state)
{
	struct one_unit one;
	double expected = 0.0;

	one_unit_open(&one, 2);
	for (unsigned rank = 0; rank < RANKS; rank++)
		push(&one, rank, 0);
	double found = finish(&one);

	for (uint64_t rank = 0; rank < RANKS; rank++) {
		uint64_t first = 849 * rank / RANKS * 256, end = 849 * (rank + 1) / RANKS * 256;

		for (; first < end; first += 65536) {
			uint64_t stop = first + 65536 < end ? first + 65536 : end;
			double lanes[16] = { 0 };

			for (uint64_t i = first; i < stop; i++)
				lanes[(i - first) % 16] += (double)one.unit.sum[i] * one.unit.sum[i];
			for (unsigned half = 8; half > 0; half /= 2) {
				for (unsigned i = 0; i < half; i++)
					lanes[i] += lanes[i + half];
			}
			expected += lanes[0];
		}
	}
	assert_true(found == expected && found > 0.0);
	one_unit_close(&one);
}

/* AdamW of one element, as docs/numerics.md writes it. */
static void check_update(const struct fixture *fixture, const float *before, float gradient, double factor)
{
	float g = gradient * (float)factor, beta1 = 0.9f, beta2 = 0.95f;
	float m = __builtin_fmaf(beta1, 0.0f, (float)(1.0 - (double)beta1) * g);
	float v = __builtin_fmaf(beta2, 0.0f, (float)(1.0 - (double)beta2) * g * g);
	float step = (float)((double)1e-3f / (1.0 - (double)beta1));
	float scale = (float)(1.0 / sqrt(1.0 - (double)beta2));
	float decay = (float)(1.0 - (double)1e-3f * (double)0.1f), found[3];
	float p = __builtin_fmaf(-step, m / __builtin_fmaf(sqrtf(v), scale, 1e-8f), *before * decay);

	for (unsigned state = STATE_MASTER; state <= STATE_SLOT_1; state++)
		assert_int_equal(fixture->backend->ops->read(fixture->backend, 1, LAYER_UP_WEIGHT, state, 77,
							     1, &found[state - STATE_MASTER]),
				 0);
	assert_int_equal(number_bits(found[0]), number_bits(p));
	assert_int_equal(number_bits(found[1]), number_bits(m));
	assert_int_equal(number_bits(found[2]), number_bits(v));
}

static void push_constant(struct fixture *fixture, unsigned unit, float value)
{
	struct unit_view view;

	assert_int_equal(backend_gradients(fixture->backend, unit, &view), 0);
	for (unsigned i = 0; i < fixture->model->units[unit].tensor_count; i++) {
		const struct tensor *tensor = &fixture->model->units[unit].tensors[i];

		for (uint64_t j = 0; j < tensor_elements(tensor); j++)
			number_store(view.tensor[i], tensor->format, j, value);
	}
	assert_int_equal(backend_push(fixture->backend, unit), 0);
}

static void a_step_clips_and_updates_as_the_document_says(void **state)
{
	struct options options = small_options();
	struct fixture fixture;
	struct backend_result result;
	float before;

	options.format = NUMBER_BF16;
	fixture_open(&fixture, &options);
	fixture.backend->ops->read(fixture.backend, 1, LAYER_UP_WEIGHT, STATE_MASTER, 77, 1, &before);
	push_constant(&fixture, 1, PUSHED);
	result = fixture_step(&fixture);
	/* A layer of width 32 has 12 · 32² + 13 · 32 elements. */
	assert_true(result.gradient_norm == sqrt((double)PUSHED * PUSHED * 12704));
	assert_int_equal(result.step, 1);
	check_update(&fixture, &before, PUSHED, 1.0 / (sqrt((double)PUSHED * PUSHED * 12704) + 1e-6));
	fixture_close(&fixture);
}

static void a_step_with_a_nan_counts_and_updates_nothing(void **state)
{
	struct options options = small_options();
	struct fixture fixture;
	struct backend_result result;
	uint64_t hash;

	fixture_open(&fixture, &options);
	hash = fixture_hash(&fixture);
	push_constant(&fixture, 1, NAN);
	result = fixture_step(&fixture);
	assert_true(result.is_skipped);
	assert_int_equal(result.step, 1);
	assert_true(fixture_hash(&fixture) == hash);
	push_constant(&fixture, 1, 1.0f);
	assert_false(fixture_step(&fixture).is_skipped);
	assert_true(fixture_hash(&fixture) != hash);
	fixture_close(&fixture);
}

static void fp16_is_rounded_to_nearest_even(void **state)
{
	static const struct {
		float value;
		uint16_t half;
	} cases[] = {
		{ 1.0f, 0x3c00 },	  { -2.5f, 0xc100 },	       { 0x1.002p0f, 0x3c00 },
		{ 0x1.006p0f, 0x3c02 },	  { 65504.0f, 0x7bff },	       { 65519.0f, 0x7bff },
		{ 65520.0f, 0x7c00 },	  { -INFINITY, 0xfc00 },       { 0x1p-24f, 0x0001 },
		{ 0x1p-25f, 0x0000 },	  { 0x1.8p-24f, 0x0002 },      { 0x1p-14f, 0x0400 },
		{ 0x1.ff8p-15f, 0x03ff }, { 0x1.fffffep-15f, 0x0400 }, { -0.0f, 0x8000 },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
		assert_int_equal(number_to_fp16(cases[i].value), cases[i].half);
	assert_true(isnan(number_from_fp16(number_to_fp16(NAN))));
	for (uint32_t half = 0; half <= 0x7c00; half++)
		assert_int_equal(number_to_fp16(number_from_fp16((uint16_t)half)), half);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fp16_is_rounded_to_nearest_even),
		cmocka_unit_test(elements_are_numbered_through_the_bf16_section_first),
		cmocka_unit_test(stage_2_sums_each_micro_batch_over_the_ranks),
		cmocka_unit_test(stage_1_sums_the_micro_batches_of_each_rank_first),
		cmocka_unit_test(all_stages_sum_one_micro_batch_alike),
		cmocka_unit_test(an_absent_rank_contributes_nothing),
		cmocka_unit_test(a_unit_that_nobody_pushed_has_no_sum),
		cmocka_unit_test(the_norm_adds_blocks_of_each_shard),
		cmocka_unit_test(a_step_clips_and_updates_as_the_document_says),
		cmocka_unit_test(a_step_with_a_nan_counts_and_updates_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
