/* What goes through a GPU in chunks, for a job's updates and sums: memory for chunks on their way, and
 * kernels. They are made when the job's tier opens, and go with it. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/gpu/own.h"

static bool are_sums_wanted(const struct gpu_tier *tier)
{
	const struct job *job = tier->job;

	return tier->may_sum && sum_image() && !tier->gpu->has_failed_sum && tier->has_gradients &&
	       job->options.stage >= 2 && job->options.world_size > 1 && job->options.world_size <= GPU_RANKS;
}

static bool are_wanted(const struct gpu_tier *tier)
{
	return gpu_updates_are_wanted(tier) || are_sums_wanted(tier);
}

uint64_t gpu_passes_bytes(const struct gpu_tier *tier)
{
	return are_wanted(tier) ? GPU_PASSES_BYTES : 0;
}

/* Several GPUs may come to sum together. */
static bool are_pieces_wanted(const struct gpu_tier *tier)
{
	const struct node *node = tier->job->node;

	return are_sums_wanted(tier) && node->gpu->gpus.count > 1 &&
	       node->settings.gpu_exchange != GPU_EXCHANGE_NEVER;
}

uint64_t gpu_pieces_bytes(const struct gpu_tier *tier)
{
	return are_pieces_wanted(tier) ? GPU_PIECES_BYTES : 0;
}

static uint64_t held_bytes(const struct gpu_memory *memory)
{
	return memory->address ? memory->bytes : 0;
}

uint64_t gpu_passes_held_bytes(const struct gpu_tier *tier)
{
	const struct gpu_passes *passes = tier->passes;

	return passes ? held_bytes(&passes->memory) + held_bytes(&passes->pieces) : 0;
}

/* ---- They are made ---- */

static void come(struct gpu_passes *passes, const struct gpu_request *request, int status)
{
	if (status < 0 && passes->status == 0) {
		passes->status = status;
		passes->problem = request->problem;
	}
	passes->came(passes->tier);
}

static void on_memory(struct gpu_request *request, int status)
{
	struct gpu_memory *memory = container_of(request, struct gpu_memory, request);

	come(container_of(memory, struct gpu_passes, memory), request, status);
}

/* Without it GPUs sum nothing together. */
static void on_pieces(struct gpu_request *request, int status)
{
	struct gpu_memory *memory = container_of(request, struct gpu_memory, request);
	struct gpu_passes *passes = container_of(memory, struct gpu_passes, pieces);

	if (status < 0)
		log_info("what ranks of job %s push from several GPUs is summed by processors: %s",
			 passes->tier->job->name, request->problem.text);
	passes->came(passes->tier);
}

static void on_update_kernels(struct gpu_request *request, int status)
{
	struct gpu_kernels *kernels = container_of(request, struct gpu_kernels, request);

	come(container_of(kernels, struct gpu_passes, update_kernels), request, status);
}

static void on_sum_kernels(struct gpu_request *request, int status)
{
	struct gpu_kernels *kernels = container_of(request, struct gpu_kernels, request);

	come(container_of(kernels, struct gpu_passes, sum_kernels), request, status);
}

static void create(struct gpu_tier *tier, struct gpu_memory *memory)
{
	tier->outstanding++;
	gpu_memory_create(tier->gpu->engine, memory);
}

static void load(struct gpu_tier *tier, struct gpu_kernels *kernels)
{
	tier->outstanding++;
	gpu_kernels_load(tier->gpu->engine, kernels);
}

void gpu_passes_make(struct gpu_tier *tier, void (*came)(struct gpu_tier *tier))
{
	struct gpu_passes *passes =
		are_wanted(tier) && tier->has_room_for_passes ? calloc(1, sizeof(*passes)) : NULL;

	tier->passes = passes;
	if (!passes)
		return;
	passes->tier = tier;
	passes->came = came;
	passes->memory =
		(struct gpu_memory){ .request.done = on_memory, .bytes = GPU_PASSES_BYTES, .fd = -1 };
	passes->pieces =
		(struct gpu_memory){ .request.done = on_pieces, .bytes = GPU_PIECES_BYTES, .fd = -1 };
	passes->update_kernels = (struct gpu_kernels){ .request.done = on_update_kernels,
						       .image = kernels_image(),
						       .count = KERNELS_COUNT,
						       .names = kernels_names,
						       .functions = passes->update_functions };
	passes->sum_kernels = (struct gpu_kernels){ .request.done = on_sum_kernels,
						    .image = sum_image(),
						    .count = REDUCE_FORMATS,
						    .names = sum_names,
						    .functions = passes->sum_functions };
	create(tier, &passes->memory);
	if (are_pieces_wanted(tier) && tier->has_room_for_pieces)
		create(tier, &passes->pieces);
	if (gpu_updates_are_wanted(tier))
		load(tier, &passes->update_kernels);
	if (are_sums_wanted(tier))
		load(tier, &passes->sum_kernels);
}

/* NULL: it takes passes. */
static const char *open_updater(struct gpu_tier *tier)
{
	struct gpu_passes *passes = tier->passes;

	if (!passes)
		return "gpu_budget has no room for what goes through a GPU beside the job's largest units; "
		       "raise it";
	if (passes->status < 0)
		return passes->problem.text;
	passes->updater = gpu_updater_new(&(struct gpu_updater_config){ .engine = tier->gpu->engine,
									.kernels = &passes->update_kernels,
									.memory = passes->memory.address,
									.bytes = passes->memory.bytes });
	return passes->updater ? NULL : "tierd is out of memory";
}

static void open_sums(struct gpu_tier *tier, const char *problem)
{
	if (!are_sums_wanted(tier))
		return;
	if (!problem)
		tier->sums = calloc(GPU_SUMS, sizeof(*tier->sums));
	if (!tier->sums)
		log_info("what ranks of job %s push from a GPU is summed by processors: %s", tier->job->name,
			 problem ? problem : "tierd is out of memory");
}

void gpu_passes_open(struct gpu_tier *tier)
{
	const char *problem = are_wanted(tier) ? open_updater(tier) : NULL;

	gpu_updates_open(tier, problem);
	open_sums(tier, problem);
}

/* ---- And go ---- */

static void on_memory_gone(struct gpu_request *request, int status)
{
	struct gpu_memory *memory = container_of(request, struct gpu_memory, request);

	come(container_of(memory, struct gpu_passes, memory), request, 0);
}

static void on_pieces_gone(struct gpu_request *request, int status)
{
	struct gpu_memory *memory = container_of(request, struct gpu_memory, request);

	come(container_of(memory, struct gpu_passes, pieces), request, 0);
}

static void destroy(struct gpu_tier *tier, struct gpu_memory *memory,
		    void (*done)(struct gpu_request *request, int status))
{
	if (!memory->address)
		return;
	tier->outstanding++;
	memory->request.done = done;
	gpu_memory_destroy(tier->gpu->engine, memory);
}

static void unload(struct gpu_tier *tier, struct gpu_kernels *kernels)
{
	if (!kernels->module)
		return;
	tier->outstanding++;
	gpu_kernels_unload(tier->gpu->engine, kernels);
}

void gpu_passes_close(struct gpu_tier *tier, void (*came)(struct gpu_tier *tier))
{
	struct gpu_passes *passes = tier->passes;

	gpu_updates_close(tier, came);
	if (!passes)
		return;
	passes->came = came;
	passes->updater = gpu_updater_free(passes->updater);
	unload(tier, &passes->update_kernels);
	unload(tier, &passes->sum_kernels);
	destroy(tier, &passes->memory, on_memory_gone);
	destroy(tier, &passes->pieces, on_pieces_gone);
}

void gpu_passes_free(struct gpu_tier *tier)
{
	gpu_updates_free(tier);
	free(TAKE_PTR(tier->sums));
	free(TAKE_PTR(tier->passes));
}
