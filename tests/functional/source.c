/* Jobs that take their first values from another one: of any format, grouping, number of ranks and placement,
 * the same bits; and those that cannot. */
#include <errno.h>
#include <string.h>

#include "crash_support.h"

#define BASE "base"
#define EARLY "early" /* a snapshot of it, of a step before its last one */
#define TENSORS_MOST 16
#define RANKS 3

struct kind {
	const char *unit, *name;
	uint32_t format, dimensions;
	uint64_t shape[2];
	bool is_frozen;
	const char *alias;
	uint64_t row, rows; /* rows > 0: a slice of "whole" */
	uint32_t initializer;
};

struct model {
	unsigned count;
	struct kind kinds[TENSORS_MOST];
};

/* The last is a pack of its own, whose pieces are many. */
static const struct model base = {
	12,
	{
		{ "embed",
		  "embed",
		  TIERD_BF16,
		  2,
		  { 701, 431 },
		  false,
		  "head",
		  0,
		  0,
		  TIERD_INITIALIZE_NORMAL },
		{ "layer", "half", TIERD_FP16, 1, { 1203 }, false, NULL, 0, 0, TIERD_INITIALIZE_NORMAL },
		{ "layer", "full", TIERD_FP32, 2, { 33, 7 }, false, NULL, 0, 0, TIERD_INITIALIZE_NORMAL },
		{ "layer", "scale", TIERD_FP32, 0, { 0 }, false, NULL, 0, 0, TIERD_INITIALIZE_NORMAL },
		{ "layer", "none", TIERD_BF16, 2, { 0, 5 }, false, NULL, 0, 0, TIERD_INITIALIZE_NORMAL },
		{ "middle",
		  "middle",
		  TIERD_BF16,
		  2,
		  { 100, 64 },
		  false,
		  NULL,
		  100,
		  300,
		  TIERD_INITIALIZE_NORMAL },
		{ "first",
		  "first",
		  TIERD_BF16,
		  2,
		  { 100, 64 },
		  false,
		  NULL,
		  0,
		  300,
		  TIERD_INITIALIZE_NORMAL },
		{ "last",
		  "last",
		  TIERD_BF16,
		  2,
		  { 100, 64 },
		  false,
		  NULL,
		  200,
		  300,
		  TIERD_INITIALIZE_NORMAL },
		{ "frozen", "ice", TIERD_BF16, 1, { 3001 }, true, NULL, 0, 0, TIERD_INITIALIZE_NORMAL },
		{ "frozen", "frost", TIERD_FP16, 1, { 77 }, true, NULL, 0, 0, TIERD_INITIALIZE_NORMAL },
		{ "frozen", "codes", TIERD_BYTES, 1, { 70001 }, true, NULL, 0, 0, TIERD_INITIALIZE_NONE },
		{ "large", "large", TIERD_FP32, 1, { 1200000 }, false, NULL, 0, 0, TIERD_INITIALIZE_NORMAL },
	},
};

/* The same values in other units and formats, some under the other of their names, and slices cut elsewhere.
 */
static const struct model other = {
	10,
	{
		{ "all", "large", TIERD_BF16, 1, { 1200000 }, false, NULL, 0, 0, TIERD_INITIALIZE_NONE },
		{ "all", "head", TIERD_FP32, 2, { 701, 431 }, false, NULL, 0, 0, TIERD_INITIALIZE_ONES },
		{ "all", "upper", TIERD_FP32, 2, { 150, 64 }, false, NULL, 0, 300, TIERD_INITIALIZE_NONE },
		{ "all", "half", TIERD_BF16, 1, { 1203 }, false, NULL, 0, 0, TIERD_INITIALIZE_NONE },
		{ "rest", "lower", TIERD_FP16, 2, { 150, 64 }, false, NULL, 150, 300, TIERD_INITIALIZE_NONE },
		{ "rest", "full", TIERD_FP16, 2, { 33, 7 }, false, NULL, 0, 0, TIERD_INITIALIZE_NONE },
		{ "rest", "scale", TIERD_BF16, 0, { 0 }, false, "unheard", 0, 0, TIERD_INITIALIZE_NONE },
		{ "rest", "frost", TIERD_FP32, 1, { 77 }, true, NULL, 0, 0, TIERD_INITIALIZE_NONE },
		{ "rest", "ice", TIERD_FP32, 1, { 3001 }, false, NULL, 0, 0, TIERD_INITIALIZE_NONE },
		{ "codes", "codes", TIERD_BYTES, 1, { 70001 }, true, NULL, 0, 0, TIERD_INITIALIZE_NONE },
	},
};

typedef void change(struct tierd_job_options *options);

/* ---- Jobs ---- */

static uint64_t elements_of(const struct kind *kind)
{
	uint64_t elements = 1;

	for (uint32_t i = 0; i < kind->dimensions; i++)
		elements *= kind->shape[i];
	return elements;
}

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
	tensor.initializer = kind->initializer;
	tensor.b = 1;
	return tensor;
}

/* Of a unit that begins with this tensor; its index is that of the unit. */
static unsigned define_unit(struct tierd_job *job, const struct model *model, unsigned first)
{
	struct tierd_tensor tensors[TENSORS_MOST];
	unsigned count = 0;
	uint32_t unit;

	while (first + count < model->count &&
	       strcmp(model->kinds[first].unit, model->kinds[first + count].unit) == 0) {
		tensors[count] = tensor_of(&model->kinds[first + count]);
		count++;
	}
	OK(tierd_unit_define(job, model->kinds[first].unit, tensors, count, &unit));
	return count;
}

static struct tierd_job *join(struct tierd_node *node, struct tierd_job_options *options,
			      const struct model *model)
{
	struct tierd_job *job;

	OK(tierd_job_open(node, options, &job));
	for (unsigned first = 0; first < model->count;)
		first += define_unit(job, model, first);
	return job;
}

static void write_codes(struct tierd_job *job)
{
	unsigned char *codes = malloc(70001);

	REQUIRE(codes);
	for (unsigned i = 0; i < 70001; i++)
		codes[i] = (unsigned char)(i * 7 % 251);
	OK(tierd_tensor_write(job, 4 + 1, 2, 0, 70001, codes, false));
	free(codes);
}

/* ---- Steps ---- */

static uint64_t bytes_of(const struct kind *kind)
{
	return elements_of(kind) * (kind->format == TIERD_FP32 ? 4 : kind->format == TIERD_BYTES ? 1 : 2);
}

static void push(struct tierd_job *job, const struct model *model, uint32_t unit, unsigned first,
		 unsigned count)
{
	struct tierd_view view;

	if (model->kinds[first].is_frozen)
		return;
	OK(tierd_gradients(job, unit, &view));
	for (unsigned i = 0; i < count; i++) {
		const struct kind *kind = &model->kinds[first + i];

		for (uint64_t k = 0; !kind->is_frozen && k < elements_of(kind); k++)
			if (kind->format == TIERD_FP32)
				((float *)tierd_at(&view, i))[k] = (float)(k % 17) / 16 - 0.5f;
			else
				((uint16_t *)tierd_at(&view, i))[k] = (uint16_t)(0x3000 + k % 257);
	}
	OK(tierd_push(job, unit));
}

/* How many of its units are pushed. */
static void step_some(struct tierd_job *job, const struct model *model, unsigned units)
{
	struct tierd_rates rates = TIERD_RATES_INIT;

	rates.learning_rate = 0.01f;
	for (unsigned first = 0, count, unit = 0; first < model->count && unit < units;
	     first += count, unit++) {
		for (count = 1; first + count < model->count &&
				strcmp(model->kinds[first].unit, model->kinds[first + count].unit) == 0;)
			count++;
		push(job, model, unit, first, count);
	}
	OK(tierd_step(job, &rates, NULL));
}

static void step(struct tierd_job *job, const struct model *model)
{
	step_some(job, model, UINT32_MAX);
}

/* ---- Values ---- */

/* snapshot: NULL, or which one of it. */
static struct tierd_reader *reader_of(struct tierd_node *node, const char *name, const char *snapshot)
{
	struct tierd_reader_options options = TIERD_READER_OPTIONS_INIT;
	struct tierd_reader *reader;

	options.name = name;
	options.snapshot = snapshot;
	OK(tierd_reader_open(node, &options, &reader));
	return reader;
}

static void *read_state(struct tierd_reader *reader, const struct kind *kind, const char *state,
			uint64_t bytes)
{
	uint32_t unit, tensor;
	void *values = malloc(bytes + 1);

	REQUIRE(values);
	OK(tierd_reader_find(reader, kind->name, &unit, &tensor));
	OK(tierd_reader_read(reader, unit, tensor, state, 0, elements_of(kind), values));
	return values;
}

static float widen_half(uint16_t half)
{
	int exponent = half >> 10 & 31;
	float fraction = (float)(half & 0x3ff) / 1024;
	float value = exponent == 0 ? fraction / 16384 : (1 + fraction);

	REQUIRE(exponent < 31);
	for (int i = 15; exponent > 0 && i < exponent; i++)
		value *= 2;
	for (int i = exponent; exponent > 0 && i < 15; i++)
		value /= 2;
	return half & 0x8000 ? -value : value;
}

/* The master, or of a frozen tensor what it would be. */
static float *read_masters(struct tierd_reader *reader, const struct kind *kind)
{
	uint16_t *narrow;
	float *values;

	if (!kind->is_frozen)
		return read_state(reader, kind, "master", elements_of(kind) * sizeof(float));
	if (kind->format == TIERD_FP32)
		return read_state(reader, kind, "parameter", bytes_of(kind));
	narrow = read_state(reader, kind, "parameter", bytes_of(kind));
	values = malloc(elements_of(kind) * sizeof(float));
	REQUIRE(values);
	for (uint64_t i = 0; i < elements_of(kind); i++) {
		uint32_t bits = (uint32_t)narrow[i] << 16;

		memcpy(&values[i], &bits, sizeof(bits));
		if (kind->format == TIERD_FP16)
			values[i] = widen_half(narrow[i]);
	}
	free(narrow);
	return values;
}

static const struct kind *find_kind(const struct model *model, const char *name)
{
	for (unsigned i = 0; i < model->count; i++) {
		const struct kind *kind = &model->kinds[i];

		if (strcmp(kind->name, name) == 0 || (kind->alias && strcmp(kind->alias, name) == 0))
			return kind;
	}
	REQUIRE(!"a name that is there");
	return NULL;
}

/* Of the source, what this tensor should have. */
static float *expected(struct tierd_reader *reader, const struct kind *kind)
{
	static const char *const parts[] = { "first", "middle", "last" };
	float *whole, *values;

	if (kind->rows == 0)
		return read_masters(reader, find_kind(&base, kind->name));
	whole = malloc(300 * 64 * sizeof(float));
	values = malloc(elements_of(kind) * sizeof(float));
	REQUIRE(whole && values);
	for (unsigned i = 0; i < 3; i++) {
		float *part = read_masters(reader, find_kind(&base, parts[i]));

		memcpy(whole + i * 6400, part, 6400 * sizeof(float));
		free(part);
	}
	memcpy(values, whole + kind->row * 64, elements_of(kind) * sizeof(float));
	free(whole);
	return values;
}

/* Rounded as masters are. */
static void require_parameters(struct tierd_reader *reader, const struct kind *kind, const float *masters)
{
	uint16_t *parameters;

	if (kind->format != TIERD_BF16)
		return;
	parameters = read_state(reader, kind, "parameter", bytes_of(kind));
	for (uint64_t i = 0; i < elements_of(kind); i++) {
		uint32_t bits;

		memcpy(&bits, &masters[i], sizeof(bits));
		REQUIRE(parameters[i] == (uint16_t)((bits + 0x8000) >> 16));
	}
	free(parameters);
}

static void require_tensor(struct tierd_reader *here, struct tierd_reader *there, const struct kind *kind)
{
	uint64_t bytes = elements_of(kind) * (kind->format == TIERD_BYTES ? 1 : sizeof(float));
	void *own, *other_values;

	if (kind->format == TIERD_BYTES) {
		own = read_state(here, kind, "parameter", bytes);
		other_values = read_state(there, kind, "parameter", bytes);
	} else {
		own = read_masters(here, kind);
		other_values = expected(there, kind);
		require_parameters(here, kind, own);
	}
	if (memcmp(own, other_values, bytes) != 0) {
		fprintf(stderr, "tensor %s has other values than its source\n", kind->name);
		exit(1);
	}
	free(own);
	free(other_values);
}

static void require_values(struct tierd_node *node, const char *name, const char *snapshot,
			   const struct model *model)
{
	struct tierd_reader *here = reader_of(node, name, NULL), *there = reader_of(node, BASE, snapshot);

	for (unsigned i = 0; i < model->count; i++)
		require_tensor(here, there, &model->kinds[i]);
	OK(tierd_reader_close(here));
	OK(tierd_reader_close(there));
}

/* ---- Cases ---- */

static struct tierd_job_options options_for(const char *name, unsigned rank, unsigned ranks, change *set)
{
	struct tierd_job_options options = support_options(name, rank, ranks);

	options.source = BASE;
	options.seed = 99;
	if (set)
		set(&options);
	return options;
}

static struct tierd_job_options base_options(void)
{
	struct tierd_job_options options = support_options(BASE, 0, 1);

	options.snapshots = 1;
	return options;
}

static void make_base(struct tierd_node *node)
{
	struct tierd_job_options options = base_options();
	struct tierd_job *job = join(node, &options, &base);

	write_codes(job);
	OK(tierd_job_ready(job, -1, NULL));
	for (unsigned i = 0; i < 3; i++) {
		step(job, &base);
		if (i == 1)
			OK(tierd_snapshot(job, EARLY));
	}
	/* The first unit has had one update more than the others. */
	step_some(job, &base, 1);
	OK(tierd_job_close(job));
}

/* Values of the source, which is the base, or that snapshot of it. */
static void takes_of(struct tierd_node *node, const char *name, const char *snapshot,
		     const struct model *model, unsigned ranks, change *set)
{
	struct tierd_job *jobs[RANKS];

	for (unsigned rank = 0; rank < ranks; rank++) {
		struct tierd_job_options options = options_for(name, rank, ranks, set);

		jobs[rank] = join(node, &options, model);
	}
	support_ready(jobs, ranks, 0, NULL);
	require_values(node, name, snapshot, model);
	for (unsigned rank = 0; rank < ranks; rank++)
		OK(tierd_job_close(jobs[rank]));
	support_drop(name);
}

static void takes(struct tierd_node *node, const char *name, const struct model *model, unsigned ranks,
		  change *set)
{
	takes_of(node, name, NULL, model, ranks, set);
}

static void lower_stage(struct tierd_job_options *options)
{
	options->stage = 1;
}

static void in_host_memory(struct tierd_job_options *options)
{
	options->parameter_placement = options->optimizer_placement = TIERD_PLACE_HOST;
}

static void sums_on_nvme(struct tierd_job_options *options)
{
	options->gradient_placement = TIERD_PLACE_NVME;
}

static void partly(struct tierd_job_options *options)
{
	options->partial = true;
}

static void any_kind_of_job_takes_values(struct tierd_node *node)
{
	takes(node, "same", &base, 1, NULL);
	takes(node, "other", &other, RANKS, NULL);
	takes(node, "lower", &other, 2, lower_stage);
	takes(node, "host", &other, 1, in_host_memory);
	takes(node, "spilled", &other, 2, sums_on_nvme);
}

/* What it takes is what it would be if a rank had written it, and stays that through steps. */
static void of_snapshot(struct tierd_job_options *options)
{
	options->source = BASE "@" EARLY;
}

static void of_snapshot_in_host_memory(struct tierd_job_options *options)
{
	of_snapshot(options);
	in_host_memory(options);
}

/* Also while somebody has its job open. */
static void a_snapshot_gives_what_it_has_kept(struct tierd_node *node)
{
	struct tierd_job_options options = base_options();
	struct tierd_job *job;

	takes_of(node, "early", EARLY, &base, 1, of_snapshot);
	job = join(node, &options, &base);
	OK(tierd_job_ready(job, -1, NULL));
	takes_of(node, "early", EARLY, &other, RANKS, of_snapshot);
	takes_of(node, "early", EARLY, &other, 2, of_snapshot_in_host_memory);
	OK(tierd_job_close(job));
}

static void it_trains_as_one_whose_masters_were_written(struct tierd_node *node)
{
	static const struct model one = {
		1,
		{ { "large", "large", TIERD_BF16, 1, { 1200000 }, false, NULL, 0, 0, TIERD_INITIALIZE_NONE } }
	};
	struct tierd_reader *from = reader_of(node, BASE, NULL), *readers[2];
	float *masters = read_masters(from, &one.kinds[0]), *results[2];

	for (unsigned i = 0; i < 2; i++) {
		const char *name = i ? "written" : "taken";
		struct tierd_job_options options = options_for(name, 0, 1, NULL);
		struct tierd_job *job;

		if (i)
			options.source = NULL;
		job = join(node, &options, &one);
		if (i)
			OK(tierd_tensor_write(job, 0, 0, 0, 1200000, masters, true));
		OK(tierd_job_ready(job, -1, NULL));
		step(job, &one);
		step(job, &one);
		OK(tierd_job_close(job));
		readers[i] = reader_of(node, name, NULL);
		results[i] = read_masters(readers[i], &one.kinds[0]);
	}
	REQUIRE(memcmp(results[0], results[1], 1200000 * sizeof(float)) == 0);
	REQUIRE(memcmp(results[0], masters, 1200000 * sizeof(float)) != 0);
	for (unsigned i = 0; i < 2; i++) {
		OK(tierd_reader_close(readers[i]));
		free(results[i]);
	}
	OK(tierd_reader_close(from));
	free(masters);
	support_drop("taken");
	support_drop("written");
}

/* ---- With what the optimizer keeps ---- */

/* Units that had as many updates, in one. */
static struct model regrouped(void)
{
	struct model model = base;

	for (unsigned i = 1; i < model.count; i++)
		model.kinds[i].unit = "rest";
	return model;
}

static void require_equal(struct tierd_reader *here, struct tierd_reader *there)
{
	static const char *const states[] = { "master", "m", "v" };

	for (unsigned i = 0; i < base.count; i++)
		for (unsigned k = 0; k < 3 && !base.kinds[i].is_frozen; k++) {
			const struct kind *kind = &base.kinds[i];
			uint64_t bytes = elements_of(kind) * sizeof(float);
			void *own = read_state(here, kind, states[k], bytes);
			void *others = read_state(there, kind, states[k], bytes);

			if (memcmp(own, others, bytes) != 0) {
				fprintf(stderr, "tensor %s has another %s\n", kind->name, states[k]);
				exit(1);
			}
			free(own);
			free(others);
		}
}

static void train_on(struct tierd_node *node, const struct tierd_job_options *options,
		     const struct model *model)
{
	struct tierd_job_options own = *options;
	struct tierd_job *job = join(node, &own, model);

	OK(tierd_job_ready(job, -1, NULL));
	step(job, model);
	OK(tierd_job_close(job));
}

/* Copies of it go on as it does itself: what was kept, and the counts of updates, are those that it had. */
static void a_copy_with_its_optimizer_goes_on_as_its_source(struct tierd_node *node)
{
	static const char *const names[] = { "kept", "grouped", "near" };
	struct tierd_reader *from = reader_of(node, BASE, NULL), *reader;
	struct model model = regrouped();

	for (unsigned i = 0; i < 3; i++) {
		struct tierd_job_options options =
			options_for(names[i], 0, 1, i == 2 ? in_host_memory : NULL);

		options.with_optimizer = true;
		train_on(node, &options, i == 0 ? &base : &model);
	}
	struct tierd_job_options options = base_options();

	train_on(node, &options, &base);
	OK(tierd_reader_refresh(from, NULL, 0, NULL));
	for (unsigned i = 0; i < 3; i++) {
		reader = reader_of(node, names[i], NULL);
		require_equal(reader, from);
		OK(tierd_reader_close(reader));
	}
	OK(tierd_reader_close(from));
	support_drop("grouped");
	support_drop("near");
}

/* The steps that the base has taken since: after the daemon has been started again, one more. */
static void go_the_way_of_the_base(struct tierd_job *job, const struct model *model, bool is_again)
{
	step(job, model);
	step_some(job, model, 1);
	if (is_again)
		step(job, model);
}

/* What it keeps, and the counts of updates, are those of its step, whatever its job has had since. */
static void a_copy_of_a_snapshot_with_its_optimizer_goes_its_way(struct tierd_node *node, bool is_again)
{
	struct tierd_reader *from = reader_of(node, BASE, NULL);
	struct model model = regrouped();

	for (unsigned i = 0; i < 3; i++) {
		struct tierd_job_options options =
			options_for("thawed", 0, 1, i == 2 ? in_host_memory : NULL);
		struct tierd_reader *reader;
		struct tierd_job *job;

		of_snapshot(&options);
		options.with_optimizer = true;
		job = join(node, &options, i == 0 ? &base : &model);
		OK(tierd_job_ready(job, -1, NULL));
		go_the_way_of_the_base(job, i == 0 ? &base : &model, is_again);
		OK(tierd_job_close(job));
		reader = reader_of(node, "thawed", NULL);
		require_equal(reader, from);
		OK(tierd_reader_close(reader));
		support_drop("thawed");
	}
	OK(tierd_reader_close(from));
}

/* Then all units had had as many updates; since, one has had more. */
static void units_may_be_joined_that_were_even_in_the_snapshot(struct tierd_node *node)
{
	struct model model = base;

	for (unsigned i = 0; i < model.count; i++)
		model.kinds[i].unit = "all";
	for (unsigned i = 0; i < 2; i++) {
		struct tierd_job_options options = options_for("joined", 0, 1, i == 0 ? of_snapshot : NULL);
		struct tierd_job *job;

		options.with_optimizer = true;
		job = join(node, &options, &model);
		if (i == 0)
			OK(tierd_job_ready(job, -1, NULL));
		else
			FAILS(tierd_job_ready(job, -1, NULL), -EINVAL,
			      "unit \"all\" takes tensors that have had");
		OK(tierd_job_close(job));
		if (i == 0)
			support_drop("joined");
	}
}

/* A daemon that finds it believes that it has had more updates than steps. */
static void what_it_has_taken_stays(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("kept", 0, 1);

	options.mode = TIERD_RESUME;
	options.seed = 99;
	train_on(node, &options, &base);
	support_drop("kept");
}

/* ---- Refusals ---- */

static const struct kind more = { "more", "more", TIERD_BF16, 1, { 600 },
				  false,  NULL,	  0,	      0, TIERD_INITIALIZE_ONES };

static void not_opened(struct tierd_node *node, const char *source, int error, const char *text)
{
	struct tierd_job_options options = options_for("refused", 0, 1, NULL);
	struct tierd_job *job = NULL;

	options.source = source;
	FAILS(tierd_job_open(node, &options, &job), error, text);
	REQUIRE(!job);
}

static void not_ready(struct tierd_node *node, const struct kind *kind, change *set, int error,
		      const char *text)
{
	struct model model = { 2, { base.kinds[1], *kind } };
	struct tierd_job_options options = options_for("refused", 0, 1, set);
	struct tierd_job *job = join(node, &options, &model);

	FAILS(tierd_job_ready(job, -1, NULL), error, text);
	OK(tierd_job_close(job));
}

static void names_that_are_none_are_refused(struct tierd_node *node)
{
	not_opened(node, "nobody", -ENOENT, "there is no job nobody to take values from");
	not_opened(node, "refused", -EINVAL, "source refused is the job itself");
	not_opened(node, BASE "@monday", -ENOENT, "job base has no snapshot monday; it has " EARLY);
	not_opened(node, "nobody@" EARLY, -ENOENT, "there is no job nobody to take values from");
	not_opened(node, "refused@" EARLY, -EINVAL, "source refused@" EARLY " is the job itself");
	not_opened(node, BASE "@", -EINVAL, "source \"base@\" is no name of a job, or JOB@SNAPSHOT");
	not_opened(node, BASE "@" EARLY "@" EARLY, -EINVAL, "is no name of a job, or JOB@SNAPSHOT");
	not_opened(node, "No Job", -EINVAL, "source \"No Job\" is no name of a job");
}

static void tensors_that_do_not_match_are_named(struct tierd_node *node)
{
	struct kind wrong = base.kinds[2], bytes = base.kinds[1], slice = base.kinds[5];

	not_ready(node, &more, NULL, -ENODATA, "1 tensor has no source in job base: \"more\"");
	wrong.shape[1] = 8;
	not_ready(node, &wrong, NULL, -EINVAL,
		  "tensor \"full\": it has shape [33, 8] here, and [33, 7] in job base");
	wrong.dimensions = 1;
	not_ready(node, &wrong, partly, -EINVAL, "it has shape [33] here, and [33, 7] in job base");
	bytes.unit = "bytes";
	bytes.name = "frost";
	bytes.shape[0] = 77;
	bytes.format = TIERD_BYTES;
	bytes.is_frozen = true;
	bytes.initializer = TIERD_INITIALIZE_NONE;
	not_ready(node, &bytes, NULL, -EINVAL, "tensor \"frost\" holds bytes here, and numbers in job base");
	slice.rows = 400;
	not_ready(node, &slice, NULL, -EINVAL,
		  "what it is a slice of has shape [400, 64] here, and [300, 64]");
}

static void with_optimizer(struct tierd_job_options *options)
{
	options->with_optimizer = true;
}

static void with_lion(struct tierd_job_options *options)
{
	options->with_optimizer = true;
	options->optimizer = TIERD_LION;
}

static void optimizers_that_do_not_match_are_refused(struct tierd_node *node)
{
	struct kind ice = base.kinds[8], embed = base.kinds[0];

	not_ready(node, &base.kinds[2], with_lion, -EINVAL,
		  "optimizer is lion with 1 slots here, adamw with 2");
	ice.is_frozen = false;
	not_ready(node, &ice, with_optimizer, -EINVAL,
		  "tensor \"ice\" is trained here, and frozen in job base");
	embed.unit = "layer";
	not_ready(node, &embed, with_optimizer, -EINVAL, "unit \"layer\" takes tensors that have had");
}

static void with_partial_the_rest_is_initialized(struct tierd_node *node)
{
	struct model model = { 2, { base.kinds[11], more } };
	struct tierd_job_options options = options_for("partial", 0, 1, partly);
	struct tierd_job *job = join(node, &options, &model);
	struct kind nothing = more;
	float values[600];

	OK(tierd_job_ready(job, -1, NULL));
	OK(tierd_tensor_read(job, 1, 0, "master", 0, 600, values));
	for (unsigned i = 0; i < 600; i++)
		REQUIRE(values[i] == 1);
	OK(tierd_job_close(job));
	model.count = 1;
	require_values(node, "partial", NULL, &model);
	support_drop("partial");
	nothing.initializer = TIERD_INITIALIZE_NONE;
	not_ready(node, &nothing, partly, -ENODATA, "1 tensor has no values and no initializer: \"more\"");
}

static void ranks_have_to_agree(struct tierd_node *node)
{
	struct tierd_job_options options = options_for("agreed", 0, 2, NULL);
	struct tierd_job *job, *second = NULL;

	OK(tierd_job_open(node, &options, &job));
	options.rank = 1;
	options.partial = true;
	FAILS(tierd_job_open(node, &options, &second), -EINVAL, "partial is 1 here, 0 in the job");
	options.partial = false;
	options.source = NULL;
	FAILS(tierd_job_open(node, &options, &second), -EINVAL, "source is \"\" here, \"base\" in the job");
	OK(tierd_job_close(job));
}

/* Its source has none, and then ends; what it takes next is what the user wants. */
static void a_source_without_values_is_refused_until_it_has_some(struct tierd_node *node)
{
	struct model model = { 1, { base.kinds[1] } };
	struct tierd_job_options options = support_options("young", 0, 1);
	struct tierd_job *young = join(node, &options, &model), *job;

	options = options_for("late", 0, 1, NULL);
	options.source = "young";
	job = join(node, &options, &model);
	FAILS(tierd_job_ready(job, -1, NULL), -EBUSY, "job young has no values yet to take");
	OK(tierd_job_ready(young, -1, NULL));
	step(young, &model);
	OK(tierd_job_close(young));
	OK(tierd_job_ready(job, -1, NULL));
	/* It has a state: what it says of a source means nothing any more. */
	support_drop("young");
	OK(tierd_job_close(job));
	OK(tierd_job_open(node, &options, &job));
	define_unit(job, &model, 0);
	OK(tierd_job_ready(job, -1, NULL));
	OK(tierd_job_close(job));
	support_drop("late");
}

int main(int argc, char **argv)
{
	struct tierd_node *node = support_connect();

	/* With an argument it is there already, and so is one that has taken its values. */
	if (argc == 1)
		make_base(node);
	else
		what_it_has_taken_stays(node);
	any_kind_of_job_takes_values(node);
	a_snapshot_gives_what_it_has_kept(node);
	it_trains_as_one_whose_masters_were_written(node);
	names_that_are_none_are_refused(node);
	tensors_that_do_not_match_are_named(node);
	optimizers_that_do_not_match_are_refused(node);
	a_copy_of_a_snapshot_with_its_optimizer_goes_its_way(node, argc > 1);
	units_may_be_joined_that_were_even_in_the_snapshot(node);
	with_partial_the_rest_is_initialized(node);
	ranks_have_to_agree(node);
	a_source_without_values_is_refused_until_it_has_some(node);
	a_copy_with_its_optimizer_goes_on_as_its_source(node);
	tierd_disconnect(node);
	return 0;
}
