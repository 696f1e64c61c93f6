#include "daemon/update/read_ahead.h"

#include <assert.h>
#include <stdlib.h>

#include "common/size.h"
#include "daemon/gradients/gradients.h"
#include "daemon/residency/residency.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/early.h"
#include "daemon/update/own.h"
#include "daemon/update/sweep.h"
#include "daemon/update/warm.h"

struct read_ahead_chunk;

/* Where a chunk begins. */
struct place {
	uint32_t at; /* of the pack, in the order */
	enum unit_section section;
	uint64_t first;
};

/* One state of a chunk. */
struct read_ahead_stream {
	struct store_transfer transfer;
	struct read_ahead_chunk *chunk;
	bool is_moving;
};

/* The states of a chunk. */
struct read_ahead_chunk {
	struct queue link; /* of those that are free, or that are asked for, in their order */
	struct read_ahead *read_ahead;
	uint32_t pack;
	struct place place;
	struct staging_loan loan;
	struct read_ahead_stream streams[STATES_MAXIMUM];
	unsigned moving;
	bool is_void; /* it is given back as soon as nothing of it is on its way */
};

struct read_ahead {
	struct job *job;
	struct queue free, begun;
	uint64_t step;		/* what that one has updated is read */
	uint64_t early_updates; /* until then */
	uint32_t *order;	/* the packs as a pass uses them or, if is_backward, the other way */
	bool is_backward;
	struct place next;
	unsigned chunk_count;
	struct read_ahead_chunk chunks[];
};

/* ---- Life ---- */

static bool is_possible(const struct job *job)
{
	return job->location.has_nvme_optimizer && !job->options.optimizer->is_by_owner &&
	       job->node->staging->count > STAGING_LEAST;
}

static size_t struct_bytes(const struct job *job)
{
	return sizeof(struct read_ahead) + job->node->staging->count * sizeof(struct read_ahead_chunk);
}

uint64_t read_ahead_metadata_bytes(const struct job *job)
{
	return is_possible(job) ? struct_bytes(job) + job->catalog.pack_count * sizeof(uint32_t) : 0;
}

static void raise_chunk(struct read_ahead_chunk *chunk, enum tier_priority priority)
{
	for (unsigned i = 0; i < STATES_MAXIMUM; i++)
		if (chunk->streams[i].is_moving)
			store_raise(chunk->read_ahead->job->location.optimizer_store,
				    &chunk->streams[i].transfer, priority);
}

static bool is_before(struct place one, struct place other)
{
	if (one.at != other.at)
		return one.at < other.at;
	return one.section != other.section ? one.section < other.section : one.first < other.first;
}

/* It is read again when there are buffers. */
static void on_recalled(struct staging_loan *loan)
{
	struct read_ahead_chunk *chunk = container_of(loan, struct read_ahead_chunk, loan);
	struct read_ahead *read_ahead = chunk->read_ahead;

	chunk->is_void = true;
	if (is_before(chunk->place, read_ahead->next))
		read_ahead->next = chunk->place;
	raise_chunk(chunk, TIER_DEMAND);
	job_settle(read_ahead->job);
}

/* NULL: out of memory; then nothing is read ahead. */
static struct read_ahead *read_ahead_new(struct job *job)
{
	struct read_ahead *read_ahead = calloc(1, struct_bytes(job));

	if (!read_ahead)
		return NULL;
	read_ahead->job = job;
	read_ahead->chunk_count = job->node->staging->count;
	read_ahead->order = calloc(job->catalog.pack_count, sizeof(*read_ahead->order));
	queue_init(&read_ahead->free);
	queue_init(&read_ahead->begun);
	for (unsigned i = 0; i < read_ahead->chunk_count; i++) {
		struct read_ahead_chunk *chunk = &read_ahead->chunks[i];

		chunk->read_ahead = read_ahead;
		chunk->loan.recalled = on_recalled;
		queue_init(&chunk->loan.link);
		queue_push(&read_ahead->free, &chunk->link);
	}
	if (!read_ahead->order)
		free(TAKE_PTR(read_ahead));
	return read_ahead;
}

void read_ahead_clear(struct job *job)
{
	struct read_ahead *read_ahead = TAKE_PTR(job->update->read_ahead);

	if (!read_ahead)
		return;
	assert(queue_is_empty(&read_ahead->begun));
	free(read_ahead->order);
	free(read_ahead);
}

/* ---- Chunks ---- */

static bool is_live(const struct job *job)
{
	return job_is_live(job) && job->state == JOB_TRAINED;
}

/* Before the decision updates come as the backward does, which ends with what the forward began with. */
static uint32_t pack_at(const struct read_ahead *read_ahead, uint32_t at)
{
	return read_ahead->order[read_ahead->is_backward ? read_ahead->job->catalog.pack_count - 1 - at : at];
}

static struct staging_buffer *end_chunk(struct read_ahead_chunk *chunk)
{
	queue_remove(&chunk->link);
	queue_push(&chunk->read_ahead->free, &chunk->link);
	return staging_end_loan(chunk->read_ahead->job->node->staging, &chunk->loan);
}

/* Nothing of it is on its way. */
static void give_back(struct read_ahead_chunk *chunk)
{
	struct staging *staging = chunk->read_ahead->job->node->staging;

	staging_give(staging, end_chunk(chunk));
}

static void on_read(struct store_transfer *transfer, int status)
{
	struct read_ahead_stream *stream = container_of(transfer, struct read_ahead_stream, transfer);
	struct read_ahead_chunk *chunk = stream->chunk;
	struct job *job = chunk->read_ahead->job;

	stream->is_moving = false;
	chunk->moving--;
	trace_transferred(job, chunk->pack, job->location.optimizer_store, transfer);
	if (status < 0 && !chunk->is_void && is_live(job))
		damage_tell_read(job, transfer, status,
				 "it was read ahead of its update, which reads it again");
	chunk->is_void |= status < 0;
	if (chunk->moving == 0)
		job_settle(job);
}

static void submit(struct read_ahead_chunk *chunk, struct read_ahead_stream *stream,
		   const struct store_range *kept, char *data)
{
	struct job *job = chunk->read_ahead->job;

	stream->chunk = chunk;
	stream->transfer = (struct store_transfer){ .direction = TIER_READ,
						    .priority = TIER_WRITE_BACK,
						    .stream = kept->stream,
						    .offset = kept->offset,
						    .length = size_align(kept->length, STORE_PAGE_BYTES),
						    .buffer = data,
						    .done = on_read };
	stream->is_moving = store_submit(job->location.optimizer_store, &stream->transfer) == 0;
	if (!stream->is_moving) {
		chunk->is_void = true;
		job_settle(job);
		return;
	}
	chunk->moving++;
	account_transfer(job, STATISTICS_UPDATE, &stream->transfer);
}

static void begin_chunk(struct read_ahead_chunk *chunk, uint64_t count)
{
	const struct read_ahead *read_ahead = chunk->read_ahead;
	const struct job *job = read_ahead->job;

	chunk->place = read_ahead->next;
	chunk->pack = pack_at(read_ahead, read_ahead->next.at);
	chunk->is_void = false;
	for (unsigned state = 0; state < state_count(&job->options); state++) {
		chunk->streams[state].is_moving = false;
		if (!state_exists(chunk->place.section, state))
			continue;
		const struct store_range kept = job_find_kept(job, chunk->pack, chunk->place.section, state,
							      chunk->place.first, count);

		submit(chunk, &chunk->streams[state], &kept,
		       chunk_staged_state(chunk->loan.buffer->data, chunk->place.section, state, count));
	}
}

static struct read_ahead_chunk *find_begun(const struct job *job, uint32_t pack, enum unit_section section,
					   uint64_t first)
{
	if (!job->update->read_ahead)
		return NULL;
	QUEUE_FOREACH (link, &job->update->read_ahead->begun) {
		struct read_ahead_chunk *chunk = queue_entry(link, struct read_ahead_chunk, link);

		if (chunk->pack == pack && chunk->place.section == section && chunk->place.first == first &&
		    !chunk->is_void)
			return chunk;
	}
	return NULL;
}

/* ---- Order ---- */

/* Whether the step has updated it, and nothing has begun to update it since. */
static bool is_wanted(const struct read_ahead *read_ahead, uint32_t pack)
{
	const struct catalog *catalog = &read_ahead->job->catalog;
	const struct pack *units = &catalog->packs[pack];

	if (pack_update(read_ahead->job, pack)->early != EARLY_NOTHING)
		return false;
	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++)
		if (catalog->units[u].updates > 0 && catalog->units[u].last_update >= read_ahead->step)
			return true;
	return false;
}

static bool has_state(const struct job *job, enum unit_section section)
{
	return state_all_bytes(&job->options, section, state_grain(section, STATE_SLOTS)) > 0;
}

/* Neither kept nor asked for. */
static bool is_missing(const struct job *job, uint32_t pack, const struct place *place)
{
	return !warm_has(job, pack, place->section, place->first) &&
	       !find_begun(job, pack, place->section, place->first);
}

/* In the pack that it is at. 0: it has no more; else the elements of the next one. */
static uint64_t find_chunk(const struct job *job, uint32_t pack, struct place *place)
{
	for (; place->section < UNIT_TRAINABLE_SECTIONS; place->section++, place->first = 0) {
		uint64_t all = job->catalog.packs[pack].elements[place->section];
		uint64_t most = chunk_elements(&job->options, place->section);

		for (; place->first < all && has_state(job, place->section); place->first += most)
			if (is_missing(job, pack, place))
				return all - place->first < most ? all - place->first : most;
	}
	return 0;
}

/* 0: there is nothing to read. */
static uint64_t find_next(struct read_ahead *read_ahead)
{
	const struct job *job = read_ahead->job;

	for (; read_ahead->next.at < job->catalog.pack_count;
	     read_ahead->next = (struct place){ read_ahead->next.at + 1 }) {
		uint32_t pack = pack_at(read_ahead, read_ahead->next.at);
		uint64_t count = is_wanted(read_ahead, pack) ? find_chunk(job, pack, &read_ahead->next) : 0;

		if (count > 0)
			return count;
	}
	return 0;
}

void read_ahead_begin(struct job *job)
{
	struct read_ahead *read_ahead;

	/* Of one that is skipped: what is read already is right for the next one, too. */
	if (!is_possible(job) || job->update->is_skipped)
		return;
	if (!job->update->read_ahead)
		job->update->read_ahead = read_ahead_new(job);
	read_ahead = job->update->read_ahead;
	if (!read_ahead)
		return;
	QUEUE_FOREACH (link, &read_ahead->begun)
		queue_entry(link, struct read_ahead_chunk, link)->is_void = true;
	read_ahead->step = job->step;
	read_ahead->is_backward = job->update->early_updates > read_ahead->early_updates;
	read_ahead->early_updates = job->update->early_updates;
	read_ahead->next = (struct place){ 0 };
	prefetch_pass_order(job, true, read_ahead->order);
	job_settle(job);
}

/* ---- In the job's turn ---- */

static void give_back_void(struct read_ahead *read_ahead)
{
	QUEUE_FOREACH (link, &read_ahead->begun) {
		struct read_ahead_chunk *chunk = queue_entry(link, struct read_ahead_chunk, link);

		chunk->is_void |= !is_live(read_ahead->job);
		if (chunk->is_void && chunk->moving == 0)
			give_back(chunk);
	}
	if (!is_live(read_ahead->job))
		read_ahead->next = (struct place){ 0 };
}

/* Between two sweeps, and while nothing can be updated. */
static bool is_time(const struct job *job)
{
	return is_live(job) && !job->update->sweep && job->decided == job->step && !early_has_work(job);
}

static bool read_next(struct read_ahead *read_ahead)
{
	struct queue *link = queue_first(&read_ahead->free);
	struct read_ahead_chunk *chunk = link ? queue_entry(link, struct read_ahead_chunk, link) : NULL;
	uint64_t count = chunk ? find_next(read_ahead) : 0;

	if (count == 0)
		return false;
	chunk->loan.share = budget_device_share(read_ahead->job);
	if (!staging_lend(read_ahead->job->node->staging, &chunk->loan))
		return false;
	queue_remove(link);
	queue_push(&read_ahead->begun, link);
	begin_chunk(chunk, count);
	read_ahead->next.first += count;
	return true;
}

void read_ahead_go_on(struct job *job)
{
	struct read_ahead *read_ahead = job->update->read_ahead;

	if (!read_ahead)
		return;
	give_back_void(read_ahead);
	while (is_time(job) && read_next(read_ahead))
		;
}

bool read_ahead_is_reading(const struct job *job)
{
	for (unsigned i = 0; job->update->read_ahead && i < job->update->read_ahead->chunk_count; i++)
		if (job->update->read_ahead->chunks[i].moving > 0)
			return true;
	return false;
}

bool read_ahead_is_busy(const struct job *job)
{
	return job->update->read_ahead && !queue_is_empty(&job->update->read_ahead->begun);
}

/* ---- For updates ---- */

enum read_ahead_answer read_ahead_take(struct job *job, uint32_t pack, enum unit_section section,
				       uint64_t first, enum tier_priority priority,
				       struct staging_buffer **ret_buffer)
{
	struct read_ahead_chunk *chunk = find_begun(job, pack, section, first);

	if (!chunk)
		return READ_AHEAD_NOTHING;
	if (chunk->moving > 0) {
		raise_chunk(chunk, priority);
		return READ_AHEAD_COMING;
	}
	*ret_buffer = end_chunk(chunk);
	return READ_AHEAD_HERE;
}

void read_ahead_forget(struct job *job, uint32_t pack, enum unit_section section, uint64_t first)
{
	struct read_ahead_chunk *chunk = find_begun(job, pack, section, first);

	if (!chunk)
		return;
	chunk->is_void = true;
	job_settle(job);
}

uint32_t read_ahead_find(const struct job *job, bool (*is_sought)(const struct job *job, uint32_t pack))
{
	if (!job->update->read_ahead)
		return SLOT_NONE;
	QUEUE_FOREACH (link, &job->update->read_ahead->begun) {
		const struct read_ahead_chunk *chunk = queue_entry(link, struct read_ahead_chunk, link);

		if (!chunk->is_void && is_sought(job, chunk->pack))
			return chunk->pack;
	}
	return SLOT_NONE;
}
