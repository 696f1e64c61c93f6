/* What a trainer can do wrong until its job is ready: each gets a clear error, at once, and nobody else
 * notices. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crash_support.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char long_name[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
				"aaaaaaaaaaaaaaaaaaaaaaaaaa"
				"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/* ---- Options ---- */

static struct tierd_group groups[TIERD_MAX_GROUPS + 1];

static void set_group(struct tierd_job_options *options, struct tierd_group group)
{
	groups[0] = group;
	options->groups = groups;
	options->group_count = 1;
}

#define CHANGE(name, statement)                                                                              \
	static void name(struct tierd_job_options *options)                                                  \
	{                                                                                                    \
		statement;                                                                                   \
	}

CHANGE(no_size, options->size = 0)
CHANGE(no_name, options->name = NULL)
CHANGE(empty_name, options->name = "")
CHANGE(slash, options->name = "a/b")
CHANGE(dots, options->name = "a..b")
CHANGE(only_dots, options->name = "..")
CHANGE(underscore, options->name = "_a")
CHANGE(long_job_name, options->name = long_name)
CHANGE(rank_beyond, options->rank = 2)
CHANGE(world_of_none, options->world_size = 0)
CHANGE(world_of_many, options->world_size = TIERD_MAX_WORLD_SIZE + 1)
CHANGE(stage_4, options->stage = 4)
CHANGE(mode_9, options->mode = 9)
CHANGE(optimizer_7, options->optimizer = 7)
CHANGE(clip_nan, options->clip_norm = NAN)
CHANGE(clip_negative, options->clip_norm = -1)
CHANGE(clip_infinite, options->clip_norm = INFINITY)
CHANGE(nonfinite_5, options->nonfinite = 5)
CHANGE(placement_5, options->parameter_placement = 5)
CHANGE(buffers_65, options->gradient_buffers = 65)
CHANGE(weight_10001, options->io_weight = 10001)
CHANGE(groups_1025, set_group(options, (struct tierd_group)TIERD_GROUP_INIT); options->group_count = 1025)
CHANGE(groups_null, options->group_count = 1)
CHANGE(group_size, set_group(options, (struct tierd_group){ 4, 1, 0.9f, 0.999f, 1e-8f, 0 }))
CHANGE(beta_1, set_group(options, (struct tierd_group){ sizeof(groups[0]), 1, 1.0f, 0.999f, 1e-8f, 0 }))
CHANGE(beta_nan, set_group(options, (struct tierd_group){ sizeof(groups[0]), 1, 0.9f, NAN, 1e-8f, 0 }))
CHANGE(epsilon_0, set_group(options, (struct tierd_group){ sizeof(groups[0]), 1, 0.9f, 0.999f, 0, 0 }))
CHANGE(rate_nan, set_group(options, (struct tierd_group){ sizeof(groups[0]), NAN, 0.9f, 0.999f, 1e-8f, 0 }))
CHANGE(lion_beta, options->optimizer = TIERD_LION;
       set_group(options, (struct tierd_group){ sizeof(groups[0]), 1, 0.9f, 1.5f, 0, 0 }))
CHANGE(momentum_negative, options->optimizer = TIERD_SGD;
       set_group(options, (struct tierd_group){ sizeof(groups[0]), .momentum = -0.5f }))
CHANGE(nesterov_alone, options->optimizer = TIERD_SGD;
       set_group(options, (struct tierd_group){ sizeof(groups[0]), .nesterov = true }))
CHANGE(nesterov_dampened, options->optimizer = TIERD_SGD;
       set_group(options, (struct tierd_group){ sizeof(groups[0]), .momentum = 0.5f, .dampening = 0.1f,
						.nesterov = true }))
CHANGE(scale_0, options->loss_scale = 0)
CHANGE(scale_negative, options->loss_scale = -2)
CHANGE(scale_nan, options->loss_scale = NAN)
CHANGE(growth_1, options->loss_scale_interval = 10; options->loss_scale_growth = 1)
CHANGE(backoff_1, options->loss_scale_interval = 10; options->loss_scale_backoff = 1)
CHANGE(backoff_nan, options->loss_scale_interval = 10; options->loss_scale_backoff = NAN)
CHANGE(minimum_0, options->loss_scale_interval = 10; options->loss_scale_minimum = 0)
CHANGE(minimum_above, options->loss_scale_interval = 10; options->loss_scale_minimum = 2)
CHANGE(dynamic_reports, options->loss_scale_interval = 10; options->nonfinite = TIERD_NONFINITE_REPORT)
CHANGE(nvme_at_stage_2, options->stage = 2; options->parameter_placement = TIERD_PLACE_NVME)
CHANGE(sums_on_nvme_at_stage_1, options->stage = 1; options->gradient_placement = TIERD_PLACE_NVME)
CHANGE(gradient_placement_5, options->gradient_placement = 5)

static void bad_options_are_refused(struct tierd_node *node)
{
	static const struct {
		void (*change)(struct tierd_job_options *options);
		const char *text;
	} cases[] = {
		{ no_size, "wrong size" },
		{ no_name, "a job's name is" },
		{ empty_name, "a job's name is" },
		{ slash, "a job's name is" },
		{ dots, "without \"..\"" },
		{ only_dots, "a job's name is" },
		{ underscore, "a job's name is" },
		{ long_job_name, "a job's name is 1 to 63" },
		{ rank_beyond, "rank 2 is not below the world size, 2" },
		{ world_of_none, "world size 0" },
		{ world_of_many, "world size 1025 is not within 1 to 1024" },
		{ stage_4, "stage 4" },
		{ mode_9, "no open mode 9" },
		{ optimizer_7, "no optimizer 7" },
		{ clip_nan, "clip_norm is" },
		{ clip_negative, "clip_norm is -1" },
		{ clip_infinite, "clip_norm is inf" },
		{ nonfinite_5, "no treatment 5" },
		{ placement_5, "no such placement" },
		{ buffers_65, "65 gradient buffers; at most 64" },
		{ weight_10001, "io_weight is 10001; 1 to 10000" },
		{ groups_1025, "1025 parameter groups" },
		{ groups_null, "groups is NULL" },
		{ group_size, "group 0 has a wrong size" },
		{ beta_1, "betas are 1 and" },
		{ beta_nan, "betas are 0.9 and" },
		{ epsilon_0, "epsilon is 0" },
		{ rate_nan, "a rate is not finite" },
		{ lion_beta, "betas are 0.9 and 1.5" },
		{ momentum_negative, "momentum is -0.5" },
		{ nesterov_alone, "nesterov with momentum 0" },
		{ nesterov_dampened, "dampening 0.1; it wants a momentum and no dampening" },
		{ scale_0, "loss_scale is 0" },
		{ scale_negative, "loss_scale is -2" },
		{ scale_nan, "loss_scale is nan" },
		{ growth_1, "loss_scale_growth is 1; it is above 1" },
		{ backoff_1, "loss_scale_backoff is 1; it is between" },
		{ backoff_nan, "loss_scale_backoff is nan" },
		{ minimum_0, "loss_scale_minimum is 0" },
		{ minimum_above,
		  "loss_scale_minimum is 2; it is above 0 and at most loss_scale, which is 1" },
		{ dynamic_reports, "nonfinite cannot report" },
		{ nvme_at_stage_2, "parameters on NVMe at stage 2" },
		{ sums_on_nvme_at_stage_1, "gradient sums on NVMe at stage 1" },
		{ gradient_placement_5, "no such placement" },
	};
	struct tierd_job *job = NULL;

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct tierd_job_options options = support_options("options", 0, 2);

		cases[i].change(&options);
		FAILS(tierd_job_open(node, &options, &job), -EINVAL, cases[i].text);
		REQUIRE(!job);
	}
}

CHANGE(other_world, options->world_size = 3)
CHANGE(other_stage, options->stage = 1)
CHANGE(other_scale, options->loss_scale = 8)
CHANGE(other_interval, options->loss_scale_interval = 100)
CHANGE(other_optimizer, options->optimizer = TIERD_LION)
CHANGE(other_nonfinite, options->nonfinite = TIERD_NONFINITE_REPORT)
CHANGE(other_placement, options->parameter_placement = TIERD_PLACE_HOST)
CHANGE(other_optimizer_placement, options->optimizer_placement = TIERD_PLACE_HOST)
CHANGE(other_gradient_placement, options->gradient_placement = TIERD_PLACE_NVME)
CHANGE(other_budget, options->host_budget = 1 << 20)
CHANGE(other_buffers, options->gradient_buffers = 3)
CHANGE(other_weight, options->io_weight = 3)
CHANGE(other_strict, options->strict = true)
CHANGE(other_seed, options->seed = 5)
CHANGE(other_clip, options->clip_norm = 2)
CHANGE(other_group_count, set_group(options, (struct tierd_group)TIERD_GROUP_INIT); groups[1] = groups[0];
       options->group_count = 2)
CHANGE(other_group, set_group(options, (struct tierd_group)TIERD_GROUP_INIT); groups[0].weight_decay = 0.5f)

static void ranks_that_disagree_hear_the_difference(struct tierd_node *node)
{
	static const struct {
		void (*change)(struct tierd_job_options *options);
		const char *text;
	} cases[] = {
		{ other_world, "rank 1: world size is 3 here, 2 in the job" },
		{ other_scale, "loss_scale is 8 here, 1 in the job" },
		{ other_interval, "loss_scale_interval is 100 here, 0 in the job" },
		{ other_optimizer, "optimizer is lion here, adamw in the job" },
		{ other_stage, "stage is 1 here, 3 in the job" },
		{ other_nonfinite, "nonfinite is 1 here, 0 in the job" },
		{ other_placement, "parameter placement is" },
		{ other_optimizer_placement, "optimizer placement is" },
		{ other_gradient_placement, "gradient placement is" },
		{ other_budget, "host budget is 1048576 here, 0 in the job" },
		{ other_buffers, "gradient buffers is 3 here, 2 in the job" },
		{ other_weight, "io_weight is 3 here, 100 in the job" },
		{ other_strict, "strict is 1 here, 0 in the job" },
		{ other_seed, "seed is 5 here, 0 in the job" },
		{ other_clip, "clip_norm is 2 here, 0 in the job" },
		{ other_group_count, "number of parameter groups is 2 here, 1 in the job" },
		{ other_group, "parameter group 0: weight decay is 0.5 here, 0.01 in the job" },
	};
	struct tierd_job_options options = support_options("disagree", 0, 2);
	struct tierd_job *first = support_join(node, &options, 1), *second = NULL;

	for (size_t i = 0; i < COUNT(cases); i++) {
		options = support_options("disagree", 1, 2);
		cases[i].change(&options);
		FAILS(tierd_job_open(node, &options, &second), -EINVAL, cases[i].text);
		REQUIRE(!second);
	}
	OK(tierd_job_close(first));
}

/* ---- Units ---- */

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

#define TENSOR(name, statement)                                                                              \
	static void name(struct tierd_tensor *tensor)                                                        \
	{                                                                                                    \
		statement;                                                                                   \
	}

TENSOR(tensor_size, tensor->size = 3)
TENSOR(tensor_no_name, tensor->name = NULL)
TENSOR(tensor_empty_name, tensor->name = "")
TENSOR(tensor_long_name, tensor->name = long_name)
TENSOR(tensor_newline, tensor->name = "a\nb")
TENSOR(tensor_override, tensor->name = "exe\xe2\x80\xaegpj")
TENSOR(tensor_nine, tensor->dimensions = 9)
TENSOR(tensor_overflow, tensor->shape[0] = UINT64_C(1) << 63; tensor->shape[1] = 4)
TENSOR(tensor_wraps_to_zero, tensor->shape[0] = UINT64_C(1) << 32; tensor->shape[1] = UINT64_C(1) << 32)
TENSOR(tensor_huge, tensor->shape[0] = UINT64_C(1) << 44; tensor->shape[1] = 2)
TENSOR(tensor_format, tensor->format = 5)
TENSOR(tensor_bytes, tensor->format = TIERD_BYTES)
TENSOR(tensor_filled_bytes, tensor->format = TIERD_BYTES; tensor->is_frozen = true)
TENSOR(tensor_dtype, tensor->dtype = "F64[64]")
TENSOR(tensor_gradients, tensor->gradient_format = TIERD_BYTES)
TENSOR(tensor_initializer, tensor->initializer = 5)
TENSOR(tensor_deviation, tensor->initializer = TIERD_INITIALIZE_NORMAL; tensor->b = -1.0)
TENSOR(tensor_nan, tensor->initializer = TIERD_INITIALIZE_NORMAL; tensor->a = NAN)
TENSOR(tensor_group, tensor->group = 1)
TENSOR(tensor_slice, tensor->slice_of = "big"; tensor->slice_row = 1; tensor->slice_rows = 8)
TENSOR(tensor_slice_wraps, tensor->slice_of = "big"; tensor->slice_row = UINT64_MAX; tensor->slice_rows = 8)
TENSOR(tensor_scalar_slice, tensor->slice_of = "big"; tensor->slice_rows = 8; tensor->dimensions = 0)
TENSOR(tensor_twice, tensor->name = "taken")
TENSOR(tensor_alias, tensor->alias = "")

static void bad_tensors_are_refused(struct tierd_node *node)
{
	static const struct {
		void (*change)(struct tierd_tensor *tensor);
		int error;
		const char *text;
	} cases[] = {
		{ tensor_size, -EINVAL, "tensor 0 has a wrong size" },
		{ tensor_no_name, -EINVAL, "has no name" },
		{ tensor_empty_name, -EINVAL, "has no name" },
		{ tensor_long_name, -ENAMETOOLONG, "longer than 128 bytes" },
		{ tensor_newline, -EINVAL, "not printable" },
		{ tensor_override, -EINVAL, "\"exe???gpj\", has a character that is not printable" },
		{ tensor_nine, -EINVAL, "has 9 dimensions, more than 8" },
		{ tensor_overflow, -EOVERFLOW, "more than 2^44 elements" },
		{ tensor_wraps_to_zero, -EOVERFLOW, "more than 2^44 elements" },
		{ tensor_huge, -EOVERFLOW, "more than 2^44 elements" },
		{ tensor_format, -EINVAL, "5 is no number format" },
		{ tensor_bytes, -EINVAL, "holds bytes, which cannot be trained; set is_frozen" },
		{ tensor_filled_bytes, -EINVAL, "write it with tierd_tensor_write" },
		{ tensor_dtype, -EINVAL, "only bytes (TIERD_BYTES) have a dtype" },
		{ tensor_gradients, -EINVAL,
		  "gradients of format 4; they are in the tensor's own format, or in fp32 (TIERD_FP32)" },
		{ tensor_initializer, -EINVAL, "5 is no initializer" },
		{ tensor_deviation, -EINVAL, "its standard deviation is -1, below 0" },
		{ tensor_nan, -EINVAL, "not finite" },
		{ tensor_group, -EINVAL, "is of group 1, but the job has 1" },
		{ tensor_slice, -ERANGE, "has 8 rows from row 1 on, but \"big\" has only 8" },
		{ tensor_slice_wraps, -ERANGE, "but \"big\" has only 8" },
		{ tensor_scalar_slice, -EINVAL, "a scalar has no rows" },
		{ tensor_twice, -EEXIST, "there is already a tensor \"taken\"" },
		{ tensor_alias, -EINVAL, "alias has no name" },
	};
	struct tierd_job_options options = support_options("units", 0, 1);
	struct tierd_tensor tensor = tensor_of("taken");
	struct tierd_job *job;
	uint32_t unit = 7;

	OK(tierd_job_open(node, &options, &job));
	OK(tierd_unit_define(job, "unit", &tensor, 1, &unit));
	for (size_t i = 0; i < COUNT(cases); i++) {
		tensor = tensor_of("tensor");
		cases[i].change(&tensor);
		FAILS(tierd_unit_define(job, "other", &tensor, 1, &unit), cases[i].error, cases[i].text);
		REQUIRE(unit == 0);
	}
	tensor = tensor_of("tensor");
	FAILS(tierd_unit_define(job, "unit", &tensor, 1, &unit), -EEXIST, "there is already a unit \"unit\"");
	FAILS(tierd_unit_define(job, "", &tensor, 1, &unit), -EINVAL, "has no name");
	FAILS(tierd_unit_define(job, long_name, &tensor, 1, &unit), -ENAMETOOLONG, "128 bytes");
	FAILS(tierd_unit_define(job, "none", &tensor, 0, &unit), -EINVAL, "has 0 tensors");
	FAILS(tierd_unit_define(job, "many", &tensor, 65537, &unit), -EINVAL, "has 65537 tensors");
	struct tierd_tensor halves[2] = { tensor_of("half"), tensor_of("other half") };

	halves[0].shape[0] = halves[1].shape[0] = UINT64_C(1) << 40;
	FAILS(tierd_unit_define(job, "sum", halves, 2, &unit), -EOVERFLOW,
	      "unit \"sum\" has more than 2^44 elements");
	OK(tierd_unit_define(job, "last", &tensor, 1, &unit));
	REQUIRE(unit == 1);
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

TENSOR(differs_name, tensor->name = "another")
TENSOR(differs_format, tensor->format = TIERD_BF16)
TENSOR(differs_shape, tensor->shape[1] = 17)
TENSOR(differs_dimensions, tensor->dimensions = 1)
TENSOR(differs_frozen, tensor->is_frozen = true)
TENSOR(differs_alias, tensor->alias = "tied")
TENSOR(differs_initializer, tensor->initializer = TIERD_INITIALIZE_ZEROS)
TENSOR(differs_slice, tensor->slice_of = "big"; tensor->slice_rows = 8)

static void units_that_differ_are_named(struct tierd_node *node)
{
	static const struct {
		void (*change)(struct tierd_tensor *tensor);
		const char *text;
	} cases[] = {
		{ differs_name, "unit \"first\": tensor \"another\" here, \"tensor\" in the job" },
		{ differs_format, "tensor \"tensor\": format bf16 here, fp32 in the job" },
		{ differs_shape, "shape [8, 17] here, [8, 16] in the job" },
		{ differs_dimensions, "shape [8] here, [8, 16] in the job" },
		{ differs_frozen, "frozen here, trained in the job" },
		{ differs_alias, "alias \"tied\" here, no alias in the job" },
		{ differs_initializer, "initializer zeros with " },
		{ differs_slice, "slice from row 0 of 8 of \"big\" here, no slice in the job" },
	};
	struct tierd_job_options options = support_options("differ", 0, 2);
	struct tierd_tensor tensor = tensor_of("tensor"), pair[2] = { tensor, tensor_of("more") };
	struct tierd_job *jobs[2];
	struct tierd_ticket *ticket;
	uint32_t unit;

	OK(tierd_job_open(node, &options, &jobs[0]));
	OK(tierd_unit_define(jobs[0], "first", &tensor, 1, &unit));
	options.rank = 1;
	OK(tierd_job_open(node, &options, &jobs[1]));
	for (size_t i = 0; i < COUNT(cases); i++) {
		tensor = tensor_of("tensor");
		cases[i].change(&tensor);
		FAILS(tierd_unit_define(jobs[1], "first", &tensor, 1, &unit), -EINVAL, cases[i].text);
		REQUIRE(strstr(tierd_message(), "rank 1"));
	}
	tensor = tensor_of("tensor");
	FAILS(tierd_unit_define(jobs[1], "second", &tensor, 1, &unit), -EINVAL,
	      "unit 0 is \"second\" here, \"first\" in the job");
	FAILS(tierd_unit_define(jobs[1], "first", pair, 2, &unit), -EINVAL,
	      "has 2 tensors here, 1 in the job");
	FAILS(tierd_job_ready(jobs[1], -1, NULL), -EINVAL, "has no units");
	OK(tierd_unit_define(jobs[1], "first", &tensor, 1, &unit));
	OK(tierd_unit_define(jobs[1], "second", &pair[1], 1, &unit));
	/* Now rank 0 has one too few. */
	OK(tierd_job_ready_begin(jobs[1], -1, &ticket));
	FAILS(tierd_job_ready(jobs[0], -1, NULL), -EINVAL,
	      "rank 0 has defined 1 of 2 units; unit \"second\" is missing");
	OK(tierd_unit_define(jobs[0], "second", &pair[1], 1, &unit));
	OK(tierd_job_ready(jobs[0], -1, NULL));
	OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
	tierd_ticket_free(ticket);
	OK(tierd_job_close(jobs[0]));
	OK(tierd_job_close(jobs[1]));
	support_drop("differ");
}

/* ---- Ranks ---- */

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
	FAILS(tierd_gather(first, 0, &view), -EINVAL, "not ready");
	FAILS(tierd_job_ready(first, -1, NULL), -ENOENT, "was taken over by another process");
	tierd_job_detach(first);
	FAILS(tierd_job_ready(double_first, 0, NULL), -ETIMEDOUT, "rank 1 (has not joined)");
	OK(tierd_job_close(double_first));
	tierd_disconnect(other);
}

static void a_taken_over_trainer_is_told(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("taken", 0, 1);
	struct tierd_job *job = support_join(node, &options, 1), *taker;
	struct tierd_node *other = support_connect();
	struct tierd_job_state state;
	struct tierd_view held, view;

	OK(tierd_job_ready(job, -1, NULL));
	OK(tierd_gather(job, 0, &held));
	options.takeover = true;
	taker = support_join(other, &options, 1);
	FAILS(tierd_gather(job, 0, &view), -ESTALE, "rank 0 (pid ");
	REQUIRE(strstr(tierd_message(), "was taken over by another process"));
	OK(tierd_job_ready(taker, -1, &state));
	REQUIRE(state.status == TIERD_RESUMED);
	REQUIRE(((const float *)tierd_at(&held, 0))[0] == 1.0f);
	OK(tierd_release(job, 0));
	tierd_job_detach(job);
	OK(tierd_job_close(taker));
	tierd_disconnect(other);
	support_drop("taken");
}

/* ---- Modes ---- */

static void modes_are_kept(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("modes", 0, 1);
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
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

/* ---- Too much ---- */

static void jobs_that_do_not_fit_hear_the_numbers(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("large", 0, 1);
	struct tierd_tensor tensor = tensor_of("large");
	struct tierd_job *job;
	char name[16];
	uint32_t unit;

	options.host_budget = 1 << 20;
	job = support_join(node, &options, 1);
	FAILS(tierd_job_ready(job, -1, NULL), -ENOMEM, "it needs at least ");
	REQUIRE(strstr(tierd_message(), "there are 1.0 MiB (the job's host_budget)"));
	OK(tierd_job_close(job));

	options.host_budget = 0;
	OK(tierd_job_open(node, &options, &job));
	tensor.shape[0] = UINT64_C(1) << 39;
	OK(tierd_unit_define(job, "large", &tensor, 1, &unit));
	FAILS(tierd_job_ready(job, -1, NULL), -ENOMEM, "what tierd has left of its own");
	REQUIRE(strstr(tierd_message(), "optimizer state") && strstr(tierd_message(), "TiB"));
	OK(tierd_job_close(job));

	/* Frozen values need little but disk: 80 units of 16 MiB. */
	OK(tierd_job_open(node, &options, &job));
	tensor.shape[0] = 1 << 18;
	tensor.shape[1] = 1 << 4;
	tensor.is_frozen = true;
	for (unsigned i = 0; i < 80; i++) {
		snprintf(name, sizeof(name), "frozen%u", i);
		tensor.name = name;
		OK(tierd_unit_define(job, name, &tensor, 1, &unit));
	}
	FAILS(tierd_job_ready(job, -1, NULL), -ENOSPC, "it needs 1.");
	REQUIRE(strstr(tierd_message(), " GiB on ") && strstr(tierd_message(), "are left there"));
	OK(tierd_job_close(job));
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

/* ---- Another user ---- */

static void play_another_user(void)
{
	struct tierd_node *node;
	struct tierd_job_options options = support_options("shared-name", 0, 1);
	struct tierd_job_state state;
	struct tierd_job *job;
	struct tierd_view view;

	/* The folder that it lies in may be closed to that user. */
	int tierctl = open(getenv("TIERCTL"), O_RDONLY);

	REQUIRE(tierctl >= 0);
	REQUIRE(setgroups(0, NULL) == 0 && setresgid(65534, 65534, 65534) == 0 &&
		setresuid(65534, 65534, 65534) == 0);
	node = support_connect();
	options.mode = TIERD_RESUME;
	FAILS(tierd_job_open(node, &options, &job), -ENOENT, "there is no job");
	options.mode = TIERD_CREATE;
	options.stage = 1;
	job = support_join(node, &options, 3);
	OK(tierd_job_ready(job, -1, &state));
	REQUIRE(state.status == TIERD_NEW);
	OK(tierd_gather(job, 2, &view));
	REQUIRE(((const float *)tierd_at(&view, 0))[0] == 1.0f);
	OK(tierd_release(job, 2));
	OK(tierd_job_close(job));
	char text[4096], command[64];

	snprintf(command, sizeof(command), "/proc/self/fd/%d jobs --json", tierctl);
	FILE *jobs = popen(command, "r");
	size_t length = fread(text, 1, sizeof(text) - 1, jobs);

	text[length] = '\0';
	REQUIRE(pclose(jobs) == 0);
	REQUIRE(strstr(text, "shared-name") && !strstr(text, "bystander"));
	snprintf(command, sizeof(command), "/proc/self/fd/%d drop shared-name --yes", tierctl);
	REQUIRE(system(command) == 0);
	tierd_disconnect(node);
}

static void another_user_has_his_own_jobs(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("shared-name", 0, 1);
	struct tierd_job *job;
	struct tierd_job_state state;
	pid_t child;
	int status;

	if (getuid() != 0) {
		printf("skipped: only root can play another user\n");
		return;
	}
	job = support_join(node, &options, 1);
	OK(tierd_job_ready(job, -1, NULL));
	child = fork();
	REQUIRE(child >= 0);
	if (child == 0) {
		play_another_user();
		exit(0);
	}
	REQUIRE(waitpid(child, &status, 0) == child && status == 0);
	OK(tierd_job_state(job, &state));
	OK(support_push(job, 0, 1000, 1.0f));
	OK(tierd_job_close(job));
	support_drop("shared-name");
}

/* Trains on beside all this. */
static void go_on(struct tierd_job *bystander)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };

	OK(support_push(bystander, 0, 1000, 0.5f));
	OK(tierd_step(bystander, &rates, NULL));
}

int main(void)
{
	static void (*const tests[])(struct tierd_node *) = {
		bad_options_are_refused,
		ranks_that_disagree_hear_the_difference,
		bad_tensors_are_refused,
		a_state_that_no_store_can_have_is_refused,
		units_that_differ_are_named,
		ranks_that_are_missing_or_doubled_are_named,
		a_taken_over_trainer_is_told,
		modes_are_kept,
		jobs_that_do_not_fit_hear_the_numbers,
		tensors_without_values_are_named,
		units_that_come_after_a_value_are_refused,
		another_user_has_his_own_jobs,
	};
	struct tierd_node *node = support_connect();
	struct tierd_job_options options = support_options("bystander", 0, 1);
	struct tierd_job *bystander = support_join(node, &options, 1);

	OK(tierd_job_ready(bystander, -1, NULL));
	for (size_t i = 0; i < COUNT(tests); i++) {
		tests[i](node);
		go_on(bystander);
	}
	OK(tierd_job_close(bystander));
	tierd_disconnect(node);
	support_drop("bystander");
	return 0;
}
