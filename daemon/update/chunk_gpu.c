/* A chunk that a GPU updates: a worker prepares it, the GPU updates one run of elements after the other where
 * they lie in host memory, and a worker finishes it. Other chunks keep the GPU at work meanwhile. */
#include <errno.h>

#include "common/clock.h"
#include "daemon/gpu/gpu.h"
#include "daemon/gradients/gradients.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/own.h"
#include "daemon/update/sweep.h"

/* ---- Which ---- */

void chunk_gpu_begin_step(struct job *job)
{
	const struct memory *staging = &job->node->staging->memory, *sums = gradients_memory(job),
			    *states = NULL;

	share_begin_step(&job->update->share);
	chunk_mirrors_begin_step(job);
	if (job->location.optimizer_store)
		states = store_host_memory(job->location.optimizer_store);
	gpu_updates_pin(job, staging->base, staging->length);
	gpu_updates_pin(job, sums->base, sums->length);
	if (states)
		gpu_updates_pin(job, states->base, states->length);
}

/* With more of them the GPU would wait for launches most of the time. */
static bool take_runs(struct chunk *chunk)
{
	chunk->gpu.run_count = 0;
	chunk->gpu.next = 0;
	return chunk_find_runs(chunk, chunk->gpu.runs, CHUNK_RUNS, &chunk->gpu.run_count) &&
	       chunk->gpu.run_count > 0;
}

static uint64_t stream_bytes(const struct chunk *chunk, unsigned stream)
{
	return chunk_stream_bytes(chunk->section, stream, chunk->count);
}

static bool are_sums_narrow(const struct chunk *chunk, const struct chunk_run *run)
{
	const struct job *job = chunk->sweep->job;

	return sums_are_as_parameters(job, &job->catalog.units[run->unit], chunk->section) &&
	       section_element_bytes(chunk->section) == sizeof(uint16_t);
}

static uint64_t gradient_bytes(const struct chunk *chunk, const struct chunk_run *run)
{
	return run->count * (are_sums_narrow(chunk, run) ? sizeof(uint16_t) : sizeof(float));
}

static bool is_reached(const struct chunk *chunk, const struct gpu_updates *gpu)
{
	for (unsigned i = 0; i < CHUNK_STREAMS; i++)
		if (chunk->streams[i].data &&
		    !gpu_updates_reach(gpu, chunk->streams[i].data, stream_bytes(chunk, i)))
			return false;
	for (unsigned i = 0; i < chunk->gpu.run_count; i++) {
		const struct chunk_run *run = &chunk->gpu.runs[i];

		if (!gpu_updates_reach(gpu, chunk_sum_at(chunk, run->unit, run->first),
				       gradient_bytes(chunk, run)))
			return false;
	}
	return true;
}

/* Owners make their values themselves. */
static bool is_updated(const struct chunk *chunk)
{
	const struct sweep *sweep = chunk->sweep;

	return !sweep->is_initializing && !sweep->is_writing && !chunk->is_adopted &&
	       !sweep->job->options.optimizer->is_by_owner;
}

static bool can_spare_buffer(const struct chunk *chunk)
{
	return !chunk->buffer || staging_may_go_to_gpu(chunk->sweep->job->node->staging);
}

/* One that could update it; best the one that has its state. */
static struct gpu_updates *find_gpu(struct chunk *chunk)
{
	const struct job *job = chunk->sweep->job;
	struct gpu_updates *gpu = gpu_updates_find(job), *other;

	if (!gpu || !can_spare_buffer(chunk) || !take_runs(chunk))
		return NULL;
	chunk_mirror_name(chunk);
	other = mirrors_find(job, &chunk->gpu.mirrored);
	chunk->gpu.piece.is_there = other != NULL;
	gpu = other ? other : gpu;
	return is_reached(chunk, gpu) ? gpu : NULL;
}

/* Directions of the bus are at work at the same time. All of a chunk's values and state come back; all of it
 * and gradients go there, or only these. */
static uint64_t bus_bytes(const struct chunk *chunk)
{
	uint64_t state = 0, gradients = 0;

	for (unsigned i = 0; i < CHUNK_STREAMS; i++)
		if (chunk->streams[i].data)
			state += stream_bytes(chunk, i);
	for (unsigned i = 0; i < chunk->gpu.run_count; i++)
		gradients += gradient_bytes(chunk, &chunk->gpu.runs[i]);
	if (!chunk->gpu.piece.is_there)
		return state + gradients;
	return state > gradients ? state : gradients;
}

static void begin_on_gpu(struct chunk *chunk, struct gpu_updates *gpu)
{
	chunk->gpu.updates = gpu;
	gpu_updates_hold(gpu);
	if (chunk->buffer)
		staging_go_to_gpu(chunk->sweep->job->node->staging);
	chunk_mirror_take(chunk, gpu);
}

void chunk_choose_side(struct chunk *chunk)
{
	struct job *job = chunk->sweep->job;
	struct share *share = &job->update->share;
	enum share_side side = SHARE_PROCESSORS;
	struct gpu_updates *gpu;

	if (chunk->gpu.is_chosen)
		return;
	chunk->gpu.is_chosen = true;
	if (!is_updated(chunk))
		return;
	chunk->gpu.piece = (struct share_piece){ .elements = chunk->count };
	chunk->gpu.run_count = 0;
	chunk_mirror_name(chunk);
	gpu = find_gpu(chunk);
	if (gpu) {
		chunk->gpu.piece.bus_bytes = bus_bytes(chunk);
		side = share_choose(share, gpu_updates_fraction(gpu), &chunk->gpu.piece);
	}
	if (side == SHARE_GPUS)
		begin_on_gpu(chunk, gpu);
	else
		mirrors_drop(job, &chunk->gpu.mirrored);
	share_begin(share, side, &chunk->gpu.piece, clock_now_ns());
}

static void end_on_gpu(struct chunk *chunk)
{
	if (chunk->buffer && !chunk->gpu.is_lost)
		staging_come_from_gpu(chunk->sweep->job->node->staging);
	chunk_mirror_give(chunk);
	gpu_updates_release(TAKE_PTR(chunk->gpu.updates));
}

void chunk_end_side(struct chunk *chunk)
{
	enum share_side side = chunk->gpu.updates ? SHARE_GPUS : SHARE_PROCESSORS;

	if (!chunk->gpu.is_chosen)
		return;
	chunk->gpu.is_chosen = false;
	if (is_updated(chunk))
		share_end(&chunk->sweep->job->update->share, side, &chunk->gpu.piece, clock_now_ns());
	if (side == SHARE_GPUS)
		end_on_gpu(chunk);
}

/* ---- Its runs ---- */

static struct gpu_array array_of(const void *memory)
{
	return (struct gpu_array){ .address = (uintptr_t)memory };
}

/* Of the chunk, from its element at on. */
static struct gpu_array stream_array(const struct chunk *chunk, unsigned stream, uint64_t at,
				     const void *memory)
{
	struct gpu_array array = array_of(memory);

	if (memory && chunk->gpu.mirror)
		array.mirror = chunk_mirror_at(chunk, stream, at);
	return array;
}

static void set_update(const struct chunk *chunk, const struct chunk_run *run, struct gpu_update *update)
{
	struct optimizer_arrays arrays = chunk_arrays_at(chunk, run->at);

	update->optimizer = chunk->sweep->job->options.optimizer;
	chunk_set_constants(chunk, run, &update->constants);
	update->format = state_moments(chunk->section);
	update->kind = state_master_kind(chunk->section);
	update->noise = run->noise;
	update->parameter = stream_array(chunk, CHUNK_PARAMETER, run->at, arrays.parameter);
	update->master = stream_array(chunk, CHUNK_STATE + STATE_MASTER, run->at, arrays.master);
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++)
		update->slots[slot] =
			stream_array(chunk, CHUNK_STATE + STATE_SLOTS + slot, run->at, arrays.slots[slot]);
	update->is_mirrored = chunk->gpu.is_mirrored;
	update->gradient = array_of(chunk_sum_at(chunk, run->unit, run->first));
	update->is_narrow = are_sums_narrow(chunk, run);
	update->pass.count = run->count;
}

static void on_updated(struct gpu_updates_request *request, int status);

static void update_next(struct chunk *chunk)
{
	struct gpu_updates_request *request = &chunk->gpu.request;

	set_update(chunk, &chunk->gpu.runs[chunk->gpu.next++], &request->update);
	request->done = on_updated;
	gpu_updates_run(chunk->gpu.updates, request);
}

/* Some elements are new and some are old, and which ones nobody can say: so it ends as a write does that has
 * failed. What is early nobody has seen, but it lies where the old values did. */
static void fail(struct chunk *chunk, int status)
{
	struct sweep *sweep = chunk->sweep;
	struct job *job = sweep->job;
	const char *unit = pack_name(job, chunk->pack);

	chunk->status = status;
	chunk->gpu.is_lost = status == -ENODEV;
	if (sweep->has_failed || job_is_broken(job) || job_is_ending(job))
		return;
	sweep->has_failed = true;
	job_break(job, &(struct log_fields){ .unit = unit },
		  "unit \"%s\": its update on a GPU has failed, which makes no more of them: %s", unit,
		  chunk->gpu.request.update.pass.problem.text);
}

static void on_updated(struct gpu_updates_request *request, int status)
{
	struct chunk *chunk = container_of(request, struct chunk, gpu.request);

	if (status < 0)
		fail(chunk, status);
	else if (chunk->gpu.next < chunk->gpu.run_count) {
		update_next(chunk);
		return;
	}
	chunk->gpu.done(chunk);
}

void chunk_update_on_gpu(struct chunk *chunk, void (*done)(struct chunk *chunk))
{
	chunk->gpu.done = done;
	update_next(chunk);
}
