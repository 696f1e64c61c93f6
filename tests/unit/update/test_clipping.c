/* Clipping: a norm above clip_norm is scaled down to it, however little it is above, and no other one is; to
 * the bit of docs/numerics.md. */
#include <math.h>

#include "tests/unit/test.h"
#include "tests/unit/training.h"

#define CLIP_NORM 0.3f
#define BETA1 0.9f

static struct actor actor;

static void begin(float clip_norm)
{
	static const struct actor_tensor tensor = { "w", FORMAT_FP32, INITIALIZE_ONES, 1, false };

	assert_int_equal(actor_enter(&scene, &actor), 0);
	assert_int_equal(actor_open(&actor, &(struct actor_job){ .clip_norm = clip_norm }), 0);
	assert_int_equal(actor_define(&actor, "unit", &tensor, 1), 0);
	assert_int_equal(actor_ready(&actor), 0);
}

static float factor_of(float clip_norm, double norm)
{
	double clip = clip_norm > 0 && norm > (double)clip_norm ? (double)clip_norm / (norm + 1e-6) : 1;

	return (float)clip;
}

/* AdamW's first moment, which is linear in what is left of the gradient. */
static void expect_moment(uint64_t step, float expected)
{
	assert_int_equal(actor_read(&actor, 0, 0, "m", 0, 1, step), 0);
	assert_memory_equal(actor.window.base, &expected, sizeof(expected));
}

/* Of one gradient, which is the norm then; clip_norm: of the actor's steps. */
static void expect_steps_clipped(float clip_norm, const float *norms, size_t count)
{
	const float rest = (float)(1.0 - (double)BETA1);
	float expected = 0;

	for (size_t i = 0; i < count; i++) {
		uint32_t step;
		double norm;

		actor_fill(&actor, FORMAT_FP32, 1, norms[i]);
		actor_send_push(&actor, 0, 0);
		step = actor_send_step(&actor, 0.1f);
		norm = actor_await(&actor, step, 0)->reply->step->gradient_norm;
		assert_true(norm == (double)norms[i]);
		expected = fmaf(BETA1, expected, rest * (norms[i] * factor_of(clip_norm, norm)));
		expect_moment(i + 1, expected);
	}
}

static void expect_clipped(float clip_norm, const float *norms, size_t count)
{
	begin(clip_norm);
	expect_steps_clipped(clip_norm, norms, count);
}

static void a_norm_is_clipped_as_soon_as_it_is_above(void **state)
{
	const float above = nextafterf(CLIP_NORM, INFINITY);
	const float norms[] = {
		above, CLIP_NORM * 1.001f, CLIP_NORM * 1.05f, CLIP_NORM * 2.0f, CLIP_NORM * 1e6f, above
	};

	/* Else the first one would show nothing. */
	assert_true(above * factor_of(CLIP_NORM, (double)above) < CLIP_NORM);
	expect_clipped(CLIP_NORM, norms, ARRAY_LENGTH(norms));
}

static void a_norm_that_is_not_above_is_left_alone(void **state)
{
	const float norms[] = { CLIP_NORM, nextafterf(CLIP_NORM, 0), CLIP_NORM * 0.999f, CLIP_NORM * 1e-6f,
				0 };

	assert_true(factor_of(CLIP_NORM, (double)CLIP_NORM) == 1);
	expect_clipped(CLIP_NORM, norms, ARRAY_LENGTH(norms));
}

/* A step may say how it clips; below 0: as its job. */
static void a_step_clips_as_it_says_or_as_its_job(void **state)
{
	static const struct {
		float of_job;
		bool has_own;
		float own, expected;
	} cases[] = {
		{ 0, false, 0, 0 },
		{ 0, true, CLIP_NORM, CLIP_NORM },
		{ CLIP_NORM * 3, true, CLIP_NORM, CLIP_NORM },
		{ CLIP_NORM, true, 0, 0 },
		{ CLIP_NORM, true, -1, CLIP_NORM },
	};
	const float norms[] = { 1e-6f, CLIP_NORM, CLIP_NORM * 2, 1e6f };

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
		begin(cases[i].of_job);
		actor.has_clip_norm = cases[i].has_own;
		actor.clip_norm = cases[i].own;
		expect_steps_clipped(cases[i].expected, norms, ARRAY_LENGTH(norms));
		training_end(&actor, scene_job("play"));
	}
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_norm_is_clipped_as_soon_as_it_is_above),
		TEST(a_norm_that_is_not_above_is_left_alone),
		TEST(a_step_clips_as_it_says_or_as_its_job),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
