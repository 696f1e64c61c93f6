/* What a trainer can do wrong, and what only a real daemon and its library say together: each gets a clear
 * error, at once, and can go on; a bystander trains on meanwhile. Options and tensors that the daemon refuses
 * are the unit tests' (options, catalog), wrong requests those of hostile_cases. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "crash_support.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define ELEMENTS 1000

static struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
static const char long_name[] = "A name that is longer than any name of tierd's may be, of a job, or of what "
				"a job has: of its units, of its tensors, and of its phases.";

static struct tierd_job *join_ready(struct tierd_node *node, const char *name, unsigned units)
{
	struct tierd_job_options options = support_options(name, 0, 1);
	struct tierd_job *job = support_join(node, &options, units);

	OK(tierd_job_ready(job, -1, NULL));
	return job;
}

/* ---- Until it is ready ---- */

static struct tierd_tensor tensor_of(const char *name)
{
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;

	tensor.name = name;
	tensor.format = TIERD_FP32;
	tensor.dimensions = 2;
	tensor.shape[0] = 8;
	tensor.shape[1] = 16;
	tensor.initializer = TIERD_INITIALIZE_ONES;
	return tensor;
}

/* What the library refuses by itself: one value after the other that is wrong. */
static void wrong_options_are_refused(struct tierd_node *node)
{
	const struct tierd_job_options right = support_options("options", 0, 2);
	struct tierd_group short_group = { .size = 4 };
	struct tierd_job_options options;
	struct tierd_job *job = NULL;

#define REFUSED(field, value, text)                                                                          \
	options = right;                                                                                     \
	options.field = (value);                                                                             \
	FAILS(tierd_job_open(node, &options, &job), -EINVAL, text)

	REFUSED(size, 0, "wrong size");
	REFUSED(name, NULL, "a job's name is");
	REFUSED(name, "a..b", "without \"..\"");
	REFUSED(name, long_name, "a job's name is 1 to 63");
	REFUSED(rank, 2, "rank 2 is not below the world size, 2");
	REFUSED(world_size, TIERD_MAX_WORLD_SIZE + 1, "world size 1025 is not within 1 to 1024");
	REFUSED(stage, 4, "stage 4");
	REFUSED(loss_scale, 0, "loss_scale is 0");
	REFUSED(group_count, 1025, "1025 parameter groups");
	REFUSED(group_count, 1, "groups is NULL");
#undef REFUSED
	options = right;
	options.group_count = 1;
	options.groups = &short_group;
	FAILS(tierd_job_open(node, &options, &job), -EINVAL, "group 0 has a wrong size");
	REQUIRE(!job);
}

static void wrong_tensors_are_refused(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("tensors", 0, 1);
	struct tierd_tensor right = tensor_of("tensor"), tensor;
	struct tierd_job *job;
	uint32_t unit = 7;

	OK(tierd_job_open(node, &options, &job));
#define REFUSED(field, value, error, text)                                                                   \
	tensor = right;                                                                                      \
	tensor.field = (value);                                                                              \
	FAILS(tierd_unit_define(job, "unit", &tensor, 1, &unit), error, text)

	REFUSED(size, 3, -EINVAL, "tensor 0 has a wrong size");
	REFUSED(name, "", -EINVAL, "has no name");
	REFUSED(alias, "", -EINVAL, "alias has no name");
	REFUSED(name, long_name, -ENAMETOOLONG, "longer than 128 bytes");
	REFUSED(name, "exe\xe2\x80\xaegpj", -EINVAL, "\"exe???gpj\", has a character that is not printable");
	REFUSED(dimensions, 9, -EINVAL, "has 9 dimensions, more than 8");
	REFUSED(shape[0], UINT64_C(1) << 63, -EOVERFLOW, "more than 2^44 elements");
	REFUSED(format, 5, -EINVAL, "5 is no number format");
	REFUSED(format, TIERD_BYTES, -EINVAL, "holds bytes, which cannot be trained; set is_frozen");
	REFUSED(dtype, "F64[64]", -EINVAL, "only bytes (TIERD_BYTES) have a dtype");
	REFUSED(gradient_format, TIERD_BYTES, -EINVAL,
		"gradients of format 4; they are in the tensor's own format, or in fp32 (TIERD_FP32)");
	REFUSED(initializer, 5, -EINVAL, "5 is no initializer");
	REFUSED(group, 1, -EINVAL, "is of group 1, but the job has 1");
	right.is_frozen = true;
	REFUSED(format, TIERD_BYTES, -EINVAL, "write it with tierd_tensor_write");
	right.slice_of = "big";
	right.slice_rows = 8;
	REFUSED(slice_row, 1, -ERANGE, "has 8 rows from row 1 on, but \"big\" has only 8");
	REFUSED(slice_row, UINT64_MAX, -ERANGE, "but \"big\" has only 8");
	REFUSED(dimensions, 0, -EINVAL, "a scalar has no rows");
#undef REFUSED
	REQUIRE(unit == 7);
	OK(tierd_job_close(job));
}

static void units_that_cannot_be_are_refused(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("units", 0, 1);
	struct tierd_tensor tensor = tensor_of("tensor"),
			    halves[2] = { tensor_of("half"), tensor_of("other half") };
	struct tierd_job *job;
	uint32_t unit;

	halves[0].shape[0] = halves[1].shape[0] = UINT64_C(1) << 40;
	OK(tierd_job_open(node, &options, &job));
	FAILS(tierd_job_ready(job, -1, NULL), -EINVAL, "has no units");
	FAILS(tierd_unit_define(job, "none", &tensor, 0, &unit), -EINVAL, "has 0 tensors");
	FAILS(tierd_unit_define(job, "many", &tensor, 65537, &unit), -EINVAL, "has 65537 tensors");
	FAILS(tierd_unit_define(job, "sum", halves, 2, &unit), -EOVERFLOW,
	      "unit \"sum\" has more than 2^44 elements");
	OK(tierd_unit_define(job, "unit", &tensor, 1, &unit));
	REQUIRE(unit == 0);
	OK(tierd_job_ready(job, -1, NULL));
	FAILS(tierd_unit_define(job, "late", &tensor, 1, &unit), -EBUSY, "no unit can be defined any more");
	FAILS(tierd_job_ready(job, -1, NULL), -EINVAL, "rank 0 is ready already");
	OK(tierd_job_close(job));
	support_drop("units");
}

static void a_state_that_no_store_can_have_is_refused(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("endless", 0, 1);
	struct tierd_tensor tensor = tensor_of("tensor");
	struct tierd_job *job;
	uint32_t unit;

	tensor.dimensions = 1;
	tensor.shape[0] = UINT64_C(1) << 44;
	OK(tierd_job_open(node, &options, &job));
	OK(tierd_unit_define(job, "unit", &tensor, 1, &unit));
	FAILS(tierd_job_ready(job, -1, NULL), -EOVERFLOW,
	      "its state would take more than the 128 TiB that a store can have");
	OK(tierd_job_close(job));
}

static void ranks_that_are_missing_or_doubled_are_named(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("ranks", 0, 3);
	struct tierd_job *first = support_join(node, &options, 1), *second, *double_first = NULL;
	struct tierd_ticket *ticket;
	struct tierd_view view;

	FAILS(tierd_job_open(node, &options, &double_first), -EBUSY,
	      ", which is this one: close the job before it is opened again");
	options.rank = 1;
	second = support_join(node, &options, 1);
	FAILS(tierd_job_ready(first, 0, NULL), -ETIMEDOUT,
	      "rank 1 (has not called tierd_job_ready), rank 2 (has not joined)");
	OK(tierd_job_close(second));

	/* Who is taken over while he waits is told, and so is who calls later. */
	struct tierd_node *other = support_connect();

	OK(tierd_job_ready_begin(first, -1, &ticket));
	FAILS(tierd_job_ready(first, -1, NULL), -EALREADY, "still waits");
	/* The daemon has read that by the time it refuses this, which came after it on the same connection.
	 */
	options.rank = 0;
	FAILS(tierd_job_open(node, &options, &double_first), -EBUSY,
	      "rank 0 of job ranks is held by process");
	options.takeover = true;
	double_first = support_join(other, &options, 1);
	FAILS(tierd_ticket_wait(ticket, TIERD_DONE, -1), -ESTALE, "was taken over by another process");
	tierd_ticket_free(ticket);
	FAILS(tierd_gather(first, 0, &view), -ESTALE, "was taken over by another process");
	FAILS(tierd_job_ready(first, -1, NULL), -ENOENT, "was taken over by another process");
	tierd_job_detach(first);
	FAILS(tierd_job_ready(double_first, 0, NULL), -ETIMEDOUT, "rank 1 (has not joined)");
	OK(tierd_job_close(double_first));
	tierd_disconnect(other);
}

static void modes_are_kept(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("modes", 0, 1);
	struct tierd_node *other = support_connect();
	struct tierd_job *job, *second;
	struct tierd_job_state state;

	options.mode = TIERD_RESUME;
	FAILS(tierd_job_open(node, &options, &job), -ENOENT, "there is no job modes to resume");
	options.mode = TIERD_CREATE;
	job = support_join(node, &options, 1);
	OK(tierd_job_state(job, &state));
	REQUIRE(state.status == TIERD_NEW && state.step == 0);
	/* Until it is trained it can be created together, but neither resumed nor joined as the same rank. */
	options.mode = TIERD_RESUME;
	FAILS(tierd_job_open(other, &options, &second), -ENOENT, "no job modes to resume");
	options.mode = TIERD_REPLACE;
	FAILS(tierd_job_open(other, &options, &second), -EBUSY, "is held by process");
	OK(tierd_job_ready(job, -1, NULL));
	OK(tierd_step(job, &rates, NULL));
	options.mode = TIERD_CREATE;
	FAILS(tierd_job_open(other, &options, &second), -EEXIST,
	      "job modes exists at step 1; resume it, or replace it, which destroys its "
	      "state");
	options.mode = TIERD_REPLACE;
	FAILS(tierd_job_open(other, &options, &second), -EBUSY, "1 of its ranks is alive");
	OK(tierd_job_close(job));
	options.mode = TIERD_CREATE;
	FAILS(tierd_job_open(node, &options, &job), -EEXIST, "exists at step 1");
	for (unsigned mode = TIERD_EITHER; mode <= TIERD_RESUME; mode += TIERD_RESUME) {
		options.mode = mode;
		job = support_join(node, &options, 1);
		OK(tierd_job_ready(job, -1, &state));
		REQUIRE(state.status == TIERD_RESUMED && state.step == 1);
		OK(tierd_job_close(job));
	}
	options.mode = TIERD_REPLACE;
	job = support_join(node, &options, 2);
	OK(tierd_job_ready(job, -1, &state));
	REQUIRE(state.status == TIERD_NEW && state.step == 0);
	OK(tierd_job_close(job));
	tierd_disconnect(other);
	support_drop("modes");
}

static void tensors_without_values_are_named(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("unwritten", 0, 1);
	struct tierd_tensor tensors[] = { tensor_of("bare"), tensor_of("ones"), tensor_of("partial"),
					  tensor_of("ice") };
	struct tierd_job *job;
	float values[128] = { 0 };
	uint32_t unit;

	tensors[0].initializer = tensors[2].initializer = tensors[3].initializer = TIERD_INITIALIZE_NONE;
	tensors[3].is_frozen = true;
	OK(tierd_job_open(node, &options, &job));
	OK(tierd_unit_define(job, "unit", tensors, COUNT(tensors), &unit));
	FAILS(tierd_job_ready(job, -1, NULL), -ENODATA, "3 tensors have no values");
	REQUIRE(strstr(tierd_message(), "bare") && strstr(tierd_message(), "partial") &&
		strstr(tierd_message(), "ice"));
	REQUIRE(!strstr(tierd_message(), "ones"));
	FAILS(tierd_tensor_write(job, 0, 1, 0, 1, values, false), -EINVAL, "\"ones\" has an initializer");
	FAILS(tierd_tensor_write(job, 0, 3, 0, 1, values, true), -EINVAL,
	      "\"ice\" is frozen: it has no master");
	FAILS(tierd_tensor_write(job, 0, 0, 100, 29, values, false), -EINVAL, "which has 128");
	FAILS(tierd_tensor_write(job, 0, 0, UINT64_MAX, 2, values, false), -EINVAL, "which has 128");
	FAILS(tierd_tensor_write(job, 0, 9, 0, 1, values, false), -EINVAL, "has no tensor 9: it has 4");
	FAILS(tierd_tensor_write(job, 5, 0, 0, 1, values, false), -EINVAL, "has no unit 5: it has 1");
	OK(tierd_tensor_write(job, 0, 0, 0, 128, values, false));
	OK(tierd_tensor_write(job, 0, 3, 0, 128, values, false));
	OK(tierd_tensor_write(job, 0, 2, 1, 127, values, false));
	FAILS(tierd_job_ready(job, -1, NULL), -ENODATA,
	      "1 tensor has no values and no initializer: \"partial\"");
	OK(tierd_tensor_write(job, 0, 2, 0, 2, values, false));
	OK(tierd_job_ready(job, -1, NULL));
	FAILS(tierd_tensor_write(job, 0, 0, 0, 1, values, false), -EBUSY, "has been ready already");
	OK(tierd_job_close(job));
	support_drop("unwritten");
}

/* Where each unit lies is settled by the first value. */
static void units_that_come_after_a_value_are_refused(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("begun", 0, 1);
	struct tierd_tensor bare = tensor_of("bare"), late = tensor_of("late");
	struct tierd_job *job;
	float values[128] = { 0 };
	uint32_t unit;

	bare.initializer = TIERD_INITIALIZE_NONE;
	OK(tierd_job_open(node, &options, &job));
	OK(tierd_unit_define(job, "unit", &bare, 1, &unit));
	OK(tierd_tensor_write(job, 0, 0, 0, 1, values, false));
	FAILS(tierd_unit_define(job, "late", &late, 1, &unit), -EBUSY,
	      "unit \"late\" comes too late: the job was laid out with its 1 unit by the first "
	      "tierd_tensor_write or tierd_job_ready");
	OK(tierd_tensor_write(job, 0, 0, 0, 128, values, false));
	OK(tierd_job_ready(job, -1, NULL));
	OK(tierd_job_close(job));
	support_drop("begun");
}

/* ---- Once it is ready ---- */

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
	job = support_begin(node, &options, 1);
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

static void rates_that_were_announced_stay(struct tierd_node *node)
{
	struct tierd_job *job = join_ready(node, "rates", 1);
	struct tierd_group group = TIERD_GROUP_INIT;
	struct tierd_rates other = rates;

	other.learning_rate = NAN;
	FAILS(tierd_step(job, &other, NULL), -EINVAL, "the rates' learning_rate is NaN");
	other = rates;
	other.group_count = 1;
	FAILS(tierd_step_begin(job, &other, 1), -EINVAL, "groups is NULL");
	other.group_count = 2;
	FAILS(tierd_step(job, &other, NULL), -EINVAL, "the rates have 2 groups");
	other = rates;
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
	OK(tierd_step(job, &rates, NULL));
	OK(tierd_job_close(job));
}

static void what_is_pushed_once_is_not_pushed_twice(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("once", 0, 1);
	struct tierd_ticket *ticket;
	struct tierd_job *job;
	struct tierd_view view;
	int r;

	options.pushed_once = true;
	job = support_begin(node, &options, 1);
	OK(support_push(job, 0, ELEMENTS, 1.0f));
	OK(tierd_gradients(job, 0, &view));
	OK(tierd_push_begin(job, 0, &ticket));
	FAILS(tierd_ticket_wait(ticket, TIERD_DONE, -1), -EINVAL,
	      "units are pushed once in a step (pushed_once), and this is its second push");
	tierd_ticket_free(ticket);
	OK(tierd_step(job, &rates, NULL));
	FAILS(tierd_step_begin(job, &rates, 2), -EINVAL,
	      "a step of 2 micro-batches, of a job that was opened as one whose units are pushed once");
	/* Nobody waits for a push: what comes after it tells, at the latest the call behind the step. */
	OK(support_push(job, 0, ELEMENTS, 1.0f));
	OK(support_push(job, 0, ELEMENTS, 1.0f));
	r = tierd_step(job, &rates, NULL);
	FAILS(r ? r : tierd_step(job, &rates, NULL), -EINVAL, "an earlier push failed: unit \"u0\"");
	OK(tierd_job_close(job));
}

static void phases_are_limited(struct tierd_node *node)
{
	struct tierd_job *job = join_ready(node, "phases", 1);
	char name[16];
	int r = 0;

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

/* What is held beyond that is refused, with its sizes and what would help. */
static void more_gradients_than_there_are_buffers_are_refused_by_name(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("more", 0, 1);
	struct tierd_job *job;
	struct tierd_view view;

	OK(tierd_job_open(node, &options, &job));
	support_define(job, "embedding", TIERD_FP32, 64 * 1024, 1);
	support_define(job, "head", TIERD_FP32, 63 * 1024, 1);
	for (unsigned i = 0; i < 6; i++) {
		char name[16];

		snprintf(name, sizeof(name), "h%u", i);
		support_define(job, name, TIERD_FP32, 1024, 1);
	}
	OK(tierd_job_ready(job, -1, NULL));
	OK(tierd_gradients(job, 0, &view));
	FAILS(tierd_gradients(job, 1, &view), -ENOBUFS,
	      "the gradients of \"head\" take 252 KiB, for which this rank has one buffer, of 256 KiB, and "
	      "holds it for \"embedding\"; push or discard that, or cut one of the two into several units "
	      "(slices)");
	OK(tierd_gradients(job, 2, &view));
	OK(tierd_gradients(job, 3, &view));
	FAILS(tierd_gradients(job, 4, &view), -ENOBUFS,
	      "all 2 gradient buffers of 4 KiB are held by this rank, one of them for \"h0\"; push or "
	      "discard "
	      "one, or open the job with more");
	OK(tierd_push(job, 0));
	OK(tierd_gradients(job, 1, &view));
	for (uint32_t unit = 1; unit < 4; unit++)
		OK(tierd_discard(job, unit));
	OK(tierd_job_close(job));
	support_drop("more");
}

/* An embedding has all of the room, or what is beside it together. */
static void more_gradients_than_the_room_has_are_refused_by_name(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("more", 0, 1);
	struct tierd_job *job;
	struct tierd_view view;

	options.gradient_buffers = 3;
	options.gradient_bytes = 1;
	OK(tierd_job_open(node, &options, &job));
	support_define(job, "embedding", TIERD_FP32, 64 * 1024, 1);
	for (unsigned i = 0; i < 6; i++) {
		char name[16];

		snprintf(name, sizeof(name), "h%u", i);
		support_define(job, name, TIERD_FP32, 16 * 1024, 1);
	}
	OK(tierd_job_ready(job, -1, NULL));
	OK(tierd_gradients(job, 0, &view));
	FAILS(tierd_gradients(job, 1, &view), -ENOBUFS,
	      "the gradients of \"h0\" take 64 KiB, and this rank holds 256 KiB of its room of 256 KiB for 1 "
	      "unit, one of them \"embedding\"; push or discard some, or open the job with more "
	      "gradient_bytes");
	OK(tierd_push(job, 0));
	for (uint32_t unit = 1; unit < 4; unit++)
		OK(tierd_gradients(job, unit, &view));
	FAILS(tierd_gradients(job, 4, &view), -ENOBUFS,
	      "holds 192 KiB of its room of 256 KiB for 3 units, one of them \"h0\"; push or discard some, "
	      "or "
	      "open the job with more gradient_buffers");
	OK(tierd_push(job, 2));
	OK(tierd_gradients(job, 4, &view));
	for (uint32_t unit = 1; unit < 5; unit++)
		if (unit != 2)
			OK(tierd_discard(job, unit));
	OK(tierd_job_close(job));
	support_drop("more");
}

static void other_optimizers_have_no_reduced_steps(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("others", 0, 1);
	struct tierd_job *job = support_join(node, &options, 1);
	struct tierd_ticket *ticket;
	float value = 0;

	OK(tierd_job_ready(job, -1, NULL));
	OK(support_push(job, 0, ELEMENTS, 1.0f));
	OK(tierd_step(job, &rates, &ticket));
	FAILS(tierd_ticket_wait(ticket, TIERD_REDUCED, -1), -EINVAL, "only one with the optimizer none");
	FAILS(tierd_tensor_read(job, 0, 0, "gradient", 0, 1, &value), -ENODATA, "there is no state");
	FAILS(tierd_tensor_write(job, 0, 0, 0, 1, &value, true), -EBUSY, "has been ready already");
	OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
	FAILS(tierd_step_finish(job), -EBUSY, "it has closed none");
	tierd_ticket_free(ticket);
	OK(tierd_job_close(job));
}

static void a_step_of_owners_needs_a_ticket(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("owners", 0, 1);
	struct tierd_job *job;

	options.optimizer = TIERD_NONE;
	job = support_begin(node, &options, 1);
	FAILS(tierd_step(job, &rates, NULL), -EINVAL, "its step needs a ticket");
	OK(tierd_job_close(job));
}

int main(void)
{
	static void (*const tests[])(struct tierd_node *) = {
		wrong_options_are_refused,
		wrong_tensors_are_refused,
		units_that_cannot_be_are_refused,
		a_state_that_no_store_can_have_is_refused,
		ranks_that_are_missing_or_doubled_are_named,
		modes_are_kept,
		tensors_without_values_are_named,
		units_that_come_after_a_value_are_refused,
		calls_before_ready_are_refused,
		leases_and_buffers_are_in_the_way_of_a_step,
		frozen_units_have_no_gradients,
		a_momentum_that_the_job_does_not_keep_is_refused,
		rates_that_were_announced_stay,
		what_is_pushed_once_is_not_pushed_twice,
		phases_are_limited,
		ranks_must_step_alike,
		tickets_are_of_one_kind,
		a_gather_that_can_never_fit_names_the_holders,
		more_gradients_than_there_are_buffers_are_refused_by_name,
		more_gradients_than_the_room_has_are_refused_by_name,
		other_optimizers_have_no_reduced_steps,
		a_step_of_owners_needs_a_ticket,
	};
	struct tierd_node *node = support_connect();
	struct tierd_job *bystander = join_ready(node, "bystander", 1);

	for (size_t i = 0; i < COUNT(tests); i++) {
		tests[i](node);
		OK(support_push(bystander, 0, ELEMENTS, 0.5f));
		OK(tierd_step(bystander, &rates, NULL));
	}
	OK(tierd_job_close(bystander));
	tierd_disconnect(node);
	support_drop("bystander");
	return 0;
}
