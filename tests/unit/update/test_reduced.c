/* Steps with the optimizer none: two ranks read the gradients of their parts, write masters and finish, or
 * do so at the wrong time and place, or go. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/bfloat16.h"
#include "common/size.h"
#include "daemon/life/life.h"
#include "daemon/model/job.h"
#include "daemon/residency/residency.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

#define ELEMENTS 3000 /* of a tensor; 12 blocks with the padding */
#define HALF 1536     /* where the shard of rank 1 begins */

static struct actor ranks[2];

/* ---- A job of two ranks ---- */

static void open_rank(uint32_t rank, const struct actor_job *job)
{
	static const struct actor_tensor one[] = { { "w", FORMAT_BF16, INITIALIZE_ONES, ELEMENTS, false } };
	static const struct actor_tensor two[] = { { "f", FORMAT_FP32, INITIALIZE_ONES, ELEMENTS, true },
						   { "h", FORMAT_FP32, INITIALIZE_ONES, ELEMENTS, false } };
	struct actor_job of_rank = *job;

	of_rank.rank = rank;
	of_rank.world_size = 2;
	of_rank.optimizer = OPTIMIZER_NONE;
	assert_int_equal(actor_open(&ranks[rank], &of_rank), 0);
	assert_int_equal(actor_define(&ranks[rank], "one", one, 1), 0);
	assert_int_equal(actor_define(&ranks[rank], "two", two, 2), 0);
}

static void begin(const struct actor_job *job)
{
	for (uint32_t rank = 0; rank < 2; rank++) {
		assert_int_equal(actor_enter(&scene, &ranks[rank]), 0);
		open_rank(rank, job);
	}
	actor_ready_both(&ranks[0], &ranks[1]);
}

static void begin_alone(uint32_t optimizer, uint64_t elements)
{
	assert_int_equal(actor_enter(&scene, &ranks[0]), 0);
	assert_int_equal(actor_open(&ranks[0], &(struct actor_job){ .stage = 3, .optimizer = optimizer }), 0);
	assert_int_equal(actor_define_units(&ranks[0], 1, elements), 0);
	assert_int_equal(actor_ready(&ranks[0]), 0);
}

static struct job *play(void)
{
	return scene_job("play");
}

/* So that another one can begin. */
static void end(void)
{
	actor_die(&ranks[0]);
	actor_die(&ranks[1]);
	job_drop(play());
	scene_settle(&scene);
}

/* ---- Steps ---- */

/* Both ranks push values of the first unit, and close their parts. */
static void close_parts(float value, uint32_t numbers[2])
{
	uint32_t pushes[2];

	for (uint32_t rank = 0; rank < 2; rank++) {
		actor_fill(&ranks[rank], FORMAT_BF16, ELEMENTS, value);
		pushes[rank] = actor_send_push(&ranks[rank], 0, 0);
	}
	for (uint32_t rank = 0; rank < 2; rank++)
		assert_int_equal(actor_await(&ranks[rank], pushes[rank], 0)->status, 0);
	for (uint32_t rank = 0; rank < 2; rank++)
		numbers[rank] = actor_send_step(&ranks[rank], 0.1f);
}

static const struct answer *await_reduced(struct actor *actor, uint32_t number)
{
	const struct answer *answer = actor_await(actor, number, 0);

	assert_int_equal(answer->status, 0);
	assert_int_equal(answer->reply->body_case, TIERD__WIRE__REPLY__BODY_STEP_REDUCED);
	return answer;
}

/* And the step is reduced. */
static void reduce(float value, uint32_t numbers[2])
{
	close_parts(value, numbers);
	for (uint32_t rank = 0; rank < 2; rank++)
		await_reduced(&ranks[rank], numbers[rank]);
}

static void expect_applied(struct actor *actor, uint32_t number, uint64_t step)
{
	const struct answer *answer = actor_await(actor, number, 1);

	assert_int_equal(answer->status, 0);
	assert_int_equal(answer->reply->body_case, TIERD__WIRE__REPLY__BODY_STEP);
	assert_int_equal(answer->reply->step->step, step);
	assert_false(answer->reply->step->is_skipped);
	assert_int_equal(actor_await(actor, number, 2)->status, 0);
}

static void finish_all(const uint32_t numbers[2], uint64_t step)
{
	assert_int_equal(actor_finish(&ranks[0]), 0);
	assert_int_equal(actor_finish(&ranks[1]), 0);
	expect_applied(&ranks[0], numbers[0], step);
	expect_applied(&ranks[1], numbers[1], step);
}

static void put(struct actor *actor, uint64_t count, float value)
{
	for (uint64_t i = 0; i < count; i++)
		((float *)actor->window.base)[i] = value;
}

static int write_masters(struct actor *actor, uint32_t unit, uint32_t tensor, uint64_t first, uint64_t count,
			 float value)
{
	put(actor, count, value);
	return actor_await(actor, actor_send_masters(actor, unit, tensor, first, count), 0)->status;
}

static void expect_values(struct actor *actor, const char *state, uint64_t first, uint64_t count,
			  uint64_t version, float value)
{
	assert_int_equal(actor_read(actor, 0, 0, state, first, count, version), 0);
	for (uint64_t i = 0; i < count; i++)
		assert_true(((float *)actor->window.base)[i] == value);
}

static void expect_error(const struct actor *actor, int status, int expected, const char *text)
{
	assert_int_equal(status, expected);
	if (!strstr(actor_message(actor), text))
		print_message("\"%s\" is not in: %s\n", text, actor_message(actor));
	assert_non_null(strstr(actor_message(actor), text));
}

/* ---- Taking steps ---- */

static void take_step(uint32_t stage, bool is_reverse)
{
	const struct actor_job job = { .stage = stage, .clip_norm = 1.0f };
	const struct answer *answer;
	uint32_t numbers[2], first = is_reverse, second = !is_reverse;
	double norm = sqrt(ELEMENTS * 4.0);

	begin(&job);
	reduce(1.0f, numbers);
	answer = actor_find(&ranks[0], numbers[0], 0);
	assert_int_equal(answer->reply->step_reduced->step, 1);
	assert_true(answer->reply->step_reduced->gradient_norm == norm);
	for (uint32_t rank = 0; rank < 2; rank++) {
		uint64_t begin = rank * HALF, count = rank ? ELEMENTS - HALF : HALF;

		expect_values(&ranks[rank], "gradient", begin, count, 0, 2.0f * (float)(1.0 / (norm + 1e-6)));
		assert_int_equal(write_masters(&ranks[rank], 0, 0, begin, count, 7.00390625f + (float)rank),
				 0);
	}
	assert_int_equal(actor_finish(&ranks[first]), 0);
	scene_settle(&scene);
	assert_int_equal(play()->decided, 0);
	assert_int_equal(actor_finish(&ranks[second]), 0);
	expect_applied(&ranks[0], numbers[0], 1);
	expect_applied(&ranks[1], numbers[1], 1);
	/* All of the mantissa comes back, and the parameter is the rounded one. */
	expect_values(&ranks[0], "master", 0, HALF, 1, 7.00390625f);
	expect_values(&ranks[0], "master", HALF, ELEMENTS - HALF, 1, 8.00390625f);
	assert_int_equal(actor_read(&ranks[1], 0, 0, "parameter", HALF, 1, 1), 0);
	assert_int_equal(*(uint16_t *)ranks[1].window.base, bfloat16_from_float(8.00390625f));
	end();
}

static void owners_finish_in_any_order_at_every_stage(void **state)
{
	for (uint32_t stage = 0; stage < 4; stage++)
		take_step(stage, stage % 2);
}

static void what_an_owner_does_not_write_keeps_its_value(void **state)
{
	uint32_t numbers[2];

	begin(&(struct actor_job){ .stage = 3 });
	reduce(1.0f, numbers);
	assert_int_equal(write_masters(&ranks[0], 0, 0, 100, 57, 3.0f), 0);
	assert_int_equal(write_masters(&ranks[0], 0, 0, 1535, 1, 4.0f), 0);
	/* Again, over a part of what was written. */
	assert_int_equal(write_masters(&ranks[0], 0, 0, 120, 10, 5.0f), 0);
	finish_all(numbers, 1);
	expect_values(&ranks[1], "master", 0, 100, 1, 1.0f);
	expect_values(&ranks[1], "master", 100, 20, 1, 3.0f);
	expect_values(&ranks[1], "master", 120, 10, 1, 5.0f);
	expect_values(&ranks[1], "master", 130, 27, 1, 3.0f);
	expect_values(&ranks[1], "master", 157, 1535 - 157, 1, 1.0f);
	expect_values(&ranks[1], "master", 1535, 1, 1, 4.0f);
	expect_values(&ranks[1], "master", HALF, ELEMENTS - HALF, 1, 1.0f);
	/* Nor does the next step remember what was written in this one. */
	reduce(1.0f, numbers);
	expect_values(&ranks[0], "gradient", 0, HALF, 1, 2.0f);
	finish_all(numbers, 2);
	expect_values(&ranks[1], "master", 100, 20, 2, 3.0f);
}

/* As who needs whole matrices does: which rank takes what is theirs to say. */
static void a_rank_may_take_what_is_in_the_shard_of_another(void **state)
{
	uint32_t numbers[2];

	for (uint32_t stage = 0; stage < 4; stage++) {
		begin(&(struct actor_job){ .stage = stage });
		reduce(1.0f, numbers);
		expect_values(&ranks[1], "gradient", 0, ELEMENTS, 0, 2.0f);
		expect_values(&ranks[0], "gradient", 0, ELEMENTS, 0, 2.0f);
		assert_int_equal(write_masters(&ranks[1], 0, 0, 0, ELEMENTS, 3.0f), 0);
		finish_all(numbers, 1);
		expect_values(&ranks[0], "master", 0, ELEMENTS, 1, 3.0f);
		end();
	}
}

/* So an optimizer's state is always that of the parameters beside it. */
static void what_is_kept_before_the_finish_comes_with_that_step(void **state)
{
	Tierd__Wire__BlobReply blob;
	uint32_t numbers[2];

	begin(&(struct actor_job){ .stage = 3, .blob_bytes = MIB });
	assert_int_equal(actor_set_blob(&ranks[0], "before", 10, 'b'), 0);
	reduce(1.0f, numbers);
	assert_int_equal(actor_set_blob(&ranks[0], "within", 10, 'w'), 0);
	assert_int_equal(actor_get_blob(&ranks[0], "within", 0, &blob), -ENOENT);
	assert_int_equal(actor_finish(&ranks[0]), 0);
	assert_int_equal(actor_set_blob(&ranks[0], "after", 10, 'a'), 0);
	assert_int_equal(actor_finish(&ranks[1]), 0);
	expect_applied(&ranks[0], numbers[0], 1);
	assert_int_equal(actor_get_blob(&ranks[0], "before", 0, &blob), 0);
	assert_int_equal(blob.step, 1);
	assert_int_equal(actor_get_blob(&ranks[0], "within", 0, &blob), 0);
	assert_int_equal(blob.step, 1);
	assert_int_equal(actor_get_blob(&ranks[0], "after", 0, &blob), -ENOENT);
	/* What the rank does not finish is lost with the step. */
	reduce(1.0f, numbers);
	assert_int_equal(actor_set_blob(&ranks[0], "within", 10, 'x'), 0);
	actor_die(&ranks[1]);
	scene_settle(&scene);
	assert_int_equal(actor_get_blob(&ranks[0], "within", 0, &blob), 0);
	assert_int_equal(blob.step, 1);
	assert_int_equal(((const char *)ranks[0].window.base)[0], 'w');
}

static void a_unit_that_nobody_pushed_is_not_updated(void **state)
{
	uint32_t numbers[2];

	begin(&(struct actor_job){ .stage = 2 });
	reduce(1.0f, numbers);
	expect_error(&ranks[0], write_masters(&ranks[0], 1, 1, 0, 1, 3.0f), -ENODATA,
		     "nobody has pushed unit \"two\" in this step");
	expect_error(&ranks[0], actor_read(&ranks[0], 1, 1, "gradient", 0, 1, 0), -ENODATA,
		     "nobody has pushed unit \"two\" in this step");
	finish_all(numbers, 1);
	assert_int_equal(actor_read(&ranks[0], 1, 1, "master", 0, ELEMENTS, 1), 0);
	assert_true(*(float *)ranks[0].window.base == 1.0f);
}

static void a_skipped_step_needs_no_finish(void **state)
{
	uint32_t numbers[2];

	begin(&(struct actor_job){ .stage = 1 });
	close_parts(INFINITY, numbers);
	for (uint32_t rank = 0; rank < 2; rank++) {
		const struct answer *answer = actor_await(&ranks[rank], numbers[rank], 0);

		assert_int_equal(answer->reply->body_case, TIERD__WIRE__REPLY__BODY_STEP);
		assert_true(answer->reply->step->is_skipped);
	}
	expect_error(&ranks[0], actor_finish(&ranks[0]), -EBUSY, "or one that was skipped");
	reduce(1.0f, numbers);
	finish_all(numbers, 2);
}

/* ---- At the wrong time, or in the wrong place ---- */

static void expect_wrong_time(struct actor *actor, const char *text)
{
	expect_error(actor, actor_finish(actor), -EBUSY, text);
	expect_error(actor, write_masters(actor, 0, 0, 0, 1, 9.0f), -EBUSY, text);
	expect_error(actor, actor_read(actor, 0, 0, "gradient", 0, 1, 0), -EBUSY, text);
}

static void shards_are_written_between_reduced_and_finish_alone(void **state)
{
	uint32_t numbers[2];

	begin(&(struct actor_job){ .stage = 3 });
	expect_wrong_time(&ranks[0], "it has closed none");
	numbers[0] = actor_send_step(&ranks[0], 0.1f);
	expect_wrong_time(&ranks[0], "this one is not reduced yet");
	expect_wrong_time(&ranks[1], "it has closed none");
	numbers[1] = actor_send_step(&ranks[1], 0.1f);
	await_reduced(&ranks[0], numbers[0]);
	assert_int_equal(actor_finish(&ranks[0]), 0);
	expect_wrong_time(&ranks[0], "it has finished this one already");
	assert_int_equal(actor_finish(&ranks[1]), 0);
	expect_applied(&ranks[0], numbers[0], 1);
	expect_wrong_time(&ranks[0], "it has closed none");
	expect_values(&ranks[1], "master", 0, ELEMENTS, 1, 1.0f);
}

static void wrong_masters_are_refused_without_harm(void **state)
{
	uint32_t numbers[2];

	begin(&(struct actor_job){ .stage = 3 });
	reduce(1.0f, numbers);
	struct actor *actor = &ranks[0];
	float *window = (float *)actor->window.base;

	expect_error(actor, write_masters(actor, 0, 0, ELEMENTS, 1, 9.0f), -ERANGE, "has 3000 elements");
	expect_error(actor, write_masters(actor, 0, 0, UINT64_MAX, 2, 9.0f), -ERANGE, "has 3000 elements");
	expect_error(actor, write_masters(actor, 0, 1, 0, 1, 9.0f), -EINVAL, "has no tensor 1");
	expect_error(actor, write_masters(actor, 2, 0, 0, 1, 9.0f), -EINVAL, "no unit 2");
	expect_error(actor, write_masters(actor, 1, 0, 0, 1, 9.0f), -EINVAL, "\"f\" is frozen");
	expect_error(actor, actor_write(actor, 0, 0, 0, 1), -EINVAL, "set is_master");
	expect_error(actor, actor_read(actor, 1, 0, "gradient", 0, 1, 0), -ENODATA, "it has no gradient");
	expect_error(actor, actor_read(actor, 0, 0, "m", 0, 1, 0), -ENODATA,
		     "there are: parameter, master, step, gradient");
	put(actor, HALF, 9.0f);
	for (unsigned i = 0; i < 2; i++) {
		window[HALF - 1] = i ? NAN : -INFINITY;
		expect_error(actor, actor_await(actor, actor_send_masters(actor, 0, 0, 0, HALF), 0)->status,
			     -EDOM, "a NaN or an infinity");
	}
	assert_int_equal(write_masters(actor, 0, 0, 5, 0, 9.0f), 0);
	expect_values(actor, "gradient", 0, HALF, 0, 2.0f);
	assert_int_equal(write_masters(actor, 0, 0, 10, 1, 9.0f), 0);
	expect_error(actor, actor_read(actor, 0, 0, "gradient", 0, HALF, 0), -ENODATA,
		     "masters have been written over");
	expect_values(actor, "gradient", 11, HALF - 11, 0, 2.0f);
	finish_all(numbers, 1);
	expect_values(actor, "master", 0, 10, 1, 1.0f);
	expect_values(actor, "master", 10, 1, 1, 9.0f);
	expect_values(actor, "master", 11, ELEMENTS - 11, 1, 1.0f);
}

static void masters_in_too_many_pieces_are_refused(void **state)
{
	struct actor *actor = &ranks[0];

	begin_alone(OPTIMIZER_NONE, 4 * CATALOG_MAX_SPANS);
	assert_int_equal(actor_await(actor, actor_send_push(actor, 0, 0), 0)->status, 0);
	await_reduced(actor, actor_send_step(actor, 0.1f));
	for (uint64_t i = 0; i < CATALOG_MAX_SPANS; i++)
		assert_int_equal(write_masters(actor, 0, 0, 2 * i, 1, 9.0f), 0);
	expect_error(actor, write_masters(actor, 0, 0, 2 * CATALOG_MAX_SPANS, 1, 9.0f), -E2BIG,
		     "write it in order");
	expect_values(actor, "gradient", 2 * CATALOG_MAX_SPANS, 1, 0, 0.0f);
	assert_int_equal(actor_finish(actor), 0);
	while (play()->step == 0)
		scene_wait(&scene);
	expect_values(actor, "master", 2 * CATALOG_MAX_SPANS - 2, 1, 1, 9.0f);
	expect_values(actor, "master", 2 * CATALOG_MAX_SPANS - 1, 2, 1, 1.0f);
}

static void other_optimizers_have_no_reduced_steps(void **state)
{
	struct actor *actor = &ranks[0];

	begin_alone(OPTIMIZER_ADAMW, ELEMENTS);
	expect_error(actor, actor_finish(actor), -EBUSY, "it has closed none");
	expect_error(actor, write_masters(actor, 0, 0, 0, 1, 9.0f), -EBUSY, "has been ready already");
	expect_error(actor, actor_read(actor, 0, 0, "gradient", 0, 1, 0), -ENODATA,
		     "there are: parameter, master, m, v");
	assert_int_equal(actor_await(actor, actor_send_step(actor, 0.1f), 0)->reply->body_case,
			 TIERD__WIRE__REPLY__BODY_STEP);
}

/* ---- Waiting for oneself ---- */

static void await_gather(struct actor *actor, uint32_t gather)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__GatherAwait await = TIERD__WIRE__GATHER_AWAIT__INIT;

	await.job = actor->job;
	await.request = gather;
	request.body_case = TIERD__WIRE__REQUEST__BODY_GATHER_AWAIT;
	request.gather_await = &await;
	assert_int_equal(actor_ask(actor, &request, NULL), 0);
}

static int push_now(struct actor *actor)
{
	return actor_await(actor, actor_send_push(actor, 0, 0), 0)->status;
}

static void a_rank_cannot_wait_for_its_own_finish(void **state)
{
	struct actor *actor = &ranks[0];
	uint32_t numbers[2];

	begin(&(struct actor_job){ .stage = 3 });
	close_parts(1.0f, numbers);
	for (unsigned when = 0; when < 2; when++) {
		expect_error(actor, actor_gather(actor, 0, 1, NULL), -EBUSY, "until the rank finishes it");
		expect_error(actor, push_now(actor), -EBUSY, "has to finish its step before it pushes more");
		expect_error(actor, actor_take_step(actor), -EBUSY, "call tierd_step_finish first");
		await_reduced(actor, numbers[0]);
	}
	finish_all(numbers, 1);
	assert_int_equal(actor_gather(actor, 0, 1, NULL), 0);
}

/* It was sent before the step, and would be granted with its values. */
static void nor_can_a_gather_that_was_sent_before_the_step(void **state)
{
	struct blockade blockade;
	uint32_t gather, numbers[2];

	begin(&(struct actor_job){ .stage = 3 });
	assert_true(residency_evict(play(), 0));
	blockade_begin(&scene, scene.node->workers, &blockade);
	gather = actor_send_gather(&ranks[0], 0, 0, false);
	for (uint32_t rank = 0; rank < 2; rank++)
		numbers[rank] = actor_send_step(&ranks[rank], 0.1f);
	assert_null(actor_find(&ranks[0], gather, 0));
	await_gather(&ranks[0], gather);
	assert_int_equal(actor_find(&ranks[0], gather, 0)->status, -EBUSY);
	blockade_end(&blockade);
	await_reduced(&ranks[0], numbers[0]);
	finish_all(numbers, 1);
}

static void values_before_the_step_are_read_until_the_finish(void **state)
{
	uint32_t numbers[2];

	begin(&(struct actor_job){ .stage = 3 });
	close_parts(1.0f, numbers);
	expect_values(&ranks[0], "master", 0, ELEMENTS, 1, 1.0f);
	await_reduced(&ranks[0], numbers[0]);
	assert_int_equal(write_masters(&ranks[0], 0, 0, 0, HALF, 2.0f), 0);
	expect_values(&ranks[0], "master", 0, ELEMENTS, 1, 1.0f);
	assert_int_equal(actor_read(&ranks[0], 0, 0, "parameter", 0, 1, 1), 0);
	finish_all(numbers, 1);
	expect_values(&ranks[0], "master", 0, HALF, 1, 2.0f);
}

/* Who has finished goes on, though others have not. */
static void the_next_part_may_come_after_the_finish(void **state)
{
	uint32_t numbers[2], next;

	begin(&(struct actor_job){ .stage = 3 });
	reduce(1.0f, numbers);
	assert_int_equal(actor_finish(&ranks[0]), 0);
	actor_fill(&ranks[0], FORMAT_BF16, ELEMENTS, 3.0f);
	actor_send_push(&ranks[0], 0, 0);
	next = actor_send_step(&ranks[0], 0.1f);
	scene_settle(&scene);
	expect_values(&ranks[1], "gradient", HALF, 100, 1, 2.0f);
	assert_int_equal(write_masters(&ranks[1], 0, 0, HALF, 100, 5.0f), 0);
	assert_int_equal(actor_finish(&ranks[1]), 0);
	expect_applied(&ranks[0], numbers[0], 1);
	numbers[1] = actor_send_step(&ranks[1], 0.1f);
	await_reduced(&ranks[0], next);
	expect_values(&ranks[0], "gradient", 0, HALF, 2, 3.0f);
	expect_values(&ranks[0], "master", HALF, 100, 2, 5.0f);
	numbers[0] = next;
	finish_all(numbers, 2);
}

/* What is put aside comes home while the step is reduced, and is not taken for what that waits for. */
static void gradients_of_the_next_step_are_put_aside(void **state)
{
	uint32_t numbers[2];

	begin(&(struct actor_job){ .stage = 3 });
	reduce(1.0f, numbers);
	assert_int_equal(write_masters(&ranks[0], 0, 0, 0, HALF, 5.0f), 0);
	assert_int_equal(actor_finish(&ranks[0]), 0);
	for (uint32_t buffer = 0; buffer < 2; buffer++)
		actor_send_push(&ranks[0], 0, buffer);
	assert_int_equal(
		actor_await(&ranks[0], actor_send_buffer_wait(&ranks[0], 0, ranks[0].buffer_count), 0)
			->status,
		0);
	scene_settle(&scene);
	expect_values(&ranks[1], "gradient", HALF, 100, 1, 2.0f);
	assert_int_equal(actor_finish(&ranks[1]), 0);
	expect_applied(&ranks[0], numbers[0], 1);
	expect_applied(&ranks[1], numbers[1], 1);
	expect_values(&ranks[1], "master", 0, HALF, 1, 5.0f);
}

/* ---- Copies under way ---- */

static void a_finish_waits_for_what_is_being_written(void **state)
{
	struct blockade blockade;
	uint32_t numbers[2], write;

	begin(&(struct actor_job){ .stage = 3 });
	reduce(1.0f, numbers);
	blockade_begin(&scene, scene.node->workers, &blockade);
	put(&ranks[0], HALF, 6.0f);
	write = actor_send_masters(&ranks[0], 0, 0, 0, HALF);
	expect_error(&ranks[0], actor_read(&ranks[0], 0, 0, "gradient", 0, 1, 0), -EBUSY,
		     "the window is in use");
	assert_int_equal(actor_finish(&ranks[0]), 0);
	assert_int_equal(actor_finish(&ranks[1]), 0);
	assert_int_equal(play()->decided, 0);
	blockade_end(&blockade);
	assert_int_equal(actor_await(&ranks[0], write, 0)->status, 0);
	expect_applied(&ranks[0], numbers[0], 1);
	expect_values(&ranks[1], "master", 0, HALF, 1, 6.0f);
}

/* ---- Ranks that go ---- */

enum manner { DIES, DETACHES, CLOSES, MANNERS };

static void leave(enum manner manner)
{
	if (manner == DIES)
		actor_die(&ranks[1]);
	else
		assert_int_equal(
			actor_await(&ranks[1], actor_send_leave(&ranks[1], manner == DETACHES), 0)->status,
			0);
}

static void come_back(enum manner manner)
{
	if (manner == DIES)
		assert_int_equal(actor_enter(&scene, &ranks[1]), 0);
	open_rank(1, &(struct actor_job){ .stage = 3 });
	actor_ready_both(&ranks[0], &ranks[1]);
}

static void expect_dropped(const struct actor *actor, uint32_t number, unsigned nth)
{
	const struct answer *answer = actor_find(actor, number, nth);

	assert_non_null(answer);
	assert_int_equal(answer->status, -ESTALE);
	assert_non_null(strstr(answer->reply->status->message, "rank 1"));
}

static void lose_rank(enum manner manner, bool has_finished)
{
	uint32_t numbers[2];

	begin(&(struct actor_job){ .stage = 3 });
	reduce(1.0f, numbers);
	for (uint32_t rank = 0; rank < 2; rank++)
		assert_int_equal(write_masters(&ranks[rank], 0, 0, rank * HALF, 1000, 9.0f), 0);
	if (has_finished)
		assert_int_equal(actor_finish(&ranks[0]), 0);
	leave(manner);
	expect_dropped(&ranks[0], numbers[0], 1);
	assert_int_equal(actor_finish(&ranks[0]), -ESTALE);
	assert_int_equal(write_masters(&ranks[0], 0, 0, 0, 1, 9.0f), -ESTALE);
	assert_int_equal(actor_read(&ranks[0], 0, 0, "gradient", 0, 1, 0), -ESTALE);
	expect_values(&ranks[0], "master", 0, ELEMENTS, 0, 1.0f);
	come_back(manner);
	assert_int_equal(ranks[0].step, 0);
	expect_wrong_time(&ranks[0], "it has closed none");
	reduce(1.0f, numbers);
	expect_values(&ranks[1], "gradient", HALF, 1000, 0, 2.0f);
	assert_int_equal(write_masters(&ranks[1], 0, 0, HALF, 7, 4.0f), 0);
	finish_all(numbers, 1);
	expect_values(&ranks[0], "master", 0, HALF, 1, 1.0f);
	expect_values(&ranks[0], "master", HALF, 7, 1, 4.0f);
	end();
}

static void the_loss_of_a_rank_costs_a_reduced_step(void **state)
{
	for (unsigned manner = 0; manner < MANNERS; manner++) {
		lose_rank((enum manner)manner, false);
		lose_rank((enum manner)manner, true);
	}
}

/* What its last request still writes must not be in the sums of the next epoch. */
static void an_epoch_begins_when_the_copies_of_the_last_are_home(void **state)
{
	struct blockade blockade;
	uint32_t numbers[2], writes[2], ready[2];

	begin(&(struct actor_job){ .stage = 3 });
	reduce(1.0f, numbers);
	blockade_begin(&scene, scene.node->workers, &blockade);
	for (uint32_t rank = 0; rank < 2; rank++) {
		put(&ranks[rank], 1000, 9.0f);
		writes[rank] = actor_send_masters(&ranks[rank], 0, 0, rank * HALF, 1000);
	}
	actor_die(&ranks[1]);
	expect_dropped(&ranks[0], numbers[0], 1);
	assert_int_equal(actor_enter(&scene, &ranks[1]), 0);
	open_rank(1, &(struct actor_job){ .stage = 3 });
	for (uint32_t rank = 0; rank < 2; rank++)
		ready[rank] = actor_send_ready(&ranks[rank], -1);
	event_base_loop(scene.loop, EVLOOP_NONBLOCK);
	assert_null(actor_find(&ranks[0], ready[0], 0));
	blockade_end(&blockade);
	assert_int_equal(actor_await(&ranks[0], writes[0], 0)->status, -ESTALE);
	for (uint32_t rank = 0; rank < 2; rank++)
		assert_int_equal(actor_finish_ready(&ranks[rank], ready[rank]), 0);
	reduce(1.0f, numbers);
	expect_values(&ranks[0], "gradient", 0, 1000, 0, 2.0f);
	finish_all(numbers, 1);
	expect_values(&ranks[0], "master", 0, ELEMENTS, 1, 1.0f);
}

/* Its first step is applied, for the one after it it would have to be here. */
static void who_closes_with_two_steps_takes_the_first(void **state)
{
	uint32_t numbers[2], next, leaving;

	begin(&(struct actor_job){ .stage = 3 });
	reduce(1.0f, numbers);
	assert_int_equal(actor_finish(&ranks[1]), 0);
	next = actor_send_step(&ranks[1], 0.1f);
	leaving = actor_send_leave(&ranks[1], false);
	scene_settle(&scene);
	assert_null(actor_find(&ranks[1], leaving, 0));
	assert_int_equal(actor_finish(&ranks[0]), 0);
	expect_applied(&ranks[0], numbers[0], 1);
	assert_int_equal(actor_await(&ranks[1], leaving, 0)->status, 0);
	expect_dropped(&ranks[1], next, 0);
	come_back(CLOSES);
	assert_int_equal(ranks[0].step, 1);
}

static void a_job_is_dropped_while_masters_are_written(void **state)
{
	struct blockade blockade;
	uint32_t numbers[2];

	begin(&(struct actor_job){ .stage = 0 });
	reduce(1.0f, numbers);
	blockade_begin(&scene, scene.node->workers, &blockade);
	put(&ranks[0], HALF, 9.0f);
	actor_send_masters(&ranks[0], 0, 0, 0, HALF);
	assert_int_equal(actor_drop(&ranks[1], true), 0);
	event_base_loop(scene.loop, EVLOOP_NONBLOCK);
	assert_false(queue_is_empty(&scene.node->jobs.dying));
	blockade_end(&blockade);
	scene_settle(&scene);
	assert_true(queue_is_empty(&scene.node->jobs.dying));
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(owners_finish_in_any_order_at_every_stage),
		TEST(what_an_owner_does_not_write_keeps_its_value),
		TEST(a_rank_may_take_what_is_in_the_shard_of_another),
		TEST(what_is_kept_before_the_finish_comes_with_that_step),
		TEST(a_unit_that_nobody_pushed_is_not_updated),
		TEST(a_skipped_step_needs_no_finish),
		TEST(shards_are_written_between_reduced_and_finish_alone),
		TEST(wrong_masters_are_refused_without_harm),
		TEST(masters_in_too_many_pieces_are_refused),
		TEST(other_optimizers_have_no_reduced_steps),
		TEST(a_rank_cannot_wait_for_its_own_finish),
		TEST(nor_can_a_gather_that_was_sent_before_the_step),
		TEST(values_before_the_step_are_read_until_the_finish),
		TEST(the_next_part_may_come_after_the_finish),
		TEST(gradients_of_the_next_step_are_put_aside),
		TEST(a_finish_waits_for_what_is_being_written),
		TEST(the_loss_of_a_rank_costs_a_reduced_step),
		TEST(an_epoch_begins_when_the_copies_of_the_last_are_home),
		TEST(who_closes_with_two_steps_takes_the_first),
		TEST(a_job_is_dropped_while_masters_are_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
