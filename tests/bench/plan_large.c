/* How long the daemon takes for what it plans and keeps in mind of a job of 10 TB, and how much memory: units
 * are defined, placed, written and committed; their order is learned over a pass of gathers, and they are
 * evicted over another one; then a daemon starts that finds them, and brings them back.
 *
 * It is the daemon's own code, in this process, with a real store on a sparse file. But no machine has that
 * much: what is written to extents goes nowhere (hollow.h), nothing is reserved, and no value is read, so
 * time does not go by with bytes. For that all units are frozen, each of 100 MiB, and a pass gathers them
 * before their values would have to be read: a pack that is blank takes its slot as any other one does. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "daemon/durability/durable.h"
#include "daemon/residency/order.h"
#include "daemon/residency/residency.h"
#include "offload/device/fault.h"
#include "tests/bench/bench.h"
#include "tests/bench/hollow.h"
#include "tests/unit/daemon_support.h"

#define UNIT_BYTES (100 * MIB)
#define UNITS 95367 /* 10 TB */
#define QUICK_UNITS 2000
#define CAPACITY (15 * TIB)
#define HOST_BUDGET (2 * GIB)
#define LIMIT_SECONDS 30
#define LIMIT_GIB 2
#define DEPTH 32

/* ---- A store that keeps no data ---- */

static struct hollow_tier hollow;
static _Alignas(
	STORE_PAGE_BYTES) char nothing[STORE_EXTENT_BYTES]; /* what is written from here goes nowhere */

/* Where the daemon stacks a tier that fails on demand, this one is stacked. */
int __wrap_fault_tier_new(struct tier *next, const struct fault_config *config, struct tier **ret_tier);
int __wrap_fault_tier_new(struct tier *next, const struct fault_config *config, struct tier **ret_tier)
{
	hollow_init(&hollow, next, nothing, sizeof(nothing));
	*ret_tier = &hollow.tier;
	return 0;
}

int __wrap_nvme_tier_reserve(struct tier *tier);
int __wrap_nvme_tier_reserve(struct tier *tier)
{
	return 0;
}

/* ---- The stage ---- */

struct stage {
	struct scene scene;
	struct actor actor;
	struct job *job;
	uint32_t units;
	double seconds; /* of all */
};

static const struct scene_options options = {
	.host_budget = HOST_BUDGET,
	.capacity = CAPACITY,
	.fault = "lose:write:0",
};

/* One part of the figure. */
static int take_time(struct stage *stage, const char *what, int (*run)(struct stage *stage))
{
	uint64_t start = clock_now_ns();
	int r = run(stage);
	double seconds = bench_seconds_since(start);

	if (r < 0)
		fprintf(stderr, "plan_10tb_s: %s: %s (%s)\n", what, strerror(-r),
			actor_message(&stage->actor));
	else
		printf("plan_10tb_s: %-10s %6.2f s\n", what, seconds);
	stage->seconds += seconds;
	return r;
}

static int define(struct stage *stage)
{
	char name[32];
	const struct actor_tensor tensor = { .name = name,
					     .format = FORMAT_BF16,
					     .elements = UNIT_BYTES / sizeof(uint16_t),
					     .is_frozen = true };
	int r = 0;

	for (uint32_t i = 0; i < stage->units && r == 0; i++) {
		snprintf(name, sizeof(name), "layer.%u", i);
		r = actor_define(&stage->actor, name, &tensor, 1);
	}
	return r;
}

static int create(struct stage *stage)
{
	int r = actor_enter(&stage->scene, &stage->actor);

	if (r == 0)
		r = actor_open(&stage->actor, &(struct actor_job){ .stage = 3 });
	if (r == 0)
		r = define(stage);
	stage->job = job_find(stage->scene.node, geteuid(), "play");
	return r;
}

/* The first value that is written is what a job is planned for. */
static int plan(struct stage *stage)
{
	return actor_write(&stage->actor, 0, 0, 0, UNIT_ALIGN_ELEMENTS);
}

/* ---- Values ---- */

struct filling {
	struct store_transfer transfer;
	uint64_t checksums[STORE_EXTENT_BYTES / STORE_BLOCK_BYTES];
	struct filling **free;
	struct filling *next;
	int *status;
};

static void on_filled(struct store_transfer *transfer, int status)
{
	struct filling *filling = container_of(transfer, struct filling, transfer);

	if (status < 0)
		*filling->status = status;
	filling->next = *filling->free;
	*filling->free = filling;
}

static int fill_extent(const struct job *job, struct filling *filling, uint64_t offset)
{
	for (size_t i = 0; i < ARRAY_LENGTH(filling->checksums); i++)
		filling->checksums[i] = offset + i;
	filling->transfer =
		(struct store_transfer){ .direction = TIER_WRITE,
					 .stream = job->location.streams.parameter[SECTION_FROZEN_BF16],
					 .offset = offset,
					 .length = sizeof(nothing),
					 .buffer = nothing,
					 .checksums = filling->checksums,
					 .done = on_filled };
	return store_submit(job->location.parameter_store, &filling->transfer);
}

/* Every extent is written, as if all values had been; and they have a value each. */
static int fill(struct stage *stage)
{
	static struct filling fillings[DEPTH];
	struct filling *free = NULL;
	const struct job *job = stage->job;
	int r = 0, status = 0;

	for (unsigned i = 0; i < DEPTH; i++) {
		fillings[i].free = &free;
		fillings[i].status = &status;
		on_filled(&fillings[i].transfer, 0);
	}
	for (uint32_t i = 0; i < stage->units && r == 0 && status == 0; i++) {
		struct tensor *tensor = &job->catalog.units[i].tensors[0];
		uint64_t first = job->location.places[i].parameter[SECTION_FROZEN_BF16];

		r = tensor_mark_written(tensor, 0, tensor->layout.elements);
		for (uint64_t at = 0; at < UNIT_BYTES && r == 0; at += sizeof(nothing)) {
			while (!free)
				hollow_tell(&hollow);
			struct filling *filling = free;

			free = filling->next;
			r = fill_extent(job, filling, first + at);
		}
	}
	while (hollow_tell(&hollow))
		;
	return r < 0 ? r : status;
}

/* ---- Steps ---- */

static int await_commit(struct stage *stage)
{
	uint64_t step;

	while (!job_is_broken(stage->job) &&
	       (!durable_has_step(stage->job, &step) || step < stage->job->step))
		scene_wait(&stage->scene);
	return job_is_broken(stage->job) ? -EIO : 0;
}

/* All ranks are there, so the job gets its state, and that is committed. */
static int commit(struct stage *stage)
{
	int r = actor_ready(&stage->actor);

	return r < 0 ? r : await_commit(stage);
}

/* As the library does: a gather is noted in the trace. The order is learned when the step closes. */
static int pass(struct stage *stage)
{
	int r = 0;

	for (uint32_t unit = 0; unit < stage->units && r == 0; unit++) {
		(void)trace_append((struct lease_header *)stage->actor.leases.base, &unit, 1);
		r = actor_gather(&stage->actor, unit, 0, NULL);
		if (r == 0)
			actor_release(&stage->actor, unit);
	}
	if (r == 0)
		r = actor_take_step(&stage->actor);
	return r < 0 ? r : await_commit(stage);
}

static bool has_learned_all(const struct stage *stage)
{
	const struct order *order = stage->job->members.ranks[0]->order;

	for (uint32_t i = 0; i < stage->units; i++)
		if (order_expected(order, i) != i)
			return false;
	return order->learned_count == stage->units;
}

/* With fewer slots than units, a pass over all of them evicts all but those. */
static int learn(struct stage *stage)
{
	int r = pass(stage);

	if (r == 0 && (!has_learned_all(stage) || residency_slots(stage->job)->count > stage->units / 100))
		return -ENODATA;
	return r;
}

static int restart(struct stage *stage)
{
	uint64_t step = stage->job->step;

	actor_die(&stage->actor);
	scene_settle(&stage->scene);
	int r = scene_restart(&options, &stage->scene);

	if (r < 0)
		return r;
	scene_settle(&stage->scene);
	stage->job = job_find(stage->scene.node, geteuid(), "play");
	return stage->job && stage->job->step == step && stage->job->catalog.unit_count == stage->units
		       ? 0
		       : -ENODATA;
}

static int come_back(struct stage *stage)
{
	int r = create(stage);

	return r < 0 ? r : actor_ready(&stage->actor);
}

/* ---- Telling ---- */

static int report(struct bench *bench, const struct stage *stage)
{
	int r = bench_record(bench, "plan_10tb_s", stage->seconds, "s", LIMIT_SECONDS);

	return r < 0 ? r
		     : bench_record(bench, "plan_10tb_gib",
				    (double)bench_proc_bytes("/proc/self/status", "VmHWM") / (double)GIB,
				    "GiB", LIMIT_GIB);
}

static int plan_all(struct bench *bench, struct stage *stage)
{
	static const struct {
		const char *name;
		int (*run)(struct stage *stage);
	} parts[] = {
		{ "define", create }, { "plan", plan },	 { "write", fill },   { "commit", commit },
		{ "learn", learn },   { "evict", pass }, { "open", restart }, { "come back", come_back },
	};
	int r = scene_open(&options, &stage->scene);

	for (size_t i = 0; i < ARRAY_LENGTH(parts) && r == 0; i++)
		r = take_time(stage, parts[i].name, parts[i].run);
	if (r == 0)
		r = report(bench, stage);
	scene_close(&stage->scene);
	return r;
}

static int run(struct bench *bench)
{
	static struct stage stage;

	stage.units = bench_is_quick(bench) ? QUICK_UNITS : UNITS;
	return bench_wants_any(bench, "plan_10tb_s", "plan_10tb_gib") ? plan_all(bench, &stage) : 0;
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
