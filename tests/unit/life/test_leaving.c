/* A rank that dies, detaches or closes at any point of a training: whatever it leaves behind, every request
 * of the other rank is answered, and when it comes back both train on from the last applied step. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gradients/gradients.h"
#include "daemon/life/own.h"
#include "daemon/model/job.h"
#include "daemon/resources/disposal.h"
#include "daemon/resources/resources.h"
#include "daemon/session/request.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/seeds.h"

#define ELEMENTS 600000 /* more than one chunk of the optimizer's */

enum manner { DIES, DETACHES, CLOSES, MANNERS };

static struct actor stays, leaves;

static void enter_both(void)
{
	assert_int_equal(actor_enter(&scene, &stays), 0);
	assert_int_equal(actor_enter(&scene, &leaves), 0);
}

static int setup(void **state)
{
	int r = scene_setup(state);

	if (r == 0)
		enter_both();
	return r;
}

static void begin_anew(void)
{
	scene_teardown(NULL);
	assert_int_equal(setup(NULL), 0);
}

static void open_rank(struct actor *actor, uint32_t rank)
{
	const struct actor_job job = { .rank = rank, .world_size = 2, .stage = 3 };
	const struct actor_tensor one[] = { { "w", FORMAT_BF16, INITIALIZE_ONES, ELEMENTS, false } };
	const struct actor_tensor two[] = { { "f", FORMAT_FP32, INITIALIZE_ONES, 1000, true },
					    { "h", FORMAT_FP32, INITIALIZE_ONES, ELEMENTS, false } };

	assert_int_equal(actor_open(actor, &job), 0);
	assert_int_equal(actor_define(actor, "one", one, 1), 0);
	assert_int_equal(actor_define(actor, "two", two, 2), 0);
}

static void make_ready(void)
{
	actor_ready_both(&stays, &leaves);
}

static void open_both(void)
{
	open_rank(&stays, 0);
	open_rank(&leaves, 1);
	make_ready();
}

static void take_step(void)
{
	uint32_t steps[2];

	for (unsigned i = 0; i < 2; i++) {
		struct actor *actor = i ? &leaves : &stays;

		actor_fill(actor, FORMAT_BF16, ELEMENTS, 1.0f);
		actor_send_push(actor, 0, 0);
		steps[i] = actor_send_step(actor, 0.1f);
	}
	assert_int_equal(actor_await(&stays, steps[0], 0)->status, 0);
	assert_int_equal(actor_await(&leaves, steps[1], 0)->status, 0);
	assert_int_equal(actor_find(&stays, steps[0], 0)->reply->step->step, stays.step + 1);
	stays.step++;
	leaves.step++;
}

/* What both ranks do, one thing at a time; nothing is waited for but what the next thing needs. */
static void act(unsigned point)
{
	switch (point) {
	case 0:
		open_rank(&leaves, 1);
		break;
	case 1:
		make_ready();
		break;
	case 2:
		actor_gather(&leaves, 0, 0, NULL);
		break;
	case 3:
		actor_gather(&leaves, 1, 0, NULL);
		break;
	case 4:
		actor_release(&leaves, 0);
		actor_release(&leaves, 1);
		break;
	case 5:
		actor_fill(&leaves, FORMAT_BF16, ELEMENTS, 1.0f);
		actor_send_push(&leaves, 0, 0);
		break;
	case 6:
		actor_fill(&stays, FORMAT_BF16, ELEMENTS, 1.0f);
		actor_send_push(&stays, 0, 0);
		break;
	case 7:
		actor_send_push(&stays, 1, 1);
		break;
	case 8:
		actor_send_step(&stays, 0.1f);
		break;
	case 9:
		actor_send_gather(&stays, 1, 1, true);
		break;
	case 10:
		actor_send_step(&leaves, 0.1f);
		break;
	case 11:
		actor_send_gather(&leaves, 0, 1, true);
		break;
	default:
		/* Somewhere in the sweep, or after it. */
		if (actor_outstanding(&stays) + actor_outstanding(&leaves) > 0)
			scene_wait(&scene);
	}
}

#define POINTS 30

static void leave(enum manner manner)
{
	if (manner == DIES)
		actor_die(&leaves);
	else
		actor_send_leave(&leaves, manner == DETACHES);
}

static void come_back(unsigned point, enum manner manner)
{
	if (manner == DIES)
		assert_int_equal(actor_enter(&scene, &leaves), 0);
	open_rank(&leaves, 1);
	for (uint32_t unit = 0; point > 0 && unit < 2; unit++)
		while (actor_leases(&stays, unit) > 0)
			actor_release(&stays, unit);
	actor_ready_both(&stays, &leaves);
	assert_int_equal(stays.step, leaves.step);
	take_step();
}

static void leave_at(unsigned point, enum manner manner)
{
	begin_anew();
	open_rank(&stays, 0);
	for (unsigned i = 0; i <= point; i++)
		act(i);
	leave(manner);
	scene_settle(&scene);
	if (point > 0 && stays.ended_epochs == 0) {
		/* It was in good order: who needs it for a step is told then. */
		assert_int_equal(manner, CLOSES);
		assert_true(actor_take_step(&stays) < 0);
	}
	while (actor_outstanding(&stays) > 0)
		scene_wait(&scene);
	come_back(point, manner);
}

static void leave_everywhere(enum manner manner)
{
	FOREACH_CASE (point, POINTS)
		leave_at(point, manner);
}

static void a_rank_may_die_at_any_point(void **state)
{
	leave_everywhere(DIES);
}

static void a_rank_may_detach_at_any_point(void **state)
{
	leave_everywhere(DETACHES);
}

static void a_rank_may_close_at_any_point(void **state)
{
	leave_everywhere(CLOSES);
}

/* ---- The job is dropped ---- */

static void drop_at(unsigned point)
{
	uint64_t before;

	begin_anew();
	before = budget_host_used(scene.node);
	open_rank(&stays, 0);
	for (unsigned i = 0; i <= point; i++)
		act(i);
	assert_int_equal(actor_drop(&stays, false), -EBUSY);
	assert_int_equal(actor_drop(&stays, true), 0);
	assert_int_equal(actor_drop(&stays, true), -ENOENT);
	assert_int_equal(actor_outstanding(&stays), 0);
	assert_int_equal(actor_outstanding(&leaves), 0);
	if (point > 0)
		assert_non_null(strstr(leaves.reason, "was dropped by user"));
	scene_settle(&scene);
	scene_await_disposals(&scene);
	/* They live, and have what they were given. */
	assert_int_equal(budget_host_used(scene.node) - disposal_withheld_by_all(scene.node), before);
	assert_int_equal(scene.node->paths[0].used, 0);
	/* What the name means now is a new job. */
	open_both();
	assert_int_equal(stays.step, 0);
	take_step();
}

static void await_all_that_is_withheld(void)
{
	scene_await_disposals(&scene);
	while (disposal_withheld_by_all(scene.node) > 0)
		scene_wait(&scene);
}

/* It lives, and reads on: nothing of that is taken from it, and it counts until it ends. */
static void what_is_leased_stays_when_its_job_is_dropped(void **state)
{
	const float *values;
	float before;

	actor_play(&scene, &stays);
	assert_int_equal(actor_gather(&stays, 0, 0, (const void **)&values), 0);
	before = values[0];
	assert_true(before != 0);
	assert_int_equal(actor_drop(&stays, true), 0);
	scene_settle(&scene);
	scene_await_disposals(&scene);
	assert_true(values[0] == before);
	assert_int_equal(actor_leases(&stays, 0), 1);
	assert_true(disposal_withheld(scene.node, geteuid()).bytes >= 4096);
	assert_int_equal(disposal_withheld(scene.node, geteuid() + 1).bytes, 0);
	actor_die(&stays);
	await_all_that_is_withheld();
	assert_int_equal(budget_host_used(scene.node), staging_bytes(scene.node->staging->count));
}

static void a_job_may_be_dropped_at_any_point(void **state)
{
	FOREACH_CASE (point, POINTS)
		drop_at(point);
}

/* ---- The job is released ---- */

static struct job *await_phase(enum job_state phase)
{
	struct job *job = scene_job(NULL);

	while (job->state != phase)
		scene_wait(&scene);
	return job;
}

static void train_and_release(void)
{
	scene.node->settings.idle_release_ms = 1;
	open_both();
	take_step();
	actor_die(&leaves);
	actor_die(&stays);
	await_phase(JOB_RELEASED);
	enter_both();
}

static void begin_return(void)
{
	open_rank(&stays, 0);
	open_rank(&leaves, 1);
	actor_send_ready(&stays, -1);
	actor_send_ready(&leaves, -1);
	await_phase(JOB_RETURNING);
}

/* What is left when nothing is: the node's own. */
static void expect_all_is_given_back(void)
{
	actor_die(&leaves);
	actor_die(&stays);
	scene_settle(&scene);
	await_all_that_is_withheld();
	assert_int_equal(budget_host_used(scene.node), staging_bytes(scene.node->staging->count));
	assert_int_equal(scene.node->paths[0].used, 0);
}

static void a_released_job_returns_at_its_step(void **state)
{
	train_and_release();
	open_both();
	assert_int_equal(stays.step, 1);
	take_step();
	assert_int_equal(actor_drop(&stays, true), 0);
	expect_all_is_given_back();
}

static void a_rank_may_die_while_its_job_returns(void **state)
{
	struct job *job;
	uint64_t released;

	train_and_release();
	job = scene_job(NULL);
	released = budget_host_bytes(job);
	begin_return();
	actor_die(&leaves);
	actor_die(&stays);
	/* Trained it may be for less than a turn. */
	while (job->state == JOB_RETURNING)
		scene_wait(&scene);
	await_phase(JOB_RELEASED);
	assert_int_equal(budget_host_bytes(job), released);
	assert_int_equal(job->step, 1);
	enter_both();
	assert_int_equal(actor_drop(&stays, false), 0);
	expect_all_is_given_back();
}

static void a_job_may_be_dropped_while_it_returns(void **state)
{
	train_and_release();
	begin_return();
	assert_int_equal(actor_drop(&stays, true), 0);
	assert_int_equal(actor_outstanding(&stays), 0);
	expect_all_is_given_back();
}

/* Nor may what a living process has leased. */
static void a_job_with_a_rank_is_not_released(void **state)
{
	scene.node->settings.idle_release_ms = 1;
	open_both();
	assert_int_equal(actor_gather(&stays, 0, 0, NULL), 0);
	client_hang_up(leaves.client, "it closed the connection");
	client_hang_up(stays.client, "it closed the connection");
	struct job *job = scene_job(NULL);

	assert_true(job_is_idle(job) && event_pending(job->life->idle_timer, EV_TIMEOUT, NULL));
	/* Until the timer has looked, and found the lease. */
	for (struct timeval due, first = { 0 };; scene_wait(&scene)) {
		assert_true(event_pending(job->life->idle_timer, EV_TIMEOUT, &due));
		if (first.tv_sec == 0)
			first = due;
		if (evutil_timercmp(&due, &first, !=))
			break;
	}
	assert_int_equal(job->state, JOB_TRAINED);
	actor_release(&stays, 0);
	await_phase(JOB_RELEASED);
}

/* Between epochs it may read what there is; without host memory there is nothing. */
static void who_comes_back_to_a_released_job_has_to_get_ready(void **state)
{
	train_and_release();
	assert_int_equal(
		actor_open(&stays, &(struct actor_job){ .world_size = 2, .stage = 3, .is_reconnect = true }),
		0);
	assert_int_equal(actor_read(&stays, 0, 0, "parameter", 0, 1, 0), -ESTALE);
}

static void the_others_are_told_who_is_lost(void **state)
{
	open_both();
	actor_die(&leaves);
	assert_int_equal(stays.ended_epochs, 1);
	assert_non_null(strstr(stays.reason, "rank 1"));
	assert_non_null(strstr(stays.reason, "its process died"));
	assert_int_equal(actor_gather(&stays, 0, 0, NULL), -ESTALE);
	assert_non_null(strstr(actor_message(&stays), "rank 1"));
}

static void closing_waits_for_the_steps_that_were_closed(void **state)
{
	uint32_t steps[2], closing;

	open_both();
	actor_fill(&leaves, FORMAT_BF16, ELEMENTS, 1.0f);
	actor_send_push(&leaves, 0, 0);
	steps[0] = actor_send_step(&leaves, 0.1f);
	steps[1] = actor_send_step(&leaves, 0.1f);
	closing = actor_send_leave(&leaves, false);
	assert_int_equal(actor_await(&leaves, actor_send_leave(&leaves, false), 0)->status, -EBUSY);
	for (unsigned i = 0; i < 2; i++) {
		assert_null(actor_find(&leaves, closing, 0));
		actor_send_step(&stays, 0.1f);
		assert_int_equal(actor_await(&leaves, steps[i], 0)->status, 0);
	}
	assert_int_equal(actor_await(&leaves, closing, 0)->status, 0);
	assert_int_equal(stays.ended_epochs, 0);
	assert_int_equal(scene_job(NULL)->step, 2);
}

static void closing_ends_when_its_step_does_not_come(void **state)
{
	uint32_t step, closing;

	open_both();
	step = actor_send_step(&leaves, 0.1f);
	closing = actor_send_leave(&leaves, false);
	actor_die(&stays);
	assert_int_equal(actor_await(&leaves, step, 0)->status, -ESTALE);
	assert_int_equal(actor_await(&leaves, closing, 0)->status, 0);
}

static void one_that_dies_while_it_closes_is_gone(void **state)
{
	open_both();
	actor_send_step(&leaves, 0.1f);
	actor_send_leave(&leaves, false);
	actor_die(&leaves);
	assert_int_equal(stays.ended_epochs, 1);
}

/* ---- The daemon ends ---- */

static void on_idle(void *argument)
{
	*(bool *)argument = true;
}

/* An empty one, but for the job. */
static uint32_t send_of_kind(struct actor *actor, const ProtobufCFieldDescriptor *kind,
			     bool *ret_holds_nothing)
{
	const ProtobufCMessageDescriptor *descriptor = kind->descriptor;
	const ProtobufCFieldDescriptor *job =
		protobuf_c_message_descriptor_get_field_by_name(descriptor, "job");
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	char *body = calloc(1, descriptor->sizeof_message);
	uint32_t number;

	assert_non_null(body);
	descriptor->message_init((ProtobufCMessage *)body);
	if (job && job->type == PROTOBUF_C_TYPE_UINT32)
		memcpy(body + job->offset, &actor->job, sizeof(actor->job));
	request.body_case = (Tierd__Wire__Request__BodyCase)kind->id;
	memcpy((char *)&request + kind->offset, &body, sizeof(body));
	*ret_holds_nothing = request_holds_nothing(&request);
	number = actor_send(actor, &request);
	free(body);
	return number;
}

static void a_node_that_stops_finishes_the_decided_step(void **state)
{
	const ProtobufCMessageDescriptor *requests = &tierd__wire__request__descriptor;
	uint32_t numbers[ACTOR_ANSWERS];
	bool are_answered[ACTOR_ANSWERS], is_idle = false;
	const struct answer *answer;
	uint32_t step;

	open_rank(&stays, 0);
	for (unsigned point = 0; point <= 10; point++)
		act(point);
	/* Until it is decided. */
	while (scene_job(NULL)->decided == 0)
		scene_wait(&scene);
	step = leaves.last_number;
	node_stop(scene.node, on_idle, &is_idle);
	/* Those that would be a part of another step, or would fail because they are not, find no answer. */
	for (unsigned i = 0; i < requests->n_fields; i++)
		numbers[i] = send_of_kind(&leaves, &requests->fields[i], &are_answered[i]);
	while (!is_idle)
		scene_wait(&scene);
	answer = actor_find(&leaves, step, 0);
	assert_non_null(answer);
	assert_int_equal(answer->status, 0);
	for (unsigned i = 0; i < requests->n_fields; i++)
		if ((actor_find(&leaves, numbers[i], 0) != NULL) != are_answered[i])
			fail_msg("a %s is %sanswered", requests->fields[i].name,
				 are_answered[i] ? "not " : "");
}

static int define_another(struct actor *actor)
{
	const struct actor_tensor larger[] = { { "w", FORMAT_BF16, INITIALIZE_ONES, ELEMENTS + 1, false } };

	return actor_define(actor, "one", larger, 1);
}

static void open_two(const struct actor_job *second, int expected)
{
	open_rank(&stays, 0);
	assert_int_equal(actor_open(&leaves, second), expected);
}

static void expect_told(uint32_t ready, const char *why)
{
	const struct answer *answer = actor_await(&stays, ready, 0);

	assert_int_equal(answer->status, -EINVAL);
	assert_non_null(strstr(actor_message(&stays), "rank 1 has gone, whose opening was refused"));
	assert_non_null(strstr(actor_message(&stays), why));
}

static void who_waits_for_a_rank_with_another_model_is_told_when_it_leaves(void **state)
{
	const struct actor_job same = { .rank = 1, .world_size = 2, .stage = 3 };
	uint32_t ready;

	open_two(&same, 0);
	ready = actor_send_ready(&stays, -1);
	assert_int_equal(define_another(&leaves), -EINVAL);
	scene_settle(&scene);
	assert_null(actor_find(&stays, ready, 0));
	actor_await(&leaves, actor_send_leave(&leaves, true), 0);
	expect_told(ready, "\"w\"");
	/* Once: then it waits for it, and both are ready. */
	open_rank(&leaves, 1);
	make_ready();
}

static void who_waits_for_a_rank_that_never_was_in_the_job_is_told(void **state)
{
	const struct actor_job other = { .rank = 1, .world_size = 2, .stage = 2 };

	open_two(&other, -EINVAL);
	actor_die(&leaves);
	expect_told(actor_send_ready(&stays, -1), "stage");
}

static void a_rank_that_tries_again_with_success_is_not_told_of(void **state)
{
	const struct actor_job other = { .rank = 1, .world_size = 2, .stage = 2 };

	open_two(&other, -EINVAL);
	open_rank(&leaves, 1);
	actor_die(&leaves);
	assert_int_equal(actor_enter(&scene, &leaves), 0);
	open_rank(&leaves, 1);
	make_ready();
}

#define TEST(name) SCENE_TEST(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_rank_may_die_at_any_point),
		TEST(a_rank_may_detach_at_any_point),
		TEST(a_rank_may_close_at_any_point),
		TEST(a_job_may_be_dropped_at_any_point),
		SCENE_TEST(what_is_leased_stays_when_its_job_is_dropped, scene_setup),
		TEST(a_released_job_returns_at_its_step),
		TEST(a_rank_may_die_while_its_job_returns),
		TEST(a_job_may_be_dropped_while_it_returns),
		TEST(a_job_with_a_rank_is_not_released),
		TEST(who_comes_back_to_a_released_job_has_to_get_ready),
		TEST(the_others_are_told_who_is_lost),
		TEST(closing_waits_for_the_steps_that_were_closed),
		TEST(closing_ends_when_its_step_does_not_come),
		TEST(one_that_dies_while_it_closes_is_gone),
		TEST(who_waits_for_a_rank_with_another_model_is_told_when_it_leaves),
		TEST(who_waits_for_a_rank_that_never_was_in_the_job_is_told),
		TEST(a_rank_that_tries_again_with_success_is_not_told_of),
		TEST(a_node_that_stops_finishes_the_decided_step),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
