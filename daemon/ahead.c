#include "daemon/ahead.h"

#include <stdlib.h>

#include "common/size.h"
#include "daemon/damage.h"
#include "daemon/early.h"
#include "daemon/sweep.h"
#include "daemon/trace.h"
#include "daemon/warm.h"

struct ahead_chunk;

/* One state of a chunk. */
struct ahead_part {
	struct store_transfer transfer;
	struct ahead_chunk *chunk;
	bool is_moving;
};

/* The states of a chunk. */
struct ahead_chunk {
	struct queue link; /* of those that are free, or that are asked for, in their order */
	struct ahead *ahead;
	uint32_t pack;
	enum unit_section section;
	uint64_t first;
	struct staging_loan loan;
	struct ahead_part parts[STATES_MAXIMUM];
	unsigned moving;
	bool is_void; /* it is given back as soon as nothing of it is on its way */
};

struct ahead {
	struct job *job;
	struct queue free, begun;
	uint64_t step;		/* what that one has updated is read */
	uint64_t early_updates; /* until then */
	/* The order in which it is read, and the next place there. */
	uint32_t *order;
	uint32_t at;
	enum unit_section section;
	uint64_t first;
	unsigned chunk_count;
	struct ahead_chunk chunks[];
};

/* ---- Life ---- */

static bool is_possible(const struct job *job)
{
	return job->has_nvme_optimizer && !job->options.optimizer->is_by_owner &&
	       job->node->staging.count > STAGING_LEAST;
}

static size_t struct_bytes(const struct job *job)
{
	return sizeof(struct ahead) + job->node->staging.count * sizeof(struct ahead_chunk);
}

uint64_t ahead_metadata_bytes(const struct job *job)
{
	return is_possible(job) ? struct_bytes(job) + job->catalog.pack_count * sizeof(uint32_t) : 0;
}

static void on_recalled(struct staging_loan *loan)
{
	struct ahead_chunk *chunk = container_of(loan, struct ahead_chunk, loan);

	chunk->is_void = true;
	job_settle(chunk->ahead->job);
}

/* NULL: out of memory; then nothing is read ahead. */
static struct ahead *ahead_new(struct job *job)
{
	struct ahead *ahead = calloc(1, struct_bytes(job));

	if (!ahead)
		return NULL;
	ahead->job = job;
	ahead->chunk_count = job->node->staging.count;
	ahead->order = calloc(job->catalog.pack_count, sizeof(*ahead->order));
	queue_init(&ahead->free);
	queue_init(&ahead->begun);
	for (unsigned i = 0; i < ahead->chunk_count; i++) {
		struct ahead_chunk *chunk = &ahead->chunks[i];

		chunk->ahead = ahead;
		chunk->loan.recalled = on_recalled;
		queue_init(&chunk->loan.link);
		queue_push(&ahead->free, &chunk->link);
	}
	if (!ahead->order)
		free(TAKE_PTR(ahead));
	return ahead;
}

void ahead_clear(struct job *job)
{
	if (job->ahead)
		free(job->ahead->order);
	free(TAKE_PTR(job->ahead));
}

/* ---- Chunks ---- */

static struct staging_buffer *end_chunk(struct ahead_chunk *chunk)
{
	queue_remove(&chunk->link);
	queue_push(&chunk->ahead->free, &chunk->link);
	return staging_end_loan(&chunk->ahead->job->node->staging, &chunk->loan);
}

/* Nothing of it is on its way. */
static void give_back(struct ahead_chunk *chunk)
{
	struct staging *staging = &chunk->ahead->job->node->staging;

	staging_give(staging, end_chunk(chunk));
}

static void on_read(struct store_transfer *transfer, int status)
{
	struct ahead_part *part = container_of(transfer, struct ahead_part, transfer);
	struct ahead_chunk *chunk = part->chunk;
	struct job *job = chunk->ahead->job;

	part->is_moving = false;
	chunk->moving--;
	trace_transferred(job, chunk->pack, job->optimizer_store, transfer);
	if (status < 0 && !chunk->is_void)
		damage_tell_read(job, transfer, status,
				 "it was read ahead of its update, which reads it again");
	chunk->is_void |= status < 0;
	if (chunk->moving == 0)
		job_settle(job);
}

static void submit(struct ahead_chunk *chunk, struct ahead_part *part, const struct store_piece *kept,
		   char *data)
{
	struct job *job = chunk->ahead->job;

	part->chunk = chunk;
	part->transfer = (struct store_transfer){ .direction = TIER_READ,
						  .priority = TIER_WRITE_BACK,
						  .stream = kept->stream,
						  .offset = kept->offset,
						  .length = size_align(kept->length, STORE_PAGE_BYTES),
						  .buffer = data,
						  .done = on_read };
	part->is_moving = store_submit(job->optimizer_store, &part->transfer) == 0;
	if (!part->is_moving) {
		chunk->is_void = true;
		job_settle(job);
		return;
	}
	chunk->moving++;
	account_transfer(job, STATISTICS_UPDATE, &part->transfer);
}

static void begin_chunk(struct ahead_chunk *chunk, uint64_t count)
{
	const struct ahead *ahead = chunk->ahead;
	const struct job *job = ahead->job;

	chunk->pack = ahead->order[ahead->at];
	chunk->section = ahead->section;
	chunk->first = ahead->first;
	chunk->is_void = false;
	for (unsigned state = 0; state < state_count(&job->options); state++) {
		chunk->parts[state].is_moving = false;
		if (!state_exists(chunk->section, state))
			continue;
		const struct store_piece kept =
			job_find_kept(job, chunk->pack, chunk->section, state, chunk->first, count);

		submit(chunk, &chunk->parts[state], &kept,
		       chunk_staged_state(chunk->loan.buffer->data, chunk->section, state, count));
	}
}

/* ---- Order ---- */

/* Whether the step has updated it, and nothing has begun to update it since. */
static bool is_wanted(const struct ahead *ahead, uint32_t pack)
{
	const struct catalog *catalog = &ahead->job->catalog;
	const struct pack *units = &catalog->packs[pack];

	if (ahead->job->residences[pack].early != EARLY_NOTHING)
		return false;
	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++)
		if (catalog->units[u].updates > 0 && catalog->units[u].last_update >= ahead->step)
			return true;
	return false;
}

static bool has_state(const struct job *job, enum unit_section section)
{
	return state_all_bytes(&job->options, section, state_grain(section, STATE_SLOTS)) > 0;
}

/* In the pack that it is at. 0: it has no more; else the elements of the next one. */
static uint64_t find_chunk(struct ahead *ahead)
{
	const struct job *job = ahead->job;
	uint32_t pack = ahead->order[ahead->at];

	for (; ahead->section < UNIT_TRAINABLE_SECTIONS; ahead->section++, ahead->first = 0) {
		uint64_t all = job->catalog.packs[pack].elements[ahead->section];
		uint64_t most = chunk_elements(&job->options, ahead->section);

		for (; ahead->first < all && has_state(job, ahead->section); ahead->first += most)
			if (!warm_has(job, pack, ahead->section, ahead->first))
				return all - ahead->first < most ? all - ahead->first : most;
	}
	return 0;
}

/* 0: there is nothing to read. */
static uint64_t find_next(struct ahead *ahead)
{
	uint64_t count = 0;

	while (ahead->at < ahead->job->catalog.pack_count) {
		if (is_wanted(ahead, ahead->order[ahead->at]))
			count = find_chunk(ahead);
		if (count > 0)
			break;
		ahead->at++;
		ahead->section = (enum unit_section)0;
		ahead->first = 0;
	}
	return count;
}

static void reverse(uint32_t *order, uint32_t count)
{
	for (uint32_t i = 0; i < count / 2; i++) {
		uint32_t other = order[count - 1 - i];

		order[count - 1 - i] = order[i];
		order[i] = other;
	}
}

/* Before the decision updates come as the backward does, which ends with what the forward began with. */
static void find_order(struct ahead *ahead)
{
	prefetch_pass_order(ahead->job, ahead->order);
	if (ahead->early_updates < ahead->job->early_updates)
		reverse(ahead->order, ahead->job->catalog.pack_count);
	ahead->early_updates = ahead->job->early_updates;
	ahead->at = 0;
	ahead->section = (enum unit_section)0;
	ahead->first = 0;
}

void ahead_begin(struct job *job)
{
	struct ahead *ahead;

	/* What is read already is right for the next one, too. */
	if (!is_possible(job) || job->is_skipped)
		return;
	if (!job->ahead)
		job->ahead = ahead_new(job);
	ahead = job->ahead;
	if (!ahead)
		return;
	QUEUE_FOREACH (link, &ahead->begun)
		queue_entry(link, struct ahead_chunk, link)->is_void = true;
	ahead->step = job->step;
	find_order(ahead);
	job_settle(job);
}

/* ---- In the job's turn ---- */

static bool is_live(const struct job *job)
{
	return job->is_live && job->phase == JOB_TRAINED && !job->is_dropped;
}

static void give_back_void(struct ahead *ahead)
{
	QUEUE_FOREACH (link, &ahead->begun) {
		struct ahead_chunk *chunk = queue_entry(link, struct ahead_chunk, link);

		chunk->is_void |= !is_live(ahead->job);
		if (chunk->is_void && chunk->moving == 0)
			give_back(chunk);
	}
}

/* Between two sweeps, and while nothing can be updated. */
static bool is_time(const struct job *job)
{
	return is_live(job) && !job->sweep && job->decided == job->step && !early_has_work(job);
}

static bool read_next(struct ahead *ahead)
{
	struct queue *link = queue_first(&ahead->free);
	struct ahead_chunk *chunk = link ? queue_entry(link, struct ahead_chunk, link) : NULL;
	uint64_t count = chunk ? find_next(ahead) : 0;

	if (count == 0 || !staging_lend(&ahead->job->node->staging, &chunk->loan))
		return false;
	queue_remove(link);
	queue_push(&ahead->begun, link);
	begin_chunk(chunk, count);
	ahead->first += count;
	return true;
}

void ahead_go_on(struct job *job)
{
	struct ahead *ahead = job->ahead;

	if (!ahead)
		return;
	give_back_void(ahead);
	while (is_time(job) && read_next(ahead))
		;
}

bool ahead_is_reading(const struct job *job)
{
	for (unsigned i = 0; job->ahead && i < job->ahead->chunk_count; i++)
		if (job->ahead->chunks[i].moving > 0)
			return true;
	return false;
}

bool ahead_is_busy(const struct job *job)
{
	return job->ahead && !queue_is_empty(&job->ahead->begun);
}

/* ---- For updates ---- */

static struct ahead_chunk *find_begun(const struct job *job, uint32_t pack, enum unit_section section,
				      uint64_t first)
{
	if (!job->ahead)
		return NULL;
	QUEUE_FOREACH (link, &job->ahead->begun) {
		struct ahead_chunk *chunk = queue_entry(link, struct ahead_chunk, link);

		if (chunk->pack == pack && chunk->section == section && chunk->first == first &&
		    !chunk->is_void)
			return chunk;
	}
	return NULL;
}

static void raise_chunk(struct ahead_chunk *chunk, enum tier_priority priority)
{
	for (unsigned i = 0; i < STATES_MAXIMUM; i++)
		if (chunk->parts[i].is_moving)
			store_raise(chunk->ahead->job->optimizer_store, &chunk->parts[i].transfer, priority);
}

enum ahead_answer ahead_take(struct job *job, uint32_t pack, enum unit_section section, uint64_t first,
			     enum tier_priority priority, struct staging_buffer **ret_buffer)
{
	struct ahead_chunk *chunk = find_begun(job, pack, section, first);

	if (!chunk)
		return AHEAD_NOTHING;
	if (chunk->moving > 0) {
		raise_chunk(chunk, priority);
		return AHEAD_COMING;
	}
	*ret_buffer = end_chunk(chunk);
	return AHEAD_HERE;
}

void ahead_forget(struct job *job, uint32_t pack, enum unit_section section, uint64_t first)
{
	struct ahead_chunk *chunk = find_begun(job, pack, section, first);

	if (!chunk)
		return;
	chunk->is_void = true;
	job_settle(job);
}

uint32_t ahead_find(const struct job *job, bool (*is_sought)(const struct job *job, uint32_t pack))
{
	if (!job->ahead)
		return SLOT_NONE;
	QUEUE_FOREACH (link, &job->ahead->begun) {
		const struct ahead_chunk *chunk = queue_entry(link, struct ahead_chunk, link);

		if (!chunk->is_void && is_sought(job, chunk->pack))
			return chunk->pack;
	}
	return SLOT_NONE;
}
