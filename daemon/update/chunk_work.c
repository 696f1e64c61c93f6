/* What a worker does with a chunk: its first values, its update, what it keeps or adopts, and its checksums.
 */
#include <string.h>

#include "daemon/gradients/gradients.h"
#include "daemon/model/model.h"
#include "daemon/update/sweep.h"
#include "daemon/update/update.h"
#include "offload/optimizer/initializer.h"
#include "offload/optimizer/moments.h"

/* What a worker has updated of a chunk when it looks for the checksums of that, which a second-level cache
 * still has then: 64 Ki elements with moments in fp32 are 768 KiB. */
#define SLICE_ELEMENTS (CHUNK_ELEMENTS / 4)

void sweep_fill_tensor(const struct job *job, const struct tensor *tensor, uint64_t first, uint64_t count,
		       float *values)
{
	static const enum initializer_kind kinds[] = { [INITIALIZE_ZEROS] = INITIALIZER_ZEROS,
						       [INITIALIZE_ONES] = INITIALIZER_ONES,
						       [INITIALIZE_NORMAL] = INITIALIZER_NORMAL,
						       [INITIALIZE_UNIFORM] = INITIALIZER_UNIFORM };
	struct initializer initializer = {
		.kind = kinds[tensor->initializer],
		.a = tensor->a,
		.b = tensor->b,
		.seed = job->options.seed,
		.tensor = initializer_tensor(tensor->slice_of ? tensor->slice_of : tensor->name),
	};

	if (tensor->slice_of)
		first += tensor->slice_row * (tensor->layout.elements / tensor->shape[0]);
	initializer_fill(&initializer, first, count, values);
}

/* The part of [first, first + count) that lies in [from, from + length); false: none. */
static bool intersect(uint64_t first, uint64_t count, uint64_t from, uint64_t length, uint64_t *ret_first,
		      uint64_t *ret_count)
{
	uint64_t end = first + count < from + length ? first + count : from + length;

	*ret_first = first > from ? first : from;
	*ret_count = end > *ret_first ? end - *ret_first : 0;
	return *ret_count > 0;
}

/* Of the chunk's section. */
char *chunk_sum_at(const struct chunk *chunk, uint32_t unit, uint64_t first)
{
	const struct job *job = chunk->sweep->job;

	return sum_element(job, &job->catalog.units[unit], gradient_sum(job, unit), chunk->section, first);
}

static void *stream_at(const struct chunk *chunk, unsigned stream, uint64_t bytes)
{
	char *data = chunk->streams[stream].data;

	return data ? data + bytes : NULL;
}

/* The chunk's arrays from its element at on. */
struct optimizer_arrays chunk_arrays_at(const struct chunk *chunk, uint64_t at)
{
	struct optimizer_arrays arrays = {
		.parameter = stream_at(chunk, CHUNK_PARAMETER, at * section_element_bytes(chunk->section)),
		.master = stream_at(chunk, CHUNK_STATE + STATE_MASTER,
				    state_offset(chunk->section, STATE_MASTER, at)),
	};

	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++)
		arrays.slots[slot] = stream_at(chunk, CHUNK_STATE + STATE_SLOTS + slot,
					       state_offset(chunk->section, STATE_SLOTS + slot, at));
	return arrays;
}

/* As they were written. */
static void take_first_values(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count,
			      const void *master, float *values)
{
	const struct job *job = chunk->sweep->job;
	enum master_kind kind = state_master_kind(chunk->section);
	const char *sum = chunk_sum_at(chunk, index, first);

	if (!sums_are_as_parameters(job, &job->catalog.units[index], chunk->section))
		memcpy(values, sum, count * sizeof(*values));
	else if (job->location.has_given_masters)
		format_restore(kind, sum, master, count, values);
	else
		format_widen(kind, sum, count, values);
}

/* Where values are made: those that are kept in fp32 need no copy. */
static float *values_of(enum master_kind kind, const struct optimizer_arrays *arrays, float tile[SUM_TILE])
{
	return kind == MASTER_ITSELF ? arrays->parameter : tile;
}

/* Elements first … of the section get values of its own. */
static bool has_drawn(const struct chunk *chunk, const struct tensor *tensor, uint64_t first, uint64_t count,
		      uint64_t *ret_first, uint64_t *ret_count)
{
	return tensor->layout.section == chunk->section && tensor->initializer != INITIALIZE_NONE &&
	       !tensor->has_source &&
	       intersect(first, count, tensor->layout.first, tensor->layout.elements, ret_first, ret_count);
}

/* Each of them does, and so nothing was written. */
static bool are_all_drawn(const struct chunk *chunk, const struct unit *unit, uint64_t first, uint64_t count)
{
	uint64_t drawn = 0;

	for (uint32_t i = 0; i < unit->tensor_count; i++) {
		uint64_t from, length;

		if (has_drawn(chunk, &unit->tensors[i], first, count, &from, &length))
			drawn += length;
	}
	return drawn == count;
}

static void initialize_tile(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count,
			    uint64_t at)
{
	const struct job *job = chunk->sweep->job;
	const struct unit *unit = &job->catalog.units[index];
	struct optimizer_arrays arrays = chunk_arrays_at(chunk, at);
	enum master_kind kind = state_master_kind(chunk->section);
	float tile[SUM_TILE], *values = values_of(kind, &arrays, tile);

	if (!are_all_drawn(chunk, unit, first, count))
		take_first_values(chunk, index, first, count, arrays.master, values);
	for (uint32_t i = 0; i < unit->tensor_count; i++) {
		const struct tensor *tensor = &unit->tensors[i];
		uint64_t from, length;

		if (has_drawn(chunk, tensor, first, count, &from, &length))
			sweep_fill_tensor(job, tensor, from - tensor->layout.first, length,
					  values + (from - first));
	}
	if (values == tile)
		format_keep(kind, tile, count, arrays.parameter, arrays.master);
}

/* Elements first … of the unit's section; their place in the chunk is at. */
static void initialize_unit(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count,
			    uint64_t at)
{
	for (uint64_t done = 0; done < count; done += SUM_TILE)
		initialize_tile(chunk, index, first + done, count - done < SUM_TILE ? count - done : SUM_TILE,
				at + done);
}

void chunk_set_constants(const struct chunk *chunk, const struct chunk_run *run,
			 struct optimizer_constants *ret_constants)
{
	const struct job *job = chunk->sweep->job;
	const struct step_rates *rates = chunk->sweep->rates;

	optimizer_set(job->options.optimizer, &rates->groups[run->tensor->group],
		      (double)rates->learning_rate,
		      tensor_updates(&job->catalog.units[run->unit], run->tensor) + 1, chunk->sweep->factor,
		      ret_constants);
}

static void update_run(const struct chunk *chunk, const struct chunk_run *run, void *context)
{
	const struct job *job = chunk->sweep->job;
	const struct optimizer *optimizer = job->options.optimizer;
	const struct unit *unit = &job->catalog.units[run->unit];
	optimizer_kernel *kernel =
		optimizer->kernels[state_moments(chunk->section)][state_master_kind(chunk->section)];
	uint64_t from = run->first + unit_part(unit, chunk->section)->first;
	struct moment_noise noise = run->noise;
	struct optimizer_constants constants;
	float room[SUM_TILE];

	chunk_set_constants(chunk, run, &constants);
	for (uint64_t done = 0, length; done < run->count; done += length, noise.first += length) {
		struct optimizer_arrays arrays = chunk_arrays_at(chunk, run->at + done);

		length = run->count - done;
		arrays.gradient =
			sum_values(job, unit, gradient_sum(job, run->unit), from + done, &length, room);
		arrays.noise = noise;
		kernel(&constants, length, &arrays);
	}
}

static const struct moment_noise no_noise;

/* Of the tensor's elements first … . */
static struct moment_noise noise_of(const struct chunk *chunk, const struct unit *unit,
				    const struct tensor *tensor, uint64_t first)
{
	if (state_moments(chunk->section) == MOMENTS_FP32)
		return no_noise;
	return moment_noise(chunk->sweep->job->options.seed, initializer_tensor(tensor->name),
			    tensor_updates(unit, tensor) + 1, first);
}

typedef void run_function(const struct chunk *chunk, const struct chunk_run *run, void *context);

/* Elements first … of the unit's section; their place in the chunk is at. What nobody has a gradient of stays
 * as it is. */
static void for_runs(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count, uint64_t at,
		     run_function *function, void *context)
{
	const struct unit *unit = &chunk->sweep->job->catalog.units[index];
	uint64_t from, length;

	for (uint32_t i = 0; i < unit->tensor_count; i++) {
		const struct tensor *tensor = &unit->tensors[i];

		if (tensor->layout.section == chunk->section && tensor->is_present &&
		    intersect(first, count, tensor->layout.first, tensor->layout.elements, &from, &length))
			function(chunk,
				 &(struct chunk_run){
					 .unit = index,
					 .tensor = tensor,
					 .first = from,
					 .count = length,
					 .at = at + (from - first),
					 .noise = noise_of(chunk, unit, tensor, from - tensor->layout.first),
				 },
				 context);
	}
}

/* Of the element from on; its place in the chunk is at. */
static void take_written(const struct chunk *chunk, uint32_t index, uint64_t from, uint64_t count,
			 uint64_t at)
{
	enum master_kind kind = state_master_kind(chunk->section);

	for (uint64_t done = 0, length; done < count; done += length) {
		struct optimizer_arrays arrays = chunk_arrays_at(chunk, at + done);
		float tile[SUM_TILE], *values = values_of(kind, &arrays, tile);

		length = count - done < SUM_TILE ? count - done : SUM_TILE;
		take_first_values(chunk, index, from + done, length, arrays.master, values);
		if (values == tile)
			format_keep(kind, tile, length, arrays.parameter, arrays.master);
	}
}

/* What the owners of a reduced step have written, or the ranks in a writing; the rest keeps its values. */
static void update_written(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count,
			   uint64_t at)
{
	const struct unit *unit = &chunk->sweep->job->catalog.units[index];
	uint64_t from, length;

	for (uint32_t t = 0; t < unit->tensor_count; t++) {
		const struct tensor *tensor = &unit->tensors[t];

		for (unsigned i = 0; tensor->layout.section == chunk->section && i < tensor->written_count;
		     i++) {
			const struct span *span = &tensor->written[i];

			if (!intersect(first, count, tensor->layout.first + span->first,
				       span->end - span->first, &from, &length))
				continue;
			if (chunk->sweep->is_writing)
				take_written(chunk, index, from, length, at + (from - first));
			else
				update_run(chunk,
					   &(struct chunk_run){ .unit = index,
								.tensor = tensor,
								.first = from,
								.count = length,
								.at = at + (from - first) },
					   NULL);
		}
	}
}

static void update_unit(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count,
			uint64_t at)
{
	const struct job *job = chunk->sweep->job;

	if (!gradient_has_content(job, index) && !chunk->sweep->is_writing)
		return;
	if (job->options.optimizer->is_by_owner || chunk->sweep->is_writing)
		update_written(chunk, index, first, count, at);
	else
		for_runs(chunk, index, first, count, at, update_run, NULL);
}

/* Until the decision the new parameters lie where the gradients did, which nobody needs any more: they are
 * summed, measured and consumed. An element takes no more there than its gradient, and a chunk of the sweep
 * has the same elements as this one. */
static char *kept_at(const struct chunk *chunk, uint32_t index, uint64_t first)
{
	return chunk_sum_at(chunk, index, first);
}

static void keep_unit(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count, uint64_t at,
		      void *context)
{
	uint64_t bytes = section_element_bytes(chunk->section);

	memcpy(kept_at(chunk, index, first), stream_at(chunk, CHUNK_PARAMETER, at * bytes), count * bytes);
}

static void adopt_unit(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count, uint64_t at)
{
	uint64_t bytes = section_element_bytes(chunk->section);

	memcpy(stream_at(chunk, CHUNK_PARAMETER, at * bytes), kept_at(chunk, index, first), count * bytes);
}

/* Elements first … of the unit's section; their place in the chunk is at. */
static void compute_unit(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count,
			 uint64_t at, void *context)
{
	if (chunk->sweep->is_initializing)
		initialize_unit(chunk, index, first, count, at);
	else if (!chunk->is_adopted)
		update_unit(chunk, index, first, count, at);
	else if (chunk->is_kept)
		adopt_unit(chunk, index, first, count, at);
}

/* Elements of a chunk. */
struct slice {
	uint64_t at, count;
};

static struct slice whole(const struct chunk *chunk)
{
	return (struct slice){ 0, chunk->count };
}

typedef void unit_function(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count,
			   uint64_t at, void *context);

static void for_units(const struct chunk *chunk, struct slice slice, unit_function *function, void *context)
{
	const struct job *job = chunk->sweep->job;
	const struct pack *pack = &job->catalog.packs[chunk->pack];

	for (uint32_t u = pack->first_unit; u < pack->first_unit + pack->unit_count; u++) {
		const struct unit_part *part = unit_part(&job->catalog.units[u], chunk->section);
		uint64_t from, count;

		if (part && intersect(chunk->first + slice.at, slice.count, part->pack_first, part->elements,
				      &from, &count))
			function(chunk, u, from - part->pack_first, count, from - chunk->first, context);
	}
}

static void save_for_watches(const struct chunk *chunk)
{
	const struct sweep_range range = {
		.pack = chunk->pack, .section = chunk->section, .first = chunk->first, .count = chunk->count
	};
	struct optimizer_arrays arrays = chunk_arrays_at(chunk, 0);

	QUEUE_FOREACH (link, &chunk->sweep->watches) {
		const struct sweep_watch *watch = queue_entry(link, struct sweep_watch, link);

		watch->ops->save(watch, &range, &arrays);
	}
}

/* What was read; the update finds it in the cache then. What does not match stays unverified. */
static bool verify(struct chunk *chunk)
{
	bool is_right = true;

	for (int i = 0; i < CHUNK_STREAMS; i++) {
		struct chunk_stream *stream = &chunk->streams[i];

		if (stream->is_unverified)
			stream->is_unverified =
				!store_has_checksums(stream->store, &stream->transfer, stream->checksums);
		is_right &= !stream->is_unverified;
	}
	return is_right;
}

/* ---- Runs ---- */

struct runs {
	struct chunk_run *runs;
	unsigned most, count;
};

static void note_run(const struct chunk *chunk, const struct chunk_run *run, void *context)
{
	struct runs *runs = context;

	if (runs->count < runs->most)
		runs->runs[runs->count] = *run;
	runs->count++;
}

static void note_runs_of_unit(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count,
			      uint64_t at, void *context)
{
	if (gradient_has_content(chunk->sweep->job, index))
		for_runs(chunk, index, first, count, at, note_run, context);
}

bool chunk_find_runs(const struct chunk *chunk, struct chunk_run *ret_runs, unsigned most,
		     unsigned *ret_count)
{
	struct runs runs = { ret_runs, most, 0 };

	for_units(chunk, whole(chunk), note_runs_of_unit, &runs);
	*ret_count = runs.count < most ? runs.count : most;
	return runs.count <= most;
}

/* ---- On a worker ---- */

static bool prepare(struct chunk *chunk)
{
	if (!verify(chunk))
		return false;
	if (chunk->resident)
		memcpy(chunk->streams[CHUNK_PARAMETER].data, chunk->resident,
		       chunk->count * section_element_bytes(chunk->section));
	save_for_watches(chunk);
	return true;
}

static void finish(struct chunk *chunk, struct slice slice)
{
	uint64_t end = slice.at + slice.count;

	if (chunk->sweep->is_early && chunk->is_kept)
		for_units(chunk, slice, keep_unit, NULL);
	for (int i = 0; i < CHUNK_STREAMS; i++) {
		struct chunk_stream *stream = &chunk->streams[i];

		if (stream->is_written)
			store_find_checksums(stream->store, &stream->transfer,
					     chunk_stream_bytes(chunk->section, i, slice.at),
					     end == chunk->count ? stream->transfer.length
								 : chunk_stream_bytes(chunk->section, i, end),
					     stream->checksums);
	}
}

void chunk_prepare(struct work *work)
{
	(void)prepare(container_of(work, struct chunk, work));
}

void chunk_finish(struct work *work)
{
	struct chunk *chunk = container_of(work, struct chunk, work);

	finish(chunk, whole(chunk));
}

void chunk_run(struct work *work)
{
	struct chunk *chunk = container_of(work, struct chunk, work);

	if (!prepare(chunk))
		return;
	for (uint64_t at = 0; at < chunk->count; at += SLICE_ELEMENTS) {
		uint64_t left = chunk->count - at;
		struct slice slice = { at, left < SLICE_ELEMENTS ? left : SLICE_ELEMENTS };

		for_units(chunk, slice, compute_unit, NULL);
		finish(chunk, slice);
	}
}
