/* Trainers whose calls meet a daemon that ends, each another one: whatever was asked for is done by the next
 * daemon, or is said to be lost, and then the step is taken again, to the same bits.
 *
 *   late PID   ends that daemon (SIGTERM), and waits for the next one */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "long_step.h"

#define ELEMENTS 1000
#define UNITS 2

struct rank {
	const struct late *late;
	struct tierd_node *node;
	struct tierd_job *job;
	struct tierd_ticket *ticket;
	pthread_t thread;
};

static const struct tierd_rates rates = { sizeof(struct tierd_rates), 0.1f, 1.0f, 1.0f, 0, NULL, 0.0f };
static pthread_barrier_t is_stopping;

/* ---- What they do before ---- */

static void push_all(struct rank *rank)
{
	for (uint32_t unit = 0; unit < UNITS; unit++)
		OK(support_push(rank->job, unit, ELEMENTS, 0.25f * (float)(unit + 1)));
}

static void take_step(struct rank *rank)
{
	push_all(rank);
	OK(tierd_step(rank->job, &rates, NULL));
}

static void be_ready(struct rank *rank)
{
	OK(tierd_job_ready(rank->job, -1, NULL));
}

static void be_at_step(struct rank *rank)
{
	be_ready(rank);
	take_step(rank);
}

static void hold_gradients(struct rank *rank)
{
	struct tierd_view view;

	be_at_step(rank);
	OK(tierd_gradients(rank->job, 0, &view));
}

static void push_one(struct rank *rank)
{
	be_at_step(rank);
	OK(support_push(rank->job, 0, ELEMENTS, 0.25f));
}

static void announce(struct rank *rank)
{
	be_at_step(rank);
	OK(tierd_step_begin(rank->job, &rates, 1));
	push_all(rank);
}

static void reduce(struct rank *rank)
{
	be_ready(rank);
	OK(support_push(rank->job, 0, ELEMENTS, 0.25f));
	OK(tierd_step(rank->job, &rates, &rank->ticket));
	OK(tierd_ticket_wait(rank->ticket, TIERD_REDUCED, -1));
}

/* ---- What they call ---- */

static int phase(struct rank *rank)
{
	return tierd_phase(rank->job, "eval");
}

static int prefetch(struct rank *rank)
{
	return tierd_prefetch(rank->job, (const uint32_t[]){ 0, 1 }, 2);
}

static int statistics(struct rank *rank)
{
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;

	return tierd_statistics(rank->job, &statistics);
}

static int read_tensor(struct rank *rank)
{
	float value;

	return tierd_tensor_read(rank->job, 1, 0, "m", 0, 1, &value);
}

static int get_blob(struct rank *rank)
{
	size_t size;

	return tierd_blob_get(rank->job, "key", NULL, 0, &size, 0);
}

static int set_blob(struct rank *rank)
{
	return tierd_blob_set(rank->job, "key", "value", 5, 0);
}

static int snapshot(struct rank *rank)
{
	return tierd_snapshot(rank->job, "late");
}

static int define(struct rank *rank)
{
	support_define(rank->job, "more", TIERD_FP32, ELEMENTS, 1.0);
	return 0;
}

static int ready(struct rank *rank)
{
	return tierd_job_ready(rank->job, -1, NULL);
}

static int open_another(struct rank *rank)
{
	struct tierd_job_options options = support_options("another", 0, 1);

	return tierd_job_close(support_join(rank->node, &options, UNITS));
}

static int begin_step(struct rank *rank)
{
	return tierd_step_begin(rank->job, &rates, 1);
}

static int push(struct rank *rank)
{
	struct tierd_ticket *ticket;
	int r = tierd_push_begin(rank->job, 0, &ticket);

	if (r < 0)
		return r;
	r = tierd_ticket_wait(ticket, TIERD_DONE, -1);
	tierd_ticket_free(ticket);
	return r;
}

static int step(struct rank *rank)
{
	return tierd_step(rank->job, &rates, NULL);
}

/* As trainers do that look at the ticket when the next step is computed. */
static int step_and_go_on(struct rank *rank)
{
	int r = tierd_step(rank->job, &rates, &rank->ticket);

	if (r == 0)
		r = tierd_step_begin(rank->job, &rates, 1);
	for (uint32_t unit = 0; unit < UNITS && r == 0; unit++)
		r = support_push(rank->job, unit, ELEMENTS, 77.0f);
	return r < 0 ? r : tierd_ticket_wait(rank->ticket, TIERD_DONE, -1);
}

static int finish(struct rank *rank)
{
	return tierd_step_finish(rank->job);
}

static int close_job(struct rank *rank)
{
	int r = tierd_job_close(rank->job);

	rank->job = NULL;
	return r;
}

/* ---- */

static const struct late {
	const char *name;
	void (*prepare)(struct rank *rank); /* NULL: it has opened the job */
	int (*call)(struct rank *rank);
	int expected;
} lates[] = {
	{ "phase", be_at_step, phase, 0 },
	{ "prefetch", be_at_step, prefetch, 0 },
	{ "statistics", be_at_step, statistics, 0 },
	{ "get-blob", be_at_step, get_blob, -ENOENT },
	{ "snapshot", be_at_step, snapshot, 0 },
	{ "define", NULL, define, 0 },
	{ "ready", NULL, ready, 0 },
	{ "open", be_at_step, open_another, 0 },
	{ "close", be_at_step, close_job, 0 },
	/* It does not wait for ranks, which may have finished. */
	{ "read-tensor", be_at_step, read_tensor, -ESTALE },
	{ "set-blob", be_at_step, set_blob, -ESTALE },
	{ "begin-step", be_at_step, begin_step, -ESTALE },
	{ "push", hold_gradients, push, -ESTALE },
	{ "step", push_one, step, -ESTALE },
	{ "go-on", announce, step_and_go_on, -ESTALE },
	{ "finish", reduce, finish, -ESTALE },
};

#define LATES (sizeof(lates) / sizeof(lates[0]))

static void join(struct rank *rank, const char *name)
{
	struct tierd_job_options options = support_options(name, 0, 1);
	struct tierd_connect_options connect = TIERD_CONNECT_OPTIONS_INIT;

	connect.reconnect_ms = PATIENCE_MS;
	options.snapshots = rank->late && rank->late->call == snapshot;
	options.blob_bytes = 4096;
	options.pushed_once = true;
	options.seed = 5;
	if (rank->late && rank->late->prepare == reduce)
		options.optimizer = TIERD_NONE;
	OK(tierd_connect_with(&connect, &rank->node));
	OK(tierd_set_timeout(rank->node, PATIENCE_MS));
	rank->job = support_join(rank->node, &options, UNITS);
}

static void leave(struct rank *rank)
{
	tierd_ticket_free(rank->ticket);
	if (rank->job)
		OK(tierd_job_close(rank->job));
	tierd_disconnect(rank->node);
}

static void read_all(struct rank *rank, float values[UNITS][ELEMENTS])
{
	for (uint32_t unit = 0; unit < UNITS; unit++)
		OK(tierd_tensor_read(rank->job, unit, 0, "parameter", 0, ELEMENTS, values[unit]));
}

/* Nothing of what was lost is left. */
static void expect_bits(struct rank *rank)
{
	struct rank calm = { .node = NULL };
	float values[UNITS][ELEMENTS], expected[UNITS][ELEMENTS];
	char name[32];

	snprintf(name, sizeof(name), "calm-%s", rank->late->name);
	join(&calm, name);
	be_at_step(&calm);
	take_step(&calm);
	read_all(&calm, expected);
	leave(&calm);
	take_step(rank);
	read_all(rank, values);
	REQUIRE(memcmp(values, expected, sizeof(values)) == 0);
}

static void *be_late(void *argument)
{
	struct rank *rank = argument;
	const struct late *late = rank->late;
	struct tierd_job_state state;
	int r;

	join(rank, late->name);
	if (late->prepare)
		late->prepare(rank);
	pthread_barrier_wait(&is_stopping);
	pthread_barrier_wait(&is_stopping);
	r = late->call(rank);
	support_expect(__FILE__, __LINE__, late->name, r, late->expected, NULL);
	if (r == -ESTALE) {
		rank->ticket = tierd_ticket_free(rank->ticket);
		OK(tierd_job_ready(rank->job, -1, &state));
		REQUIRE(state.step == (late->prepare == reduce ? 0 : 1));
	}
	if (rank->job && late->prepare && late->prepare != reduce)
		expect_bits(rank);
	leave(rank);
	return NULL;
}

int main(int argc, char *argv[])
{
	static struct rank ranks[LATES];
	struct long_step step;

	REQUIRE(argc == 2);
	pthread_barrier_init(&is_stopping, NULL, LATES + 1);
	for (size_t i = 0; i < LATES; i++) {
		ranks[i].late = &lates[i];
		REQUIRE(pthread_create(&ranks[i].thread, NULL, be_late, &ranks[i]) == 0);
	}
	pthread_barrier_wait(&is_stopping);
	/* tierd ends when this is over, a second later: it is not let go. */
	long_step_join(&step, "long");
	long_step_begin(&step);
	REQUIRE(kill((pid_t)atoi(argv[1]), SIGTERM) == 0);
	support_await_stopping();
	pthread_barrier_wait(&is_stopping);
	for (size_t i = 0; i < LATES; i++)
		pthread_join(ranks[i].thread, NULL);
	for (unsigned rank = 0; rank < LONG_RANKS; rank++) {
		tierd_ticket_free(step.tickets[rank]);
		tierd_job_detach(step.jobs[rank]);
		tierd_disconnect(step.nodes[rank]);
	}
	return 0;
}
