/* Two ranks gather the same and different units from a store that fails at times.
 *
 *   contention read ERRORS MESSAGE   at least ERRORS gathers fail with -EIO, naming the unit and the MESSAGE;
 * the next try succeeds; no byte is ever wrong contention lasting MESSAGE       as read, but a unit whose
 * gather fails keeps failing contention write                 an update fails: the job is broken, for all
 * ranks, and another job goes on contention survive               a write fails once: another place is found
 * for it, nobody notices */
#include <errno.h>
#include <string.h>

#include "crash_support.h"

#define UNITS 6
#define SLOTS 2
/* More than half a pack: every unit is one of its own. */
#define ELEMENTS UINT64_C(540672)
#define UNIT_BYTES (4 * ELEMENTS)

struct rank {
	struct tierd_node *node;
	struct tierd_job *job;
};

static unsigned errors;

static void join(struct rank *rank, unsigned number, const char *job_name)
{
	struct tierd_job_options options = support_options(job_name, number, 2);
	char name[16];

	/* Sums, 2 · (2 + 1) gradient buffers, windows, slots, and change. */
	options.host_budget = UNITS * UNIT_BYTES + (6 + SLOTS) * UNIT_BYTES + (3 << 20);
	rank->node = support_connect();
	OK(tierd_job_open(rank->node, &options, &rank->job));
	for (unsigned unit = 0; unit < UNITS; unit++) {
		snprintf(name, sizeof(name), "weights%u", unit);
		support_define(rank->job, name, TIERD_FP32, ELEMENTS, unit + 1);
	}
}

static int begin(struct rank *ranks, const char *job_name)
{
	struct tierd_ticket *tickets[2];
	int r;

	for (unsigned i = 0; i < 2; i++)
		join(&ranks[i], i, job_name);
	for (unsigned i = 0; i < 2; i++)
		OK(tierd_job_ready_begin(ranks[i].job, -1, &tickets[i]));
	for (unsigned i = 0; i < 2; i++) {
		r = tierd_ticket_wait(tickets[i], TIERD_DONE, -1);
		tierd_ticket_free(tickets[i]);
	}
	return r;
}

static void leave(struct rank *ranks)
{
	for (unsigned i = 0; i < 2; i++) {
		OK(tierd_job_detach(ranks[i].job));
		tierd_disconnect(ranks[i].node);
	}
}

static void require_values(const struct tierd_view *view, unsigned unit)
{
	const float *values = tierd_at(view, 0);

	for (uint64_t i = 0; i < ELEMENTS; i++)
		REQUIRE(values[i] == (float)(unit + 1));
}

static void expect_read_error(int r, unsigned unit, const char *text)
{
	char name[32];

	snprintf(name, sizeof(name), "unit \"weights%u\"", unit);
	FAILS(r, -EIO, name);
	REQUIRE(strstr(tierd_message(), " cannot be read: ") && strstr(tierd_message(), text));
	errors++;
}

/* Both ranks at once; 0 if both have got it, and all that they got is right. */
static int gather_both(struct rank *ranks, unsigned first, unsigned second, const char *text)
{
	const unsigned units[] = { first, second };
	struct tierd_ticket *tickets[2];
	struct tierd_view view;
	int result = 0;

	for (unsigned i = 0; i < 2; i++)
		OK(tierd_gather_begin(ranks[i].job, units[i], &tickets[i]));
	for (unsigned i = 0; i < 2; i++) {
		int r = tierd_gather_end(tickets[i], PATIENCE_MS, &view);

		if (r == 0) {
			require_values(&view, units[i]);
			OK(tierd_release(ranks[i].job, units[i]));
		} else {
			expect_read_error(r, units[i], text);
			result = r;
		}
	}
	return result;
}

static void read_all(const char *text, unsigned least, bool is_lasting)
{
	struct rank ranks[2];

	OK(begin(ranks, "read"));
	for (unsigned i = 0; i < 4 * UNITS; i++) {
		unsigned first = i % UNITS, second = i / UNITS % 2 == 0 ? first : (first + 3) % UNITS;

		if (gather_both(ranks, first, second, text) < 0 && !is_lasting)
			OK(gather_both(ranks, first, second, text));
	}
	printf("%u gathers failed\n", errors);
	REQUIRE(errors >= least);
	/* Not one that was not told is lost: what has failed holds no slot, no lease. */
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_ticket *ticket;

	OK(tierd_step(ranks[0].job, &rates, &ticket));
	OK(tierd_step(ranks[1].job, &rates, NULL));
	OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
	tierd_ticket_free(ticket);
	leave(ranks);
	support_drop("read");
}

/* A job in host memory alone, which does not care. */
static struct tierd_job *join_other(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("other", 0, 1);
	struct tierd_job *job;

	options.durability = TIERD_DURABILITY_NONE;
	options.parameter_placement = options.optimizer_placement = TIERD_PLACE_HOST;
	job = support_join(node, &options, 2);
	OK(tierd_job_ready(job, -1, NULL));
	return job;
}

static void train_other(struct tierd_job *job)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };

	OK(support_push(job, 0, 1000, 1.0f));
	OK(tierd_step(job, &rates, NULL));
}

static void expect_broken(struct rank *rank)
{
	struct tierd_view view;

	FAILS(tierd_job_ready(rank->job, -1, NULL), -EIO, "job write ");
	REQUIRE(strstr(tierd_message(), "cannot be "));
	/* A unit's extent, or the map's node of a commit: whichever write it was. */
	FAILS(tierd_gather(rank->job, 0, &view), -ESTALE, "cannot be ");
}

/* Up to so many steps; false: one has failed, and the job is broken for both, unless it was a gather that
 * failed. */
static bool train_both(struct rank *ranks, unsigned steps)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_ticket *tickets[2];
	bool has_failed_gather = false;
	int r[2] = { 0, 0 };

	for (unsigned step = 0; step < steps && r[0] == 0 && r[1] == 0; step++) {
		for (unsigned i = 0; i < 2; i++) {
			for (unsigned unit = 0; r[i] == 0 && unit < UNITS; unit++)
				if (unit % 2 == i)
					r[i] = support_push(ranks[i].job, unit, ELEMENTS, 1.0f);
			has_failed_gather |= r[i] < 0 && strstr(tierd_message(), " cannot be read: ");
			if (r[i] == 0)
				r[i] = tierd_step(ranks[i].job, &rates, &tickets[i]);
			if (r[i] < 0)
				tickets[i] = NULL;
		}
		for (unsigned i = 0; i < 2; i++) {
			/* Who has failed does not close the step, which the other one would wait for. */
			if (tickets[i] && !has_failed_gather)
				r[i] = tierd_ticket_wait(tickets[i], TIERD_DONE, -1);
			tierd_ticket_free(tickets[i]);
		}
	}
	if (r[0] == 0 && r[1] == 0)
		return true;
	for (unsigned i = 0; i < 2 && !has_failed_gather; i++) {
		REQUIRE(r[i] == -EIO || r[i] == -ESTALE);
		expect_broken(&ranks[i]);
	}
	return false;
}

static void write_all(void)
{
	struct tierd_node *node = support_connect();
	struct tierd_job *other = join_other(node);
	struct rank ranks[2];
	int r = begin(ranks, "write");

	if (r == 0)
		REQUIRE(!train_both(ranks, 20));
	else
		FAILS(r, -EIO, "cannot be written to");
	train_other(other);
	leave(ranks);
	train_other(other);
	OK(tierd_job_close(other));
	tierd_disconnect(node);
	support_drop("other");
}

/* At a learning rate of 0 the values stay, however often they are written. */
static void survive(void)
{
	struct rank ranks[2];

	OK(begin(ranks, "survive"));
	REQUIRE(train_both(ranks, 3));
	for (unsigned unit = 0; unit < UNITS; unit++)
		OK(gather_both(ranks, unit, unit, ""));
	leave(ranks);
	support_drop("survive");
}

int main(int argc, char *argv[])
{
	REQUIRE(argc >= 2);
	if (strcmp(argv[1], "read") == 0 && argc == 4)
		read_all(argv[3], (unsigned)strtoul(argv[2], NULL, 10), false);
	else if (strcmp(argv[1], "lasting") == 0 && argc == 3)
		read_all(argv[2], 1, true);
	else if (strcmp(argv[1], "survive") == 0)
		survive();
	else
		write_all();
	return 0;
}
