/* Trainers of a daemon that gets signals.
 *
 *   signals step    one rank; says "decided" while its step is being applied; the step must end well
 *   signals wait    interrupted once, says "waiting", waits for a rank that never comes; gets an error
 *   signals train   says "training" and goes on until tierd is gone */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "crash_support.h"

#define LARGE_UNITS 6
#define LARGE_ELEMENTS (UINT64_C(1) << 20)
#define GONE "tierd has ended the connection"

static struct tierd_job *join_large(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("signals", 0, 1);
	struct tierd_job *job;
	char name[16];

	OK(tierd_job_open(node, &options, &job));
	for (unsigned i = 0; i < LARGE_UNITS; i++) {
		snprintf(name, sizeof(name), "large%u", i);
		support_define(job, name, TIERD_FP32, LARGE_ELEMENTS, 1.0);
	}
	OK(tierd_job_ready(job, -1, NULL));
	return job;
}

static void say(const char *word)
{
	REQUIRE(write(STDOUT_FILENO, word, strlen(word)) == (ssize_t)strlen(word));
}

/* A unit that has the step's version proves that the step is decided; the others are still being updated. */
static void step(void)
{
	struct tierd_node *node = support_connect();
	struct tierd_job *job = join_large(node);
	struct tierd_rates rates = TIERD_RATES_INIT;
	struct tierd_step_result result;
	struct tierd_ticket *ticket;
	struct tierd_view view;

	rates.learning_rate = 0.1f;
	for (unsigned unit = 0; unit < LARGE_UNITS; unit++)
		OK(support_push(job, unit, LARGE_ELEMENTS, 1.0f));
	OK(tierd_step(job, &rates, &ticket));
	OK(tierd_gather(job, 0, &view));
	REQUIRE(view.version == 1);
	OK(tierd_release(job, 0));
	say("decided\n");
	OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
	OK(tierd_ticket_step_result(ticket, &result));
	REQUIRE(result.step == 1 && !result.is_skipped);
	tierd_ticket_free(ticket);

	/* It ends now. */
	int r;

	do
		r = tierd_step(job, &rates, NULL);
	while (r == 0);
	FAILS(r, -ECONNRESET, GONE);
	tierd_job_detach(job);
	tierd_disconnect(node);
}

/* The third answer is that somebody has interrupted the call. */
static bool is_third(void *count)
{
	return ++*(unsigned *)count == 3;
}

static void wait_for_nobody(void)
{
	struct tierd_connect_options with = TIERD_CONNECT_OPTIONS_INIT;
	struct tierd_job_options options = support_options("waiting", 0, 2);
	struct tierd_job *job, *other;
	struct tierd_node *node;
	unsigned asked = 0;

	with.is_interrupted = is_third;
	with.argument = &asked;
	OK(tierd_connect_with(&with, &node));
	job = support_join(node, &options, 1);
	FAILS(tierd_job_ready(job, -1, NULL), -ETIMEDOUT, "tierd goes on with it");
	REQUIRE(asked == 3);
	say("waiting\n");
	FAILS(tierd_job_ready(job, -1, NULL), -ECONNRESET, GONE);
	FAILS(tierd_job_ready(job, -1, NULL), -ECONNRESET, GONE);
	FAILS(tierd_job_open(node, &options, &other), -ECONNRESET, GONE);
	FAILS(tierd_job_close(job), -ECONNRESET, GONE);
	tierd_disconnect(node);
}

/* Mid-training: every call says so, and what is mapped stays readable. */
static void train_on(void)
{
	struct tierd_node *node = support_connect();
	struct tierd_job *job = join_large(node);
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_view held, view;
	float value;
	int r;

	OK(tierd_gather(job, 0, &held));
	OK(tierd_release(job, 0));
	OK(tierd_step(job, &rates, NULL));
	OK(tierd_gather(job, 1, &held));
	say("training\n");
	do
		r = tierd_tensor_read(job, 2, 0, "m", 0, 1, &value);
	while (r == 0);
	FAILS(r, -ECONNRESET, GONE);
	REQUIRE(((const float *)tierd_at(&held, 0))[0] == 1.0f);
	OK(tierd_release(job, 1));
	FAILS(tierd_gather(job, 0, &view), -ECONNRESET, GONE);
	FAILS(tierd_gradients(job, 0, &view), -ECONNRESET, GONE);
	FAILS(tierd_step(job, &rates, NULL), -ECONNRESET, GONE);
	FAILS(tierd_job_detach(job), -ECONNRESET, GONE);
	tierd_disconnect(node);
	/* Its sockets close one after the other. */
	do
		r = tierd_connect(NULL, &node);
	while (r == -ECONNRESET);
	FAILS(r, -ECONNREFUSED, "no tierd listens");
}

int main(int argc, char *argv[])
{
	REQUIRE(argc == 2);
	if (strcmp(argv[1], "step") == 0)
		step();
	else if (strcmp(argv[1], "wait") == 0)
		wait_for_nobody();
	else
		train_on();
	return 0;
}
