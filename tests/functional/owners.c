/* Ranks that update their shards themselves, with the optimizer none.
 *
 *   owners TIERCTL    calls at the wrong time, and a rank that is killed in the middle of a step
 *   owners stay       says on descriptor 3 that its step is reduced, and waits for the end of the daemon */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crash_support.h"

#define ELEMENTS 1000 /* of a unit: four blocks, of which each of two ranks has two */
#define HALF 512
#define RATE 0.125f

static struct tierd_job_options owner_options(const char *name, uint32_t rank, uint32_t ranks)
{
	struct tierd_job_options options = support_options(name, rank, ranks);

	options.optimizer = TIERD_NONE;
	return options;
}

/* Pushes and closes the step. */
static struct tierd_ticket *close_step(struct tierd_job *job, float gradient)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_ticket *ticket;

	OK(support_push(job, 0, ELEMENTS, gradient));
	OK(tierd_step(job, &rates, &ticket));
	return ticket;
}

static struct tierd_step_result result_of(struct tierd_ticket *ticket)
{
	struct tierd_step_result result;

	OK(tierd_ticket_step_result(ticket, &result));
	return result;
}

/* SGD over this rank's shard. */
static void update_shard(struct tierd_job *job)
{
	float gradients[ELEMENTS], masters[ELEMENTS];
	uint64_t first, count;

	OK(tierd_tensor_shard(job, 0, 0, &first, &count));
	OK(tierd_tensor_read(job, 0, 0, "gradient", first, count, gradients));
	OK(tierd_tensor_read(job, 0, 0, "master", first, count, masters));
	for (uint64_t i = 0; i < count; i++)
		masters[i] -= RATE * gradients[i];
	OK(tierd_tensor_write(job, 0, 0, first, count, masters, true));
}

static void expect_masters(struct tierd_job *job, uint64_t first, uint64_t count, float value)
{
	float masters[ELEMENTS];

	OK(tierd_tensor_read(job, 0, 0, "master", first, count, masters));
	for (uint64_t i = 0; i < count; i++)
		REQUIRE(masters[i] == value);
}

/* ---- What may be done when ---- */

static void a_step_has_a_third_event(struct tierd_node *node)
{
	struct tierd_job_options options = owner_options("events", 0, 1);
	struct tierd_job *job = support_join(node, &options, 1);
	struct tierd_rates rates = TIERD_RATES_INIT;
	struct tierd_step_result result;
	struct tierd_ticket *ticket;

	OK(tierd_job_ready(job, -1, NULL));
	FAILS(tierd_step(job, &rates, NULL), -EINVAL, "its step needs a ticket");
	ticket = close_step(job, 2.0f);
	struct pollfd poll_fd = { .fd = tierd_ticket_descriptor(ticket), .events = POLLIN };

	while (tierd_ticket_wait(ticket, TIERD_REDUCED, 0) == -ETIMEDOUT)
		REQUIRE(poll(&poll_fd, 1, PATIENCE_MS) == 1);
	FAILS(tierd_ticket_wait(ticket, TIERD_DONE, 0), -ETIMEDOUT, "not done within the time");
	REQUIRE(poll(&poll_fd, 1, 0) == 0);
	result = result_of(ticket);
	REQUIRE(result.step == 1 && !result.is_skipped && result.gradient_norm == 2.0 * sqrt(ELEMENTS));
	update_shard(job);
	OK(tierd_step_finish(job));
	while (tierd_ticket_wait(ticket, TIERD_DONE, 0) == -ETIMEDOUT)
		REQUIRE(poll(&poll_fd, 1, PATIENCE_MS) == 1);
	OK(tierd_ticket_wait(ticket, TIERD_DURABLE, -1));
	OK(tierd_ticket_wait(ticket, TIERD_REDUCED, 0));
	REQUIRE(result_of(ticket).step == 1);
	tierd_ticket_free(ticket);
	expect_masters(job, 0, ELEMENTS, 0.75f);
	OK(tierd_job_close(job));
}

static void other_jobs_have_none(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("others", 0, 1);
	struct tierd_job *job = support_join(node, &options, 1);
	struct tierd_ticket *ticket;
	float value = 0;

	OK(tierd_job_ready(job, -1, NULL));
	ticket = close_step(job, 1.0f);
	FAILS(tierd_ticket_wait(ticket, TIERD_REDUCED, -1), -EINVAL, "only one with the optimizer none");
	FAILS(tierd_tensor_read(job, 0, 0, "gradient", 0, 1, &value), -ENODATA, "there is no state");
	FAILS(tierd_tensor_write(job, 0, 0, 0, 1, &value, true), -EBUSY, "has been ready already");
	OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
	FAILS(tierd_step_finish(job), -EBUSY, "it has closed none");
	tierd_ticket_free(ticket);
	OK(tierd_job_close(job));
}

static void a_skipped_step_is_over(struct tierd_node *node)
{
	struct tierd_job_options options = owner_options("skipped", 0, 1);
	struct tierd_job *job = support_join(node, &options, 1);
	struct tierd_ticket *ticket;

	OK(tierd_job_ready(job, -1, NULL));
	ticket = close_step(job, INFINITY);
	OK(tierd_ticket_wait(ticket, TIERD_REDUCED, -1));
	REQUIRE(result_of(ticket).is_skipped);
	FAILS(tierd_step_finish(job), -EBUSY, "or one that was skipped");
	tierd_ticket_free(ticket);
	ticket = close_step(job, 1.0f);
	OK(tierd_ticket_wait(ticket, TIERD_REDUCED, -1));
	REQUIRE(!result_of(ticket).is_skipped && result_of(ticket).step == 2);
	OK(tierd_step_finish(job));
	OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
	tierd_ticket_free(ticket);
	expect_masters(job, 0, ELEMENTS, 1.0f);
	OK(tierd_job_close(job));
}

/* Each would wait for the finish that the caller has yet to send. */
static void a_rank_does_not_wait_for_itself(struct tierd_node *node)
{
	struct tierd_job_options options = owner_options("itself", 0, 1);
	struct tierd_job *job = support_join(node, &options, 1);
	struct tierd_rates rates = TIERD_RATES_INIT;
	struct tierd_ticket *ticket, *gather, *second;
	struct tierd_view view;
	float value = NAN;

	OK(tierd_job_ready(job, -1, NULL));
	ticket = close_step(job, 1.0f);
	FAILS(tierd_gather(job, 0, &view), -EBUSY, "call tierd_step_finish first");
	OK(tierd_ticket_wait(ticket, TIERD_REDUCED, -1));
	FAILS(tierd_gather(job, 0, &view), -EBUSY, "call tierd_step_finish first");
	OK(tierd_gather_begin(job, 0, &gather));
	FAILS(tierd_gather_end(gather, -1, &view), -EBUSY, "call tierd_step_finish first");
	OK(tierd_step(job, &rates, &second));
	FAILS(tierd_ticket_wait(second, TIERD_REDUCED, -1), -EBUSY, "call tierd_step_finish first");
	FAILS(tierd_ticket_wait(second, TIERD_DONE, -1), -EBUSY, "call tierd_step_finish first");
	tierd_ticket_free(second);
	FAILS(tierd_tensor_write(job, 0, 0, 0, 1, &value, true), -EDOM, "none of them is taken");
	expect_masters(job, 0, ELEMENTS, 1.0f);
	OK(tierd_step_finish(job));
	OK(tierd_gather(job, 0, &view));
	REQUIRE(view.version == 1 && ((float *)tierd_at(&view, 0))[0] == 1.0f);
	OK(tierd_release(job, 0));
	tierd_ticket_free(ticket);
	OK(tierd_job_close(job));
}

/* ---- A rank that is lost ---- */

enum moment { REDUCED, WRITTEN, FINISHED, MOMENTS };

/* Rank 1 comes as far as the moment of the step, says so, and waits for its end; or takes all steps. */
static void play_second(enum moment moment, int tell)
{
	struct tierd_node *node = support_connect();
	struct tierd_job_options options = owner_options("lost", 1, 2);
	struct tierd_job *job = support_join(node, &options, 1);
	struct tierd_ticket *ticket;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	OK(tierd_job_ready(job, -1, NULL));
	ticket = close_step(job, 1.0f);
	OK(tierd_ticket_wait(ticket, TIERD_REDUCED, -1));
	if (moment >= WRITTEN)
		update_shard(job);
	if (moment >= FINISHED)
		OK(tierd_step_finish(job));
	REQUIRE(write(tell, "x", 1) == 1);
	if (moment != MOMENTS)
		pause();
	OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
	tierd_ticket_free(ticket);
	OK(tierd_job_close(job));
	tierd_disconnect(node);
	exit(0);
}

static pid_t start_second(enum moment moment, int *ret_told)
{
	int tell[2];
	pid_t pid;

	REQUIRE(pipe(tell) == 0);
	pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0)
		play_second(moment, tell[1]);
	close(tell[1]);
	*ret_told = tell[0];
	return pid;
}

static void expect_activity(const char *tierctl, const char *activity)
{
	char command[512], line[4096];
	bool has_activity = false, has_optimizer = false;
	FILE *output;

	snprintf(command, sizeof(command), "\"%s\" --json jobs", tierctl);
	output = popen(command, "r");
	REQUIRE(output);
	while (fgets(line, sizeof(line), output)) {
		has_activity |= strstr(line, activity) != NULL;
		has_optimizer |= strstr(line, "\"none\"") != NULL;
	}
	REQUIRE(pclose(output) == 0);
	REQUIRE(has_activity && has_optimizer);
}

/* Rank 0 has updated its shard when rank 1 dies. */
static void lose_second(struct tierd_job *job, const char *tierctl, enum moment moment, bool is_finished)
{
	struct tierd_ticket *ticket;
	int told, status;
	pid_t pid = start_second(moment, &told);
	char byte;

	OK(tierd_job_ready(job, -1, NULL));
	ticket = close_step(job, 1.0f);
	OK(tierd_ticket_wait(ticket, TIERD_REDUCED, -1));
	update_shard(job);
	expect_activity(tierctl, "writing its shard");
	if (is_finished)
		OK(tierd_step_finish(job));
	REQUIRE(read(told, &byte, 1) == 1);
	close(told);
	REQUIRE(kill(pid, SIGKILL) == 0);
	REQUIRE(waitpid(pid, &status, 0) == pid);
	FAILS(tierd_ticket_wait(ticket, TIERD_DONE, -1), -ESTALE, "rank 1 (pid ");
	OK(tierd_ticket_wait(ticket, TIERD_REDUCED, -1));
	FAILS(tierd_step_finish(job), -ESTALE, "rank 1 (pid ");
	tierd_ticket_free(ticket);
}

static void a_rank_killed_before_all_have_finished_costs_the_step(struct tierd_node *node,
								  const char *tierctl)
{
	struct tierd_job_options options = owner_options("lost", 0, 2);
	struct tierd_job *job = support_join(node, &options, 1);
	struct tierd_job_state state;
	struct tierd_ticket *ticket;
	int told, status;
	pid_t pid;

	for (unsigned moment = 0; moment < MOMENTS; moment++) {
		lose_second(job, tierctl, (enum moment)moment, false);
		if (moment != FINISHED)
			lose_second(job, tierctl, (enum moment)moment, true);
	}
	pid = start_second(MOMENTS, &told);
	OK(tierd_job_ready(job, -1, &state));
	REQUIRE(state.step == 0);
	expect_masters(job, 0, ELEMENTS, 1.0f);
	ticket = close_step(job, 1.0f);
	OK(tierd_ticket_wait(ticket, TIERD_REDUCED, -1));
	update_shard(job);
	OK(tierd_step_finish(job));
	OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
	tierd_ticket_free(ticket);
	REQUIRE(waitpid(pid, &status, 0) == pid && status == 0);
	close(told);
	expect_masters(job, 0, ELEMENTS, 0.75f);
	OK(tierd_job_close(job));
}

/* ---- The daemon ends ---- */

static void stay(void)
{
	struct tierd_node *node = support_connect();
	struct tierd_job_options options = owner_options("stays", 0, 1);
	struct tierd_job *job = support_join(node, &options, 1);
	struct tierd_ticket *ticket;

	OK(tierd_job_ready(job, -1, NULL));
	ticket = close_step(job, 1.0f);
	OK(tierd_ticket_wait(ticket, TIERD_REDUCED, -1));
	REQUIRE(write(3, "reduced\n", 8) == 8);
	REQUIRE(tierd_ticket_wait(ticket, TIERD_DONE, -1) < 0);
	tierd_ticket_free(ticket);
	tierd_disconnect(node);
}

int main(int argc, char *argv[])
{
	static void (*const tests[])(struct tierd_node * node) = {
		a_step_has_a_third_event,
		other_jobs_have_none,
		a_skipped_step_is_over,
		a_rank_does_not_wait_for_itself,
	};
	struct tierd_node *node;

	REQUIRE(argc == 2);
	if (strcmp(argv[1], "stay") == 0) {
		stay();
		return 0;
	}
	node = support_connect();
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tests[i](node);
	a_rank_killed_before_all_have_finished_costs_the_step(node, argv[1]);
	tierd_disconnect(node);
	return 0;
}
