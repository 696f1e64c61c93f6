/* Tickets and poll(): when the descriptor is readable, and what is late, given up or left behind. What
 * becomes of gathers and tickets that are given up is shown by the unit tests of the library, too. */
#include <errno.h>
#include <poll.h>

#include "crash_support.h"

#define ELEMENTS 1000
#define UNITS 4

/* Two ranks in one process: what one waits for, the other does, or not. */
struct pair {
	const char *name;
	struct tierd_node *nodes[2];
	struct tierd_job *jobs[2];
	uint64_t steps;
};

static struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };

/* ---- poll() ---- */

static void poll_wait(const struct tierd_ticket *ticket)
{
	struct pollfd waiting = { .fd = tierd_ticket_descriptor(ticket), .events = POLLIN };

	REQUIRE(waiting.fd >= 0);
	REQUIRE(poll(&waiting, 1, PATIENCE_MS) == 1 && waiting.revents == POLLIN);
}

static bool poll_is_readable(int fd)
{
	struct pollfd waiting = { .fd = fd, .events = POLLIN };
	int r = poll(&waiting, 1, 0);

	REQUIRE(r >= 0);
	return r == 1;
}

static int poll_for(struct tierd_ticket *ticket, enum tierd_event event)
{
	int r = tierd_ticket_wait(ticket, event, 0);

	while (r == -ETIMEDOUT) {
		poll_wait(ticket);
		r = tierd_ticket_wait(ticket, event, 0);
	}
	return r;
}

/* ---- Two ranks ---- */

static void join(struct pair *pair, unsigned rank)
{
	struct tierd_job_options options = support_options(pair->name, rank, 2);

	pair->nodes[rank] = support_connect();
	pair->jobs[rank] = support_join(pair->nodes[rank], &options, UNITS);
}

static void get_ready(struct pair *pair)
{
	struct tierd_ticket *tickets[2];

	for (unsigned rank = 0; rank < 2; rank++)
		OK(tierd_job_ready_begin(pair->jobs[rank], -1, &tickets[rank]));
	for (unsigned rank = 0; rank < 2; rank++) {
		OK(poll_for(tickets[rank], TIERD_DONE));
		tierd_ticket_free(tickets[rank]);
	}
}

static void begin_pair(struct pair *pair, const char *name)
{
	pair->name = name;
	for (unsigned rank = 0; rank < 2; rank++)
		join(pair, rank);
	get_ready(pair);
}

static void end_pair(struct pair *pair)
{
	for (unsigned rank = 0; rank < 2; rank++) {
		OK(tierd_job_detach(pair->jobs[rank]));
		tierd_disconnect(pair->nodes[rank]);
	}
	support_drop(pair->name);
}

/* What tierd has to say to this rank has come, and was read. */
static void settle(struct tierd_job *job)
{
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;

	OK(tierd_statistics(job, &statistics));
}

/* Rank 1 takes its part in the step, and has seen it applied. */
static void follow(struct pair *pair)
{
	OK(tierd_step(pair->jobs[1], &rates, NULL));
	pair->steps++;
}

/* Both have a whole step ahead of them, and nothing in its way. */
static void both_go_on(struct pair *pair)
{
	struct tierd_ticket *ticket;
	struct tierd_step_result result;

	for (unsigned rank = 0; rank < 2; rank++)
		OK(support_push(pair->jobs[rank], 0, ELEMENTS, 1.0f));
	OK(tierd_step(pair->jobs[0], &rates, &ticket));
	follow(pair);
	OK(poll_for(ticket, TIERD_DONE));
	OK(tierd_ticket_step_result(ticket, &result));
	tierd_ticket_free(ticket);
	REQUIRE(result.step == pair->steps);
}

/* ---- When it is readable ---- */

/* Of a step, a gather that waits for it, and one of another unit. */
static void the_descriptor_is_readable_when_something_is_done(void)
{
	struct pair pair = { 0 };
	struct tierd_ticket *step, *gathers[2];
	struct tierd_view view;
	int fd;

	begin_pair(&pair, "readable");
	OK(tierd_step(pair.jobs[0], &rates, &step));
	fd = tierd_ticket_descriptor(step);
	for (unsigned i = 0; i < 2; i++) {
		OK(tierd_gather_begin(pair.jobs[0], i, &gathers[i]));
		REQUIRE(tierd_ticket_descriptor(gathers[i]) == fd);
	}
	settle(pair.jobs[0]);
	REQUIRE(!poll_is_readable(fd));
	FAILS(tierd_ticket_wait(step, TIERD_DONE, 0), -ETIMEDOUT, "tierd goes on with it");
	FAILS(tierd_gather_end(gathers[0], 0, &view), -ETIMEDOUT, "tierd goes on with it");
	REQUIRE(!poll_is_readable(fd));

	follow(&pair);
	OK(poll_for(gathers[1], TIERD_DONE));
	OK(poll_for(step, TIERD_DONE));
	OK(poll_for(step, TIERD_DURABLE));
	OK(poll_for(gathers[0], TIERD_DONE));
	settle(pair.jobs[0]);
	REQUIRE(!poll_is_readable(fd));
	for (unsigned i = 0; i < 2; i++) {
		OK(tierd_gather_end(gathers[i], 0, &view));
		REQUIRE(view.version == 1);
		OK(tierd_release(pair.jobs[0], i));
	}
	tierd_ticket_free(step);
	both_go_on(&pair);
	end_pair(&pair);
}

/* It stays readable for the ticket that nobody has looked at, whoever has read the socket. */
static void one_look_does_not_hide_another_ticket(void)
{
	struct pair pair = { 0 };
	struct tierd_ticket *step, *gather;
	struct tierd_view view;
	int fd;

	begin_pair(&pair, "hidden");
	OK(tierd_step(pair.jobs[0], &rates, &step));
	OK(tierd_gather_begin(pair.jobs[0], 2, &gather));
	fd = tierd_ticket_descriptor(step);
	follow(&pair);
	settle(pair.jobs[0]);
	REQUIRE(poll_is_readable(fd));
	OK(tierd_ticket_wait(step, TIERD_DONE, 0));
	REQUIRE(poll_is_readable(fd));
	tierd_ticket_free(step);
	REQUIRE(poll_is_readable(fd));
	OK(tierd_gather_end(gather, 0, &view));
	REQUIRE(!poll_is_readable(fd));
	OK(tierd_release(pair.jobs[0], 2));
	both_go_on(&pair);
	end_pair(&pair);
}

/* Nothing comes through the socket; and the descriptor may be asked for late. */
static void a_ticket_that_is_done_at_once_is_seen(void)
{
	struct pair pair = { 0 };
	struct tierd_ticket *ready, *gathers[2];
	struct tierd_view view;
	int fd;

	pair.name = "at-once";
	for (unsigned rank = 0; rank < 2; rank++)
		join(&pair, rank);
	OK(tierd_job_ready_begin(pair.jobs[1], -1, &ready));
	OK(tierd_job_ready(pair.jobs[0], -1, NULL));
	OK(poll_for(ready, TIERD_DONE));
	tierd_ticket_free(ready);
	OK(tierd_gather(pair.jobs[0], 1, &view));
	OK(tierd_gather_begin(pair.jobs[0], 1, &gathers[0]));
	fd = tierd_ticket_descriptor(gathers[0]);
	REQUIRE(poll_is_readable(fd));
	OK(tierd_ticket_wait(gathers[0], TIERD_DONE, 0));
	REQUIRE(!poll_is_readable(fd));
	OK(tierd_gather_begin(pair.jobs[0], 1, &gathers[1]));
	REQUIRE(poll_is_readable(fd));
	tierd_ticket_free(gathers[1]);
	REQUIRE(!poll_is_readable(fd));
	tierd_ticket_free(gathers[0]);
	OK(tierd_release(pair.jobs[0], 1));
	FAILS(tierd_release(pair.jobs[0], 1), -EINVAL, "without having been gathered");
	both_go_on(&pair);
	end_pair(&pair);
}

/* Such as the answer to a hint: it would keep the descriptor readable for ever. */
static void a_look_takes_in_what_no_ticket_waits_for(void)
{
	struct pair pair = { 0 };
	const uint32_t soon[] = { 3 };
	struct tierd_ticket *gather;
	struct tierd_view view;

	begin_pair(&pair, "hint");
	OK(tierd_gather_begin(pair.jobs[0], 0, &gather));
	OK(poll_for(gather, TIERD_DONE));
	OK(tierd_prefetch(pair.jobs[0], soon, 1));
	poll_wait(gather);
	OK(tierd_ticket_wait(gather, TIERD_DONE, 0));
	REQUIRE(!poll_is_readable(tierd_ticket_descriptor(gather)));
	OK(tierd_gather_end(gather, 0, &view));
	OK(tierd_release(pair.jobs[0], 0));
	both_go_on(&pair);
	end_pair(&pair);
}

/* ---- Deadlines ---- */

static void what_is_late_goes_on(void)
{
	struct pair pair = { 0 };
	struct tierd_ticket *step, *gather;
	struct tierd_step_result result;
	struct tierd_view view;

	begin_pair(&pair, "late");
	OK(support_push(pair.jobs[0], 0, ELEMENTS, 2.0f));
	OK(tierd_step(pair.jobs[0], &rates, &step));
	OK(tierd_gather_begin(pair.jobs[0], 0, &gather));
	FAILS(tierd_ticket_wait(step, TIERD_DONE, 1), -ETIMEDOUT, "tierd goes on with it");
	FAILS(tierd_ticket_step_result(step, &result), -EAGAIN, "is not done yet");
	FAILS(tierd_gather_end(gather, 1, &view), -ETIMEDOUT, "tierd goes on with it");
	OK(tierd_set_timeout(pair.nodes[0], 1));
	FAILS(tierd_ticket_wait(step, TIERD_DONE, -1), -ETIMEDOUT, "tierd goes on with it");
	FAILS(tierd_gather_end(gather, -1, &view), -ETIMEDOUT, "tierd goes on with it");
	FAILS(tierd_gather(pair.jobs[0], 3, &view), -ETIMEDOUT, "tierd goes on with it");
	OK(tierd_set_timeout(pair.nodes[0], PATIENCE_MS));

	follow(&pair);
	OK(poll_for(step, TIERD_DONE));
	OK(tierd_ticket_step_result(step, &result));
	REQUIRE(result.step == 1 && !result.is_skipped);
	REQUIRE(result.gradient_norm > 63.2 && result.gradient_norm < 63.3); /* 2 · √1000 */
	tierd_ticket_free(step);
	OK(poll_for(gather, TIERD_DONE));
	OK(tierd_gather_end(gather, 0, &view));
	REQUIRE(view.version == 1);
	OK(tierd_release(pair.jobs[0], 0));
	FAILS(tierd_release(pair.jobs[0], 3), -EINVAL, "without having been gathered");
	both_go_on(&pair);
	end_pair(&pair);
}

/* Here tierd keeps the time, so it is the request that has failed: only its result tells. */
static void a_rank_that_is_late_is_named(void)
{
	struct pair pair = { .name = "missing" };
	struct tierd_ticket *ticket;
	struct tierd_job_state state;

	join(&pair, 0);
	OK(tierd_job_ready_begin(pair.jobs[0], 1, &ticket));
	FAILS(tierd_ticket_job_state(ticket, &state), -EAGAIN, "is not done yet");
	poll_wait(ticket);
	FAILS(tierd_ticket_wait(ticket, TIERD_DONE, 0), -ETIMEDOUT, "rank 1 (has not joined)");
	FAILS(tierd_ticket_job_state(ticket, &state), -ETIMEDOUT, "rank 1 (has not joined)");
	tierd_ticket_free(ticket);
	join(&pair, 1);
	get_ready(&pair);
	both_go_on(&pair);
	end_pair(&pair);
}

/* ---- Given up ---- */

/* One that cannot block is refused until the answer has come. */
static void a_ready_given_up_is_found_by_the_next_ticket(void)
{
	struct pair pair = { .name = "ready" };
	struct tierd_job_state state;
	struct tierd_ticket *ticket;
	int r;

	for (unsigned rank = 0; rank < 2; rank++)
		join(&pair, rank);
	OK(tierd_job_ready_begin(pair.jobs[0], -1, &ticket));
	tierd_ticket_free(ticket);
	FAILS(tierd_job_ready_begin(pair.jobs[0], -1, &ticket), -EALREADY, "still waits");
	OK(tierd_job_ready(pair.jobs[1], -1, NULL));
	do
		r = tierd_job_ready_begin(pair.jobs[0], -1, &ticket);
	while (r == -EALREADY);
	OK(r);
	OK(poll_for(ticket, TIERD_DONE));
	OK(tierd_ticket_job_state(ticket, &state));
	tierd_ticket_free(ticket);
	REQUIRE(state.status == TIERD_NEW && state.step == 0);
	both_go_on(&pair);
	end_pair(&pair);
}

/* ---- Left behind ---- */

/* tierd may hear of this rank's next step before it hears that the other has gone; that step would count. */
static void await_loss(struct tierd_job *job)
{
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;
	int r;

	do
		r = tierd_statistics(job, &statistics);
	while (r == 0);
	REQUIRE(r == -ESTALE);
}

static void tickets_of_a_job_that_is_left_are_told(void)
{
	struct pair pair = { 0 };
	struct tierd_ticket *tickets[3];
	struct tierd_step_result result;
	struct tierd_view view;
	int fd;

	begin_pair(&pair, "left");
	OK(tierd_gradients(pair.jobs[0], 0, &view));
	OK(tierd_push_begin(pair.jobs[0], 0, &tickets[0]));
	OK(tierd_step(pair.jobs[0], &rates, &tickets[1]));
	OK(tierd_gather_begin(pair.jobs[0], 0, &tickets[2]));
	fd = tierd_ticket_descriptor(tickets[2]);
	REQUIRE(fd >= 0);
	OK(tierd_job_detach(pair.jobs[0]));
	REQUIRE(poll_is_readable(fd));
	for (unsigned i = 0; i < 2; i++) {
		int r = tierd_ticket_wait(tickets[i], TIERD_DONE, -1);

		/* The push may have been summed before. */
		REQUIRE(r == -ECANCELED || r == -ESTALE || (i == 0 && r == 0));
	}
	REQUIRE(tierd_ticket_step_result(tickets[1], &result) < 0);
	tierd_ticket_free(tickets[0]);
	tierd_ticket_free(tickets[1]);
	REQUIRE(tierd_gather_end(tickets[2], -1, &view) < 0);

	/* The other rank is told, and both begin again. */
	tierd_disconnect(pair.nodes[0]);
	await_loss(pair.jobs[1]);
	FAILS(tierd_step(pair.jobs[1], &rates, NULL), -ESTALE, "rank 0 (pid ");
	join(&pair, 0);
	get_ready(&pair);
	both_go_on(&pair);
	end_pair(&pair);
}

int main(void)
{
	static void (*const scenes[])(void) = {
		the_descriptor_is_readable_when_something_is_done,
		one_look_does_not_hide_another_ticket,
		a_ticket_that_is_done_at_once_is_seen,
		a_look_takes_in_what_no_ticket_waits_for,
		what_is_late_goes_on,
		a_rank_that_is_late_is_named,
		a_ready_given_up_is_found_by_the_next_ticket,
		tickets_of_a_job_that_is_left_are_told,
	};

	for (unsigned i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
		scenes[i]();
	return 0;
}
