/* What happens to a job is told once: with job, user, unit, tier, cause, and what follows from it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "daemon/model/job.h"
#include "daemon/resources/resources.h"
#include "daemon/telemetry/log_limit.h"
#include "daemon/telemetry/telemetry.h"
#include "tests/unit/scene_test.h"

#define MAX_LINES 64

static struct actor actor, other;

static struct {
	unsigned count;
	struct line {
		enum log_level level;
		char text[1536], job[64], unit[64], tier[16], device[256], id[40];
		uid_t user;
		uint64_t step;
	} lines[MAX_LINES];
} heard;

static void keep(char *place, size_t size, const char *text)
{
	snprintf(place, size, "%s", text ? text : "");
}

static bool take(enum log_level level, const char *text, const struct log_fields *fields)
{
	struct line *line = &heard.lines[heard.count++ % MAX_LINES];

	line->level = level;
	keep(line->text, sizeof(line->text), text);
	keep(line->job, sizeof(line->job), fields->job);
	keep(line->unit, sizeof(line->unit), fields->unit);
	keep(line->tier, sizeof(line->tier), fields->tier);
	keep(line->device, sizeof(line->device), fields->device);
	keep(line->id, sizeof(line->id), fields->id);
	line->user = fields->user ? *fields->user : (uid_t)-1;
	line->step = fields->step ? *fields->step : 0;
	return true;
}

/* The only line with this text. */
static const struct line *find_line(const char *text)
{
	const struct line *found = NULL;

	for (unsigned i = 0; i < heard.count && i < MAX_LINES; i++) {
		if (!strstr(heard.lines[i].text, text))
			continue;
		assert_null(found);
		found = &heard.lines[i];
	}
	assert_non_null(found);
	return found;
}

static void open_rank(struct actor *rank, uint32_t number, uint32_t world_size)
{
	assert_int_equal(
		actor_join(&scene, rank,
			   &(struct actor_job){ .stage = 3,
						.rank = number,
						.world_size = world_size,
						.host_budget = world_size == 1 ? PLAY_HOST_BUDGET : 0 }),
		0);
	assert_int_equal(actor_define_units(rank, PLAY_UNITS, PLAY_ELEMENTS), 0);
}

static void a_lost_rank_is_one_line_with_what_follows(void **state)
{
	open_rank(&actor, 0, 2);
	open_rank(&other, 1, 2);
	actor_ready_both(&other, &actor);
	heard.count = 0;
	actor_die(&other);
	assert_int_equal(heard.count, 1);
	assert_non_null(strstr(heard.lines[0].text, "rank 1 (pid "));
	assert_non_null(strstr(heard.lines[0].text, "is lost: its process died"));
	assert_non_null(strstr(heard.lines[0].text, "have to call tierd_job_ready again"));
	assert_string_equal(heard.lines[0].job, "play");
	assert_int_equal(heard.lines[0].user, geteuid());
	assert_int_equal(strlen(heard.lines[0].id), 32);
}

static void a_read_that_fails_names_unit_tier_and_device(void **state)
{
	const struct line *line;
	uint32_t unit = 0;

	scene_close(&scene);
	assert_int_equal(
		scene_open(&(struct scene_options){ .fault = "complete:read:1:EIO:lasting" }, &scene), 0);
	open_rank(&actor, 0, 1);
	assert_int_equal(actor_ready(&actor), 0);
	while (actor_gather(&actor, unit, 0, NULL) == 0)
		actor_release(&actor, unit++);
	line = find_line("cannot be read from");
	assert_int_equal(line->level, LOG_LEVEL_ERROR);
	assert_string_equal(line->job, "play");
	assert_int_equal(line->user, geteuid());
	assert_int_equal(line->unit[0], 'u');
	assert_string_equal(line->tier, "nvme");
	assert_non_null(strstr(line->device, scene.folder));
	assert_non_null(strstr(line->text, "Input/output error"));
	assert_non_null(strstr(line->text, "the next gather tries again"));
}

static void a_broken_job_is_an_error_with_the_remedy(void **state)
{
	const struct line *line;

	scene_close(&scene);
	assert_int_equal(
		scene_open(&(struct scene_options){ .fault = "complete:write:40:EIO:lasting" }, &scene), 0);
	open_rank(&actor, 0, 1);
	if (actor_ready(&actor) == 0)
		for (uint32_t unit = 0; unit < PLAY_UNITS; unit++)
			assert_int_equal(actor_await(&actor, actor_send_push(&actor, unit, 0), 0)->status, 0);
	actor_await(&actor, actor_send_step(&actor, 0.1f), 0);
	line = find_line("is broken at step 0");
	assert_int_equal(line->level, LOG_LEVEL_ERROR);
	assert_string_equal(line->tier, "nvme");
	assert_int_equal(line->unit[0], 'u');
	assert_int_equal(strlen(line->id), 32);
	assert_non_null(strstr(line->text, "opened with replace, or dropped"));
}

static void what_is_refused_is_told_to_the_log_too(void **state)
{
	const struct actor_tensor tensor = { "w", FORMAT_BF16, INITIALIZE_ONES, 64 * PLAY_ELEMENTS, false };
	const struct line *line;

	assert_int_equal(
		actor_join(&scene, &actor, &(struct actor_job){ .stage = 3, .host_budget = 16 * MIB }), 0);
	assert_int_equal(actor_define(&actor, "large", &tensor, 1), 0);
	assert_true(actor_ready(&actor) < 0);
	assert_true(actor_ready(&actor) < 0);
	line = find_line("cannot be prepared");
	assert_int_equal(line->level, LOG_LEVEL_INFO);
	assert_non_null(strstr(line->text, "host_budget"));
	assert_string_equal(line->job, "play");
}

/* Its name has not been looked at then: it does not get into a field, whatever its length. */
static void a_unit_without_memory_for_it_is_told_in_one_line(void **state)
{
	static char name[100000];
	const struct actor_tensor tensor = { "w", FORMAT_BF16, INITIALIZE_ONES, 256, false };
	const struct line *line;
	uint64_t budget = scene.node->settings.host_budget;

	memset(name, '\n', sizeof(name) - 1);
	assert_int_equal(actor_join(&scene, &actor, &(struct actor_job){ .stage = 3 }), 0);
	scene.node->settings.host_budget = budget_host_used(scene.node);
	assert_int_equal(actor_define(&actor, name, &tensor, 1), -ENOMEM);
	scene.node->settings.host_budget = budget;
	line = find_line("unit ");
	assert_null(strchr(line->text, '\n'));
	assert_string_equal(line->unit, "");
	assert_non_null(strstr(line->text, "what tierd has left"));
}

static void tell(uid_t user, enum event_kind kind, unsigned count)
{
	struct job job = { .name = "flood", .uid = user, .node = scene.node };

	for (unsigned i = 0; i < count; i++)
		events_of_job(&job, kind, NULL, "again");
}

static void what_one_user_causes_keeps_nobody_else_out_of_the_log(void **state)
{
	tell(2001, EVENT_EVICTED, 500);
	assert_int_equal(heard.count, LOG_LIMIT_LINES + 1);
	/* Other users, whatever their numbers are, and what is worse. */
	tell(2002, EVENT_EVICTED, 1);
	tell(2001 + 16, EVENT_EVICTED, 1);
	tell(2001, EVENT_BROKEN, 1);
	assert_int_equal(heard.count, LOG_LIMIT_LINES + 4);
}

static int setup(void **state)
{
	int r = scene_setup(state);

	memset(&heard, 0, sizeof(heard));
	log_open(LOG_LEVEL_INFO);
	log_divert(take);
	return r;
}

static int teardown(void **state)
{
	log_divert(NULL);
	return scene_teardown(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_lost_rank_is_one_line_with_what_follows),
		TEST(a_read_that_fails_names_unit_tier_and_device),
		TEST(a_broken_job_is_an_error_with_the_remedy),
		TEST(what_is_refused_is_told_to_the_log_too),
		TEST(a_unit_without_memory_for_it_is_told_in_one_line),
		TEST(what_one_user_causes_keeps_nobody_else_out_of_the_log),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
