/* The tables of a job's life and of its epochs, pair by pair. With --picture it prints those of
 * docs/architecture.md. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/life/own.h"
#include "daemon/life/state.h"
#include "tests/unit/test.h"
#include "tests/unit/transitions.h"

static int next_life(int state, int event)
{
	return transition_after(&life_table, state, event);
}

static int next_epoch(int state, int event)
{
	return transition_after(&epoch_table, state, event);
}

/* ---- The picture ---- */

/* The events that lead there, if there are any. */
static bool print_events(const struct transition_table *table, int state, int next)
{
	const char *between = " ";

	for (int event = 0; event < (int)table->event_count; event++)
		if (transition_after(table, state, event) == next) {
			printf("%s%s", between, table->events[event]);
			between = ", ";
		}
	return between[0] == ',';
}

static void print_table(const char *name, const struct transition_table *table)
{
	printf("| %s | what happens → what it becomes | what changes nothing |\n|---|---|---|\n", name);
	for (int state = 0; state < (int)table->state_count; state++) {
		printf("| `%s` |", table->states[state]);
		for (int next = 0; next < (int)table->state_count; next++)
			if (next != state && print_events(table, state, next))
				printf(" → `%s`;", table->states[next]);
		printf(" |");
		print_events(table, state, state);
		printf(" |\n");
	}
}

static int print_picture(void)
{
	print_table("A job", &life_table);
	printf("\n");
	print_table("Its epochs", &epoch_table);
	return 0;
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

		assert_int_equal(next_life(state, LIFE_BREAK), may_break ? JOB_BROKEN : REFUSED);
		assert_int_equal(next_life(state, LIFE_DROP), JOB_DROPPED);
		assert_int_equal(next_life(state, LIFE_CLOSE), JOB_CLOSED);
	}
}

/* Whatever was under way when it ended, or broke. */
static void nothing_brings_a_job_back_that_ends_or_is_broken(void **unused)
{
	for (int event = 0; event < LIFE_EVENTS; event++) {
		int next = next_life(JOB_BROKEN, event);

		assert_true(next == REFUSED || next == JOB_BROKEN || is_one_that_ends(next));
		for (int state = JOB_DROPPED; state < JOB_STATES; state++) {
			next = next_life(state, event);
			assert_true(next == REFUSED || is_one_that_ends(next));
		}
		next = next_life(JOB_DROPPED, event);
		assert_true(next == REFUSED || next == JOB_DROPPED);
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
		assert_int_equal(next_life(state, LIFE_REPLACE), REFUSED);
		assert_int_equal(next_life(state, LIFE_REOPEN), REFUSED);
	}
	for (int state = JOB_TRAINED; state < JOB_DROPPED; state++) {
		assert_int_equal(next_life(state, LIFE_REPLACE), JOB_REPLACED);
		assert_int_equal(next_life(state, LIFE_REOPEN), JOB_REOPENING);
	}
	assert_int_equal(next_life(JOB_REPLACED, LIFE_SUPERSEDE), JOB_DROPPED);
	assert_int_equal(next_life(JOB_REPLACED, LIFE_REOPEN), JOB_REOPENING);
	assert_int_equal(next_life(JOB_DROPPED, LIFE_REOPEN), REFUSED);
}

static void each_state_is_reached_from_the_first(void **unused)
{
	assert_int_equal(transition_reach(&life_table, 1), (1u << life_table.state_count) - 1);
	assert_int_equal(transition_reach(&epoch_table, 1), (1u << epoch_table.state_count) - 1);
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
			if (next_life(state, event) != REFUSED)
				continue;
			job->state = (enum job_state)state;
			life_step(job, (enum life_event)event);
			assert_int_equal(job->state, state);
			assert_int_equal(node->life->mistakes, ++refused);
		}
	}
	for (int state = 0; state < (int)epoch_table.state_count; state++) {
		for (int event = 0; event < EPOCH_EVENTS; event++) {
			int next = next_epoch(state, event);

			job->epoch.state = (enum epoch_state)state;
			epoch_step(job, (enum epoch_event)event);
			assert_int_equal(job->epoch.state, next == REFUSED ? state : next);
			refused += next == REFUSED;
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

	if (count == 2 && strcmp(arguments[1], "--picture") == 0)
		return print_picture();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
