/* A job is replaced while its decided step is still being applied: whatever its ranks are doing, the new one
 * is new, its bits are those of a training that nobody disturbed, and what the old one had is given back. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "long_step.h"

#define NAME "replaced"
#define UNITS 3
#define STEPS 2
#define TRIES 20

static const uint64_t sizes[UNITS] = { LONG_ELEMENTS, 70000, 300 };
static const char *const states[] = { "parameter", "m", "v" };
#define STATE_FLOATS (3 * (LONG_ELEMENTS + 70000 + 300))

/* ---- What tierctl says ---- */

static FILE *ask(const char *verb)
{
	char command[256];
	FILE *answer;

	REQUIRE(getenv("TIERCTL"));
	snprintf(command, sizeof(command), "\"$TIERCTL\" --json %s", verb);
	answer = popen(command, "r");
	REQUIRE(answer);
	return answer;
}

struct usage {
	uint64_t bytes[2];
};

/* Host memory and the one NVMe path. */
static struct usage look_at_tiers(void)
{
	struct usage usage = { { 0 } };
	FILE *answer = ask("tiers");
	unsigned count = 0;
	char line[512];

	while (fgets(line, sizeof(line), answer)) {
		const char *used = strstr(line, "\"used_bytes\":");

		if (!used)
			continue;
		REQUIRE(count < 2);
		REQUIRE(sscanf(used, "\"used_bytes\": %lu", &usage.bytes[count++]) == 1);
	}
	REQUIRE(pclose(answer) == 0 && count == 2);
	return usage;
}

/* Of the only job. */
static uint64_t look_at_step(void)
{
	FILE *answer = ask("jobs");
	unsigned count = 0;
	uint64_t step = 0;
	char line[512];

	while (fgets(line, sizeof(line), answer)) {
		const char *found = strstr(line, "\"step\":");

		if (!found)
			continue;
		REQUIRE(sscanf(found, "\"step\": %lu", &step) == 1);
		count++;
	}
	REQUIRE(pclose(answer) == 0 && count == 1);
	return step;
}

/* It is given back off the loop; the program's own deadline is that of the test. */
static void wait_for_usage(const struct usage *expected)
{
	struct usage usage;

	do
		usage = look_at_tiers();
	while (memcmp(&usage, expected, sizeof(usage)) != 0);
}

/* ---- The new job ---- */

static void define_new(struct tierd_job *job)
{
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	char name[16];
	uint32_t index;

	for (unsigned unit = 0; unit < UNITS; unit++) {
		snprintf(name, sizeof(name), "new%u", unit);
		tensor.name = name;
		tensor.format = TIERD_FP32;
		tensor.dimensions = 1;
		tensor.shape[0] = sizes[unit];
		tensor.initializer = TIERD_INITIALIZE_UNIFORM;
		tensor.a = -1;
		tensor.b = 1;
		OK(tierd_unit_define(job, name, &tensor, 1, &index));
		REQUIRE(index == unit);
	}
}

/* Gradients that depend on the values, as real ones do. */
static void push_new(struct tierd_job *job, uint32_t unit)
{
	struct tierd_view values, gradients;

	OK(tierd_gather(job, unit, &values));
	OK(tierd_gradients(job, unit, &gradients));
	for (uint64_t i = 0; i < sizes[unit]; i++)
		((float *)tierd_at(&gradients, 0))[i] =
			((const float *)tierd_at(&values, 0))[i] * 0.25f + (float)(i % 7);
	OK(tierd_push(job, unit));
	OK(tierd_release(job, unit));
}

static void read_new(struct tierd_job *job, float *state)
{
	for (size_t i = 0; i < sizeof(states) / sizeof(*states); i++)
		for (uint32_t unit = 0; unit < UNITS; unit++) {
			OK(tierd_tensor_read(job, unit, 0, states[i], 0, sizes[unit], state));
			state += sizes[unit];
		}
}

/* Trains the job that has just been opened, and closes it. */
static void train_new(struct tierd_job *job, float *state)
{
	struct tierd_rates rates = TIERD_RATES_INIT;
	struct tierd_job_state found;
	struct tierd_step_result result;
	struct tierd_ticket *ticket;

	OK(tierd_job_state(job, &found));
	REQUIRE(found.status == TIERD_NEW && found.step == 0);
	define_new(job);
	OK(tierd_job_ready(job, -1, &found));
	REQUIRE(found.status == TIERD_NEW && found.step == 0);
	rates.learning_rate = 0.01f;
	for (uint64_t step = 1; step <= STEPS; step++) {
		for (uint32_t unit = 0; unit < UNITS; unit++)
			push_new(job, unit);
		OK(tierd_step(job, &rates, &ticket));
		OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
		OK(tierd_ticket_step_result(ticket, &result));
		REQUIRE(result.step == step && !result.is_skipped);
		tierd_ticket_free(ticket);
	}
	read_new(job, state);
	OK(tierd_job_close(job));
}

static struct tierd_job_options replacement(void)
{
	struct tierd_job_options options = support_options(NAME, 0, 1);

	options.mode = TIERD_REPLACE;
	options.seed = 11;
	return options;
}

static void replace_and_train(float *state)
{
	struct tierd_job_options options = replacement();
	struct tierd_node *node = support_connect();
	struct tierd_job *job;

	OK(tierd_job_open(node, &options, &job));
	train_new(job, state);
	tierd_disconnect(node);
}

static void require_right_bits(const float *expected)
{
	float *state = malloc(STATE_FLOATS * sizeof(*state));

	REQUIRE(state);
	replace_and_train(state);
	REQUIRE(memcmp(state, expected, STATE_FLOATS * sizeof(*state)) == 0);
	free(state);
}

/* ---- The old job ---- */

/* The process of its ranks. */
struct partner {
	pid_t pid;
	int from, to;
};

static void say(int fd)
{
	REQUIRE(write(fd, "x", 1) == 1);
}

static void hear(int fd)
{
	char word;

	REQUIRE(read(fd, &word, 1) == 1);
}

/* Nobody has disturbed it. */
static void finish_and_go_on(struct long_step *step)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };

	long_step_let_go(step);
	long_step_expect_applied(step);
	for (unsigned rank = 0; rank < LONG_RANKS; rank++)
		OK(tierd_step(step->jobs[rank], &rates, &step->tickets[rank]));
	for (unsigned rank = 0; rank < LONG_RANKS; rank++)
		OK(tierd_ticket_wait(step->tickets[rank], TIERD_DONE, -1));
}

static void run_partner(void (*behave)(struct long_step *), int from, int to)
{
	struct long_step step;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	long_step_join(&step, NAME);
	long_step_begin(&step);
	if (behave)
		behave(&step);
	say(to);
	hear(from);
	if (!behave)
		finish_and_go_on(&step);
	exit(0);
}

/* In the middle of a step; then it does what it is here for, and says that it has. */
static void partner_start(struct partner *partner, void (*behave)(struct long_step *))
{
	int to[2], from[2];

	REQUIRE(pipe(to) == 0 && pipe(from) == 0);
	partner->pid = fork();
	REQUIRE(partner->pid >= 0);
	if (partner->pid == 0)
		run_partner(behave, to[0], from[1]);
	close(to[0]);
	close(from[1]);
	partner->to = to[1];
	partner->from = from[0];
	hear(partner->from);
}

static void partner_end(struct partner *partner)
{
	int status;

	say(partner->to);
	REQUIRE(waitpid(partner->pid, &status, 0) == partner->pid && status == 0);
	close(partner->to);
	close(partner->from);
}

static void partner_kill(struct partner *partner)
{
	int status;

	REQUIRE(kill(partner->pid, SIGKILL) == 0);
	REQUIRE(waitpid(partner->pid, &status, 0) == partner->pid && WIFSIGNALED(status));
	close(partner->to);
	close(partner->from);
}

static void detach(struct long_step *step)
{
	for (unsigned rank = 0; rank < LONG_RANKS; rank++)
		OK(tierd_job_detach(step->jobs[rank]));
}

/* With leases, which stay as long as the process. */
static void disconnect(struct long_step *step)
{
	for (unsigned rank = 0; rank < LONG_RANKS; rank++)
		tierd_disconnect(step->nodes[rank]);
}

/* ---- Scenes ---- */

static void a_job_with_ranks_is_not_replaced(void)
{
	struct tierd_job_options options = replacement();
	struct tierd_node *node = support_connect();
	struct partner partner;
	struct tierd_job *job;
	unsigned tries = 0;
	bool was_applying;

	do {
		REQUIRE(++tries <= TRIES);
		partner_start(&partner, NULL);
		options.takeover = false;
		FAILS(tierd_job_open(node, &options, &job), -EBUSY,
		      "job " NAME " cannot be replaced: 2 of its ranks are alive");
		options.takeover = true;
		FAILS(tierd_job_open(node, &options, &job), -EBUSY,
		      "job " NAME " cannot be replaced: 2 of its ranks are alive");
		was_applying = look_at_step() == 0;
		partner_end(&partner);
		support_drop(NAME);
	} while (!was_applying);
	tierd_disconnect(node);
}

/* Its ranks leave it as the first function says, and their process lives on; or they are killed. */
static void a_job_is_replaced(void (*behave)(struct long_step *), const float *expected,
			      const struct usage *before)
{
	struct partner partner;
	unsigned tries = 0;
	bool was_applying;

	do {
		REQUIRE(++tries <= TRIES);
		partner_start(&partner, behave);
		if (!behave)
			partner_kill(&partner);
		was_applying = look_at_step() == 0;
		require_right_bits(expected);
		if (behave)
			partner_end(&partner);
		support_drop(NAME);
		wait_for_usage(before);
	} while (!was_applying);
}

/* The first of them replaces the old job, the second joins the new one. */
static void two_ranks_replace_it(const struct usage *before)
{
	struct tierd_job_options options = replacement();
	struct tierd_ticket *tickets[2];
	struct tierd_node *nodes[2];
	struct tierd_job *jobs[2];
	struct partner partner;

	partner_start(&partner, NULL);
	partner_kill(&partner);
	options.world_size = 2;
	for (options.rank = 0; options.rank < 2; options.rank++) {
		nodes[options.rank] = support_connect();
		OK(tierd_job_open(nodes[options.rank], &options, &jobs[options.rank]));
		define_new(jobs[options.rank]);
	}
	for (unsigned rank = 0; rank < 2; rank++)
		OK(tierd_job_ready_begin(jobs[rank], -1, &tickets[rank]));
	for (unsigned rank = 0; rank < 2; rank++) {
		struct tierd_job_state found;

		OK(tierd_ticket_wait(tickets[rank], TIERD_DONE, -1));
		OK(tierd_ticket_job_state(tickets[rank], &found));
		REQUIRE(found.status == TIERD_NEW && found.step == 0);
		tierd_ticket_free(tickets[rank]);
	}
	for (unsigned rank = 0; rank < 2; rank++) {
		OK(tierd_job_close(jobs[rank]));
		tierd_disconnect(nodes[rank]);
	}
	support_drop(NAME);
	wait_for_usage(before);
}

int main(void)
{
	struct usage before = look_at_tiers();
	float *expected = malloc(STATE_FLOATS * sizeof(*expected));

	REQUIRE(expected);
	replace_and_train(expected);
	support_drop(NAME);
	wait_for_usage(&before);
	require_right_bits(expected);
	support_drop(NAME);

	a_job_with_ranks_is_not_replaced();
	wait_for_usage(&before);
	a_job_is_replaced(NULL, expected, &before);
	a_job_is_replaced(detach, expected, &before);
	a_job_is_replaced(disconnect, expected, &before);
	two_ranks_replace_it(&before);
	free(expected);
	return 0;
}
