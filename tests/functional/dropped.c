/* Steps that their ranks drop: what was pushed before them counts for nothing, and all ranks say the same.
 * And the loss scale of a job, of a step that is closed early and when a rank is lost; how it moves is shown
 * by the matrix. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crash_support.h"

#define ELEMENTS 1000
#define RANKS 2
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void open_ranks(struct tierd_node *node, struct tierd_job_options *options,
		       struct tierd_job *ret_jobs[RANKS])
{
	options->world_size = RANKS;
	for (options->rank = 0; options->rank < RANKS; options->rank++)
		ret_jobs[options->rank] = support_join(node, options, 1);
	support_ready(ret_jobs, RANKS, 0, NULL);
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

static struct tierd_step_result step(struct tierd_job *jobs[RANKS])
{
	struct tierd_rates rates = support_rates(0.125f);

	return support_step(jobs, RANKS, &rates, TIERD_DONE);
}

/* Nothing has to be given beside it. */
static void drop(struct tierd_job *jobs[RANKS], uint64_t number)
{
	struct tierd_rates rates = TIERD_RATES_INIT;
	struct tierd_step_result result;

	rates.drop = true;
	result = support_step(jobs, RANKS, &rates, TIERD_DONE);
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
		push(jobs, 1.0f);
		drop(jobs, number);
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

/* ---- The loss scale ---- */

static struct tierd_job_options dynamic_options(const char *name)
{
	struct tierd_job_options options = support_options(name, 0, 1);

	options.loss_scale = 64;
	options.loss_scale_interval = 2;
	options.loss_scale_growth = 4;
	options.loss_scale_backoff = 0.5f;
	options.loss_scale_minimum = 16;
	return options;
}

static struct tierd_step_result step_alone(struct tierd_job *job, float gradient, float loss_scale)
{
	struct tierd_rates rates = support_rates(0.125f);
	struct tierd_step_result result;

	rates.loss_scale = loss_scale;
	OK(support_push(job, 0, ELEMENTS, gradient));
	result = support_step(&job, 1, &rates, TIERD_DONE);
	return result;
}

static struct tierd_job *join_at(struct tierd_node *node, const struct tierd_job_options *options,
				 float loss_scale)
{
	struct tierd_job *job = support_join(node, options, 1);
	struct tierd_job_state state;

	OK(tierd_job_state(job, &state));
	REQUIRE(state.loss_scale == loss_scale);
	OK(tierd_job_ready(job, -1, &state));
	REQUIRE(state.loss_scale == loss_scale);
	return job;
}

static void a_step_closed_early_says_its_scale(struct tierd_node *node)
{
	struct tierd_job_options options = dynamic_options("early");
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_ticket *first, *second;
	struct tierd_step_result result;
	struct tierd_job *jobs[RANKS], *job, *other;

	open_ranks(node, &options, jobs);
	job = jobs[0];
	other = jobs[1];
	OK(support_push(job, 0, ELEMENTS, INFINITY));
	OK(tierd_step(job, &rates, &first));
	OK(tierd_step(job, &rates, &second));
	FAILS(tierd_ticket_wait(second, TIERD_DONE, -1), -EINVAL,
	      "not known before the last step is decided");
	tierd_ticket_free(second);
	rates.loss_scale = 64;
	OK(tierd_step(job, &rates, &second));
	OK(tierd_step(other, &rates, NULL));
	OK(tierd_ticket_wait(first, TIERD_DONE, -1));
	OK(tierd_ticket_step_result(first, &result));
	REQUIRE(result.is_skipped && result.loss_scale == 64 && result.next_loss_scale == 32);
	/* It is divided by what its gradients were multiplied with, whatever the scale has become. */
	OK(support_push(other, 0, ELEMENTS, 64.0f));
	OK(tierd_step(other, &rates, NULL));
	OK(tierd_ticket_wait(second, TIERD_DONE, -1));
	OK(tierd_ticket_step_result(second, &result));
	REQUIRE(!result.is_skipped && result.loss_scale == 64 && result.next_loss_scale == 32);
	REQUIRE(result.gradient_norm == sqrt(ELEMENTS));
	tierd_ticket_free(first);
	tierd_ticket_free(second);
	OK(tierd_job_close(job));
	OK(tierd_job_close(other));
}

/* A rank that is killed has nothing to hand on: the daemon has it. */
static void the_scale_stays_with_the_job(struct tierd_node *node)
{
	struct tierd_job_options options = dynamic_options("scaled");
	struct tierd_job *job;
	int status;
	pid_t pid;

	options.optimizer = TIERD_SGD;
	pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0) {
		node = support_connect();
		job = join_at(node, &options, 64);
		step_alone(job, 64, 0);
		step_alone(job, INFINITY, 0);
		step_alone(job, 32, 0);
		_exit(0); /* without a word */
	}
	REQUIRE(waitpid(pid, &status, 0) == pid && status == 0);
	job = join_at(node, &options, 32);
	/* The step before counts towards the interval, too. */
	REQUIRE(step_alone(job, 32, 0).next_loss_scale == 128);
	OK(tierd_job_close(job));
	job = join_at(node, &options, 128);
	REQUIRE(step_alone(job, INFINITY, 0).next_loss_scale == 64);
	OK(tierd_job_close(job));
}

int main(void)
{
	static void (*const tests[])(struct tierd_node * node) = {
		what_is_dropped_leaves_no_trace,
		the_loss_scale_stays,
		a_rank_that_updates_its_shard_has_nothing_to_finish,
		all_ranks_drop_or_none,
		a_step_closed_early_says_its_scale,
		the_scale_stays_with_the_job,
	};
	struct tierd_node *node = support_connect();

	for (size_t i = 0; i < COUNT(tests); i++)
		tests[i](node);
	tierd_disconnect(node);
	return 0;
}
