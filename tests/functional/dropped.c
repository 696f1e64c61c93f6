/* Steps that their ranks drop: what was pushed before them counts for nothing, and all ranks say the same. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "crash_support.h"

#define ELEMENTS 1000
#define RANKS 2
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void open_ranks(struct tierd_node *node, struct tierd_job_options *options,
		       struct tierd_job *ret_jobs[RANKS])
{
	struct tierd_ticket *ready;

	options->world_size = RANKS;
	for (unsigned i = 0; i < RANKS; i++) {
		options->rank = i;
		ret_jobs[i] = support_join(node, options, 1);
	}
	OK(tierd_job_ready_begin(ret_jobs[0], -1, &ready));
	OK(tierd_job_ready(ret_jobs[1], -1, NULL));
	OK(tierd_ticket_wait(ready, TIERD_DONE, -1));
	tierd_ticket_free(ready);
}

static void close_ranks(struct tierd_job *jobs[RANKS])
{
	for (unsigned i = 0; i < RANKS; i++)
		OK(tierd_job_close(jobs[i]));
}

static void push(struct tierd_job *jobs[RANKS], float gradient)
{
	for (unsigned i = 0; i < RANKS; i++)
		OK(support_push(jobs[i], 0, ELEMENTS, gradient));
}

static struct tierd_step_result take(struct tierd_job *jobs[RANKS], const struct tierd_rates *rates)
{
	struct tierd_step_result result;
	struct tierd_ticket *first;

	OK(tierd_step(jobs[0], rates, &first));
	OK(tierd_step(jobs[1], rates, NULL));
	OK(tierd_ticket_wait(first, TIERD_DONE, -1));
	OK(tierd_ticket_step_result(first, &result));
	tierd_ticket_free(first);
	return result;
}

static struct tierd_step_result step(struct tierd_job *jobs[RANKS])
{
	struct tierd_rates rates = TIERD_RATES_INIT;

	rates.learning_rate = 0.125f;
	return take(jobs, &rates);
}

/* Nothing has to be given beside it. */
static void drop(struct tierd_job *jobs[RANKS], uint64_t number)
{
	struct tierd_rates rates = TIERD_RATES_INIT;
	struct tierd_step_result result;

	rates.drop = true;
	result = take(jobs, &rates);
	REQUIRE(result.is_skipped && result.step == number && result.gradient_norm == 0);
}

/* Nor is a pass of its own needed for what is not finite, or has been announced. */
static void train(struct tierd_job *jobs[RANKS], bool is_dropping)
{
	struct tierd_rates announced = TIERD_RATES_INIT;
	uint64_t number = 0;

	announced.learning_rate = 0.5f;
	for (unsigned i = 0; i < 3; i++) {
		if (is_dropping) {
			for (unsigned rank = 0; i == 0 && rank < RANKS; rank++)
				OK(tierd_step_begin(jobs[rank], &announced, 1));
			push(jobs, i == 2 ? NAN : 5.0f);
			drop(jobs, ++number);
			/* Nobody has pushed anything. */
			drop(jobs, ++number);
		}
		push(jobs, 1.0f + (float)i);
		struct tierd_step_result result = step(jobs);

		REQUIRE(!result.is_skipped && result.step == ++number);
		REQUIRE(result.gradient_norm == RANKS * (1.0 + i) * sqrt(ELEMENTS));
	}
}

static void what_is_dropped_leaves_no_trace(struct tierd_node *node)
{
	static const char *const states[] = { "parameter", "master", "m", "v" };
	float values[COUNT(states)][2][ELEMENTS];
	struct tierd_job *jobs[RANKS];

	for (unsigned stage = 0; stage < 4; stage++)
		for (unsigned is_dropping = 0; is_dropping < 2; is_dropping++) {
			struct tierd_job_options options =
				support_options(is_dropping ? "dropping" : "straight", 0, RANKS);

			options.stage = stage;
			options.strict = true;
			options.nonfinite = TIERD_NONFINITE_REPORT;
			options.mode = TIERD_REPLACE;
			open_ranks(node, &options, jobs);
			train(jobs, is_dropping);
			for (size_t i = 0; i < COUNT(states); i++)
				OK(tierd_tensor_read(jobs[1], 0, 0, states[i], 0, ELEMENTS,
						     values[i][is_dropping]));
			close_ranks(jobs);
			for (size_t i = 0; is_dropping && i < COUNT(states); i++)
				REQUIRE(memcmp(values[i][0], values[i][1], sizeof(values[i][0])) == 0);
		}
}

static void the_loss_scale_stays(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("scale", 0, RANKS);
	struct tierd_rates rates = TIERD_RATES_INIT;
	struct tierd_ticket *tickets[RANKS][2];
	struct tierd_step_result result;
	struct tierd_job *jobs[RANKS];

	options.loss_scale = 64;
	options.loss_scale_interval = 2;
	open_ranks(node, &options, jobs);
	push(jobs, 64);
	REQUIRE(step(jobs).next_loss_scale == 64);
	/* The second is closed before the scale is known. */
	rates.drop = true;
	for (unsigned i = 0; i < RANKS; i++) {
		OK(support_push(jobs[i], 0, ELEMENTS, INFINITY));
		OK(tierd_step(jobs[i], &rates, &tickets[i][0]));
		OK(tierd_step(jobs[i], &rates, &tickets[i][1]));
	}
	for (unsigned i = 0; i < RANKS; i++)
		for (unsigned k = 0; k < 2; k++) {
			OK(tierd_ticket_wait(tickets[i][k], TIERD_DONE, -1));
			OK(tierd_ticket_step_result(tickets[i][k], &result));
			REQUIRE(result.is_skipped && result.next_loss_scale == 64);
			tierd_ticket_free(tickets[i][k]);
		}
	push(jobs, 64);
	REQUIRE(step(jobs).next_loss_scale == 128);
	close_ranks(jobs);
}

static void a_rank_that_updates_its_shard_has_nothing_to_finish(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("none", 0, RANKS);
	struct tierd_job *jobs[RANKS];

	options.optimizer = TIERD_NONE;
	open_ranks(node, &options, jobs);
	for (uint64_t number = 1; number < 4; number++) {
		struct tierd_rates rates = TIERD_RATES_INIT;
		struct tierd_ticket *tickets[RANKS];

		rates.drop = true;
		push(jobs, 1.0f);
		for (unsigned i = 0; i < RANKS; i++)
			OK(tierd_step(jobs[i], &rates, &tickets[i]));
		for (unsigned i = 0; i < RANKS; i++) {
			struct tierd_step_result result;

			OK(tierd_ticket_wait(tickets[i], TIERD_DONE, -1));
			OK(tierd_ticket_step_result(tickets[i], &result));
			REQUIRE(result.is_skipped && result.step == number);
			tierd_ticket_free(tickets[i]);
		}
	}
	close_ranks(jobs);
}

static void all_ranks_drop_or_none(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("alike", 0, RANKS);
	struct tierd_rates plain = TIERD_RATES_INIT, dropping = TIERD_RATES_INIT;
	struct tierd_ticket *ticket;
	struct tierd_job *jobs[RANKS];

	plain.learning_rate = 0.125f;
	dropping.drop = true;
	open_ranks(node, &options, jobs);
	push(jobs, 1.0f);
	OK(tierd_step(jobs[0], &plain, &ticket));
	FAILS(tierd_step(jobs[1], &dropping, NULL), -EINVAL,
	      "drop is 1 here, 0 at the ranks that have closed this step");
	OK(tierd_step(jobs[1], &plain, NULL));
	OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
	tierd_ticket_free(ticket);
	close_ranks(jobs);
}

int main(void)
{
	static void (*const tests[])(struct tierd_node * node) = {
		what_is_dropped_leaves_no_trace,
		the_loss_scale_stays,
		a_rank_that_updates_its_shard_has_nothing_to_finish,
		all_ranks_drop_or_none,
	};
	struct tierd_node *node = support_connect();

	for (size_t i = 0; i < COUNT(tests); i++)
		tests[i](node);
	tierd_disconnect(node);
	return 0;
}
