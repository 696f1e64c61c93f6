#include <errno.h>
#include <stdlib.h>

#include "client/tierctl/plan_gpu.h"
#include "common/cleanup.h"
#include "common/size.h"
#include "tests/unit/test.h"

/* ---- Units ---- */

static struct tierd_tensor tensor_of(uint32_t format, uint64_t elements)
{
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;

	tensor.name = "weight";
	tensor.format = format;
	tensor.shape[0] = elements;
	tensor.dimensions = 1;
	return tensor;
}

static void add(Tierd__Wire__PlanRequest *units, const char *name, const struct tierd_tensor *tensor)
{
	assert_int_equal(plan_units_add(units, name), 0);
	assert_int_equal(plan_units_add_tensor(units, tensor), 0);
}

static Tierd__Wire__PlanRequest *make(void)
{
	Tierd__Wire__PlanRequest *units = malloc(sizeof(*units));

	assert_non_null(units);
	tierd__wire__plan_request__init(units);
	return units;
}

/* Of bf16: so many units of so many elements. */
static Tierd__Wire__PlanRequest *make_alike(unsigned count, uint64_t elements)
{
	Tierd__Wire__PlanRequest *units = make();
	struct tierd_tensor tensor = tensor_of(TIERD_BF16, elements);

	for (unsigned i = 0; i < count; i++)
		add(units, "layer", &tensor);
	return units;
}

static struct plan_gpu_bounds bound(const struct plan_gpus *gpus, Tierd__Wire__PlanRequest *units,
				    unsigned micro_batches)
{
	struct plan_gpu_bounds bounds;

	assert_int_equal(plan_gpu_bounds(gpus, &units, 1, micro_batches, &bounds), 0);
	tierd__wire__plan_request__free_unpacked(units, NULL);
	/* It went with them. */
	bounds.largest = NULL;
	return bounds;
}

static const struct plan_gpus one = { .count = 1, .ranks = 1, .bytes = 6000, .pcie_rate = 1000 };

/* ---- Flags ---- */

static void gpus_are_a_count_and_a_size_or_a_size(void **state)
{
	struct plan_gpus gpus = { 0 };

	assert_int_equal(plan_gpus_parse("4x24G", &gpus), 0);
	assert_int_equal(gpus.count, 4);
	assert_int_equal(gpus.bytes, 24 * GIB);
	assert_int_equal(plan_gpus_parse("80G", &gpus), 0);
	assert_int_equal(gpus.count, 0);
	assert_int_equal(gpus.bytes, 80 * GIB);
}

static void gpus_that_are_none_are_refused(void **state)
{
	static const struct {
		const char *text;
		int r;
	} wrong[] = {
		{ "", -EINVAL },
		{ "x", -EINVAL },
		{ "x24G", -EINVAL },
		{ "4x", -EINVAL },
		{ "4x24Q", -EINVAL },
		{ "4 x24G", -EINVAL },
		{ "-4x24G", -EINVAL },
		{ "4x24Gx", -EINVAL },
		{ "4x2x24G", -EINVAL },
		{ "0x24G", -ERANGE },
		{ "1025x24G", -ERANGE },
		{ "4x0", -ERANGE },
		{ "99999999999999999999x24G", -ERANGE },
	};
	struct plan_gpus gpus = { .count = 7, .bytes = 77 };

	for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
		assert_int_equal(plan_gpus_parse(wrong[i].text, &gpus), wrong[i].r);
	assert_int_equal(gpus.count, 7);
	assert_int_equal(gpus.bytes, 77);
}

static void ranks_are_spread_evenly_over_gpus(void **state)
{
	static const struct {
		unsigned gpus, ranks, each, count;
		int r;
	} cases[] = {
		{ 4, 4, 1, 4, 0 },	 { 2, 8, 4, 2, 0 },	  { 0, 8, 1, 8, 0 },
		{ 4, 1, 0, 1, -EINVAL }, { 4, 6, 0, 3, -EINVAL }, { 2, 7, 0, 1, -EINVAL },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
		struct plan_gpus gpus = { .count = cases[i].gpus };
		unsigned count = 0;

		assert_int_equal(plan_gpus_spread(&gpus, cases[i].ranks, &count), cases[i].r);
		assert_int_equal(count, cases[i].count);
		assert_int_equal(gpus.ranks, cases[i].each);
		assert_int_equal(gpus.count, cases[i].r == 0 ? count : cases[i].gpus);
	}
}

/* ---- Memory ---- */

/* Beside two layers one embedding, which there are no two of; and a layer that is nearly as large is one. */
static void a_gpu_has_two_units_of_each_size(void **state)
{
	Tierd__Wire__PlanRequest *units = make_alike(3, 800);
	struct tierd_tensor embedding = tensor_of(TIERD_BF16, 5000), smaller = tensor_of(TIERD_BF16, 701),
			    small = tensor_of(TIERD_BF16, 700);
	struct plan_gpu_bounds bounds;

	add(units, "embedding", &embedding);
	add(units, "smaller", &smaller);
	add(units, "small", &small);
	bounds = bound(&one, units, 1);
	assert_true(bounds.low[PLAN_GPU_UNITS] == 10000 + 2 * 1600 + 1400);
	assert_true(bounds.high[PLAN_GPU_UNITS] == bounds.low[PLAN_GPU_UNITS]);
	assert_true(bounds.low[PLAN_GPU_GRADIENTS] == 10000 + 1600);
	assert_true(bounds.low[PLAN_GPU_BYTES] ==
		    bounds.low[PLAN_GPU_UNITS] + bounds.low[PLAN_GPU_GRADIENTS]);
	assert_true(bounds.largest_bytes == 10000);
}

static void a_single_unit_is_there_once(void **state)
{
	struct plan_gpu_bounds bounds = bound(&one, make_alike(1, 100), 1);

	assert_true(bounds.low[PLAN_GPU_BYTES] == 200 + 200);
}

/* What is frozen is gathered alone; sums in fp32 are sent as such. */
static void gradients_have_their_own_formats(void **state)
{
	Tierd__Wire__PlanRequest *units = make();
	struct tierd_tensor wide = tensor_of(TIERD_BF16, 100), frozen = tensor_of(TIERD_BYTES, 1000);
	struct plan_gpu_bounds bounds;

	wide.gradient_format = TIERD_FP32;
	frozen.is_frozen = true;
	add(units, "wide", &wide);
	assert_int_equal(plan_units_add_tensor(units, &frozen), 0);
	bounds = bound(&one, units, 1);
	assert_true(bounds.low[PLAN_GPU_UNITS] == 200 + 1000);
	assert_true(bounds.low[PLAN_GPU_GRADIENTS] == 400);
	assert_true(bounds.high[PLAN_GPU_TO] == 2 * 1200);
	assert_true(bounds.high[PLAN_GPU_FROM] == 400);
}

static void each_rank_on_a_gpu_has_copies_of_its_own(void **state)
{
	struct plan_gpus gpus = one;
	struct plan_gpu_bounds bounds;

	gpus.ranks = 3;
	gpus.bytes = 3 * 600;
	gpus.activation_bytes = 70;
	bounds = bound(&gpus, make_alike(2, 100), 1);
	assert_true(bounds.low[PLAN_GPU_UNITS] == 3 * 400);
	assert_true(bounds.low[PLAN_GPU_BYTES] == 3 * (400 + 400 + 70));
	assert_true(bounds.low[PLAN_GPU_TO] == 3 * (400 + 400 - (600 - 400 - 70)));
	assert_true(bounds.high[PLAN_GPU_TO] == 3 * 2 * 400);
	assert_true(bounds.high[PLAN_GPU_FROM] == 3 * 400);
}

/* ---- Copies ---- */

/* Ten units of 1000 bytes, of 4000 that are left beside the gradients of two: all go there after a step, and
 * six of them each time that forward and backward take turns. */
static void what_has_room_stays_at_least_and_nothing_at_most(void **state)
{
	struct plan_gpu_bounds bounds = bound(&one, make_alike(10, 500), 3);

	assert_true(bounds.low[PLAN_GPU_TO] == 10000 + 5 * 6000);
	assert_true(bounds.high[PLAN_GPU_TO] == 6 * 10000);
	assert_true(bounds.low[PLAN_GPU_FROM] == 3 * 10000);
	assert_true(bounds.high[PLAN_GPU_FROM] == 3 * 10000);
	assert_true(bounds.low[PLAN_GPU_SECONDS] == 40);
	assert_true(bounds.high[PLAN_GPU_SECONDS] == 60);
}

/* Adapters of 200 bytes beside 2000 that are frozen: of these nothing goes there again if all has room, and
 * all but what has if not. */
static void what_is_frozen_stays_over_steps(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		Tierd__Wire__PlanRequest *units = make_alike(1, 100);
		struct tierd_tensor frozen = tensor_of(TIERD_BYTES, 2000);
		struct plan_gpus gpus = one;
		struct plan_gpu_bounds bounds;

		gpus.bytes = i == 0 ? 2400 : 1200;
		frozen.is_frozen = true;
		assert_int_equal(plan_units_add_tensor(units, &frozen), 0);
		bounds = bound(&gpus, units, 1);
		assert_true(bounds.low[PLAN_GPU_TO] == (i == 0 ? 200 : 2 * 1200));
		assert_true(bounds.high[PLAN_GPU_TO] == 2 * 2200);
	}
}

static void activations_leave_less_room(void **state)
{
	struct plan_gpus gpus = one;
	struct plan_gpu_bounds bounds;

	gpus.activation_bytes = 3000;
	bounds = bound(&gpus, make_alike(10, 500), 1);
	assert_true(bounds.low[PLAN_GPU_TO] == 10000 + 9000);
	gpus.activation_bytes = 30000;
	bounds = bound(&gpus, make_alike(10, 500), 1);
	assert_true(bounds.low[PLAN_GPU_TO] == 2 * 10000);
}

/* All stays, so that less goes there than comes back. */
static void the_longer_way_takes_the_time(void **state)
{
	struct plan_gpu_bounds bounds = bound(&one, make_alike(2, 500), 4);

	assert_true(bounds.low[PLAN_GPU_TO] == 2000);
	assert_true(bounds.low[PLAN_GPU_SECONDS] == 4 * 2);
}

static void bounds_are_those_of_all_cuts(void **state)
{
	Tierd__Wire__PlanRequest *cuts[] = { make_alike(8, 500), make_alike(2, 2000), make_alike(4, 1000) };
	struct plan_gpu_bounds bounds;

	assert_int_equal(plan_gpu_bounds(&one, cuts, 3, 1, &bounds), 0);
	assert_true(bounds.low[PLAN_GPU_UNITS] == 2 * 1000);
	assert_true(bounds.high[PLAN_GPU_UNITS] == 2 * 4000);
	assert_string_equal(bounds.largest, "layer");
	assert_true(bounds.largest_bytes == 1000);
	for (unsigned i = 0; i < 3; i++)
		tierd__wire__plan_request__free_unpacked(cuts[i], NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gpus_are_a_count_and_a_size_or_a_size),
		cmocka_unit_test(gpus_that_are_none_are_refused),
		cmocka_unit_test(ranks_are_spread_evenly_over_gpus),
		cmocka_unit_test(a_gpu_has_two_units_of_each_size),
		cmocka_unit_test(a_single_unit_is_there_once),
		cmocka_unit_test(gradients_have_their_own_formats),
		cmocka_unit_test(each_rank_on_a_gpu_has_copies_of_its_own),
		cmocka_unit_test(what_has_room_stays_at_least_and_nothing_at_most),
		cmocka_unit_test(what_is_frozen_stays_over_steps),
		cmocka_unit_test(activations_leave_less_room),
		cmocka_unit_test(the_longer_way_takes_the_time),
		cmocka_unit_test(bounds_are_those_of_all_cuts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
