/* Jobs that keep moments in bf16 or in 8 bits, beside others in fp32: the same bits wherever they lie, at
 * each stage; what a copy takes of them; and choices that are refused. Several ranks, and daemons that die,
 * are shown by gpt_optimizers and kills_backup. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "crash_support.h"
#include "model_values.h"

#define STEPS 4
#define BLOCK 256

/* Of the second group. */
static uint32_t short_format = TIERD_MOMENTS_BF16;
static const char *short_name = "bf16";

/* Without bytes, which somebody would have to write; tensors are of the one group and the other in turn. */
static struct model mixed(void)
{
	struct model model = model_base;

	model.kinds[model.count - 2] = model.kinds[model.count - 1];
	model.count--;
	for (unsigned i = 0; i < model.count; i++)
		model.kinds[i].group = i % 2;
	return model;
}

struct groups {
	struct tierd_group values[2];
};

static struct groups groups_with(uint32_t first, uint32_t second)
{
	struct groups groups = { { TIERD_GROUP_INIT, TIERD_GROUP_INIT } };

	groups.values[0].moments = first;
	groups.values[1].moments = second;
	return groups;
}

static struct tierd_job *join(struct tierd_node *node, struct tierd_job_options *options, uint32_t first,
			      uint32_t second)
{
	struct groups groups = groups_with(first, second);
	struct model model = mixed();
	struct tierd_job *job;

	options->seed = 7;
	options->group_count = 2;
	options->groups = groups.values;
	OK(tierd_job_open(node, options, &job));
	model_define(job, &model);
	return job;
}

static void step(struct tierd_job *job, uint64_t number)
{
	struct tierd_rates rates = support_rates(0.01f);
	struct model model = mixed();

	model_push(job, &model, UINT32_MAX, number);
	OK(tierd_step(job, &rates, NULL));
}

static void train(struct tierd_node *node, const char *name, uint32_t stage, uint32_t placement,
		  uint32_t first, uint32_t second, unsigned from, unsigned to)
{
	struct tierd_job_options options = support_options(name, 0, 1);
	struct tierd_job *job;

	options.stage = stage;
	options.parameter_placement = stage == 3 ? placement : TIERD_PLACE_HOST;
	options.optimizer_placement = placement;
	job = join(node, &options, first, second);
	OK(tierd_job_ready(job, -1, NULL));
	for (unsigned number = from; number < to; number++)
		step(job, number);
	OK(tierd_job_close(job));
}

static void train_mixed(struct tierd_node *node, const char *name, uint32_t stage, uint32_t placement,
			unsigned from, unsigned to)
{
	train(node, name, stage, placement, TIERD_MOMENTS_FP32, short_format, from, to);
}

static void require_same(struct tierd_node *node, const char *name, const char *other)
{
	struct tierd_reader *here = values_reader(node, name, NULL),
			    *there = values_reader(node, other, NULL);

	values_require_state(here, there);
	OK(tierd_reader_close(here));
	OK(tierd_reader_close(there));
}

/* ---- The same bits ---- */

static void moments_are_the_same_wherever_they_lie(struct tierd_node *node)
{
	train_mixed(node, "whole", 3, TIERD_PLACE_NVME, 0, STEPS);
	train_mixed(node, "host", 3, TIERD_PLACE_HOST, 0, STEPS);
	require_same(node, "host", "whole");
	support_drop("host");
	train_mixed(node, "lower", 2, TIERD_PLACE_NVME, 0, STEPS);
	require_same(node, "lower", "whole");
	support_drop("lower");
}

/* ---- Formats ---- */

static float *read_slot(struct tierd_node *node, const char *job, const struct kind *kind, const char *slot)
{
	struct tierd_reader *reader = values_reader(node, job, NULL);
	float *values = malloc(kind_elements(kind) * sizeof(float));
	uint32_t unit, tensor;

	REQUIRE(values);
	OK(tierd_reader_find(reader, kind->name, &unit, &tensor));
	OK(tierd_reader_read(reader, unit, tensor, slot, 0, kind_elements(kind), values));
	OK(tierd_reader_close(reader));
	return values;
}

static uint32_t bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static float largest_of(const float *values, uint64_t count)
{
	float most = 0;

	for (uint64_t i = 0; i < count; i++)
		most = fmaxf(most, fabsf(values[i]));
	return most;
}

/* What the document takes away from a code: of m, of v. */
static double base_of(const char *slot)
{
	return strcmp(slot, "v") == 0 ? 0x1p-31 : 0x1p-15;
}

/* In each block, three bits behind the point. */
static bool is_coded(const float *values, uint64_t count, const char *slot)
{
	double scale = 1;
	uint32_t all = 0;
	int exponent;

	for (uint64_t i = 0; i < count; i++) {
		if (i % BLOCK == 0) {
			frexp((double)largest_of(values + i, count - i < BLOCK ? count - i : BLOCK) *
				      (1 + 0x1p-15),
			      &exponent);
			scale = ldexp(1, exponent - 1);
		}
		all |= bits_of((float)(fabs((double)values[i]) / scale + base_of(slot)));
	}
	return (all & 0xfffff) == 0;
}

static bool is_short(const float *values, uint64_t count, const char *slot)
{
	uint32_t all = 0;

	if (short_format == TIERD_MOMENTS_INT8)
		return is_coded(values, count, slot);
	for (uint64_t i = 0; i < count; i++)
		all |= bits_of(values[i]);
	return (all & 0xffff) == 0;
}

/* How far a value may be from what a slot has of it, among others. */
static float tolerance(float value, float largest)
{
	if (short_format == TIERD_MOMENTS_INT8)
		return (fabsf(value) + largest * 0x1p-15f) / 8;
	return fabsf(value) * 0x1p-7f;
}

/* Of the groups, each its own; and what is rounded is near what is not. */
static void each_group_has_its_own_format(struct tierd_node *node)
{
	static const char *const slots[] = { "m", "v" };
	struct model model = mixed();

	train(node, "exact", 3, TIERD_PLACE_NVME, TIERD_MOMENTS_FP32, TIERD_MOMENTS_FP32, 0, STEPS);
	for (unsigned i = 0; i < 2 * model.count; i++) {
		const struct kind *kind = &model.kinds[i / 2];

		if (kind->is_frozen || kind_elements(kind) < 2)
			continue;
		float *here = read_slot(node, "whole", kind, slots[i % 2]);
		float *exact = read_slot(node, "exact", kind, slots[i % 2]);

		REQUIRE(is_short(here, kind_elements(kind), slots[i % 2]) == (kind->group == 1));
		REQUIRE(!is_short(exact, kind_elements(kind), slots[i % 2]));
		float largest = largest_of(exact, kind_elements(kind));

		for (uint64_t k = 0; k < kind_elements(kind); k++)
			REQUIRE(fabsf(here[k] - exact[k]) <= STEPS * tolerance(exact[k], largest) + 1e-5f);
		free(here);
		free(exact);
	}
}

/* ---- Values from elsewhere ---- */

static void require_kept(const float *here, const float *there, uint64_t count, bool is_rounded)
{
	float largest = largest_of(there, count);

	for (uint64_t i = 0; i < count; i++)
		if (!is_rounded)
			REQUIRE(bits_of(here[i]) == bits_of(there[i]));
		else if (short_format == TIERD_MOMENTS_BF16)
			REQUIRE(bits_of(here[i]) == ((bits_of(there[i]) + 0x8000) & 0xffff0000));
		else
			REQUIRE(fabsf(here[i] - there[i]) <= tolerance(there[i], largest) / 2);
	REQUIRE(!is_rounded || is_short(here, count, "v"));
}

/* The format of each group is changed, so some are rounded, and others are as they were. */
static void a_copy_keeps_what_has_room(struct tierd_node *node)
{
	static const uint32_t placements[] = { TIERD_PLACE_NVME, TIERD_PLACE_HOST };
	struct model model = mixed();

	for (unsigned p = 0; p < 2; p++) {
		struct tierd_job_options options = support_options("copy", 0, 1);
		struct tierd_job *job;

		options.source = "whole";
		options.with_optimizer = true;
		options.optimizer_placement = placements[p];
		job = join(node, &options, short_format, TIERD_MOMENTS_FP32);
		OK(tierd_job_ready(job, -1, NULL));
		for (unsigned i = 0; i < model.count; i++) {
			const struct kind *kind = &model.kinds[i];

			if (kind->is_frozen)
				continue;
			float *here = read_slot(node, "copy", kind, "v");
			float *there = read_slot(node, "whole", kind, "v");

			require_kept(here, there, kind_elements(kind), kind->group == 0);
			free(here);
			free(there);
		}
		step(job, STEPS);
		OK(tierd_job_close(job));
		support_drop("copy");
	}
}

/* ---- Values from elsewhere, of some units alone ---- */

/* Of one pack, each more than a piece of a copy, and neither whole extents of moments. */
static const struct kind taken = { "taken", "taken", TIERD_BF16, 1, { 600000 }, TIERD_INITIALIZE_NORMAL };
static const struct kind anew = { "anew", "anew", TIERD_BF16, 1, { 400000 }, TIERD_INITIALIZE_NORMAL };

static struct tierd_job *join_short(struct tierd_node *node, struct tierd_job_options *options,
				    const struct model *model)
{
	struct groups groups = groups_with(short_format, short_format);
	struct tierd_job *job;

	options->group_count = 1;
	options->groups = groups.values;
	OK(tierd_job_open(node, options, &job));
	model_define(job, model);
	OK(tierd_job_ready(job, -1, NULL));
	return job;
}

static void make_partial_source(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("part", 0, 1);
	struct tierd_rates rates = support_rates(0.01f);
	struct model model = { 1, { taken } };
	struct tierd_job *job = join_short(node, &options, &model);

	model_push(job, &model, UINT32_MAX, 0);
	OK(tierd_step(job, &rates, NULL));
	OK(tierd_job_close(job));
}

static void require_partly_taken(struct tierd_node *node, const char *slot)
{
	uint64_t count = kind_elements(&taken);
	float *here = read_slot(node, "copy", &taken, slot);
	float *there = read_slot(node, "part", &taken, slot);
	float *other = read_slot(node, "copy", &anew, slot);

	REQUIRE(there[0] != 0 && there[count - 1] != 0);
	REQUIRE(memcmp(here, there, count * sizeof(*here)) == 0);
	for (uint64_t i = 0; i < kind_elements(&anew); i++)
		REQUIRE(other[i] == 0);
	free(here);
	free(there);
	free(other);
}

/* Whatever lies before or behind it. */
static void a_unit_is_taken_beside_one_that_begins_anew(struct tierd_node *node)
{
	static const uint32_t placements[] = { TIERD_PLACE_NVME, TIERD_PLACE_HOST };
	const struct model models[] = { { 2, { taken, anew } }, { 2, { anew, taken } } };

	make_partial_source(node);
	for (unsigned i = 0; i < 4; i++) {
		struct tierd_job_options options = support_options("copy", 0, 1);
		struct tierd_job *job;

		options.source = "part";
		options.with_optimizer = options.partial = true;
		options.optimizer_placement = placements[i / 2];
		job = join_short(node, &options, &models[i % 2]);
		require_partly_taken(node, "m");
		require_partly_taken(node, "v");
		OK(tierd_job_close(job));
		support_drop("copy");
	}
	support_drop("part");
}

static void written_moments_are_rounded(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("written", 0, 1);
	const struct kind *kind = &model_base.kinds[1];
	float written[1203], read[1203];
	struct tierd_job *job = join(node, &options, TIERD_MOMENTS_FP32, short_format);

	for (unsigned i = 0; i < 1203; i++)
		written[i] = (float)i / 1203;
	REQUIRE(kind_elements(kind) == 1203);
	OK(tierd_tensor_write_state(job, 1, 0, "v", 5, 0, 700, written));
	OK(tierd_tensor_write_state(job, 1, 0, "v", 5, 700, 503, written + 700));
	OK(tierd_job_ready(job, -1, NULL));
	OK(tierd_tensor_read(job, 1, 0, "v", 0, 1203, read));
	require_kept(read, written, 1203, true);
	OK(tierd_job_close(job));
	support_drop("written");
}

/* ---- Refusals ---- */

static void other_formats_are_refused(struct tierd_node *node)
{
	struct groups wrong = groups_with(TIERD_MOMENTS_FP32, TIERD_MOMENTS_FP32);
	struct groups right = groups_with(TIERD_MOMENTS_FP32, short_format);
	struct tierd_job_options options = support_options("whole", 0, 1);
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct model model = mixed();
	struct tierd_job *job = NULL;
	char message[80];

	snprintf(message, sizeof(message), "parameter group 1 has moments in fp32 here, in %s in the job",
		 short_name);
	options.seed = 7;
	options.group_count = 2;
	options.groups = wrong.values;
	FAILS(tierd_job_open(node, &options, &job), -EINVAL, message);
	wrong.values[1].moments = 99;
	options.name = "unknown";
	FAILS(tierd_job_open(node, &options, &job), -EINVAL,
	      "parameter group 1: no format of moments 99; there are fp32 (0), bf16 (1) and int8 (2)");
	options.name = "whole";
	options.groups = right.values;
	OK(tierd_job_open(node, &options, &job));
	model_define(job, &model);
	OK(tierd_job_ready(job, -1, NULL));
	wrong.values[1].moments = TIERD_MOMENTS_FP32;
	rates.group_count = 2;
	rates.groups = wrong.values;
	FAILS(tierd_step(job, &rates, NULL), -EINVAL, message);
	OK(tierd_job_close(job));
}

int main(int argc, char **argv)
{
	struct tierd_node *node = support_connect();

	REQUIRE(argc > 1);
	if (strcmp(argv[1], "int8") == 0) {
		short_format = TIERD_MOMENTS_INT8;
		short_name = "int8";
	}
	moments_are_the_same_wherever_they_lie(node);
	each_group_has_its_own_format(node);
	a_copy_keeps_what_has_room(node);
	a_unit_is_taken_beside_one_that_begins_anew(node);
	written_moments_are_rounded(node);
	other_formats_are_refused(node);
	tierd_disconnect(node);
	return 0;
}
