#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/tierctl/plan.h"
#include "common/cleanup.h"
#include "proto/vocabulary.h"
#include "tests/unit/test.h"

static struct plan_model make_model(uint64_t parameters, unsigned world_size)
{
	return (struct plan_model){
		.elements = { [PLAN_BF16] = { parameters } },
		.world_size = world_size,
		.micro_batches = 1,
		.optimizer = plan_find_optimizer("adamw"),
		.is_durable = true,
	};
}

/* All of the model, in another format, and with other moments. */
static void set_format(struct plan_model *model, enum plan_format format, enum plan_moments moments)
{
	uint64_t parameters = plan_parameters(model);

	memset(model->elements, 0, sizeof(model->elements));
	model->elements[format][moments] = parameters;
}

static const struct plan_place all_host, optimizer_nvme = { .is_optimizer_nvme = true },
					 parameters_nvme = { .is_parameter_nvme = true },
					 all_nvme = { .is_parameter_nvme = true, .is_optimizer_nvme = true };

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

	set_format(&model, PLAN_FP32, PLAN_MOMENTS_FP32);
	fp32 = plan_layout(&model);
	assert_true(bf16.parameter + bf16.gradient + bf16.optimizer == 16);
	assert_true(fp32.parameter + fp32.gradient + fp32.optimizer == 16);
	assert_true(bf16.optimizer == 10 && fp32.optimizer == 8);
	set_format(&model, PLAN_FP16, PLAN_MOMENTS_FP32);
	assert_true(plan_layout(&model).parameter == 2);
	assert_true(plan_layout(&model).optimizer == 4 + 8);
	set_format(&model, PLAN_FP16, PLAN_MOMENTS_BF16);
	assert_true(plan_layout(&model).optimizer == 4 + 4);
	set_format(&model, PLAN_FP16, PLAN_MOMENTS_INT8);
	assert_true(plan_layout(&model).optimizer == 4 + 2 * 260.0 / 256);
	assert_int_equal(plan_memory(&model, 0).optimizer, 4000 + 2031);
}

static void what_is_pushed_once_by_one_rank_is_not_summed(void **state)
{
	struct plan_model model = make_model(1000, 1);

	assert_true(plan_layout(&model).gradient == 4);
	model.is_pushed_once = true;
	assert_true(plan_layout(&model).gradient == 2);
	model.optimizer = plan_find_optimizer("none");
	assert_true(plan_layout(&model).gradient == 4);
	model.optimizer = plan_find_optimizer("sgd");
	model.world_size = 2;
	assert_true(plan_layout(&model).gradient == 4);
}

/* As of units whose norms are in fp32. */
static void formats_are_counted_by_what_has_them(void **state)
{
	struct plan_model model = make_model(3000, 1);
	char text[PLAN_FORMAT_TEXT];

	assert_string_equal(plan_formats(&model, text), "bf16");
	model.elements[PLAN_FP32][PLAN_MOMENTS_BF16] = 1000;
	assert_int_equal(plan_parameters(&model), 4000);
	assert_int_equal(plan_memory(&model, 0).parameters, 3000 * 2 + 1000 * 4);
	assert_int_equal(plan_memory(&model, 0).gradients, 4000 * 4);
	assert_int_equal(plan_memory(&model, 0).optimizer, 3000 * 10 + 1000 * 4);
	assert_string_equal(plan_formats(&model, text), "bf16, fp32");
	assert_string_equal(plan_moments(&model, text), "fp32, bf16");
}

static void a_model_without_parameters_takes_none(void **state)
{
	struct plan_model model = make_model(0, 1);

	model.frozen_bytes = 100;
	assert_true(plan_layout(&model).parameter == 0);
	assert_int_equal(plan_memory(&model, 3).total, 100);
	assert_true(plan_traffic(&model, &all_nvme).gather_read == 0);
}

static void optimizers_differ_in_what_they_keep(void **state)
{
	static const struct {
		const char *name;
		uint32_t kind;
		unsigned bytes;
	} optimizers[] = { { "adamw", OPTIMIZER_ADAMW, 10 }, { "adam", OPTIMIZER_ADAM, 10 },
			   { "lion", OPTIMIZER_LION, 6 },    { "momentum", OPTIMIZER_SGD, 6 },
			   { "none", OPTIMIZER_NONE, 2 },    { "sgd", OPTIMIZER_SGD, 2 } };
	struct plan_model model = make_model(1000, 1);

	for (size_t i = 0; i < ARRAY_LENGTH(optimizers); i++) {
		model.optimizer = plan_find_optimizer(optimizers[i].name);
		assert_non_null(model.optimizer);
		assert_int_equal(model.optimizer->kind, optimizers[i].kind);
		assert_int_equal(plan_memory(&model, 0).optimizer, 1000 * optimizers[i].bytes);
		assert_ptr_equal(
			plan_optimizer_of(optimizers[i].kind, strcmp(optimizers[i].name, "momentum") == 0),
			model.optimizer);
	}
	assert_null(plan_find_optimizer("adagrad"));
	assert_null(plan_optimizer_of(77, false));
}

static void memory_follows_the_formulas(void **state)
{
	struct plan_model model = make_model(1000000, 8);

	assert_int_equal(plan_memory(&model, 0).total, 16000000);
	assert_int_equal(plan_memory(&model, 1).total, 6000000 + 10000000 / 8);
	assert_int_equal(plan_memory(&model, 2).total, 2000000 + 14000000 / 8);
	assert_int_equal(plan_memory(&model, 3).total, 16000000 / 8);
	set_format(&model, PLAN_FP32, PLAN_MOMENTS_FP32);
	assert_int_equal(plan_memory(&model, 1).total, 8000000 + 8000000 / 8);
	assert_int_equal(plan_memory(&model, 2).total, 4000000 + 12000000 / 8);
	assert_int_equal(plan_memory(&model, 3).optimizer, 8000000 / 8);
}

/* Adapters over frozen weights. */
static void frozen_bytes_are_gathered_and_nothing_else(void **state)
{
	struct plan_model model = make_model(1000000, 4);
	struct plan_traffic traffic;

	model.frozen_bytes = 40000000;
	assert_int_equal(plan_memory(&model, 2).parameters, 42000000);
	assert_int_equal(plan_memory(&model, 3).parameters, 42000000 / 4);
	assert_int_equal(plan_memory(&model, 3).optimizer, 10000000 / 4);
	assert_int_equal(plan_memory(&model, 3).gradients, 4000000 / 4);
	traffic = plan_traffic(&model, &all_nvme);
	assert_true(traffic.gather_read == 2 * 42);
	assert_true(traffic.update_read == 12);
}

static void spilled_sums_cost_a_pass_for_each_micro_batch(void **state)
{
	static const struct plan_place place = { .is_optimizer_nvme = true, .is_gradient_nvme = true };
	struct plan_model model = make_model(1000000, 4);

	model.micro_batches = 3;
	assert_true(plan_traffic(&model, &place).gradient_read == 12);
	assert_true(plan_traffic(&model, &place).gradient_written == 12);
	assert_true(plan_traffic(&model, &all_nvme).gradient_written == 0);
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

static void traffic_is_that_of_the_streams_on_nvme(void **state)
{
	struct plan_model model = make_model(1000, 2);
	static const struct {
		enum plan_format format;
		const struct plan_place *place;
		unsigned read, written, gathers;
	} cases[] = {
		{ PLAN_BF16, &all_host, 0, 0, 0 },	  { PLAN_BF16, &optimizer_nvme, 10, 12, 0 },
		{ PLAN_BF16, &all_nvme, 12, 12, 4 },	  { PLAN_BF16, &parameters_nvme, 2, 2, 4 },
		{ PLAN_FP32, &optimizer_nvme, 8, 12, 0 }, { PLAN_FP32, &all_nvme, 12, 12, 8 },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
		set_format(&model, cases[i].format, PLAN_MOMENTS_FP32);
		for (model.micro_batches = 1; model.micro_batches <= 3; model.micro_batches++) {
			struct plan_traffic traffic = plan_traffic(&model, cases[i].place);

			assert_true(traffic.update_read == cases[i].read);
			assert_true(traffic.update_written == cases[i].written);
			assert_true(traffic.gather_read == cases[i].gathers * model.micro_batches);
		}
	}
	/* What ends with the daemon has no copy. */
	model = make_model(1000, 2);
	model.is_durable = false;
	assert_true(plan_traffic(&model, &optimizer_nvme).update_written == 10);
}

/* 7B parameters with AdamW in bf16: 12 bytes of each in a step of 10 s, 8640 of them a day. */
static void a_day_writes_what_its_steps_do(void **state)
{
	struct plan_model model = make_model(7000000000, 8);

	assert_true(plan_written_per_day(&model, &all_nvme, 10000) == 7e9 * 12 * 8640);
	assert_true(plan_written_per_day(&model, &all_nvme, 20000) == 7e9 * 12 * 4320);
	model.is_durable = false;
	assert_true(plan_written_per_day(&model, &all_host, 10000) == 0);
}

/* Once a minute what lies in host memory, 12 bytes of each parameter or 10 beside those that steps write; of
 * longer steps each. */
static void a_day_writes_what_its_commits_do(void **state)
{
	struct plan_model model = make_model(7000000000, 8);

	assert_true(plan_written_per_day(&model, &all_host, 10000) == 7e9 * 12 * 1440);
	assert_true(plan_written_per_day(&model, &all_host, 120000) == 7e9 * 12 * 720);
	assert_true(plan_written_per_day(&model, &parameters_nvme, 10000) ==
		    7e9 * 10 * 1440 + 7e9 * 2 * 8640);
	assert_true(plan_written_per_day(&model, &optimizer_nvme, 10000) == 7e9 * 12 * 8640);
}

static void durability_says_how_often_commits_are(void **state)
{
	static const char *const wrong[] = { "0", "86401", "often", "" };
	struct plan_model model = make_model(7000000000, 8);
	uint32_t durability = DURABILITY_DEFAULT;

	assert_int_equal(plan_parse_durability("600", &durability), 0);
	assert_int_equal(durability, 600);
	model.commit_ms = plan_commit_ms(durability);
	assert_true(plan_written_per_day(&model, &all_host, 10000) == 7e9 * 12 * 144);
	assert_int_equal(plan_parse_durability("step", &durability), 0);
	assert_int_equal(durability, DURABILITY_STEP);
	model.commit_ms = plan_commit_ms(durability);
	assert_true(plan_written_per_day(&model, &all_host, 10000) == 7e9 * 12 * 8640);
	assert_int_equal(plan_parse_durability("none", &durability), 0);
	assert_int_equal(durability, DURABILITY_NONE);
	assert_int_equal(plan_commit_ms(DURABILITY_DEFAULT), 0);
	for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
		assert_int_equal(plan_parse_durability(wrong[i], &durability), -EINVAL);
	assert_int_equal(durability, DURABILITY_NONE);
}

/* The largest that flags allow: nothing below may overflow. */
static void the_largest_model_can_be_counted(void **state)
{
	struct plan_model model = make_model(PLAN_MAX_PARAMETERS, PLAN_MAX_RANKS);

	model.micro_batches = PLAN_MAX_MICRO_BATCHES;
	model.frozen_bytes = PLAN_MAX_FROZEN_BYTES;
	assert_int_equal(plan_memory(&model, 0).total, PLAN_MAX_PARAMETERS * 16 + PLAN_MAX_FROZEN_BYTES);
	assert_int_equal(plan_communication(&model, 3), 3 * PLAN_MAX_PARAMETERS * PLAN_MAX_MICRO_BATCHES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_have_suffixes_of_powers_of_ten),
		cmocka_unit_test(counts_that_are_none_are_refused),
		cmocka_unit_test(a_parameter_with_adam_costs_sixteen_bytes_but_in_fp16_eighteen),
		cmocka_unit_test(what_is_pushed_once_by_one_rank_is_not_summed),
		cmocka_unit_test(formats_are_counted_by_what_has_them),
		cmocka_unit_test(a_model_without_parameters_takes_none),
		cmocka_unit_test(optimizers_differ_in_what_they_keep),
		cmocka_unit_test(memory_follows_the_formulas),
		cmocka_unit_test(frozen_bytes_are_gathered_and_nothing_else),
		cmocka_unit_test(spilled_sums_cost_a_pass_for_each_micro_batch),
		cmocka_unit_test(a_part_is_rounded_up),
		cmocka_unit_test(communication_follows_the_formulas),
		cmocka_unit_test(traffic_is_that_of_the_streams_on_nvme),
		cmocka_unit_test(a_day_writes_what_its_steps_do),
		cmocka_unit_test(a_day_writes_what_its_commits_do),
		cmocka_unit_test(durability_says_how_often_commits_are),
		cmocka_unit_test(the_largest_model_can_be_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
