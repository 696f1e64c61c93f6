/* A sweep passes over the packs and applies the decided step to them, or, the first time, splits the masters
 * that were written.
 *
 * It cuts each trainable section into chunks. A chunk reads what is not in host memory into staging buffers,
 * is updated by a worker, is written to free places, and gives its buffers to the next one; as many are on
 * their way as there are buffers. A pack that is resident is updated in its slot; others stream past. A pack
 * is published when its last chunk is computed, so that gathers go on long before the sweep ends. */
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/size.h"
#include "daemon/job.h"
#include "offload/format.h"
#include "offload/initializer.h"

#define LEASE_PATIENCE_NS UINT64_C(1000000000)
/* Packs that are passed over, being loaded, read or leased, before the sweep waits. */
#define BEGIN_TRIES 16
#define CHUNK_BLOCKS (CHUNK_ELEMENTS * sizeof(float) / STORE_BLOCK_BYTES)

enum chunk_stream { CHUNK_PARAMETER, CHUNK_REMAINDER, CHUNK_M, CHUNK_V, CHUNK_STREAMS };

/* One stream's part of a chunk. */
struct chunk_part {
	struct store_transfer transfer;
	struct chunk *chunk;
	struct store *store; /* NULL: in host memory, nothing to transfer */
	bool is_read, is_written;
	void *data;
	uint64_t checksums[CHUNK_BLOCKS];
};

struct chunk {
	struct queue link; /* of the sweep's free ones */
	struct sweep *sweep;
	uint32_t pack;
	enum unit_section section;
	uint64_t first, count; /* elements of the pack's section */
	struct staging_buffers *buffers;
	struct chunk_part parts[CHUNK_STREAMS];
	unsigned transfers_left;
	int status;
	struct work work;
};

struct sweep {
	struct job *job;
	bool is_initializing;
	bool has_failed;
	bool is_picking; /* sweep_go_on() is at work: no second one inside it */
	uint32_t *order;
	uint32_t packs_left; /* not begun */
	uint32_t cursor;     /* in order: packs before it have begun */
	unsigned running;    /* chunks in flight */

	uint32_t pack; /* whose chunks are being started; SLOT_NONE: none */
	bool was_absent;
	enum unit_section section;
	uint64_t first;

	struct staging_wish wish;
	bool is_wishing;
	struct staging_buffers *granted;
	struct event *lease_timer;
	struct queue free_chunks;
	struct chunk chunks[];
};

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
	const struct adamw_kernels *kernels = adamw_kernels(simd_level());
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

/* ---- The end of chunks, packs and the sweep ---- */

static void finish_sweep(struct job *job)
{
	bool has_failed = job->sweep->has_failed, was_initializing = job->sweep->is_initializing;

	sweep_free(job);
	if (has_failed) {
		job_settle(job);
		node_check_idle(job->node);
		return;
	}
	if (!was_initializing) {
		step_applied(job);
		return;
	}
	job->phase = JOB_TRAINED;
	log_info("job %s: %llu parameters in %u units, %u ranks, stage %u; %llu MiB of host memory, %llu MiB "
		 "on NVMe",
		 job->name, (unsigned long long)job->catalog.parameters, job->catalog.unit_count,
		 job->options.world_size, job->options.stage, (unsigned long long)(job->host_bytes / MIB),
		 (unsigned long long)(job->nvme_bytes / MIB));
	job_settle(job);
}

/* The pack's bytes are all new. */
static void finish_pack(struct job *job, uint32_t pack)
{
	struct residence *residence = &job->residences[pack];

	residence->sweep = SWEEP_NOTHING;
	if (residence->slot != SLOT_NONE)
		residency_publish(job, pack, job->decided);
	else
		residency_set_version(job, pack, job->decided);
	for (uint32_t u = job->catalog.packs[pack].first_unit;
	     u < job->catalog.packs[pack].first_unit + job->catalog.packs[pack].unit_count; u++)
		gradient_try(job, u);
}

static void count_updates(struct job *job, uint32_t pack)
{
	const struct pack *units = &job->catalog.packs[pack];

	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++) {
		if (!job->sweep->is_initializing && gradient_has_content(job, u)) {
			job->catalog.units[u].updates++;
			job->catalog.units[u].last_update = job->decided;
		}
		gradient_reset_unit(job, u);
	}
}

/* A pack in a slot can be used when it is computed; one that only streams past, when it is written. */
static void check_pack(struct job *job, uint32_t pack)
{
	struct residence *residence = &job->residences[pack];

	if (residence->sweep != SWEEP_RUNNING || !residence->is_issued || residence->uncomputed > 0 ||
	    job->sweep->has_failed)
		return;
	if (residence->slot == SLOT_NONE && residence->unwritten > 0)
		return;
	count_updates(job, pack);
	finish_pack(job, pack);
}

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
	check_pack(job, chunk->pack);
	if (residence->unwritten == 0)
		tensor_resume(job);
	if (buffers)
		staging_give(&job->node->staging, buffers);
	sweep_go_on(job);
	residency_serve(job);
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
	check_pack(job, chunk->pack);
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

/* ---- Starting chunks ---- */

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

static void start_chunk(struct sweep *sweep, struct chunk *chunk)
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

/* Moves to the section's next chunk, or the next section. False: the pack has no more. */
static bool find_chunk(struct sweep *sweep)
{
	const struct pack *pack = &sweep->job->catalog.packs[sweep->pack];

	while (sweep->first >= pack->elements[sweep->section]) {
		if (sweep->section == SECTION_FP32)
			return false;
		sweep->section = SECTION_FP32;
		sweep->first = 0;
	}
	return true;
}

static bool needs_staging(const struct sweep *sweep)
{
	const struct job *job = sweep->job;

	return job->has_nvme_optimizer ||
	       (job->has_nvme_parameters && job->residences[sweep->pack].slot == SLOT_NONE);
}

static void on_staging(struct staging_wish *wish, struct staging_buffers *buffers)
{
	struct sweep *sweep = container_of(wish, struct sweep, wish);

	sweep->is_wishing = false;
	sweep->granted = buffers;
	sweep_go_on(sweep->job);
}

/* A free chunk with the buffers that it needs, or NULL: the sweep goes on when they come. */
static struct chunk *take_chunk(struct sweep *sweep)
{
	struct queue *link = queue_first(&sweep->free_chunks);
	struct staging_buffers *buffers = NULL;

	if (!link || sweep->is_wishing)
		return NULL;
	if (needs_staging(sweep)) {
		buffers = sweep->granted ? TAKE_PTR(sweep->granted)
					 : staging_take(&sweep->job->node->staging, &sweep->wish);
		if (!buffers) {
			sweep->is_wishing = true;
			return NULL;
		}
	}
	struct chunk *chunk = queue_entry(link, struct chunk, link);

	queue_remove(link);
	chunk->buffers = buffers;
	return chunk;
}

/* ---- Picking packs ---- */

static void on_lease_timer(evutil_socket_t fd, short events, void *argument)
{
	sweep_go_on(argument);
}

/* Nobody can lawfully hold a lease now: all ranks have closed the step without one. */
static void wait_for_holder(struct sweep *sweep, uint32_t pack, struct member *holder)
{
	static const struct timeval soon = { .tv_usec = 500 };
	struct job *job = sweep->job;
	struct port *port = holder->port;
	char reason[160];

	event_add(sweep->lease_timer, &soon);
	if (clock_now_ns() - job->decided_ns < LEASE_PATIENCE_NS)
		return;
	snprintf(reason, sizeof(reason), "rank %u (pid %d) has kept a lease on unit \"%.40s\" through a step",
		 holder->rank, (int)holder->pid, pack_name(job, pack));
	log_warning("job %s: %s; its session ends", job->name, reason);
	holder->has_void_leases = true;
	if (holder->has_left)
		member_release(holder);
	else
		job_leave(holder, false, reason);
	if (port && port->ops->close)
		port->ops->close(port, reason);
}

static bool has_frozen(const struct pack *pack)
{
	return pack->elements[SECTION_FROZEN_BF16] + pack->elements[SECTION_FROZEN_FP32] > 0;
}

/* Where there is room the pack stays in host memory after it: the next pass wants it. */
static void try_slot(struct job *job, uint32_t pack)
{
	struct residence *residence = &job->residences[pack];

	if (has_frozen(&job->catalog.packs[pack]))
		return;
	prefetch_find_next_uses(job);
	if (residency_take_slot(job, pack, queue_is_empty(&residence->waiters) ? job->next_use[pack] : 0))
		residency_mark_updating(job, pack);
}

/* False: it has to wait. */
static bool begin_pack(struct sweep *sweep, uint32_t pack)
{
	struct job *job = sweep->job;
	struct residence *residence = &job->residences[pack];
	struct member *holder = NULL;

	if (residence->state == DIRECTORY_LOADING || residence->writes > 0 || residence->pins > 0)
		return false;
	if (residence->state == DIRECTORY_RESIDENT && !residency_begin_update(job, pack, &holder)) {
		wait_for_holder(sweep, pack, holder);
		return false;
	}
	sweep->was_absent = residence->state == DIRECTORY_ABSENT;
	if (sweep->was_absent)
		try_slot(job, pack);
	residence->sweep = SWEEP_RUNNING;
	residence->is_issued = false;
	residence->uncomputed = residence->unwritten = 0;
	sweep->pack = pack;
	sweep->section = SECTION_BF16;
	sweep->first = 0;
	sweep->packs_left--;
	while (sweep->cursor < job->catalog.pack_count &&
	       job->residences[sweep->order[sweep->cursor]].sweep != SWEEP_WAITING)
		sweep->cursor++;
	return true;
}

/* A pack that somebody waits for is next; else the order decides. One that cannot begin now lets others pass
 * it. */
static bool begin_next_pack(struct sweep *sweep)
{
	const struct job *job = sweep->job;
	unsigned tries = 0;

	for (int is_wanted = 1; is_wanted >= 0; is_wanted--)
		for (uint32_t i = sweep->cursor; i < job->catalog.pack_count && tries < BEGIN_TRIES; i++) {
			const struct residence *residence = &job->residences[sweep->order[i]];

			if (residence->sweep != SWEEP_WAITING ||
			    (is_wanted && queue_is_empty(&residence->waiters)))
				continue;
			if (begin_pack(sweep, sweep->order[i]))
				return true;
			tries++;
		}
	return false;
}

static void end_pack(struct sweep *sweep)
{
	uint32_t pack = sweep->pack;

	sweep->pack = SLOT_NONE;
	sweep->job->residences[pack].is_issued = true;
	check_pack(sweep->job, pack);
}

/* One thing at a time, until something has to be waited for. */
static bool advance(struct sweep *sweep)
{
	struct chunk *chunk;

	if (sweep->pack == SLOT_NONE)
		return begin_next_pack(sweep);
	if (!find_chunk(sweep)) {
		end_pack(sweep);
		return true;
	}
	chunk = take_chunk(sweep);
	if (!chunk)
		return false;
	start_chunk(sweep, chunk);
	return true;
}

void sweep_go_on(struct job *job)
{
	struct sweep *sweep = job->sweep;

	if (!sweep || sweep->is_picking)
		return;
	sweep->is_picking = true;
	while (!sweep->has_failed && advance(sweep))
		;
	sweep->is_picking = false;
	if (sweep->running > 0 || (!sweep->has_failed && (sweep->packs_left > 0 || sweep->pack != SLOT_NONE)))
		return;
	finish_sweep(job);
}

/* ---- Start and end ---- */

static bool has_work(const struct job *job, uint32_t pack, bool is_initializing)
{
	const struct pack *units = &job->catalog.packs[pack];

	if (is_initializing)
		return true;
	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++)
		if (gradient_has_content(job, u))
			return true;
	return false;
}

static int sweep_new(struct job *job, bool is_initializing, struct sweep **ret_sweep)
{
	unsigned count = job->node->staging.count;
	struct sweep *sweep = calloc(1, sizeof(*sweep) + count * sizeof(sweep->chunks[0]));

	if (!sweep)
		return -ENOMEM;
	*sweep = (struct sweep){ .job = job, .is_initializing = is_initializing, .pack = SLOT_NONE };
	sweep->wish.granted = on_staging;
	queue_init(&sweep->wish.link);
	queue_init(&sweep->free_chunks);
	for (unsigned i = 0; i < count; i++) {
		sweep->chunks[i].sweep = sweep;
		queue_push(&sweep->free_chunks, &sweep->chunks[i].link);
	}
	sweep->order = calloc(job->catalog.pack_count, sizeof(*sweep->order));
	sweep->lease_timer = event_new(job->node->loop, -1, 0, on_lease_timer, job);
	*ret_sweep = sweep;
	return sweep->order && sweep->lease_timer ? 0 : -ENOMEM;
}

int sweep_start(struct job *job, bool is_initializing)
{
	int r = sweep_new(job, is_initializing, &job->sweep);

	if (r < 0) {
		sweep_free(job);
		return r;
	}
	prefetch_pass_order(job, job->sweep->order);
	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
		if (has_work(job, pack, is_initializing)) {
			job->residences[pack].sweep = SWEEP_WAITING;
			job->sweep->packs_left++;
		}
	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
		if (job->residences[pack].sweep == SWEEP_NOTHING)
			residency_set_version(job, pack, job->decided);
	sweep_go_on(job);
	return 0;
}

void sweep_free(struct job *job)
{
	struct sweep *sweep = TAKE_PTR(job->sweep);

	if (!sweep)
		return;
	if (sweep->is_wishing)
		queue_remove(&sweep->wish.link);
	if (sweep->granted)
		staging_give(&job->node->staging, sweep->granted);
	if (sweep->lease_timer)
		event_free(sweep->lease_timer);
	free(sweep->order);
	free(sweep);
}

void sweep_cancel(struct job *job)
{
	if (!job->sweep)
		return;
	job->sweep->has_failed = true;
	sweep_go_on(job);
}
