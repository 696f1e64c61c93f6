/* Sums that are spilled: how many bytes that costs, and that nothing changes a bit or waits for ever, whoever
 * goes in the middle of it. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/durability/durable.h"
#include "daemon/gradients/own.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/values/values.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

#define UNITS 8
#define ELEMENTS (UINT64_C(1) << 20) /* a pack each */
#define SUM_BYTES (4 * ELEMENTS)

static struct actor actor, others[2];
static struct blockade blockade;

/* ---- A job with two buffers ---- */

static void open_rank(struct actor *who, const struct actor_job *job)
{
	assert_int_equal(actor_enter(&scene, who), 0);
	assert_int_equal(actor_open(who, job), 0);
	for (unsigned i = 0; i < UNITS; i++) {
		char name[8];
		const struct actor_tensor tensor = { name, FORMAT_BF16,
						     job->world_size > 1 ? INITIALIZE_NONE : INITIALIZE_ONES,
						     ELEMENTS, false };

		snprintf(name, sizeof(name), "u%u", i);
		assert_int_equal(actor_define(who, name, &tensor, 1), 0);
	}
}

static int try_budget(uint64_t host_budget, uint32_t placement, uint64_t *ret_bytes)
{
	int r;

	actor_die(&actor);
	scene_settle(&scene);
	open_rank(&actor, &(struct actor_job){ .stage = 2,
					       .mode = MODE_REPLACE,
					       .host_budget = host_budget,
					       .parameter_placement = PLACEMENT_HOST,
					       .optimizer_placement = PLACEMENT_NVME,
					       .gradient_placement = placement });
	r = actor_ready(&actor);
	if (ret_bytes)
		*ret_bytes = promised_bytes(scene_job("play"));
	return r;
}

/* The arena is as large as it is, so all that differs is the number of buffers. */
static uint64_t budget_of(unsigned buffers)
{
	uint64_t bytes;

	assert_int_equal(try_budget(0, PLACEMENT_NVME, &bytes), 0);
	assert_int_equal(scene_job("play")->gradients->sums_memory.length, UNITS * SUM_BYTES);
	return bytes - (UNITS - buffers) * SUM_BYTES;
}

static struct job *start(void)
{
	assert_int_equal(try_budget(budget_of(2), PLACEMENT_NVME, NULL), 0);
	assert_int_equal(scene_job("play")->gradients->sums_memory.length, 2 * SUM_BYTES);
	return scene_job("play");
}

static int push(uint32_t unit, float value)
{
	actor_fill(&actor, FORMAT_BF16, ELEMENTS, value);
	return actor_await(&actor, actor_send_push(&actor, unit, 0), 0)->status;
}

/* As a backward does. */
static void push_all(unsigned micro_batches, float value)
{
	for (unsigned m = 0; m < micro_batches; m++)
		for (uint32_t unit = UNITS; unit-- > 0;)
			assert_int_equal(push(unit, value + (float)m + (float)unit), 0);
}

/* Returns the norm. */
static double step(void)
{
	const struct answer *answer = actor_await(&actor, actor_send_step(&actor, 0.1f), 0);

	assert_int_equal(answer->status, 0);
	return answer->reply->step->gradient_norm;
}

static void read_master(uint32_t unit, uint64_t version, float values[1000])
{
	assert_int_equal(actor_read(&actor, unit, 0, "master", ELEMENTS - 1000, 1000, version), 0);
	memcpy(values, actor.window.base, 1000 * sizeof(float));
}

static uint64_t moved(const struct job *job, unsigned direction)
{
	return figures_of(job)->bytes[STATISTICS_GRADIENT][direction];
}

/* ---- Bytes ---- */

/* Two of eight sums stay, and they are those that the sweep comes to first. */
static void a_sum_is_written_and_read_once_a_micro_batch(void **state)
{
	struct job *job = start();

	push_all(1, 1.0f);
	assert_int_equal(moved(job, STATISTICS_WRITTEN), (UNITS - 2) * SUM_BYTES);
	step();
	assert_int_equal(moved(job, STATISTICS_WRITTEN), (UNITS - 2) * SUM_BYTES);
	assert_int_equal(moved(job, STATISTICS_READ), (UNITS - 2) * SUM_BYTES);
	push_all(2, 1.0f);
	step();
	uint64_t written = moved(job, STATISTICS_WRITTEN), read = moved(job, STATISTICS_READ);

	/* From now on it knows that there are two micro-batches. */
	push_all(2, 1.0f);
	step();
	assert_int_equal(moved(job, STATISTICS_WRITTEN) - written, 2 * (UNITS - 2) * SUM_BYTES);
	assert_int_equal(moved(job, STATISTICS_READ) - read, 2 * (UNITS - 2) * SUM_BYTES);
}

static void sums_give_the_same_bits(unsigned buffers)
{
	float spilled[2][1000], kept[2][1000];
	double norms[2];

	assert_int_equal(try_budget(budget_of(buffers), PLACEMENT_NVME, NULL), 0);
	assert_int_equal(scene_job("play")->gradients->sums_memory.length, buffers * SUM_BYTES);
	push_all(3, 0.5f);
	norms[0] = step();
	read_master(0, 1, spilled[0]);
	read_master(UNITS - 1, 1, spilled[1]);
	assert_int_equal(try_budget(0, PLACEMENT_HOST, NULL), 0);
	assert_null(scene_job("play")->gradients->spill);
	push_all(3, 0.5f);
	norms[1] = step();
	read_master(0, 1, kept[0]);
	read_master(UNITS - 1, 1, kept[1]);
	assert_memory_equal(&norms[0], &norms[1], sizeof(norms[0]));
	assert_memory_equal(spilled, kept, sizeof(kept));
}

static void spilled_sums_give_the_same_bits(void **state)
{
	sums_give_the_same_bits(1);
	sums_give_the_same_bits(3);
}

/* Both buffers have sums, and the one that has to go is not written yet. */
static void a_step_waits_for_gradients_that_wait_for_a_buffer(void **state)
{
	struct job *job = start();
	uint32_t number;

	assert_int_equal(push(0, 1.0f), 0);
	assert_int_equal(push(1, 1.0f), 0);
	/* That holds steps up, too. */
	while (!durable_is_quiet(job))
		scene_wait(&scene);
	scene_hear_nothing_of_devices(&scene);
	actor_fill(&actor, FORMAT_BF16, ELEMENTS, 1.0f);
	actor_send_push(&actor, 2, 0);
	number = actor_send_step(&actor, 0.1f);
	assert_true(job->decided == 0 && !norm_is_running(job) && job->gradients->reductions_running == 0);
	scene_hear_of_devices(&scene);
	assert_int_equal(actor_await(&actor, number, 0)->status, 0);
	assert_true(actor_find(&actor, number, 0)->reply->step->gradient_norm == sqrt(3.0 * ELEMENTS));
}

/* ---- Budgets ---- */

static void one_byte_less_than_the_least_is_refused(void **state)
{
	uint64_t least = budget_of(1);

	assert_int_equal(try_budget(least, PLACEMENT_NVME, NULL), 0);
	assert_int_equal(try_budget(least - 1, PLACEMENT_NVME, NULL), -ENOMEM);
	assert_non_null(strstr(actor_message(&actor), "gradient sums 4.0 MiB"));
	assert_int_equal(try_budget(least - 1, PLACEMENT_DEFAULT, NULL), -ENOMEM);
	assert_int_equal(try_budget(least, PLACEMENT_DEFAULT, NULL), 0);
	assert_true(scene_job("play")->location.has_nvme_sums);
}

static void sums_stay_in_host_memory_as_long_as_they_fit(void **state)
{
	uint64_t bytes;

	assert_int_equal(try_budget(0, PLACEMENT_DEFAULT, &bytes), 0);
	assert_false(scene_job("play")->location.has_nvme_sums);
	assert_int_equal(try_budget(bytes, PLACEMENT_DEFAULT, NULL), 0);
	assert_false(scene_job("play")->location.has_nvme_sums);
	assert_int_equal(try_budget(bytes - 1, PLACEMENT_DEFAULT, NULL), 0);
	assert_true(scene_job("play")->location.has_nvme_sums);
	assert_int_equal(scene_job("play")->gradients->sums_memory.length, (UNITS - 1) * SUM_BYTES);
	assert_true(promised_bytes(scene_job("play")) < bytes);
	assert_int_equal(try_budget(bytes - 1, PLACEMENT_HOST, NULL), -ENOMEM);
}

/* ---- Ends in the middle ---- */

/* One pack's sums wait for a worker to measure them, another's for their buffer. */
static void stop_in_a_spill(struct job *job)
{
	assert_int_equal(push(7, 100.0f), 0);
	assert_int_equal(push(6, 100.0f), 0);
	actor_fill(&actor, FORMAT_BF16, ELEMENTS, 100.0f);
	blockade_begin(&scene, scene.node->workers, &blockade);
	actor_send_push(&actor, 5, 0);
	assert_true(spill_is_wished(job));
	event_base_loop(scene.loop, EVLOOP_NONBLOCK);
	assert_int_equal(job->gradients->reductions_running, 1);
}

static void expect_a_good_step(double norm)
{
	push_all(1, 0.5f);
	double now = step();

	assert_memory_equal(&now, &norm, sizeof(norm));
}

static double good_norm(void)
{
	start();
	push_all(1, 0.5f);
	return step();
}

static void an_epoch_that_ends_leaves_nothing_in_the_sums(void **state)
{
	double norm = good_norm();
	struct job *job = start();
	uint32_t ready;

	stop_in_a_spill(job);
	job_abort(job, -ESTALE, "for the test");
	ready = actor_send_ready(&actor, -1);
	event_base_loop(scene.loop, EVLOOP_NONBLOCK);
	/* What is in transfer comes home first. */
	assert_null(actor_find(&actor, ready, 0));
	blockade_end(&blockade);
	assert_int_equal(actor_finish_ready(&actor, ready), 0);
	expect_a_good_step(norm);
	/* Nor on NVMe. */
	assert_int_equal(moved(job, STATISTICS_READ), (UNITS - 2) * SUM_BYTES);
}

static void a_rank_that_dies_in_a_spill_is_replaced(void **state)
{
	double norm = good_norm();
	struct job *job = start();
	uint64_t budget = budget_limits(job)->host_budget;

	stop_in_a_spill(job);
	actor_die(&actor);
	blockade_end(&blockade);
	scene_settle(&scene);
	open_rank(&actor, &(struct actor_job){ .stage = 2,
					       .host_budget = budget,
					       .parameter_placement = PLACEMENT_HOST,
					       .optimizer_placement = PLACEMENT_NVME,
					       .gradient_placement = PLACEMENT_NVME });
	assert_int_equal(actor_ready(&actor), 0);
	expect_a_good_step(norm);
}

static void a_job_that_is_dropped_in_a_spill_is_gone(void **state)
{
	struct job *job = start();

	stop_in_a_spill(job);
	actor_die(&actor);
	job_drop(job);
	blockade_end(&blockade);
	scene_settle(&scene);
	assert_null(scene_job("play"));
	assert_int_equal(scene.node->paths[0].used, 0);
}

static void leave_until_it_is_released(void)
{
	scene.node->settings.idle_release_ms = 1;
	actor_die(&actor);
	while (scene_job("play")->state != JOB_RELEASED)
		scene_wait(&scene);
	scene_settle(&scene);
}

static void a_released_job_has_its_buffers_again(void **state)
{
	const struct actor_job options = { .stage = 3, .gradient_placement = PLACEMENT_NVME };
	struct job *job;
	double norm;

	open_rank(&actor, &options);
	assert_int_equal(actor_ready(&actor), 0);
	push_all(1, 0.5f);
	norm = step();
	job = scene_job("play");
	leave_until_it_is_released();
	assert_null(job->gradients->spill);
	open_rank(&actor, &options);
	assert_int_equal(actor_ready(&actor), 0);
	assert_non_null(job->gradients->spill);
	expect_a_good_step(norm);
}

/* Another job has come meanwhile, and has left too little for all sums. */
static void begin_other(void)
{
	open_rank(&others[0], &(struct actor_job){ .name = "other",
						   .stage = 3,
						   .parameter_placement = PLACEMENT_HOST,
						   .optimizer_placement = PLACEMENT_HOST });
	assert_int_equal(actor_ready(&others[0]), 0);
	scene.node->settings.host_budget = budget_host_used(scene.node) + 24 * MIB;
}

static void end_other(void)
{
	actor_die(&others[0]);
	job_drop(scene_job("other"));
	scene_settle(&scene);
}

static void come_back(const struct actor_job *options, bool is_spilled)
{
	open_rank(&actor, options);
	assert_int_equal(actor_ready(&actor), 0);
	assert_int_equal(scene_job("play")->location.has_nvme_sums, is_spilled);
	assert_int_equal(scene_job("play")->gradients->spill != NULL, is_spilled);
}

struct trained {
	double norms[3];
	float masters[2][1000];
};

/* Three steps; before the second one its ranks leave, and come back to what the other job has left to them.
 */
static struct trained train_beside_other(const struct actor_job *options, bool is_away)
{
	struct trained trained;
	uint64_t used;

	open_rank(&actor, options);
	assert_int_equal(actor_ready(&actor), 0);
	assert_int_equal(scene_job("play")->location.has_nvme_sums,
			 options->gradient_placement == PLACEMENT_NVME);
	for (unsigned i = 0; i < ARRAY_LENGTH(trained.norms); i++) {
		used = scene.node->paths[0].used;
		if (is_away && i > 0)
			leave_until_it_is_released();
		if (is_away && i == 1) {
			begin_other();
			come_back(options, true);
			assert_true(scene.node->paths[0].used > used);
		} else if (is_away && i == 2) {
			end_other();
			come_back(options, false);
			assert_true(scene.node->paths[0].used < used);
		}
		push_all(2, 0.5f + (float)i);
		trained.norms[i] = step();
	}
	read_master(0, 3, trained.masters[0]);
	read_master(UNITS - 1, 3, trained.masters[1]);
	return trained;
}

static void a_released_job_comes_back_with_the_sums_that_there_is_room_for(void **state)
{
	const struct actor_job away = { .stage = 3 }, stays = { .stage = 3, .mode = MODE_REPLACE };
	struct trained with, without;

	with = train_beside_other(&away, true);
	assert_int_equal(budget_nvme_bytes(scene_job("play")), scene.node->paths[0].used);
	actor_die(&actor);
	scene_settle(&scene);
	scene.node->settings.idle_release_ms = 0;
	without = train_beside_other(&stays, false);
	assert_memory_equal(&with, &without, sizeof(with));
}

static void a_job_spills_or_not_as_there_is_room_each_time_it_comes_back(void **state)
{
	const struct actor_job options = { .stage = 3 };
	uint64_t plenty = scene.node->settings.host_budget, used;
	double norm;

	begin_other();
	come_back(&options, true);
	push_all(1, 0.5f);
	norm = step();
	used = scene.node->paths[0].used;
	leave_until_it_is_released();
	end_other();
	scene.node->settings.host_budget = plenty;
	come_back(&options, false);
	expect_a_good_step(norm);
	leave_until_it_is_released();
	begin_other();
	come_back(&options, true);
	assert_int_equal(scene.node->paths[0].used, used);
	push_all(1, 0.5f);
	step();
}

static void a_job_that_comes_back_is_told_that_nvme_has_no_room_for_its_sums(void **state)
{
	const struct actor_job options = { .stage = 3 };
	uint64_t used;

	open_rank(&actor, &options);
	assert_int_equal(actor_ready(&actor), 0);
	push_all(1, 0.5f);
	step();
	leave_until_it_is_released();
	begin_other();
	used = scene.node->paths[0].used;
	scene.node->paths[0].capacity = used + MIB;
	open_rank(&actor, &options);
	assert_int_equal(actor_ready(&actor), -ENOSPC);
	assert_non_null(strstr(actor_message(&actor), "its gradient sums, beside the state that it has"));
	assert_int_equal(scene_job("play")->state, JOB_RELEASED);
	assert_int_equal(scene.node->paths[0].used, used);
	end_other();
	assert_int_equal(actor_ready(&actor), 0);
	push_all(1, 0.5f);
	step();
}

/* Nobody is blocked for ever here, so no more memory is taken than was planned. */
static void who_waits_for_a_gradient_buffer_waits_for_the_spill(void **state)
{
	struct job *job = start();

	assert_int_equal(push(7, 1.0f), 0);
	assert_int_equal(push(6, 1.0f), 0);
	assert_int_equal(actor.buffer_count, 2);
	actor_send_push(&actor, 5, 0);
	actor_send_push(&actor, 4, 1);
	assert_true(spill_is_wished(job));
	assert_int_equal(actor_await(&actor, actor_send_buffer_wait(&actor, 0, 2), 0)->status, 0);
	assert_int_equal(gradients_spare_bytes(job), 0);
}

/* ---- Values ---- */

static uint32_t send_write(struct actor *who, uint32_t unit)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__TensorWrite write = TIERD__WIRE__TENSOR_WRITE__INIT;

	write.job = who->job;
	write.unit = unit;
	write.count = 1000;
	request.body_case = TIERD__WIRE__REQUEST__BODY_TENSOR_WRITE;
	request.tensor_write = &write;
	return actor_send(who, &request);
}

static void open_three(uint64_t budget)
{
	for (unsigned rank = 0; rank < 3; rank++)
		open_rank(rank ? &others[rank - 1] : &actor,
			  &(struct actor_job){ .rank = rank,
					       .world_size = 3,
					       .stage = 3,
					       .host_budget = budget,
					       .gradient_placement = PLACEMENT_NVME });
}

static void open_three_with_two_buffers(void)
{
	for (uint64_t budget = 16 * MIB;; budget += MIB) {
		open_three(budget);
		if (actor_write(&actor, 0, 0, 0, 1000) == 0 &&
		    scene_job("play")->gradients->sums_memory.length == 2 * SUM_BYTES)
			return;
		actor_die(&actor);
		actor_die(&others[0]);
		actor_die(&others[1]);
		scene_settle(&scene);
	}
}

/* Three write into three packs, and there are two buffers. */
static void who_waits_for_a_buffer_to_write_into_may_die(void **state)
{
	uint32_t writes[3];

	open_three_with_two_buffers();
	assert_int_equal(scene_job("play")->gradients->sums_memory.length, 2 * SUM_BYTES);
	assert_int_equal(actor_write(&actor, 1, 0, 0, 1000), 0);
	blockade_begin(&scene, scene.node->workers, &blockade);
	writes[0] = send_write(&actor, 0);
	writes[1] = send_write(&others[0], 1);
	send_write(&others[1], 2);
	event_base_loop(scene.loop, EVLOOP_NONBLOCK);
	assert_true(spill_is_wished(scene_job("play")));
	actor_die(&others[1]);
	assert_false(spill_is_wished(scene_job("play")));
	blockade_end(&blockade);
	assert_int_equal(actor_await(&actor, writes[0], 0)->status, 0);
	assert_int_equal(actor_await(&others[0], writes[1], 0)->status, 0);
	assert_int_equal(actor_write(&actor, 3, 0, 0, 1000), 0);
	assert_int_equal(actor_write(&actor, 4, 0, 0, 1000), 0);
}

static void placements_that_cannot_be_are_refused(void **state)
{
	assert_int_equal(actor_enter(&scene, &actor), 0);
	assert_int_equal(
		actor_open(&actor, &(struct actor_job){ .stage = 1, .gradient_placement = PLACEMENT_NVME }),
		-EINVAL);
	assert_non_null(strstr(actor_message(&actor), "only stages 2 and 3 partition gradients"));
	assert_int_equal(actor_open(&actor, &(struct actor_job){ .stage = 2, .gradient_placement = 4 }),
			 -EINVAL);
}

static int setup(void **state)
{
	return scene_setup_with(&(struct scene_options){ .capacity = 512 * MIB });
}

#define TEST(name) SCENE_TEST(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_sum_is_written_and_read_once_a_micro_batch),
		TEST(spilled_sums_give_the_same_bits),
		TEST(a_step_waits_for_gradients_that_wait_for_a_buffer),
		TEST(one_byte_less_than_the_least_is_refused),
		TEST(sums_stay_in_host_memory_as_long_as_they_fit),
		TEST(an_epoch_that_ends_leaves_nothing_in_the_sums),
		TEST(a_rank_that_dies_in_a_spill_is_replaced),
		TEST(a_job_that_is_dropped_in_a_spill_is_gone),
		TEST(a_released_job_has_its_buffers_again),
		TEST(a_released_job_comes_back_with_the_sums_that_there_is_room_for),
		TEST(a_job_spills_or_not_as_there_is_room_each_time_it_comes_back),
		TEST(a_job_that_comes_back_is_told_that_nvme_has_no_room_for_its_sums),
		TEST(who_waits_for_a_gradient_buffer_waits_for_the_spill),
		TEST(who_waits_for_a_buffer_to_write_into_may_die),
		TEST(placements_that_cannot_be_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
