/* Jobs of very many small units and tensors: as many as a job may have, and one more.
 *
 *   limits units COUNT RANKS STAGE   defines, gathers, pushes and updates each of them; looks at every value
 *   limits tensors COUNT FROZEN      defines them in units of TENSORS; trains, if that many are allowed */
#include <errno.h>
#include <string.h>

#include "crash_support.h"

#define RANKS_MAX 8
#define ELEMENTS 3
#define TENSORS 5000
#define MOST_UNITS 100000
#define MOST_TENSORS 1000000
#define TOO_MANY "a job has at most 100000 units and 1000000 tensors here"

static const struct tierd_rates rates = { sizeof(struct tierd_rates), 0.1f, 1.0f, 1.0f, 0, NULL, 0.0f };

static void open_job(struct ranks *ranks, const char *name, unsigned count, uint32_t stage)
{
	ranks->count = count;
	for (unsigned rank = 0; rank < count; rank++) {
		struct tierd_job_options options = support_options(name, rank, count);

		options.stage = stage;
		ranks->nodes[rank] = support_connect();
		OK(tierd_set_timeout(ranks->nodes[rank], 10 * PATIENCE_MS));
		OK(tierd_job_open(ranks->nodes[rank], &options, &ranks->jobs[rank]));
	}
}

/* ---- Units ---- */

/* Every unit, by every rank; its gradients are its number, halved by each rank after the first. */
static void push_all(struct ranks *ranks, uint32_t count)
{
	struct tierd_view view;

	for (uint32_t unit = 0; unit < count; unit++)
		for (unsigned rank = 0; rank < ranks->count; rank++) {
			OK(tierd_gradients(ranks->jobs[rank], unit, &view));
			for (unsigned i = 0; i < ELEMENTS; i++)
				((float *)tierd_at(&view, 0))[i] = (float)(unit + 1) / (float)(1 << rank);
			OK(tierd_push(ranks->jobs[rank], unit));
		}
}

/* The first step of AdamW moves a value by its rate, whatever the gradient; the moments show that it was the
 * unit's own. */
static void look_at_all(const struct ranks *ranks, uint32_t count, uint64_t version)
{
	struct tierd_view view;
	float first = 0.0f;

	for (uint32_t unit = 0; unit < count; unit++) {
		OK(tierd_gather(ranks->jobs[unit % ranks->count], unit, &view));
		REQUIRE(view.version == version);
		const float *values = tierd_at(&view, 0);

		if (unit == 0)
			first = values[0];
		REQUIRE(version == 0 ? values[0] == 1.0f : values[0] > 0.89f && values[0] < 0.91f);
		for (unsigned i = 0; i < ELEMENTS; i++)
			REQUIRE(values[i] - first < 1e-6f && first - values[i] < 1e-6f);
		OK(tierd_release(ranks->jobs[unit % ranks->count], unit));
	}
}

static void look_at_moments(const struct ranks *ranks, uint32_t count)
{
	for (uint32_t unit = 0; unit < count; unit += 1 + count / 97) {
		float m, sum = 0.0f;

		for (unsigned rank = 0; rank < ranks->count; rank++)
			sum += (float)(unit + 1) / (float)(1 << rank);
		OK(tierd_tensor_read(ranks->jobs[0], unit, 0, "m", ELEMENTS - 1, 1, &m));
		REQUIRE(m > 0.0999f * sum && m < 0.1001f * sum);
	}
}

static void many_units_are_trained(uint32_t count, unsigned rank_count, uint32_t stage)
{
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	struct tierd_step_result result;
	struct ranks ranks;
	uint32_t unit;

	open_job(&ranks, "units", rank_count, stage);
	for (unsigned rank = 0; rank < rank_count; rank++)
		support_define_all(ranks.jobs[rank], count, TIERD_FP32, ELEMENTS, 1.0, 0.0);
	tensor.name = "more";
	if (count == MOST_UNITS)
		FAILS(tierd_unit_define(ranks.jobs[0], "more", &tensor, 1, &unit), -E2BIG, TOO_MANY);
	support_ready(ranks.jobs, ranks.count, 0, NULL);
	look_at_all(&ranks, count, 0);
	push_all(&ranks, count);
	result = support_step(ranks.jobs, ranks.count, &rates, TIERD_DONE);
	REQUIRE(result.step == 1 && !result.is_skipped);
	look_at_all(&ranks, count, 1);
	look_at_moments(&ranks, count);
	ranks_close(&ranks);
	support_drop("units");
}

/* ---- Tensors ---- */

static int define_tensors(struct tierd_job *job, uint32_t index, uint32_t count, bool is_frozen)
{
	static struct tierd_tensor tensors[TENSORS];
	static char names[TENSORS][24];
	char name[24];
	uint32_t unit;

	for (uint32_t i = 0; i < count; i++) {
		tensors[i] = (struct tierd_tensor)TIERD_TENSOR_INIT;
		snprintf(names[i], sizeof(names[i]), "%u.%u", index, i);
		tensors[i].name = names[i];
		tensors[i].is_frozen = is_frozen;
		tensors[i].initializer = TIERD_INITIALIZE_ONES;
	}
	snprintf(name, sizeof(name), "unit%u", index);
	return tierd_unit_define(job, name, tensors, count, &unit);
}

static void many_tensors_are_trained(uint32_t count, bool is_frozen)
{
	struct tierd_view view;
	struct tierd_step_result result;
	struct ranks ranks;
	uint32_t units = 0;

	open_job(&ranks, "tensors", 1, 3);
	for (uint32_t left = count; left > 0; units++) {
		uint32_t some = left < TENSORS ? left : TENSORS;

		OK(define_tensors(ranks.jobs[0], units, some, is_frozen));
		left -= some;
	}
	if (count == MOST_TENSORS)
		FAILS(define_tensors(ranks.jobs[0], units, 1, is_frozen), -E2BIG, TOO_MANY);
	support_ready(ranks.jobs, ranks.count, 0, NULL);
	for (uint32_t unit = 0; unit < units; unit++) {
		OK(tierd_gather(ranks.jobs[0], unit, &view));
		REQUIRE(*(const uint16_t *)tierd_at(&view, (count - unit * TENSORS - 1) % TENSORS) == 0x3f80);
		OK(tierd_release(ranks.jobs[0], unit));
	}
	result = support_step(ranks.jobs, ranks.count, &rates, TIERD_DONE);
	REQUIRE(result.step == 1 && !result.is_skipped);
	ranks_close(&ranks);
	support_drop("tensors");
}

int main(int argc, char *argv[])
{
	if (argc == 5 && strcmp(argv[1], "units") == 0) {
		REQUIRE(atoi(argv[3]) <= RANKS_MAX);
		many_units_are_trained((uint32_t)atoi(argv[2]), (unsigned)atoi(argv[3]),
				       (uint32_t)atoi(argv[4]));
	} else {
		REQUIRE(argc == 4 && strcmp(argv[1], "tensors") == 0);
		many_tensors_are_trained((uint32_t)atoi(argv[2]), atoi(argv[3]));
	}
	return 0;
}
