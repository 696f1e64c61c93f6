/* A rank of a job whose commits come seldom, or never: what makes one due, and how many steps may wait for
 * it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crash_support.h"

#define ELEMENTS 1000
/* More than the daemon lets wait for a commit, and more than it takes requests of a connection. */
#define MANY_STEPS 1300
#define FEW_STEPS 5

static struct tierd_node *node;
static struct tierd_job *job;

static void join(const char *name, const char *durability)
{
	struct tierd_job_options options = support_options(name, 0, 1);

	node = support_connect();
	options.durability = strcmp(durability, "none") == 0   ? TIERD_DURABILITY_NONE
			     : strcmp(durability, "step") == 0 ? TIERD_DURABILITY_STEP
							       : (uint32_t)atoi(durability);
	job = support_begin(node, &options, 1);
}

/* The last step is applied; its ticket is the caller's. */
static struct tierd_ticket *train(unsigned steps)
{
	struct tierd_rates rates = support_rates(0.1f);
	struct tierd_ticket *ticket = NULL;

	for (unsigned step = 0; step < steps; step++) {
		tierd_ticket_free(ticket);
		OK(support_push(job, 0, ELEMENTS, 1.0f));
		OK(tierd_step(job, &rates, &ticket));
		OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
	}
	return ticket;
}

static void expect_step(struct tierd_ticket *ticket, uint64_t step)
{
	struct tierd_step_result result;

	OK(tierd_ticket_step_result(ticket, &result));
	REQUIRE(result.step == step);
}

static void many_steps_wait_for_one_commit(const char *name, const char *durability)
{
	struct tierd_ticket *ticket;

	join(name, durability);
	ticket = train(MANY_STEPS);
	expect_step(ticket, MANY_STEPS);
	FAILS(tierd_ticket_wait(ticket, TIERD_DURABLE, 0), -ETIMEDOUT, "tierd_step");
	OK(tierd_ticket_wait(ticket, TIERD_DURABLE, -1));
	tierd_ticket_free(ticket);
	OK(tierd_job_detach(job));
}

/* Who waits from before the step is applied on waits no longer. */
static void who_waits_before_it_is_applied_is_served(const char *name, const char *durability)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };

	join(name, durability);
	for (unsigned step = 0; step < FEW_STEPS; step++) {
		support_step(&job, 1, &rates, TIERD_DURABLE);
	}
	OK(tierd_job_detach(job));
}

static void a_rank_that_closes_has_made_its_steps_durable(const char *name, const char *durability)
{
	join(name, durability);
	tierd_ticket_free(train(FEW_STEPS));
	OK(tierd_job_close(job));
}

/* Until whoever has started it says so. */
static void a_rank_stays(const char *name, const char *durability)
{
	char byte;

	join(name, durability);
	tierd_ticket_free(train(FEW_STEPS));
	REQUIRE(write(STDOUT_FILENO, "\n", 1) == 1);
	REQUIRE(read(STDIN_FILENO, &byte, 1) == 1);
	(void)tierd_job_detach(job);
}

static void nothing_is_durable(const char *name, const char *durability)
{
	struct tierd_ticket *ticket;

	join(name, durability);
	ticket = train(FEW_STEPS);
	FAILS(tierd_ticket_wait(ticket, TIERD_DURABLE, -1), -EOPNOTSUPP, "it was opened so");
	tierd_ticket_free(ticket);
	OK(tierd_job_close(job));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(const char *name, const char *durability);
	} parts[] = {
		{ "many", many_steps_wait_for_one_commit },
		{ "early", who_waits_before_it_is_applied_is_served },
		{ "close", a_rank_that_closes_has_made_its_steps_durable },
		{ "stay", a_rank_stays },
		{ "none", nothing_is_durable },
	};

	REQUIRE(argc == 4);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (strcmp(parts[i].name, argv[1]) == 0) {
			parts[i].run(argv[2], argv[3]);
			tierd_disconnect(node);
			return 0;
		}
	support_fail(__FILE__, __LINE__, argv[1]);
}
