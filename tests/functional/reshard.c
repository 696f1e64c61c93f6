/* Trains a job with any number of ranks: whatever their number, their gradients have the same sums, so that
 * the values are those of one rank.
 *
 * reshard train JOB RANKS STEPS FILE STAGE [HOSTED]
 *     goes on from the values in the file, if there is one, and leaves its own there; HOSTED: what lives in
 *     host memory, "optimizer" or "all"
 *
 * reshard refusals
 *     worlds that a job cannot get */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "crash_support.h"

#define UNITS 3
#define STATES 3
#define RANKS_MOST 6
/* Of them any number is no problem up to here. */
#define SHARES 12

static const char *const states[STATES] = { "master", "m", "v" };

/* Their shards are all of different lengths, and the last unit is a pack of its own. */
static const struct kind {
	const char *name;
	uint32_t format;
	uint64_t elements;
} kinds[UNITS] = { { "half", TIERD_BF16, 70001 },
		   { "small", TIERD_FP32, 1203 },
		   { "large", TIERD_FP32, 1200000 } };

/* Of the unit behind them, which no step changes; bf16. */
#define FROZEN 5002

typedef void change(struct tierd_job_options *options);

static void leave_as_it_is(struct tierd_job_options *options)
{
}

/* ---- Ranks ---- */

static struct tierd_job_options options_of(const char *name, unsigned rank, unsigned count, change *set)
{
	struct tierd_job_options options = support_options(name, rank, count);

	options.seed = 11;
	set(&options);
	return options;
}

static void define_frozen(struct tierd_job *job)
{
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	uint32_t unit;

	tensor.name = "frozen";
	tensor.format = TIERD_BF16;
	tensor.dimensions = 1;
	tensor.shape[0] = FROZEN;
	tensor.is_frozen = true;
	tensor.initializer = TIERD_INITIALIZE_NORMAL;
	tensor.b = 1;
	OK(tierd_unit_define(job, tensor.name, &tensor, 1, &unit));
	REQUIRE(unit == UNITS);
}

static struct ranks join(const char *name, unsigned count, change *set)
{
	struct ranks world = { .count = count };

	for (unsigned rank = 0; rank < count; rank++) {
		struct tierd_job_options options = options_of(name, rank, count, set);

		world.nodes[rank] = support_connect();
		OK(tierd_job_open(world.nodes[rank], &options, &world.jobs[rank]));
		for (unsigned unit = 0; unit < UNITS; unit++)
			support_define(world.jobs[rank], kinds[unit].name, kinds[unit].format,
				       kinds[unit].elements, 0.5);
		define_frozen(world.jobs[rank]);
	}
	return world;
}

static struct ranks start(const char *name, unsigned count, change *set)
{
	struct ranks world = join(name, count, set);

	support_ready(world.jobs, count, 0, NULL);
	return world;
}

/* ---- Steps ---- */

/* Small whole numbers, so that no sum of them is rounded, in no order. */
static float gradient_of(uint64_t element, unsigned ranks)
{
	return (float)((element % 7 + 1) * SHARES / ranks) / 64;
}

static void push(const struct ranks *world, unsigned rank, unsigned unit)
{
	struct tierd_view gradients;

	OK(tierd_gradients(world->jobs[rank], unit, &gradients));
	for (uint64_t i = 0; i < kinds[unit].elements; i++)
		support_put(tierd_at(&gradients, 0), kinds[unit].format, i, gradient_of(i, world->count));
	OK(tierd_push(world->jobs[rank], unit));
}

static void step(struct ranks *world)
{
	struct tierd_rates rates = support_rates(0.01f);

	for (unsigned unit = 0; unit < UNITS; unit++)
		for (unsigned rank = 0; rank < world->count; rank++)
			push(world, rank, unit);
	support_step(world->jobs, world->count, &rates, TIERD_DURABLE);
}

/* ---- Values ---- */

static float *read_values(struct tierd_job *job, uint64_t *ret_count)
{
	uint64_t count = FROZEN * sizeof(uint16_t) / sizeof(float);
	float *values, *at;

	for (unsigned unit = 0; unit < UNITS; unit++)
		count += kinds[unit].elements * STATES;
	values = at = malloc(count * sizeof(float));
	REQUIRE(values);
	for (unsigned unit = 0; unit < UNITS; unit++)
		for (unsigned state = 0; state < STATES; state++, at += kinds[unit].elements)
			OK(tierd_tensor_read(job, unit, 0, states[state], 0, kinds[unit].elements, at));
	OK(tierd_tensor_read(job, UNITS, 0, "parameter", 0, FROZEN, at));
	*ret_count = count;
	return values;
}

static void require_values(struct tierd_job *job, const float *expected)
{
	uint64_t count;
	float *values = read_values(job, &count);

	REQUIRE(memcmp(values, expected, count * sizeof(float)) == 0);
	free(values);
}

static void require_file(struct tierd_job *job, const char *path)
{
	FILE *file = fopen(path, "r");
	uint64_t count;
	float *values, *there;

	if (!file)
		return;
	values = read_values(job, &count);
	there = malloc(count * sizeof(float));
	REQUIRE(there && fread(there, sizeof(float), count, file) == count);
	REQUIRE(memcmp(values, there, count * sizeof(float)) == 0);
	free(values);
	free(there);
	fclose(file);
}

static void write_file(struct tierd_job *job, const char *path)
{
	FILE *file = fopen(path, "w");
	uint64_t count;
	float *values = read_values(job, &count);

	REQUIRE(file && fwrite(values, sizeof(float), count, file) == count && fclose(file) == 0);
	free(values);
}

static uint32_t train_stage;
static const char *train_hosted;

static void as_asked(struct tierd_job_options *options)
{
	options->stage = train_stage;
	if (*train_hosted)
		options->optimizer_placement = TIERD_PLACE_HOST;
	if (strcmp(train_hosted, "all") == 0)
		options->parameter_placement = TIERD_PLACE_HOST;
}

static void train(const char *name, unsigned ranks, unsigned steps, const char *path)
{
	struct ranks world = start(name, ranks, as_asked);

	require_file(world.jobs[0], path);
	for (unsigned i = 0; i < steps; i++)
		step(&world);
	write_file(world.jobs[0], path);
	ranks_close(&world);
}

/* ---- Refusals ---- */

static void other_seed(struct tierd_job_options *options)
{
	options->seed = 12;
}

static void new_only(struct tierd_job_options *options)
{
	options->mode = TIERD_CREATE;
}

static void on_nvme_at_a_lower_stage(struct tierd_job_options *options)
{
	options->stage = 2;
	options->parameter_placement = TIERD_PLACE_NVME;
}

static void in_host_memory(struct tierd_job_options *options)
{
	options->parameter_placement = options->optimizer_placement = TIERD_PLACE_HOST;
	options->durability = TIERD_DURABILITY_NONE;
}

static void many_buffers(struct tierd_job_options *options)
{
	options->gradient_buffers = 64;
	options->host_budget = 96ul << 20;
}

static void refused(const char *name, unsigned count, change *set, int expected, const char *text)
{
	struct tierd_job_options options = options_of(name, 0, count, set);
	struct tierd_node *node = support_connect();
	struct tierd_job *job = NULL;

	FAILS(tierd_job_open(node, &options, &job), expected, text);
	REQUIRE(!job);
	tierd_disconnect(node);
}

static void a_job_in_use_keeps_its_ranks(void)
{
	struct ranks world = start("used", 2, leave_as_it_is);
	char pid[32];

	step(&world);
	snprintf(pid, sizeof(pid), "rank 1 (pid %d)", (int)getpid());
	refused("used", 4, leave_as_it_is, -EBUSY, pid);
	refused("used", 1, leave_as_it_is, -EBUSY,
		"world size is 1 here, 2 in the job, which is in use by rank 0");
	step(&world);
	ranks_close(&world);
	world = start("used", 4, leave_as_it_is);
	refused("used", 2, leave_as_it_is, -EBUSY, "2 here, 4 in the job, which is in use by rank 0");
	ranks_close(&world);
}

static void nothing_else_may_differ(void)
{
	refused("used", 3, other_seed, -EINVAL, "seed is 12 here, 11 in the job");
	refused("used", 3, new_only, -EEXIST, "exists at step 2");
	refused("used", 3, on_nvme_at_a_lower_stage, -EINVAL, "parameters on NVMe at stage 2");
	refused("used", 2, in_host_memory, -EINVAL, "parameter placement is host here, nvme in the job");
}

static void who_leaves_before_it_is_ready_has_changed_nothing(void)
{
	struct ranks world = join("used", 3, leave_as_it_is);

	refused("used", 4, leave_as_it_is, -EBUSY, "4 here, 3 in the job");
	ranks_close(&world);
	world = start("used", 4, leave_as_it_is);
	ranks_close(&world);
}

static void what_does_not_fit_stays_as_it_was(void)
{
	struct ranks world = start("large", 1, many_buffers);
	uint64_t count;
	float *values;

	step(&world);
	values = read_values(world.jobs[0], &count);
	ranks_close(&world);
	world = join("large", RANKS_MOST, many_buffers);
	support_ready(world.jobs, RANKS_MOST, -ENOMEM, "it needs at least");
	ranks_close(&world);
	world = start("large", 1, many_buffers);
	require_values(world.jobs[0], values);
	step(&world);
	ranks_close(&world);
	free(values);
}

static void state_in_host_memory_alone_stays_where_it_is(void)
{
	struct ranks world = start("host", 2, in_host_memory);

	ranks_close(&world);
	refused("host", 1, in_host_memory, -EINVAL, "some of its state lives in host memory alone");
	world = start("host", 2, in_host_memory);
	ranks_close(&world);
}

int main(int argc, char **argv)
{
	if (argc >= 7 && strcmp(argv[1], "train") == 0) {
		train_stage = (uint32_t)atoi(argv[6]);
		train_hosted = argc > 7 ? argv[7] : "";
		train(argv[2], (unsigned)atoi(argv[3]), (unsigned)atoi(argv[4]), argv[5]);
		return 0;
	}
	REQUIRE(argc == 2 && strcmp(argv[1], "refusals") == 0);
	a_job_in_use_keeps_its_ranks();
	nothing_else_may_differ();
	who_leaves_before_it_is_ready_has_changed_nothing();
	what_does_not_fit_stays_as_it_was();
	state_in_host_memory_alone_stays_where_it_is();
	return 0;
}
