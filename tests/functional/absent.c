/* Tensors that have no gradient in a step (tierd_push_with): every bit is that of a job of the same tensors
 * of which each is a unit of its own, and is not pushed where it has no gradient.
 *
 *   absent                           all stages, ranks, optimizers and places; what is refused
 *   absent train NAME WHOLE STEPS    a durable job of one rank, to that step; WHOLE is 1 where the tensors
 * are in one unit absent bits NAME WHOLE FILE      writes all that it keeps to FILE */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/float16.h"
#include "crash_support.h"
#include "model_values.h"

#define TENSORS 5
#define FROZEN 2
#define LARGEST 80000
#define STEPS 7
#define RANKS 2
#define MICRO_BATCHES 2
#define SKIPPED 3 /* the step in which a gradient is not finite */
#define DROPPED 5

/* The last one is a unit of its own in either job. */
static const struct kind tensors[TENSORS] = {
	{ "whole", "a", TIERD_BF16, 1, { 3000 }, .gradient_format = TIERD_FP32 },
	{ "whole", "b", TIERD_FP32, 1, { LARGEST }, .group = 1, .gradient_format = TIERD_FP32 },
	{ "whole", "frozen", TIERD_FP32, 1, { 500 }, .is_frozen = true, .gradient_format = TIERD_FP32 },
	{ "whole", "c", TIERD_FP16, 1, { 1000 }, .group = 2, .gradient_format = TIERD_FP16 },
	{ "d", "d", TIERD_BF16, 1, { 5000 }, .gradient_format = TIERD_BF16 },
};

struct setting {
	const char *name;
	uint32_t world_size, stage, optimizer;
	uint32_t parameters, moments;
	bool is_announced, is_pushed_once;
	float clip_norm;
};

/* The same state as seen by all of its ranks, which are of this process. */
struct training {
	const struct setting *setting;
	bool is_whole; /* all tensors but the last in one unit */
	struct model model;
	struct ranks ranks;
	uint64_t step;
};

/* ---- What has a gradient ---- */

static bool chance(uint64_t seed)
{
	support_random(&seed);
	return support_random(&seed) >> 62 & 1;
}

static unsigned micro_batches(const struct setting *setting)
{
	return setting->is_pushed_once ? 1 : MICRO_BATCHES;
}

/* In about half of the steps nobody has one. */
static bool is_present(uint64_t step, unsigned batch, uint32_t rank, unsigned tensor)
{
	return tensor != FROZEN && chance(step * TENSORS + tensor) &&
	       chance(((step * MICRO_BATCHES + batch) * RANKS + rank) * TENSORS + tensor + 1000);
}

static bool is_in_step(const struct setting *setting, uint64_t step, unsigned tensor)
{
	for (unsigned batch = 0; batch < micro_batches(setting); batch++)
		for (uint32_t rank = 0; rank < setting->world_size; rank++)
			if (is_present(step, batch, rank, tensor))
				return true;
	return false;
}

/* Few bits, so that no sum depends on its order. */
static float gradient(uint64_t step, unsigned batch, uint32_t rank, unsigned tensor, uint64_t at)
{
	uint64_t seed = ((step * MICRO_BATCHES + batch) * RANKS + rank) * TENSORS + tensor;

	seed = seed * LARGEST + at;
	if (step == SKIPPED && at == 7)
		return INFINITY;
	return ((float)(support_random(&seed) >> 60) - 8) * 0.125f;
}

static void put(void *values, uint32_t format, uint64_t at, float value)
{
	uint16_t half = float16_from_float(value);

	if (format == TIERD_FP16)
		memcpy((char *)values + 2 * at, &half, 2);
	else
		support_put(values, format, at, value);
}

/* ---- A job ---- */

static void open_rank(struct training *training, uint32_t rank, const char *name, const char *source)
{
	static const uint32_t formats[] = { TIERD_MOMENTS_FP32, TIERD_MOMENTS_INT8, TIERD_MOMENTS_BF16 };
	const struct setting *setting = training->setting;
	struct tierd_job_options options = support_options(name, rank, setting->world_size);
	struct tierd_group groups[3];

	for (unsigned i = 0; i < 3; i++) {
		groups[i] = (struct tierd_group)TIERD_GROUP_INIT;
		groups[i].momentum = 0.9f;
		groups[i].weight_decay = 0.25f * (float)i;
		groups[i].moments = setting->moments ? formats[i] : TIERD_MOMENTS_FP32;
	}
	options.stage = setting->stage;
	options.optimizer = setting->optimizer;
	options.groups = groups;
	options.group_count = 3;
	options.parameter_placement = setting->stage == 3 ? setting->parameters : TIERD_PLACE_HOST;
	options.optimizer_placement = setting->parameters;
	options.clip_norm = setting->clip_norm;
	options.pushed_once = setting->is_pushed_once;
	options.gradient_buffers = 2 * TENSORS;
	options.snapshots = setting->parameters == TIERD_PLACE_NVME ? 1 : 0;
	options.source = source;
	options.with_optimizer = source != NULL;
	training->ranks.nodes[rank] = support_connect();
	OK(tierd_job_open(training->ranks.nodes[rank], &options, &training->ranks.jobs[rank]));
}

static struct model model_of(bool is_whole, bool has_source)
{
	struct model model = { .count = TENSORS };

	memcpy(model.kinds, tensors, sizeof(tensors));
	for (unsigned i = 0; i < TENSORS; i++) {
		if (!is_whole)
			model.kinds[i].unit = tensors[i].name;
		model.kinds[i].initializer = has_source ? TIERD_INITIALIZE_NONE : TIERD_INITIALIZE_NORMAL;
	}
	return model;
}

static void begin(struct training *training, const struct setting *setting, bool is_whole, const char *name,
		  const char *source)
{
	struct tierd_job_state state;

	*training = (struct training){ .setting = setting, .is_whole = is_whole };
	training->model = model_of(is_whole, source != NULL);
	training->ranks.count = setting->world_size;
	for (uint32_t rank = 0; rank < setting->world_size; rank++) {
		open_rank(training, rank, name, source);
		model_define(training->ranks.jobs[rank], &training->model);
	}
	support_ready(training->ranks.jobs, setting->world_size, 0, NULL);
	OK(tierd_job_state(training->ranks.jobs[0], &state));
	training->step = state.step;
}

static struct place place_of(const struct training *training, unsigned tensor)
{
	return model_place(&training->model, tensor);
}

/* ---- A step ---- */

/* Of tensors that have none the caller leaves anything there. */
static void fill(const struct training *training, const struct tierd_view *view, unsigned batch,
		 uint32_t rank, unsigned tensor)
{
	bool is_there = is_present(training->step, batch, rank, tensor);

	for (uint64_t at = 0; tensor != FROZEN && at < tensors[tensor].shape[0]; at++)
		put(tierd_at(view, place_of(training, tensor).tensor), tensors[tensor].gradient_format, at,
		    is_there ? gradient(training->step, batch, rank, tensor, at) : NAN);
}

static void push(const struct training *training, unsigned batch, uint32_t rank, unsigned first, unsigned end)
{
	struct tierd_job *job = training->ranks.jobs[rank];
	uint32_t unit = place_of(training, first).unit;
	bool absent[TENSORS] = { 0 }, has_some = false;
	struct tierd_view view;

	for (unsigned tensor = first; tensor < end; tensor++) {
		absent[tensor] = !is_present(training->step, batch, rank, tensor);
		has_some |= !absent[tensor];
	}
	/* A push of nothing is as good as none. */
	if (!has_some && (training->step + rank) % 2 == 0)
		return;
	OK(tierd_gradients_with(job, unit, TIERD_GRADIENTS_OVERWRITE, &view));
	for (unsigned tensor = first; tensor < end; tensor++)
		fill(training, &view, batch, rank, tensor);
	OK(tierd_push_with(job, unit, absent + first, end - first, NULL));
}

static void push_alone(const struct training *training, unsigned batch, uint32_t rank, unsigned tensor)
{
	uint32_t unit = place_of(training, tensor).unit;
	struct tierd_view view;

	if (!is_present(training->step, batch, rank, tensor))
		return;
	OK(tierd_gradients(training->ranks.jobs[rank], unit, &view));
	fill(training, &view, batch, rank, tensor);
	OK(tierd_push(training->ranks.jobs[rank], unit));
}

static void push_all(const struct training *training, unsigned batch, uint32_t rank)
{
	if (training->is_whole) {
		push(training, batch, rank, 0, TENSORS - 1);
		push(training, batch, rank, TENSORS - 1, TENSORS);
		return;
	}
	for (unsigned tensor = 0; tensor < TENSORS; tensor++)
		push_alone(training, batch, rank, tensor);
}

/* Owners, with the optimizer none: their masters are what they were, less the gradients. */
static void write_shard(const struct training *training, struct tierd_job *job, unsigned tensor)
{
	static float masters[LARGEST], gradients[LARGEST];
	struct place at = place_of(training, tensor);
	uint32_t unit = at.unit, place = at.tensor;
	uint64_t first, count;

	OK(tierd_tensor_shard(job, unit, place, &first, &count));
	if (count == 0)
		return;
	OK(tierd_tensor_read(job, unit, place, "master", first, count, masters));
	if (!is_in_step(training->setting, training->step, tensor)) {
		FAILS(tierd_tensor_read(job, unit, place, "gradient", first, count, gradients), -ENODATA, "");
		FAILS(tierd_tensor_write(job, unit, place, first, count, masters, true), -ENODATA, "");
		return;
	}
	OK(tierd_tensor_read(job, unit, place, "gradient", first, count, gradients));
	for (uint64_t i = 0; i < count; i++)
		masters[i] -= gradients[i];
	OK(tierd_tensor_write(job, unit, place, first, count, masters, true));
}

static void finish(const struct training *training, struct tierd_ticket **tickets)
{
	struct tierd_step_result result;

	for (uint32_t rank = 0; rank < training->setting->world_size; rank++) {
		OK(tierd_ticket_wait(tickets[rank], TIERD_REDUCED, -1));
		OK(tierd_ticket_step_result(tickets[rank], &result));
		if (result.is_skipped)
			continue;
		for (unsigned tensor = 0; tensor < TENSORS; tensor++)
			if (tensor != FROZEN)
				write_shard(training, training->ranks.jobs[rank], tensor);
		OK(tierd_step_finish(training->ranks.jobs[rank]));
	}
}

static void take_step(struct training *training)
{
	const struct setting *setting = training->setting;
	struct tierd_rates rates = support_rates(0.01f);
	struct tierd_ticket *tickets[RANKS];

	rates.drop = training->step == DROPPED;
	for (uint32_t rank = 0; rank < setting->world_size && setting->is_announced && !rates.drop; rank++)
		OK(tierd_step_begin(training->ranks.jobs[rank], &rates, micro_batches(setting)));
	for (unsigned batch = 0; batch < micro_batches(setting); batch++)
		for (uint32_t rank = 0; rank < setting->world_size; rank++)
			push_all(training, batch, rank);
	for (uint32_t rank = 0; rank < setting->world_size; rank++)
		OK(tierd_step(training->ranks.jobs[rank], &rates, &tickets[rank]));
	if (setting->optimizer == TIERD_NONE)
		finish(training, tickets);
	for (uint32_t rank = 0; rank < setting->world_size; rank++) {
		OK(tierd_ticket_wait(tickets[rank], TIERD_DONE, -1));
		tierd_ticket_free(tickets[rank]);
	}
	training->step++;
}

static void train(struct training *training, uint64_t to)
{
	while (training->step < to)
		take_step(training);
}

/* ---- Bits ---- */

static void expect_same(const struct training *here, const struct training *there)
{
	values_require_same(here->ranks.jobs[0], &here->model, there->ranks.jobs[0], &there->model,
			    here->setting->name);
}

/* ---- What is played ---- */

static void compare(const struct setting *setting)
{
	struct training whole, apart;

	begin(&whole, setting, true, "whole", NULL);
	begin(&apart, setting, false, "apart", NULL);
	while (whole.step < STEPS) {
		take_step(&whole);
		take_step(&apart);
		expect_same(&whole, &apart);
	}
	ranks_close(&whole.ranks);
	ranks_close(&apart.ranks);
	support_drop("whole");
	support_drop("apart");
}

/* A tensor takes its own number of updates along, into whatever unit. */
static void a_copy_goes_on_as_its_source(const struct setting *setting, const char *source)
{
	struct training whole, copy, again;

	begin(&whole, setting, true, "whole", NULL);
	train(&whole, 2);
	if (strchr(source, '@')) {
		OK(tierd_snapshot(whole.ranks.jobs[0], "early"));
		train(&whole, 3);
	}
	begin(&copy, setting, false, "copy", source);
	copy.step = 2;
	train(&copy, 3);
	train(&whole, 3);
	expect_same(&whole, &copy);
	begin(&again, setting, true, "again", "copy");
	again.step = 3;
	train(&again, 5);
	train(&whole, 5);
	expect_same(&whole, &again);
	ranks_close(&again.ranks);
	ranks_close(&copy.ranks);
	ranks_close(&whole.ranks);
	support_drop("again");
	support_drop("copy");
	support_drop("whole");
}

static struct tierd_job *open_sliced(struct tierd_node *node, const char *name, const char *source,
				     unsigned parts)
{
	struct tierd_job_options options = support_options(name, 0, 1);
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	static const char *const names[] = { "upper", "lower" };
	struct tierd_job *job;

	options.source = source;
	options.with_optimizer = source != NULL;
	OK(tierd_job_open(node, &options, &job));
	tensor.dimensions = 2;
	tensor.shape[0] = 8 / parts;
	tensor.shape[1] = 100;
	tensor.initializer = source ? TIERD_INITIALIZE_NONE : TIERD_INITIALIZE_ONES;
	for (unsigned i = 0; i < parts; i++) {
		tensor.name = parts > 1 ? names[i] : "rows";
		tensor.slice_of = parts > 1 ? "rows" : NULL;
		tensor.slice_rows = 8;
		tensor.slice_row = 4 * i;
		OK(tierd_unit_define(job, tensor.name, &tensor, 1, NULL));
	}
	return job;
}

/* A tensor has one number of updates. */
static void parts_that_are_uneven_make_no_tensor(void)
{
	struct tierd_node *node = support_connect();
	struct tierd_job *from = open_sliced(node, "from", NULL, 2), *to;
	struct tierd_rates rates = support_rates(0.5f);

	OK(tierd_job_ready(from, -1, NULL));
	OK(support_push(from, 1, 0, 0));
	OK(tierd_step(from, &rates, NULL));
	to = open_sliced(node, "to", "from", 1);
	FAILS(tierd_job_ready(to, -1, NULL), -EINVAL,
	      "tensor \"rows\" takes parts that have had 0 updates in job from, and others that have had 1");
	OK(tierd_job_close(to));
	OK(tierd_job_close(from));
	tierd_disconnect(node);
	support_drop("from");
}

static void what_is_wrong_is_refused(void)
{
	static const struct setting setting = { "refused", 1,	  3, TIERD_ADAMW, TIERD_PLACE_HOST, 0,
						false,	   false, 0 };
	struct tierd_rates rates = support_rates(1);
	struct tierd_step_result result;
	struct tierd_ticket *ticket;
	struct training training;
	bool absent[TENSORS] = { true, true, false, true };
	struct tierd_view view;

	begin(&training, &setting, true, "refused", NULL);
	struct tierd_job *job = training.ranks.jobs[0];

	FAILS(tierd_push_with(job, 0, absent, TENSORS - 1, NULL), -EINVAL, "call tierd_gradients first");
	OK(tierd_gradients(job, 0, &view));
	FAILS(tierd_push_with(job, 0, absent, TENSORS, NULL), -EINVAL,
	      "unit \"whole\" has 4 tensors, and 5 flags say which have no gradient");
	FAILS(tierd_push_with(job, 0, absent, 0, NULL), -EINVAL, "0 flags");
	OK(tierd_push_with(job, 0, absent, TENSORS - 1, &ticket));
	OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
	tierd_ticket_free(ticket);
	OK(tierd_step(job, &rates, &ticket));
	OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
	OK(tierd_ticket_step_result(ticket, &result));
	REQUIRE(result.gradient_norm == 0 && !result.is_skipped);
	tierd_ticket_free(ticket);
	ranks_close(&training.ranks);
	support_drop("refused");
}

static const struct setting durable = { "durable", 1, 3, TIERD_ADAMW, TIERD_PLACE_NVME, 1, true, false, 0 };

static void play_all(void)
{
	static const struct setting settings[] = {
		{ "adamw", 1, 3, TIERD_ADAMW, TIERD_PLACE_HOST, 0, false, false, 0 },
		{ "int8", 2, 0, TIERD_ADAMW, TIERD_PLACE_HOST, 1, false, false, 0 },
		{ "clipped", 2, 1, TIERD_ADAM, TIERD_PLACE_HOST, 0, false, false, 8 },
		{ "sgd", 2, 2, TIERD_SGD, TIERD_PLACE_HOST, 0, false, false, 0 },
		{ "lion", 2, 3, TIERD_LION, TIERD_PLACE_NVME, 1, false, false, 0 },
		{ "early", 1, 3, TIERD_ADAMW, TIERD_PLACE_NVME, 1, true, false, 0 },
		{ "early", 2, 2, TIERD_ADAMW, TIERD_PLACE_NVME, 0, true, false, 0 },
		{ "once", 1, 3, TIERD_ADAMW, TIERD_PLACE_NVME, 0, true, true, 0 },
		{ "none", 2, 2, TIERD_NONE, TIERD_PLACE_HOST, 0, false, false, 0 },
		{ "none", 1, 3, TIERD_NONE, TIERD_PLACE_NVME, 0, false, false, 0 },
	};

	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		compare(&settings[i]);
	a_copy_goes_on_as_its_source(&settings[0], "whole");
	a_copy_goes_on_as_its_source(&settings[5], "whole@early");
	parts_that_are_uneven_make_no_tensor();
	what_is_wrong_is_refused();
}

int main(int argc, char **argv)
{
	struct training training;

	if (argc < 5) {
		play_all();
		return 0;
	}
	begin(&training, &durable, atoi(argv[3]), argv[2], NULL);
	if (strcmp(argv[1], "train") == 0)
		train(&training, (uint64_t)atoi(argv[4]));
	else
		values_write(training.ranks.jobs[0], &training.model, argv[4]);
	ranks_close(&training.ranks);
	return 0;
}
