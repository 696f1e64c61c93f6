#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "client/tierctl/plan.h"
#include "common/cleanup.h"

static struct plan_model make_model(uint64_t parameters, unsigned world_size)
{
	return (struct plan_model){
		.parameters = parameters,
		.largest_unit = parameters / 100,
		.world_size = world_size,
		.local_ranks = world_size,
		.micro_batches = 1,
		.gradient_buffers = 2,
		.format = PLAN_BF16,
		.slots = 2,
		.is_durable = true,
	};
}

static void counts_have_suffixes_of_powers_of_ten(void **state)
{
	static const struct {
		const char *text;
		uint64_t count;
	} counts[] = {
		{ "1", 1 },
		{ "124000000", 124000000 },
		{ "350M", 350000000 },
		{ "7B", 7000000000 },
		{ "7b", 7000000000 },
		{ "1.5B", 1500000000 },
		{ "0.5K", 500 },
		{ "1.25G", 1250000000 },
		{ "1T", 1000000000000 },
		{ "1.123456789B", 1123456789 },
		{ "2.K", 2000 },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(counts); i++) {
		uint64_t count = 0;

		assert_int_equal(plan_parse_count(counts[i].text, &count), 0);
		assert_int_equal(count, counts[i].count);
	}
}

static void counts_that_are_none_are_refused(void **state)
{
	static const char *const wrong[] = { "",       ".",   "B",  "1.5", "1.0001K", "1..5B",
					     "1.5.5B", "7BB", "7X", "-7B", "0x7",     " 7" };
	uint64_t count = 77;

	for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
		assert_int_equal(plan_parse_count(wrong[i], &count), -EINVAL);
	assert_int_equal(plan_parse_count("99999999T", &count), -ERANGE);
	assert_int_equal(plan_parse_count("99999999999999999999", &count), -ERANGE);
	assert_int_equal(count, 77);
}

static void a_parameter_with_adam_costs_sixteen_bytes_but_in_fp16_eighteen(void **state)
{
	struct plan_model model = make_model(1000, 1);
	struct plan_layout bf16 = plan_layout(&model), fp32;

	model.format = PLAN_FP32;
	fp32 = plan_layout(&model);
	assert_int_equal(bf16.parameter + bf16.gradient + bf16.optimizer, 16);
	assert_int_equal(fp32.parameter + fp32.gradient + fp32.optimizer, 16);
	assert_int_equal(bf16.optimizer, 10);
	assert_int_equal(plan_set_optimizer(&model, "adamw"), 0);
	model.is_pushed_once = true;
	assert_int_equal(plan_layout(&model).gradient, 4);
	model.format = PLAN_BF16;
	assert_int_equal(plan_layout(&model).gradient, 2);
	model.world_size = 2;
	assert_int_equal(plan_layout(&model).gradient, 4);
	model = make_model(1000, 1);
	assert_int_equal(fp32.optimizer, 8);
	assert_int_equal(plan_set_format(&model, "fp16"), 0);
	assert_int_equal(plan_layout(&model).parameter, 2);
	assert_int_equal(plan_layout(&model).optimizer, 4 + 8);
	assert_int_equal(plan_set_moments(&model, "bf16"), 0);
	assert_int_equal(plan_layout(&model).optimizer, 4 + 4);
	assert_int_equal(plan_set_moments(&model, "int8"), 0);
	assert_true(plan_layout(&model).optimizer == 4 + 2 * 260.0 / 256);
	assert_int_equal(plan_memory(&model, 0).optimizer, 4000 + 2031);
	assert_int_equal(plan_set_moments(&model, "fp8"), -EINVAL);
	assert_int_equal(plan_set_moments(&model, "fp32"), 0);
	assert_int_equal(plan_layout(&model).optimizer, 4 + 8);
	assert_int_equal(plan_set_format(&model, "fp8"), -EINVAL);
}

static void optimizers_differ_in_what_they_keep(void **state)
{
	static const struct {
		const char *name;
		unsigned bytes;
	} optimizers[] = { { "adamw", 10 },   { "adam", 10 }, { "lion", 6 },
			   { "momentum", 6 }, { "none", 2 },  { "sgd", 2 } };
	struct plan_model model = make_model(1000, 1);

	for (size_t i = 0; i < ARRAY_LENGTH(optimizers); i++) {
		assert_int_equal(plan_set_optimizer(&model, optimizers[i].name), 0);
		assert_int_equal(plan_layout(&model).optimizer, optimizers[i].bytes);
		assert_int_equal(plan_memory(&model, 0).optimizer, 1000 * optimizers[i].bytes);
	}
	assert_int_equal(plan_set_optimizer(&model, "adagrad"), -EINVAL);
}

/* Room for them is reserved on NVMe, as large as the state, and none for sums. */
static void each_snapshot_is_one_more_state(void **state)
{
	struct plan_model model = make_model(1000000, 4);
	struct plan_place place;

	model.is_gradient_nvme = true;
	assert_int_equal(plan_place(&model, 3, true, true, &place), 0);
	assert_int_equal(place.nvme_bytes, 2 * 12000000 + 4000000);
	model.snapshots = 3;
	assert_int_equal(plan_place(&model, 3, false, false, &place), 0);
	assert_int_equal(place.nvme_bytes, 5 * 12000000 + 4000000);
	model.is_durable = false;
	assert_int_equal(plan_place(&model, 3, true, true, &place), 0);
	assert_int_equal(place.nvme_bytes, 2 * 12000000 + 4000000);
	model.snapshots = PLAN_MAX_SNAPSHOTS + 1;
	assert_int_equal(plan_check(&model), -ERANGE);
}

static void memory_follows_the_formulas(void **state)
{
	struct plan_model model = make_model(1000000, 8);

	assert_int_equal(plan_memory(&model, 0).total, 16000000);
	assert_int_equal(plan_memory(&model, 1).total, 6000000 + 10000000 / 8);
	assert_int_equal(plan_memory(&model, 2).total, 2000000 + 14000000 / 8);
	assert_int_equal(plan_memory(&model, 3).total, 16000000 / 8);
	model.format = PLAN_FP32;
	assert_int_equal(plan_memory(&model, 1).total, 8000000 + 8000000 / 8);
	assert_int_equal(plan_memory(&model, 2).total, 4000000 + 12000000 / 8);
	assert_int_equal(plan_memory(&model, 3).optimizer, 8000000 / 8);
}

/* Adapters over frozen weights. */
static void frozen_bytes_are_gathered_and_nothing_else(void **state)
{
	struct plan_model model = make_model(1000000, 4);
	struct plan_place place;
	struct plan_traffic traffic;

	model.frozen_bytes = 40000000;
	assert_int_equal(plan_memory(&model, 2).parameters, 42000000);
	assert_int_equal(plan_memory(&model, 3).parameters, 42000000 / 4);
	assert_int_equal(plan_memory(&model, 3).optimizer, 10000000 / 4);
	assert_int_equal(plan_memory(&model, 3).gradients, 4000000 / 4);
	assert_int_equal(plan_place(&model, 2, false, true, &place), 0);
	assert_int_equal(place.parameters_host, 42000000);
	/* Of parameters in host memory there is a copy. */
	assert_int_equal(place.nvme_bytes, 40000000 + 2 * 12000000);
	assert_int_equal(plan_place(&model, 3, true, true, &place), 0);
	assert_int_equal(place.parameters_host, 4 * (20000 + 400000));
	assert_int_equal(place.buffers_host, 10000 * 2 * 2 * 4);
	assert_int_equal(place.nvme_bytes, 40000000 + 2 * 12000000);
	model.snapshots = 3;
	assert_int_equal(plan_place(&model, 3, true, true, &place), 0);
	assert_int_equal(place.nvme_bytes, 40000000 + 5 * 12000000);
	/* Nobody writes them while the daemon lives, if they lie in host memory. */
	model.is_durable = false;
	assert_int_equal(plan_place(&model, 3, false, true, &place), 0);
	assert_int_equal(place.nvme_bytes, 2 * 10000000);
	assert_int_equal(plan_place(&model, 3, true, true, &place), 0);
	assert_int_equal(place.nvme_bytes, 40000000 + 2 * 12000000);
	traffic = plan_traffic(&model, &place);
	assert_int_equal(traffic.gather_read, 2 * 42);
	assert_int_equal(traffic.update_read, 12);
	model.frozen_bytes = PLAN_MAX_FROZEN_BYTES + 1;
	assert_int_equal(plan_check(&model), -ERANGE);
}

static void spilled_sums_cost_nvme_once_and_a_pass_for_each_micro_batch(void **state)
{
	struct plan_model model = make_model(1000000, 4);
	struct plan_place place;
	struct plan_traffic traffic;

	model.micro_batches = 3;
	assert_int_equal(plan_set_gradients(&model, "nvme"), 0);
	assert_int_equal(plan_place(&model, 2, false, true, &place), 0);
	assert_true(place.is_gradient_nvme);
	assert_int_equal(place.gradients_host, 10000 * 4);
	assert_int_equal(place.nvme_bytes, 2 * 12000000 + 4000000);
	traffic = plan_traffic(&model, &place);
	assert_int_equal(traffic.gradient_read, 12);
	assert_int_equal(traffic.gradient_written, 12);
	/* Below stage 2 they stay. */
	assert_int_equal(plan_place(&model, 1, false, true, &place), 0);
	assert_false(place.is_gradient_nvme);
	assert_int_equal(place.gradients_host, 4 * 4000000);
	assert_int_equal(plan_traffic(&model, &place).gradient_written, 0);
	assert_int_equal(plan_set_gradients(&model, "host"), 0);
	assert_int_equal(plan_place(&model, 2, false, true, &place), 0);
	assert_int_equal(place.gradients_host, 4000000);
	assert_int_equal(place.nvme_bytes, 2 * 12000000);
	assert_int_equal(plan_set_gradients(&model, "disk"), -EINVAL);
}

static void a_part_is_rounded_up(void **state)
{
	struct plan_model model = make_model(1001, 4);

	assert_int_equal(plan_memory(&model, 3).parameters, 501);
}

static void communication_follows_the_formulas(void **state)
{
	struct plan_model model = make_model(1000, 4);

	assert_int_equal(plan_communication(&model, 0), 2000);
	assert_int_equal(plan_communication(&model, 1), 2000);
	assert_int_equal(plan_communication(&model, 2), 2000);
	assert_int_equal(plan_communication(&model, 3), 3000);
	model.micro_batches = 5;
	assert_int_equal(plan_communication(&model, 0), 2000);
	assert_int_equal(plan_communication(&model, 1), 2000);
	assert_int_equal(plan_communication(&model, 2), 6000);
	assert_int_equal(plan_communication(&model, 3), 15000);
}

static void parameters_leave_host_memory_at_stage_3_only(void **state)
{
	struct plan_model model = make_model(1000, 4);
	struct plan_place place = { .host_bytes = 77 };

	for (unsigned stage = 0; stage < 3; stage++)
		assert_int_equal(plan_place(&model, stage, true, true, &place), -EINVAL);
	assert_int_equal(place.host_bytes, 77);
	assert_int_equal(plan_place(&model, 3, true, true, &place), 0);
}

static void what_a_node_shares_it_stores_once(void **state)
{
	struct plan_model model = make_model(1000000, 4);
	struct plan_place place;

	assert_int_equal(plan_place(&model, 3, false, false, &place), 0);
	assert_int_equal(place.parameters_host, 2000000);
	assert_int_equal(place.gradients_host, 4000000);
	assert_int_equal(place.optimizer_host, 10000000);
	assert_int_equal(place.buffers_host, 10000 * 2 * 2 * 4);
	assert_int_equal(place.host_bytes, 16000000 + place.buffers_host);

	/* Each rank's sum stays apart. */
	assert_int_equal(plan_place(&model, 1, false, false, &place), 0);
	assert_int_equal(place.gradients_host, 16000000);
	assert_int_equal(place.optimizer_host, 10000000);
}

static void nvme_takes_twice_the_state(void **state)
{
	struct plan_model model = make_model(1000000, 4);
	struct plan_place place;

	/* Wherever it lies: the job outlives the daemon. */
	assert_int_equal(plan_place(&model, 2, false, true, &place), 0);
	assert_int_equal(place.nvme_bytes, 24000000);
	assert_int_equal(place.optimizer_host, 0);
	assert_int_equal(plan_place(&model, 3, true, false, &place), 0);
	assert_int_equal(place.nvme_bytes, 24000000);
	assert_int_equal(place.parameters_host, 4 * 10000 * 2);
	assert_int_equal(plan_place(&model, 3, true, true, &place), 0);
	assert_int_equal(place.nvme_bytes, 24000000);
	assert_int_equal(plan_place(&model, 3, false, false, &place), 0);
	assert_int_equal(place.nvme_bytes, 24000000);
}

static void what_need_not_outlive_the_daemon_takes_nvme_where_it_lies_there(void **state)
{
	struct plan_model model = make_model(1000000, 4);
	struct plan_place place;

	model.is_durable = false;
	assert_int_equal(plan_place(&model, 3, false, false, &place), 0);
	assert_int_equal(place.nvme_bytes, 0);
	assert_int_equal(plan_place(&model, 3, true, false, &place), 0);
	assert_int_equal(place.nvme_bytes, 4000000);
	assert_int_equal(plan_place(&model, 3, false, true, &place), 0);
	assert_int_equal(place.nvme_bytes, 20000000);
	assert_int_equal(plan_traffic(&model, &place).update_written, 10);
}

static void other_nodes_take_their_part(void **state)
{
	struct plan_model model = make_model(1000000, 8);
	struct plan_place place;

	model.local_ranks = 2;
	assert_int_equal(plan_place(&model, 3, false, true, &place), 0);
	assert_int_equal(place.gradients_host, 1000000);
	assert_int_equal(place.nvme_bytes, 6000000);
	/* A quarter, and room for units whose other parts are gathered. */
	assert_int_equal(place.parameters_host, 500000 + 80000);
	/* At stage 0 every node updates everything. */
	assert_int_equal(plan_place(&model, 0, false, true, &place), 0);
	assert_int_equal(place.nvme_bytes, 24000000);
}

static void the_window_is_never_more_than_the_model(void **state)
{
	struct plan_model model = make_model(1000, 2);
	struct plan_place place;

	model.largest_unit = 1000;
	assert_int_equal(plan_place(&model, 3, true, true, &place), 0);
	assert_int_equal(place.parameters_host, 2000);
}

static void traffic_is_that_of_the_streams_on_nvme(void **state)
{
	struct plan_model model = make_model(1000, 2);
	struct plan_place place;
	static const struct {
		enum plan_format format;
		bool is_parameter_nvme, is_optimizer_nvme;
		unsigned read, written, gathers;
	} cases[] = {
		{ PLAN_BF16, false, false, 0, 0, 0 }, { PLAN_BF16, false, true, 10, 12, 0 },
		{ PLAN_BF16, true, true, 12, 12, 4 }, { PLAN_BF16, true, false, 2, 2, 4 },
		{ PLAN_FP32, false, true, 8, 12, 0 }, { PLAN_FP32, true, true, 12, 12, 8 },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
		model.format = cases[i].format;
		for (model.micro_batches = 1; model.micro_batches <= 3; model.micro_batches++) {
			plan_place(&model, 3, cases[i].is_parameter_nvme, cases[i].is_optimizer_nvme, &place);
			struct plan_traffic traffic = plan_traffic(&model, &place);

			assert_int_equal(traffic.update_read, cases[i].read);
			assert_int_equal(traffic.update_written, cases[i].written);
			assert_int_equal(traffic.gather_read, cases[i].gathers * model.micro_batches);
		}
	}
}

/* As the daemon chooses: tests/unit/test_placement.c. */
/* 7B parameters with AdamW in bf16: 12 bytes of each in a step of 10 s, 8640 of them a day. */
static void a_day_writes_what_its_steps_do(void **state)
{
	struct plan_model model = make_model(7000000000, 8);
	struct plan_place place;

	assert_int_equal(plan_place(&model, 3, true, true, &place), 0);
	assert_true(plan_written_per_day(&model, 3, &place, 10000) == 7e9 * 12 * 8640);
	assert_true(plan_written_per_day(&model, 3, &place, 20000) == 7e9 * 12 * 4320);
	/* On a node with half of the ranks. */
	model.local_ranks = 4;
	assert_true(plan_written_per_day(&model, 3, &place, 10000) == 7e9 * 6 * 8640);
	model.is_durable = false;
	assert_int_equal(plan_place(&model, 3, false, false, &place), 0);
	assert_true(plan_written_per_day(&model, 3, &place, 10000) == 0);
}

/* Once a minute what lies in host memory, 12 bytes of each parameter or 10 beside those that steps write; of
 * longer steps each. */
static void a_day_writes_what_its_commits_do(void **state)
{
	struct plan_model model = make_model(7000000000, 8);
	struct plan_place place;

	assert_int_equal(plan_place(&model, 3, false, false, &place), 0);
	assert_true(plan_written_per_day(&model, 3, &place, 10000) == 7e9 * 12 * 1440);
	assert_true(plan_written_per_day(&model, 3, &place, 120000) == 7e9 * 12 * 720);
	assert_int_equal(plan_place(&model, 3, true, false, &place), 0);
	assert_true(plan_written_per_day(&model, 3, &place, 10000) == 7e9 * 10 * 1440 + 7e9 * 2 * 8640);
	assert_int_equal(plan_place(&model, 3, false, true, &place), 0);
	assert_true(plan_written_per_day(&model, 3, &place, 10000) == 7e9 * 12 * 8640);
}

static void durability_says_how_often_commits_are(void **state)
{
	static const char *const wrong[] = { "0", "86401", "often", "" };
	struct plan_model model = make_model(7000000000, 8);
	struct plan_place place;
	bool is_durable = false;

	assert_int_equal(plan_place(&model, 3, false, false, &place), 0);
	assert_int_equal(plan_set_durability(&model, "600", &is_durable), 0);
	assert_true(is_durable);
	assert_true(plan_written_per_day(&model, 3, &place, 10000) == 7e9 * 12 * 144);
	assert_int_equal(plan_set_durability(&model, "step", &is_durable), 0);
	assert_true(is_durable);
	assert_true(plan_written_per_day(&model, 3, &place, 10000) == 7e9 * 12 * 8640);
	assert_int_equal(plan_set_durability(&model, "none", &is_durable), 0);
	assert_false(is_durable);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(plan_set_durability(&model, wrong[i], &is_durable), -EINVAL);
}

static void auto_takes_what_fits_and_moves_least(void **state)
{
	struct plan_model model = make_model(1000000, 1);
	struct plan_place place;
	static const struct {
		uint64_t host, nvme;
		bool is_parameter_nvme, is_optimizer_nvme;
	} cases[] = {
		{ 20000000, 0, false, false },
		{ 15000000, 30000000, true, false },
		{ 7000000, 30000000, false, true },
		{ 5000000, 30000000, true, true },
	};

	model.is_durable = false;
	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
		assert_int_equal(plan_choose(&model, 3, cases[i].host, cases[i].nvme, &place), 0);
		assert_int_equal(place.is_parameter_nvme, cases[i].is_parameter_nvme);
		assert_int_equal(place.is_optimizer_nvme, cases[i].is_optimizer_nvme);
	}
	assert_int_equal(plan_choose(&model, 3, 1000, 30000000, &place), -ENOSPC);
	/* Below stage 3 parameters stay. */
	assert_int_equal(plan_choose(&model, 2, 7000000, 30000000, &place), 0);
	assert_false(place.is_parameter_nvme);
	assert_int_equal(plan_choose(&model, 2, 5000000, 30000000, &place), -ENOSPC);
}

static void models_that_are_none_are_refused(void **state)
{
	struct plan_model model = make_model(1000, 4);

	assert_int_equal(plan_check(&model), 0);
	model.local_ranks = 5;
	assert_int_equal(plan_check(&model), -EINVAL);
	model = make_model(1000, 4);
	model.largest_unit = 1001;
	assert_int_equal(plan_check(&model), -EINVAL);
	model = make_model(1000, 0);
	assert_int_equal(plan_check(&model), -EINVAL);
	model = make_model(1000, 4);
	model.micro_batches = 0;
	assert_int_equal(plan_check(&model), -EINVAL);
	model = make_model(UINT64_C(1) << 49, 4);
	assert_int_equal(plan_check(&model), -ERANGE);
	model = make_model(1000, 1025);
	assert_int_equal(plan_check(&model), -ERANGE);
}

/* The largest that passes: nothing below may overflow. */
static void the_largest_model_can_be_counted(void **state)
{
	struct plan_model model = make_model(UINT64_C(1) << 44, 1024);
	struct plan_place place;

	model.largest_unit = model.parameters;
	assert_int_equal(plan_check(&model), 0);
	assert_int_equal(plan_place(&model, 1, false, false, &place), 0);
	assert_int_equal(place.gradients_host, (UINT64_C(1) << 44) * 4 * 1024);
	assert_true(place.host_bytes > place.gradients_host);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_have_suffixes_of_powers_of_ten),
		cmocka_unit_test(counts_that_are_none_are_refused),
		cmocka_unit_test(a_parameter_with_adam_costs_sixteen_bytes_but_in_fp16_eighteen),
		cmocka_unit_test(optimizers_differ_in_what_they_keep),
		cmocka_unit_test(memory_follows_the_formulas),
		cmocka_unit_test(frozen_bytes_are_gathered_and_nothing_else),
		cmocka_unit_test(each_snapshot_is_one_more_state),
		cmocka_unit_test(spilled_sums_cost_nvme_once_and_a_pass_for_each_micro_batch),
		cmocka_unit_test(a_part_is_rounded_up),
		cmocka_unit_test(communication_follows_the_formulas),
		cmocka_unit_test(parameters_leave_host_memory_at_stage_3_only),
		cmocka_unit_test(what_a_node_shares_it_stores_once),
		cmocka_unit_test(nvme_takes_twice_the_state),
		cmocka_unit_test(what_need_not_outlive_the_daemon_takes_nvme_where_it_lies_there),
		cmocka_unit_test(other_nodes_take_their_part),
		cmocka_unit_test(the_window_is_never_more_than_the_model),
		cmocka_unit_test(traffic_is_that_of_the_streams_on_nvme),
		cmocka_unit_test(a_day_writes_what_its_steps_do),
		cmocka_unit_test(a_day_writes_what_its_commits_do),
		cmocka_unit_test(durability_says_how_often_commits_are),
		cmocka_unit_test(auto_takes_what_fits_and_moves_least),
		cmocka_unit_test(models_that_are_none_are_refused),
		cmocka_unit_test(the_largest_model_can_be_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
