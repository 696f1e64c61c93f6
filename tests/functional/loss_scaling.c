/* The loss scale of a job: static, dynamic through overflows, after a rank is lost and when the job is opened
 * again. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crash_support.h"

#define ELEMENTS 1000

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

static struct tierd_step_result step(struct tierd_job *job, float gradient, float loss_scale)
{
	struct tierd_rates rates = TIERD_RATES_INIT;
	struct tierd_step_result result;
	struct tierd_ticket *ticket;

	rates.learning_rate = 0.125f;
	rates.loss_scale = loss_scale;
	OK(support_push(job, 0, ELEMENTS, gradient));
	OK(tierd_step(job, &rates, &ticket));
	OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
	OK(tierd_ticket_step_result(ticket, &result));
	tierd_ticket_free(ticket);
	return result;
}

static struct tierd_job *join_ready(struct tierd_node *node, const struct tierd_job_options *options,
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

static void a_static_scale_divides_the_gradients(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("static", 0, 1);
	struct tierd_step_result result;
	struct tierd_job *job;

	options.loss_scale = 8;
	job = join_ready(node, &options, 8);
	result = step(job, 8.0f, 0);
	REQUIRE(result.loss_scale == 8 && result.next_loss_scale == 8);
	REQUIRE(result.gradient_norm == sqrt(ELEMENTS));
	/* A step may say otherwise. */
	result = step(job, 8.0f, 2);
	REQUIRE(result.loss_scale == 2 && result.next_loss_scale == 8);
	REQUIRE(result.gradient_norm == 4 * sqrt(ELEMENTS));
	result = step(job, INFINITY, 0);
	REQUIRE(result.is_skipped && result.next_loss_scale == 8);
	OK(tierd_job_close(job));
}

static void a_dynamic_scale_follows_overflows(struct tierd_node *node)
{
	static const struct {
		float gradient, scale, next;
	} steps[] = {
		{ 64, 64, 64 },	       { 64, 64, 256 },	     { INFINITY, 256, 128 }, { 128, 128, 128 },
		{ NAN, 128, 64 },      { 64, 64, 64 },	     { 64, 64, 256 },	     { -INFINITY, 256, 128 },
		{ INFINITY, 128, 64 }, { INFINITY, 64, 32 }, { INFINITY, 32, 16 },   { INFINITY, 16, 16 },
	};
	struct tierd_job_options options = dynamic_options("dynamic");
	struct tierd_job *job = join_ready(node, &options, 64);
	struct tierd_job_state state;

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		struct tierd_step_result result = step(job, steps[i].gradient, 0);

		REQUIRE(result.step == i + 1);
		REQUIRE(result.is_skipped == !isfinite(steps[i].gradient));
		REQUIRE(result.loss_scale == steps[i].scale && result.next_loss_scale == steps[i].next);
		REQUIRE(result.is_skipped || result.gradient_norm == sqrt(ELEMENTS));
		OK(tierd_job_state(job, &state));
		REQUIRE(state.loss_scale == steps[i].next && state.step == i + 1);
	}
	OK(tierd_job_close(job));
}

/* The bias corrections of Adam count updates, not steps. */
static void a_skipped_step_leaves_no_trace(struct tierd_node *node)
{
	struct tierd_job_options options = dynamic_options("skipping"),
				 plain = support_options("plain", 0, 1);
	struct tierd_job *skipping, *straight;
	float values[2][ELEMENTS];

	skipping = join_ready(node, &options, 64);
	straight = join_ready(node, &plain, 1);
	step(skipping, INFINITY, 0);
	step(skipping, 32.0f, 0);
	step(skipping, NAN, 0);
	step(skipping, 16.0f, 0);
	step(straight, 1.0f, 0);
	step(straight, 1.0f, 0);
	OK(tierd_tensor_read(skipping, 0, 0, "master", 0, ELEMENTS, values[0]));
	OK(tierd_tensor_read(straight, 0, 0, "master", 0, ELEMENTS, values[1]));
	REQUIRE(memcmp(values[0], values[1], sizeof(values[0])) == 0);
	OK(tierd_tensor_read(skipping, 0, 0, "v", 0, ELEMENTS, values[0]));
	OK(tierd_tensor_read(straight, 0, 0, "v", 0, ELEMENTS, values[1]));
	REQUIRE(memcmp(values[0], values[1], sizeof(values[0])) == 0);
	OK(tierd_job_close(skipping));
	OK(tierd_job_close(straight));
}

static void a_step_closed_early_says_its_scale(struct tierd_node *node)
{
	struct tierd_job_options options = dynamic_options("early");
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_ticket *first, *second;
	struct tierd_step_result result;
	struct tierd_job *job, *other;

	options.world_size = 2;
	job = support_join(node, &options, 1);
	options.rank = 1;
	other = support_join(node, &options, 1);
	OK(tierd_job_ready_begin(job, -1, &first));
	OK(tierd_job_ready(other, -1, NULL));
	OK(tierd_ticket_wait(first, TIERD_DONE, -1));
	tierd_ticket_free(first);

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
		job = join_ready(node, &options, 64);
		step(job, 64, 0);
		step(job, INFINITY, 0);
		step(job, 32, 0);
		_exit(0); /* without a word */
	}
	REQUIRE(waitpid(pid, &status, 0) == pid && status == 0);
	job = join_ready(node, &options, 32);
	/* The step before counts towards the interval, too. */
	REQUIRE(step(job, 32, 0).next_loss_scale == 128);
	OK(tierd_job_close(job));
	job = join_ready(node, &options, 128);
	REQUIRE(step(job, INFINITY, 0).next_loss_scale == 64);
	OK(tierd_job_close(job));
}

int main(void)
{
	static void (*const tests[])(struct tierd_node * node) = {
		a_static_scale_divides_the_gradients, a_dynamic_scale_follows_overflows,
		a_skipped_step_leaves_no_trace,	      a_step_closed_early_says_its_scale,
		the_scale_stays_with_the_job,
	};
	struct tierd_node *node = support_connect();

	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tests[i](node);
	tierd_disconnect(node);
	return 0;
}
