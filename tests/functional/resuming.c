/* Who resumes a job, and asks for something else than it has: each option of tierd.h, and whether it may
 * differ. The style test library_pages looks whether one is missing here. resuming differ: opens a job with
 * each of them; resuming kept: with memory that it has been given before. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "crash_support.h"

#define UNITS 3
#define ELEMENTS 1000
#define MIB (UINT64_C(1) << 20)

static const struct tierd_group heavy[] = { { sizeof(heavy[0]), 1, 0.9f, 0.999f, 1e-8f, 0.5f } };

/* A field, what is asked for, and the reason why a job that has a state is not opened with that; NULL: it is.
 */
#define OPTIONS                                                                                              \
	/* Of the rank, and of this opening. */                                                              \
	OPTION(mode, TIERD_RESUME, NULL)                                                                     \
	OPTION(takeover, true, NULL)                                                                         \
	OPTION(owner, getuid(), NULL)                                                                        \
	OPTION(gpu_budget, 64 * MIB, NULL)                                                                   \
	OPTION(gpu_gradients, true, NULL)                                                                    \
	OPTION(gpu_update, 0.5f, NULL)                                                                       \
	/* Of a new job. */                                                                                  \
	OPTION(source, "nowhere", NULL)                                                                      \
	OPTION(source_owner, getuid(), NULL)                                                                 \
	OPTION(partial, true, NULL)                                                                          \
	OPTION(with_optimizer, true, NULL)                                                                   \
	OPTION(drafted, true, NULL)                                                                          \
	/* How its state is read, and in how much memory. */                                                 \
	OPTION(world_size, 2, NULL)                                                                          \
	OPTION(stage, 2, NULL)                                                                               \
	OPTION(pushed_once, true, NULL)                                                                      \
	OPTION(host_budget, 64 * MIB, NULL)                                                                  \
	OPTION(gradient_buffers, UNITS, NULL)                                                                \
	OPTION(gradient_bytes, MIB, NULL)                                                                    \
	/* Less than there is. */                                                                            \
	OPTION(snapshots, 1, NULL)                                                                           \
	/* What it is. */                                                                                    \
	OPTION(optimizer, TIERD_LION, "optimizer is lion here, adamw in the job")                            \
	OPTION(clip_norm, 2, "clip_norm is 2 here, 0 in the job")                                            \
	OPTION(nonfinite, TIERD_NONFINITE_REPORT, "nonfinite is 1 here, 0 in the job")                       \
	OPTION(parameter_placement, TIERD_PLACE_HOST, "parameter placement is host here, nvme in the job")   \
	OPTION(optimizer_placement, TIERD_PLACE_HOST, "optimizer placement is host here, nvme in the job")   \
	OPTION(gradient_placement, TIERD_PLACE_HOST, "gradient placement is host here, default in the job")  \
	OPTION(strict, true, "strict is 1 here, 0 in the job")                                               \
	OPTION(seed, 7, "seed is 7 here, 0 in the job")                                                      \
	OPTION(group_count, 2, "number of parameter groups is 2 here, 1 in the job")                         \
	OPTION(groups, heavy, "parameter group 0: weight decay is 0.5 here, 0.01 in the job")                \
	OPTION(loss_scale, 8, "loss_scale is 8 here, 1 in the job")                                          \
	OPTION(loss_scale_interval, 8, "loss_scale_interval is 8 here, 0 in the job")                        \
	OPTION(loss_scale_growth, 4, "loss_scale_growth is 4 here, 2 in the job")                            \
	OPTION(loss_scale_backoff, 0.25f, "loss_scale_backoff is 0.25 here, 0.5 in the job")                 \
	OPTION(loss_scale_minimum, 0.5f, "loss_scale_minimum is 0.5 here, 1 in the job")                     \
	OPTION(io_weight, 7, "io_weight is 7 here, 100 in the job")                                          \
	OPTION(nvme_budget, 700 * MIB, "NVMe budget is 734003200 here, 0 in the job")                        \
	OPTION(sharing, TIERD_SHARE_TRAIN, "sharing is 2 here, 1 in the job")                                \
	OPTION(share_group, 8, "group that it is shared with is 8 here, 7 in the job")                       \
	OPTION(durability, 600, "durability is 600 here, default in the job")                                \
	OPTION(blob_bytes, MIB, "blob_bytes is 1048576 here, 0 in the job")                                  \
	OPTION(snapshot_every, 5, "snapshot_every is 5 here, 0 in the job")                                  \
	OPTION(snapshot_keep, 1, "snapshot_keep is 1 here, 2 in the job")

static void begin(struct tierd_job_options *options)
{
	static struct tierd_group groups[2] = { TIERD_GROUP_INIT, TIERD_GROUP_INIT };

	*options = support_options("resumed", 0, 1);
	options->snapshots = 2;
	options->sharing = TIERD_SHARE_READ;
	options->share_group = 7;
	options->group_count = 1;
	options->groups = groups;
}

#define OPTION(field, value, text)                                                                           \
	static void set_##field(struct tierd_job_options *options)                                           \
	{                                                                                                    \
		options->field = (value);                                                                    \
	}
OPTIONS
#undef OPTION

static const struct option {
	const char *field;
	void (*set)(struct tierd_job_options *options);
	const char *text;
} all[] = {
#define OPTION(field, value, text) { #field, set_##field, text },
	OPTIONS
#undef OPTION
};

static void require_values(struct tierd_job *job)
{
	float value;

	for (unsigned unit = 0; unit < UNITS; unit++) {
		OK(tierd_tensor_read(job, unit, 0, "parameter", ELEMENTS - 1, 1, &value));
		REQUIRE(value < 0.9f && value > 0.89f);
	}
}

static void take_step(struct tierd_job *job, float learning_rate)
{
	struct tierd_rates rates = support_rates(learning_rate);

	for (unsigned unit = 0; unit < UNITS; unit++)
		OK(support_push(job, unit, ELEMENTS, 1));
	support_step(&job, 1, &rates, TIERD_DURABLE);
}

static void create(struct tierd_node *node)
{
	struct tierd_job_options options;
	struct tierd_job *job;

	begin(&options);
	job = support_join(node, &options, UNITS);
	OK(tierd_job_ready(job, -1, NULL));
	take_step(job, 0.1f);
	require_values(job);
	OK(tierd_job_close(job));
}

/* Another rank would have to come. */
static void resume(struct tierd_node *node, const struct tierd_job_options *options)
{
	struct tierd_job *job = support_join(node, options, UNITS);

	if (options->world_size == 1) {
		OK(tierd_job_ready(job, -1, NULL));
		require_values(job);
	}
	OK(tierd_job_close(job));
}

/* Who is refused has changed nothing; who is not is followed by one who asks for what there was at first. */
static void each_differs(struct tierd_node *node)
{
	struct tierd_job_options options, own;
	struct tierd_job *job;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		printf("%s\n", all[i].field);
		begin(&options);
		all[i].set(&options);
		if (all[i].text)
			FAILS(tierd_job_open(node, &options, &job), -EINVAL, all[i].text);
		else
			resume(node, &options);
		begin(&own);
		resume(node, &own);
	}
}

static void memory_is_not_changed_under_a_rank(struct tierd_node *node)
{
	struct tierd_job_options options;
	struct tierd_job *job, *other;

	begin(&options);
	job = support_join(node, &options, UNITS);
	options.host_budget = 64 * MIB;
	FAILS(tierd_job_open(node, &options, &other), -EBUSY,
	      "host budget is 67108864 here, 0 in the job, which is in use by rank 0");
	options.host_budget = 0;
	options.gradient_buffers = UNITS;
	FAILS(tierd_job_open(node, &options, &other), -EBUSY,
	      "gradient buffers is 3 here, 2 in the job, which is in use by rank 0");
	options.gradient_buffers = 0;
	options.gradient_bytes = MIB;
	FAILS(tierd_job_open(node, &options, &other), -EBUSY,
	      "gradient buffers is 64 here, 2 in the job, which is in use by rank 0");
	OK(tierd_job_close(job));
}

static void memory_is_that_which_was_asked_for(struct tierd_node *node)
{
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;
	struct tierd_job_options options;
	struct tierd_view gradients;
	struct tierd_job *job;

	begin(&options);
	options.host_budget = 96 * MIB;
	options.gradient_buffers = UNITS;
	job = support_join(node, &options, UNITS);
	OK(tierd_job_ready(job, -1, NULL));
	OK(tierd_statistics(job, &statistics));
	REQUIRE(statistics.job_host_budget == 96 * MIB);
	for (unsigned unit = 0; unit < UNITS; unit++)
		OK(tierd_gradients(job, unit, &gradients));
	for (unsigned unit = 0; unit < UNITS; unit++)
		OK(tierd_discard(job, unit));
	/* The next commit says it. */
	take_step(job, 0);
	require_values(job);
	OK(tierd_job_close(job));
}

int main(int argc, char **argv)
{
	struct tierd_node *node = support_connect();

	REQUIRE(argc == 2);
	if (strcmp(argv[1], "differ") == 0) {
		create(node);
		each_differs(node);
		memory_is_not_changed_under_a_rank(node);
	}
	memory_is_that_which_was_asked_for(node);
	tierd_disconnect(node);
	return 0;
}
