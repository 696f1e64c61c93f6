/* Jobs that take their first values from another one: of any format, grouping, number of ranks and placement,
 * the same bits; and those that cannot. */
#include <errno.h>
#include <string.h>

#include "crash_support.h"
#include "model_values.h"

#define BASE "base"
#define EARLY "early" /* a snapshot of it, of a step before its last one */
#define RANKS 3

/* The same values in other units and formats, some under the other of their names, and slices cut elsewhere.
 */
static const struct model other = {
	10,
	{
		{ "all", "large", TIERD_BF16, 1, { 1200000 }, TIERD_INITIALIZE_NONE },
		{ "all", "head", TIERD_FP32, 2, { 701, 431 }, TIERD_INITIALIZE_ONES },
		{ "all", "upper", TIERD_FP32, 2, { 150, 64 }, TIERD_INITIALIZE_NONE, false, 0, 300 },
		{ "all", "half", TIERD_BF16, 1, { 1203 }, TIERD_INITIALIZE_NONE },
		{ "rest", "lower", TIERD_FP16, 2, { 150, 64 }, TIERD_INITIALIZE_NONE, false, 150, 300 },
		{ "rest", "full", TIERD_FP16, 2, { 33, 7 }, TIERD_INITIALIZE_NONE },
		{ "rest", "scale", TIERD_BF16, 0, { 0 }, TIERD_INITIALIZE_NONE, .alias = "unheard" },
		{ "rest", "frost", TIERD_FP32, 1, { 77 }, TIERD_INITIALIZE_NONE, true },
		{ "rest", "ice", TIERD_FP32, 1, { 3001 }, TIERD_INITIALIZE_NONE },
		{ "codes", "codes", TIERD_BYTES, 1, { 70001 }, TIERD_INITIALIZE_NONE, true },
	},
};

typedef void change(struct tierd_job_options *options);

/* ---- Jobs ---- */

static struct tierd_job *join(struct tierd_node *node, struct tierd_job_options *options,
			      const struct model *model)
{
	struct tierd_job *job;

	OK(tierd_job_open(node, options, &job));
	model_define(job, model);
	return job;
}

/* ---- Steps ---- */

/* How many of its units are pushed. */
static void step_some(struct tierd_job *job, const struct model *model, unsigned units)
{
	struct tierd_rates rates = support_rates(0.01f);

	model_push(job, model, units, 0);
	OK(tierd_step(job, &rates, NULL));
}

static void step(struct tierd_job *job, const struct model *model)
{
	step_some(job, model, UINT32_MAX);
}

static void require_values(struct tierd_node *node, const char *name, const char *snapshot,
			   const struct model *model)
{
	struct tierd_reader *here = values_reader(node, name, NULL),
			    *there = values_reader(node, BASE, snapshot);

	values_require(here, there, model);
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
	struct tierd_job *job = join(node, &options, &model_base);

	model_write_codes(job, &model_base);
	OK(tierd_job_ready(job, -1, NULL));
	for (unsigned i = 0; i < 3; i++) {
		step(job, &model_base);
		if (i == 1)
			OK(tierd_snapshot(job, EARLY));
	}
	/* The first unit has had one update more than the others. */
	step_some(job, &model_base, 1);
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
	takes(node, "same", &model_base, 1, NULL);
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

	takes_of(node, "early", EARLY, &model_base, 1, of_snapshot);
	job = join(node, &options, &model_base);
	OK(tierd_job_ready(job, -1, NULL));
	takes_of(node, "early", EARLY, &other, RANKS, of_snapshot);
	takes_of(node, "early", EARLY, &other, 2, of_snapshot_in_host_memory);
	OK(tierd_job_close(job));
}

static void it_trains_as_one_whose_masters_were_written(struct tierd_node *node)
{
	static const struct model one = {
		1, { { "large", "large", TIERD_BF16, 1, { 1200000 }, TIERD_INITIALIZE_NONE } }
	};
	struct tierd_reader *from = values_reader(node, BASE, NULL), *readers[2];
	float *masters = values_read_masters(from, &one.kinds[0]), *results[2];

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
		readers[i] = values_reader(node, name, NULL);
		results[i] = values_read_masters(readers[i], &one.kinds[0]);
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
	struct model model = model_base;

	for (unsigned i = 1; i < model.count; i++)
		model.kinds[i].unit = "rest";
	return model;
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
	struct tierd_reader *from = values_reader(node, BASE, NULL), *reader;
	struct model model = regrouped();

	for (unsigned i = 0; i < 3; i++) {
		struct tierd_job_options options =
			options_for(names[i], 0, 1, i == 2 ? in_host_memory : NULL);

		options.with_optimizer = true;
		train_on(node, &options, i == 0 ? &model_base : &model);
	}
	struct tierd_job_options options = base_options();

	train_on(node, &options, &model_base);
	OK(tierd_reader_refresh(from, NULL, 0, NULL));
	for (unsigned i = 0; i < 3; i++) {
		reader = values_reader(node, names[i], NULL);
		values_require_state(reader, from);
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
	struct tierd_reader *from = values_reader(node, BASE, NULL);
	struct model model = regrouped();

	for (unsigned i = 0; i < 3; i++) {
		struct tierd_job_options options =
			options_for("thawed", 0, 1, i == 2 ? in_host_memory : NULL);
		struct tierd_reader *reader;
		struct tierd_job *job;

		of_snapshot(&options);
		options.with_optimizer = true;
		job = join(node, &options, i == 0 ? &model_base : &model);
		OK(tierd_job_ready(job, -1, NULL));
		go_the_way_of_the_base(job, i == 0 ? &model_base : &model, is_again);
		OK(tierd_job_close(job));
		reader = values_reader(node, "thawed", NULL);
		values_require_state(reader, from);
		OK(tierd_reader_close(reader));
		support_drop("thawed");
	}
	OK(tierd_reader_close(from));
}

/* In the snapshot all had had as many updates; since, one has had more. */
static void all_units_may_be_joined(struct tierd_node *node)
{
	struct model model = model_base;

	for (unsigned i = 0; i < model.count; i++)
		model.kinds[i].unit = "all";
	for (unsigned i = 0; i < 2; i++) {
		struct tierd_job_options options = options_for("joined", 0, 1, i == 0 ? of_snapshot : NULL);
		struct tierd_job *job;

		options.with_optimizer = true;
		job = join(node, &options, &model);
		OK(tierd_job_ready(job, -1, NULL));
		OK(tierd_job_close(job));
		support_drop("joined");
	}
}

/* A daemon that finds it believes that it has had more updates than steps. */
static void what_it_has_taken_stays(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("kept", 0, 1);

	options.mode = TIERD_RESUME;
	options.seed = 99;
	train_on(node, &options, &model_base);
	support_drop("kept");
}

/* ---- Refusals ---- */

static const struct kind more = { "more", "more", TIERD_BF16, 1, { 600 }, TIERD_INITIALIZE_ONES };

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
	struct model model = { 2, { model_base.kinds[1], *kind } };
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
	struct kind wrong = model_base.kinds[2], bytes = model_base.kinds[1], slice = model_base.kinds[6];

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
	struct kind ice = model_base.kinds[9];

	not_ready(node, &model_base.kinds[2], with_lion, -EINVAL,
		  "optimizer is lion with 1 slots here, adamw with 2");
	ice.is_frozen = false;
	not_ready(node, &ice, with_optimizer, -EINVAL,
		  "tensor \"ice\" is trained here, and frozen in job base");
}

static void with_partial_the_rest_is_initialized(struct tierd_node *node)
{
	struct model model = { 2, { model_base.kinds[12], more } };
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

/* Although a unit that takes what was kept lies before it. */
static void what_is_initialized_has_nothing_kept(struct tierd_node *node)
{
	static const char *const slots[] = { "m", "v" };
	struct model model = { 2, { model_base.kinds[0], more } };
	struct tierd_job_options options = options_for("anew", 0, 1, partly);
	float values[600], first;
	struct tierd_job *job;

	options.with_optimizer = true;
	job = join(node, &options, &model);
	OK(tierd_job_ready(job, -1, NULL));
	for (unsigned slot = 0; slot < 2; slot++) {
		OK(tierd_tensor_read(job, 0, 0, slots[slot], kind_elements(&model.kinds[0]) - 1, 1, &first));
		REQUIRE(first != 0);
		OK(tierd_tensor_read(job, 1, 0, slots[slot], 0, 600, values));
		for (unsigned i = 0; i < 600; i++)
			REQUIRE(values[i] == 0);
	}
	OK(tierd_job_close(job));
	support_drop("anew");
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
	struct model model = { 1, { model_base.kinds[1] } };
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
	model_define(job, &model);
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
	all_units_may_be_joined(node);
	with_partial_the_rest_is_initialized(node);
	what_is_initialized_has_nothing_kept(node);
	ranks_have_to_agree(node);
	a_source_without_values_is_refused_until_it_has_some(node);
	a_copy_with_its_optimizer_goes_on_as_its_source(node);
	tierd_disconnect(node);
	return 0;
}
