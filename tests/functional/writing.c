/* Values that ranks write between two steps.
 *
 *   writing                        calls at the right time and the wrong one, and a rank that is killed in
 * the middle writing train JOB PLACE STEP   a rank that reconnects: finds the job at that step with the
 * values that belong to it, writes others, says "written" on descriptor 3, and ends with its values durable;
 * or, if the daemon is killed before, with what tierd_job_ready says */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crash_support.h"

#define ELEMENTS 1000
#define UNITS 3
#define LARGE 700000 /* more than a window has room for */

static struct tierd_rates rates(void)
{
	struct tierd_rates rates = support_rates(0.125f);

	return rates;
}

static void take_step(struct tierd_job *job)
{
	struct tierd_rates of_step = rates();

	OK(support_push(job, 0, ELEMENTS, 1.0f));
	OK(tierd_step(job, &of_step, NULL));
}

/* ---- Values ---- */

static float value_of(uint64_t at, unsigned which)
{
	return (float)(which * 10000 + at) + 0.25f;
}

static void write_all(struct tierd_job *job, unsigned which)
{
	static float values[LARGE];

	for (uint64_t i = 0; i < LARGE; i++)
		values[i] = value_of(i, which);
	OK(tierd_tensor_write(job, UNITS, 0, 0, LARGE, values, true));
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		OK(tierd_tensor_write(job, unit, 0, 0, ELEMENTS, values, false));
		OK(tierd_tensor_write_state(job, unit, 0, "exp_avg", which, 0, ELEMENTS, values));
		OK(tierd_tensor_write_state(job, unit, 0, "v", which, 10, ELEMENTS - 10, values));
	}
}

static void expect_values(struct tierd_job *job, uint32_t unit, const char *state, uint64_t count,
			  unsigned which)
{
	static float values[LARGE];

	OK(tierd_tensor_read(job, unit, 0, state, 0, count, values));
	for (uint64_t i = 0; i < count; i++)
		REQUIRE(values[i] == value_of(i, which));
}

static void expect_updates(struct tierd_job *job, uint32_t unit, float expected)
{
	struct tierd_read read = TIERD_READ_INIT;
	float one = -1, many[2] = { -1, -1 };

	OK(tierd_tensor_read(job, unit, 0, "step", ELEMENTS - 1, 1, &one));
	read.unit = unit;
	read.state = "step";
	read.count = 2;
	read.ret_data = many;
	OK(tierd_read_many(job, &read, 1));
	REQUIRE(one == expected && many[0] == expected && many[1] == expected);
}

/* Of initializers, before anything was written. */
static void expect_ones(struct tierd_job *job)
{
	float values[ELEMENTS];

	OK(tierd_tensor_read(job, 1, 0, "parameter", 0, ELEMENTS, values));
	for (unsigned i = 0; i < ELEMENTS; i++)
		REQUIRE(values[i] == 1.0f);
	OK(tierd_tensor_read(job, 1, 0, "m", 0, ELEMENTS, values));
	for (unsigned i = 0; i < ELEMENTS; i++)
		REQUIRE(values[i] == 0.0f);
}

static void expect_all(struct tierd_job *job, unsigned which)
{
	struct tierd_view view;

	if (which == 0) {
		expect_ones(job);
		return;
	}
	for (uint32_t unit = 1; unit < UNITS; unit++) {
		OK(tierd_gather(job, unit, &view));
		for (unsigned i = 0; i < ELEMENTS; i++)
			REQUIRE(((float *)tierd_at(&view, 0))[i] == value_of(i, which));
		OK(tierd_release(job, unit));
		expect_values(job, unit, "m", ELEMENTS, which);
	}
	expect_values(job, UNITS, "master", LARGE, which);
}

static struct tierd_job *join(struct tierd_node *node, const struct tierd_job_options *options)
{
	struct tierd_job *job = support_join(node, options, UNITS);

	support_define(job, "large", TIERD_BF16, LARGE, 1);
	return job;
}

/* ---- One rank ---- */

static void a_writing_is_a_step(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("alone", 0, 1);
	struct tierd_step_result result;
	struct tierd_job_state state;
	struct tierd_ticket *ticket;
	struct tierd_job *job = join(node, &options);

	OK(tierd_job_ready(job, -1, NULL));
	take_step(job);
	OK(tierd_write_begin(job));
	write_all(job, 7);
	/* Until its end all is as before. */
	expect_ones(job);
	OK(tierd_write_end(job, NULL));
	expect_all(job, 7);
	expect_values(job, 0, "parameter", ELEMENTS, 7);
	expect_updates(job, 1, 7);
	expect_updates(job, UNITS, 0);
	OK(tierd_job_state(job, &state));
	REQUIRE(state.step == 2);
	take_step(job);

	OK(tierd_write_begin(job));
	write_all(job, 3);
	OK(tierd_write_end(job, &ticket));
	/* A gather waits for it, and so does who reads. */
	expect_updates(job, 1, 3);
	expect_all(job, 3);
	OK(tierd_ticket_wait(ticket, TIERD_DURABLE, -1));
	OK(tierd_ticket_step_result(ticket, &result));
	REQUIRE(result.step == 4 && !result.is_skipped && result.gradient_norm == 0);
	tierd_ticket_free(ticket);

	OK(tierd_write_begin(job));
	write_all(job, 5);
	OK(tierd_write_cancel(job));
	expect_all(job, 3);
	/* One that writes nothing is a step, too. */
	OK(tierd_write_begin(job));
	OK(tierd_write_end(job, NULL));
	OK(tierd_job_state(job, &state));
	REQUIRE(state.step == 5);
	expect_all(job, 3);
	OK(tierd_job_close(job));
}

static void what_is_in_the_way_is_named(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("named", 0, 1);
	struct tierd_rates of_step = rates();
	struct tierd_job *job = join(node, &options);
	struct tierd_view view, other;
	float value = 2;

	FAILS(tierd_write_begin(job), -EINVAL, "tierd_job_ready");
	OK(tierd_job_ready(job, -1, NULL));
	FAILS(tierd_tensor_write(job, 0, 0, 0, 1, &value, false), -EBUSY, "between tierd_write_begin and");
	FAILS(tierd_write_end(job, NULL), -EBUSY, "call tierd_write_begin first");
	FAILS(tierd_write_cancel(job), -EBUSY, "call tierd_write_begin first");
	OK(tierd_gather(job, 2, &view));
	FAILS(tierd_write_begin(job), -EBUSY,
	      "leases of 1 unit are held: \"u2\"; release them before values are");
	OK(tierd_release(job, 2));
	OK(tierd_gradients(job, 1, &view));
	FAILS(tierd_write_begin(job), -EBUSY, "gradient buffers of 1 unit are held: \"u1\"");
	OK(tierd_push(job, 1));
	FAILS(tierd_write_begin(job), -EBUSY, "has pushed gradients");
	OK(tierd_step(job, &of_step, NULL));

	OK(tierd_write_begin(job));
	FAILS(tierd_write_begin(job), -EBUSY, "call tierd_write_end first");
	FAILS(tierd_gather(job, 0, &view), -EBUSY, "call tierd_write_end first");
	FAILS(tierd_gather_try(job, 0, &other), -EAGAIN, "");
	OK(tierd_gradients(job, 0, &view));
	OK(tierd_discard(job, 0));
	FAILS(tierd_step(job, &of_step, NULL), -EBUSY, "call tierd_write_end first");
	FAILS(tierd_step_finish(job), -EBUSY, "closed none");
	FAILS(tierd_tensor_write(job, 9, 0, 0, 1, &value, false), -EINVAL, "has no unit 9");
	OK(tierd_tensor_write(job, 1, 0, 0, 1, &value, false));
	OK(tierd_write_end(job, NULL));
	OK(tierd_gather(job, 1, &view));
	REQUIRE(*(float *)tierd_at(&view, 0) == 2);
	OK(tierd_release(job, 1));
	OK(tierd_job_close(job));
}

/* ---- Two ranks ---- */

/* Of this process: the second one comes when the first has given up waiting for it. */
static void who_gives_up_waits_on_when_he_calls_again(void)
{
	struct tierd_node *nodes[2];
	struct tierd_job *jobs[2];

	for (uint32_t rank = 0; rank < 2; rank++) {
		struct tierd_job_options options = support_options("pair", rank, 2);

		nodes[rank] = support_connect();
		jobs[rank] = join(nodes[rank], &options);
	}
	support_ready(jobs, 2, 0, NULL);
	tierd_set_timeout(nodes[0], 1);
	FAILS(tierd_write_begin(jobs[0]), -ETIMEDOUT, "");
	tierd_set_timeout(nodes[0], PATIENCE_MS);
	OK(tierd_write_begin(jobs[1]));
	OK(tierd_write_begin(jobs[0]));
	write_all(jobs[1], 4);
	/* Before tierd has said that it has heard it, and when it has. */
	for (int timeout_ms = 0; timeout_ms <= 500; timeout_ms += 250) {
		tierd_set_timeout(nodes[0], timeout_ms);
		FAILS(tierd_write_end(jobs[0], NULL), -ETIMEDOUT, "");
	}
	tierd_set_timeout(nodes[0], PATIENCE_MS);
	FAILS(tierd_write_cancel(jobs[0]), -EBUSY, "tierd_write_end has ended this rank's part");
	OK(tierd_write_cancel(jobs[1]));
	FAILS(tierd_write_end(jobs[0], NULL), -ECANCELED, "rank 1 has cancelled");
	expect_ones(jobs[0]);
	for (uint32_t rank = 0; rank < 2; rank++) {
		OK(tierd_job_detach(jobs[rank]));
		tierd_disconnect(nodes[rank]);
	}
	support_drop("pair");
}

/* ---- The daemon goes ---- */

static void train(const char *name, const char *placement, unsigned step)
{
	struct tierd_connect_options with = TIERD_CONNECT_OPTIONS_INIT;
	struct tierd_job_options options = support_options(name, 0, 1);
	struct tierd_job_state state;
	struct tierd_node *node;
	struct tierd_job *job;
	struct tierd_ticket *ticket;
	int r;

	with.reconnect_ms = PATIENCE_MS;
	OK(tierd_connect_with(&with, &node));
	if (strcmp(placement, "host") == 0)
		options.parameter_placement = options.optimizer_placement = TIERD_PLACE_HOST;
	options.durability = TIERD_DURABILITY_STEP;
	job = join(node, &options);
	OK(tierd_job_ready(job, -1, &state));
	REQUIRE(state.step == step);
	expect_all(job, step);
	OK(tierd_write_begin(job));
	write_all(job, step + 1);
	REQUIRE(write(3, "written\n", 8) == 8);
	r = tierd_write_end(job, &ticket);
	if (r == 0) {
		r = tierd_ticket_wait(ticket, TIERD_DURABLE, -1);
		tierd_ticket_free(ticket);
	}
	if (r < 0) {
		/* The second one of a writing that had been applied. */
		REQUIRE(r == -ESTALE || r == -ECONNRESET);
		OK(tierd_job_ready(job, -1, &state));
		step = (unsigned)state.step - 1;
		printf("%u\n", step + 1);
	}
	expect_all(job, step + 1);
	OK(tierd_job_close(job));
	tierd_disconnect(node);
}

int main(int argc, char *argv[])
{
	struct tierd_node *node;

	if (argc == 5 && strcmp(argv[1], "train") == 0) {
		train(argv[2], argv[3], (unsigned)atoi(argv[4]));
		return 0;
	}
	REQUIRE(argc == 1);
	node = support_connect();
	a_writing_is_a_step(node);
	what_is_in_the_way_is_named(node);
	who_gives_up_waits_on_when_he_calls_again();
	tierd_disconnect(node);
	return 0;
}
