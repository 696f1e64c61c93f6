/* Jobs that are defined and written unit by unit: that they have the bits and the layout of jobs that were
 * defined first, whatever ranks do meanwhile, and that nothing is left of what was written to one that never
 * began. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/model/job.h"
#include "daemon/durability/record.h"
#include "daemon/telemetry/telemetry.h"
#include "tests/unit/seeds.h"
#include "tests/unit/test.h"
#include "tests/unit/values/values_test.h"

#define ELEMENTS 300001 /* of odd bytes, and more than a window holds of fp32 */
#define UNITS 7
#define STEP 5

static struct actor actor, other;

/* Of the node, before there is a job. */
static uint64_t host_before;

/* ---- A job ---- */

static int define(struct actor *rank, unsigned unit)
{
	const struct actor_tensor tensors[] = {
		{ NULL, FORMAT_BF16, INITIALIZE_NONE, ELEMENTS, false },
		{ NULL, FORMAT_FP32, INITIALIZE_NONE, 7 + unit, false },
		{ NULL, FORMAT_BF16, INITIALIZE_NONE, ELEMENTS, true },
		{ NULL, FORMAT_BF16, INITIALIZE_NORMAL, 100, false },
	};

	return define_unit(rank, unit, tensors, ARRAY_LENGTH(tensors));
}

static int write_parameters(struct actor *rank, uint32_t unit, uint32_t tensor, uint64_t first,
			    uint64_t count)
{
	if (tensor != 1)
		return write_narrow(rank, unit, tensor, first, count);
	put_values(rank, count);
	return actor_write(rank, unit, tensor, first, count);
}

/* In all ways that there are, some elements twice. */
static void write_unit(struct actor *rank, uint32_t unit)
{
	bool is_of_masters = unit % 2 == 1;

	for (uint64_t first = 0; first < ELEMENTS; first += PIECE) {
		uint64_t count = ELEMENTS - first < PIECE ? ELEMENTS - first : PIECE;

		assert_int_equal(is_of_masters ? write_masters(rank, unit, 0, first, count)
					       : write_parameters(rank, unit, 0, first, count),
				 0);
		assert_int_equal(write_parameters(rank, unit, 2, first, count), 0);
	}
	assert_int_equal(write_parameters(rank, unit, 1, 0, 7 + unit), 0);
	assert_int_equal(write_masters(rank, unit, 0, 1000 + unit, 17), 0);
	assert_int_equal(write_parameters(rank, unit, 0, 1010, 3), 0);
	assert_int_equal(write_parameters(rank, unit, 2, 1010, 3), 0);
}

static void write_state(struct actor *rank)
{
	put_values(rank, 5000);
	assert_int_equal(actor_await(rank, actor_send_state(rank, 0, "m", STEP, 77, 5000), 0)->status, 0);
}

static void define_and_write(struct actor *rank, uint32_t unit)
{
	assert_int_equal(define(rank, unit), 0);
	write_unit(rank, unit);
}

/* A value that no other write gives. */
static void write_mark(uint32_t unit, uint64_t at)
{
	*(float *)actor.window.base = 0.75f;
	assert_int_equal(actor_await(&actor, actor_send_masters(&actor, unit, 0, at, 1), 0)->status, 0);
}

static void expect_mark(uint32_t unit, uint64_t at)
{
	assert_int_equal(actor_read(&actor, unit, 0, "master", at, 1, 0), 0);
	assert_true(*(float *)actor.window.base == 0.75f);
}

/* ---- The same bits ---- */

struct outcome {
	uint64_t layout, host_bytes, nvme_bytes, step, frozen_bytes;
	struct picture picture;
};

#define PICTURE_BYTES (UNITS * (4 * ELEMENTS + 3 * (7 + 100)) * sizeof(float))

static struct outcome look(void)
{
	static const uint64_t elements[] = { ELEMENTS, 7, ELEMENTS, 100 };
	static const char *const states[] = { "parameter", "master", "m" };
	struct outcome outcome = {
		.layout = record_layout(play()),
		.step = play()->step,
		.frozen_bytes = figures_of(play())->bytes[STATISTICS_WRITE_BACK][STATISTICS_WRITTEN],
		.picture = picture_new(PICTURE_BYTES)
	};

	scene_settle(&scene);
	outcome.host_bytes = promised_bytes(play());
	outcome.nvme_bytes = budget_nvme_bytes(play());
	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t tensor = 0; tensor < 4; tensor++)
			for (unsigned i = 0; i < (tensor == 2 ? 1 : 3); i++)
				picture_add(&outcome.picture, &actor, unit, tensor, elements[tensor],
					    states[i]);
	assert_int_equal(outcome.picture.size, PICTURE_BYTES);
	return outcome;
}

static unsigned drafts(void)
{
	unsigned count = 0;
	char path[300];
	DIR *folder;

	scene_await_disposals(&scene);
	snprintf(path, sizeof(path), "%s/tierd/%u", scene.folder, (unsigned)geteuid());
	folder = opendir(path);
	for (struct dirent *entry = folder ? readdir(folder) : NULL; entry; entry = readdir(folder))
		count += strstr(entry->d_name, ".draft") != NULL;
	if (folder)
		closedir(folder);
	return count;
}

static void begin(const struct scene_options *options, struct actor_job job, bool is_drafted)
{
	job.is_drafted = is_drafted;
	value_seed = 1;
	assert_int_equal(scene_open(options, &scene), 0);
	host_before = budget_host_used(scene.node);
	assert_int_equal(actor_enter(&scene, &actor), 0);
	assert_int_equal(actor_open(&actor, &job), 0);
}

static struct outcome train(const struct scene_options *options, const struct actor_job *job, bool is_drafted)
{
	struct outcome outcome;

	begin(options, *job, is_drafted);
	for (uint32_t unit = 0; unit < UNITS && !is_drafted; unit++)
		assert_int_equal(define(&actor, unit), 0);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		if (is_drafted)
			assert_int_equal(define(&actor, unit), 0);
		write_unit(&actor, unit);
		if (unit == 2)
			write_state(&actor);
	}
	assert_int_equal(play()->state, is_drafted ? JOB_FORMING : JOB_FILLING);
	assert_int_equal(actor_ready(&actor), 0);
	outcome = look();
	assert_int_equal(drafts(), 0);
	scene_close(&scene);
	return outcome;
}

static void a_job_is_the_same_as_if_it_had_been_defined_first(void **state)
{
	static const struct {
		struct scene_options options;
		struct actor_job job;
	} cases[] = {
		{ { 0 }, { .stage = 3 } },
		{ { 0 }, { .stage = 3, .is_pushed_once = true } },
		{ { 0 }, { .stage = 3, .gradient_placement = PLACEMENT_NVME } },
		{ { 0 }, { .stage = 3, .gradient_placement = PLACEMENT_NVME, .is_pushed_once = true } },
		{ { 0 }, { .stage = 1, .parameter_placement = PLACEMENT_HOST } },
		{ { 0 },
		  { .stage = 3,
		    .parameter_placement = PLACEMENT_HOST,
		    .optimizer_placement = PLACEMENT_HOST } },
		{ { 0 },
		  { .stage = 3,
		    .parameter_placement = PLACEMENT_HOST,
		    .optimizer_placement = PLACEMENT_HOST,
		    .durability = DURABILITY_NONE } },
		{ { .is_without_nvme = true }, { .stage = 0 } },
		{ { .is_without_nvme = true }, { .stage = 3, .is_pushed_once = true } },
	};

	FOREACH_CASE (i, ARRAY_LENGTH(cases)) {
		struct outcome whole = train(&cases[i].options, &cases[i].job, false);
		struct outcome drafted = train(&cases[i].options, &cases[i].job, true);

		assert_int_equal(whole.step, STEP);
		assert_int_equal(drafted.step, STEP);
		assert_true(whole.layout == drafted.layout);
		assert_int_equal(whole.host_bytes, drafted.host_bytes);
		assert_int_equal(whole.nvme_bytes, drafted.nvme_bytes);
		assert_int_equal(whole.frozen_bytes, drafted.frozen_bytes);
		assert_true(pictures_are_equal(whole.picture, drafted.picture));
	}
}

/* ---- Ranks ---- */

static void begin_two(bool is_drafted)
{
	struct actor_job job = { .stage = 3, .world_size = 2 };

	begin(&(struct scene_options){ 0 }, job, is_drafted);
	job.rank = 1;
	job.is_drafted = is_drafted;
	assert_int_equal(actor_enter(&scene, &other), 0);
	assert_int_equal(actor_open(&other, &job), 0);
}

/* The first one writes what the second one has not defined yet, and the other way round. */
static void ranks_define_at_different_paces(void **state)
{
	struct outcome outcomes[2];

	for (unsigned is_drafted = 0; is_drafted < 2; is_drafted++) {
		begin_two(is_drafted);
		for (uint32_t unit = 0; unit < UNITS && !is_drafted; unit++) {
			assert_int_equal(define(&actor, unit), 0);
			assert_int_equal(define(&other, unit), 0);
		}
		for (uint32_t unit = 0; unit < UNITS; unit++) {
			struct actor *first = unit < 3 ? &actor : &other,
				     *second = unit < 3 ? &other : &actor;

			if (is_drafted && unit == 3)
				for (uint32_t before = 0; before < 3; before++)
					assert_int_equal(define(&other, before), 0);
			if (is_drafted)
				assert_int_equal(define(first, unit), 0);
			write_unit(first, unit);
			if (is_drafted && unit >= 3)
				assert_int_equal(define(second, unit), 0);
			write_unit(second, unit);
		}
		write_state(&other);
		assert_int_equal(make_two_ready(&other, &actor), 0);
		outcomes[is_drafted] = look();
		scene_close(&scene);
	}
	assert_true(outcomes[0].layout == outcomes[1].layout);
	assert_true(pictures_are_equal(outcomes[0].picture, outcomes[1].picture));
}

static void the_first_difference_of_ranks_is_told(void **state)
{
	static const struct actor_tensor tensor = { "u1.0", FORMAT_FP32, INITIALIZE_NONE, 3, false };

	begin_two(true);
	define_and_write(&actor, 0);
	assert_int_equal(define(&actor, 1), 0);
	assert_int_equal(define(&other, 0), 0);
	expect_error(&other, actor_define(&other, "u1", &tensor, 1), -EINVAL, "u1");
	/* A rank that lacks a unit keeps all from being ready. */
	actor_send_ready(&actor, -1);
	assert_int_equal(actor_ready(&other), -EINVAL);
	assert_non_null(
		strstr(actor_message(&other), "rank 1 has defined 1 of 2 units; unit \"u1\" is missing"));
	scene_close(&scene);
}

static void ranks_have_to_agree_on_the_draft(void **state)
{
	struct actor_job job = { .stage = 3, .world_size = 2 };

	begin(&(struct scene_options){ 0 }, job, true);
	job.rank = 1;
	assert_int_equal(actor_enter(&scene, &other), 0);
	expect_error(&other, actor_open(&other, &job), -EINVAL, "drafted is 0 here, 1 in the job");
	scene_close(&scene);
}

/* What it was about to write is lost, and the others go on. */
static void a_rank_that_goes_lets_the_other_write(void **state)
{
	for (uint32_t goes = 0; goes < 2; goes++) {
		struct actor *ranks[] = { &actor, &other };
		uint32_t numbers[2];

		begin_two(true);
		assert_int_equal(define(&actor, 0), 0);
		assert_int_equal(define(&other, 0), 0);
		put_values(&actor, PIECE);
		put_values(&other, PIECE);
		numbers[0] = actor_send_masters(&actor, 0, 0, 0, PIECE);
		numbers[1] = actor_send_masters(&other, 0, 0, 0, PIECE);
		actor_die(ranks[goes]);
		assert_int_equal(actor_await(ranks[!goes], numbers[!goes], 0)->status, 0);
		assert_int_equal(define(ranks[!goes], 1), 0);
		write_unit(ranks[!goes], 1);
		actor_die(ranks[!goes]);
		scene_settle(&scene);
		assert_null(play());
		assert_int_equal(drafts(), 0);
		assert_int_equal(budget_host_used(scene.node), host_before);
		assert_int_equal(scene.node->paths[0].used, 0);
		scene_close(&scene);
	}
}

/* They are written again, and the later values count. */
static void a_rank_that_comes_back_defines_and_writes_again(void **state)
{
	struct actor_job job = { .stage = 3, .world_size = 2, .rank = 1, .is_drafted = true };

	begin_two(true);
	for (uint32_t unit = 0; unit < 2; unit++) {
		assert_int_equal(define(&actor, unit), 0);
		define_and_write(&other, unit);
	}
	actor_die(&other);
	assert_int_equal(actor_enter(&scene, &other), 0);
	assert_int_equal(actor_open(&other, &job), 0);
	for (uint32_t unit = 0; unit < 2; unit++)
		define_and_write(&other, unit);
	write_mark(1, 9);
	assert_int_equal(make_two_ready(&other, &actor), 0);
	expect_mark(1, 9);
	scene_close(&scene);
}

/* Who is ready while what he has sent waits for its turn has it written first. */
static void a_job_is_laid_out_when_all_is_in_the_draft(void **state)
{
	uint32_t numbers[2];

	begin_two(true);
	assert_int_equal(define(&actor, 0), 0);
	assert_int_equal(define(&other, 0), 0);
	assert_int_equal(write_parameters(&actor, 0, 1, 0, 7), 0);
	for (uint64_t first = 0; first < ELEMENTS; first += PIECE)
		assert_int_equal(write_parameters(&actor, 0, 2, first,
						  ELEMENTS - first < PIECE ? ELEMENTS - first : PIECE),
				 0);
	put_values(&actor, PIECE);
	put_values(&other, ELEMENTS - PIECE);
	numbers[0] = actor_send_masters(&actor, 0, 0, 0, PIECE);
	numbers[1] = actor_send_masters(&other, 0, 0, PIECE, ELEMENTS - PIECE);
	assert_int_equal(make_two_ready(&other, &actor), 0);
	assert_int_equal(actor_await(&actor, numbers[0], 0)->status, 0);
	assert_int_equal(actor_await(&other, numbers[1], 0)->status, 0);
	scene_close(&scene);
}

/* What comes when the job is being laid out, or what is in the draft written, comes behind that. */
static void later_values_count(void **state)
{
	static const enum job_state phases[] = { JOB_PLANNING, JOB_FILLING };

	for (unsigned i = 0; i < ARRAY_LENGTH(phases); i++) {
		uint32_t ready;

		begin(&(struct scene_options){ 0 }, (struct actor_job){ .stage = 3 }, true);
		for (uint32_t unit = 0; unit < 3; unit++)
			define_and_write(&actor, unit);
		ready = actor_send_ready(&actor, -1);
		while (play()->state != phases[i])
			scene_wait(&scene);
		write_mark(2, ELEMENTS - 1);
		assert_int_equal(actor_finish_ready(&actor, ready), 0);
		expect_mark(2, ELEMENTS - 1);
		scene_close(&scene);
	}
}

/* It goes on, and who asks again gets it. */
static void a_ready_that_gives_up_says_what_it_has_waited_for(void **state)
{
	struct blockade blockade;

	begin(&(struct scene_options){ 0 }, (struct actor_job){ .stage = 3 }, true);
	define_and_write(&actor, 0);
	blockade_begin(&scene, scene.node->workers, &blockade);
	expect_error(&actor, actor_finish_ready(&actor, actor_send_ready(&actor, 1)), -ETIMEDOUT,
		     "still waiting for its values to be written where");
	blockade_end(&blockade);
	assert_int_equal(actor_ready(&actor), 0);
	scene_close(&scene);
}

/* ---- Room ---- */

/* The draft grows with what is written again, too. */
static int write_until_it_fails(void)
{
	int r = define(&actor, 0);

	for (unsigned i = 0; i < 1000 && r == 0; i++)
		r = write_masters(&actor, 0, 0, 0, PIECE);
	return r;
}

static void values_without_nvme_are_charged(void **state)
{
	begin(&(struct scene_options){ .is_without_nvme = true, .host_budget = 64 * MIB },
	      (struct actor_job){ .stage = 0 }, true);
	expect_error(&actor, write_until_it_fails(), -ENOMEM, "it takes 2.0 MiB of host memory");
	scene_close(&scene);
}

static void values_on_nvme_are_charged(void **state)
{
	begin(&(struct scene_options){ .capacity = 100 * MIB }, (struct actor_job){ .stage = 3 }, true);
	expect_error(&actor, write_until_it_fails(), -ENOSPC, "the values that it was given");
	assert_int_equal(budget_nvme_bytes(play()), 96 * MIB);
	scene_close(&scene);
}

/* By the first write of so many units, or by one that comes when they have become too many. */
static int write_many(const struct scene_options *options, struct actor_job job, bool is_defined_first)
{
	int r = 0;

	begin(options, job, true);
	for (unsigned unit = 0; unit < 60 && is_defined_first; unit++)
		assert_int_equal(define(&actor, unit), 0);
	for (unsigned unit = 0; unit < 60 && r == 0; unit++) {
		if (!is_defined_first)
			assert_int_equal(define(&actor, unit), 0);
		r = write_masters(&actor, unit, 0, 0, 1);
	}
	return r;
}

static void a_job_that_has_become_too_large_is_told(void **state)
{
	static const struct scene_options small = { .capacity = 200 * MIB },
					  memory = { .is_without_nvme = true, .host_budget = 100 * MIB };
	const struct actor_job on_host = { .stage = 3,
					   .parameter_placement = PLACEMENT_HOST,
					   .optimizer_placement = PLACEMENT_HOST,
					   .durability = DURABILITY_NONE,
					   .host_budget = 100 * MIB };

	for (unsigned is_defined_first = 0; is_defined_first < 2; is_defined_first++) {
		expect_error(&actor, write_many(&small, (struct actor_job){ .stage = 3 }, is_defined_first),
			     -ENOSPC, "twice its state");
		assert_true(is_defined_first || play()->catalog.unit_count < 30);
		assert_int_equal(budget_nvme_bytes(play()), is_defined_first ? 0 : 16 * MIB);
		scene_close(&scene);
		expect_error(&actor, write_many(&memory, (struct actor_job){ .stage = 3 }, is_defined_first),
			     -ENOMEM, "the units that it has need more than");
		scene_close(&scene);
		expect_error(&actor, write_many(&(struct scene_options){ 0 }, on_host, is_defined_first),
			     -ENOMEM, "the units that it has need more than");
		scene_close(&scene);
	}
}

/* Where a plan fails what was written stays, for ranks that try again; and goes with the last of them. */
static void a_plan_that_fails_takes_nothing_away(void **state)
{
	begin(&(struct scene_options){ 0 }, (struct actor_job){ .stage = 3 }, true);
	for (uint32_t unit = 0; unit < 2; unit++)
		define_and_write(&actor, unit);
	uint64_t budget = scene.node->settings.host_budget;

	const uint64_t taken = budget_nvme_bytes(play());

	assert_true(taken > 0);
	scene.node->settings.host_budget = budget_host_used(scene.node);
	assert_int_equal(actor_ready(&actor), -ENOMEM);
	assert_int_equal(budget_nvme_bytes(play()), taken);
	assert_int_equal(play()->state, JOB_FORMING);
	assert_int_equal(drafts(), 1);
	scene.node->settings.host_budget = budget;
	define_and_write(&actor, 2);
	assert_int_equal(actor_ready(&actor), 0);
	assert_int_equal(drafts(), 0);
	scene_close(&scene);
}

/* What a daemon leaves that was killed: files that nobody knows. */
static void the_next_daemon_removes_drafts(void **state)
{
	char path[400];
	int fd;

	assert_int_equal(scene_open(&(struct scene_options){ 0 }, &scene), 0);
	snprintf(path, sizeof(path), "%s/tierd/%u", scene.folder, (unsigned)geteuid());
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/tierd/%u/play-7.draft", scene.folder, (unsigned)geteuid());
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(drafts(), 1);
	assert_int_equal(scene_restart(&(struct scene_options){ 0 }, &scene), 0);
	assert_int_equal(drafts(), 0);
	scene_settle(&scene);
	scene_close(&scene);
}

/* What cannot be had back costs the job, which has no state yet, and nobody gets wrong bytes for it. */
static void what_a_disk_has_lost_is_told(void **state)
{
	static const char *const faults[] = { "submit:write:1",	  "complete:write:1", "submit:read:1",
					      "complete:read:1",  "corrupt:read:1",   "corrupt:write:1",
					      "misdirect:read:1", "lose:write:1" };

	for (unsigned i = 0; i < ARRAY_LENGTH(faults); i++) {
		begin(&(struct scene_options){ .fault = faults[i] }, (struct actor_job){ .stage = 3 }, true);
		assert_int_equal(define(&actor, 0), 0);
		assert_int_equal(write_masters(&actor, 0, 0, 0, 100), 0);
		assert_int_equal(write_parameters(&actor, 0, 1, 0, 7), 0);
		expect_error(&actor, actor_ready(&actor), -EIO, "the values that it was given");
		scene_settle(&scene);
		assert_int_equal(play()->state, JOB_BROKEN);
		assert_int_equal(drafts(), 0);
		scene_close(&scene);
	}
}

/* A write that fails takes nothing, and may be tried again. */
static void a_write_that_fails_may_be_tried_again(void **state)
{
	int r = 0;

	begin(&(struct scene_options){ .fault = "complete:write:2:EIO" }, (struct actor_job){ .stage = 3 },
	      true);
	assert_int_equal(define(&actor, 0), 0);
	for (unsigned i = 0; i < 10 && r == 0; i++)
		r = write_masters(&actor, 0, 0, 0, PIECE);
	expect_error(&actor, r, -EIO, "cannot be kept on NVMe");
	write_unit(&actor, 0);
	write_mark(0, 5);
	assert_int_equal(actor_ready(&actor), 0);
	expect_mark(0, 5);
	scene_close(&scene);
}

/* Nobody is left to answer while values are on their way to where they belong. */
static void a_job_may_go_while_it_is_written(void **state)
{
	FOREACH_CASE (events, 40) {
		begin(&(struct scene_options){ 0 },
		      (struct actor_job){ .stage = 3, .gradient_placement = PLACEMENT_NVME }, true);
		for (uint32_t unit = 0; unit < 3; unit++)
			define_and_write(&actor, unit);
		write_state(&actor);
		actor_send_ready(&actor, -1);
		while (play()->state != JOB_FILLING)
			scene_wait(&scene);
		for (unsigned i = 0; i < events && play()->state == JOB_FILLING; i++)
			scene_wait(&scene);
		actor_die(&actor);
		scene_settle(&scene);
		scene_close(&scene);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_job_is_the_same_as_if_it_had_been_defined_first),
		cmocka_unit_test(ranks_define_at_different_paces),
		cmocka_unit_test(the_first_difference_of_ranks_is_told),
		cmocka_unit_test(ranks_have_to_agree_on_the_draft),
		cmocka_unit_test(a_rank_that_goes_lets_the_other_write),
		cmocka_unit_test(a_rank_that_comes_back_defines_and_writes_again),
		cmocka_unit_test(a_job_is_laid_out_when_all_is_in_the_draft),
		cmocka_unit_test(later_values_count),
		cmocka_unit_test(a_ready_that_gives_up_says_what_it_has_waited_for),
		cmocka_unit_test(values_without_nvme_are_charged),
		cmocka_unit_test(values_on_nvme_are_charged),
		cmocka_unit_test(a_job_that_has_become_too_large_is_told),
		cmocka_unit_test(a_plan_that_fails_takes_nothing_away),
		cmocka_unit_test(the_next_daemon_removes_drafts),
		cmocka_unit_test(what_a_disk_has_lost_is_told),
		cmocka_unit_test(a_write_that_fails_may_be_tried_again),
		cmocka_unit_test(a_job_may_go_while_it_is_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
