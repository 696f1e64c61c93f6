/* Tensors that move to other parameter groups between steps (tierd_groups_set): every bit is that of a job in
 * which each tensor has a group of its own, whose rates are in each step those of the group that it is in
 * here.
 *
 *   groups                    all stages, ranks, optimizers and places
 *   groups train NAME STEPS   a durable job of one rank, to that step; on its way it has the groups that it
 * had groups bits NAME FILE     writes all that it keeps to FILE */
#include <math.h>
#include <string.h>

#include "crash_support.h"
#include "model_values.h"

#define TENSORS 5
#define FIRST 3 /* so many are in the first unit */
#define FROZEN 1
#define LARGEST 80000
#define GROUPS 3
#define STEPS 6
#define RANKS 2
#define SKIPPED 3 /* the step in which a gradient is not finite */

static const struct model tensors = {
	TENSORS,
	{
		{ "first", "a", TIERD_BF16, 1, { 3000 }, TIERD_INITIALIZE_NORMAL },
		{ "first", "frozen", TIERD_FP32, 1, { 500 }, TIERD_INITIALIZE_NORMAL, .is_frozen = true },
		{ "first", "b", TIERD_FP32, 1, { LARGEST }, TIERD_INITIALIZE_NORMAL },
		{ "second", "c", TIERD_FP32, 1, { 1000 }, TIERD_INITIALIZE_NORMAL },
		{ "second", "d", TIERD_BF16, 1, { 5000 }, TIERD_INITIALIZE_NORMAL },
	},
};

struct setting {
	const char *name;
	uint32_t world_size, stage, optimizer, place, moments;
	bool is_announced;
};

/* The same state as seen by all of its ranks, which are of this process. */
struct training {
	const struct setting *setting;
	bool moves; /* else each tensor has a group of its own */
	struct ranks ranks;
	uint64_t step;
};

/* In which group a tensor is in a step; 0: as it is defined. About half of them move in each. */
static uint32_t group_in(uint64_t step, unsigned tensor)
{
	uint64_t seed = step / 2 * TENSORS + (step + tensor) / 2 * 31 + tensor;

	return (uint32_t)(support_random(&seed) >> 33) % GROUPS;
}

static struct tierd_group group_of(const struct setting *setting, uint32_t number)
{
	struct tierd_group group = TIERD_GROUP_INIT;

	group.learning_rate = 1 + 0.5f * (float)number;
	group.weight_decay = 0.25f * (float)number;
	group.beta1 = 0.9f - 0.1f * (float)number;
	group.momentum = setting->optimizer == TIERD_SGD ? group.beta1 : 0;
	group.moments = setting->moments;
	return group;
}

/* ---- A job ---- */

/* Of the reference, those of the step. */
static unsigned fill_groups(const struct training *training, uint64_t step,
			    struct tierd_group groups[TENSORS])
{
	unsigned count = training->moves ? GROUPS : TENSORS;

	for (unsigned i = 0; i < count; i++)
		groups[i] = group_of(training->setting, training->moves ? i : group_in(step, i));
	return count;
}

static void open_rank(struct training *training, uint32_t rank, const char *name)
{
	const struct setting *setting = training->setting;
	struct tierd_job_options options = support_options(name, rank, setting->world_size);
	struct tierd_group groups[TENSORS];

	options.stage = setting->stage;
	options.optimizer = setting->optimizer;
	options.group_count = fill_groups(training, 0, groups);
	options.groups = groups;
	options.parameter_placement = setting->stage == 3 ? setting->place : TIERD_PLACE_HOST;
	options.optimizer_placement = setting->place;
	options.gradient_buffers = 4;
	options.snapshots = setting->place == TIERD_PLACE_NVME ? 1 : 0;
	training->ranks.nodes[rank] = support_connect();
	OK(tierd_job_open(training->ranks.nodes[rank], &options, &training->ranks.jobs[rank]));
}

static void define(const struct training *training, struct tierd_job *job)
{
	struct model model = tensors;

	for (unsigned i = 0; i < TENSORS; i++)
		model.kinds[i].group = training->moves ? group_in(0, i) : i;
	model_define(job, &model);
}

static void begin(struct training *training, const struct setting *setting, bool moves, const char *name)
{
	struct tierd_job_state state;

	*training = (struct training){ .setting = setting, .moves = moves };
	training->ranks.count = setting->world_size;
	for (uint32_t rank = 0; rank < setting->world_size; rank++) {
		open_rank(training, rank, name);
		define(training, training->ranks.jobs[rank]);
	}
	support_ready(training->ranks.jobs, setting->world_size, 0, NULL);
	OK(tierd_job_state(training->ranks.jobs[0], &state));
	training->step = state.step;
}

/* ---- Groups ---- */

static void expect_groups(struct tierd_job *job, uint64_t step)
{
	uint32_t groups[TENSORS];

	OK(tierd_groups_get(job, 0, groups, FIRST));
	OK(tierd_groups_get(job, 1, groups + FIRST, TENSORS - FIRST));
	for (unsigned i = 0; i < TENSORS; i++)
		REQUIRE(groups[i] == group_in(step, i));
}

static void move_unit(struct tierd_job *job, uint32_t unit, uint64_t step)
{
	uint32_t groups[TENSORS];

	for (unsigned i = 0; i < TENSORS; i++)
		groups[i] = group_in(step, i);
	OK(tierd_groups_set(job, unit, groups + unit * FIRST, unit == 0 ? FIRST : TENSORS - FIRST));
}

/* A call too many for one rank, which says the same in the end. */
static void move(const struct training *training, uint32_t rank)
{
	struct tierd_job *job = training->ranks.jobs[rank];

	expect_groups(job, training->step);
	if (rank == 1)
		move_unit(job, 1, training->step + 2);
	for (uint32_t unit = 0; unit < 2; unit++)
		move_unit(job, unit, training->step + 1);
	expect_groups(job, training->step + 1);
}

/* ---- A step ---- */

/* Few bits, so that no sum depends on its order. */
static void fill(const struct tierd_view *view, uint64_t step, uint32_t rank, unsigned tensor)
{
	void *values = tierd_at(view, model_place(&tensors, tensor).tensor);
	uint64_t seed = (step * RANKS + rank) * TENSORS + tensor;

	for (uint64_t at = 0; at < tensors.kinds[tensor].shape[0]; at++) {
		float value = ((float)(support_random(&seed) >> 60) - 8) * 0.125f;

		if (step == SKIPPED && at == 7)
			value = INFINITY;
		support_put(values, tensors.kinds[tensor].format, at, value);
	}
}

static void push(const struct training *training, uint32_t rank)
{
	struct tierd_view view;

	for (uint32_t unit = 0; unit < 2; unit++) {
		OK(tierd_gradients(training->ranks.jobs[rank], unit, &view));
		for (unsigned tensor = 0; tensor < TENSORS; tensor++)
			if (model_place(&tensors, tensor).unit == unit && tensor != FROZEN)
				fill(&view, training->step, rank, tensor);
		OK(tierd_push(training->ranks.jobs[rank], unit));
	}
}

static void take_step(struct training *training)
{
	const struct setting *setting = training->setting;
	struct tierd_rates rates = support_rates(0.01f);
	struct tierd_group groups[TENSORS];

	if (!training->moves) {
		rates.group_count = fill_groups(training, training->step + 1, groups);
		rates.groups = groups;
	}
	for (uint32_t rank = 0; rank < setting->world_size && training->moves; rank++)
		move(training, rank);
	for (uint32_t rank = 0; rank < setting->world_size && setting->is_announced; rank++)
		OK(tierd_step_begin(training->ranks.jobs[rank], &rates, 1));
	for (uint32_t rank = 0; rank < setting->world_size; rank++)
		push(training, rank);
	support_step(training->ranks.jobs, setting->world_size, &rates, TIERD_DONE);
	training->step++;
}

static void train(struct training *training, uint64_t to)
{
	while (training->step < to)
		take_step(training);
}

static void compare(const struct setting *setting)
{
	struct training moved, fixed;

	begin(&moved, setting, true, "moved");
	begin(&fixed, setting, false, "fixed");
	train(&moved, STEPS);
	train(&fixed, STEPS);
	values_require_same(moved.ranks.jobs[0], &tensors, fixed.ranks.jobs[0], &tensors, setting->name);
	ranks_close(&moved.ranks);
	ranks_close(&fixed.ranks);
	support_drop("moved");
	support_drop("fixed");
}

static const struct setting durable = { "durable",	    1,	 3, TIERD_ADAMW, TIERD_PLACE_NVME,
					TIERD_MOMENTS_INT8, true };

static void play_all(void)
{
	static const struct setting settings[] = {
		{ "adamw", 1, 3, TIERD_ADAMW, TIERD_PLACE_HOST, TIERD_MOMENTS_FP32, false },
		{ "adam", 2, 0, TIERD_ADAM, TIERD_PLACE_HOST, TIERD_MOMENTS_FP32, false },
		{ "sgd", 2, 2, TIERD_SGD, TIERD_PLACE_HOST, TIERD_MOMENTS_BF16, false },
		{ "lion", 2, 3, TIERD_LION, TIERD_PLACE_NVME, TIERD_MOMENTS_INT8, false },
		{ "early", 1, 3, TIERD_ADAMW, TIERD_PLACE_NVME, TIERD_MOMENTS_FP32, true },
		{ "early", 2, 2, TIERD_ADAMW, TIERD_PLACE_NVME, TIERD_MOMENTS_FP32, true },
	};

	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		compare(&settings[i]);
}

int main(int argc, char **argv)
{
	struct training training;

	if (argc < 4) {
		play_all();
		return 0;
	}
	begin(&training, &durable, true, argv[2]);
	expect_groups(training.ranks.jobs[0], training.step);
	if (strcmp(argv[1], "train") == 0)
		train(&training, (uint64_t)atoi(argv[3]));
	else
		values_write(training.ranks.jobs[0], &tensors, argv[3]);
	ranks_close(&training.ranks);
	return 0;
}
