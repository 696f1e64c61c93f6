/* Connections that are cut, and daemons that are killed and started again, at every point of a training: what
 * was not lost goes on without an error, and what was lost is said.
 *
 * reconnect SCENE STATE-DIRECTORY   starts and ends daemons ($TIERD) at $TIERD_SOCKET */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crash_support.h"

#define ELEMENTS 1000
#define UNITS 3

static const char *state_directory;
static pid_t daemon_pid;

/* ---- The daemon, and the sockets to it ---- */

static void start_daemon(void)
{
	daemon_pid = fork();
	REQUIRE(daemon_pid >= 0);
	if (daemon_pid == 0) {
		/* It goes with a test that fails. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(getenv("TIERD"), "tierd", "--socket", getenv("TIERD_SOCKET"), "--state-dir",
		      state_directory, "--host-budget", "128M", "--workers", "1", "--log-level", "error",
		      NULL);
		_exit(127);
	}
}

static void end_daemon(int number)
{
	REQUIRE(kill(daemon_pid, number) == 0);
	REQUIRE(waitpid(daemon_pid, NULL, 0) == daemon_pid);
}

static void restart_daemon(void)
{
	end_daemon(SIGKILL);
	start_daemon();
}

static struct tierd_node *connect_for(int reconnect_ms)
{
	struct tierd_connect_options options = TIERD_CONNECT_OPTIONS_INIT;
	struct tierd_node *node;

	options.reconnect_ms = reconnect_ms;
	OK(tierd_connect_with(&options, &node));
	OK(tierd_set_timeout(node, PATIENCE_MS));
	return node;
}

/* The newest socket of this process that leads to the daemon. */
static int newest_socket(void)
{
	int newest = -1;

	for (int fd = 0; fd < 256; fd++) {
		struct sockaddr_un address = { .sun_family = AF_UNSPEC };
		socklen_t size = sizeof(address);

		if (getpeername(fd, (struct sockaddr *)&address, &size) == 0 &&
		    address.sun_family == AF_UNIX && strcmp(address.sun_path, getenv("TIERD_SOCKET")) == 0)
			newest = fd;
	}
	REQUIRE(newest >= 0);
	return newest;
}

static void cut(void)
{
	REQUIRE(shutdown(newest_socket(), SHUT_RDWR) == 0);
}

/* ---- A rank ---- */

struct rank {
	struct tierd_node *node;
	struct tierd_job *job;
};

static struct rank join_as(const char *name, uint32_t number, uint32_t world_size)
{
	struct tierd_job_options options = support_options(name, number, world_size);
	struct rank rank = { .node = connect_for(PATIENCE_MS) };

	options.seed = 5;
	rank.job = support_join(rank.node, &options, UNITS);
	return rank;
}

static struct rank join_ready(const char *name)
{
	struct rank rank = join_as(name, 0, 1);

	OK(tierd_job_ready(rank.job, -1, NULL));
	return rank;
}

static void leave(struct rank *rank)
{
	OK(tierd_job_close(rank->job));
	tierd_disconnect(rank->node);
}

static void push_all(struct rank *rank)
{
	for (uint32_t unit = 0; unit < UNITS; unit++)
		OK(support_push(rank->job, unit, ELEMENTS, 0.25f * (float)(unit + 1)));
}

static int close_step(struct rank *rank)
{
	struct tierd_rates rates = support_rates(0.1f);

	return tierd_step(rank->job, &rates, NULL);
}

static void train(struct rank *rank, unsigned steps)
{
	for (unsigned i = 0; i < steps; i++) {
		push_all(rank);
		OK(close_step(rank));
	}
}

static uint64_t step_of(struct rank *rank)
{
	struct tierd_job_state state;

	OK(tierd_job_state(rank->job, &state));
	return state.step;
}

static void read_all(struct rank *rank, float values[UNITS][ELEMENTS])
{
	for (uint32_t unit = 0; unit < UNITS; unit++)
		OK(tierd_tensor_read(rank->job, unit, 0, "parameter", 0, ELEMENTS, values[unit]));
}

/* The same bits as a training of so many steps that nobody disturbed. */
static void expect_bits_of(struct rank *rank, unsigned steps)
{
	static float values[UNITS][ELEMENTS], expected[UNITS][ELEMENTS];
	struct rank calm = join_ready("calm");

	read_all(rank, values);
	train(&calm, steps);
	read_all(&calm, expected);
	REQUIRE(memcmp(values, expected, sizeof(values)) == 0);
	leave(&calm);
	support_drop("calm");
}

/* ---- Connecting ---- */

static void a_daemon_that_starts_late_is_waited_for(void)
{
	struct tierd_connect_options options = TIERD_CONNECT_OPTIONS_INIT;
	struct tierd_node *node;

	end_daemon(SIGTERM);
	FAILS(tierd_connect_with(&options, &node), -ENOENT, "no tierd listens at");
	options.reconnect_ms = 30;
	FAILS(tierd_connect_with(&options, &node), -ENOENT, "no tierd listens at");
	setenv("TIERD_RECONNECT_MS", "30", 1);
	FAILS(tierd_connect(NULL, &node), -ENOENT, "no tierd listens at");
	setenv("TIERD_RECONNECT_MS", "soon", 1);
	FAILS(tierd_connect(NULL, &node), -EINVAL, "TIERD_RECONNECT_MS is \"soon\"");
	start_daemon();
	setenv("TIERD_RECONNECT_MS", "20000", 1);
	OK(tierd_connect(NULL, &node));
	unsetenv("TIERD_RECONNECT_MS");
	tierd_disconnect(node);
	/* Killed, it leaves a socket on which nobody listens. */
	restart_daemon();
	tierd_disconnect(connect_for(PATIENCE_MS));
}

static void without_it_a_loss_is_an_error_as_ever(void)
{
	struct tierd_job_options options = support_options("job", 0, 1);
	struct tierd_node *node = connect_for(0);
	struct tierd_job *job = support_join(node, &options, UNITS);

	OK(tierd_job_ready(job, -1, NULL));
	cut();
	FAILS(tierd_phase(job, "eval"), -ECONNRESET, "has ended the connection");
	FAILS(tierd_phase(job, "eval"), -ECONNRESET, "has ended the connection");
	FAILS(tierd_job_close(job), -ECONNRESET, NULL);
	tierd_disconnect(node);
}

/* ---- Before the first step ---- */

static void a_restart_before_ready_is_not_noticed(void)
{
	struct rank rank = join_as("job", 0, 1);
	struct tierd_job_state state;

	restart_daemon();
	support_define(rank.job, "more", TIERD_FP32, ELEMENTS, 1.0);
	restart_daemon();
	OK(tierd_job_ready(rank.job, -1, &state));
	REQUIRE(state.status == TIERD_NEW && state.step == 0);
	train(&rank, 1);
	REQUIRE(step_of(&rank) == 1);
	leave(&rank);
}

static void values_that_were_written_are_lost_with_the_daemon(void)
{
	struct rank rank = { .node = connect_for(PATIENCE_MS) };
	struct tierd_job_options options = support_options("job", 0, 1);
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	float value = 3.5f, read = 0;
	uint32_t unit;

	tensor.name = "w";
	tensor.format = TIERD_FP32;
	OK(tierd_job_open(rank.node, &options, &rank.job));
	OK(tierd_unit_define(rank.job, "unit", &tensor, 1, &unit));
	OK(tierd_tensor_write(rank.job, 0, 0, 0, 1, &value, false));
	restart_daemon();
	FAILS(tierd_tensor_write(rank.job, 0, 0, 0, 1, &value, false), -ESTALE,
	      "tierd was restarted, and has lost the values that it has written");
	FAILS(tierd_job_ready(rank.job, -1, NULL), -ENODATA, "w");
	OK(tierd_tensor_write(rank.job, 0, 0, 0, 1, &value, false));
	OK(tierd_job_ready(rank.job, -1, NULL));
	OK(tierd_tensor_read(rank.job, 0, 0, "parameter", 0, 1, &read));
	REQUIRE(read == value);
	leave(&rank);
}

static void a_restart_before_the_first_step_is_not_noticed(void)
{
	struct tierd_mappings first = TIERD_MAPPINGS_INIT, second = TIERD_MAPPINGS_INIT;
	struct rank rank = join_ready("job");
	struct tierd_view before, after;
	uint64_t leases;

	OK(tierd_phase(rank.job, "eval"));
	OK(tierd_mappings(rank.job, &first));
	OK(tierd_gather(rank.job, 0, &before));
	restart_daemon();
	OK(tierd_phase(rank.job, "train"));
	OK(tierd_gather(rank.job, 0, &after));
	REQUIRE(after.base != before.base);
	OK(tierd_mappings(rank.job, &second));
	REQUIRE(second.parameters != first.parameters && second.gradients != first.gradients);
	REQUIRE(first.number == 1 && second.number == 2);
	OK(tierd_leases(rank.job, 0, &leases));
	REQUIRE(leases == 2);
	REQUIRE(memcmp(tierd_at(&before, 0), tierd_at(&after, 0), ELEMENTS * sizeof(float)) == 0);
	OK(tierd_release(rank.job, 0));
	REQUIRE(*(volatile float *)tierd_at(&before, 0) == *(volatile float *)tierd_at(&after, 0));
	OK(tierd_release(rank.job, 0));
	FAILS(tierd_release(rank.job, 0), -EINVAL, "without having been gathered");
	train(&rank, 2);
	expect_bits_of(&rank, 2);
	leave(&rank);
}

/* ---- In the middle ---- */

static void a_restart_later_says_where_the_job_stands(void)
{
	struct rank rank = join_ready("job");
	struct tierd_job_state state;
	struct tierd_view view;

	train(&rank, 2);
	OK(tierd_gather(rank.job, 1, &view));
	restart_daemon();
	FAILS(tierd_phase(rank.job, "eval"), -ESTALE,
	      "tierd was restarted: job \"job\" stands at step 0 (it is new: its state is lost), this rank "
	      "was at "
	      "step 2; call tierd_job_ready");
	FAILS(tierd_phase(rank.job, "train"), -ESTALE, "stands at step 0");
	REQUIRE(((volatile float *)tierd_at(&view, 0))[ELEMENTS - 1] != 0);
	OK(tierd_release(rank.job, 1));
	OK(tierd_job_ready(rank.job, -1, &state));
	REQUIRE(state.status == TIERD_NEW && state.step == 0);
	train(&rank, 2);
	expect_bits_of(&rank, 2);
	leave(&rank);
}

static void a_cut_between_steps_is_not_noticed(void)
{
	struct rank rank = join_ready("job");
	struct tierd_view view, again;

	for (unsigned i = 0; i < 8; i++) {
		train(&rank, 1);
		OK(tierd_gather(rank.job, 1, &view));
		cut();
		OK(tierd_phase(rank.job, "train"));
		OK(tierd_gather(rank.job, 1, &again));
		REQUIRE(again.version == i + 1);
		REQUIRE(memcmp(tierd_at(&view, 0), tierd_at(&again, 0), ELEMENTS * sizeof(float)) == 0);
		FAILS(close_step(&rank), -EBUSY, "leases of 1 unit are held: \"u1\"");
		OK(tierd_release(rank.job, 1));
		FAILS(close_step(&rank), -EBUSY, "leases of 1 unit are held: \"u1\"");
		OK(tierd_release(rank.job, 1));
	}
	REQUIRE(step_of(&rank) == 8);
	expect_bits_of(&rank, 8);
	leave(&rank);
}

static void a_cut_in_a_step_loses_its_gradients(void)
{
	struct rank rank = join_ready("job");
	struct tierd_view gradients;
	struct tierd_job_state state;

	train(&rank, 1);
	OK(support_push(rank.job, 0, ELEMENTS, 77.0f));
	cut();
	FAILS(tierd_phase(rank.job, "train"), -ESTALE,
	      "the connection to tierd was lost, and with it the part of the next step that it has handed "
	      "in: job "
	      "\"job\" stands at step 1, this rank was at step 1");
	OK(tierd_job_ready(rank.job, -1, &state));
	REQUIRE(state.step == 1 && state.status == TIERD_RESUMED);
	OK(tierd_gradients(rank.job, 1, &gradients));
	((float *)tierd_at(&gradients, 0))[0] = 99.0f;
	cut();
	FAILS(tierd_push(rank.job, 1), -ESTALE, "the gradients in a buffer that it holds");
	((float *)tierd_at(&gradients, 0))[1] = 99.0f;
	OK(tierd_discard(rank.job, 1));
	OK(tierd_job_ready(rank.job, -1, &state));
	train(&rank, 1);
	expect_bits_of(&rank, 2);
	leave(&rank);
}

static void a_step_whose_answer_is_lost_is_told_by_ready(void)
{
	struct tierd_rates rates = support_rates(0.1f);
	struct rank rank = join_ready("job");
	struct tierd_ticket *ticket;
	struct tierd_job_state state;
	unsigned steps = 0;

	for (unsigned i = 0; i < 10; i++) {
		push_all(&rank);
		OK(tierd_step(rank.job, &rates, &ticket));
		cut();
		int r = tierd_ticket_wait(ticket, TIERD_DONE, -1);

		REQUIRE(r == 0 || r == -ESTALE);
		tierd_ticket_free(ticket);
		if (r < 0) {
			FAILS(tierd_phase(rank.job, "train"), -ESTALE, "the answer to its last step");
			OK(tierd_job_ready(rank.job, -1, &state));
			REQUIRE(state.step == steps || state.step == steps + 1);
			steps = (unsigned)state.step;
		} else {
			steps++;
		}
	}
	expect_bits_of(&rank, steps);
	leave(&rank);
}

/* ---- Nobody comes back ---- */

static void a_daemon_that_does_not_come_back_is_given_up(void)
{
	struct tierd_job_options options = support_options("job", 0, 1);
	struct tierd_node *node = connect_for(50);
	struct tierd_job *job = support_join(node, &options, UNITS);
	struct tierd_view view;

	OK(tierd_job_ready(job, -1, NULL));
	OK(tierd_gather(job, 0, &view));
	end_daemon(SIGKILL);
	FAILS(tierd_phase(job, "train"), -ECONNRESET,
	      "for 50 ms (reconnect_ms) it could not be opened again");
	FAILS(tierd_gather(job, 1, &view), -ECONNRESET, "reconnect_ms");
	OK(tierd_release(job, 0));
	FAILS(tierd_job_close(job), -ECONNRESET, "reconnect_ms");
	tierd_disconnect(node);
	start_daemon();
	tierd_disconnect(connect_for(PATIENCE_MS));
}

static bool is_second(void *argument)
{
	return ++*(unsigned *)argument == 2;
}

static void who_waits_for_a_daemon_can_be_interrupted(void)
{
	struct tierd_connect_options with = TIERD_CONNECT_OPTIONS_INIT;
	struct tierd_job_options options = support_options("job", 0, 1);
	struct tierd_node *node;
	struct tierd_job *job;
	unsigned asked = 0;

	with.reconnect_ms = PATIENCE_MS;
	with.is_interrupted = is_second;
	with.argument = &asked;
	OK(tierd_connect_with(&with, &node));
	job = support_begin(node, &options, UNITS);
	end_daemon(SIGKILL);
	asked = 0;
	FAILS(tierd_phase(job, "train"), -ETIMEDOUT, "interrupted while the connection");
	REQUIRE(asked == 2);
	start_daemon();
	OK(tierd_job_close(job));
	tierd_disconnect(node);
	/* One that nobody has opened yet, too. */
	end_daemon(SIGKILL);
	asked = 0;
	FAILS(tierd_connect_with(&with, &node), -ECONNREFUSED, "no tierd listens");
	REQUIRE(asked == 2);
	start_daemon();
}

static void one_that_is_stopped_is_not_gone(void)
{
	struct rank rank = join_ready("job");
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;

	train(&rank, 1);
	OK(tierd_set_timeout(rank.node, 20));
	REQUIRE(kill(daemon_pid, SIGSTOP) == 0);
	FAILS(tierd_statistics(rank.job, &statistics), -ETIMEDOUT, NULL);
	REQUIRE(kill(daemon_pid, SIGCONT) == 0);
	OK(tierd_set_timeout(rank.node, PATIENCE_MS));
	OK(tierd_statistics(rank.job, &statistics));
	train(&rank, 1);
	expect_bits_of(&rank, 2);
	REQUIRE(kill(daemon_pid, SIGSTOP) == 0);
	restart_daemon();
	FAILS(tierd_statistics(rank.job, &statistics), -ESTALE, "stands at step 0");
	OK(tierd_job_detach(rank.job));
	tierd_disconnect(rank.node);
}

static void leaving_a_lost_connection_needs_no_other(void)
{
	struct rank rank = join_ready("job");

	train(&rank, 1);
	end_daemon(SIGKILL);
	OK(tierd_job_close(rank.job));
	tierd_disconnect(rank.node);
	start_daemon();
	rank = join_ready("job");
	OK(support_push(rank.job, 0, ELEMENTS, 1.0f));
	cut();
	FAILS(tierd_job_close(rank.job), -ESTALE, "the part of the next step");
	tierd_disconnect(rank.node);
}

/* ---- Two ranks, threads ---- */

static void *step_of_other(void *argument)
{
	struct rank *rank = argument;
	struct tierd_job_state state;
	int r = 0;

	for (uint32_t unit = 0; unit < UNITS && r == 0; unit++)
		r = support_push(rank->job, unit, ELEMENTS, 0.25f * (float)(unit + 1));
	if (r == 0)
		r = close_step(rank);
	if (r == -ESTALE) {
		OK(tierd_job_ready(rank->job, -1, &state));
		REQUIRE(state.step == 1);
		train(rank, 1);
		r = 0;
	}
	REQUIRE(r == 0);
	return NULL;
}

static void *ready_of_other(void *argument)
{
	OK(tierd_job_ready(((struct rank *)argument)->job, -1, NULL));
	return NULL;
}

static void the_other_ranks_begin_the_step_again(void)
{
	struct rank other = join_as("pair", 1, 2), first = join_as("pair", 0, 2);
	pthread_t thread;

	REQUIRE(pthread_create(&thread, NULL, ready_of_other, &other) == 0);
	OK(tierd_job_ready(first.job, -1, NULL));
	pthread_join(thread, NULL);
	REQUIRE(pthread_create(&thread, NULL, step_of_other, &other) == 0);
	train(&first, 1);
	pthread_join(thread, NULL);
	/* The newest is the first rank's. */
	cut();
	REQUIRE(pthread_create(&thread, NULL, step_of_other, &other) == 0);
	train(&first, 1);
	pthread_join(thread, NULL);
	REQUIRE(step_of(&first) == 2 && step_of(&other) == 2);
	leave(&first);
	leave(&other);
	support_drop("pair");
}

static _Atomic bool is_over;

static void *read_on(void *argument)
{
	struct rank *rank = argument;

	while (!is_over)
		for (uint32_t unit = 0; unit < UNITS; unit++) {
			struct tierd_view view;
			float first;

			OK(tierd_gather(rank->job, unit, &view));
			first = *(volatile float *)tierd_at(&view, 0);
			REQUIRE(first != 0 && first == *(volatile float *)tierd_at(&view, 0));
			OK(tierd_release(rank->job, unit));
		}
	return NULL;
}

static void threads_read_on_over_cuts_and_restarts(void)
{
	struct rank rank = join_ready("job");
	pthread_t threads[4];

	is_over = false;
	for (unsigned i = 0; i < 4; i++)
		REQUIRE(pthread_create(&threads[i], NULL, read_on, &rank) == 0);
	for (unsigned i = 0; i < 20; i++) {
		if (i % 10 == 9)
			restart_daemon();
		else
			cut();
		OK(tierd_phase(rank.job, i % 2 ? "train" : "eval"));
	}
	is_over = true;
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	train(&rank, 1);
	expect_bits_of(&rank, 1);
	leave(&rank);
}

/* ---- */

static const struct {
	const char *name;
	void (*run)(void);
} scenes[] = {
#define SCENE(name)                                                                                          \
	{                                                                                                    \
#name, name                                                                                  \
	}
	SCENE(a_daemon_that_starts_late_is_waited_for),
	SCENE(without_it_a_loss_is_an_error_as_ever),
	SCENE(a_restart_before_ready_is_not_noticed),
	SCENE(values_that_were_written_are_lost_with_the_daemon),
	SCENE(a_restart_before_the_first_step_is_not_noticed),
	SCENE(a_restart_later_says_where_the_job_stands),
	SCENE(a_cut_between_steps_is_not_noticed),
	SCENE(a_cut_in_a_step_loses_its_gradients),
	SCENE(a_step_whose_answer_is_lost_is_told_by_ready),
	SCENE(a_daemon_that_does_not_come_back_is_given_up),
	SCENE(who_waits_for_a_daemon_can_be_interrupted),
	SCENE(one_that_is_stopped_is_not_gone),
	SCENE(leaving_a_lost_connection_needs_no_other),
	SCENE(the_other_ranks_begin_the_step_again),
	SCENE(threads_read_on_over_cuts_and_restarts),
};

/* Each scene with a daemon of its own, and all of them, or those that are named. */
int main(int count, char *arguments[])
{
	REQUIRE(count >= 2 && getenv("TIERD") && getenv("TIERD_SOCKET"));
	state_directory = arguments[1];
	for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
		if (count > 2 && strcmp(arguments[2], scenes[i].name) != 0)
			continue;
		fprintf(stderr, "%s\n", scenes[i].name);
		start_daemon();
		tierd_disconnect(connect_for(PATIENCE_MS));
		scenes[i].run();
		end_daemon(SIGTERM);
	}
	return 0;
}
