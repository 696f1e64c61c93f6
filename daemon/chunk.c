/* A chunk: elements of a pack's section that are read, updated by a worker and written together. */
#include <string.h>

#include "common/size.h"
#include "daemon/damage.h"
#include "daemon/early.h"
#include "daemon/location.h"
#include "daemon/sums.h"
#include "daemon/sweep.h"
#include "daemon/trace.h"
#include "daemon/warm.h"
#include "offload/initializer.h"
#include "offload/moments.h"

/* ---- On a worker ---- */

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
static char *sum_at(const struct chunk *chunk, uint32_t unit, uint64_t first)
{
	const struct job *job = chunk->sweep->job;

	return sum_element(job, &job->catalog.units[unit], gradient_sum(job, unit), chunk->section, first);
}

static void *part_at(const struct chunk *chunk, unsigned stream, uint64_t bytes)
{
	char *data = chunk->parts[stream].data;

	return data ? data + bytes : NULL;
}

/* The chunk's arrays from its element at on. */
static struct optimizer_arrays arrays_at(const struct chunk *chunk, uint64_t at)
{
	struct optimizer_arrays arrays = {
		.parameter = part_at(chunk, CHUNK_PARAMETER, at * section_element_bytes(chunk->section)),
		.master = part_at(chunk, CHUNK_STATE + STATE_MASTER,
				  state_offset(chunk->section, STATE_MASTER, at)),
	};

	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++)
		arrays.slots[slot] = part_at(chunk, CHUNK_STATE + STATE_SLOTS + slot,
					     state_offset(chunk->section, STATE_SLOTS + slot, at));
	return arrays;
}

/* As they were written. */
static void take_first_values(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count,
			      const void *master, float *values)
{
	const struct job *job = chunk->sweep->job;
	enum master_kind kind = state_master_kind(chunk->section);
	const char *sum = sum_at(chunk, index, first);

	if (!sums_are_as_pushed(job))
		memcpy(values, sum, count * sizeof(*values));
	else if (job->has_masters)
		format_restore(kind, sum, master, count, values);
	else
		format_widen(kind, sum, count, values);
}

static void initialize_tile(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count,
			    uint64_t at)
{
	const struct job *job = chunk->sweep->job;
	const struct unit *unit = &job->catalog.units[index];
	struct optimizer_arrays arrays = arrays_at(chunk, at);
	float values[SUM_TILE];

	take_first_values(chunk, index, first, count, arrays.master, values);
	for (uint32_t i = 0; i < unit->tensor_count; i++) {
		const struct tensor *tensor = &unit->tensors[i];
		uint64_t from, length;

		if (tensor->layout.section != chunk->section || tensor->initializer == INITIALIZE_NONE ||
		    tensor->has_source ||
		    !intersect(first, count, tensor->layout.first, tensor->layout.elements, &from, &length))
			continue;
		sweep_fill_tensor(job, tensor, from - tensor->layout.first, length, values + (from - first));
	}
	format_keep(state_master_kind(chunk->section), values, count, arrays.parameter, arrays.master);
}

/* Elements first … of the unit's section; their place in the chunk is at. */
static void initialize_unit(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count,
			    uint64_t at)
{
	for (uint64_t done = 0; done < count; done += SUM_TILE)
		initialize_tile(chunk, index, first + done, count - done < SUM_TILE ? count - done : SUM_TILE,
				at + done);
}

/* Elements from … of the unit's section, which one group updates; their place in the chunk is at. */
static void update_run(const struct chunk *chunk, uint32_t index, uint32_t group, uint64_t from,
		       uint64_t count, uint64_t at, struct moment_noise noise)
{
	const struct job *job = chunk->sweep->job;
	const struct step_rates *rates = chunk->sweep->rates;
	const struct optimizer *optimizer = job->options.optimizer;
	const struct unit *unit = &job->catalog.units[index];
	optimizer_kernel *kernel =
		optimizer->kernels[state_moments(chunk->section)][state_master_kind(chunk->section)];
	struct optimizer_constants constants;
	float room[SUM_TILE];

	optimizer_set(optimizer, &rates->groups[group], (double)rates->learning_rate, unit->updates + 1,
		      chunk->sweep->factor, &constants);
	from += unit_part(unit, chunk->section)->first;
	for (uint64_t done = 0, length; done < count; done += length, noise.first += length) {
		struct optimizer_arrays arrays = arrays_at(chunk, at + done);

		length = count - done;
		arrays.gradient = sum_values(job, unit, gradient_sum(job, index), from + done, &length, room);
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
			    unit->updates + 1, first);
}

static void update_tensors(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count,
			   uint64_t at)
{
	const struct unit *unit = &chunk->sweep->job->catalog.units[index];
	uint64_t from, length;

	for (uint32_t i = 0; i < unit->tensor_count; i++) {
		const struct tensor *tensor = &unit->tensors[i];

		if (tensor->layout.section == chunk->section &&
		    intersect(first, count, tensor->layout.first, tensor->layout.elements, &from, &length))
			update_run(chunk, index, tensor->group, from, length, at + (from - first),
				   noise_of(chunk, unit, tensor, from - tensor->layout.first));
	}
}

/* What the owners of a reduced step have written; the rest keeps its values. */
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

			if (intersect(first, count, tensor->layout.first + span->first,
				      span->end - span->first, &from, &length))
				update_run(chunk, index, tensor->group, from, length, at + (from - first),
					   no_noise);
		}
	}
}

static void update_unit(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count,
			uint64_t at)
{
	const struct job *job = chunk->sweep->job;

	if (!gradient_has_content(job, index))
		return;
	if (job->options.optimizer->is_by_owner)
		update_written(chunk, index, first, count, at);
	else
		update_tensors(chunk, index, first, count, at);
}

/* Until the decision the new parameters lie where the gradients did, which nobody needs any more: they are
 * summed, measured and consumed. An element takes no more there than its gradient, and a chunk of the sweep
 * has the same elements as this one. */
static char *kept_at(const struct chunk *chunk, uint32_t index, uint64_t first)
{
	return sum_at(chunk, index, first);
}

static void keep_unit(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count, uint64_t at)
{
	uint64_t bytes = section_element_bytes(chunk->section);

	memcpy(kept_at(chunk, index, first), part_at(chunk, CHUNK_PARAMETER, at * bytes), count * bytes);
}

static void adopt_unit(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count, uint64_t at)
{
	uint64_t bytes = section_element_bytes(chunk->section);

	memcpy(part_at(chunk, CHUNK_PARAMETER, at * bytes), kept_at(chunk, index, first), count * bytes);
}

/* Elements first … of the unit's section; their place in the chunk is at. */
static void compute_unit(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count,
			 uint64_t at)
{
	bool is_kept = early_keeps(chunk->sweep->job);

	if (chunk->sweep->is_initializing)
		initialize_unit(chunk, index, first, count, at);
	else if (!chunk->is_adopted)
		update_unit(chunk, index, first, count, at);
	else if (is_kept)
		adopt_unit(chunk, index, first, count, at);
	if (chunk->sweep->is_early && is_kept)
		keep_unit(chunk, index, first, count, at);
}

static void compute_units(const struct chunk *chunk)
{
	const struct job *job = chunk->sweep->job;
	const struct pack *pack = &job->catalog.packs[chunk->pack];

	for (uint32_t u = pack->first_unit; u < pack->first_unit + pack->unit_count; u++) {
		const struct unit_part *part = unit_part(&job->catalog.units[u], chunk->section);
		uint64_t from, count;

		if (part &&
		    intersect(chunk->first, chunk->count, part->pack_first, part->elements, &from, &count))
			compute_unit(chunk, u, from - part->pack_first, count, from - chunk->first);
	}
}

static void save_for_readers(const struct chunk *chunk)
{
	const struct copy_range range = {
		.pack = chunk->pack, .section = chunk->section, .first = chunk->first, .count = chunk->count
	};
	struct optimizer_arrays arrays = arrays_at(chunk, 0);

	QUEUE_FOREACH (link, &chunk->sweep->views)
		view_save(queue_entry(link, struct view, sweep_link), &range, &arrays);
}

/* While the data is still in the cache. */
static void compute_checksums(struct chunk_part *part)
{
	const struct store_transfer *transfer = &part->transfer;

	uint64_t bytes = store_block_bytes(part->store, transfer->stream);

	for (uint64_t at = 0, block = 0; at < transfer->length; at += bytes, block++) {
		uint64_t left = transfer->length - at;

		part->checksums[block] = store_checksum(part->store, transfer->stream, transfer->offset + at,
							(char *)part->data + at, left < bytes ? left : bytes);
	}
}

static void run_chunk(struct work *work)
{
	struct chunk *chunk = container_of(work, struct chunk, work);

	if (chunk->resident)
		memcpy(chunk->parts[CHUNK_PARAMETER].data, chunk->resident,
		       chunk->count * section_element_bytes(chunk->section));
	save_for_readers(chunk);
	compute_units(chunk);
	for (int i = 0; i < CHUNK_STREAMS; i++)
		if (chunk->parts[i].is_written)
			compute_checksums(&chunk->parts[i]);
}

/* ---- Transfers ---- */

static void check_pack(const struct chunk *chunk)
{
	if (chunk->sweep->is_early)
		early_check_pack(chunk->sweep->job, chunk->pack);
	else
		sweep_check_pack(chunk->sweep, chunk->pack);
}

static void give_warm(struct chunk *chunk)
{
	struct job *job = chunk->sweep->job;
	struct warm_stretch *stretch = TAKE_PTR(chunk->warm);

	if (chunk->status == 0 && !chunk->is_deferred)
		warm_note_written(job, stretch);
	warm_give(job, stretch, chunk->section, chunk->first, chunk->status == 0);
}

static void retire(struct chunk *chunk)
{
	struct sweep *sweep = chunk->sweep;
	struct job *job = sweep->job;
	struct residence *residence = &job->residences[chunk->pack];
	struct staging_buffer *buffer = TAKE_PTR(chunk->buffer);

	residence->unwritten--;
	residence->writes -= !sweep->is_early;
	sweep->running--;
	queue_push(&sweep->free_chunks, &chunk->link);
	if (chunk->warm)
		give_warm(chunk);
	check_pack(chunk);
	if (residence->unwritten == 0) {
		early_end_adoption(job, chunk->pack);
		operation_resume(job);
	}
	if (buffer)
		staging_give(&job->node->staging, buffer);
	job_settle(job);
}

static void fail_chunk(struct chunk *chunk, const struct chunk_part *part, int status)
{
	struct sweep *sweep = chunk->sweep;
	char what[LOCATION_TEXT];
	struct location location;

	chunk->status = status;
	if (sweep->has_failed || sweep->job->phase == JOB_BROKEN || sweep->job->is_dropped)
		return;
	if (sweep->is_early && early_is_ending(sweep->job) && part->transfer.direction == TIER_READ) {
		damage_tell_read(sweep->job, &part->transfer, status,
				 "that update had been withdrawn, and the next one reads it again");
		return;
	}
	sweep->has_failed = true;
	struct log_fields fault = store_fault(sweep->job, chunk->pack, &part->transfer);

	location_of_fault(sweep->job, &part->transfer, &location);
	job_break(sweep->job, status, &fault, "%s, cannot be %s %s at byte %llu: %s",
		  location_print(&location, what),
		  part->transfer.direction == TIER_READ ? "read from" : "written to",
		  fault.device ? fault.device : "the store",
		  (unsigned long long)part->transfer.fault.device_offset, store_error(status));
}

static void on_transferred(struct store_transfer *transfer, int status);

/* Whoever gathers the pack waits for its writes, too. */
static bool is_published_when_written(const struct chunk *chunk)
{
	return chunk->sweep->is_early || chunk->sweep->job->residences[chunk->pack].slot == SLOT_NONE;
}

static enum tier_priority priority_of(const struct chunk *chunk, enum tier_direction direction)
{
	const struct sweep *sweep = chunk->sweep;

	/* Nobody waits for what is early; parameters that are read ahead are used before. Once the step is
	 * decided the next forward pass waits for it. */
	if (sweep->is_early && !early_is_decided(sweep->job))
		return TIER_WRITE_BACK;
	if (direction == TIER_WRITE && !is_published_when_written(chunk))
		return TIER_WRITE_BACK;
	if (residency_is_awaited(sweep->job, chunk->pack))
		return TIER_DEMAND;
	return direction == TIER_READ || sweep->is_early ? TIER_PREFETCH : TIER_WRITE_BACK;
}

static void submit_parts(struct chunk *chunk, enum tier_direction direction)
{
	for (int i = 0; i < CHUNK_STREAMS; i++) {
		struct chunk_part *part = &chunk->parts[i];

		if (!(direction == TIER_READ ? part->is_read : part->is_written))
			continue;
		part->transfer.direction = direction;
		part->transfer.priority = priority_of(chunk, direction);
		part->transfer.buffer = part->data;
		part->transfer.is_held = direction == TIER_WRITE && chunk->sweep->is_early;
		part->transfer.checksums = direction == TIER_WRITE ? part->checksums : NULL;
		part->transfer.done = on_transferred;
		int r = store_submit(part->store, &part->transfer);

		if (r < 0) {
			fail_chunk(chunk, part, r);
			continue;
		}
		chunk->transfers_left++;
		part->is_moving = true;
		account_transfer(chunk->sweep->job,
				 chunk->sweep->is_initializing ? STATISTICS_WRITE_BACK : STATISTICS_UPDATE,
				 &part->transfer);
	}
}

/* The slot is not read any more. */
static void end_computing(struct chunk *chunk)
{
	struct job *job = chunk->sweep->job;

	job->residences[chunk->pack].uncomputed--;
	if (chunk->resident)
		residency_unpin(job, chunk->pack);
}

static void on_computed(struct work *work)
{
	struct chunk *chunk = container_of(work, struct chunk, work);
	struct job *job = chunk->sweep->job;

	/* What is adopted was updated before. */
	if (!chunk->is_adopted)
		trace_worked(job, chunk->sweep->is_initializing ? TRACE_INITIALIZE : TRACE_UPDATE,
			     job->catalog.packs[chunk->pack].first_unit, chunk->count, work);
	chunk->transfers_left = 1;
	submit_parts(chunk, TIER_WRITE);
	end_computing(chunk);
	check_pack(chunk);
	if (--chunk->transfers_left == 0)
		retire(chunk);
}

static void compute(struct chunk *chunk)
{
	struct job *job = chunk->sweep->job;

	if (chunk->status < 0) {
		end_computing(chunk);
		retire(chunk);
		return;
	}
	chunk->work = (struct work){ .run = run_chunk, .done = on_computed, .urgency = WORK_NORMAL };
	chunk->work.is_timed = trace_is_on(job);
	workers_submit(job->node->workers, &chunk->work);
}

static void on_transferred(struct store_transfer *transfer, int status)
{
	struct chunk_part *part = container_of(transfer, struct chunk_part, transfer);
	struct chunk *chunk = part->chunk;

	part->is_moving = false;
	trace_transferred(chunk->sweep->job, chunk->pack, part->store, transfer);
	if (status < 0)
		fail_chunk(chunk, part, status);
	if (--chunk->transfers_left > 0)
		return;
	if (transfer->direction == TIER_READ)
		compute(chunk);
	else
		retire(chunk);
}

static void raise_chunk(struct chunk *chunk, enum tier_priority priority)
{
	for (int i = 0; i < CHUNK_STREAMS; i++) {
		struct chunk_part *part = &chunk->parts[i];

		if (part->is_moving &&
		    (part->transfer.direction == TIER_READ || is_published_when_written(chunk)))
			store_raise(part->store, &part->transfer, priority);
	}
}

void chunks_raise(struct sweep *sweep, uint32_t pack)
{
	for (unsigned i = 0; i < sweep->chunk_count; i++)
		if (sweep->chunks[i].pack == pack)
			raise_chunk(&sweep->chunks[i], TIER_DEMAND);
}

void chunks_hasten(struct sweep *sweep)
{
	for (unsigned i = 0; i < sweep->chunk_count; i++)
		raise_chunk(&sweep->chunks[i], TIER_PREFETCH);
}

/* ---- Start ---- */

static void set_part(struct chunk *chunk, unsigned index, struct store *store, bool is_nvme,
		     const struct store_piece *piece, void *buffer)
{
	struct chunk_part *part = &chunk->parts[index];

	*part = (struct chunk_part){ .chunk = chunk };
	part->transfer.stream = piece->stream;
	part->transfer.offset = piece->offset;
	part->transfer.length = size_align(piece->length, STORE_PAGE_BYTES);
	part->data = buffer;
	if (is_nvme)
		part->store = store;
	else if (store)
		part->data = store_address(store, piece->stream, piece->offset);
}

/* Else a backup does, of what is in host memory. */
bool sweep_writes_parameters(const struct job *job)
{
	return job->has_nvme_parameters || (job->has_stored_parameters && !job->has_backup);
}

/* What is adopted was written; it is read for those who keep what it was before. */
static bool is_read(const struct chunk *chunk)
{
	return !chunk->sweep->is_initializing && (!chunk->is_adopted || chunk->sweep->is_saving);
}

static void set_parameter(struct chunk *chunk)
{
	const struct sweep *sweep = chunk->sweep;
	const struct job *job = sweep->job;
	const struct residence *residence = &job->residences[chunk->pack];
	uint64_t bytes = section_element_bytes(chunk->section);
	void *address = chunk->buffer ? chunk->buffer->data : NULL, *slot = NULL;
	bool is_stored = sweep_writes_parameters(job), is_absent = sweep->was_absent;
	const struct store_piece piece = {
		.stream = job->streams.parameter[chunk->section],
		.offset = job->places[chunk->pack].parameter[chunk->section] + chunk->first * bytes,
		.length = chunk->count * bytes,
	};

	if (residence->slot != SLOT_NONE)
		slot = residency_address(job, chunk->pack) +
		       job->catalog.packs[chunk->pack].slot_offset[chunk->section] + chunk->first * bytes;
	chunk->resident = NULL;
	if (sweep->is_early && residence->state == DIRECTORY_RESIDENT)
		chunk->resident = slot;
	if (sweep->is_early)
		is_absent = !chunk->resident;
	else if (slot)
		address = slot;
	set_part(chunk, CHUNK_PARAMETER, is_stored ? job->parameter_store : NULL, is_stored, &piece, address);
	chunk->parts[CHUNK_PARAMETER].is_read = is_stored && is_absent && is_read(chunk);
	chunk->parts[CHUNK_PARAMETER].is_written =
		is_stored && !chunk->is_adopted && (!chunk->is_deferred || job->has_nvme_parameters);
}

/* Fresh slots are zeros, which a store has without being told. */
static void set_state(struct chunk *chunk, unsigned state, void *buffer)
{
	const struct job *job = chunk->sweep->job;
	struct chunk_part *part = &chunk->parts[CHUNK_STATE + state];
	bool is_initializing = chunk->sweep->is_initializing;

	const struct store_piece kept =
		job_find_kept(job, chunk->pack, chunk->section, state, chunk->first, chunk->count);

	set_part(chunk, CHUNK_STATE + state, job->optimizer_store, job->has_nvme_optimizer, &kept, buffer);
	part->is_read = job->has_nvme_optimizer && !chunk->is_filled &&
			(is_read(chunk) || (is_initializing && state == STATE_MASTER && job->has_masters));
	part->is_written = job->has_nvme_optimizer && !chunk->is_adopted && !chunk->is_deferred &&
			   (state == STATE_MASTER || !is_initializing);
}

static char *after(char *data, uint64_t bytes)
{
	return data ? data + size_align(bytes, STORE_PAGE_BYTES) : NULL;
}

/* What is warm stays where it is; in a staging buffer states follow the parameters. */
static void set_states(struct chunk *chunk)
{
	const struct job *job = chunk->sweep->job;
	const struct job_options *options = &job->options;
	char *data = after(chunk->buffer ? chunk->buffer->data : NULL,
			   chunk->count * section_element_bytes(chunk->section));

	for (unsigned state = 0; state < STATES_MAXIMUM; state++) {
		chunk->parts[CHUNK_STATE + state] = (struct chunk_part){ .chunk = chunk };
		if (state >= state_count(options) || !state_exists(chunk->section, state))
			continue;
		set_state(chunk, state,
			  chunk->warm ? warm_state(job, chunk->warm, chunk->pack, chunk->section,
						   chunk->first, state)
				      : data);
		data = after(data, state_bytes(chunk->section, state, chunk->count));
	}
}

uint64_t chunk_elements(const struct job_options *options, enum unit_section section)
{
	uint64_t elements = CHUNK_ELEMENTS;

	while (elements * section_element_bytes(section) + state_all_bytes(options, section, elements) >
	       STAGING_BYTES)
		elements /= 2;
	return elements;
}

void chunk_start(struct sweep *sweep, struct chunk *chunk)
{
	struct job *job = sweep->job;
	struct residence *residence = &job->residences[sweep->pack];
	uint64_t left = job->catalog.packs[sweep->pack].elements[sweep->section] - sweep->first;
	uint64_t most = chunk_elements(&job->options, sweep->section);

	chunk->pack = sweep->pack;
	chunk->section = sweep->section;
	chunk->first = sweep->first;
	chunk->count = left < most ? left : most;
	chunk->status = 0;
	chunk->is_adopted = sweep->is_adopting;
	chunk->is_deferred = chunk->warm && chunk->warm->is_deferred;
	if (chunk->is_deferred)
		warm_mark(job, chunk->warm, true);
	set_parameter(chunk);
	set_states(chunk);
	sweep->first += chunk->count;
	sweep->running++;
	residence->uncomputed++;
	residence->unwritten++;
	residence->writes += !sweep->is_early;
	if (chunk->resident)
		residency_pin(job, chunk->pack);
	chunk->transfers_left = 1;
	submit_parts(chunk, TIER_READ);
	if (--chunk->transfers_left == 0)
		compute(chunk);
}
