/* A rank that trains a job of every kind of tensor until its standard input ends, and writes down what its
 * state was at each step: "STEP STATE TENSOR CHECKSUM", the last being that of zlib's crc32().
 *
 * exported JOB FILE LARGE STEPS [WRONG]    LARGE: elements of the largest tensor; STEPS: how many at most;
 * WRONG: what keeps its tensors from being exported
 *
 * Prints "training" after the first step. */
#include <poll.h>
#include <string.h>

#include "crash_support.h"

#define STATES 4

static const char *const states[STATES] = { "parameter", "master", "m", "v" };

/* Some lie in one unit, and rows of a larger tensor not in their order. */
static struct kind {
	const char *unit, *name, *alias;
	uint32_t format, dimensions;
	uint64_t shape[2];
	bool is_frozen;
	uint64_t row, rows;
} kinds[] = {
	{ "embed", "embed", "head", TIERD_BF16, 2, { 701, 431 }, false, 0, 0 },
	{ "layer", "half", NULL, TIERD_FP16, 1, { 1203 }, false, 0, 0 },
	{ "layer", "full", NULL, TIERD_FP32, 2, { 33, 7 }, false, 0, 0 },
	{ "layer", "scale", NULL, TIERD_FP32, 0, { 0 }, false, 0, 0 },
	{ "layer", "none", NULL, TIERD_BF16, 2, { 0, 5 }, false, 0, 0 },
	{ "layer", "odd", NULL, TIERD_BF16, 1, { 513 }, false, 0, 0 },
	{ "middle", "middle", NULL, TIERD_BF16, 2, { 100, 64 }, false, 100, 300 },
	{ "first", "first", NULL, TIERD_BF16, 2, { 100, 64 }, false, 0, 300 },
	{ "last", "last", NULL, TIERD_BF16, 2, { 100, 64 }, false, 200, 300 },
	{ "frozen", "ice", NULL, TIERD_BF16, 1, { 3001 }, true, 0, 0 },
	{ "frozen", "frost", NULL, TIERD_FP16, 1, { 77 }, true, 0, 0 },
	{ "frozen", "codes", NULL, TIERD_BYTES, 1, { 70001 }, true, 0, 0 },
	{ "large", "large", NULL, TIERD_FP32, 1, { 0 }, false, 0, 0 },
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static uint64_t elements_of(const struct kind *kind)
{
	uint64_t elements = 1;

	for (uint32_t i = 0; i < kind->dimensions; i++)
		elements *= kind->shape[i];
	return elements;
}

static uint64_t bytes_of(const struct kind *kind, unsigned state)
{
	if (state > 0 || kind->format == TIERD_FP32)
		return elements_of(kind) * 4;
	return elements_of(kind) * (kind->format == TIERD_BYTES ? 1 : 2);
}

/* ---- The job ---- */

static struct tierd_tensor tensor_of(const struct kind *kind)
{
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;

	tensor.name = kind->name;
	tensor.alias = kind->alias;
	tensor.format = kind->format;
	tensor.dimensions = kind->dimensions;
	memcpy(tensor.shape, kind->shape, sizeof(kind->shape));
	tensor.is_frozen = kind->is_frozen;
	tensor.slice_of = kind->rows ? "whole" : NULL;
	tensor.slice_row = kind->row;
	tensor.slice_rows = kind->rows;
	tensor.initializer = kind->format == TIERD_BYTES ? TIERD_INITIALIZE_NONE : TIERD_INITIALIZE_NORMAL;
	tensor.b = 1;
	return tensor;
}

/* Tensors that follow each other in one unit. */
static unsigned count_tensors(unsigned first)
{
	unsigned count = 1;

	while (first + count < KINDS && strcmp(kinds[first].unit, kinds[first + count].unit) == 0)
		count++;
	return count;
}

typedef void visitor(struct tierd_job *job, uint32_t unit, unsigned first, unsigned count, void *argument);

static void visit_units(struct tierd_job *job, visitor *visit, void *argument)
{
	uint32_t unit = 0;

	for (unsigned first = 0, count; first < KINDS; first += count) {
		count = count_tensors(first);
		visit(job, unit++, first, count, argument);
	}
}

static void define(struct tierd_job *job, uint32_t unit, unsigned first, unsigned count, void *argument)
{
	struct tierd_tensor tensors[KINDS];
	uint32_t index;

	for (unsigned i = 0; i < count; i++)
		tensors[i] = tensor_of(&kinds[first + i]);
	OK(tierd_unit_define(job, kinds[first].unit, tensors, count, &index));
	REQUIRE(index == unit);
}

static void write_bytes(struct tierd_job *job, uint32_t unit, unsigned first, unsigned count, void *argument)
{
	for (unsigned i = 0; i < count; i++) {
		const struct kind *kind = &kinds[first + i];
		char *bytes = malloc(elements_of(kind) + 1);

		REQUIRE(bytes);
		for (uint64_t k = 0; k < elements_of(kind); k++)
			bytes[k] = (char)(k * 7);
		if (kind->format == TIERD_BYTES)
			OK(tierd_tensor_write(job, unit, i, 0, elements_of(kind), bytes, false));
		free(bytes);
	}
}

static void push(struct tierd_job *job, uint32_t unit, unsigned first, unsigned count, void *argument)
{
	uint64_t step = *(uint64_t *)argument;
	struct tierd_view view;

	if (kinds[first].is_frozen)
		return;
	OK(tierd_gradients(job, unit, &view));
	for (unsigned i = 0; i < count; i++) {
		void *gradients = tierd_at(&view, i);

		for (uint64_t k = 0; k < elements_of(&kinds[first + i]); k++)
			if (kinds[first + i].format == TIERD_FP32)
				((float *)gradients)[k] = (float)((k + step) % 17) / 16 - 0.5f;
			else
				((uint16_t *)gradients)[k] = (uint16_t)(0x3000 + (k + step * 5) % 257);
	}
	OK(tierd_push(job, unit));
}

/* ---- What it was ---- */

static uint32_t checksum(const unsigned char *bytes, uint64_t count)
{
	static uint32_t table[256];
	uint32_t sum = UINT32_MAX;

	for (uint32_t i = 0; table[1] == 0 || (i > 0 && i < 256); i++) {
		uint32_t entry = i;

		for (unsigned bit = 0; bit < 8; bit++)
			entry = entry >> 1 ^ (entry & 1 ? 0xedb88320 : 0);
		table[i] = entry;
	}
	for (uint64_t i = 0; i < count; i++)
		sum = sum >> 8 ^ table[(sum ^ bytes[i]) & 0xff];
	return ~sum;
}

struct diary {
	FILE *file;
	uint64_t step;
	unsigned char *space;
};

static void note(struct tierd_job *job, uint32_t unit, unsigned first, unsigned count, void *argument)
{
	struct diary *diary = argument;

	for (unsigned i = 0; i < count; i++) {
		const struct kind *kind = &kinds[first + i];

		for (unsigned state = 0; state < (kind->is_frozen ? 1 : STATES); state++) {
			OK(tierd_tensor_read(job, unit, i, states[state], 0, elements_of(kind),
					     diary->space));
			fprintf(diary->file, "%llu %s %s %08x\n", (unsigned long long)diary->step,
				states[state], kind->name, checksum(diary->space, bytes_of(kind, state)));
		}
	}
	REQUIRE(fflush(diary->file) == 0);
}

static bool is_over(void)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };

	return poll(&input, 1, 0) != 0;
}

static void train(struct tierd_job *job, struct diary *diary, uint64_t steps)
{
	struct tierd_rates rates = TIERD_RATES_INIT;

	rates.learning_rate = 0.01f;
	for (uint64_t i = 0; i < steps && !is_over(); i++) {
		visit_units(job, push, &diary->step);
		OK(tierd_step(job, &rates, NULL));
		diary->step++;
		visit_units(job, note, diary);
		if (i == 0) {
			puts("training");
			fflush(stdout);
		}
	}
}

static void make_wrong(const char *what)
{
	struct kind *embed = &kinds[0], *middle = &kinds[6], *last = &kinds[8];

	if (strcmp(what, "missing") == 0)
		middle->rows = kinds[7].rows = last->rows = 400;
	else if (strcmp(what, "twice") == 0)
		last->row = 150;
	else if (strcmp(what, "unlike") == 0)
		middle->shape[1] = 63;
	else if (strcmp(what, "whole") == 0)
		embed->name = "whole";
	else if (strcmp(what, "alias") == 0)
		embed->alias = "format";
	else if (strcmp(what, "name") == 0)
		embed->name = "__metadata__";
	else
		REQUIRE(!*what);
}

int main(int argc, char *argv[])
{
	struct tierd_node *node = support_connect();
	struct tierd_job_options options;
	struct tierd_job_state state;
	struct tierd_job *job;
	struct diary diary;

	REQUIRE(argc == 5 || argc == 6);
	if (argc == 6)
		make_wrong(argv[5]);
	options = support_options(argv[1], 0, 1);
	kinds[KINDS - 1].shape[0] = strtoull(argv[3], NULL, 10);
	diary.file = fopen(argv[2], "a");
	diary.space = malloc((elements_of(&kinds[KINDS - 1]) + elements_of(&kinds[0])) * 4);
	REQUIRE(diary.file && diary.space);
	OK(tierd_job_open(node, &options, &job));
	OK(tierd_job_state(job, &state));
	visit_units(job, define, NULL);
	if (state.status == TIERD_NEW)
		visit_units(job, write_bytes, NULL);
	OK(tierd_job_ready(job, -1, &state));
	diary.step = state.step;
	train(job, &diary, strtoull(argv[4], NULL, 10));
	OK(tierd_job_close(job));
	tierd_disconnect(node);
	fclose(diary.file);
	free(diary.space);
	return 0;
}
