/* Units that are pushed once in a step: sums as narrow as what is pushed, and the same bits as of wide ones,
 * wherever they lie and whatever the first values were. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "common/bfloat16.h"
#include "daemon/model/job.h"
#include "daemon/gradients/own.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/seeds.h"

/* A pack each, of several chunks; in none of their tensors a number of whole tiles. */
#define UNITS 4
#define TENSORS 3
static const uint64_t elements[TENSORS] = { 530003, 200001, 50001 };
static const uint32_t formats[TENSORS] = { FORMAT_BF16, FORMAT_FP16, FORMAT_FP32 };
#define STEPS 3

/* Gradients of the first tensor are in fp32. */
static bool are_wide;

static struct actor actor, other;

static struct job *enter(struct actor *who, const struct actor_job *options, bool is_pushed_once,
			 uint32_t initializer)
{
	struct actor_job job = *options;

	job.is_pushed_once = is_pushed_once;
	assert_int_equal(actor_join(&scene, who, &job), 0);
	for (unsigned u = 0; u < UNITS; u++) {
		struct actor_tensor tensors[TENSORS];
		char name[8], names[TENSORS][16];

		snprintf(name, sizeof(name), "u%u", u);
		for (unsigned i = 0; i < TENSORS; i++) {
			snprintf(names[i], sizeof(names[i]), "u%u.%u", u, i);
			tensors[i] =
				(struct actor_tensor){ names[i],    formats[i],
						       initializer, elements[i],
						       false,	    are_wide && i == 0 ? FORMAT_FP32 : 0 };
		}
		assert_int_equal(actor_define(who, name, tensors, TENSORS), 0);
	}
	return scene_job(NULL);
}

static struct job *start(const struct actor_job *options, bool is_pushed_once, uint32_t initializer)
{
	struct job *job = enter(&actor, options, is_pushed_once, initializer);

	assert_int_equal(actor_ready(&actor), 0);
	return job;
}

static void end(struct job *job)
{
	actor_die(&actor);
	job_drop(job);
	scene_settle(&scene);
	scene_await_disposals(&scene);
}

/* ---- Training ---- */

/* Another one for each element, step and unit, and each of a size that is common. */
static void fill_gradients(uint32_t unit, uint64_t step)
{
	struct unit_layout layout = actor.layouts[unit];
	char *base = actor.gradients.base;
	uint16_t *bf16, *fp16;
	float *fp32;

	unit_layout_finish(&layout);
	bf16 = (uint16_t *)(base + unit_layout_gradient_first(&layout, SECTION_BF16));
	fp16 = (uint16_t *)(base + unit_layout_gradient_first(&layout, SECTION_FP16));
	fp32 = (float *)(base + unit_layout_gradient_first(&layout, SECTION_FP32));
	memset(base, 0, unit_layout_gradient_bytes(&layout));
	for (uint64_t i = 0; i < elements[0]; i++) {
		uint16_t value = (uint16_t)(0x3c00 + (i * 7 + step + unit) % 512);

		if (are_wide)
			((float *)(void *)bf16)[i] = bfloat16_to_float(value);
		else
			bf16[i] = value;
	}
	for (uint64_t i = 0; i < elements[1]; i++)
		fp16[i] = (uint16_t)(0x1c00 + (i * 5 + step + unit) % 512);
	for (uint64_t i = 0; i < elements[2]; i++)
		fp32[i] = 0.001f * (float)((i * 3 + step + unit) % 97 + 1);
}

static void push(uint32_t unit, uint64_t step)
{
	fill_gradients(unit, step);
	assert_int_equal(actor_await(&actor, actor_send_push(&actor, unit, 0), 0)->status, 0);
}

static double take_step(uint64_t step)
{
	const struct answer *answer;

	for (uint32_t unit = UNITS; unit-- > 0;)
		push(unit, step);
	answer = actor_await(&actor, actor_send_step(&actor, 0.1f), 0);
	assert_int_equal(answer->status, 0);
	return answer->reply->step->gradient_norm;
}

#define PIECE (WINDOW_BYTES / sizeof(float))

/* Of all that an update has made. */
static uint64_t hash_of(uint64_t version)
{
	static const char *const states[] = { "master", "m", "v" };
	uint64_t hash = 0;

	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t i = 0; i < TENSORS * ARRAY_LENGTH(states); i++)
			for (uint64_t first = 0; first < elements[i % TENSORS]; first += PIECE) {
				uint64_t left = elements[i % TENSORS] - first;
				uint64_t count = left < PIECE ? left : PIECE;

				assert_int_equal(actor_read(&actor, unit, i % TENSORS, states[i / TENSORS],
							    first, count, version),
						 0);
				hash = XXH3_64bits_withSeed(actor.window.base, count * sizeof(float), hash);
			}
	return hash;
}

struct outcome {
	uint64_t hash, sums_bytes;
	double norm;
};

static struct outcome train(const struct actor_job *options, bool is_announced, bool is_pushed_once)
{
	struct job *job = start(options, is_pushed_once, INITIALIZE_NORMAL);
	struct outcome outcome = { .sums_bytes = job->gradients->sums_memory.length };

	for (uint64_t step = 0; step < STEPS; step++) {
		if (is_announced)
			assert_int_equal(actor_begin_step(&actor, 0.1f, 1), 0);
		outcome.norm = take_step(step);
	}
	assert_true(isfinite(outcome.norm) && outcome.norm > 0);
	outcome.hash = hash_of(STEPS);
	end(job);
	return outcome;
}

static void expect_same(const struct actor_job *options, bool is_announced)
{
	struct outcome wide = train(options, is_announced, false),
		       narrow = train(options, is_announced, true);

	assert_true(narrow.hash == wide.hash);
	assert_memory_equal(&narrow.norm, &wide.norm, sizeof(wide.norm));
	assert_true(narrow.sums_bytes < wide.sums_bytes * (are_wide ? 10 : 6) / 10);
}

static void the_bits_are_the_same(void **state)
{
	FOREACH_CASE (stage, 4) {
		const struct actor_job options = {
			.stage = stage,
			.clip_norm = stage % 2 ? 0.5f : 0,
			.gradient_placement = PLACEMENT_HOST,
			.parameter_placement = PLACEMENT_HOST,
		};

		expect_same(&options, false);
	}
}

/* Of the same values, whether they are summed or not. */
static void gradients_in_fp32_give_the_same_bits(void **state)
{
	const struct actor_job options = { .stage = 3, .gradient_placement = PLACEMENT_HOST };

	for (unsigned is_pushed_once = 0; is_pushed_once < 2; is_pushed_once++) {
		struct outcome narrow, wide;

		are_wide = false;
		narrow = train(&options, false, is_pushed_once);
		are_wide = true;
		wide = train(&options, false, is_pushed_once);
		assert_true(narrow.hash == wide.hash);
		assert_memory_equal(&narrow.norm, &wide.norm, sizeof(wide.norm));
		assert_int_equal(wide.sums_bytes > narrow.sums_bytes, is_pushed_once);
	}
}

static void the_bits_are_the_same_if_updated_early(void **state)
{
	expect_same(&(struct actor_job){ .stage = 3, .parameter_placement = PLACEMENT_NVME }, true);
	expect_same(&(struct actor_job){ .stage = 1, .parameter_placement = PLACEMENT_HOST }, true);
}

/* So much that sums have one buffer. */
static uint64_t least_budget(struct actor_job options, bool is_pushed_once)
{
	struct job *job;
	uint64_t bytes;

	job = start(&options, is_pushed_once, INITIALIZE_NORMAL);
	bytes = promised_bytes(job) - (UNITS - 1) * job->gradients->sum_buffer_bytes;
	assert_int_equal(job->gradients->sums_memory.length, UNITS * job->gradients->sum_buffer_bytes);
	end(job);
	return bytes;
}

static void the_bits_are_the_same_if_spilled(void **state)
{
	struct actor_job options = { .stage = 2,
				     .parameter_placement = PLACEMENT_HOST,
				     .gradient_placement = PLACEMENT_NVME };
	struct outcome expected = train(&options, false, false);

	FOREACH_CASE (is_pushed_once, 2) {
		struct outcome outcome;

		options.host_budget = 0;
		options.host_budget = least_budget(options, is_pushed_once);
		outcome = train(&options, false, is_pushed_once);
		assert_true(outcome.sums_bytes < expected.sums_bytes / 3);
		assert_true(outcome.hash == expected.hash);
		assert_true(outcome.norm == expected.norm);
	}
}

/* ---- First values ---- */

/* With bits that no format of parameters but fp32 has. */
static float master_of(uint32_t tensor, uint64_t element)
{
	return 1.0f + (float)(element % 8191 + tensor) / 65536;
}

static float parameter_of(uint32_t format, float value)
{
	float widened;
	uint16_t narrow;

	if (format == FORMAT_FP32)
		return value;
	format_narrow(format == FORMAT_BF16 ? MASTER_SPLIT : MASTER_BESIDE, &value, 1, &narrow);
	format_widen(format == FORMAT_BF16 ? MASTER_SPLIT : MASTER_BESIDE, &narrow, 1, &widened);
	return widened;
}

static void write_piece(uint32_t unit, uint32_t tensor, uint64_t first, uint64_t count, bool is_master)
{
	float *window = (float *)actor.window.base;
	enum master_kind kind = formats[tensor] == FORMAT_BF16	 ? MASTER_SPLIT
				: formats[tensor] == FORMAT_FP16 ? MASTER_BESIDE
								 : MASTER_ITSELF;
	static float values[PIECE];

	for (uint64_t i = 0; i < count; i++)
		values[i] = master_of(tensor, first + i);
	if (is_master) {
		memcpy(window, values, count * sizeof(float));
		assert_int_equal(
			actor_await(&actor, actor_send_masters(&actor, unit, tensor, first, count), 0)
				->status,
			0);
	} else {
		format_narrow(kind, values, count, window);
		assert_int_equal(actor_write(&actor, unit, tensor, first, count), 0);
	}
}

/* Of each unit another part as masters: none, all, the first half, the second half, in this order or the
 * other way round; all that is left as parameters, over masters that were written before. */
static void write_unit(uint32_t unit)
{
	for (uint32_t i = 0; i < TENSORS; i++) {
		uint64_t half = elements[i] / 2;

		for (uint64_t first = 0; first < elements[i]; first += PIECE / 2) {
			uint64_t left = elements[i] - first, count = left < PIECE / 2 ? left : PIECE / 2;

			if (unit == 3)
				write_piece(unit, i, first, count, true);
			if (unit != 1 && unit != 3)
				write_piece(unit, i, first, count, unit == 2 && first < half);
			if (unit == 3 && first < half)
				write_piece(unit, i, first, count, false);
			if (unit == 1)
				write_piece(unit, i, first, count, true);
		}
	}
}

static bool is_master_at(uint32_t unit, uint32_t tensor, uint64_t element)
{
	uint64_t half = elements[tensor] / 2, begin = element / (PIECE / 2) * (PIECE / 2);

	return unit == 1 || (unit == 2 && begin < half) || (unit == 3 && begin >= half);
}

static void expect_written(uint32_t unit, uint32_t tensor)
{
	for (uint64_t first = 0; first < elements[tensor]; first += PIECE) {
		uint64_t left = elements[tensor] - first, count = left < PIECE ? left : PIECE;
		const float *window = (const float *)actor.window.base;

		assert_int_equal(actor_read(&actor, unit, tensor, "master", first, count, 0), 0);
		for (uint64_t i = 0; i < count; i++) {
			float value = master_of(tensor, first + i);

			if (!is_master_at(unit, tensor, first + i))
				value = parameter_of(formats[tensor], value);
			if (window[i] != value)
				fail_msg("unit %u, tensor %u, element %llu: %a, not %a", unit, tensor,
					 (unsigned long long)(first + i), (double)window[i], (double)value);
		}
	}
}

static void expect_first_values(const struct actor_job *options, bool is_pushed_once)
{
	struct job *job = enter(&actor, options, is_pushed_once, INITIALIZE_NONE);

	for (uint32_t unit = 0; unit < UNITS; unit++)
		write_unit(unit);
	assert_int_equal(actor_ready(&actor), 0);
	assert_int_equal(job->location.has_given_masters, is_pushed_once);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t tensor = 0; tensor < TENSORS; tensor++)
			expect_written(unit, tensor);
	take_step(0);
	end(job);
}

static void first_values_are_what_was_written(void **state)
{
	struct actor_job options = { .stage = 3, .parameter_placement = PLACEMENT_NVME };

	FOREACH_CASE (is_pushed_once, 2) {
		options.optimizer_placement = PLACEMENT_NVME;
		options.host_budget = 0;
		expect_first_values(&options, is_pushed_once);
		options.gradient_placement = PLACEMENT_NVME;
		options.host_budget = least_budget(options, is_pushed_once);
		expect_first_values(&options, is_pushed_once);
		options.gradient_placement = PLACEMENT_HOST;
		options.optimizer_placement = PLACEMENT_HOST;
		options.host_budget = 0;
		expect_first_values(&options, is_pushed_once);
	}
}

/* In the middle of a write that waits for its turn. */
static void who_dies_while_it_writes_leaves_nothing_behind(void **state)
{
	const struct actor_job options = { .stage = 3, .gradient_placement = PLACEMENT_NVME };

	enter(&actor, &options, true, INITIALIZE_NONE);
	write_unit(1);
	memset(actor.window.base, 0, WINDOW_BYTES);
	actor_send_masters(&actor, 2, 0, 0, PIECE);
	/* The job goes with it. */
	actor_die(&actor);
	scene_settle(&scene);
	expect_first_values(&options, true);
}

/* ---- Promises ---- */

static void a_second_push_is_refused_and_nothing_is_lost(void **state)
{
	const struct actor_job options = { .stage = 3 };
	struct job *job = start(&options, true, INITIALIZE_NORMAL);
	uint64_t expected;

	for (uint64_t step = 0; step < STEPS; step++)
		take_step(step);
	expected = hash_of(STEPS);
	end(job);
	job = start(&options, true, INITIALIZE_NORMAL);
	for (uint64_t step = 0; step < STEPS; step++) {
		push(2, step);
		assert_int_equal(actor_await(&actor, actor_send_push(&actor, 2, 0), 0)->status, -EINVAL);
		assert_non_null(strstr(actor_message(&actor),
				       "unit \"u2\": the job was opened as one whose units are pushed once"));
		for (uint32_t unit = UNITS; unit-- > 0;)
			if (unit != 2)
				push(unit, step);
		assert_int_equal(actor_await(&actor, actor_send_step(&actor, 0.1f), 0)->status, 0);
	}
	assert_true(hash_of(STEPS) == expected);
	end(job);
}

static void of_several_ranks_they_are_wide(void **state)
{
	struct actor_job options = { .stage = 3, .world_size = 2 };
	struct job *job = enter(&actor, &options, true, INITIALIZE_NORMAL);
	uint64_t all = 0;
	options.rank = 1;
	enter(&other, &options, true, INITIALIZE_NORMAL);
	actor_ready_both(&actor, &other);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		all += job->catalog.units[unit].trainable;
	assert_true(job->gradients->sums_memory.length >= all * sizeof(float));
	actor_send_push(&actor, 0, 0);
	assert_int_equal(actor_await(&actor, actor_send_push(&actor, 0, 0), 0)->status, -EINVAL);
	actor_die(&other);
	end(job);
}

static void leave(void)
{
	actor_die(&actor);
	scene_settle(&scene);
}

/* Between two steps, as somebody does who changes his mind about micro-batches. */
static void a_job_without_ranks_gets_other_sums(void **state)
{
	struct actor_job options = { .stage = 3 };
	struct outcome expected = train(&options, false, false);
	struct job *job = start(&options, true, INITIALIZE_NORMAL);
	uint64_t narrow = job->gradients->sums_memory.length;

	take_step(0);
	leave();
	options.mode = MODE_RESUME;
	job = start(&options, false, INITIALIZE_NORMAL);
	assert_int_equal(job->gradients->sums_memory.length, expected.sums_bytes);
	take_step(1);
	leave();
	job = start(&options, true, INITIALIZE_NORMAL);
	assert_int_equal(job->gradients->sums_memory.length, narrow);
	take_step(2);
	assert_true(hash_of(STEPS) == expected.hash);
	end(job);
}

/* Nothing of it can be planned anew, and wide sums have room for everything. */
static void a_job_in_host_memory_keeps_wide_sums(void **state)
{
	struct actor_job options = { .stage = 3,
				     .parameter_placement = PLACEMENT_HOST,
				     .optimizer_placement = PLACEMENT_HOST,
				     .durability = DURABILITY_NONE };
	struct job *job = start(&options, false, INITIALIZE_NORMAL);
	uint64_t wide = job->gradients->sums_memory.length;

	take_step(0);
	actor_die(&actor);
	options.mode = MODE_RESUME;
	job = start(&options, true, INITIALIZE_NORMAL);
	assert_int_equal(job->gradients->sums_memory.length, wide);
	take_step(1);
	end(job);
	options.mode = MODE_EITHER;
	job = start(&options, true, INITIALIZE_NORMAL);
	take_step(0);
	actor_die(&actor);
	options.mode = MODE_RESUME;
	assert_int_equal(actor_join(&scene, &actor, &options), -EINVAL);
	assert_non_null(strstr(actor_message(&actor),
			       "pushed_once is 0 here, 1 in the job, which keeps what it has"));
	end(job);
}

static int setup(void **state)
{
	are_wide = false;
	return scene_setup(state);
}

static int setup_wide(void **state)
{
	are_wide = true;
	return scene_setup(state);
}

#define TEST(name) SCENE_TEST(name, setup)
#define TEST_WIDE(name)                                                                                      \
	{                                                                                                    \
#name "_wide", name, setup_wide, scene_teardown, NULL                                        \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_bits_are_the_same),
		TEST_WIDE(the_bits_are_the_same),
		TEST(gradients_in_fp32_give_the_same_bits),
		TEST(the_bits_are_the_same_if_updated_early),
		TEST_WIDE(the_bits_are_the_same_if_updated_early),
		TEST(the_bits_are_the_same_if_spilled),
		TEST_WIDE(the_bits_are_the_same_if_spilled),
		TEST(first_values_are_what_was_written),
		TEST_WIDE(first_values_are_what_was_written),
		TEST(who_dies_while_it_writes_leaves_nothing_behind),
		TEST(a_second_push_is_refused_and_nothing_is_lost),
		TEST(of_several_ranks_they_are_wide),
		TEST(a_job_without_ranks_gets_other_sums),
		TEST(a_job_in_host_memory_keeps_wide_sums),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
