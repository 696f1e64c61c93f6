/* The record of a job: what one daemon has encoded, another decodes to the same job; and what cannot be of a
 * job is refused. tests/fuzz/record.c damages records. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "daemon/durability/own.h"
#include "daemon/gradients/gradients.h"
#include "daemon/life/life.h"
#include "daemon/life/setup.h"
#include "daemon/model/job.h"
#include "daemon/recovery/record_read.h"
#include "daemon/residency/residency.h"
#include "daemon/resources/own.h"
#include "daemon/update/own.h"
#include "proto/record.pb-c.h"
#include "tests/unit/daemon_support.h"
#include "tests/unit/test.h"

#define LARGE_ELEMENTS (UINT64_C(3) << 19)
#define SMALL_ELEMENTS 1000

static struct scene scene, other;
static struct actor actors[2];
static char message[1024];

/* ---- A job ---- */

static Tierd__Wire__Group groups[2], *group_pointers[2] = { &groups[0], &groups[1] };

/* All options that have a default say something else. */
static Tierd__Wire__JobOpen rich_options(void)
{
	Tierd__Wire__JobOpen open = TIERD__WIRE__JOB_OPEN__INIT;

	for (unsigned i = 0; i < ARRAY_LENGTH(groups); i++) {
		tierd__wire__group__init(&groups[i]);
		groups[i].learning_rate = 0.5f + (float)i;
		groups[i].beta1 = 0.8f;
		groups[i].beta2 = 0.95f;
		groups[i].epsilon = 1e-6f;
		groups[i].weight_decay = 0.1f * (float)i;
		groups[i].momentum = 0.5f;
		groups[i].dampening = 0.0f;
	}
	open.name = (char *)"rich.job-1";
	open.world_size = 1;
	open.stage = 3;
	open.clip_norm = 2.5f;
	open.host_budget = 100 * MIB;
	open.nvme_budget = 200 * MIB;
	open.gradient_buffers = 3;
	open.gradient_bytes = 3 * MIB;
	open.io_weight = 7;
	open.durability = 3;
	open.blob_bytes = 100000;
	open.strict = true;
	open.seed = UINT64_C(0xfedcba9876543210);
	open.sharing = SHARING_TRAIN;
	open.share_group = 4242;
	open.loss_scale = 1024;
	open.loss_scale_interval = 2;
	open.loss_scale_growth = 2;
	open.loss_scale_backoff = 0.5f;
	open.loss_scale_minimum = 1;
	open.groups = group_pointers;
	open.n_groups = ARRAY_LENGTH(groups);
	return open;
}

static int open_as(struct actor *actor, const Tierd__Wire__JobOpen *options, uint32_t rank, uint32_t mode)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobOpen open = *options;
	const Tierd__Wire__Reply *reply;
	int r;

	open.rank = rank;
	open.mode = mode;
	request.body_case = TIERD__WIRE__REQUEST__BODY_JOB_OPEN;
	request.job_open = &open;
	r = actor_ask(actor, &request, &reply);
	if (r == 0)
		actor->job = reply->job_open->job;
	return r;
}

static Tierd__Wire__Tensor tensor_of(const char *name, uint32_t format, uint64_t *shape, size_t dimensions)
{
	Tierd__Wire__Tensor tensor = TIERD__WIRE__TENSOR__INIT;

	tensor.name = (char *)name;
	tensor.format = format;
	tensor.shape = shape;
	tensor.n_shape = dimensions;
	tensor.initializer = INITIALIZE_NORMAL;
	tensor.a = 0.25;
	tensor.b = 0.125;
	return tensor;
}

static void define(struct actor *actor, const char *name, Tierd__Wire__Tensor *tensors, size_t count)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__UnitDefine unit = TIERD__WIRE__UNIT_DEFINE__INIT;
	Tierd__Wire__Tensor *pointers[8];

	for (size_t i = 0; i < count; i++)
		pointers[i] = &tensors[i];
	unit.job = actor->job;
	unit.name = (char *)name;
	unit.tensors = pointers;
	unit.n_tensors = count;
	request.body_case = TIERD__WIRE__REQUEST__BODY_UNIT_DEFINE;
	request.unit_define = &unit;
	assert_int_equal(actor_ask(actor, &request, NULL), 0);
}

/* Tied names, slices, a scalar, an empty one, frozen ones, each format, the first and the last group; small
 * units of one pack, and two that are packs of their own. */
static void define_units(struct actor *actor, uint32_t last_group)
{
	uint64_t small[] = { 10, 100 }, large[] = { LARGE_ELEMENTS }, empty[] = { 0, 5 };
	Tierd__Wire__Tensor first[] = { tensor_of("embed", FORMAT_BF16, small, 2),
					tensor_of("scale", FORMAT_FP32, NULL, 0),
					tensor_of("table", FORMAT_BYTES, small, 1),
					tensor_of("base", FORMAT_FP16, small, 2) };
	Tierd__Wire__Tensor second[] = { tensor_of("half", FORMAT_BF16, small, 2),
					 tensor_of("none", FORMAT_FP16, empty, 2) };
	Tierd__Wire__Tensor third = tensor_of("large", FORMAT_BF16, large, 1);
	Tierd__Wire__Tensor fourth = tensor_of("wide", FORMAT_FP32, large, 1);

	first[0].alias = (char *)"head";
	first[2].is_frozen = first[3].is_frozen = true;
	first[2].initializer = INITIALIZE_NONE;
	first[2].a = first[2].b = 0;
	second[0].slice_of = (char *)"whole";
	second[0].slice_row = 20;
	second[0].slice_rows = 40;
	third.group = last_group;
	third.initializer = INITIALIZE_UNIFORM;
	third.gradient_format = FORMAT_FP32;
	define(actor, "first", first, ARRAY_LENGTH(first));
	define(actor, "second", second, ARRAY_LENGTH(second));
	define(actor, "third", &third, 1);
	define(actor, "fourth", &fourth, 1);
}

static struct job *find(const struct scene *where, const char *name)
{
	return job_find(where->node, geteuid(), name);
}

/* As far as its plan: all ranks are ready, and it has begun. */
static struct job *start(const Tierd__Wire__JobOpen *options, uint32_t mode)
{
	uint32_t ready[ARRAY_LENGTH(actors)];

	for (uint32_t i = 0; i < options->world_size; i++) {
		assert_int_equal(actor_enter(&scene, &actors[i]), 0);
		if (open_as(&actors[i], options, i, mode) < 0)
			fail_msg("%s", actor_message(&actors[i]));
		define_units(&actors[i], options->n_groups > 1 ? (uint32_t)options->n_groups - 1 : 0);
		assert_int_equal(actor_write(&actors[i], 0, 2, 0, 10), 0);
		ready[i] = actor_send_ready(&actors[i], -1);
	}
	for (uint32_t i = 0; i < options->world_size; i++)
		if (actor_finish_ready(&actors[i], ready[i]) < 0)
			fail_msg("%s", actor_message(&actors[i]));
	return find(&scene, options->name);
}

static void step(float learning_rate, float loss_scale, bool with_groups)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__Rates rates = TIERD__WIRE__RATES__INIT;
	Tierd__Wire__Step body = TIERD__WIRE__STEP__INIT;

	rates.learning_rate = learning_rate;
	rates.gradient_scale = 1;
	rates.loss_scale = loss_scale;
	if (with_groups) {
		rates.groups = group_pointers;
		rates.n_groups = ARRAY_LENGTH(groups);
	}
	body.job = actors[0].job;
	body.epoch = actors[0].epoch;
	body.rates = &rates;
	request.body_case = TIERD__WIRE__REQUEST__BODY_STEP;
	request.step = &body;
	assert_int_equal(actor_await(&actors[0], actor_send(&actors[0], &request), 0)->status, 0);
	scene_settle(&scene);
}

static void push(uint32_t unit, uint32_t format, uint64_t elements, float value)
{
	actor_fill(&actors[0], format, elements, value);
	assert_int_equal(actor_await(&actors[0], actor_send_push(&actors[0], unit, 0), 0)->status, 0);
}

/* Without gradients of the tensors whose bits are set. */
static void push_some(uint32_t unit, uint32_t format, uint64_t elements, float value, uint8_t absent)
{
	actors[0].absent = &absent;
	actors[0].absent_bytes = 1;
	push(unit, format, elements, value);
	actors[0].absent = NULL;
}

/* From the coming step on, of the first unit's tensors. */
static int move(uint32_t embed, uint32_t scale)
{
	const uint32_t numbers[] = { embed, scale, 0, 1 };

	return actor_set_groups(&actors[0], 0, numbers, ARRAY_LENGTH(numbers));
}

/* Of one rank. The number decides what is pushed, in which groups, and with what rates; each third step
 * overflows. */
static void train(const struct job *job, unsigned number)
{
	if (job->options.group_count == ARRAY_LENGTH(groups))
		assert_int_equal(move(number % 4 == 0, number == 3), 0);
	groups[0].weight_decay = number < 2 ? 0.0f : 0.01f;
	if (job->options.is_strict) {
		push_some(0, FORMAT_BF16, SMALL_ELEMENTS, 0.5f, number % 2 ? 0 : 2);
		push(1, FORMAT_BF16, SMALL_ELEMENTS, -0.25f);
	}
	push(2, FORMAT_FP32, LARGE_ELEMENTS, number % 3 == 2 ? INFINITY : 1.0f + (float)number);
	if (job->options.is_strict || number % 2)
		push(3, FORMAT_FP32, LARGE_ELEMENTS, 0.001f * (float)(number + 1));
	assert_int_equal(actor_set_blob(&actors[0], "position", 8 + number % 2, 'p'), 0);
	if (number == 1)
		assert_int_equal(actor_set_blob(&actors[0], "random", 1000, 'r'), 0);
	/* Rates without groups are those of the step before. */
	step(0.1f, 0, job->options.group_count > 1 && number == 2);
}

static void leave(uint32_t ranks)
{
	for (uint32_t i = 0; i < ranks; i++)
		actor_die(&actors[i]);
	scene_settle(&scene);
}

/* ---- Its record ---- */

struct record {
	struct record_message definition, progress;
};

static struct record encode(const struct job *job)
{
	uint64_t size = record_definition_bytes(job), most = record_progress_bytes(job);
	void *definition = malloc(size), *progress = malloc(most);

	assert_true(definition && progress);
	assert_int_equal(record_encode_definition(job, definition, size - 1), -EMSGSIZE);
	assert_int_equal(record_encode_definition(job, definition, size), 0);
	return (struct record){ { definition, size }, { progress, record_encode_progress(job, progress) } };
}

static void free_record(struct record *record)
{
	free((void *)record->definition.bytes);
	free((void *)record->progress.bytes);
}

static void expect_same(struct record_message here, struct record_message there)
{
	assert_int_equal(here.size, there.size);
	assert_memory_equal(here.bytes, there.bytes, here.size);
}

/* Of any scene: it has one. */
static const struct path_list paths = { 1, { 0 } };

static int decode(struct scene *where, const struct record *record, struct job **ret_job)
{
	const struct record_source source = { &paths, NULL, record->definition, record->progress };

	message[0] = '\0';
	return record_decode(where->node, &source, ret_job, message, sizeof(message));
}

static struct job *expect_decoded(struct scene *where, const struct record *record)
{
	struct job *job;

	if (decode(where, record, &job) < 0)
		fail_msg("%s", message);
	return job;
}

/* A job of the other scene. */
static void drop(struct job *job)
{
	job_drop(job);
	scene_settle(&other);
}

static void expect_refused(const struct record *record, int status, const char *text)
{
	uint64_t used = budget_host_used(other.node);
	struct job *job;

	assert_int_equal(decode(&other, record, &job), status);
	if (!strstr(message, text))
		fail_msg("\"%s\" does not say \"%s\"", message, text);
	assert_true(queue_is_empty(&other.node->jobs.live));
	assert_int_equal(budget_host_used(other.node), used);
	assert_int_equal(other.node->paths[0].used, 0);
}

/* But for spilled sums: they are placed when the ranks come back. */
static void expect_same_places(const struct job *here, const struct job *there)
{
	assert_int_equal(here->catalog.pack_count, there->catalog.pack_count);
	assert_memory_equal(here->catalog.packs, there->catalog.packs,
			    here->catalog.pack_count * sizeof(*here->catalog.packs));
	for (uint32_t i = 0; i < here->catalog.pack_count; i++)
		assert_memory_equal(&here->location.places[i], &there->location.places[i],
				    offsetof(struct pack_place, accumulator));
	assert_memory_equal(&here->location.streams, &there->location.streams,
			    offsetof(struct job_streams, accumulator));
	assert_int_equal(record_layout(here), record_layout(there));
}

static void expect_same_tensors(const struct job *here, const struct job *there)
{
	assert_int_equal(here->location.record_format, there->location.record_format);
	for (uint32_t u = 0; u < here->catalog.unit_count; u++) {
		const struct unit *unit = &here->catalog.units[u], *other_unit = &there->catalog.units[u];

		assert_int_equal(unit->updates, other_unit->updates);
		for (uint32_t i = 0; i < unit->tensor_count; i++) {
			assert_int_equal(unit->tensors[i].missed, other_unit->tensors[i].missed);
			assert_int_equal(unit->tensors[i].group, other_unit->tensors[i].group);
			assert_int_equal(unit->tensors[i].defined_group,
					 other_unit->tensors[i].defined_group);
		}
	}
}

/* By field: what lies between them is anything. */
static void expect_same_options(const struct job_options *here, const struct job_options *there)
{
#define EXPECT_SAME(field) assert_memory_equal(&here->field, &there->field, sizeof(here->field))
	EXPECT_SAME(world_size);
	EXPECT_SAME(stage);
	EXPECT_SAME(nonfinite);
	EXPECT_SAME(parameter_placement);
	EXPECT_SAME(optimizer_placement);
	EXPECT_SAME(gradient_placement);
	EXPECT_SAME(gradient_buffers);
	EXPECT_SAME(io_weight);
	EXPECT_SAME(durability);
	EXPECT_SAME(optimizer);
	EXPECT_SAME(slot_count);
	EXPECT_SAME(clip_norm);
	EXPECT_SAME(loss_scale);
	EXPECT_SAME(sharing);
	EXPECT_SAME(share_group);
	EXPECT_SAME(host_budget);
	EXPECT_SAME(nvme_budget);
	EXPECT_SAME(gradient_bytes);
	EXPECT_SAME(blob_bytes);
	EXPECT_SAME(seed);
	EXPECT_SAME(snapshots);
	EXPECT_SAME(snapshot_keep);
	EXPECT_SAME(snapshot_every);
	EXPECT_SAME(is_strict);
	EXPECT_SAME(is_pushed_once);
	EXPECT_SAME(group_count);
#undef EXPECT_SAME
	_Static_assert(sizeof(*here) == 160, "a new option has to come back, too");
	assert_memory_equal(here->groups, there->groups, here->group_count * sizeof(here->groups[0]));
}

static void expect_same_job(const struct job *here, const struct job *there)
{
	assert_string_equal(here->name, there->name);
	assert_int_equal(here->uid, there->uid);
	expect_same_options(&here->options, &there->options);
	assert_memory_equal(here->update->groups, there->update->groups,
			    here->options.group_count * sizeof(here->update->groups[0]));
	assert_memory_equal(&here->update->loss_scale, &there->update->loss_scale,
			    sizeof(here->update->loss_scale));
	assert_int_equal(here->step, there->step);
	assert_int_equal(here->decided, there->decided);
	assert_int_equal(budget_limits(here)->host_budget, budget_limits(there)->host_budget);
	assert_int_equal(budget_limits(here)->nvme_budget, budget_limits(there)->nvme_budget);
	expect_same_tensors(here, there);
	assert_int_equal(here->durability->blobs.used, there->durability->blobs.used);
	assert_int_equal(here->durability->blobs.room, there->durability->blobs.room);
	assert_int_equal(here->resources->charged_bytes - here->resources->windows * WINDOW_BYTES,
			 there->resources->charged_bytes);
	assert_true(here->location.has_nvme_sums ||
		    here->resources->kept_bytes == there->resources->kept_bytes);
	for (uint32_t i = 0; i < here->catalog.unit_count; i++)
		assert_int_equal(unit_gradient_bytes(&here->catalog.units[i]),
				 unit_gradient_bytes(&there->catalog.units[i]));
	expect_same_places(here, there);
}

/* As its ranks come back: with the memory that its plan gives it, and then without again. */
static void plan_return(struct job *job)
{
	struct setup setup = { .job = job, .is_return = true };

	if (setup_plan(&setup) < 0)
		fail_msg("%s", setup.message);
	assert_true(setup.arena_bytes > 0);
	store_layout_free(setup.host);
	store_layout_free(setup.sums);
	setup_release(job);
}

/* What one daemon says is what the other says again, of a job that is the same. */
static void check_way_and_back(const struct job *job)
{
	struct record here = encode(job), there;
	struct job *back = expect_decoded(&other, &here);

	assert_int_equal(back->state, JOB_RELEASED);
	assert_true(job_is_idle(back));
	assert_int_equal(back->epoch.number, job->epoch.number + job_is_live(job));
	for (uint32_t i = 0; i < back->catalog.pack_count; i++)
		assert_int_equal(residency_version(back, i), job->step);
	assert_int_equal(budget_host_bytes(back),
			 back->resources->charged_bytes + back->resources->kept_bytes);
	there = encode(back);
	expect_same(here.definition, there.definition);
	expect_same(here.progress, there.progress);
	expect_same_job(job, back);
	plan_return(back);
	expect_same_places(job, back);
	assert_int_equal(budget_host_bytes(back),
			 back->resources->charged_bytes + back->resources->kept_bytes);
	drop(back);
	assert_int_equal(other.node->paths[0].used, 0);
	free_record(&here);
	free_record(&there);
}

/* ---- Tests ---- */

static void all_options_come_back(void **state)
{
	Tierd__Wire__JobOpen options = rich_options();
	struct job *job = start(&options, MODE_CREATE);

	check_way_and_back(job);
	for (unsigned i = 0; i < 7; i++)
		train(job, i);
	assert_int_equal(job->step, 7);
	assert_int_equal(job->catalog.units[2].updates, 5);
	assert_int_equal(job->catalog.units[0].updates, 5);
	assert_int_equal(job->catalog.units[0].tensors[0].missed, 0);
	assert_int_equal(job->catalog.units[0].tensors[1].missed, 3);
	assert_int_equal(job->catalog.units[0].tensors[2].missed, 0);
	assert_true(job->update->loss_scale.value == 512 * 2 && job->update->loss_scale.steps == 1);
	check_way_and_back(job);
}

static void as_many_groups_as_there_can_be_come_back(void **state)
{
	static Tierd__Wire__Group many[1024], *pointers[1024];
	Tierd__Wire__JobOpen options = rich_options();

	for (unsigned i = 0; i < ARRAY_LENGTH(many); i++) {
		pointers[i] = &many[i];
		many[i] = groups[0];
		many[i].learning_rate = 1.0f / (float)(1 + i);
	}
	options.groups = pointers;
	options.n_groups = ARRAY_LENGTH(many);
	check_way_and_back(start(&options, MODE_REPLACE));
	leave(options.world_size);
}

static void each_optimizer_and_placement_comes_back(void **state)
{
	for (uint32_t kind = OPTIMIZER_ADAMW; kind <= OPTIMIZER_NONE; kind++)
		for (uint32_t placement = PLACEMENT_DEFAULT; placement <= PLACEMENT_AUTO; placement++) {
			Tierd__Wire__JobOpen options = rich_options();

			options.name = (char *)"play";
			options.optimizer = kind;
			options.gradient_placement = placement;
			options.parameter_placement = kind % 2 ? PLACEMENT_DEFAULT : PLACEMENT_HOST;
			options.optimizer_placement = placement % 2 ? PLACEMENT_HOST : PLACEMENT_DEFAULT;
			options.world_size = 1 + kind % 2;
			options.n_groups = kind % 3 ? 0 : 2;
			options.nonfinite = NONFINITE_REPORT;
			options.loss_scale_interval = 0;
			options.host_budget = options.nvme_budget = 0;
			check_way_and_back(start(&options, MODE_REPLACE));
			leave(options.world_size);
		}
}

static void the_size_is_known_before_the_plan(void **state)
{
	Tierd__Wire__JobOpen options = rich_options();
	uint64_t definition, progress;
	struct job *job;

	assert_int_equal(actor_enter(&scene, &actors[0]), 0);
	assert_int_equal(open_as(&actors[0], &options, 0, MODE_CREATE), 0);
	define_units(&actors[0], true);
	job = find(&scene, options.name);
	definition = record_definition_bytes(job);
	progress = record_progress_bytes(job);
	actor_die(&actors[0]);
	scene_settle(&scene);
	job = start(&options, MODE_CREATE);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(record_definition_bytes(job), definition);
		assert_int_equal(record_progress_bytes(job), progress);
		train(job, i);
	}
}

/* So that a job that gets another number of ranks has room for it where it is. */
static void the_definition_has_one_length_in_all_shapes(void **state)
{
	static const uint32_t worlds[] = { 1, 127, 128, WIRE_MAX_WORLD_SIZE };
	Tierd__Wire__JobOpen options = rich_options();
	struct job *job = start(&options, MODE_CREATE), *back;
	uint64_t bytes = record_definition_bytes(job);
	uint32_t world_size = job->options.world_size;

	job->options.snapshots = job->options.snapshot_keep = 1;
	for (size_t i = 0; i < ARRAY_LENGTH(worlds); i++) {
		struct record record;

		job->options.world_size = worlds[i];
		for (job->options.stage = 0; job->options.stage < 3; job->options.stage++)
			assert_int_equal(record_definition_bytes(job), bytes);
		job->options.host_budget = UINT64_MAX >> (15 * i);
		job->options.gradient_buffers = (uint32_t)(1 + 21 * i);
		job->options.gradient_bytes = WIRE_MAX_GRADIENT_BYTES >> (12 * i);
		job->options.snapshot_every = UINT64_MAX >> (7 * i);
		job->durability->is_retention_set = i % 2 == 0;
		job->options.is_sharing_set = i % 2 == 1;
		job->options.sharing = i % 3;
		job->options.share_group = i % 3 > 0 ? UINT32_MAX >> (7 * i) : 0;
		record = encode(job);
		assert_int_equal(record.definition.size, bytes);
		back = expect_decoded(&other, &record);
		expect_same_options(&job->options, &back->options);
		assert_int_equal(back->durability->is_retention_set, job->durability->is_retention_set);
		assert_int_equal(back->options.is_sharing_set, job->options.is_sharing_set);
		drop(back);
		free_record(&record);
	}
	job->options.snapshots = 0;
	job->options.snapshot_every = 0;
	job->options.sharing = SHARING_NONE;
	job->options.share_group = 0;
	job->options.world_size = world_size;
}

/* Its room may be what forks have left, and its definition says what was asked for. */
static void a_job_comes_back_that_has_room_for_more_steps_than_were_asked_for(void **state)
{
	Tierd__Wire__JobOpen options = rich_options();
	struct job *job = start(&options, MODE_CREATE), *back;
	struct record record;

	job->durability->snapshots_asked = 3;
	job->options.snapshots = job->options.snapshot_keep = 10;
	record = encode(job);
	back = expect_decoded(&other, &record);
	assert_int_equal(back->options.snapshots, 3);
	assert_int_equal(back->options.snapshot_keep, 3);
	drop(back);
	free_record(&record);
	job->options.snapshots = job->options.snapshot_keep = 0;
	job->durability->snapshots_asked = 0;
}

/* About 16 bytes a unit, and 8 a tensor. */
static void the_progress_has_room_for_the_largest_numbers(void **state)
{
	Tierd__Wire__JobOpen options = rich_options();
	struct job *job;
	struct record record;

	options.blob_bytes = 0;
	job = start(&options, MODE_CREATE);
	leave(1);
	job->step = job->decided = INT64_MAX;
	job->epoch.number = UINT32_MAX - 1;
	job->update->loss_scale.steps = 1;
	for (uint32_t i = 0; i < job->catalog.unit_count; i++)
		job->catalog.units[i].updates = job->catalog.units[i].last_update = INT64_MAX;
	job->catalog.units[0].tensors[0].missed = INT64_MAX;
	job->catalog.units[0].tensors[0].group = 1;
	record = encode(job);
	assert_true(record.progress.size <= record_progress_bytes(job));
	free_record(&record);
	check_way_and_back(job);
	job->step = job->decided = job->epoch.number = 1;
	assert_true(record_progress_bytes(job) <=
		    16 * job->catalog.unit_count + (8 + 2) * job->catalog.tensor_count + 192);
	job->location.record_format = RECORD_FORMAT_TENSORS;
	assert_true(record_progress_bytes(job) <=
		    16 * job->catalog.unit_count + 8 * job->catalog.tensor_count + 192);
	job->location.record_format = RECORD_FORMAT_UNITS;
	assert_true(record_progress_bytes(job) <= 16 * job->catalog.unit_count + 192);
	job->location.record_format = RECORD_FORMAT;
}

/* As another tierd has made it. */
static struct job *start_in_format(uint32_t format)
{
	Tierd__Wire__JobOpen options = rich_options();
	struct job *job;

	assert_int_equal(actor_enter(&scene, &actors[0]), 0);
	assert_int_equal(open_as(&actors[0], &options, 0, MODE_CREATE), 0);
	job = find(&scene, options.name);
	job->location.record_format = format;
	define_units(&actors[0], true);
	assert_int_equal(actor_write(&actors[0], 0, 2, 0, 10), 0);
	assert_int_equal(actor_ready(&actors[0]), 0);
	assert_int_equal(move(1, 0), format < RECORD_FORMAT_GROUPS ? -EOPNOTSUPP : 0);
	return job;
}

/* Without the gradients of the second tensor. */
static void take_step_in_format(struct job *job)
{
	static const uint8_t absent = 2;

	actors[0].absent = &absent;
	actors[0].absent_bytes = 1;
	if (job->location.record_format < RECORD_FORMAT_TENSORS) {
		/* Silent pushes that are refused fail their step. */
		assert_int_equal(actor_await(&actors[0], actor_send_push(&actors[0], 0, 0), 0)->status,
				 -EOPNOTSUPP);
		assert_non_null(strstr(actor_message(&actors[0]), "made by an older tierd"));
		actors[0].absent = NULL;
	}
	push(0, FORMAT_BF16, SMALL_ELEMENTS, 0.5f);
	actors[0].absent = NULL;
	push(1, FORMAT_BF16, SMALL_ELEMENTS, 0.5f);
	push(2, FORMAT_FP32, LARGE_ELEMENTS, 0.5f);
	push(3, FORMAT_FP32, LARGE_ELEMENTS, 0.5f);
	step(0.1f, 0, false);
}

/* Its room is as it was: what comes behind it lies where it lay. added: bytes of a tensor in the next format.
 */
static void expect_format_kept(uint32_t format, uint64_t added)
{
	struct job *job = start_in_format(format);
	uint64_t progress = record_progress_bytes(job);
	struct record record;

	assert_non_null(strstr(actor_message(&actors[0]), "no place for the groups of tensors"));
	take_step_in_format(job);
	assert_int_equal(job->catalog.units[0].tensors[1].missed, format == RECORD_FORMAT_TENSORS);
	record = encode(job);
	assert_int_equal(((const uint8_t *)record.definition.bytes)[1], format);
	assert_int_equal(((const uint8_t *)record.progress.bytes)[1], format);
	free_record(&record);
	check_way_and_back(job);
	job->location.record_format++;
	assert_int_equal(record_progress_bytes(job), progress + 2 + added * job->catalog.tensor_count);
}

static void a_job_of_the_first_format_keeps_it(void **state)
{
	expect_format_kept(RECORD_FORMAT_UNITS, 8);
}

static void a_job_of_the_second_format_keeps_it(void **state)
{
	expect_format_kept(RECORD_FORMAT_TENSORS, 2);
}

/* ---- Refusals ---- */

/* A small one, with bytes of its own that a test may spoil. */
static struct record small_record(void)
{
	Tierd__Wire__JobOpen options = rich_options();
	struct job *job;
	struct record record;

	job = start(&options, MODE_REPLACE);
	train(job, 0);
	record = encode(job);
	leave(1);
	return record;
}

static void a_format_of_the_future_is_refused_with_both_numbers(void **state)
{
	struct record record = small_record();

	((uint8_t *)record.definition.bytes)[1] = RECORD_FORMAT + 1;
	/* Whatever follows it. */
	memset((uint8_t *)record.definition.bytes + 2, 0xff, record.definition.size - 2);
	expect_refused(&record, -EPROTONOSUPPORT,
		       "definition is of format 4, and this tierd knows formats 1 to 3");
	free_record(&record);
	record = small_record();
	((uint8_t *)record.progress.bytes)[1] = 77;
	expect_refused(&record, -EPROTONOSUPPORT, "progress is of format 77");
	free_record(&record);
}

/* What a test changes in a message before it is packed again. */
struct changed {
	struct record record;
	Tierd__Record__JobDefinition *definition;
	Tierd__Record__JobProgress *progress;
};

static struct changed begin_change(void)
{
	struct changed changed = { .record = small_record() };

	changed.definition = tierd__record__job_definition__unpack(NULL, changed.record.definition.size,
								   changed.record.definition.bytes);
	changed.progress = tierd__record__job_progress__unpack(NULL, changed.record.progress.size,
							       changed.record.progress.bytes);
	assert_true(changed.definition && changed.progress);
	return changed;
}

static struct record_message pack(const ProtobufCMessage *what)
{
	size_t size = protobuf_c_message_get_packed_size(what);
	uint8_t *bytes = malloc(size);

	assert_non_null(bytes);
	protobuf_c_message_pack(what, bytes);
	return (struct record_message){ bytes, size };
}

static void expect_change_refused(struct changed *changed, int status, const char *text)
{
	free_record(&changed->record);
	changed->record = (struct record){ pack(&changed->definition->base), pack(&changed->progress->base) };
	expect_refused(&changed->record, status, text);
}

static void end_change(struct changed *changed)
{
	free_record(&changed->record);
	tierd__record__job_definition__free_unpacked(changed->definition, NULL);
	tierd__record__job_progress__free_unpacked(changed->progress, NULL);
}

#define DEFINITION_REFUSED(field, value, status, text)                                                       \
	do {                                                                                                 \
		__typeof__(changed.definition->field) before_ = changed.definition->field;                   \
		changed.definition->field = (value);                                                         \
		expect_change_refused(&changed, status, text);                                               \
		changed.definition->field = before_;                                                         \
	} while (0)

static void a_definition_that_cannot_be_is_refused(void **state)
{
	struct changed changed = begin_change();

	DEFINITION_REFUSED(uid, UINT32_MAX, -EBADMSG, "names no user");
	DEFINITION_REFUSED(options->stage, 7, -EINVAL, "stage 7");
	DEFINITION_REFUSED(options->world_size, 0, -EINVAL, "world size 0");
	DEFINITION_REFUSED(options->optimizer, 99, -EINVAL, "no optimizer 99");
	DEFINITION_REFUSED(options, NULL, -EBADMSG, "no options");
	DEFINITION_REFUSED(optimizer_placement, PLACEMENT_DEFAULT, -EBADMSG, "where no state can be");
	DEFINITION_REFUSED(optimizer_placement, PLACEMENT_AUTO, -EBADMSG, "where no state can be");
	DEFINITION_REFUSED(parameter_placement, PLACEMENT_DEFAULT, -EBADMSG, "where no state can be");
	DEFINITION_REFUSED(devices, 2, -EINVAL, "lies on 2 NVMe paths, and it lies on 1");
	DEFINITION_REFUSED(layout, changed.definition->layout + 1, -EBADMSG, "not laid out");
	DEFINITION_REFUSED(layout, 0, -EBADMSG, "not laid out");
	DEFINITION_REFUSED(n_units, 0, -EBADMSG, "no units");
	DEFINITION_REFUSED(n_units, 2, -EBADMSG, "of another job");
	DEFINITION_REFUSED(units[1], changed.definition->units[0], -EEXIST, "already a unit \"first\"");
	DEFINITION_REFUSED(units[1].len, changed.definition->units[1].len - 1, -EBADMSG, "unit 1 cannot");
	changed.definition->options->parameter_placement = PLACEMENT_HOST;
	DEFINITION_REFUSED(options->stage, 2, -EBADMSG, "where no state can be");
	end_change(&changed);
}

#define PROGRESS_REFUSED(field, value, status, text)                                                         \
	do {                                                                                                 \
		__typeof__(changed.progress->field) before_ = changed.progress->field;                       \
		changed.progress->field = (value);                                                           \
		expect_change_refused(&changed, status, text);                                               \
		changed.progress->field = before_;                                                           \
	} while (0)

static void a_progress_that_cannot_be_is_refused(void **state)
{
	struct changed changed = begin_change();

	PROGRESS_REFUSED(step, 0, -EBADMSG, "at step 0");
	PROGRESS_REFUSED(step, UINT64_C(1) << 63, -EBADMSG, "cannot be at step 9223372036854775808");
	PROGRESS_REFUSED(epoch, 0, -EBADMSG, "in epoch 0");
	PROGRESS_REFUSED(epoch, UINT32_MAX, -EBADMSG, "in epoch 4294967295");
	PROGRESS_REFUSED(loss_scale, 0, -EINVAL, "loss scale cannot be 0");
	PROGRESS_REFUSED(loss_scale, NAN, -EINVAL, "loss scale cannot be");
	PROGRESS_REFUSED(loss_scale_steps, 2, -EINVAL, "for 2 steps");
	PROGRESS_REFUSED(n_groups, 1, -EBADMSG, "of another job");
	PROGRESS_REFUSED(groups[1]->beta1, 2, -EINVAL, "parameter group 1");
	PROGRESS_REFUSED(n_updates, 3, -EBADMSG, "of another job");
	PROGRESS_REFUSED(n_last_updates, 3, -EBADMSG, "of another job");
	PROGRESS_REFUSED(updates[2], 2, -EBADMSG, "unit \"third\" cannot have had 2 updates");
	PROGRESS_REFUSED(updates[2], 0, -EBADMSG, "unit \"third\" cannot have had 0 updates");
	PROGRESS_REFUSED(last_updates[2], 2, -EBADMSG, "the last in step 2");
	PROGRESS_REFUSED(format, 1, -EBADMSG, "not of its definition's format");
	PROGRESS_REFUSED(n_missed, 3, -EBADMSG, "counts the updates of 3 tensors");
	PROGRESS_REFUSED(missed[1], 2, -EBADMSG,
			 "tensor \"scale\" cannot have missed 2 of the 1 update of its unit");
	PROGRESS_REFUSED(missed[2], 1, -EBADMSG, "tensor \"table\" cannot have missed 1");
	PROGRESS_REFUSED(n_tensor_groups, 3, -EBADMSG, "has the groups of 3 tensors");
	PROGRESS_REFUSED(tensor_groups[1], 2, -EBADMSG,
			 "tensor \"scale\" is in parameter group 2; the job has 2");
	PROGRESS_REFUSED(tensor_groups[6], 65537, -EBADMSG, "tensor \"large\" is in parameter group 65537");
	PROGRESS_REFUSED(blobs[0]->size, (1 << 20) + 1, -EBADMSG, "its blobs cannot be");
	PROGRESS_REFUSED(blobs[0]->size, UINT64_MAX, -EBADMSG, "its blobs cannot be");
	PROGRESS_REFUSED(blobs[0]->step, 2, -EBADMSG, "its blobs cannot be");
	PROGRESS_REFUSED(blobs[0]->rank, WIRE_MAX_WORLD_SIZE, -EBADMSG, "its blobs cannot be");
	PROGRESS_REFUSED(blobs[0]->key, (char *)"a b", -EBADMSG, "its blobs cannot be");
	end_change(&changed);
}

static void expect_updates(const struct job *job, struct record_message progress, int status,
			   const char *text)
{
	uint64_t updates[9], *next = updates;

	assert_int_equal(job->catalog.tensor_count, 8);
	memset(updates, 0xee, sizeof(updates));
	message[0] = '\0';
	assert_int_equal(record_decode_updates(job, progress, updates, message, sizeof(message)), status);
	assert_non_null(strstr(message, text));
	for (uint32_t u = 0; u < job->catalog.unit_count && status == 0; u++)
		for (uint32_t i = 0; i < job->catalog.units[u].tensor_count; i++)
			assert_int_equal(*next++, tensor_updates(&job->catalog.units[u],
								 &job->catalog.units[u].tensors[i]));
	for (; next < updates + ARRAY_LENGTH(updates); next++)
		assert_int_equal(*next, UINT64_C(0xeeeeeeeeeeeeeeee));
}

/* As of a snapshot, whose job goes on. */
static void counts_of_updates_are_read_alone(void **state)
{
	struct changed changed = begin_change();
	const struct job *job = find(&scene, "rich.job-1");
	struct record_message part = changed.record.progress;

	expect_updates(job, part, 0, "");
	part.size--;
	expect_updates(job, part, -EBADMSG, "its progress cannot be read");
	changed.progress->updates[2] = 2;
	part = pack(&changed.progress->base);
	expect_updates(job, part, -EBADMSG, "unit \"third\" cannot have had 2 updates");
	free((void *)part.bytes);
	changed.progress->updates[2] = 1;
	changed.progress->n_updates = 3;
	part = pack(&changed.progress->base);
	expect_updates(job, part, -EBADMSG, "of another job");
	free((void *)part.bytes);
	changed.progress->n_updates = job->catalog.unit_count;
	end_change(&changed);
}

static void a_name_that_is_taken_is_refused(void **state)
{
	struct record record = small_record();
	struct job *job, *second;

	job = expect_decoded(&other, &record);
	assert_int_equal(decode(&other, &record, &second), -EEXIST);
	assert_non_null(strstr(message, "has a job rich.job-1 already"));
	drop(job);
	free_record(&record);
}

static void a_job_that_has_no_room_any_more_is_refused(void **state)
{
	struct record record = small_record();
	uint64_t budget = other.node->settings.host_budget;

	other.node->settings.host_budget = budget_host_used(other.node) + 100;
	expect_refused(&record, -ENOMEM, "of host memory");
	other.node->settings.host_budget = budget;
	free_record(&record);
}

static void limits_that_have_become_lower_keep_no_job_away(void **state)
{
	struct record record = small_record();
	struct job *job;

	other.node->settings.units_per_job = other.node->settings.tensors_per_job =
		other.node->settings.dimensions_per_tensor = 1;
	other.node->settings.name_length = other.node->settings.job_name_length = 3;
	other.node->settings.jobs_per_user = 0;
	job = expect_decoded(&other, &record);
	drop(job);
	free_record(&record);
}

/* In its place, in names of the same length. */
static void rename_all(const struct record_message *part, const char *from, const char *to)
{
	uint8_t *at = (uint8_t *)part->bytes, *end = at + part->size;

	while ((at = memmem(at, (size_t)(end - at), from, strlen(from))))
		memcpy(at, to, strlen(to));
}

static void names_that_an_older_version_took_come_back(void **state)
{
	static const char override[] = "\xe2\x80\xae"
				       "ed",
			  control[] = "\x1b[2Jd";
	struct record record = small_record();
	struct job *job;

	rename_all(&record.definition, "embed", override);
	job = expect_decoded(&other, &record);
	assert_string_equal(job->catalog.units[0].tensors[0].name, override);
	drop(job);
	rename_all(&record.definition, override, control);
	expect_refused(&record, -EINVAL, "not printable");
	free_record(&record);
}

/* What says nothing a million times must not take a million pieces of memory. */
static void a_message_that_unpacks_to_far_more_is_refused(void **state)
{
	struct record record = small_record();
	size_t size = record.definition.size + 2 * MIB;
	uint8_t *bytes = malloc(size);

	assert_non_null(bytes);
	memcpy(bytes, record.definition.bytes, record.definition.size);
	for (size_t i = record.definition.size; i < size; i += 2) {
		bytes[i] = 8 << 3 | 2;
		bytes[i + 1] = 0;
	}
	free((void *)record.definition.bytes);
	record.definition = (struct record_message){ bytes, size };
	expect_refused(&record, -EBADMSG, "definition cannot be read");
	free_record(&record);
}

/* ---- Limits ---- */

/* As if a daemon had died and another one had found its stores: nothing but them and the record is left. */
static void bring_back(struct job *job)
{
	struct store *store = job->location.optimizer_store;
	struct record record;

	assert_ptr_equal(job->location.parameter_store, store);
	leave(1);
	record = encode(job);
	job->location.optimizer_store = job->location.parameter_store = NULL;
	job_drop(job);
	scene_settle(&scene);
	job = expect_decoded(&scene, &record);
	job->location.optimizer_store = job->location.parameter_store = store;
	free_record(&record);
}

static void the_owners_own_groups_count_from_his_return_on(void **state)
{
	const struct limit_list limits = {
		.entries = { { .principal = { PRINCIPAL_EVERYONE }, .quota.host_maximum = 150 * MIB },
			     { .principal = { PRINCIPAL_GROUP, 54321 }, .quota.host_maximum = 200 * MIB } },
		.count = 2,
	};
	gid_t group = 54321;
	Tierd__Wire__JobOpen options = rich_options();
	struct job *job;

	scene.node->settings.limits = &limits;
	job = start(&options, MODE_CREATE);
	bring_back(job);
	job = find(&scene, options.name);
	assert_int_equal(budget_limits(job)->host_maximum, 150 * MIB);
	assert_int_equal(actor_enter(&scene, &actors[0]), 0);
	actors[0].port.groups = &group;
	actors[0].port.group_count = 1;
	assert_int_equal(open_as(&actors[0], &options, 0, MODE_RESUME), 0);
	assert_int_equal(budget_limits(job)->host_maximum, 200 * MIB);
	leave(1);
	scene.node->settings.limits = NULL;
}

static int open_scenes(void **state)
{
	const struct scene_options options = { .host_budget = 256 * MIB, .capacity = 512 * MIB };

	return scene_open(&options, &scene) == 0 && scene_open(&options, &other) == 0 ? 0 : -1;
}

static int close_scenes(void **state)
{
	for (unsigned i = 0; i < ARRAY_LENGTH(actors); i++)
		actor_die(&actors[i]);
	scene_close(&scene);
	scene_close(&other);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scenes, close_scenes)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(all_options_come_back),
		TEST(as_many_groups_as_there_can_be_come_back),
		TEST(each_optimizer_and_placement_comes_back),
		TEST(the_size_is_known_before_the_plan),
		TEST(the_definition_has_one_length_in_all_shapes),
		TEST(a_job_comes_back_that_has_room_for_more_steps_than_were_asked_for),
		TEST(the_progress_has_room_for_the_largest_numbers),
		TEST(a_job_of_the_first_format_keeps_it),
		TEST(a_job_of_the_second_format_keeps_it),
		TEST(a_format_of_the_future_is_refused_with_both_numbers),
		TEST(a_definition_that_cannot_be_is_refused),
		TEST(a_progress_that_cannot_be_is_refused),
		TEST(counts_of_updates_are_read_alone),
		TEST(a_name_that_is_taken_is_refused),
		TEST(a_job_that_has_no_room_any_more_is_refused),
		TEST(limits_that_have_become_lower_keep_no_job_away),
		TEST(names_that_an_older_version_took_come_back),
		TEST(a_message_that_unpacks_to_far_more_is_refused),
		TEST(the_owners_own_groups_count_from_his_return_on),
	};

	log_open(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
