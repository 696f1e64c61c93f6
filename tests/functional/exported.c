/* A rank that trains a job of every kind of tensor until its standard input ends, and writes down what its
 * state was at each step: "STEP STATE TENSOR CHECKSUM", the last being zlib's crc32().
 *
 * exported JOB FILE LARGE STEPS [WRONG]    LARGE: elements of the largest tensor; STEPS: how many at most;
 * WRONG: what keeps its tensors from being exported
 *
 * Prints "training" after the first step. */
#include <poll.h>
#include <string.h>
#include <zlib.h>

#include "crash_support.h"
#include "model.h"

#define STATES 4

static const char *const states[STATES] = { "parameter", "master", "m", "v" };

static struct model model;

/* ---- What it was ---- */

struct diary {
	FILE *file;
	uint64_t step;
	unsigned char *space;
};

static void note_tensor(struct tierd_job *job, uint32_t unit, uint32_t tensor, const struct kind *kind,
			struct diary *diary)
{
	for (unsigned state = 0; state < (kind->is_frozen ? 1 : STATES); state++) {
		uint64_t bytes = state == 0 ? kind_bytes(kind) : kind_elements(kind) * sizeof(float);

		OK(tierd_tensor_read(job, unit, tensor, states[state], 0, kind_elements(kind), diary->space));
		fprintf(diary->file, "%llu %s %s %08lx\n", (unsigned long long)diary->step, states[state],
			kind->name, crc32_z(0, diary->space, bytes));
	}
}

static void note(struct tierd_job *job, struct diary *diary)
{
	for (unsigned first = 0, unit = 0, count; first < model.count; first += count, unit++) {
		count = model_unit_tensors(&model, first);
		for (unsigned i = 0; i < count; i++)
			note_tensor(job, unit, i, &model.kinds[first + i], diary);
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
	struct tierd_rates rates = support_rates(0.01f);

	for (uint64_t i = 0; i < steps && !is_over(); i++) {
		model_push(job, &model, UINT32_MAX, diary->step);
		OK(tierd_step(job, &rates, NULL));
		diary->step++;
		note(job, diary);
		if (i == 0) {
			puts("training");
			fflush(stdout);
		}
	}
}

static void make_wrong(const char *what)
{
	struct kind *embed = &model.kinds[0], *slices = &model.kinds[6];

	if (strcmp(what, "missing") == 0)
		slices[0].rows = slices[1].rows = slices[2].rows = 400;
	else if (strcmp(what, "twice") == 0)
		slices[2].row = 150;
	else if (strcmp(what, "unlike") == 0)
		slices[0].shape[1] = 63;
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
	model = model_base;
	if (argc == 6)
		make_wrong(argv[5]);
	options = support_options(argv[1], 0, 1);
	model.kinds[model.count - 1].shape[0] = strtoull(argv[3], NULL, 10);
	diary.file = fopen(argv[2], "a");
	diary.space =
		malloc((kind_elements(&model.kinds[model.count - 1]) + kind_elements(&model.kinds[0])) * 4);
	REQUIRE(diary.file && diary.space);
	OK(tierd_job_open(node, &options, &job));
	OK(tierd_job_state(job, &state));
	model_define(job, &model);
	if (state.status == TIERD_NEW)
		model_write_codes(job, &model);
	OK(tierd_job_ready(job, -1, &state));
	diary.step = state.step;
	train(job, &diary, strtoull(argv[4], NULL, 10));
	OK(tierd_job_close(job));
	tierd_disconnect(node);
	fclose(diary.file);
	free(diary.space);
	return 0;
}
