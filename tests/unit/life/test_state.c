/* The tables of a job's life and of its epochs, pair by pair. --picture FILE: fails where the file does not
 * have the tables between its marks; --picture: prints them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/life/own.h"
#include "daemon/life/state.h"
#include "tests/unit/daemon_support.h"

#define NOWHERE (-1)
#define EPOCH_STATES (EPOCH_OVER + 1)

static int next_life(int state, int event)
{
	enum job_state next;

	return life_next((enum job_state)state, (enum life_event)event, &next) ? (int)next : NOWHERE;
}

static int next_epoch(int state, int event)
{
	enum epoch_state next;

	return epoch_next((enum epoch_state)state, (enum epoch_event)event, &next) ? (int)next : NOWHERE;
}

static const char *life_state_at(int state)
{
	return life_state_name((enum job_state)state);
}

static const char *life_event_at(int event)
{
	return life_event_name((enum life_event)event);
}

static const char *epoch_state_at(int state)
{
	return epoch_state_name((enum epoch_state)state);
}

static const char *epoch_event_at(int event)
{
	return epoch_event_name((enum epoch_event)event);
}

static const struct machine {
	const char *name;
	int states, events;
	int (*next)(int state, int event);
	const char *(*state_name)(int state), *(*event_name)(int event);
} machines[] = {
	{ "A job", JOB_STATES, LIFE_EVENTS, next_life, life_state_at, life_event_at },
	{ "Its epochs", EPOCH_STATES, EPOCH_EVENTS, next_epoch, epoch_state_at, epoch_event_at },
};

/* ---- The picture ---- */

static void print_row(FILE *file, const struct machine *machine, int state)
{
	fprintf(file, "| `%s` |", machine->state_name(state));
	for (int next = 0; next < machine->states; next++) {
		const char *between = " ";

		for (int event = 0; event < machine->events; event++) {
			if (machine->next(state, event) != next || next == state)
				continue;
			fprintf(file, "%s%s", between, machine->event_name(event));
			between = ", ";
		}
		if (strcmp(between, " ") != 0)
			fprintf(file, " → `%s`;", machine->state_name(next));
	}
	fprintf(file, " |");
	const char *between = " ";

	for (int event = 0; event < machine->events; event++) {
		if (machine->next(state, event) != state)
			continue;
		fprintf(file, "%s%s", between, machine->event_name(event));
		between = ", ";
	}
	fprintf(file, " |\n");
}

static char *print_picture(void)
{
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	assert_non_null(file);
	for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
		fprintf(file,
			"%s| %s | what happens → what it becomes | what changes nothing |\n|---|---|---|\n",
			i > 0 ? "\n" : "", machines[i].name);
		for (int state = 0; state < machines[i].states; state++)
			print_row(file, &machines[i], state);
	}
	fclose(file);
	return text;
}

static int check_picture(const char *path)
{
	static char page[1 << 20];
	FILE *file = fopen(path, "r");
	char *picture = print_picture();
	size_t length = file ? fread(page, 1, sizeof(page) - 1, file) : 0;
	const char *begin, *end;
	bool is_same;

	page[length] = '\0';
	begin = strstr(page, "<!-- life: begin, by tests/unit/life/test_state.c -->\n");
	begin = begin ? strchr(begin, '\n') + 1 : NULL;
	end = begin ? strstr(begin, "<!-- life: end -->") : NULL;
	is_same = end && (size_t)(end - begin) == strlen(picture) &&
		  memcmp(begin, picture, strlen(picture)) == 0;
	if (!is_same)
		fprintf(stderr, "%s has other tables than test_state --picture prints\n", path);
	if (file)
		fclose(file);
	free(picture);
	return is_same ? 0 : 1;
}

/* ---- Pairs ---- */

static bool is_one_that_ends(int state)
{
	return state >= JOB_DROPPED;
}

static void from_each_state_that_is_not_an_end_a_job_may_break_be_dropped_or_closed(void **unused)
{
	for (int state = 0; state < JOB_DROPPED; state++) {
		bool may_break = state < JOB_BROKEN;

		assert_int_equal(next_life(state, LIFE_BREAK), may_break ? JOB_BROKEN : NOWHERE);
		assert_int_equal(next_life(state, LIFE_DROP), JOB_DROPPED);
		assert_int_equal(next_life(state, LIFE_CLOSE), JOB_CLOSED);
	}
}

/* Whatever was under way when it ended, or broke. */
static void nothing_brings_a_job_back_that_ends_or_is_broken(void **unused)
{
	for (int event = 0; event < LIFE_EVENTS; event++) {
		int next = next_life(JOB_BROKEN, event);

		assert_true(next == NOWHERE || next == JOB_BROKEN || is_one_that_ends(next));
		for (int state = JOB_DROPPED; state < JOB_STATES; state++) {
			next = next_life(state, event);
			assert_true(next == NOWHERE || is_one_that_ends(next));
		}
		next = next_life(JOB_DROPPED, event);
		assert_true(next == NOWHERE || next == JOB_DROPPED);
	}
}

static void what_comes_home_is_awaited_in_each_state_that_it_may_find(void **unused)
{
	static const int events[] = { LIFE_PLANNED, LIFE_UNPLANNED, LIFE_INITIALIZED };

	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		for (int state = 0; state < JOB_STATES; state++)
			if (is_one_that_ends(state) || state == JOB_BROKEN)
				assert_int_equal(next_life(state, events[i]), state);
	assert_int_equal(next_life(JOB_PLANNING, LIFE_PLANNED), JOB_FILLING);
	assert_int_equal(next_life(JOB_RETURNING, LIFE_PLANNED), JOB_TRAINED);
	assert_int_equal(next_life(JOB_PLANNING, LIFE_UNPLANNED), JOB_FORMING);
	assert_int_equal(next_life(JOB_RETURNING, LIFE_UNPLANNED), JOB_RELEASED);
}

/* Only what has been committed can come back. */
static void a_job_without_state_is_neither_replaced_nor_reopened(void **unused)
{
	for (int state = 0; state < JOB_TRAINED; state++) {
		assert_int_equal(next_life(state, LIFE_REPLACE), NOWHERE);
		assert_int_equal(next_life(state, LIFE_REOPEN), NOWHERE);
	}
	for (int state = JOB_TRAINED; state < JOB_DROPPED; state++) {
		assert_int_equal(next_life(state, LIFE_REPLACE), JOB_REPLACED);
		assert_int_equal(next_life(state, LIFE_REOPEN), JOB_REOPENING);
	}
	assert_int_equal(next_life(JOB_REPLACED, LIFE_SUPERSEDE), JOB_DROPPED);
	assert_int_equal(next_life(JOB_REPLACED, LIFE_REOPEN), JOB_REOPENING);
	assert_int_equal(next_life(JOB_DROPPED, LIFE_REOPEN), NOWHERE);
}

static void each_state_is_reached_from_the_first(void **unused)
{
	for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
		const struct machine *machine = &machines[i];
		unsigned reached = 1, before = 0;

		while (reached != before) {
			before = reached;
			for (int state = 0; state < machine->states; state++)
				for (int event = 0; reached & (1u << state) && event < machine->events;
				     event++)
					if (machine->next(state, event) != NOWHERE)
						reached |= 1u << machine->next(state, event);
		}
		assert_int_equal(reached, (1u << machine->states) - 1);
	}
}

/* Each pair that the tables do not have, of a job that is there. */
static void a_step_that_the_tables_do_not_have_changes_nothing_and_is_counted(void **unused)
{
	struct node *node = calloc(1, sizeof(*node));
	struct job *job = calloc(1, sizeof(*job));
	unsigned refused = 0;

	assert_true(node && job);
	job->node = node;
	assert_int_equal(node_life_new(node), 0);
	for (int state = 0; state < JOB_STATES; state++) {
		for (int event = 0; event < LIFE_EVENTS; event++) {
			if (next_life(state, event) != NOWHERE)
				continue;
			job->state = (enum job_state)state;
			life_step(job, (enum life_event)event);
			assert_int_equal(job->state, state);
			assert_int_equal(node->life->mistakes, ++refused);
		}
	}
	for (int state = 0; state < EPOCH_STATES; state++) {
		for (int event = 0; event < EPOCH_EVENTS; event++) {
			int next = next_epoch(state, event);

			job->epoch.state = (enum epoch_state)state;
			epoch_step(job, (enum epoch_event)event);
			assert_int_equal(job->epoch.state, next == NOWHERE ? state : next);
			refused += next == NOWHERE;
			assert_int_equal(node->life->mistakes, refused);
		}
	}
	assert_true(refused > 0);
	free(job);
	node_life_free(node);
	free(node);
}

int main(int count, char **arguments)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(from_each_state_that_is_not_an_end_a_job_may_break_be_dropped_or_closed),
		cmocka_unit_test(nothing_brings_a_job_back_that_ends_or_is_broken),
		cmocka_unit_test(what_comes_home_is_awaited_in_each_state_that_it_may_find),
		cmocka_unit_test(a_job_without_state_is_neither_replaced_nor_reopened),
		cmocka_unit_test(each_state_is_reached_from_the_first),
		cmocka_unit_test(a_step_that_the_tables_do_not_have_changes_nothing_and_is_counted),
	};

	if (count == 3 && strcmp(arguments[1], "--picture") == 0)
		return check_picture(arguments[2]);
	if (count == 2 && strcmp(arguments[1], "--picture") == 0)
		return fputs(print_picture(), stdout) < 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
