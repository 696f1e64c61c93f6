/* A chunk: elements of a pack's section that are read, updated by a worker and written together. */
#include "common/size.h"
#include "daemon/residency/residency.h"
#include "daemon/update/early.h"
#include "daemon/model/model.h"
#include "daemon/update/own.h"
#include "daemon/update/sweep.h"
#include "daemon/update/step_listeners.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/warm.h"

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
	struct warm_range *range = TAKE_PTR(chunk->warm);

	if (chunk->status == 0 && !chunk->is_deferred)
		warm_note_written(job, range);
	warm_give(job, range, chunk->section, chunk->first, chunk->status == 0);
}

static void retire(struct chunk *chunk)
{
	struct sweep *sweep = chunk->sweep;
	struct job *job = sweep->job;
	struct pack_update *update = pack_update(job, chunk->pack);
	struct staging_buffer *buffer = TAKE_PTR(chunk->buffer);

	update->unwritten--;
	if (!sweep->is_early)
		residency_end_write(job, chunk->pack);
	sweep->running--;
	queue_push(&sweep->free_chunks, &chunk->link);
	if (chunk->warm)
		give_warm(chunk);
	check_pack(chunk);
	if (update->unwritten == 0) {
		early_end_adoption(job, chunk->pack);
		job->update->sweep_listener->written(job);
	}
	/* Who got it next could have another job's bytes in it, with checksums that match them. */
	if (buffer && !chunk->gpu.is_lost)
		staging_give(job->node->staging, buffer);
	job_settle(job);
}

static void fail_chunk(struct chunk *chunk, const struct chunk_stream *stream, int status)
{
	struct sweep *sweep = chunk->sweep;
	char what[LOCATION_TEXT];
	struct location location;

	chunk->status = status;
	if (sweep->has_failed || job_is_broken(sweep->job) || job_is_ending(sweep->job))
		return;
	if (sweep->is_early && early_is_ending(sweep->job) && stream->transfer.direction == TIER_READ) {
		damage_tell_read(sweep->job, &stream->transfer, status,
				 "that update had been withdrawn, and the next one reads it again");
		return;
	}
	sweep->has_failed = true;
	struct log_fields fault = store_fault(sweep->job, chunk->pack, &stream->transfer);

	location_of_fault(sweep->job, &stream->transfer, &location);
	job_break(sweep->job, &fault, "%s, cannot be %s %s at byte %llu: %s", location_print(&location, what),
		  stream->transfer.direction == TIER_READ ? "read from" : "written to",
		  fault.device ? fault.device : "the store",
		  (unsigned long long)stream->transfer.fault.device_offset, store_error(status));
}

/* What lies on the disk is right: it came wrong. */
static void tell_differed(const struct chunk *chunk, struct chunk_stream *stream)
{
	const struct store_transfer *transfer = &stream->transfer;
	const struct store_range range = { transfer->stream, transfer->offset, transfer->length };
	char what[LOCATION_TEXT];
	struct location location;

	stream->has_differed = false;
	location_find(chunk->sweep->job, &range, &location);
	events_of_job(
		chunk->sweep->job, EVENT_READ_FAILED,
		&(struct log_fields){ .unit = pack_name(chunk->sweep->job, chunk->pack), .tier = "nvme" },
		"%s: its checksum did not match, and matches now that it was read once more; the update "
		"goes on with that: look at the disk, and at the machine's memory",
		location_print(&location, what));
}

static void on_transferred(struct store_transfer *transfer, int status);

/* Whoever gathers the pack waits for its writes, too. */
static bool is_published_when_written(const struct chunk *chunk)
{
	return chunk->sweep->is_early || !residency_has_slot(chunk->sweep->job, chunk->pack);
}

enum tier_priority sweep_read_priority(const struct sweep *sweep, uint32_t pack)
{
	/* Nobody waits for what is early; parameters that are read ahead are used before. Once the step is
	 * decided the next forward pass waits for it. */
	if (sweep->is_early && !early_is_decided(sweep->job))
		return TIER_WRITE_BACK;
	return residency_is_awaited(sweep->job, pack) ? TIER_DEMAND : TIER_PREFETCH;
}

static enum tier_priority priority_of(const struct chunk *chunk, enum tier_direction direction)
{
	enum tier_priority priority = sweep_read_priority(chunk->sweep, chunk->pack);

	if (direction == TIER_READ || chunk->sweep->is_early)
		return priority;
	return is_published_when_written(chunk) && priority == TIER_DEMAND ? priority : TIER_WRITE_BACK;
}

static void submit_stream(struct chunk *chunk, struct chunk_stream *stream, enum tier_direction direction)
{
	bool is_written = direction == TIER_WRITE;
	int r;

	stream->transfer.direction = direction;
	stream->transfer.priority = priority_of(chunk, direction);
	stream->transfer.is_held = is_written && chunk->sweep->is_early;
	stream->transfer.checksums = is_written ? stream->checksums : NULL;
	stream->transfer.expected = stream->is_unverified ? stream->checksums : NULL;
	stream->transfer.done = on_transferred;
	r = store_submit(stream->store, &stream->transfer);
	if (r < 0) {
		fail_chunk(chunk, stream, r);
		return;
	}
	chunk->transfers_left++;
	stream->is_moving = true;
	sweep_note_moving(chunk->sweep, stream->transfer.length);
	account_transfer(chunk->sweep->job,
			 chunk->sweep->is_initializing ? STATISTICS_WRITE_BACK : STATISTICS_UPDATE,
			 &stream->transfer);
}

static void submit_reads(struct chunk *chunk)
{
	for (int i = 0; i < CHUNK_STREAMS; i++)
		if (chunk->streams[i].is_read) {
			chunk->streams[i].is_unverified = true;
			submit_stream(chunk, &chunk->streams[i], TIER_READ);
		}
}

static void submit_writes(struct chunk *chunk)
{
	for (int i = 0; i < CHUNK_STREAMS; i++)
		if (chunk->streams[i].is_written)
			submit_stream(chunk, &chunk->streams[i], TIER_WRITE);
}

/* The slot is not read any more. */
static void end_computing(struct chunk *chunk)
{
	struct job *job = chunk->sweep->job;

	pack_update(job, chunk->pack)->uncomputed--;
	if (chunk->resident)
		residency_unpin(job, chunk->pack);
}

static void compute(struct chunk *chunk);

/* What did not match is read once more, and verified by the store: it knows where the damage is. */
static bool read_again(struct chunk *chunk)
{
	bool has_begun = false;

	chunk->transfers_left = 1;
	for (int i = 0; i < CHUNK_STREAMS; i++)
		if (chunk->streams[i].is_unverified) {
			chunk->streams[i].is_unverified = false;
			chunk->streams[i].has_differed = true;
			submit_stream(chunk, &chunk->streams[i], TIER_READ);
			has_begun = true;
		}
	if (--chunk->transfers_left == 0 && has_begun)
		compute(chunk);
	return has_begun;
}

static void on_computed(struct work *work)
{
	struct chunk *chunk = container_of(work, struct chunk, work);
	struct job *job = chunk->sweep->job;

	if (read_again(chunk))
		return;
	/* What is adopted was updated before. */
	if (!chunk->is_adopted)
		trace_worked(job, chunk->sweep->is_initializing ? TRACE_INITIALIZE : TRACE_UPDATE,
			     job->catalog.packs[chunk->pack].first_unit, chunk->count, work);
	chunk_end_side(chunk);
	chunk->transfers_left = 1;
	submit_writes(chunk);
	end_computing(chunk);
	check_pack(chunk);
	if (--chunk->transfers_left == 0)
		retire(chunk);
}

static void submit_work(struct chunk *chunk, void (*run)(struct work *), void (*done)(struct work *))
{
	struct job *job = chunk->sweep->job;

	chunk->work = (struct work){ .run = run, .done = done, .urgency = WORK_NORMAL };
	chunk->work.is_timed = trace_is_on(job);
	workers_submit(job->node->workers, &chunk->work);
}

static void give_up(struct chunk *chunk)
{
	chunk_end_side(chunk);
	end_computing(chunk);
	retire(chunk);
}

static void on_updated_by_gpu(struct chunk *chunk)
{
	if (chunk->status == 0) {
		submit_work(chunk, chunk_finish, on_computed);
		return;
	}
	give_up(chunk);
}

static void on_prepared(struct work *work)
{
	struct chunk *chunk = container_of(work, struct chunk, work);

	if (!read_again(chunk))
		chunk_update_on_gpu(chunk, on_updated_by_gpu);
}

static void compute(struct chunk *chunk)
{
	if (chunk->status < 0) {
		give_up(chunk);
		return;
	}
	chunk_choose_side(chunk);
	if (chunk->gpu.updates)
		submit_work(chunk, chunk_prepare, on_prepared);
	else
		submit_work(chunk, chunk_run, on_computed);
}

static void on_transferred(struct store_transfer *transfer, int status)
{
	struct chunk_stream *stream = container_of(transfer, struct chunk_stream, transfer);
	struct chunk *chunk = stream->chunk;

	stream->is_moving = false;
	sweep_note_moved(chunk->sweep, transfer->length);
	trace_transferred(chunk->sweep->job, chunk->pack, stream->store, transfer);
	if (status < 0)
		fail_chunk(chunk, stream, status);
	else if (stream->has_differed)
		tell_differed(chunk, stream);
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
		struct chunk_stream *stream = &chunk->streams[i];

		if (stream->is_moving &&
		    (stream->transfer.direction == TIER_READ || is_published_when_written(chunk)))
			store_raise(stream->store, &stream->transfer, priority);
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

static void set_stream(struct chunk *chunk, unsigned index, struct store *store, bool is_nvme,
		       const struct store_range *piece, void *buffer)
{
	struct chunk_stream *stream = &chunk->streams[index];

	*stream = (struct chunk_stream){ .chunk = chunk };
	stream->transfer.stream = piece->stream;
	stream->transfer.offset = piece->offset;
	stream->transfer.length = size_align(piece->length, STORE_PAGE_BYTES);
	stream->data = buffer;
	if (is_nvme)
		stream->store = store;
	else if (store)
		stream->data = store_address(store, piece->stream, piece->offset);
	stream->transfer.buffer = stream->data;
}

/* Else a backup does, of what is in host memory. */
bool sweep_writes_parameters(const struct job *job)
{
	return job->location.has_nvme_parameters ||
	       (job->location.has_stored_parameters && !job->location.has_backup);
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
	void *address = chunk->buffer ? chunk->buffer->data : NULL, *slot = NULL;
	bool is_stored = sweep_writes_parameters(job), is_absent = sweep->was_absent;
	const struct store_range piece =
		job_find_parameters(job, chunk->pack, chunk->section, chunk->first, chunk->count);

	if (residency_has_slot(job, chunk->pack))
		slot = residency_element(job, chunk->pack, chunk->section, chunk->first);
	chunk->resident = NULL;
	if (sweep->is_early && residency_state(job, chunk->pack) == DIRECTORY_RESIDENT)
		chunk->resident = slot;
	if (sweep->is_early)
		is_absent = !chunk->resident;
	else if (slot)
		address = slot;
	set_stream(chunk, CHUNK_PARAMETER, is_stored ? job->location.parameter_store : NULL, is_stored,
		   &piece, address);
	chunk->streams[CHUNK_PARAMETER].is_read = is_stored && is_absent && is_read(chunk);
	chunk->streams[CHUNK_PARAMETER].is_written =
		is_stored && !chunk->is_adopted && (!chunk->is_deferred || job->location.has_nvme_parameters);
}

/* Fresh slots are zeros, which a store has without being told. */
static void set_state(struct chunk *chunk, unsigned state, void *buffer)
{
	const struct job *job = chunk->sweep->job;
	struct chunk_stream *stream = &chunk->streams[CHUNK_STATE + state];
	bool is_initializing = chunk->sweep->is_initializing;
	bool has_slots = !is_initializing && !chunk->sweep->is_writing;

	const struct store_range kept =
		job_find_kept(job, chunk->pack, chunk->section, state, chunk->first, chunk->count);

	set_stream(chunk, CHUNK_STATE + state, job->location.optimizer_store,
		   job->location.has_nvme_optimizer, &kept, buffer);
	stream->is_read = job->location.has_nvme_optimizer && !chunk->is_filled &&
			  (state == STATE_MASTER || has_slots) &&
			  (is_read(chunk) || (is_initializing && job->location.has_given_masters));
	stream->is_written = job->location.has_nvme_optimizer && !chunk->is_adopted && !chunk->is_deferred &&
			     (state == STATE_MASTER || has_slots);
}

/* What is warm stays where it is. */
static char *state_address(const struct chunk *chunk, unsigned state)
{
	if (chunk->warm)
		return warm_state(chunk->sweep->job, chunk->warm, chunk->pack, chunk->section, chunk->first,
				  state);
	return chunk->buffer ? chunk_staged_state(chunk->buffer->data, chunk->section, state, chunk->count)
			     : NULL;
}

static void set_states(struct chunk *chunk)
{
	const struct job_options *options = &chunk->sweep->job->options;

	for (unsigned state = 0; state < STATES_MAXIMUM; state++) {
		chunk->streams[CHUNK_STATE + state] = (struct chunk_stream){ .chunk = chunk };
		if (state < state_count(options) && state_exists(chunk->section, state))
			set_state(chunk, state, state_address(chunk, state));
	}
}

void chunk_start(struct sweep *sweep, struct chunk *chunk)
{
	struct job *job = sweep->job;
	struct pack_update *update = pack_update(job, sweep->pack);
	uint64_t left = job->catalog.packs[sweep->pack].elements[sweep->section] - sweep->first;
	uint64_t most = chunk_elements(&job->options, sweep->section);

	chunk->pack = sweep->pack;
	chunk->section = sweep->section;
	chunk->first = sweep->first;
	chunk->count = left < most ? left : most;
	chunk->pass = sweep->pass;
	chunk->pass_before = sweep->pass_before;
	chunk->status = 0;
	chunk->gpu.is_lost = false;
	chunk->is_adopted = sweep->is_adopting;
	chunk->is_kept = early_keeps(job);
	chunk->is_deferred = chunk->warm && chunk->warm->is_deferred;
	if (chunk->is_deferred)
		warm_mark(job, chunk->warm, true);
	set_parameter(chunk);
	set_states(chunk);
	sweep->first += chunk->count;
	sweep->running++;
	update->uncomputed++;
	update->unwritten++;
	if (!sweep->is_early)
		residency_begin_write(job, sweep->pack);
	if (chunk->resident)
		residency_pin(job, chunk->pack);
	chunk->transfers_left = 1;
	submit_reads(chunk);
	if (--chunk->transfers_left == 0)
		compute(chunk);
}
