/* Trainers of a daemon that they themselves send signals, at chosen moments; ending.sh looks at what it
 * leaves.
 *
 *   ending SCENE PID [FIRST SECOND]    signals: TERM or INT
 *
 * It exits with 75 if the daemon was done with a step sooner than the scene. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* ---- Pushes ---- */

struct blocked {
	pthread_t thread;
	struct tierd_job *job;
	uint32_t unit;
};

/* Fills its buffers, and what there is beside them, until it blocks. */
static void *push_on(void *argument)
{
	struct blocked *blocked = argument;
	struct tierd_view view;
	int r = 0;

	while (r == 0) {
		r = tierd_gradients(blocked->job, blocked->unit, &view);
		if (r == 0)
			r = tierd_push(blocked->job, blocked->unit);
	}
	require_ended(r);
	return NULL;
}

static struct tierd_ticket *push_one(struct tierd_job *job, uint32_t unit)
{
	struct tierd_ticket *ticket;
	struct tierd_view view;

	OK(tierd_gradients(job, unit, &view));
	OK(tierd_push_begin(job, unit, &ticket));
	FAILS(tierd_ticket_wait(ticket, TIERD_DONE, 0), -ETIMEDOUT, "");
	return ticket;
}

/* Each of three ranks waits for the others: pushes for their part of the sum, one for a buffer, one for its
 * step and the new values. */
static void pushes(void)
{
	struct tierd_ticket *ready[3], *pushed[2], *step, *gather;
	struct blocked blocked = { .unit = 2 };
	struct tierd_node *nodes[3];
	struct tierd_job *jobs[3];

	for (unsigned rank = 0; rank < 3; rank++) {
		struct tierd_job_options options = support_options("pushes", rank, 3);

		nodes[rank] = support_connect();
		jobs[rank] = support_join(nodes[rank], &options, 4);
		OK(tierd_job_ready_begin(jobs[rank], -1, &ready[rank]));
	}
	for (unsigned rank = 0; rank < 3; rank++) {
		OK(tierd_ticket_wait(ready[rank], TIERD_DONE, -1));
		tierd_ticket_free(ready[rank]);
	}
	pushed[0] = push_one(jobs[0], 0);
	pushed[1] = push_one(jobs[1], 1);
	OK(tierd_step(jobs[2], &rates, &step));
	OK(tierd_gather_begin(jobs[2], 3, &gather));
	blocked.job = jobs[0];
	REQUIRE(pthread_create(&blocked.thread, NULL, push_on, &blocked) == 0);
	send_signal(SIGTERM);
	require_ticket_ended(pushed[0]);
	require_ticket_ended(pushed[1]);
	require_ticket_ended(step);
	require_ticket_ended(gather);
	REQUIRE(pthread_join(blocked.thread, NULL) == 0);
	for (unsigned rank = 0; rank < 3; rank++)
		require_gone(nodes[rank], jobs[rank]);
}

/* Whatever the trainer is doing when the signal comes: between that and its error there is no wrong answer.
 */
static void training(void)
{
	struct tierd_node *node = support_connect();
	struct tierd_job_options options = support_options("training", 0, 1);
	struct tierd_job *job = support_join(node, &options, 50);
	uint64_t seed = (uint64_t)daemon_pid;
	int r = 0;

	OK(tierd_job_ready(job, -1, NULL));
	for (uint64_t i = support_random(&seed) % 300; r == 0; i--) {
		if (i == 0)
			send_signal(SIGTERM);
		r = support_push(job, (uint32_t)(i % 50), 1000, 1.0f);
		if (r == 0 && i % 50 == 0)
			r = tierd_step(job, &rates, NULL);
	}
	require_ended(r);
	require_gone(node, job);
}

/* A job that is being prepared is not finished. */
static void preparing(void)
{
	struct tierd_node *node = support_connect();
	struct tierd_job_options options = support_options("preparing", 0, 1);
	struct tierd_ticket *ticket;
	struct tierd_job *job;
	char name[16];
	int r;

	OK(tierd_job_open(node, &options, &job));
	for (unsigned unit = 0; unit < LONG_UNITS; unit++) {
		snprintf(name, sizeof(name), "long%u", unit);
		support_define(job, name, TIERD_FP32, LONG_ELEMENTS, 1.0);
	}
	OK(tierd_job_ready_begin(job, -1, &ticket));
	send_signal(SIGTERM);
	r = tierd_ticket_wait(ticket, TIERD_DONE, -1);
	if (r < 0)
		require_ended(r);
	tierd_ticket_free(ticket);
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
	bystander->job = support_join(bystander->node, &options, 2);
	OK(tierd_job_ready(bystander->job, -1, NULL));
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

/* The trainers are killed while it ends: it finishes their step all the same. */
static void orphaned(void)
{
	struct bystander bystander;
	struct long_step step;
	int pipe_fds[2], status;
	char word;

	stand_by(&bystander);
	REQUIRE(pipe(pipe_fds) == 0);
	pid_t child = fork();

	REQUIRE(child >= 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		long_step_join(&step, "orphaned");
		long_step_begin(&step);
		REQUIRE(write(pipe_fds[1], "x", 1) == 1);
		for (;;)
			pause();
	}
	close(pipe_fds[1]);
	/* Nothing comes if it fails. */
	REQUIRE(read(pipe_fds[0], &word, 1) == 1);
	send_signal(SIGTERM);
	require_stopping(&bystander);
	REQUIRE(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
	require_bystander_ended(&bystander);
}

int main(int argc, char *argv[])
{
	static const struct {
		const char *name;
		void (*run)(void);
	} scenes[] = { { "pushes", pushes },   { "training", training }, { "preparing", preparing },
		       { "decided", decided }, { "twice", twice },	 { "orphaned", orphaned } };

	REQUIRE(argc >= 3);
	daemon_pid = (pid_t)atoi(argv[2]);
	if (argc > 4) {
		first_signal = strcmp(argv[3], "INT") == 0 ? SIGINT : SIGTERM;
		second_signal = strcmp(argv[4], "INT") == 0 ? SIGINT : SIGTERM;
	}
	for (size_t i = 0; i < sizeof(scenes) / sizeof(*scenes); i++)
		if (strcmp(argv[1], scenes[i].name) == 0) {
			scenes[i].run();
			return 0;
		}
	REQUIRE(!"there is no such scene");
}
