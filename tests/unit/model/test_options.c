/* A job's options: what is refused and how it is said, what is filled in, what two ranks may not differ in.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/cleanup.h"
#include "daemon/model/options.h"
#include "tests/unit/test.h"

static char message[512];

static Tierd__Wire__JobOpen valid(void)
{
	Tierd__Wire__JobOpen open = TIERD__WIRE__JOB_OPEN__INIT;

	open.name = (char *)"gpt";
	open.world_size = 4;
	open.stage = 3;
	return open;
}

/* Those of the options that were read last. */
static struct optimizer_group own_groups[WIRE_MAX_GROUPS];

static int read_options(const Tierd__Wire__JobOpen *open, struct job_options *options)
{
	message[0] = '\0';
	return options_read(options, own_groups, open, true, message, sizeof(message));
}

static void expect_refused(const Tierd__Wire__JobOpen *open, const char *text)
{
	struct job_options options;

	assert_int_equal(read_options(open, &options), -EINVAL);
	if (!strstr(message, text))
		fail_msg("\"%s\" does not say \"%s\"", message, text);
}

static void what_is_not_given_is_filled_in(void **state)
{
	Tierd__Wire__JobOpen open = valid();
	struct job_options options;

	assert_int_equal(read_options(&open, &options), 0);
	assert_int_equal(options.parameter_placement, PLACEMENT_NVME);
	assert_int_equal(options.optimizer_placement, PLACEMENT_NVME);
	assert_int_equal(options.gradient_buffers, 2);
	open.gradient_bytes = 1;
	assert_int_equal(read_options(&open, &options), 0);
	assert_int_equal(options.gradient_buffers, 64);
	open.gradient_bytes = 0;
	assert_int_equal(options.io_weight, 100);
	assert_int_equal(options.group_count, 1);
	assert_string_equal(options.optimizer->name, "adamw");
	assert_int_equal(options.slot_count, 2);
	assert_true(options.loss_scale.initial == 1 && !loss_scale_is_dynamic(&options.loss_scale));
	open.stage = 1;
	assert_int_equal(read_options(&open, &options), 0);
	assert_int_equal(options.parameter_placement, PLACEMENT_HOST);
	assert_int_equal(options_read(&options, own_groups, &open, false, message, sizeof(message)), 0);
	assert_int_equal(options.optimizer_placement, PLACEMENT_HOST);
}

static void wrong_values_are_refused(void **state)
{
	Tierd__Wire__JobOpen open;

#define REFUSED(field, value, text) (open = valid(), open.field = (value), expect_refused(&open, text))
	REFUSED(world_size, 0, "world size 0");
	REFUSED(world_size, 1025, "world size 1025");
	REFUSED(rank, 4, "rank 4 of world size 4");
	REFUSED(stage, 4, "stage 4");
	REFUSED(mode, 4, "open mode 4");
	REFUSED(optimizer, 5, "optimizer 5");
	REFUSED(clip_norm, -1.0f, "clip_norm is -1");
	REFUSED(clip_norm, NAN, "clip_norm");
	REFUSED(nonfinite, 2, "treatment 2");
	REFUSED(loss_scale, -1.0f, "loss_scale is -1");
	REFUSED(loss_scale_interval, 5, "loss_scale_growth is 0");
	REFUSED(parameter_placement, 4, "placement");
	REFUSED(gradient_placement, 4, "placement");
	REFUSED(gradient_buffers, 65, "65 gradient buffers");
	REFUSED(gradient_bytes, UINT64_MAX, "gradient_bytes is 18446744073709551615; 1125899906842624 are");
	REFUSED(sharing, 3, "no sharing 3");
	REFUSED(durability, 86401, "durability is 86401 s");
	REFUSED(durability, UINT32_MAX - 2, "1 to 86400 seconds");
	REFUSED(io_weight, 10001, "io_weight is 10001; 1 to 10000");
	REFUSED(snapshots, 15, "room for 15 snapshots; at most 14");
	open = valid();
	open.durability = DURABILITY_NONE;
	open.snapshots = 2;
	expect_refused(&open, "room for 2 snapshots of a job that is not durable");
	expect_refused(&open, "leave snapshots at 0, or take another durability");
	REFUSED(snapshot_every, 5, "there is room for no snapshot");
	REFUSED(snapshot_keep, 1, "snapshot_keep is 1, and there is room for 0");
	open = valid();
	open.stage = 2;
	open.parameter_placement = PLACEMENT_NVME;
	expect_refused(&open, "parameters on NVMe at stage 2");
	open = valid();
	open.stage = 1;
	open.gradient_placement = PLACEMENT_NVME;
	expect_refused(&open, "gradient sums on NVMe at stage 1");
#undef REFUSED
}

static void nvme_without_a_path_is_refused(void **state)
{
	Tierd__Wire__JobOpen open = valid();
	struct job_options options;

	open.optimizer_placement = PLACEMENT_NVME;
	assert_int_equal(options_read(&options, own_groups, &open, false, message, sizeof(message)), -EINVAL);
	assert_non_null(strstr(message, "no NVMe path"));
	open = valid();
	open.gradient_placement = PLACEMENT_NVME;
	assert_int_equal(options_read(&options, own_groups, &open, false, message, sizeof(message)), -EINVAL);
	assert_non_null(strstr(message, "no NVMe path"));
}

static void wrong_groups_are_refused(void **state)
{
	Tierd__Wire__Group group = TIERD__WIRE__GROUP__INIT, *groups[WIRE_MAX_GROUPS + 1];
	Tierd__Wire__JobOpen open = valid();
	const Tierd__Wire__Group good = { group.base, 1.0f, 0.9f, 0.99f, 1e-8f, 0.0f };

	for (unsigned i = 0; i < ARRAY_LENGTH(groups); i++)
		groups[i] = &group;
	open.n_groups = 1;
	open.groups = groups;
	group = good;
	group.beta1 = 1.0f;
	expect_refused(&open, "parameter group 0: betas");
	group.beta1 = NAN;
	expect_refused(&open, "betas");
	group = good;
	group.epsilon = 0;
	expect_refused(&open, "epsilon");
	group = good;
	group.weight_decay = INFINITY;
	expect_refused(&open, "not finite");
	group = good;
	open.n_groups = WIRE_MAX_GROUPS + 1;
	expect_refused(&open, "1025 parameter groups");
}

static void slots_are_kept_if_a_group_wants_them(void **state)
{
	Tierd__Wire__Group groups[2] = { TIERD__WIRE__GROUP__INIT, TIERD__WIRE__GROUP__INIT };
	Tierd__Wire__Group *pointers[] = { &groups[0], &groups[1] };
	struct optimizer_group changed[WIRE_MAX_GROUPS];
	Tierd__Wire__JobOpen open = valid();
	struct job_options options;
	uint32_t count;

	open.optimizer = OPTIMIZER_SGD;
	open.n_groups = 2;
	open.groups = pointers;
	assert_int_equal(read_options(&open, &options), 0);
	assert_int_equal(options.slot_count, 0);
	groups[1].momentum = 0.9f;
	assert_int_equal(options_set_groups(&options, changed, &count, pointers, 2, message, sizeof(message)),
			 -EINVAL);
	assert_non_null(strstr(message, "the job keeps none"));
	assert_int_equal(read_options(&open, &options), 0);
	assert_int_equal(options.slot_count, 1);
	groups[1].momentum = 0;
	assert_int_equal(options_set_groups(&options, changed, &count, pointers, 2, message, sizeof(message)),
			 0);
}

static void the_first_difference_is_named(void **state)
{
	Tierd__Wire__JobOpen open = valid();
	struct job_options here, job;
	struct optimizer_group group;

	static const char remedy[] =
		"; give it the job's options, or another name, with this job as its source";

	assert_int_equal(read_options(&open, &job), 0);
#define DIFFERS(field, value, text)                                                                          \
	(here = job, here.field = (value),                                                                   \
	 assert_int_equal(options_compare(&here, &job, message, sizeof(message)), -EINVAL),                  \
	 assert_non_null(strstr(message, text)), assert_non_null(strstr(message, remedy)))
#define GROUP_DIFFERS(field, value, text)                                                                    \
	(group = job.groups[0], group.field = (value), DIFFERS(groups, &group, text))
	here = job;
	assert_int_equal(options_compare(&here, &job, message, sizeof(message)), 0);
	DIFFERS(world_size, 2, "world size is 2 here, 4 in the job");
	DIFFERS(stage, 2, "stage is 2 here, 3 in the job");
	DIFFERS(seed, 7, "seed is 7 here");
	DIFFERS(is_strict, true, "strict is 1 here");
	DIFFERS(nvme_budget, 7, "NVMe budget is 7 here");
	DIFFERS(sharing, SHARING_READ, "sharing is 1 here");
	DIFFERS(durability, DURABILITY_STEP, "durability is step here, default in the job");
	DIFFERS(durability, DURABILITY_NONE, "durability is none here, default in the job");
	DIFFERS(durability, 600, "durability is 600 here, default in the job");
	DIFFERS(parameter_placement, PLACEMENT_HOST, "parameter placement is host here, ");
	DIFFERS(optimizer_placement, PLACEMENT_AUTO, "optimizer placement is auto here, ");
	DIFFERS(io_weight, 7, "io_weight is 7 here");
	DIFFERS(snapshots, 7, "number of snapshots is 7 here");
	DIFFERS(clip_norm, 1.5f, "clip_norm is 1.5 here, 0 in the job");
	DIFFERS(loss_scale.initial, 8, "loss_scale is 8 here, 1 in the job");
	DIFFERS(loss_scale.interval, 8, "loss_scale_interval is 8 here, 0 in the job");
	DIFFERS(loss_scale.growth, 3, "loss_scale_growth is 3 here");
	DIFFERS(loss_scale.backoff, 3, "loss_scale_backoff is 3 here");
	DIFFERS(loss_scale.minimum, 3, "loss_scale_minimum is 3 here");
	DIFFERS(optimizer, optimizer_find("sgd", SIMD_SCALAR), "optimizer is sgd here, adamw in the job");
	GROUP_DIFFERS(learning_rate, 0.5f, "parameter group 0: learning rate is 0.5 here, 1 in the job");
	GROUP_DIFFERS(learning_rate, nextafterf(1, 2), "learning rate is 1.00000012 here, 1 in the job");
	GROUP_DIFFERS(learning_rate, -0.0f, "learning rate is -0 here, 1 in the job");
	GROUP_DIFFERS(beta1, 0.5f, "parameter group 0: beta1 is 0.5 here, 0.9 in the job");
	GROUP_DIFFERS(beta2, 0.5f, "parameter group 0: beta2 is 0.5 here, 0.999 in the job");
	GROUP_DIFFERS(epsilon, 1, "parameter group 0: epsilon is 1 here, 1e-08 in the job");
	GROUP_DIFFERS(weight_decay, 0, "parameter group 0: weight decay is 0 here, 0.01 in the job");
	GROUP_DIFFERS(momentum, 0.5f, "parameter group 0: momentum is 0.5 here, 0 in the job");
	GROUP_DIFFERS(dampening, 0.5f, "parameter group 0: dampening is 0.5 here, 0 in the job");
	GROUP_DIFFERS(is_nesterov, true, "parameter group 0: nesterov is true here, false in the job");
	DIFFERS(group_count, 2, "number of parameter groups");
#undef GROUP_DIFFERS
#undef DIFFERS
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_not_given_is_filled_in),
		cmocka_unit_test(wrong_values_are_refused),
		cmocka_unit_test(nvme_without_a_path_is_refused),
		cmocka_unit_test(wrong_groups_are_refused),
		cmocka_unit_test(the_first_difference_is_named),
		cmocka_unit_test(slots_are_kept_if_a_group_wants_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
