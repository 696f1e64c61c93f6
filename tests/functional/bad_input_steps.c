/* What a trainer can do wrong once its job is ready: each gets a clear error, at once, and can go on.
 *
 *   bad_input_steps
 *   bad_input_steps full    creates a job that does not fit on the disk, which looks larger than it is */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crash_support.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define ELEMENTS 1000

static struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };

static struct tierd_job *join_ready(struct tierd_node *node, const char *name, unsigned units)
{
	struct tierd_job_options options = support_options(name, 0, 1);
	struct tierd_job *job = support_join(node, &options, units);

	OK(tierd_job_ready(job, -1, NULL));
	return job;
}

static void calls_before_ready_are_refused(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("early", 0, 1);
	struct tierd_job *job = support_join(node, &options, 1);
	struct tierd_ticket *ticket;
	struct tierd_view view;
	float value;

	FAILS(tierd_gather(job, 0, &view), -EINVAL, "call tierd_job_ready first");
	FAILS(tierd_gather_begin(job, 0, &ticket), -EINVAL, "call tierd_job_ready first");
	FAILS(tierd_release(job, 0), -EINVAL, "no unit 0");
	FAILS(tierd_gradients(job, 0, &view), -EINVAL, "call tierd_job_ready first");
	FAILS(tierd_push(job, 0), -EINVAL, "call tierd_job_ready first");
	FAILS(tierd_discard(job, 0), -EINVAL, "no gradient buffer");
	FAILS(tierd_step(job, &rates, NULL), -EINVAL, "call tierd_job_ready first");
	FAILS(tierd_phase(job, "eval"), -EINVAL, "call tierd_job_ready first");
	FAILS(tierd_tensor_read(job, 0, 0, "m", 0, 1, &value), -EINVAL, "call tierd_job_ready first");
	OK(tierd_job_close(job));
}

static void unknown_units_are_named(struct tierd_node *node)
{
	struct tierd_job *job = join_ready(node, "unknown", 2);
	const uint32_t units[] = { 0, 2 };
	struct tierd_view view;
	uint64_t first, count;
	float value;

	FAILS(tierd_gather(job, 2, &view), -EINVAL, "has no unit 2: it has 2");
	FAILS(tierd_gather(job, UINT32_MAX, &view), -EINVAL, "has no unit 4294967295");
	FAILS(tierd_release(job, 2), -EINVAL, "has no unit 2");
	FAILS(tierd_prefetch(job, units, 2), -EINVAL, "has no unit 2");
	FAILS(tierd_gradients(job, 2, &view), -EINVAL, "has no unit 2");
	FAILS(tierd_push(job, 2), -EINVAL, "has no unit 2");
	FAILS(tierd_discard(job, 2), -EINVAL, "no gradient buffer");
	FAILS(tierd_tensor_read(job, 2, 0, "m", 0, 1, &value), -EINVAL, "has no unit 2");
	FAILS(tierd_tensor_read(job, 0, 1, "m", 0, 1, &value), -EINVAL, "has no tensor 1: it has 1");
	FAILS(tierd_tensor_shard(job, 2, 0, &first, &count), -EINVAL, "has no unit 2");
	OK(tierd_job_close(job));
}

static void leases_and_buffers_are_in_the_way_of_a_step(struct tierd_node *node)
{
	struct tierd_job *job = join_ready(node, "held", 20);
	struct tierd_view view;

	FAILS(tierd_release(job, 1), -EINVAL, "unit \"u1\" is released without having been gathered");
	OK(tierd_gather(job, 1, &view));
	FAILS(tierd_step(job, &rates, NULL), -EBUSY, "leases of 1 unit are held: \"u1\"; release");
	for (uint32_t unit = 0; unit < 20; unit++)
		OK(tierd_gather(job, unit, &view));
	FAILS(tierd_step(job, &rates, NULL), -EBUSY, "leases of 20 units are held: \"u0\", \"u1\", \"u2\"");
	FAILS(tierd_step(job, &rates, NULL), -EBUSY, "\"u15\" and 4 more; release them before the step");
	OK(tierd_release_all(job));
	OK(tierd_gradients(job, 2, &view));
	FAILS(tierd_step(job, &rates, NULL), -EBUSY, "gradient buffers of 1 unit are held: \"u2\"; push");
	OK(tierd_gradients(job, 3, &view));
	FAILS(tierd_step(job, &rates, NULL), -EBUSY,
	      "gradient buffers of 2 units are held: \"u2\", \"u3\"; push");
	FAILS(tierd_gradients(job, 0, &view), -ENOBUFS,
	      "all 2 gradient buffers of 4 KiB are held by this rank, one of them for \"u2\"");
	OK(tierd_gradients(job, 2, &view)); /* the same one */
	OK(tierd_discard(job, 3));
	FAILS(tierd_discard(job, 3), -EINVAL, "no gradient buffer of unit \"u3\" is held");
	FAILS(tierd_push(job, 3), -EINVAL, "no gradient buffer of unit \"u3\" is held");
	OK(tierd_push(job, 2));
	OK(tierd_step(job, &rates, NULL));
	OK(tierd_job_close(job));
}

static void frozen_units_have_no_gradients(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("frozen", 0, 1);
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	struct tierd_job *job;
	struct tierd_view view;
	uint32_t unit;
	float value;

	OK(tierd_job_open(node, &options, &job));
	tensor.name = "ice";
	tensor.is_frozen = true;
	tensor.initializer = TIERD_INITIALIZE_ONES;
	OK(tierd_unit_define(job, "ice", &tensor, 1, &unit));
	OK(tierd_job_ready(job, -1, NULL));
	FAILS(tierd_gradients(job, 0, &view), -EINVAL, "unit \"ice\" has no gradients");
	FAILS(tierd_tensor_read(job, 0, 0, "m", 0, 1, &value), -ENODATA,
	      "tensor \"ice\" is frozen: it has no m");
	FAILS(tierd_tensor_read(job, 0, 0, "master", 0, 1, &value), -ENODATA, "it has no master");
	/* A lease on it is in nobody's way. */
	OK(tierd_gather(job, 0, &view));
	OK(tierd_step(job, &rates, NULL));
	OK(tierd_release(job, 0));
	OK(tierd_job_close(job));
}

static void a_momentum_that_the_job_does_not_keep_is_refused(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("momentum", 0, 1);
	struct tierd_group group = TIERD_GROUP_INIT;
	struct tierd_rates with_momentum = TIERD_RATES_INIT;
	struct tierd_job *job;
	float value;

	options.optimizer = TIERD_SGD;
	job = support_join(node, &options, 1);
	OK(tierd_job_ready(job, -1, NULL));
	FAILS(tierd_tensor_read(job, 0, 0, "momentum", 0, 1, &value), -ENODATA,
	      "no state \"momentum\" with sgd");
	group.momentum = 0.9f;
	with_momentum.learning_rate = 0.25f;
	with_momentum.group_count = 1;
	with_momentum.groups = &group;
	FAILS(tierd_step(job, &with_momentum, NULL), -EINVAL, "no group had one when it was opened");
	group.momentum = -1;
	FAILS(tierd_step(job, &with_momentum, NULL), -EINVAL, "momentum is -1");
	group.momentum = 0;
	group.learning_rate = 2;
	OK(support_push(job, 0, ELEMENTS, 1.0f));
	OK(tierd_step(job, &with_momentum, NULL));
	OK(tierd_tensor_read(job, 0, 0, "parameter", 0, 1, &value));
	REQUIRE(value < 0.5f && value > 0.49f);
	OK(tierd_job_close(job));
}

static void bad_rates_are_refused(struct tierd_node *node)
{
	static const struct {
		struct tierd_rates rates;
		const char *text;
	} cases[] = {
		{ TIERD_RATES_INIT, "the rates' learning_rate is NaN" },
		{ { sizeof(rates), INFINITY, 1, 1, 0, NULL, 0 }, "learning rate inf" },
		{ { sizeof(rates), 1, NAN, 1, 0, NULL, 0 }, "gradient scale" },
		{ { sizeof(rates), 1, 1, NAN, 0, NULL, 0 }, "loss scale nan" },
		{ { sizeof(rates), 1, 1, -1, 0, NULL, 0 }, "loss scale -1" },
		{ { sizeof(rates), 1, 1, 1, 0, NULL, NAN }, "clip norm nan" },
		{ { sizeof(rates), 1, 1, 1, 0, NULL, INFINITY }, "clip norm inf" },
		{ { sizeof(rates), 1, 1, 1, 2, NULL, 0 }, "the rates have 2 groups" },
		{ { sizeof(rates), 1, 1, 1, 1, NULL, 0 }, "groups is NULL" },
		{ { 3, 1, 1, 1, 0, NULL, 0 }, "wrong size" },
	};
	struct tierd_job *job = join_ready(node, "rates", 1);
	struct tierd_group group = TIERD_GROUP_INIT;
	struct tierd_rates other = rates;
	struct tierd_ticket *ticket;
	struct tierd_view view;

	for (size_t i = 0; i < COUNT(cases); i++) {
		FAILS(tierd_step(job, &cases[i].rates, NULL), -EINVAL, cases[i].text);
		FAILS(tierd_step_begin(job, &cases[i].rates, 1), -EINVAL, cases[i].text);
	}
	group.beta2 = 0.99f;
	FAILS(tierd_step_begin(job, &rates, 0), -EINVAL, "0 micro-batches");
	OK(tierd_step_begin(job, &rates, 1));
	FAILS(tierd_step_begin(job, &rates, 1), -EBUSY, "announced this step already");
	other.learning_rate = 0.5f;
	FAILS(tierd_step(job, &other, NULL), -EINVAL, "learning rate is 0.5 here, 0 in tierd_step_begin");
	other = rates;
	other.clip_norm = 0.5f;
	FAILS(tierd_step(job, &other, NULL), -EINVAL, "clip norm is 0.5 here, 0 in tierd_step_begin");
	other = rates;
	other.group_count = 1;
	other.groups = &group;
	FAILS(tierd_step(job, &other, NULL), -EINVAL,
	      "parameter group 0: beta2 is 0.99 here, 0.999 in tierd_step_begin");
	OK(support_push(job, 0, ELEMENTS, 1.0f));
	OK(tierd_gradients(job, 0, &view));
	OK(tierd_push_begin(job, 0, &ticket));
	FAILS(tierd_ticket_wait(ticket, TIERD_DONE, -1), -EINVAL,
	      "1 micro-batches were announced, this is one more");
	tierd_ticket_free(ticket);
	/* Without a ticket a later call tells, at the latest the one after the step. */
	OK(support_push(job, 0, ELEMENTS, 1.0f));
	int r = tierd_step(job, &rates, NULL);

	if (r == 0)
		r = tierd_step(job, &rates, NULL);
	FAILS(r, -EINVAL, "an earlier push failed: unit \"u0\": 1 micro-batches were announced");
	OK(tierd_step(job, &rates, NULL));
	OK(tierd_job_close(job));
}

static void what_is_pushed_once_is_not_pushed_twice(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("once", 0, 1);
	struct tierd_ticket *ticket;
	struct tierd_job *job;
	struct tierd_view view;

	options.pushed_once = true;
	job = support_join(node, &options, 1);
	OK(tierd_job_ready(job, -1, NULL));
	OK(support_push(job, 0, ELEMENTS, 1.0f));
	OK(tierd_gradients(job, 0, &view));
	OK(tierd_push_begin(job, 0, &ticket));
	FAILS(tierd_ticket_wait(ticket, TIERD_DONE, -1), -EINVAL,
	      "units are pushed once in a step (pushed_once), and this is its second push");
	tierd_ticket_free(ticket);
	OK(tierd_step(job, &rates, NULL));
	FAILS(tierd_step_begin(job, &rates, 2), -EINVAL,
	      "a step of 2 micro-batches, of a job that was opened as one whose units are pushed once");
	OK(tierd_step_begin(job, &rates, 1));
	OK(support_push(job, 0, ELEMENTS, 1.0f));
	OK(tierd_step(job, &rates, NULL));
	/* Nobody waits for the push: what comes after it tells, and then it is as if it had not been. */
	OK(support_push(job, 0, ELEMENTS, 1.0f));
	OK(support_push(job, 0, ELEMENTS, 1.0f));
	int r = tierd_step(job, &rates, NULL);

	if (r == 0)
		r = tierd_step(job, &rates, NULL);
	FAILS(r, -EINVAL, "an earlier push failed: unit \"u0\": the job was opened as one");
	OK(tierd_step(job, &rates, NULL));
	OK(tierd_job_close(job));
}

static void ranks_must_step_alike(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("alike", 0, 2);
	struct tierd_rates other = rates;
	struct tierd_ticket *tickets[3];
	struct tierd_job *jobs[2];

	for (unsigned i = 0; i < 2; i++) {
		options.rank = i;
		jobs[i] = support_join(node, &options, 1);
		OK(tierd_job_ready_begin(jobs[i], -1, &tickets[i]));
	}
	for (unsigned i = 0; i < 2; i++) {
		OK(tierd_ticket_wait(tickets[i], TIERD_DONE, -1));
		tierd_ticket_free(tickets[i]);
	}
	for (unsigned i = 0; i < 3; i++)
		OK(tierd_step(jobs[0], &rates, &tickets[i]));
	FAILS(tierd_ticket_wait(tickets[2], TIERD_DONE, -1), -EBUSY, "two steps on their way");
	other.gradient_scale = 2.0f;
	FAILS(tierd_step(jobs[1], &other, NULL), -EINVAL,
	      "gradient scale is 2 here, 1 at the ranks that have closed");
	OK(tierd_step(jobs[1], &rates, NULL));
	OK(tierd_step(jobs[1], &rates, NULL));
	for (unsigned i = 0; i < 3; i++) {
		if (i < 2)
			OK(tierd_ticket_wait(tickets[i], TIERD_DONE, -1));
		tierd_ticket_free(tickets[i]);
	}
	OK(tierd_job_close(jobs[0]));
	/* Who closed is needed for a step. */
	FAILS(tierd_step(jobs[1], &rates, NULL), -ESTALE, "rank 0 (pid ");
	REQUIRE(strstr(tierd_message(), "closed the job"));
	OK(tierd_job_close(jobs[1]));
}

/* ---- Numbers ---- */

static void push_one_value(struct tierd_job *job, uint32_t unit, float value)
{
	struct tierd_view gradients;

	OK(tierd_gradients(job, unit, &gradients));
	((float *)tierd_at(&gradients, 0))[ELEMENTS - 1] = value;
	OK(tierd_push(job, unit));
}

static float first_value(struct tierd_job *job, uint32_t unit)
{
	float value;

	OK(tierd_tensor_read(job, unit, 0, "parameter", 0, 1, &value));
	return value;
}

static void nonfinite_gradients_are_skipped(struct tierd_node *node)
{
	static const float values[] = { NAN, INFINITY, -INFINITY };
	struct tierd_job *job = join_ready(node, "skip", 2);
	struct tierd_rates real = rates;

	real.learning_rate = 0.1f;
	for (unsigned i = 0; i < COUNT(values); i++) {
		struct tierd_step_result result;
		struct tierd_ticket *ticket;

		push_one_value(job, 0, 1.0f);
		push_one_value(job, 1, values[i]);
		OK(tierd_step(job, &real, &ticket));
		OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
		OK(tierd_ticket_step_result(ticket, &result));
		tierd_ticket_free(ticket);
		REQUIRE(result.is_skipped && result.step == i + 1 && !isfinite(result.gradient_norm));
		REQUIRE(first_value(job, 0) == 1.0f && first_value(job, 1) == 1.0f);
	}
	OK(support_push(job, 0, ELEMENTS, 1.0f));
	OK(tierd_step(job, &real, NULL));
	REQUIRE(first_value(job, 0) < 0.95f && first_value(job, 1) == 1.0f);
	OK(tierd_job_close(job));
}

static void nonfinite_gradients_are_reported(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("report", 0, 1);
	struct tierd_job *job;
	struct tierd_job_state state;

	options.nonfinite = TIERD_NONFINITE_REPORT;
	job = support_join(node, &options, 2);
	OK(tierd_job_ready(job, -1, NULL));
	push_one_value(job, 0, 1.0f);
	push_one_value(job, 1, NAN);
	FAILS(tierd_step(job, &rates, NULL), -EDOM, "the gradients of unit \"u1\" hold a NaN or an infinity");
	OK(tierd_job_state(job, &state));
	REQUIRE(state.step == 0);
	OK(support_push(job, 0, ELEMENTS, 1.0f));
	OK(tierd_step(job, &rates, NULL));
	OK(tierd_job_state(job, &state));
	REQUIRE(state.step == 1);
	OK(tierd_job_close(job));
}

static void a_strict_job_wants_all_units(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("strict", 0, 1);
	struct tierd_job *job;

	options.strict = true;
	job = support_join(node, &options, 2);
	OK(tierd_job_ready(job, -1, NULL));
	OK(support_push(job, 0, ELEMENTS, 1.0f));
	FAILS(tierd_step(job, &rates, NULL), -ENODATA,
	      "nobody has pushed unit \"u1\", and the job is strict");
	OK(support_push(job, 0, ELEMENTS, 1.0f));
	OK(support_push(job, 1, ELEMENTS, 1.0f));
	OK(tierd_step(job, &rates, NULL));
	OK(tierd_job_close(job));
}

/* ---- Tensors, tickets, phases ---- */

static void ranges_beyond_a_tensor_are_refused(struct tierd_node *node)
{
	struct tierd_job *job = join_ready(node, "ranges", 1);
	float values[ELEMENTS];

	FAILS(tierd_tensor_read(job, 0, 0, "m", 0, ELEMENTS + 1, values), -EINVAL, "which has 1000");
	FAILS(tierd_tensor_read(job, 0, 0, "m", ELEMENTS, 1, values), -EINVAL, "which has 1000");
	FAILS(tierd_tensor_read(job, 0, 0, "m", UINT64_MAX, UINT64_MAX, values), -EINVAL, "which has 1000");
	FAILS(tierd_tensor_read(job, 0, 0, "n", 0, 1, values), -ENODATA,
	      "no state \"n\" with adamw; there are: parameter, master, m, v");
	OK(tierd_tensor_read(job, 0, 0, "v", ELEMENTS, 0, values));
	OK(tierd_tensor_read(job, 0, 0, "master", 0, ELEMENTS, values));
	REQUIRE(values[0] == 1.0f && values[ELEMENTS - 1] == 1.0f);
	OK(tierd_job_close(job));
}

static void tickets_are_of_one_kind(struct tierd_node *node)
{
	struct tierd_job *job = join_ready(node, "tickets", 1);
	struct tierd_step_result result;
	struct tierd_job_state state;
	struct tierd_ticket *gather, *step;
	struct tierd_view view;

	OK(tierd_step(job, &rates, &step));
	FAILS(tierd_gather_end(step, -1, &view), -EINVAL, "not of a gather");
	FAILS(tierd_ticket_job_state(step, &state), -EINVAL, "is of tierd_step");
	OK(tierd_gather_begin(job, 0, &gather));
	FAILS(tierd_ticket_step_result(gather, &result), -EINVAL, "is of tierd_gather");
	FAILS(tierd_ticket_wait(gather, TIERD_DURABLE, -1), -EINVAL, "only a step becomes durable");
	OK(tierd_gather_end(gather, -1, &view));
	REQUIRE(view.version == 1);
	OK(tierd_release(job, 0));
	OK(tierd_ticket_wait(step, TIERD_DONE, -1));
	OK(tierd_ticket_wait(step, TIERD_DURABLE, -1));
	tierd_ticket_free(step);
	/* Given up, its lease goes: a step is possible. */
	OK(tierd_gather_begin(job, 0, &gather));
	OK(tierd_ticket_wait(gather, TIERD_DONE, -1));
	tierd_ticket_free(gather);
	OK(tierd_step(job, &rates, NULL));
	OK(tierd_job_close(job));
}

static void phases_are_limited(struct tierd_node *node)
{
	struct tierd_job *job = join_ready(node, "phases", 1);
	char name[160];
	int r = 0;

	memset(name, 'p', sizeof(name));
	name[129] = '\0';
	FAILS(tierd_phase(job, name), -EINVAL, "1 to 128 bytes");
	FAILS(tierd_phase(job, ""), -EINVAL, "1 to 128 bytes");
	FAILS(tierd_phase(job, NULL), -EINVAL, "name is NULL");
	for (unsigned i = 0; i < 100 && r == 0; i++) {
		snprintf(name, sizeof(name), "phase %u", i);
		r = tierd_phase(job, name);
	}
	FAILS(r, -E2BIG, "is one too many");
	OK(tierd_phase(job, "train"));
	OK(tierd_job_close(job));
}

/* ---- Memory ---- */

/* Two slots, and three units that need one each. */
static void a_gather_that_can_never_fit_names_the_holders(struct tierd_node *node)
{
	const uint64_t elements = 540672, bytes = 4 * elements;
	struct tierd_job_options options = support_options("tight", 0, 1);
	const uint32_t all[] = { 0, 1, 2 };
	struct tierd_ticket *ticket;
	struct tierd_job *job;
	struct tierd_view view, views[3];

	options.host_budget = (3 + 2 + 2) * bytes + (2 << 20);
	OK(tierd_job_open(node, &options, &job));
	support_define(job, "one", TIERD_FP32, elements, 1.0);
	support_define(job, "two", TIERD_FP32, elements, 1.0);
	support_define(job, "three", TIERD_FP32, elements, 1.0);
	OK(tierd_job_ready(job, -1, NULL));
	OK(tierd_gather(job, 0, &view));
	OK(tierd_gather(job, 1, &view));
	FAILS(tierd_gather(job, 2, &view), -EDEADLK,
	      "unit \"three\" can never be gathered beside what is leased");
	REQUIRE(strstr(tierd_message(), "\"one\" by rank 0") && strstr(tierd_message(), "\"two\" by rank 0"));
	/* Asked for without blocking it waits, and comes when there is room. */
	OK(tierd_gather_begin(job, 2, &ticket));
	FAILS(tierd_ticket_wait(ticket, TIERD_DONE, 0), -ETIMEDOUT, "not done");
	OK(tierd_release(job, 0));
	OK(tierd_gather_end(ticket, -1, &view));
	OK(tierd_release(job, 1));
	OK(tierd_release(job, 2));
	OK(tierd_gather(job, 0, &view));
	OK(tierd_release(job, 0));
	/* At once, too: none of them is left with a lease. */
	FAILS(tierd_gather_many(job, all, 3, views), -EDEADLK, "can never be gathered beside what is leased");
	OK(tierd_gather_many(job, all + 1, 2, views));
	OK(tierd_release_many(job, all + 1, 2));
	OK(tierd_gather_many(job, all, 2, views));
	OK(tierd_release_many(job, all, 2));
	OK(tierd_job_close(job));
}

static void a_forked_child_is_told(struct tierd_node *node)
{
	struct tierd_job *job = join_ready(node, "forked", 1);
	struct tierd_view view;
	struct tierd_job *other;
	pid_t child = fork();
	int status;

	REQUIRE(child >= 0);
	if (child == 0) {
		struct tierd_job_options options = support_options("other", 0, 1);
		struct tierd_job_state state;

		FAILS(tierd_gather(job, 0, &view), -ECHILD, "forked");
		FAILS(tierd_release(job, 0), -ECHILD, "forked");
		FAILS(tierd_gradients(job, 0, &view), -ECHILD, "forked");
		FAILS(tierd_push(job, 0), -ECHILD, "forked");
		FAILS(tierd_step(job, &rates, NULL), -ECHILD, "forked");
		FAILS(tierd_job_state(job, &state), -ECHILD, "forked");
		FAILS(tierd_job_open(node, &options, &other), -ECHILD, "forked");
		FAILS(tierd_job_detach(job), -ECHILD, "forked");
		tierd_disconnect(node);
		/* It has a life of its own. */
		node = support_connect();
		job = join_ready(node, "forked-child", 1);
		OK(tierd_step(job, &rates, NULL));
		OK(tierd_job_close(job));
		tierd_disconnect(node);
		exit(0);
	}
	REQUIRE(waitpid(child, &status, 0) == child && status == 0);
	OK(support_push(job, 0, ELEMENTS, 1.0f));
	OK(tierd_step(job, &rates, NULL));
	OK(tierd_job_close(job));
	support_drop("forked-child");
}

static void fill_the_disk(void)
{
	struct tierd_node *node = support_connect();
	struct tierd_job_options options = support_options("full", 0, 1);
	struct tierd_job *small = join_ready(node, "small", 1), *job;

	OK(tierd_job_open(node, &options, &job));
	support_define(job, "large", TIERD_FP32, 4 << 20, 1.0);
	FAILS(tierd_job_ready(job, -1, NULL), -ENOSPC, "it needs 110.0 MiB in ");
	REQUIRE(strstr(tierd_message(), " MiB are left on that disk"));
	OK(support_push(small, 0, ELEMENTS, 1.0f));
	OK(tierd_step(small, &rates, NULL));
	OK(tierd_job_close(job));
	OK(tierd_job_close(small));
	support_drop("small");
	tierd_disconnect(node);
}

/* Until it is durable: a child that is forked before has a copy of what waits, and cannot free it. */
static void step_to_the_end(struct tierd_job *job)
{
	struct tierd_ticket *ticket;

	OK(support_push(job, 0, ELEMENTS, 0.5f));
	OK(tierd_step(job, &rates, &ticket));
	OK(tierd_ticket_wait(ticket, TIERD_DURABLE, -1));
	tierd_ticket_free(ticket);
}

int main(int argc, char *argv[])
{
	static void (*const tests[])(struct tierd_node *) = {
		calls_before_ready_are_refused,
		unknown_units_are_named,
		leases_and_buffers_are_in_the_way_of_a_step,
		frozen_units_have_no_gradients,
		bad_rates_are_refused,
		a_momentum_that_the_job_does_not_keep_is_refused,
		what_is_pushed_once_is_not_pushed_twice,
		ranks_must_step_alike,
		nonfinite_gradients_are_skipped,
		nonfinite_gradients_are_reported,
		a_strict_job_wants_all_units,
		ranges_beyond_a_tensor_are_refused,
		tickets_are_of_one_kind,
		phases_are_limited,
		a_gather_that_can_never_fit_names_the_holders,
		a_forked_child_is_told,
	};
	struct tierd_node *node;
	struct tierd_job *bystander;

	if (argc == 2 && strcmp(argv[1], "full") == 0) {
		fill_the_disk();
		return 0;
	}
	node = support_connect();
	bystander = join_ready(node, "bystander", 1);
	for (size_t i = 0; i < COUNT(tests); i++) {
		tests[i](node);
		step_to_the_end(bystander);
	}
	OK(tierd_job_close(bystander));
	tierd_disconnect(node);
	return 0;
}
