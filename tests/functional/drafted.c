/* A rank of a job that is defined and written unit by unit, with never more than one unit in its memory.
 *
 *   drafted train HOW RANK RANKS JOB PLACEMENT FILE   HOW: drafted, or whole: all units are defined first.
 * Says with a line when all that is its own is written; trains, and writes all to FILE drafted stay JOB says
 * with a line when it has written some units, and stays drafted fill JOB writes until there is no room on the
 * disk
 *
 * PLACEMENT: of parameters and of the optimizer's state, nvme, host, or volatile: host, and not durable. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "crash_support.h"

#define UNITS 9
#define ELEMENTS 600001
#define STEPS 2

static const char *const states[] = { "parameter", "master", "m", "v" };

struct rank {
	struct tierd_node *node;
	struct tierd_job *job;
	uint32_t rank, ranks;
};

static bool is_bf16(uint32_t unit)
{
	return unit % 2 == 0;
}

static void fill(float *values, uint64_t count, uint64_t seed)
{
	for (uint64_t i = 0; i < count; i++)
		values[i] = (float)(int32_t)(support_random(&seed) >> 32) * 0x1p-31f;
}

/* A tensor that is trained, one that is frozen, and one that has an initializer. */
static void define(const struct rank *rank, uint32_t unit)
{
	struct tierd_tensor tensors[3] = { TIERD_TENSOR_INIT, TIERD_TENSOR_INIT, TIERD_TENSOR_INIT };
	char name[16], names[3][24];
	uint32_t number;

	snprintf(name, sizeof(name), "u%u", unit);
	for (unsigned i = 0; i < 3; i++) {
		snprintf(names[i], sizeof(names[i]), "u%u.%u", unit, i);
		tensors[i].name = names[i];
		tensors[i].format = i == 0 && is_bf16(unit) ? TIERD_BF16 : TIERD_FP32;
		tensors[i].dimensions = 1;
		tensors[i].shape[0] = i == 2 ? 100 : ELEMENTS;
	}
	tensors[1].is_frozen = true;
	tensors[2].initializer = TIERD_INITIALIZE_NORMAL;
	tensors[2].b = 1;
	OK(tierd_unit_define(rank->job, name, tensors, 3, &number));
	REQUIRE(number == unit);
}

static int write_unit(const struct rank *rank, uint32_t unit)
{
	static float values[ELEMENTS];
	int r;

	fill(values, ELEMENTS, 2 * unit + 1);
	r = tierd_tensor_write(rank->job, unit, 0, 0, ELEMENTS, values, true);
	fill(values, ELEMENTS, 2 * unit + 2);
	return r < 0 ? r : tierd_tensor_write(rank->job, unit, 1, 0, ELEMENTS, values, false);
}

static void push(const struct rank *rank, uint32_t unit, uint64_t step)
{
	static float values[ELEMENTS];
	struct tierd_view view;
	uint16_t *halves;

	fill(values, ELEMENTS, (step * UNITS + unit) * 8 + rank->rank + 1000);
	OK(tierd_gradients(rank->job, unit, &view));
	if (!is_bf16(unit)) {
		memcpy(tierd_at(&view, 0), values, sizeof(values));
	} else {
		halves = tierd_at(&view, 0);
		for (uint64_t i = 0; i < ELEMENTS; i++)
			memcpy(&halves[i], (const char *)&values[i] + 2, sizeof(*halves));
	}
	OK(tierd_push(rank->job, unit));
}

static void train(const struct rank *rank)
{
	struct tierd_rates rates = TIERD_RATES_INIT;
	struct tierd_ticket *ticket;

	rates.learning_rate = 0.01f;
	for (uint64_t step = 0; step < STEPS; step++) {
		for (uint32_t unit = 0; unit < UNITS; unit++)
			push(rank, unit, step);
		OK(tierd_step(rank->job, &rates, &ticket));
		OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
		tierd_ticket_free(ticket);
	}
}

static void save(const struct rank *rank, const char *path)
{
	static float values[ELEMENTS];
	FILE *file = fopen(path, "w");

	REQUIRE(file);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		for (unsigned state = 0; state < 4; state++) {
			size_t bytes = state == 0 && is_bf16(unit) ? 2 : 4;

			OK(tierd_tensor_read(rank->job, unit, 0, states[state], 0, ELEMENTS, values));
			REQUIRE(fwrite(values, bytes, ELEMENTS, file) == ELEMENTS);
			OK(tierd_tensor_read(rank->job, unit, 2, states[state], 0, 100, values));
			REQUIRE(fwrite(values, sizeof(*values), 100, file) == 100);
		}
		OK(tierd_tensor_read(rank->job, unit, 1, "parameter", 0, ELEMENTS, values));
		REQUIRE(fwrite(values, sizeof(*values), ELEMENTS, file) == ELEMENTS);
	}
	REQUIRE(fclose(file) == 0);
}

static void join(struct rank *rank, const char *job, const char *placement, bool is_drafted)
{
	struct tierd_job_options options = support_options(job, rank->rank, rank->ranks);
	bool is_on_nvme = strcmp(placement, "nvme") == 0;

	options.mode = TIERD_CREATE;
	options.parameter_placement = is_on_nvme ? TIERD_PLACE_NVME : TIERD_PLACE_HOST;
	options.optimizer_placement = options.parameter_placement;
	if (strcmp(placement, "volatile") == 0)
		options.durability = TIERD_DURABILITY_NONE;
	options.drafted = is_drafted;
	rank->node = support_connect();
	OK(tierd_job_open(rank->node, &options, &rank->job));
}

static void say_and(bool stays)
{
	char byte;

	REQUIRE(write(STDOUT_FILENO, "\n", 1) == 1);
	if (stays)
		(void)!read(STDIN_FILENO, &byte, 1);
}

static void run(struct rank *rank, bool is_drafted, const char *path)
{
	for (uint32_t unit = 0; unit < UNITS && !is_drafted; unit++)
		define(rank, unit);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		if (is_drafted)
			define(rank, unit);
		if (unit % rank->ranks == rank->rank)
			OK(write_unit(rank, unit));
	}
	say_and(false);
	OK(tierd_job_ready(rank->job, -1, NULL));
	train(rank);
	if (rank->rank == 0)
		save(rank, path);
	OK(tierd_job_close(rank->job));
}

static void stay(struct rank *rank)
{
	for (uint32_t unit = 0; unit < UNITS / 2; unit++) {
		define(rank, unit);
		OK(write_unit(rank, unit));
	}
	say_and(true);
}

static void fill_disk(struct rank *rank)
{
	int r = 0;

	for (uint32_t unit = 0; unit < 100 && r == 0; unit++) {
		define(rank, unit);
		r = write_unit(rank, unit);
	}
	REQUIRE(r == -ENOSPC);
	REQUIRE(strstr(tierd_message(), "left on that disk"));
	OK(tierd_job_close(rank->job));
}

int main(int argc, char **argv)
{
	struct rank rank = { .ranks = 1 };

	REQUIRE(argc >= 3);
	if (strcmp(argv[1], "train") == 0) {
		REQUIRE(argc == 8);
		rank.rank = (uint32_t)strtoul(argv[3], NULL, 10);
		rank.ranks = (uint32_t)strtoul(argv[4], NULL, 10);
		join(&rank, argv[5], argv[6], strcmp(argv[2], "drafted") == 0);
		run(&rank, strcmp(argv[2], "drafted") == 0, argv[7]);
	} else {
		join(&rank, argv[2], "nvme", true);
		if (strcmp(argv[1], "stay") == 0)
			stay(&rank);
		else
			fill_disk(&rank);
	}
	tierd_disconnect(rank.node);
	return 0;
}
