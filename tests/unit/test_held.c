/* Gradients that are put aside: whatever becomes of the step meanwhile, each is summed once, into the step
 * that it belongs to. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/gradient.h"
#include "tests/unit/scene_test.h"

#define ELEMENTS 1000

static struct actor first, second;
static struct blockade blockade;

static void open_rank(struct actor *actor, uint32_t rank)
{
	const struct actor_tensor tensor = { "w", FORMAT_FP32, INITIALIZE_ONES, ELEMENTS, false };
	const struct actor_tensor other = { "o", FORMAT_FP32, INITIALIZE_ONES, ELEMENTS, false };
	const struct actor_job job = {
		.stage = 2, .rank = rank, .world_size = 2, .nonfinite = NONFINITE_REPORT
	};

	assert_int_equal(actor_enter(&scene, actor), 0);
	assert_int_equal(actor_open(actor, &job), 0);
	assert_int_equal(actor_define(actor, "unit", &tensor, 1), 0);
	assert_int_equal(actor_define(actor, "other", &other, 1), 0);
}

static void start_two(void)
{
	uint32_t ready;

	open_rank(&first, 0);
	open_rank(&second, 1);
	ready = actor_send_ready(&first, -1);
	assert_int_equal(actor_ready(&second), 0);
	assert_int_equal(actor_finish_ready(&first, ready), 0);
}

static void push(struct actor *actor, uint32_t buffer, float value)
{
	float *gradients = (float *)(actor->gradients.base + buffer * actor->buffer_bytes);

	for (unsigned i = 0; i < ELEMENTS; i++)
		gradients[i] = value;
	actor_send_push(actor, 0, buffer);
}

static uint32_t send_buffer_wait(struct actor *actor)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__BufferWait wait = TIERD__WIRE__BUFFER_WAIT__INIT;

	wait.job = actor->job;
	wait.epoch = actor->epoch;
	request.body_case = TIERD__WIRE__REQUEST__BODY_BUFFER_WAIT;
	request.buffer_wait = &wait;
	return actor_send(actor, &request);
}

/* ---- The tests ---- */

static void take_good_step(void)
{
	uint32_t steps[2];

	for (unsigned i = 0; i < first.buffer_count; i++)
		push(&second, i, 1.0f);
	steps[0] = actor_send_step(&first, 0.1f);
	steps[1] = actor_send_step(&second, 0.1f);
	assert_int_equal(actor_await(&first, steps[0], 0)->status, 0);
	assert_int_equal(actor_await(&second, steps[1], 0)->status, 0);
	/* Every push of both, and nothing of the step that failed. */
	double norm = actor_find(&first, steps[0], 0)->reply->step->gradient_norm;

	assert_true(fabs(norm - 2.0 * first.buffer_count * sqrt(ELEMENTS)) < 1e-3);
}

static void gradients_on_their_way_aside_survive_a_failed_step(void **state)
{
	const struct job *job;
	uint32_t steps[2], wait;

	start_two();
	job = job_find(scene.node, geteuid(), "play");
	push(&first, 0, 1.0f);
	push(&second, 0, INFINITY);
	scene_settle(&scene);
	steps[0] = actor_send_step(&first, 0.1f);
	/* It pushes ahead for the step after it, with all its buffers. */
	for (unsigned i = 0; i < first.buffer_count; i++)
		push(&first, i, 1.0f);
	steps[1] = actor_send_step(&second, 0.1f);
	assert_non_null(job->norm);
	blockade_begin(&scene, scene.node->workers, &blockade);
	wait = send_buffer_wait(&first);
	assert_int_equal(job->reductions_running, 1);
	assert_int_equal(actor_await(&first, steps[0], 0)->status, -EDOM);
	assert_int_equal(actor_await(&second, steps[1], 0)->status, -EDOM);
	assert_int_equal(job->reductions_running, 1);
	blockade_end(&blockade);
	assert_int_equal(actor_await(&first, wait, 0)->status, 0);
	QUEUE_FOREACH (link, &job->sums[0].waiting)
		assert_int_equal(queue_entry(link, struct contribution, link)->step, gradient_open_step(job));
	take_good_step();
}

/* One rank pushes one unit, the other another, and none ever comes to both. The first one waits for a buffer
 * then, and all that were planned to put gradients aside are taken. */
static struct job *block_first(uint32_t *ret_wait)
{
	struct job *job;

	start_two();
	job = job_find(scene.node, geteuid(), "play");
	for (unsigned i = 0; i < first.buffer_count; i++) {
		actor_send_push(&first, 0, i);
		actor_send_push(&second, 1, i);
	}
	for (unsigned i = 0; i < job->held_count; i++) {
		assert_int_equal(actor_await(&first, send_buffer_wait(&first), 0)->status, 0);
		actor_send_push(&first, 0, 0);
	}
	*ret_wait = send_buffer_wait(&first);
	return job;
}

static void buffers_beyond_the_plan_are_given_back_when_nobody_trains(void **state)
{
	uint32_t wait;
	struct job *job = block_first(&wait);
	uint64_t planned = promised_bytes(job), others = scene.node->host_used - job->host_bytes;

	/* The second one may still push what it waits for. */
	scene_settle(&scene);
	assert_int_equal(job->grown_held, 0);
	assert_int_equal(actor_await(&second, send_buffer_wait(&second), 0)->status, 0);
	assert_true(job->grown_held > 0 && promised_bytes(job) > planned);
	assert_int_equal(scene.node->host_used - job->host_bytes, others);
	actor_die(&first);
	actor_die(&second);
	scene_settle(&scene);
	assert_int_equal(promised_bytes(job), planned);
	assert_int_equal(scene.node->host_used - job->host_bytes, others);
}

static void there_are_none_beyond_the_plan_where_the_node_has_no_room(void **state)
{
	uint32_t wait;
	const struct job *job = block_first(&wait);

	scene.node->host_budget = scene.node->host_used;
	send_buffer_wait(&second);
	scene_settle(&scene);
	assert_non_null(actor_find(&first, wait, 0));
	assert_int_equal(actor_find(&first, wait, 0)->status, -ENOBUFS);
	assert_non_null(strstr(actor_message(&first), "no gradient buffer of rank 0 is free"));
	assert_int_equal(job->grown_held, 0);
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(gradients_on_their_way_aside_survive_a_failed_step),
		TEST(buffers_beyond_the_plan_are_given_back_when_nobody_trains),
		TEST(there_are_none_beyond_the_plan_where_the_node_has_no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
