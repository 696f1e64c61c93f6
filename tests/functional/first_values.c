/* A rank of a job that gets its first values from it, what its optimizer keeps among them; another process
 * trains on with what is there then.
 *
 *   first_values begin NAME PARAMETERS FIRST STEPS   makes the job, takes so many steps, says so with a line,
 *                                                    and stays until there is one for it
 *   first_values finish NAME PARAMETERS FIRST FILE   resumes it, trains it to its end, and writes all to FILE
 *
 * PARAMETERS are on host or nvme; the optimizer's state is in host memory. FIRST is the step after which the
 * optimizer has kept what its moments begin with, or fresh: they begin with zeros, at step 0. */
#include <string.h>
#include <unistd.h>

#include "crash_support.h"

/* More packs than are written at a time, of which one has several units. */
#define UNITS 8
#define STEPS 4 /* in all */

static const char *const states[] = { "parameter", "master", "m", "v" };

struct rank {
	struct tierd_node *node;
	struct tierd_job *job;
	bool is_fresh;
	uint64_t first, step;
};

static bool is_bf16(uint32_t unit)
{
	return unit % 2 == 0;
}

static uint64_t elements_of(uint32_t unit)
{
	return unit < UNITS - 2 ? 600000 + unit : 700;
}

/* ---- Values ---- */

/* Of all bits of a mantissa, so that a bf16 parameter is not all of its master. */
static void fill(float *values, uint64_t count, uint64_t seed, bool is_positive)
{
	for (uint64_t i = 0; i < count; i++) {
		int32_t number = (int32_t)(support_random(&seed) >> 32);

		values[i] = (float)(is_positive ? number & INT32_MAX : number) * 0x1p-31f;
	}
}

static void write_unit(const struct rank *rank, uint32_t unit)
{
	static float values[600000 + UNITS];
	uint64_t count = elements_of(unit);

	for (uint32_t state = 1; state < 4; state++) {
		fill(values, count, unit * 4 + state, state == 3);
		if (state == 1)
			OK(tierd_tensor_write(rank->job, unit, 0, 0, count, values, true));
		else if (!rank->is_fresh)
			OK(tierd_tensor_write_state(rank->job, unit, 0, states[state], rank->first, 0, count,
						    values));
		/* Nothing trains this one, so nothing else writes it either. */
		if (state == 1)
			OK(tierd_tensor_write(rank->job, unit, 1, 0, count, values, false));
	}
}

/* ---- Steps ---- */

static void define(const struct rank *rank, uint32_t unit)
{
	struct tierd_tensor tensors[2] = { TIERD_TENSOR_INIT, TIERD_TENSOR_INIT };
	char name[16], trained[16], frozen[16];
	uint32_t number;

	snprintf(name, sizeof(name), "u%u", unit);
	snprintf(trained, sizeof(trained), "u%u.trained", unit);
	snprintf(frozen, sizeof(frozen), "u%u.frozen", unit);
	tensors[0].name = trained;
	tensors[0].format = is_bf16(unit) ? TIERD_BF16 : TIERD_FP32;
	tensors[1].name = frozen;
	tensors[1].format = TIERD_FP32;
	tensors[1].is_frozen = true;
	for (unsigned i = 0; i < 2; i++) {
		tensors[i].dimensions = 1;
		tensors[i].shape[0] = elements_of(unit);
	}
	OK(tierd_unit_define(rank->job, name, tensors, 2, &number));
	REQUIRE(number == unit);
}

static void push(const struct rank *rank, uint32_t unit)
{
	static float values[600000 + UNITS];
	uint64_t count = elements_of(unit);
	struct tierd_view view;
	uint16_t *halves;

	fill(values, count, rank->step * UNITS + unit + 1000, false);
	OK(tierd_gradients(rank->job, unit, &view));
	if (!is_bf16(unit)) {
		memcpy(tierd_at(&view, 0), values, count * sizeof(*values));
	} else {
		halves = tierd_at(&view, 0);
		for (uint64_t i = 0; i < count; i++)
			memcpy(&halves[i], (const char *)&values[i] + 2, sizeof(*halves));
	}
	OK(tierd_push(rank->job, unit));
}

static void train(struct rank *rank, uint64_t to)
{
	struct tierd_rates rates = TIERD_RATES_INIT;
	struct tierd_ticket *ticket;

	rates.learning_rate = 0.01f;
	for (; rank->step < to; rank->step++) {
		/* The last one has but its first values. */
		for (uint32_t unit = 0; unit < UNITS - 1; unit++)
			push(rank, unit);
		OK(tierd_step(rank->job, &rates, &ticket));
		OK(tierd_ticket_wait(ticket, TIERD_DURABLE, -1));
		tierd_ticket_free(ticket);
	}
}

/* ---- Its two processes ---- */

static void join(struct rank *rank, const char *name, const char *parameters, bool is_new)
{
	struct tierd_job_options options = support_options(name, 0, 1);

	options.mode = is_new ? TIERD_CREATE : TIERD_RESUME;
	options.stage = 1;
	options.optimizer = TIERD_ADAMW;
	options.optimizer_placement = TIERD_PLACE_HOST;
	options.durability = TIERD_DURABILITY_STEP;
	if (strcmp(parameters, "host") == 0) {
		options.parameter_placement = TIERD_PLACE_HOST;
	} else {
		options.parameter_placement = TIERD_PLACE_NVME;
		options.stage = 3;
	}
	rank->node = support_connect();
	OK(tierd_job_open(rank->node, &options, &rank->job));
	for (uint32_t unit = 0; unit < UNITS; unit++)
		define(rank, unit);
}

static void get_ready(struct rank *rank)
{
	struct tierd_job_state state;

	OK(tierd_job_ready(rank->job, -1, &state));
	rank->step = state.step;
	REQUIRE(rank->step >= rank->first);
}

static void begin(struct rank *rank, uint64_t steps)
{
	char byte;

	for (uint32_t unit = 0; unit < UNITS; unit++)
		write_unit(rank, unit);
	get_ready(rank);
	REQUIRE(rank->step == rank->first);
	train(rank, rank->first + steps);
	REQUIRE(write(STDOUT_FILENO, "\n", 1) == 1);
	REQUIRE(read(STDIN_FILENO, &byte, 1) == 1);
	(void)tierd_job_detach(rank->job);
}

static void save_unit(const struct rank *rank, uint32_t unit, FILE *file)
{
	static float values[600000 + UNITS];
	uint64_t count = elements_of(unit);

	for (unsigned state = 0; state < 4; state++) {
		size_t bytes = state == 0 && is_bf16(unit) ? 2 : 4;

		OK(tierd_tensor_read(rank->job, unit, 0, states[state], 0, count, values));
		REQUIRE(fwrite(values, bytes, count, file) == count);
	}
	OK(tierd_tensor_read(rank->job, unit, 1, "parameter", 0, count, values));
	REQUIRE(fwrite(values, sizeof(*values), count, file) == count);
}

static void finish(struct rank *rank, const char *path)
{
	FILE *file = fopen(path, "w");

	get_ready(rank);
	train(rank, rank->first + STEPS);
	REQUIRE(file);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		save_unit(rank, unit, file);
	REQUIRE(fclose(file) == 0);
	OK(tierd_job_close(rank->job));
}

int main(int argc, char **argv)
{
	struct rank rank = { 0 };
	bool is_new;

	REQUIRE(argc == 6);
	is_new = strcmp(argv[1], "begin") == 0;
	rank.is_fresh = strcmp(argv[4], "fresh") == 0;
	rank.first = strtoull(argv[4], NULL, 10); /* 0 if fresh */
	join(&rank, argv[2], argv[3], is_new);
	if (is_new)
		begin(&rank, strtoull(argv[5], NULL, 10));
	else
		finish(&rank, argv[5]);
	tierd_disconnect(rank.node);
	return 0;
}
