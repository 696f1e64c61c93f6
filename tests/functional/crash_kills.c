/* Ranks that train and are killed at any moment, dozens of times; the state at the end is that of a training
 * that nobody disturbed, to the bit.
 *
 *   crash_kills SEED KILLS          trains every configuration twice, once without kills, and compares
 *   crash_kills steady JOB FILE     trains one, without kills, and writes its state to the file */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "crash_support.h"

#define RANKS 4
#define STEPS 12
#define UNITS 6

/* Of a unit: a bf16 and an fp32 vector. */
static const struct {
	uint64_t bf16, fp32;
} sizes[UNITS] = { { 700, 1 }, { 256, 0 }, { 0, 5000 }, { 600000, 300 }, { 33, 65537 }, { 1, 1 } };

struct configuration {
	const char *name;
	uint32_t stage, parameters, optimizer, micro_batches;
	bool is_asynchronous; /* a step is awaited when the next one's gradients are pushed */
	bool has_skips;	      /* some ranks push some units less often, or not */
	bool is_announced;    /* tierd_step_begin */
	uint64_t host_budget; /* so little that sums are spilled; 0: plenty */
	bool is_by_owner;     /* SGD, by the ranks themselves */
};

static const struct configuration configurations[] = {
	{ "nvme", 3, TIERD_PLACE_NVME, TIERD_PLACE_NVME, 1, true, true, false, 0, false },
	{ "accumulated", 2, TIERD_PLACE_HOST, TIERD_PLACE_NVME, 2, false, true, true, 0, false },
	{ "early", 1, TIERD_PLACE_HOST, TIERD_PLACE_HOST, 2, true, true, false, 0, false },
	{ "spilled", 3, TIERD_PLACE_NVME, TIERD_PLACE_NVME, 2, true, true, true, 34 << 20, false },
	{ "owners", 3, TIERD_PLACE_NVME, TIERD_PLACE_NVME, 1, true, true, false, 0, true },
	{ "spilled-owners", 3, TIERD_PLACE_NVME, TIERD_PLACE_NVME, 1, true, true, false, 34 << 20, true },
};

struct training {
	const struct configuration *configuration;
	char job_name[64];
};

struct rank {
	const struct configuration *configuration;
	struct crowd_board *board;
	unsigned rank;
	struct tierd_node *node;
	struct tierd_job *job;
	struct tierd_ticket *ticket; /* of the step before */
	uint64_t step;
};

static size_t unit_state_bytes(unsigned unit)
{
	return sizes[unit].bf16 * (2 + 4 + 4 + 4) + sizes[unit].fp32 * (4 + 4 + 4 + 4);
}

static size_t state_bytes(void)
{
	size_t bytes = 0;

	for (unsigned unit = 0; unit < UNITS; unit++)
		bytes += unit_state_bytes(unit);
	return bytes;
}

/* ---- Joining ---- */

/* Makes a unit so large that it shares its pack with no other. */
static struct tierd_tensor filler(const char *unit)
{
	static char name[32];
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;

	snprintf(name, sizeof(name), "%s.filler", unit);
	tensor.name = name;
	tensor.format = TIERD_BF16;
	tensor.dimensions = 1;
	tensor.shape[0] = 1 << 20;
	tensor.is_frozen = true;
	tensor.initializer = TIERD_INITIALIZE_ONES;
	return tensor;
}

static void define_unit(struct tierd_job *job, unsigned index, bool has_filler)
{
	struct tierd_tensor tensors[3] = { TIERD_TENSOR_INIT, TIERD_TENSOR_INIT };
	char names[3][16];
	unsigned count = 0;
	uint32_t unit;

	snprintf(names[2], sizeof(names[2]), "unit%u", index);
	for (unsigned i = 0; i < 2; i++) {
		uint64_t elements = i == 0 ? sizes[index].bf16 : sizes[index].fp32;
		struct tierd_tensor *tensor = &tensors[count];

		if (elements == 0)
			continue;
		snprintf(names[i], sizeof(names[i]), "unit%u.%u", index, i);
		tensor->name = names[i];
		tensor->format = i == 0 ? TIERD_BF16 : TIERD_FP32;
		tensor->dimensions = 1;
		tensor->shape[0] = elements;
		/* The last unit's values come from rank 0. */
		tensor->initializer = index == UNITS - 1 ? TIERD_INITIALIZE_NONE : TIERD_INITIALIZE_UNIFORM;
		tensor->a = -1;
		tensor->b = 1;
		count++;
	}
	if (has_filler)
		tensors[count++] = filler(names[2]);
	OK(tierd_unit_define(job, names[2], tensors, count, &unit));
	REQUIRE(unit == index);
}

static void write_values(struct tierd_job *job)
{
	float value = 0.12345678f;

	for (uint32_t tensor = 0; tensor < 2; tensor++)
		OK(tierd_tensor_write(job, UNITS - 1, tensor, 0, 1, &value, true));
}

static void join(struct rank *rank, const char *name)
{
	struct tierd_job_options options = support_options(name, rank->rank, RANKS);
	struct tierd_job_state state;

	rank->node = support_connect();
	options.stage = rank->configuration->stage;
	options.parameter_placement = rank->configuration->parameters;
	options.optimizer_placement = rank->configuration->optimizer;
	options.host_budget = rank->configuration->host_budget;
	if (options.host_budget > 0)
		options.gradient_placement = TIERD_PLACE_NVME;
	options.optimizer = rank->configuration->is_by_owner ? TIERD_NONE : TIERD_ADAMW;
	options.clip_norm = 0.5f;
	options.seed = 7;
	OK(tierd_job_open(rank->node, &options, &rank->job));
	OK(tierd_job_state(rank->job, &state));
	for (unsigned unit = 0; unit < UNITS; unit++)
		define_unit(rank->job, unit, rank->configuration->host_budget > 0);
	if (rank->rank == 0 && state.status == TIERD_NEW)
		write_values(rank->job);
}

/* ---- Steps ---- */

static bool is_skipped(const struct rank *rank, unsigned unit, unsigned micro_batch)
{
	return rank->configuration->has_skips && (rank->step + unit + rank->rank + micro_batch) % 5 == 0;
}

/* What a rank computes depends on the parameters too: a wrong version would show in the end. */
static void compute(const struct rank *rank, unsigned unit, unsigned micro_batch,
		    const struct tierd_view *parameters, const struct tierd_view *gradients)
{
	uint64_t seed = ((rank->step * RANKS + rank->rank) * UNITS + unit) * 16 + micro_batch;
	uint32_t tensor = 0;

	if (sizes[unit].bf16 > 0) {
		seed += *(const uint16_t *)tierd_at(parameters, tensor);
		support_fill(tierd_at(gradients, tensor++), sizes[unit].bf16, true, seed);
	}
	if (sizes[unit].fp32 > 0) {
		uint32_t bits;

		memcpy(&bits, (const float *)tierd_at(parameters, tensor) + sizes[unit].fp32 - 1,
		       sizeof(bits));
		support_fill(tierd_at(gradients, tensor), sizes[unit].fp32, false, seed + bits);
	}
}

static int push_unit(struct rank *rank, unsigned unit, unsigned micro_batch)
{
	struct tierd_view parameters, gradients;
	int r = tierd_gather(rank->job, unit, &parameters);

	if (r < 0)
		return r;
	REQUIRE(parameters.version == rank->step);
	r = tierd_gradients(rank->job, unit, &gradients);
	if (r == 0) {
		compute(rank, unit, micro_batch, &parameters, &gradients);
		r = tierd_push(rank->job, unit);
	}
	OK(tierd_release(rank->job, unit));
	return r;
}

static int finish_step(struct rank *rank)
{
	int r = rank->ticket ? tierd_ticket_wait(rank->ticket, TIERD_DONE, -1) : 0;

	rank->ticket = tierd_ticket_free(rank->ticket);
	return r;
}

static int update_tensor(const struct rank *rank, uint32_t unit, uint32_t tensor, float rate)
{
	static float gradients[600000], masters[600000];
	uint64_t first, count;
	int r = tierd_tensor_shard(rank->job, unit, tensor, &first, &count);

	if (r == 0)
		r = tierd_tensor_read(rank->job, unit, tensor, "gradient", first, count, gradients);
	if (r == 0)
		r = tierd_tensor_read(rank->job, unit, tensor, "master", first, count, masters);
	for (uint64_t i = 0; r == 0 && i < count; i++)
		masters[i] -= rate * gradients[i];
	if (r == 0)
		r = tierd_tensor_write(rank->job, unit, tensor, first, count, masters, true);
	/* Nobody has pushed it. */
	return r == -ENODATA ? 0 : r;
}

static int update_shard(const struct rank *rank, float rate)
{
	int r = tierd_ticket_wait(rank->ticket, TIERD_REDUCED, -1);

	for (unsigned unit = 0; unit < UNITS; unit++) {
		unsigned tensors = (sizes[unit].bf16 > 0) + (sizes[unit].fp32 > 0);

		for (uint32_t tensor = 0; r == 0 && tensor < tensors; tensor++)
			r = update_tensor(rank, unit, tensor, rate);
	}
	return r == 0 ? tierd_step_finish(rank->job) : r;
}

static int take_step(struct rank *rank)
{
	struct tierd_rates rates = support_rates(0.01f / (float)(rank->step + 1));
	int r = 0;

	if (rank->configuration->is_announced)
		r = tierd_step_begin(rank->job, &rates, rank->configuration->micro_batches);
	for (unsigned i = 0; i < rank->configuration->micro_batches; i++)
		for (unsigned unit = 0; r == 0 && unit < UNITS; unit++)
			if (!is_skipped(rank, unit, i))
				r = push_unit(rank, unit, i);
	if (r == 0)
		r = finish_step(rank);
	if (r == 0)
		r = tierd_step(rank->job, &rates, &rank->ticket);
	if (r == 0 && rank->configuration->is_by_owner)
		r = update_shard(rank, rates.learning_rate);
	if (r == 0 && !rank->configuration->is_asynchronous)
		r = finish_step(rank);
	if (r == 0)
		rank->board->steps[rank->rank] = ++rank->step;
	return r;
}

static int read_state(struct rank *rank, unsigned unit)
{
	static const char *const states[] = { "parameter", "master", "m", "v" };
	unsigned char *place = rank->board->space;
	const unsigned state_count = rank->configuration->is_by_owner ? 2 : 4;
	int r = 0;

	for (unsigned i = 0; i < unit; i++)
		place += unit_state_bytes(i);
	for (unsigned state = 0; state < state_count; state++) {
		uint64_t bf16 = sizes[unit].bf16, fp32 = sizes[unit].fp32;
		uint32_t tensor = 0;

		if (r == 0 && bf16 > 0)
			r = tierd_tensor_read(rank->job, unit, tensor++, states[state], 0, bf16, place);
		place += bf16 * (state == 0 ? 2 : 4);
		if (r == 0 && fp32 > 0)
			r = tierd_tensor_read(rank->job, unit, tensor, states[state], 0, fp32, place);
		place += fp32 * 4;
	}
	return r;
}

static int train(struct rank *rank)
{
	int r = 0;

	while (r == 0 && rank->step < STEPS)
		r = take_step(rank);
	if (r == 0)
		r = finish_step(rank);
	for (unsigned unit = rank->rank; r == 0 && unit < UNITS; unit += RANKS)
		r = read_state(rank, unit);
	return r;
}

/* Otherwise nobody is killed in the middle of it. */
static void check_spill(const struct rank *rank)
{
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;

	OK(tierd_statistics(rank->job, &statistics));
	REQUIRE((statistics.job_gradient_written_bytes > 0) == (rank->configuration->host_budget > 0));
}

static void run_rank(struct crowd_board *board, unsigned number, void *argument)
{
	const struct training *training = argument;
	struct rank rank = { .configuration = training->configuration, .board = board, .rank = number };
	struct tierd_job_state state;
	int r;

	join(&rank, training->job_name);
	do {
		rank.ticket = tierd_ticket_free(rank.ticket);
		r = tierd_job_ready(rank.job, -1, &state);
		/* Another rank was lost between the ready of all and this one's first call. */
		if (r == -ESTALE)
			continue;
		OK(r);
		/* No step goes back, and none is invented. */
		REQUIRE(state.step + 1 >= rank.step && state.step <= STEPS);
		rank.step = state.step;
		r = train(&rank);
		if (r != -ESTALE)
			OK(r);
	} while (r == -ESTALE || !crowd_arrive(board, number, rank.job));
	check_spill(&rank);
	OK(tierd_job_close(rank.job));
	tierd_disconnect(rank.node);
}

/* ---- The parent ---- */

static void train_crowd(struct crowd *crowd, struct training *training, uint64_t *seed, unsigned kills)
{
	crowd_start(crowd, RANKS, state_bytes(), run_rank, training);
	for (unsigned i = 0; i < kills; i++) {
		unsigned rank = (unsigned)(support_random(seed) % RANKS);

		/* Sometimes at once, while the last one is not back yet. */
		if (support_random(seed) % 4 != 0)
			crowd_pass_time(seed, 30000);
		crowd_replace(crowd, rank);
	}
	crowd_finish(crowd);
}

static void compare(const struct configuration *configuration, uint64_t *seed, unsigned kills)
{
	struct training calm = { .configuration = configuration }, wild = calm;
	struct crowd crowds[2];

	snprintf(calm.job_name, sizeof(calm.job_name), "calm-%s", configuration->name);
	snprintf(wild.job_name, sizeof(wild.job_name), "wild-%s", configuration->name);
	train_crowd(&crowds[0], &calm, seed, 0);
	train_crowd(&crowds[1], &wild, seed, kills);
	REQUIRE(memcmp(crowds[0].board->space, crowds[1].board->space, state_bytes()) == 0);
	crowd_free(&crowds[0]);
	crowd_free(&crowds[1]);
	support_drop(calm.job_name);
	support_drop(wild.job_name);
	printf("%s: equal after %u kills\n", configuration->name, kills);
}

static void train_steadily(const char *job_name, const char *path)
{
	struct training training = { .configuration = &configurations[0] };
	FILE *file = fopen(path, "w");
	struct crowd crowd;
	uint64_t seed = 0;

	REQUIRE(file);
	snprintf(training.job_name, sizeof(training.job_name), "%s", job_name);
	train_crowd(&crowd, &training, &seed, 0);
	REQUIRE(fwrite(crowd.board->space, state_bytes(), 1, file) == 1 && fclose(file) == 0);
	crowd_free(&crowd);
	support_drop(job_name);
}

int main(int argc, char *argv[])
{
	REQUIRE(argc >= 3);
	setvbuf(stdout, NULL, _IONBF, 0);
	if (strcmp(argv[1], "steady") == 0) {
		REQUIRE(argc == 4);
		train_steadily(argv[2], argv[3]);
		return 0;
	}
	uint64_t seed = strtoull(argv[1], NULL, 10);

	for (unsigned i = 0; i < sizeof(configurations) / sizeof(configurations[0]); i++)
		compare(&configurations[i], &seed, (unsigned)strtoul(argv[2], NULL, 10));
	return 0;
}
