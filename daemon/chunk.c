/* A chunk: elements of a pack's section that are read, updated by a worker and written together. */
#include <string.h>

#include "common/size.h"
#include "daemon/sweep.h"
#include "offload/format.h"
#include "offload/initializer.h"

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

static float *section_sum(const struct job *job, uint32_t unit, enum unit_section section)
{
	return gradient_sum(job, unit) +
	       (section == SECTION_FP32 ? job->catalog.units[unit].layout.elements[SECTION_BF16] : 0);
}

/* Elements first … of the unit's section; their place in the chunk is at. */
static void initialize_unit(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count,
			    uint64_t at)
{
	const struct job *job = chunk->sweep->job;
	const struct unit *unit = &job->catalog.units[index];
	float *masters = section_sum(job, index, chunk->section);

	for (uint32_t i = 0; i < unit->tensor_count; i++) {
		const struct tensor *tensor = &unit->tensors[i];
		uint64_t from, length;

		if (tensor->layout.section != chunk->section || tensor->initializer == INITIALIZE_NONE ||
		    !intersect(first, count, tensor->layout.first, tensor->layout.elements, &from, &length))
			continue;
		sweep_fill_tensor(job, tensor, from - tensor->layout.first, length, masters + from);
	}
	if (chunk->section == SECTION_BF16)
		format_split(masters + first, count, (uint16_t *)chunk->parts[CHUNK_PARAMETER].data + at,
			     (int16_t *)chunk->parts[CHUNK_REMAINDER].data + at);
	else
		memcpy((float *)chunk->parts[CHUNK_PARAMETER].data + at, masters + first,
		       count * sizeof(float));
}

static void update_run(const struct chunk *chunk, const struct adamw_constants *constants,
		       const float *gradients, uint64_t at, uint64_t count)
{
	const struct adamw_kernels *kernels = chunk->sweep->kernels;
	float *m = (float *)chunk->parts[CHUNK_M].data + at;
	float *v = (float *)chunk->parts[CHUNK_V].data + at;

	if (chunk->section == SECTION_BF16)
		kernels->split(constants, count, (uint16_t *)chunk->parts[CHUNK_PARAMETER].data + at,
			       (int16_t *)chunk->parts[CHUNK_REMAINDER].data + at, m, v, gradients);
	else
		kernels->fp32(constants, count, (float *)chunk->parts[CHUNK_PARAMETER].data + at, m, v,
			      gradients);
}

static void update_unit(const struct chunk *chunk, uint32_t index, uint64_t first, uint64_t count,
			uint64_t at)
{
	const struct job *job = chunk->sweep->job;
	const struct unit *unit = &job->catalog.units[index];
	const float *gradients = section_sum(job, index, chunk->section);

	if (!gradient_has_content(job, index))
		return;
	for (uint32_t i = 0; i < unit->run_count[chunk->section]; i++) {
		const struct run *run = &unit->runs[chunk->section][i];
		const struct group *group = &job->decided_rates.groups[run->group];
		struct adamw_rates rates = { .learning_rate = (double)job->decided_rates.learning_rate *
							      (double)group->learning_rate,
					     .beta1 = group->beta1,
					     .beta2 = group->beta2,
					     .epsilon = group->epsilon,
					     .weight_decay = group->weight_decay };
		struct adamw_constants constants;
		uint64_t from, length;

		if (!intersect(first, count, run->first, run->count, &from, &length))
			continue;
		adamw_constants(&rates, unit->updates + 1, job->factor, &constants);
		update_run(chunk, &constants, gradients + from, at + (from - first), length);
	}
}

static void compute_units(const struct chunk *chunk)
{
	const struct job *job = chunk->sweep->job;
	const struct pack *pack = &job->catalog.packs[chunk->pack];

	for (uint32_t u = pack->first_unit; u < pack->first_unit + pack->unit_count; u++) {
		const struct unit *unit = &job->catalog.units[u];
		uint64_t unit_first = unit->pack_first[chunk->section], from, count;

		if (!intersect(chunk->first, chunk->count, unit_first, unit->layout.elements[chunk->section],
			       &from, &count))
			continue;
		if (chunk->sweep->is_initializing)
			initialize_unit(chunk, u, from - unit_first, count, from - chunk->first);
		else
			update_unit(chunk, u, from - unit_first, count, from - chunk->first);
	}
}

/* While the data is still in the cache. */
static void compute_checksums(struct chunk_part *part)
{
	const struct store_transfer *transfer = &part->transfer;

	for (uint64_t at = 0, block = 0; at < transfer->length; at += STORE_BLOCK_BYTES, block++) {
		uint64_t left = transfer->length - at;

		part->checksums[block] = store_checksum(part->store, transfer->stream, transfer->offset + at,
							(char *)part->data + at,
							left < STORE_BLOCK_BYTES ? left : STORE_BLOCK_BYTES);
	}
}

static void run_chunk(struct work *work)
{
	struct chunk *chunk = container_of(work, struct chunk, work);

	compute_units(chunk);
	for (int i = 0; i < CHUNK_STREAMS; i++)
		if (chunk->parts[i].is_written)
			compute_checksums(&chunk->parts[i]);
}

/* ---- Transfers ---- */

static void retire(struct chunk *chunk)
{
	struct sweep *sweep = chunk->sweep;
	struct job *job = sweep->job;
	struct residence *residence = &job->residences[chunk->pack];
	struct staging_buffers *buffers = TAKE_PTR(chunk->buffers);

	residence->unwritten--;
	residence->writes--;
	sweep->running--;
	queue_push(&sweep->free_chunks, &chunk->link);
	sweep_check_pack(job, chunk->pack);
	if (residence->unwritten == 0)
		tensor_resume(job);
	if (buffers)
		staging_give(&job->node->staging, buffers);
	job_settle(job);
}

static void fail_chunk(struct chunk *chunk, const struct chunk_part *part, int status)
{
	static const char *const names[] = { "parameters", "remainders", "m", "v" };
	struct sweep *sweep = chunk->sweep;
	long stream = part - chunk->parts;

	chunk->status = status;
	if (sweep->has_failed)
		return;
	sweep->has_failed = true;
	job_break(sweep->job, status, "unit \"%s\", %s, cannot be %s %s at byte %llu: %s",
		  pack_name(sweep->job, chunk->pack), names[stream],
		  part->transfer.direction == TIER_READ ? "read from" : "written to",
		  part->transfer.fault.device ? part->transfer.fault.device : "the store",
		  (unsigned long long)part->transfer.fault.device_offset, store_error(status));
}

static void on_transferred(struct store_transfer *transfer, int status);

static void submit_parts(struct chunk *chunk, enum tier_direction direction)
{
	for (int i = 0; i < CHUNK_STREAMS; i++) {
		struct chunk_part *part = &chunk->parts[i];

		if (!(direction == TIER_READ ? part->is_read : part->is_written))
			continue;
		part->transfer.direction = direction;
		part->transfer.priority = direction == TIER_READ ? TIER_PREFETCH : TIER_WRITE_BACK;
		part->transfer.buffer = part->data;
		part->transfer.checksums = direction == TIER_WRITE ? part->checksums : NULL;
		part->transfer.done = on_transferred;
		int r = store_submit(part->store, &part->transfer);

		if (r < 0) {
			fail_chunk(chunk, part, r);
			continue;
		}
		chunk->transfers_left++;
		if (direction == TIER_READ)
			chunk->sweep->job->statistics.update_read_bytes += part->transfer.length;
		else if (chunk->sweep->is_initializing)
			chunk->sweep->job->statistics.initialize_written_bytes += part->transfer.length;
		else
			chunk->sweep->job->statistics.update_written_bytes += part->transfer.length;
	}
}

static void on_computed(struct work *work)
{
	struct chunk *chunk = container_of(work, struct chunk, work);
	struct job *job = chunk->sweep->job;

	chunk->transfers_left = 1;
	submit_parts(chunk, TIER_WRITE);
	job->residences[chunk->pack].uncomputed--;
	sweep_check_pack(job, chunk->pack);
	if (--chunk->transfers_left == 0)
		retire(chunk);
}

static void compute(struct chunk *chunk)
{
	struct job *job = chunk->sweep->job;

	if (chunk->status < 0) {
		job->residences[chunk->pack].uncomputed--;
		retire(chunk);
		return;
	}
	chunk->work = (struct work){ .run = run_chunk, .done = on_computed, .urgency = WORK_NORMAL };
	workers_submit(job->node->workers, &chunk->work);
}

static void on_transferred(struct store_transfer *transfer, int status)
{
	struct chunk_part *part = container_of(transfer, struct chunk_part, transfer);
	struct chunk *chunk = part->chunk;

	if (status < 0)
		fail_chunk(chunk, part, status);
	if (--chunk->transfers_left > 0)
		return;
	if (transfer->direction == TIER_READ)
		compute(chunk);
	else
		retire(chunk);
}

/* ---- Start ---- */

static void set_part(struct chunk *chunk, enum chunk_stream index, struct store *store, bool is_nvme,
		     uint32_t stream, uint64_t section_offset, uint64_t element_bytes, void *buffer)
{
	struct chunk_part *part = &chunk->parts[index];
	uint64_t offset = section_offset + chunk->first * element_bytes;

	*part = (struct chunk_part){ .chunk = chunk };
	part->transfer.stream = stream;
	part->transfer.offset = offset;
	part->transfer.length = size_align(chunk->count * element_bytes, STORE_PAGE_BYTES);
	part->data = buffer;
	if (is_nvme)
		part->store = store;
	else if (store)
		part->data = store_address(store, stream, offset);
}

static void set_parameter(struct chunk *chunk, uint64_t element_bytes)
{
	const struct sweep *sweep = chunk->sweep;
	const struct job *job = sweep->job;
	void *address = chunk->buffers ? chunk->buffers->parameter : NULL;

	if (job->residences[chunk->pack].slot != SLOT_NONE)
		address = residency_address(job, chunk->pack) +
			  job->catalog.packs[chunk->pack].slot_offset[chunk->section] +
			  chunk->first * element_bytes;
	set_part(chunk, CHUNK_PARAMETER, job->parameter_store, job->has_nvme_parameters,
		 job->streams.parameter[chunk->section], job->places[chunk->pack].parameter[chunk->section],
		 element_bytes, address);
	chunk->parts[CHUNK_PARAMETER].is_read =
		job->has_nvme_parameters && sweep->was_absent && !sweep->is_initializing;
	chunk->parts[CHUNK_PARAMETER].is_written = job->has_nvme_parameters;
}

/* Fresh moments are zeros, which a store has without being told. */
static void set_state(struct chunk *chunk)
{
	const struct sweep *sweep = chunk->sweep;
	const struct job *job = sweep->job;
	const struct pack_place *place = &job->places[chunk->pack];
	struct staging_buffers *buffers = chunk->buffers;

	chunk->parts[CHUNK_REMAINDER] = (struct chunk_part){ .chunk = chunk };
	if (chunk->section == SECTION_BF16) {
		set_part(chunk, CHUNK_REMAINDER, job->optimizer_store, job->has_nvme_optimizer,
			 job->streams.remainder, place->remainder, 2,
			 buffers ? buffers->parameter + CHUNK_ELEMENTS * 2 : NULL);
		chunk->parts[CHUNK_REMAINDER].is_read = job->has_nvme_optimizer && !sweep->is_initializing;
		chunk->parts[CHUNK_REMAINDER].is_written = job->has_nvme_optimizer;
	}
	for (int moment = 0; moment < 2; moment++) {
		enum chunk_stream index = moment == 0 ? CHUNK_M : CHUNK_V;

		set_part(chunk, index, job->optimizer_store, job->has_nvme_optimizer,
			 job->streams.moments[moment][chunk->section], place->moments[moment][chunk->section],
			 4,
			 !buffers      ? NULL
			 : moment == 0 ? buffers->m
				       : buffers->v);
		chunk->parts[index].is_read = chunk->parts[index].is_written =
			job->has_nvme_optimizer && !sweep->is_initializing;
	}
}

void chunk_start(struct sweep *sweep, struct chunk *chunk)
{
	struct job *job = sweep->job;
	struct residence *residence = &job->residences[sweep->pack];
	uint64_t left = job->catalog.packs[sweep->pack].elements[sweep->section] - sweep->first;

	chunk->pack = sweep->pack;
	chunk->section = sweep->section;
	chunk->first = sweep->first;
	chunk->count = left < CHUNK_ELEMENTS ? left : CHUNK_ELEMENTS;
	chunk->status = 0;
	set_parameter(chunk, section_element_bytes(chunk->section));
	set_state(chunk);
	sweep->first += chunk->count;
	sweep->running++;
	residence->uncomputed++;
	residence->unwritten++;
	residence->writes++;
	chunk->transfers_left = 1;
	submit_parts(chunk, TIER_READ);
	if (--chunk->transfers_left == 0)
		compute(chunk);
}
