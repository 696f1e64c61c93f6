/* Trainers of a daemon that they themselves send signals, at chosen moments; ending.sh looks at what it
 * leaves.
 *
 *   ending decided|twice PID [FIRST SECOND]    signals: TERM or INT
 *
 * It exits with 75 if the daemon was done with a step sooner than the scene. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "long_step.h"

#define MISSED 75
#define GONE "tierd has ended the connection"

static const struct tierd_rates rates = { sizeof(struct tierd_rates), 0.1f, 1.0f, 1.0f, 0, NULL, 0.0f };
static pid_t daemon_pid;
static int first_signal = SIGTERM, second_signal = SIGTERM;

static void send_signal(int number)
{
	REQUIRE(kill(daemon_pid, number) == 0);
}

/* What fails because tierd ends says so, to all ranks alike. */
static void require_ended(int r)
{
	FAILS(r, -ECONNRESET, GONE);
}

static void require_ticket_ended(struct tierd_ticket *ticket)
{
	require_ended(tierd_ticket_wait(ticket, TIERD_DONE, -1));
	tierd_ticket_free(ticket);
}

/* Nothing hangs and nothing succeeds any more. */
static void require_gone(struct tierd_node *node, struct tierd_job *job)
{
	struct tierd_job_options options = support_options("other", 0, 1);
	struct tierd_job *other;
	struct tierd_view view;

	FAILS(tierd_job_open(node, &options, &other), -ECONNRESET, GONE);
	FAILS(tierd_gather(job, 1, &view), -ECONNRESET, GONE);
	FAILS(tierd_gradients(job, 1, &view), -ECONNRESET, GONE);
	FAILS(tierd_job_ready(job, -1, NULL), -ECONNRESET, GONE);
	FAILS(tierd_job_close(job), -ECONNRESET, GONE);
	tierd_disconnect(node);
}

/* ---- Decided steps ---- */

/* Holds a lease, and moves as much as it can, until it cannot. */
struct clinger {
	struct tierd_node *node;
	struct tierd_job *job;
	struct tierd_view leased;
	pthread_t reading;
};

static void *read_on(void *argument)
{
	struct tierd_reader_options options = TIERD_READER_OPTIONS_INIT;
	struct tierd_node *node = support_connect();
	float *values = malloc(LONG_ELEMENTS * sizeof(*values));
	struct tierd_reader *reader;
	int r = 0;

	REQUIRE(values);
	options.name = argument;
	OK(tierd_reader_open(node, &options, &reader));
	while (r == 0)
		r = tierd_reader_read(reader, 0, 0, "v", 0, LONG_ELEMENTS, values);
	require_ended(r);
	FAILS(tierd_reader_close(reader), -ECONNRESET, GONE);
	tierd_disconnect(node);
	free(values);
	return NULL;
}

static void cling(struct clinger *clinger)
{
	static char name[] = "clinger";
	struct tierd_job_options options = support_options(name, 0, 1);

	options.parameter_placement = options.optimizer_placement = TIERD_PLACE_NVME;
	clinger->node = support_connect();
	OK(tierd_job_open(clinger->node, &options, &clinger->job));
	support_define(clinger->job, "long", TIERD_FP32, LONG_ELEMENTS, 1.0);
	support_define(clinger->job, "other", TIERD_FP32, LONG_ELEMENTS, 1.0);
	OK(tierd_job_ready(clinger->job, -1, NULL));
	OK(tierd_gather(clinger->job, 0, &clinger->leased));
	REQUIRE(pthread_create(&clinger->reading, NULL, read_on, name) == 0);
}

/* What it holds stays as it is. */
static void require_clinger_ended(struct clinger *clinger)
{
	struct tierd_view view;
	const float *values = tierd_at(&clinger->leased, 0);

	REQUIRE(pthread_join(clinger->reading, NULL) == 0);
	FAILS(tierd_phase(clinger->job, "eval"), -ECONNRESET, GONE);
	FAILS(tierd_gather(clinger->job, 1, &view), -ECONNRESET, GONE);
	for (uint64_t i = 0; i < LONG_ELEMENTS; i++)
		REQUIRE(values[i] == 1.0f);
	OK(tierd_release(clinger->job, 0));
	FAILS(tierd_job_close(clinger->job), -ECONNRESET, GONE);
	tierd_disconnect(clinger->node);
}

struct bystander {
	struct tierd_node *node;
	struct tierd_job *job, *forming;
	struct tierd_ticket *waiting, *late[3];
	struct clinger clinger;
};

/* A job that could take a step, one that waits for its second rank, and one that holds what it has. */
static void stand_by(struct bystander *bystander)
{
	struct tierd_job_options options = support_options("bystander", 0, 1);
	struct tierd_job_options forming = support_options("forming", 0, 2);

	cling(&bystander->clinger);
	bystander->node = support_connect();
	bystander->job = support_begin(bystander->node, &options, 2);
	bystander->forming = support_join(bystander->node, &forming, 2);
	OK(tierd_job_ready_begin(bystander->forming, -1, &bystander->waiting));
}

static void require_waiting(struct tierd_ticket *ticket)
{
	int r = tierd_ticket_wait(ticket, TIERD_DONE, 0);

	if (r == -ECONNRESET)
		exit(MISSED);
	FAILS(r, -ETIMEDOUT, "");
}

/* Comes back when the signal has come, while the decided step is still being applied: what needs the daemon
 * finds no answer. */
static void require_stopping(struct bystander *bystander)
{
	struct tierd_job *job = bystander->job;
	struct tierd_view view;

	support_await_stopping();
	require_waiting(bystander->waiting);
	OK(tierd_gather(job, 1, &view));
	OK(tierd_release(job, 1));
	OK(tierd_gradients(job, 0, &view));
	OK(tierd_push_begin(job, 0, &bystander->late[0]));
	OK(tierd_step(job, &rates, &bystander->late[1]));
	OK(tierd_gather_begin(job, 1, &bystander->late[2]));
	for (unsigned i = 0; i < 3; i++)
		require_waiting(bystander->late[i]);
}

static void require_bystander_ended(struct bystander *bystander)
{
	require_ticket_ended(bystander->waiting);
	for (unsigned i = 0; i < 3; i++)
		require_ticket_ended(bystander->late[i]);
	FAILS(tierd_job_detach(bystander->forming), -ECONNRESET, GONE);
	require_gone(bystander->node, bystander->job);
	require_clinger_ended(&bystander->clinger);
}

static void decided(void)
{
	struct bystander bystander;
	struct long_step step;

	stand_by(&bystander);
	long_step_join(&step, "decided");
	long_step_begin(&step);
	send_signal(SIGTERM);
	require_stopping(&bystander);
	long_step_let_go(&step);
	long_step_expect_applied(&step);
	require_bystander_ended(&bystander);
	for (unsigned rank = 0; rank < LONG_RANKS; rank++)
		require_gone(step.nodes[rank], step.jobs[rank]);
}

/* The second signal ends it without the step, which nobody lets go on; more of them change nothing. */
static void twice(void)
{
	struct bystander bystander;
	struct long_step step;

	stand_by(&bystander);
	long_step_join(&step, "twice");
	long_step_begin(&step);
	send_signal(first_signal);
	require_stopping(&bystander);
	send_signal(second_signal);
	for (unsigned i = 0; i < 20; i++)
		kill(daemon_pid, i % 2 ? SIGTERM : SIGINT);
	for (unsigned rank = 0; rank < LONG_RANKS; rank++)
		require_ticket_ended(step.tickets[rank]);
	require_bystander_ended(&bystander);
	for (unsigned rank = 0; rank < LONG_RANKS; rank++)
		require_gone(step.nodes[rank], step.jobs[rank]);
}

int main(int argc, char *argv[])
{
	REQUIRE(argc >= 3);
	daemon_pid = (pid_t)atoi(argv[2]);
	if (argc > 4) {
		first_signal = strcmp(argv[3], "INT") == 0 ? SIGINT : SIGTERM;
		second_signal = strcmp(argv[4], "INT") == 0 ? SIGINT : SIGTERM;
	}
	if (strcmp(argv[1], "decided") == 0)
		decided();
	else
		twice();
	return 0;
}
