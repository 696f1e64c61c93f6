/* The daemon's handlers, driven without sockets: what clients ask for and get, alone and together. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/durability/durable.h"
#include "daemon/gradients/gradients.h"
#include "daemon/model/job.h"
#include "daemon/residency/residency.h"
#include "daemon/resources/budget.h"
#include "daemon/resources/own.h"
#include "tests/unit/scene_test.h"

#define ELEMENTS 1000

static struct actor first, second;

/* Two units: one trainable in both formats, one with a frozen tensor beside a trainable one. */
static void define_units(struct actor *actor)
{
	static const struct actor_tensor one[] = {
		{ "w", FORMAT_BF16, INITIALIZE_ONES, ELEMENTS, false },
		{ "norm", FORMAT_FP32, INITIALIZE_ONES, 10, false },
	};
	static const struct actor_tensor two[] = {
		{ "frozen", FORMAT_BF16, INITIALIZE_ONES, ELEMENTS, true },
		{ "head", FORMAT_FP32, INITIALIZE_ZEROS, ELEMENTS, false },
	};

	assert_int_equal(actor_define(actor, "one", one, 2), 0);
	assert_int_equal(actor_define(actor, "two", two, 2), 0);
}

static void start(struct actor *actor, const struct actor_job *job)
{
	assert_int_equal(actor_join(&scene, actor, job), 0);
	define_units(actor);
}

static void start_one(struct actor_job job)
{
	start(&first, &job);
	assert_int_equal(actor_ready(&first), 0);
}

static void make_ready(void)
{
	actor_ready_both(&first, &second);
}

static void start_two(struct actor_job job)
{
	job.world_size = 2;
	start(&first, &job);
	job.rank = 1;
	start(&second, &job);
	make_ready();
}

static float weight(struct actor *actor, uint64_t version)
{
	const void *address;
	float value;

	assert_int_equal(actor_gather(actor, 1, version, &address), 0);
	memcpy(&value, (const char *)address + actor_section(actor, 1, SECTION_FP32), sizeof(value));
	actor_release(actor, 1);
	return value;
}

/* Pushes the unit "two", whose only trainable tensor is the head. */
static uint32_t push_head(struct actor *actor, float gradient)
{
	actor_fill(actor, FORMAT_FP32, ELEMENTS, gradient);
	return actor_send_push(actor, 1, 0);
}

static void expect_durable(const struct answer *answer)
{
	assert_int_equal(answer->status, 0);
}

static void train_step(struct actor *actor)
{
	const struct answer *answer;
	uint32_t push = push_head(actor, 0.5f), step = actor_send_step(actor, 0.1f);

	assert_int_equal(actor_await(actor, push, 0)->status, 0);
	answer = actor_await(actor, step, 0);
	assert_int_equal(answer->status, 0);
	assert_int_equal(answer->reply->step->step, ++actor->step);
	expect_durable(actor_await(actor, step, 1));
}

/* ---- One rank ---- */

static void train_alone(const struct actor_job *job)
{
	const struct answer *answer;
	const void *address;
	uint16_t frozen;
	uint32_t push, step;

	start_one(*job);
	assert_int_equal(actor_gather(&first, 1, 0, &address), 0);
	assert_int_equal(actor_leases(&first, 1), 1);
	memcpy(&frozen, (const char *)address + actor_section(&first, 1, SECTION_FROZEN_BF16), 2);
	assert_int_equal(frozen, 0x3f80);
	actor_release(&first, 1);
	assert_true(weight(&first, 0) == 0.0f);

	push = push_head(&first, 0.5f);
	step = actor_send_step(&first, 0.1f);
	assert_int_equal(actor_await(&first, push, 0)->status, 0);
	/* Asked for before the step is applied. */
	float after = weight(&first, 1);

	answer = actor_await(&first, step, 0);
	assert_int_equal(answer->status, 0);
	assert_int_equal(answer->reply->step->step, 1);
	assert_true(fabs(answer->reply->step->gradient_norm - 0.5 * sqrt(ELEMENTS)) < 1e-4);
	/* Adam's first step is the learning rate, against the gradient's sign. */
	assert_true(fabsf(after + 0.1f) < 1e-5f);
	expect_durable(actor_await(&first, step, 1));
}

static void a_job_trains_in_host_memory(void **state)
{
	scene.node->settings.durability = DURABILITY_STEP;
	train_alone(&(struct actor_job){
		.stage = 3, .parameter_placement = PLACEMENT_HOST, .optimizer_placement = PLACEMENT_HOST });
}

static void a_job_trains_on_nvme(void **state)
{
	train_alone(&(struct actor_job){ .stage = 3 });
}

static void every_stage_trains(void **state)
{
	for (uint32_t stage = 0; stage <= 2; stage++) {
		train_alone(&(struct actor_job){ .stage = stage, .mode = MODE_REPLACE });
		actor_die(&first);
	}
}

static void frozen_and_aligned_tensors_have_their_values(void **state)
{
	start_one((struct actor_job){ .stage = 3 });
	assert_int_equal(actor_read(&first, 0, 1, "parameter", 0, 10, 0), 0);
	for (unsigned i = 0; i < 10; i++)
		assert_true(((float *)first.window.base)[i] == 1.0f);
	assert_int_equal(actor_read(&first, 0, 0, "m", 0, ELEMENTS, 0), 0);
	assert_true(((float *)first.window.base)[ELEMENTS - 1] == 0.0f);
	assert_int_equal(actor_read(&first, 0, 0, "exp_avg", 0, ELEMENTS, 0), 0);
	assert_int_equal(actor_read(&first, 0, 0, "momentum_buffer", 0, 1, 0), -ENODATA);
	assert_int_equal(actor_read(&first, 1, 0, "m", 0, 1, 0), -ENODATA);
	assert_int_equal(actor_read(&first, 1, 0, "parameter", ELEMENTS, 1, 0), -ERANGE);
	assert_int_equal(actor_read(&first, 1, 0, "weight", 0, 1, 0), -ENODATA);
	assert_int_equal(actor_read(&first, 1, 2, "parameter", 0, 1, 0), -EINVAL);
}

static void frozen_tensors_side_by_side_are_all_initialized(void **state)
{
	static const struct actor_tensor tensors[] = {
		{ "a", FORMAT_FP32, INITIALIZE_ONES, 300, true },
		{ "w", FORMAT_BF16, INITIALIZE_ONES, 300, false },
		{ "b", FORMAT_FP32, INITIALIZE_ONES, 300, true },
		{ "c", FORMAT_FP32, INITIALIZE_ONES, 300, true },
		{ "d", FORMAT_FP32, INITIALIZE_ONES, 300, true },
		{ "e", FORMAT_FP32, INITIALIZE_ONES, 300, true },
	};

	assert_int_equal(actor_join(&scene, &first, &(struct actor_job){ .stage = 3 }), 0);
	assert_int_equal(actor_define(&first, "one", tensors, 4), 0);
	assert_int_equal(actor_define(&first, "two", tensors + 4, 2), 0);
	assert_int_equal(actor_ready(&first), 0);
	for (unsigned i = 0; i < ARRAY_LENGTH(tensors); i++) {
		if (!tensors[i].is_frozen)
			continue;
		assert_int_equal(actor_read(&first, i / 4, i % 4, "parameter", 0, 300, 0), 0);
		for (unsigned at = 0; at < 300; at++)
			assert_true(((float *)first.window.base)[at] == 1.0f);
	}
}

static void written_values_are_read_back(void **state)
{
	const struct actor_tensor tensors[] = { { "w", FORMAT_FP32, INITIALIZE_NONE, 100, false } };

	assert_int_equal(actor_join(&scene, &first, &(struct actor_job){ .stage = 3 }), 0);
	assert_int_equal(actor_define(&first, "one", tensors, 1), 0);
	for (unsigned i = 0; i < 50; i++)
		((float *)first.window.base)[i] = (float)i;
	assert_int_equal(actor_write(&first, 0, 0, 50, 50), 0);
	assert_int_equal(actor_write(&first, 0, 0, 60, 41), -ERANGE);
	assert_int_equal(actor_ready(&first), -ENODATA);
	assert_non_null(strstr(actor_message(&first), "\"w\""));
	assert_int_equal(actor_write(&first, 0, 0, 0, 50), 0);
	assert_int_equal(actor_ready(&first), 0);
	memset(first.window.base, 0, 4096);
	assert_int_equal(actor_read(&first, 0, 0, "master", 49, 2, 0), 0);
	assert_true(((float *)first.window.base)[0] == 49.0f && ((float *)first.window.base)[1] == 0.0f);
	assert_int_equal(actor_write(&first, 0, 0, 0, 1), -EBUSY);
}

static void a_step_with_a_lease_is_refused(void **state)
{
	start_one((struct actor_job){ .stage = 3 });
	assert_int_equal(actor_gather(&first, 0, 0, NULL), 0);
	assert_int_equal(actor_take_step(&first), -EBUSY);
	assert_non_null(strstr(actor_message(&first), "\"one\""));
	actor_release(&first, 0);
	train_step(&first);
}

static void gradients_that_are_not_finite_skip_the_step(void **state)
{
	const struct answer *answer;
	uint32_t step;

	start_one((struct actor_job){ .stage = 3 });
	push_head(&first, NAN);
	step = actor_send_step(&first, 0.1f);
	answer = actor_await(&first, step, 0);
	assert_int_equal(answer->status, 0);
	assert_true(answer->reply->step->is_skipped);
	assert_true(weight(&first, 1) == 0.0f);
}

static void gradients_that_are_not_finite_are_reported(void **state)
{
	start_one((struct actor_job){ .stage = 3, .nonfinite = NONFINITE_REPORT });
	push_head(&first, INFINITY);
	assert_int_equal(actor_take_step(&first), -EDOM);
	assert_non_null(strstr(actor_message(&first), "\"two\""));
	train_step(&first);
}

static void a_strict_job_names_what_was_not_pushed(void **state)
{
	start_one((struct actor_job){ .stage = 3, .is_strict = true });
	push_head(&first, 1.0f);
	assert_int_equal(actor_take_step(&first), -ENODATA);
	assert_non_null(strstr(actor_message(&first), "\"one\""));
}

static void a_job_that_needs_more_than_there_is_is_refused(void **state)
{
	const struct actor_tensor large[] = { { "w", FORMAT_BF16, INITIALIZE_ONES, 32 * MIB, false } };

	assert_int_equal(
		actor_join(&scene, &first, &(struct actor_job){ .stage = 3, .host_budget = 8 * MIB }), 0);
	assert_int_equal(actor_define(&first, "large", large, 1), 0);
	assert_int_equal(actor_ready(&first), -ENOMEM);
	assert_non_null(strstr(actor_message(&first), "the job's host_budget"));
	/* Its definitions and windows are still there. */
	assert_int_equal(budget_host_used(scene.node), staging_bytes(scene.node->staging->count) +
							       scene_job(NULL)->resources->charged_bytes);
	actor_die(&first);
	scene_settle(&scene);
	assert_int_equal(budget_host_used(scene.node), staging_bytes(scene.node->staging->count));
}

/* Until a definition is refused: the number of those that were not. */
static unsigned define_until_refused(void)
{
	static const struct actor_tensor tensors[] = {
		{ "a", FORMAT_BF16, INITIALIZE_ONES, 1, false },
	};
	struct actor_tensor tensor = tensors[0];
	char name[100];
	int r = 0;

	for (unsigned i = 0; i < CATALOG_MAX_UNITS; i++) {
		snprintf(name, sizeof(name), "%090u", i);
		tensor.name = name;
		r = actor_define(&first, name, &tensor, 1);
		if (r < 0) {
			assert_int_equal(r, -ENOMEM);
			return i;
		}
	}
	return CATALOG_MAX_UNITS;
}

static void definitions_are_charged_before_the_job_is_planned(void **state)
{
	uint64_t before = budget_host_used(scene.node);
	unsigned count;

	scene.node->settings.host_budget = before + 2 * MIB;
	assert_int_equal(actor_join(&scene, &first, &(struct actor_job){ .stage = 3 }), 0);
	assert_int_equal(budget_host_used(scene.node), before + MIB);
	count = define_until_refused();
	assert_non_null(strstr(actor_message(&first), "what tierd has left of its own"));
	assert_in_range(count, MIB / 2048, MIB / 512);
	assert_in_range(budget_host_used(scene.node), before + 2 * MIB - 2048, before + 2 * MIB);
	/* What is refused for another reason costs nothing. */
	scene.node->settings.host_budget += MIB;
	before = budget_host_used(scene.node);
	assert_int_equal(actor_define(&first, "", NULL, 0), -EINVAL);
	assert_int_equal(budget_host_used(scene.node), before);
	actor_die(&first);
	scene_settle(&scene);
	assert_int_equal(budget_host_used(scene.node), staging_bytes(scene.node->staging->count));
}

static void a_user_has_no_more_jobs_than_are_configured(void **state)
{
	struct actor_job job = { .stage = 3, .name = "one" };

	scene.node->settings.jobs_per_user = 2;
	assert_int_equal(actor_join(&scene, &first, &job), 0);
	job.name = "two";
	assert_int_equal(actor_open(&first, &job), 0);
	job.name = "three";
	assert_int_equal(actor_open(&first, &job), -EBUSY);
	assert_non_null(strstr(actor_message(&first), "raise jobs_per_user"));
	scene.node->settings.jobs_per_user = 3;
	assert_int_equal(actor_open(&first, &job), 0);
}

static void jobs_of_definitions_alone_end_at_the_nodes_budget(void **state)
{
	struct actor_job job = { .stage = 3 };
	char name[8];
	int r = 0;

	scene.node->settings.host_budget = budget_host_used(scene.node) + 10 * MIB;
	assert_int_equal(actor_enter(&scene, &first), 0);
	for (unsigned i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "job%u", i);
		job.name = name;
		assert_int_equal(actor_open(&first, &job), 0);
	}
	job.name = "more";
	r = actor_open(&first, &job);
	assert_int_equal(r, -ENOMEM);
	assert_non_null(strstr(actor_message(&first), "what tierd has left of its own"));
	scene_settle(&scene);
	assert_null(job_find(scene.node, geteuid(), "more"));
}

static void orders_of_phases_are_charged(void **state)
{
	struct job *job;
	uint64_t before;

	start_one((struct actor_job){ .stage = 3 });
	job = scene_job(NULL);
	before = promised_bytes(job);
	assert_int_equal(actor_set_phase(&first, "train"), 0);
	assert_int_equal(promised_bytes(job), before);
	assert_int_equal(actor_set_phase(&first, "eval"), 0);
	assert_int_equal(actor_set_phase(&first, "eval"), 0);
	assert_int_equal(promised_bytes(job), before + member_phase_bytes(job));
	scene.node->settings.host_budget = budget_host_used(scene.node);
	assert_int_equal(actor_set_phase(&first, "sample"), -ENOMEM);
	assert_non_null(strstr(actor_message(&first), "phase \"sample\""));
	assert_int_equal(promised_bytes(job), before + member_phase_bytes(job));
	train_step(&first);
	actor_die(&first);
	scene_settle(&scene);
	assert_int_equal(promised_bytes(job), before);
}

static void phases_with_longer_names_than_configured_are_refused(void **state)
{
	start_one((struct actor_job){ .stage = 3 });
	scene_job(NULL)->catalog.name_maximum = 4;
	assert_int_equal(actor_set_phase(&first, "train"), -EINVAL);
	assert_non_null(strstr(actor_message(&first), "a phase's name has 1 to 4 bytes (name_length)"));
	assert_int_equal(actor_set_phase(&first, "eval"), 0);
	actor_die(&first);
	scene_settle(&scene);
}

static void needs_that_cannot_be_counted_are_refused(void **state)
{
	const struct budget_needs needs = { .sums = UINT64_MAX / 2 + 1, .state = UINT64_MAX / 2 + 1 };
	struct job *job;
	char message[512];

	assert_int_equal(actor_join(&scene, &first, &(struct actor_job){ .stage = 3 }), 0);
	define_units(&first);
	job = scene_job(NULL);
	assert_int_equal(catalog_pack(&job->catalog), 0);
	assert_int_equal(budget_take_host(job, &needs, residency_slots(job), message, sizeof(message)),
			 -ENOMEM);
	assert_non_null(strstr(message, "at least 16.0 EiB"));
	slots_free(residency_slots(job));
	catalog_unpack(&job->catalog);
	assert_int_equal(budget_host_bytes(job), job->resources->charged_bytes);
}

/* ---- Two ranks ---- */

static void gradients_of_two_ranks_are_summed(void **state)
{
	for (uint32_t stage = 0; stage <= 3; stage++) {
		const struct answer *answer;

		start_two((struct actor_job){ .stage = stage, .mode = MODE_REPLACE });
		push_head(&first, 3.0f);
		uint32_t step = actor_send_step(&first, 0.1f);

		push_head(&second, -1.0f);
		actor_send_step(&second, 0.1f);
		answer = actor_await(&first, step, 0);
		assert_int_equal(answer->status, 0);
		assert_true(fabs(answer->reply->step->gradient_norm - 2.0 * sqrt(ELEMENTS)) < 1e-3);
		assert_true(fabsf(weight(&second, 1) + 0.1f) < 1e-5f);
		actor_die(&first);
		actor_die(&second);
	}
}

static void ready_names_who_is_missing(void **state)
{
	start(&first, &(struct actor_job){ .stage = 3, .world_size = 2 });
	uint32_t number = actor_send_ready(&first, 0);

	assert_int_equal(actor_await(&first, number, 0)->status, -ETIMEDOUT);
	assert_non_null(strstr(actor_message(&first), "rank 1 (has not joined)"));
	start(&second, &(struct actor_job){ .stage = 3, .world_size = 2, .rank = 1 });
	make_ready();
}

static void ranks_that_disagree_are_told_the_first_difference(void **state)
{
	const struct actor_tensor other[] = { { "w", FORMAT_BF16, INITIALIZE_ONES, ELEMENTS + 1, false },
					      { "norm", FORMAT_FP32, INITIALIZE_ONES, 10, false } };

	start(&first, &(struct actor_job){ .stage = 3, .world_size = 2 });
	assert_int_equal(
		actor_join(&scene, &second, &(struct actor_job){ .stage = 2, .world_size = 2, .rank = 1 }),
		-EINVAL);
	assert_non_null(strstr(actor_message(&second), "stage is 2 here, 3 in the job"));
	assert_int_equal(actor_open(&second, &(struct actor_job){ .stage = 3, .world_size = 2 }), -EBUSY);
	assert_int_equal(actor_open(&second, &(struct actor_job){ .stage = 3, .world_size = 2, .rank = 1 }),
			 0);
	assert_int_equal(actor_define(&second, "one", other, 2), -EINVAL);
	assert_non_null(strstr(actor_message(&second), "shape [1001] here, [1000] in the job"));
}

static void a_rank_that_has_defined_less_is_told(void **state)
{
	start(&first, &(struct actor_job){ .stage = 3, .world_size = 2 });
	assert_int_equal(
		actor_join(&scene, &second, &(struct actor_job){ .stage = 3, .world_size = 2, .rank = 1 }),
		0);
	actor_send_ready(&first, -1);
	assert_int_equal(actor_ready(&second), -EINVAL);
	assert_non_null(strstr(actor_message(&second), "unit \"one\" is missing"));
}

static uint32_t send_pushed_step(struct actor *actor)
{
	assert_int_equal(actor_await(actor, push_head(actor, 0.5f), 0)->status, 0);
	return actor_send_step(actor, 0.1f);
}

/* It may be decided at any moment, and what is being committed has to stand still. */
static void a_commit_waits_for_a_step_that_is_measured(void **state)
{
	struct job *job;
	uint32_t step;

	start_one((struct actor_job){ .stage = 3, .durability = 86400 });
	job = scene_job(NULL);
	assert_int_equal(actor_await(&first, send_pushed_step(&first), 0)->status, 0);
	/* The first one, which is due at once. */
	while (!durable_is_quiet(job))
		scene_wait(&scene);
	step = send_pushed_step(&first);
	assert_true(norm_is_running(job));
	durable_hurry(job);
	assert_true(durable_is_quiet(job));
	assert_int_equal(actor_await(&first, step, 0)->reply->step->step, 2);
	expect_durable(actor_await(&first, step, 1));
	first.step = 2;
}

/* Nothing of the first step has to be written but its commit, which does not come to its end. */
static void expect_a_step_to_wait_for_the_commit(struct actor_job kind)
{
	struct job *job;
	uint32_t steps[2];

	kind.stage = 2;
	kind.durability = DURABILITY_STEP;
	start_one(kind);
	job = scene_job(NULL);
	while (!durable_is_quiet(job) || durable_is_behind(job))
		scene_wait(&scene);
	scene_hear_nothing_of_devices(&scene);
	steps[0] = actor_send_step(&first, 0.1f);
	assert_int_equal(actor_await(&first, steps[0], 0)->status, 0);
	assert_false(durable_is_quiet(job));
	steps[1] = send_pushed_step(&first);
	assert_int_equal(job->decided, 1);
	assert_false(norm_is_running(job));
	scene_hear_of_devices(&scene);
	expect_durable(actor_await(&first, steps[0], 1));
	assert_int_equal(actor_await(&first, steps[1], 0)->reply->step->step, 2);
	expect_durable(actor_await(&first, steps[1], 1));
}

static void a_step_waits_for_what_a_commit_takes_from_nvme(void **state)
{
	expect_a_step_to_wait_for_the_commit((struct actor_job){ .optimizer_placement = PLACEMENT_NVME });
}

static void a_step_waits_for_what_a_commit_takes_from_host_memory(void **state)
{
	expect_a_step_to_wait_for_the_commit((struct actor_job){ .parameter_placement = PLACEMENT_HOST,
								 .optimizer_placement = PLACEMENT_HOST });
}

/* The second step is applied while the first one is being committed. */
static void a_commit_answers_for_no_step_after_its_own(void **state)
{
	struct job *job;
	uint32_t steps[2];
	uint64_t durable = 0;

	start_one((struct actor_job){ .stage = 3, .durability = DURABILITY_STEP });
	job = scene_job(NULL);
	while (!durable_is_quiet(job) || durable_is_behind(job))
		scene_wait(&scene);
	for (unsigned i = 0; i < 2; i++)
		steps[i] = actor_send_step(&first, 0.1f);
	assert_int_equal(actor_await(&first, steps[0], 0)->status, 0);
	while (durable_holds(job))
		scene_wait(&scene);
	scene_hear_nothing_of_devices(&scene);
	assert_int_equal(actor_await(&first, steps[1], 0)->status, 0);
	scene_hear_of_devices(&scene);
	for (unsigned i = 0; i < 2; i++) {
		expect_durable(actor_await(&first, steps[i], 1));
		assert_true(durable_has_step(job, &durable));
		assert_true(durable == 2 || !actor_find(&first, steps[1], 1));
	}
}

static void a_rank_can_be_taken_over(void **state)
{
	start_one((struct actor_job){ .stage = 3 });
	train_step(&first);
	assert_int_equal(actor_join(&scene, &second, &(struct actor_job){ .stage = 3 }), -EBUSY);
	assert_int_equal(actor_open(&second, &(struct actor_job){ .stage = 3, .is_takeover = true }), 0);
	assert_int_equal(second.step, 1);
	define_units(&second);
	assert_int_equal(actor_ready(&second), 0);
	train_step(&second);
	assert_int_equal(actor_gather(&first, 0, 0, NULL), -ESTALE);
}

static void two_jobs_live_side_by_side(void **state)
{
	start(&first, &(struct actor_job){ .name = "a", .stage = 3 });
	start(&second, &(struct actor_job){ .name = "b", .stage = 3 });
	assert_int_equal(actor_ready(&first), 0);
	assert_int_equal(actor_ready(&second), 0);
	train_step(&first);
	train_step(&second);
	train_step(&first);
}

static void a_gather_that_waits_can_be_cancelled(void **state)
{
	Tierd__Wire__GatherCancel cancel = TIERD__WIRE__GATHER_CANCEL__INIT;

	start_two((struct actor_job){ .stage = 3 });
	push_head(&first, 1.0f);
	actor_send_step(&first, 0.1f);
	cancel.job = first.job;
	cancel.request = actor_send_gather(&first, 1, 1, false);
	assert_int_equal(actor_ask(&first, WIRE_REQUEST(GATHER_CANCEL, gather_cancel, &cancel), NULL), 0);
	assert_int_equal(actor_await(&first, cancel.request, 0)->status, -ECANCELED);
	assert_int_equal(actor_leases(&first, 1), 0);
}

static void more_gathers_than_may_wait_are_refused_and_the_rest_goes_on(void **state)
{
	uint32_t numbers[ACTOR_REQUESTS], steps[2], gathers = ACTOR_REQUESTS - 1;

	start_two((struct actor_job){ .stage = 3 });
	steps[0] = actor_send_step(&first, 0.1f);
	for (unsigned i = 0; i < gathers; i++)
		numbers[i] = actor_send_gather(&first, 1, 1, false);
	assert_int_equal(actor_gather(&first, 1, 1, NULL), -EBUSY);
	assert_non_null(strstr(actor_message(&first), "requests_per_connection"));
	/* It lets go of none of them, and takes the step after it all the same. */
	steps[1] = actor_send_step(&first, 0.1f);
	for (unsigned i = 0; i < 2; i++) {
		push_head(&second, 1.0f);
		actor_send_step(&second, 0.1f);
		assert_int_equal(actor_await(&first, steps[i], 0)->status, 0);
	}
	/* They were sent before the second step. */
	for (unsigned i = 0; i < gathers; i++)
		assert_int_equal(actor_await(&first, numbers[i], 0)->reply->gather->version, 2);
	assert_int_equal(actor_leases(&first, 1), gathers);
}

/* Each waits for a rank that never comes. */
static void as_many_jobs_as_a_connection_may_have_can_wait_to_be_ready(void **state)
{
	static const struct actor_tensor tensors[] = { { "w", FORMAT_BF16, INITIALIZE_ONES, 10, false } };
	struct actor_job job = { .stage = 3, .world_size = 2 };
	char name[8];

	assert_int_equal(actor_enter(&scene, &first), 0);
	client_free(first.client);
	assert_int_equal(client_new(scene.node, &first.port, 16, &first.client), 0);
	for (unsigned i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "job%u", i);
		job.name = name;
		assert_int_equal(actor_open(&first, &job), 0);
		assert_int_equal(actor_define(&first, "one", tensors, 1), 0);
		uint32_t number = actor_send_ready(&first, -1);

		assert_null(actor_find(&first, number, 0));
	}
	assert_int_equal(actor_outstanding(&first), 64);
	job.name = "more";
	assert_int_equal(actor_open(&first, &job), -EBUSY);
	assert_non_null(strstr(actor_message(&first), "64 open jobs"));
}

static void a_gather_on_its_way_at_a_step_gets_the_new_version(void **state)
{
	uint32_t gather;

	start_two((struct actor_job){ .stage = 3 });
	actor_send_step(&first, 0.1f);
	gather = actor_send_gather(&first, 1, 1, false);
	/* Behind the first one; the gather would be a lease through it. */
	actor_send_step(&first, 0.1f);
	for (unsigned i = 0; i < 2; i++) {
		push_head(&second, 1.0f);
		actor_send_step(&second, 0.1f);
	}
	assert_int_equal(actor_await(&first, gather, 0)->reply->gather->version, 2);
}

/* The library counts a step before it knows that it is refused. */
static void what_waits_for_a_refused_step_is_told(void **state)
{
	uint32_t step, gather;

	start_two((struct actor_job){ .stage = 3 });
	actor_send_step(&second, 0.1f);
	step = actor_send_step(&first, 0.2f);
	gather = actor_send_gather(&first, 1, 1, true);
	assert_int_equal(actor_await(&first, step, 0)->status, -EINVAL);
	assert_int_equal(actor_await(&first, gather, 0)->status, -EAGAIN);
	/* Of the step that waits behind another one, too. */
	push_head(&first, 1.0f);
	actor_send_step(&first, 0.1f);
	actor_send_step(&first, 0.3f);
	step = actor_send_step(&second, 0.4f);
	gather = actor_send_gather(&second, 1, 2, true);
	assert_int_equal(actor_await(&second, step, 0)->status, -EINVAL);
	assert_int_equal(actor_await(&second, gather, 0)->status, -EAGAIN);
}

/* ---- Wrong requests ---- */

static void nonsense_is_refused(void **state)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;

	start_one((struct actor_job){ .stage = 3 });
	assert_int_equal(actor_ask(&first, &request, NULL), -EOPNOTSUPP);
	assert_int_equal(actor_gather(&first, 2, 0, NULL), -EINVAL);
	assert_int_equal(actor_gather(&first, 0, 9, NULL), -EINVAL);
	assert_int_equal(actor_await(&first, actor_send_push(&first, 1, 99), 0)->status, -EINVAL);
	first.epoch++;
	assert_int_equal(actor_gather(&first, 0, 0, NULL), -ESTALE);
	first.epoch--;
	first.job++;
	assert_int_equal(actor_gather(&first, 0, 0, NULL), -EINVAL);
	first.job--;
	assert_int_equal(actor_ready(&first), -EINVAL);
	train_step(&first);
}

static void reports_say_what_there_is(void **state)
{
	Tierd__Wire__UnitsRead units = TIERD__WIRE__UNITS_READ__INIT;
	Tierd__Wire__StatisticsRead statistics = TIERD__WIRE__STATISTICS_READ__INIT;
	Tierd__Wire__NodeRead node = TIERD__WIRE__NODE_READ__INIT;
	const Tierd__Wire__Reply *reply;

	start_one((struct actor_job){ .stage = 3 });
	train_step(&first);
	units.job = (char *)"play";
	assert_int_equal(actor_ask(&first, WIRE_REQUEST(UNITS_READ, units_read, &units), &reply), 0);
	assert_int_equal(reply->units->n_units, 2);
	assert_string_equal(reply->units->units[1]->name, "two");
	assert_int_equal(actor_ask(&first, WIRE_REQUEST(NODE_READ, node_read, &node), &reply), 0);
	assert_int_equal(reply->node->jobs, 1);
	statistics.job = first.job;
	assert_int_equal(
		actor_ask(&first, WIRE_REQUEST(STATISTICS_READ, statistics_read, &statistics), &reply), 0);
	assert_int_equal(reply->statistics->pushes, 1);
	assert_int_equal(reply->statistics->job_parameters, 3 * ELEMENTS + 10);
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_job_trains_in_host_memory),
		TEST(a_job_trains_on_nvme),
		TEST(every_stage_trains),
		TEST(frozen_and_aligned_tensors_have_their_values),
		TEST(frozen_tensors_side_by_side_are_all_initialized),
		TEST(written_values_are_read_back),
		TEST(a_step_with_a_lease_is_refused),
		TEST(gradients_that_are_not_finite_skip_the_step),
		TEST(gradients_that_are_not_finite_are_reported),
		TEST(a_strict_job_names_what_was_not_pushed),
		TEST(a_job_that_needs_more_than_there_is_is_refused),
		TEST(definitions_are_charged_before_the_job_is_planned),
		TEST(a_user_has_no_more_jobs_than_are_configured),
		TEST(jobs_of_definitions_alone_end_at_the_nodes_budget),
		TEST(orders_of_phases_are_charged),
		TEST(phases_with_longer_names_than_configured_are_refused),
		TEST(needs_that_cannot_be_counted_are_refused),
		TEST(gradients_of_two_ranks_are_summed),
		TEST(ready_names_who_is_missing),
		TEST(ranks_that_disagree_are_told_the_first_difference),
		TEST(a_rank_that_has_defined_less_is_told),
		TEST(a_commit_waits_for_a_step_that_is_measured),
		TEST(a_step_waits_for_what_a_commit_takes_from_nvme),
		TEST(a_step_waits_for_what_a_commit_takes_from_host_memory),
		TEST(a_commit_answers_for_no_step_after_its_own),
		TEST(a_rank_can_be_taken_over),
		TEST(two_jobs_live_side_by_side),
		TEST(a_gather_that_waits_can_be_cancelled),
		TEST(more_gathers_than_may_wait_are_refused_and_the_rest_goes_on),
		TEST(as_many_jobs_as_a_connection_may_have_can_wait_to_be_ready),
		TEST(a_gather_on_its_way_at_a_step_gets_the_new_version),
		TEST(what_waits_for_a_refused_step_is_told),
		TEST(nonsense_is_refused),
		TEST(reports_say_what_there_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
