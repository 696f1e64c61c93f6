/* A rank dies while another one waits in every call that can wait: the call fails with an error that names
 * the dead rank, everything else says that the epoch has ended, and all go on. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crash_support.h"

#define ELEMENTS 1000
#define LOST "rank 1 (pid "

enum { UNITS = 4 };

struct scene {
	struct tierd_node *node;
	struct tierd_job *job;
	pid_t victim;
	int wake; /* closing it ends the victim */
	uint64_t step;
};

/* Rank 1 joins, is ready, says so, and kills itself when it is told to. */
static void play_victim(const char *name, int go, int tell)
{
	struct tierd_node *node = support_connect();
	struct tierd_job_options options = support_options(name, 1, 2);
	struct tierd_job *job = support_join(node, &options, UNITS);
	char byte = 0;

	OK(tierd_job_ready(job, -1, NULL));
	REQUIRE(write(tell, &byte, 1) == 1);
	REQUIRE(read(go, &byte, 1) >= 0);
	kill(getpid(), SIGKILL);
}

static void start_victim(struct scene *scene, const char *name)
{
	int go[2], tell[2];
	struct tierd_job_state state;
	char byte;

	REQUIRE(pipe(go) == 0 && pipe(tell) == 0);
	scene->victim = fork();
	REQUIRE(scene->victim >= 0);
	if (scene->victim == 0) {
		close(go[1]);
		play_victim(name, go[0], tell[1]);
	}
	close(go[0]);
	close(tell[1]);
	scene->wake = go[1];
	OK(tierd_job_ready(scene->job, -1, &state));
	REQUIRE(state.step == scene->step);
	REQUIRE(read(tell[0], &byte, 1) == 1);
	close(tell[0]);
}

static void kill_victim(struct scene *scene)
{
	int status;

	close(scene->wake);
	REQUIRE(waitpid(scene->victim, &status, 0) == scene->victim);
}

/* The victim dies by itself while this process is in a call. */
static void let_victim_die(struct scene *scene)
{
	close(scene->wake);
}

static void reap_victim(struct scene *scene)
{
	REQUIRE(waitpid(scene->victim, NULL, 0) == scene->victim);
}

/* ---- What waits ---- */

static void step_is_told(struct scene *scene)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };

	let_victim_die(scene);
	FAILS(tierd_step(scene->job, &rates, NULL), -ESTALE, LOST);
	reap_victim(scene);
}

static void ticket_and_its_descriptor_are_told(struct scene *scene)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_ticket *ticket;

	OK(tierd_step(scene->job, &rates, &ticket));
	struct pollfd waiting = { .fd = tierd_ticket_descriptor(ticket), .events = POLLIN };

	let_victim_die(scene);
	int r;

	do {
		REQUIRE(poll(&waiting, 1, PATIENCE_MS) == 1);
		r = tierd_ticket_wait(ticket, TIERD_DONE, 0);
	} while (r == -ETIMEDOUT);
	FAILS(r, -ESTALE, LOST);
	FAILS(tierd_ticket_wait(ticket, TIERD_DURABLE, 0), -ESTALE, LOST);
	tierd_ticket_free(ticket);
	reap_victim(scene);
}

/* Its step's version can only come with the other rank's part. */
static void gather_is_told(struct scene *scene)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_ticket *ticket;
	struct tierd_view view;

	OK(support_push(scene->job, 0, ELEMENTS, 1.0f));
	OK(tierd_step(scene->job, &rates, &ticket));
	let_victim_die(scene);
	FAILS(tierd_gather(scene->job, 0, &view), -ESTALE, LOST);
	FAILS(tierd_ticket_wait(ticket, TIERD_DONE, -1), -ESTALE, LOST);
	tierd_ticket_free(ticket);
	reap_victim(scene);
}

static void read_is_told(struct scene *scene)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_ticket *ticket;
	float value;

	OK(tierd_step(scene->job, &rates, &ticket));
	let_victim_die(scene);
	FAILS(tierd_tensor_read(scene->job, 0, 0, "parameter", 0, 1, &value), -ESTALE, LOST);
	tierd_ticket_free(ticket);
	reap_victim(scene);
}

static void push_is_told(struct scene *scene)
{
	struct tierd_view gradients;
	struct tierd_ticket *ticket;

	OK(tierd_gradients(scene->job, 2, &gradients));
	OK(tierd_push_begin(scene->job, 2, &ticket));
	let_victim_die(scene);
	FAILS(tierd_ticket_wait(ticket, TIERD_DONE, -1), -ESTALE, LOST);
	tierd_ticket_free(ticket);
	reap_victim(scene);
}

/* ---- Afterwards ---- */

/* Whoever asks after the daemon has seen it hears it; the directory says so to the hot path. */
static void hear_of_it(struct scene *scene)
{
	struct tierd_job_state state;

	while (tierd_job_state(scene->job, &state) == 0)
		;
}

/* Everything but release, discard, ready and the closing calls. */
static void everything_is_stale(struct scene *scene)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;
	struct tierd_view held, view;
	struct tierd_ticket *ticket;
	struct tierd_job_state state;
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	const uint32_t units[] = { 0 };
	uint64_t first, count;
	uint32_t unit;
	float value;

	OK(tierd_gather(scene->job, 1, &held));
	OK(tierd_gradients(scene->job, 3, &view));
	kill_victim(scene);
	hear_of_it(scene);
	FAILS(tierd_job_state(scene->job, &state), -ESTALE, LOST);
	FAILS(tierd_gather(scene->job, 0, &view), -ESTALE, LOST);
	FAILS(tierd_gather_begin(scene->job, 0, &ticket), -ESTALE, LOST);
	FAILS(tierd_prefetch(scene->job, units, 1), -ESTALE, LOST);
	FAILS(tierd_phase(scene->job, "eval"), -ESTALE, LOST);
	FAILS(tierd_gradients(scene->job, 0, &view), -ESTALE, LOST);
	FAILS(tierd_push(scene->job, 3), -ESTALE, LOST);
	FAILS(tierd_push_begin(scene->job, 3, &ticket), -ESTALE, LOST);
	FAILS(tierd_step(scene->job, &rates, NULL), -ESTALE, LOST);
	FAILS(tierd_step_begin(scene->job, &rates, 1), -ESTALE, LOST);
	FAILS(tierd_tensor_read(scene->job, 0, 0, "m", 0, 1, &value), -ESTALE, LOST);
	FAILS(tierd_tensor_write(scene->job, 0, 0, 0, 1, &value, false), -ESTALE, LOST);
	FAILS(tierd_tensor_shard(scene->job, 0, 0, &first, &count), -ESTALE, LOST);
	FAILS(tierd_unit_define(scene->job, "more", &tensor, 1, &unit), -ESTALE, LOST);
	FAILS(tierd_statistics(scene->job, &statistics), -ESTALE, LOST);
	/* The values under a lease stay. */
	REQUIRE(((const float *)tierd_at(&held, 0))[ELEMENTS - 1] == 1.0f);
	OK(tierd_release(scene->job, 1));
	FAILS(tierd_release(scene->job, 1), -EINVAL, "without having been gathered");
	OK(tierd_discard(scene->job, 3));
	FAILS(tierd_job_ready(scene->job, 0, NULL), -ETIMEDOUT, "rank 1 (has not joined)");
}

/* What was pushed into the dead epoch is not in the step of the next one. */
static void dead_gradients_are_dropped(struct scene *scene)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_step_result result;
	struct tierd_ticket *ticket;
	pid_t partner;

	OK(support_push(scene->job, 0, ELEMENTS, 1000.0f));
	OK(support_push(scene->job, 1, ELEMENTS, 1000.0f));
	kill_victim(scene);
	/* Ready before that would be in the epoch that ends. */
	hear_of_it(scene);
	partner = fork();
	REQUIRE(partner >= 0);
	if (partner == 0) {
		struct tierd_node *node = support_connect();
		struct tierd_job_options options = support_options("epoch", 1, 2);
		struct tierd_job *job = support_join(node, &options, UNITS);

		OK(tierd_job_ready(job, -1, NULL));
		OK(tierd_step(job, &rates, NULL));
		OK(tierd_job_close(job));
		tierd_disconnect(node);
		exit(0);
	}
	OK(tierd_job_ready(scene->job, -1, NULL));
	OK(support_push(scene->job, 0, ELEMENTS, 2.0f));
	OK(tierd_step(scene->job, &rates, &ticket));
	OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
	OK(tierd_ticket_step_result(ticket, &result));
	OK(tierd_ticket_wait(ticket, TIERD_DURABLE, -1));
	tierd_ticket_free(ticket);
	REQUIRE(result.step == scene->step + 1 && !result.is_skipped);
	REQUIRE(result.gradient_norm > 63.2 && result.gradient_norm < 63.3); /* 2 · √1000 */
	scene->step = result.step;
	int status;

	REQUIRE(waitpid(partner, &status, 0) == partner && status == 0);
}

int main(void)
{
	static void (*const scenes[])(struct scene *) = {
		step_is_told,
		ticket_and_its_descriptor_are_told,
		gather_is_told,
		read_is_told,
		push_is_told,
		everything_is_stale,
		dead_gradients_are_dropped,
	};
	struct tierd_job_options options = support_options("epoch", 0, 2);
	struct scene scene = { .node = support_connect() };

	scene.job = support_join(scene.node, &options, UNITS);
	for (unsigned i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
		start_victim(&scene, "epoch");
		scenes[i](&scene);
	}
	OK(tierd_job_detach(scene.job));
	tierd_disconnect(scene.node);
	support_drop("epoch");
	return 0;
}
