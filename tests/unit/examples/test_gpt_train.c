#include "tests/unit/gpt_support.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "schedule.h"
#include "train.h"

/* A rank dies at the nth operation: the table in front of the plain backend's says -ESTALE once. */
static const struct backend_ops *real;
static unsigned countdown;

static bool is_stale(void)
{
	return countdown > 0 && --countdown == 0;
}

static int stale_gather(struct backend *backend, unsigned unit, struct unit_view *ret_parameters)
{
	return is_stale() ? -ESTALE : real->gather(backend, unit, ret_parameters);
}

static int stale_gradients(struct backend *backend, unsigned unit, struct unit_view *ret_gradients)
{
	return is_stale() ? -ESTALE : real->gradients(backend, unit, ret_gradients);
}

static int stale_push(struct backend *backend, unsigned unit)
{
	return is_stale() ? -ESTALE : real->push(backend, unit);
}

static int stale_step(struct backend *backend, const struct backend_rates *rates)
{
	return is_stale() ? -ESTALE : real->step(backend, rates);
}

static int stale_wait(struct backend *backend, struct backend_result *ret_result)
{
	return is_stale() ? -ESTALE : real->wait(backend, ret_result);
}

static int stale_ready(struct backend *backend, uint64_t *ret_step)
{
	return is_stale() ? -ESTALE : real->ready(backend, ret_step);
}

static struct backend_ops stale_ops(void)
{
	struct backend_ops ops = *real;

	ops.gather = stale_gather;
	ops.gradients = stale_gradients;
	ops.push = stale_push;
	ops.step = stale_step;
	ops.wait = stale_wait;
	ops.ready = stale_ready;
	return ops;
}

struct outcome {
	uint64_t hash, recoveries;
	double loss_first, loss_last;
	bool has_tripped;
};

/* Trains for the options' steps; the nth operation says that a rank has died, 0: none. */
static struct outcome train(const struct options *options, unsigned nth)
{
	_cleanup_(data_closep) struct data *data = NULL;
	_cleanup_(report_freep) struct report *report = NULL;
	struct fixture fixture;
	struct backend_ops ops;
	uint8_t bytes[4096];

	fixture_open(&fixture, options);
	real = fixture.backend->ops;
	ops = stale_ops();
	countdown = 0;
	fixture.backend->ops = &ops;
	assert_int_equal(data_open(NULL, options->context, &data), 0);
	assert_int_equal(report_new(options, fixture.model, &report), 0);
	struct training training = { .options = options,
				     .model = fixture.model,
				     .network = fixture.network,
				     .data = data,
				     .backend = fixture.backend,
				     .report = report,
				     .bytes = bytes };

	assert_int_equal(train_start(&training), 0);
	countdown = nth;
	assert_int_equal(train_steps(&training), 0);
	assert_int_equal(training.step, options->steps);
	struct outcome outcome = {
		.hash = fixture_hash(&fixture),
		.recoveries = report->recoveries,
		.loss_first = report->losses[0],
		.loss_last = report->losses[options->steps - 1],
		.has_tripped = nth > 0 && countdown == 0,
	};

	fixture_close(&fixture);
	return outcome;
}

static void training_lowers_the_loss(void **state)
{
	struct options options = small_options();
	struct outcome outcome;

	options.steps = 60;
	options.batch = 8;
	options.learning_rate = 1e-2;
	options.warmup = 5;
	outcome = train(&options, 0);
	assert_true(fabs(outcome.loss_first - log(256.0)) < 0.2);
	assert_true(outcome.loss_last < outcome.loss_first - 1.0);
}

static void a_rank_that_dies_at_any_moment_changes_no_bit(void **state)
{
	struct options options = small_options();
	struct outcome outcome = { .has_tripped = true };
	uint64_t hash;

	options.steps = 3;
	options.micro_batches = 2;
	options.ranks = options.world_size = 2;
	hash = train(&options, 0).hash;
	for (unsigned nth = 1; outcome.has_tripped; nth += 3) {
		outcome = train(&options, nth);
		assert_true(outcome.hash == hash);
		assert_int_equal(outcome.recoveries, outcome.has_tripped);
	}
}

static void micro_batches_differ_by_every_part_of_their_key(void **state)
{
	_cleanup_(data_closep) struct data *data = NULL;
	const struct data_key keys[] = {
		{ 1, 2, 3, 4 }, { 2, 2, 3, 4 }, { 1, 3, 3, 4 }, { 1, 2, 4, 4 }, { 1, 2, 3, 5 }
	};
	uint8_t bytes[ARRAY_LENGTH(keys)][65], again[65];

	assert_int_equal(data_open(NULL, 64, &data), 0);
	for (size_t i = 0; i < ARRAY_LENGTH(keys); i++)
		data_train(data, &keys[i], 1, bytes[i]);
	data_train(data, &keys[0], 1, again);
	assert_memory_equal(again, bytes[0], sizeof(again));
	for (size_t i = 1; i < ARRAY_LENGTH(keys); i++)
		assert_memory_not_equal(bytes[0], bytes[i], sizeof(again));
}

static void the_rate_warms_up_and_falls_to_a_tenth(void **state)
{
	struct schedule schedule = { .peak = 1.0, .warmup = 10, .steps = 110 };

	assert_true(fabsf(schedule_learning_rate(&schedule, 0) - 0.1f) < 1e-6f);
	assert_true(schedule_learning_rate(&schedule, 9) == 1.0f);
	assert_true(schedule_learning_rate(&schedule, 10) == 1.0f);
	assert_true(fabsf(schedule_learning_rate(&schedule, 60) - 0.55f) < 1e-6f);
	assert_true(fabsf(schedule_learning_rate(&schedule, 109) - 0.1f) < 1e-3f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(training_lowers_the_loss),
		cmocka_unit_test(a_rank_that_dies_at_any_moment_changes_no_bit),
		cmocka_unit_test(micro_batches_differ_by_every_part_of_their_key),
		cmocka_unit_test(the_rate_warms_up_and_falls_to_a_tenth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
