/* A sweep issues chunks: it enters one pack after the other, and starts the chunks there, each with the
 * buffer that it needs. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "daemon/residency/residency.h"
#include "daemon/update/read_ahead.h"
#include "daemon/update/early.h"
#include "daemon/update/own.h"
#include "daemon/update/sweep.h"
#include "daemon/update/update.h"
#include "daemon/update/warm.h"

static void on_staging(struct staging_wish *wish, struct staging_buffer *buffer)
{
	struct sweep *sweep = container_of(wish, struct sweep, wish);

	sweep->is_wishing = false;
	sweep->granted = buffer;
	job_settle(sweep->job);
}

uint64_t sweep_bytes(unsigned chunks)
{
	return sizeof(struct sweep) + chunks * sizeof(struct chunk);
}

uint64_t sweep_metadata_bytes(const struct job *job)
{
	return sweep_bytes(job->node->staging->count);
}

int sweep_new(struct job *job, unsigned chunks, struct sweep **ret_sweep)
{
	struct sweep *sweep = calloc(1, sweep_bytes(chunks));

	if (!sweep)
		return -ENOMEM;
	*sweep = (struct sweep){ .job = job, .pack = SLOT_NONE, .chunk_count = chunks };
	sweep->wish.granted = on_staging;
	queue_init(&sweep->wish.link);
	queue_init(&sweep->free_chunks);
	queue_init(&sweep->wanted);
	queue_init(&sweep->waiting);
	queue_init(&sweep->watches);
	for (unsigned i = 0; i < chunks; i++) {
		sweep->chunks[i].sweep = sweep;
		queue_push(&sweep->free_chunks, &sweep->chunks[i].link);
	}
	*ret_sweep = sweep;
	return 0;
}

void sweep_stop(struct sweep *sweep)
{
	sweep->pack = SLOT_NONE;
	if (sweep->is_wishing)
		queue_remove(&sweep->wish.link);
	sweep->is_wishing = false;
	if (sweep->granted)
		staging_give(sweep->job->node->staging, TAKE_PTR(sweep->granted));
}

struct sweep *sweep_destroy(struct sweep *sweep)
{
	if (!sweep)
		return NULL;
	sweep_stop(sweep);
	free(sweep);
	return NULL;
}

/* All that changes state passes over it; but for an early update nobody has seen that, and it may come to
 * nothing. What is adopted is as the early update made it. */
static void begin_pass(struct sweep *sweep, struct pack_update *update)
{
	sweep->pass_before = update->pass;
	sweep->pass = ++sweep->job->update->passes;
	if (sweep->is_early)
		update->early_pass = sweep->pass;
	else
		update->pass = update->early == EARLY_NOTHING ? sweep->pass : update->early_pass;
}

void sweep_enter(struct sweep *sweep, uint32_t pack)
{
	struct pack_update *update = pack_update(sweep->job, pack);

	assert(update->uncomputed == 0);
	update->is_issued = false;
	sweep->pack = pack;
	sweep->section = (enum unit_section)0;
	sweep->first = 0;
	begin_pass(sweep, update);
}

/* Nobody keeps what it was, and nothing of what it is goes to a slot. */
static bool has_nothing_to_do(const struct sweep *sweep)
{
	return sweep->is_adopting && !sweep->is_saving &&
	       (!residency_has_slot(sweep->job, sweep->pack) || !early_keeps(sweep->job));
}

/* Moves to the section's next chunk, or the next section. False: the pack has no more. */
static bool find_chunk(struct sweep *sweep)
{
	const struct pack *pack = &sweep->job->catalog.packs[sweep->pack];

	if (has_nothing_to_do(sweep))
		return false;
	while (sweep->first >= pack->elements[sweep->section]) {
		if (sweep->section + 1 == UNIT_TRAINABLE_SECTIONS)
			return false;
		sweep->section++;
		sweep->first = 0;
	}
	return true;
}

/* Parameters are updated in their slot, but before the decision. */
static bool needs_staging(const struct sweep *sweep, bool is_warm)
{
	const struct job *job = sweep->job;

	if (sweep->is_adopting)
		return sweep->is_saving;
	return (job->location.has_nvme_optimizer && !is_warm) || sweep->is_early ||
	       (job->location.has_stored_parameters && !residency_has_slot(job, sweep->pack));
}

/* What is adopted has been updated, and the first sweep writes no zeros, of which a store has enough. */
static void take_warm(struct sweep *sweep, struct chunk *chunk)
{
	struct job *job = sweep->job;
	/* What is early is in the store when it is published; parameters without a slot would be nowhere. */
	bool may_defer = !sweep->is_early &&
			 (job->location.has_nvme_parameters || residency_has_slot(job, sweep->pack));

	chunk->warm = NULL;
	chunk->is_filled = false;
	if (!sweep->is_adopting && !sweep->is_initializing && !sweep->is_writing)
		chunk->warm = warm_take(job, sweep->pack, sweep->section, sweep->first, may_defer,
					&chunk->is_filled);
}

/* What has been read ahead is right but for what is adopted, which has been updated since. */
static enum read_ahead_answer take_ahead(struct sweep *sweep, struct chunk *chunk)
{
	enum read_ahead_answer answer = READ_AHEAD_NOTHING;

	if (chunk->warm)
		read_ahead_forget(sweep->job, sweep->pack, sweep->section, sweep->first);
	else if (!sweep->is_adopting && !sweep->is_initializing && !sweep->is_writing)
		answer = read_ahead_take(sweep->job, sweep->pack, sweep->section, sweep->first,
					 sweep_read_priority(sweep, sweep->pack), &chunk->buffer);
	chunk->is_filled |= answer == READ_AHEAD_HERE;
	return answer;
}

/* What the job itself has read ahead is used soon, and read for nothing if it is recalled. */
static bool is_patient(const struct sweep *sweep)
{
	return sweep->running >= STAGING_LEAST && read_ahead_is_busy(sweep->job) &&
	       !residency_is_awaited(sweep->job, sweep->pack);
}

/* More would lie in line here, not at the devices. So buffers are few, and a cache still has the one that is
 * taken next. */
static bool are_devices_full(const struct sweep *sweep)
{
	const struct job *job = sweep->job;

	return sweep->moving_bytes > 0 &&
	       sweep->moving_bytes >= job->location.paths.count * engine_most_bytes(job->node->engine);
}

void sweep_note_moving(struct sweep *sweep, uint64_t bytes)
{
	sweep->moving_bytes += bytes;
}

void sweep_note_moved(struct sweep *sweep, uint64_t bytes)
{
	bool were_full = are_devices_full(sweep);

	sweep->moving_bytes -= bytes;
	if (were_full && !are_devices_full(sweep))
		job_settle(sweep->job);
}

/* NULL: the sweep goes on when one comes, or when the devices have done something. */
static struct staging_buffer *take_staging(struct sweep *sweep)
{
	struct staging_buffer *buffer = TAKE_PTR(sweep->granted);

	if (buffer || are_devices_full(sweep))
		return buffer;
	sweep->wish.share = budget_device_share(sweep->job);
	sweep->wish.is_patient = is_patient(sweep);
	buffer = staging_take(sweep->job->node->staging, &sweep->wish);
	sweep->is_wishing = !buffer;
	return buffer;
}

/* False: the sweep has to wait. */
static bool take_buffers(struct sweep *sweep, struct chunk *chunk)
{
	enum read_ahead_answer answer;

	chunk->buffer = NULL;
	take_warm(sweep, chunk);
	answer = take_ahead(sweep, chunk);
	if (answer != READ_AHEAD_NOTHING)
		return answer == READ_AHEAD_HERE;
	if (!sweep->granted && !needs_staging(sweep, chunk->warm))
		return true;
	chunk->buffer = take_staging(sweep);
	if (chunk->buffer)
		return true;
	if (chunk->warm)
		warm_give(sweep->job, TAKE_PTR(chunk->warm), sweep->section, sweep->first, chunk->is_filled);
	return false;
}

/* A free chunk with the buffers that it needs, or NULL: the sweep goes on when these come. */
static struct chunk *take_chunk(struct sweep *sweep)
{
	struct queue *link = queue_first(&sweep->free_chunks);
	struct chunk *chunk = link ? queue_entry(link, struct chunk, link) : NULL;

	if (!chunk || sweep->is_wishing || !take_buffers(sweep, chunk))
		return NULL;
	queue_remove(link);
	return chunk;
}

enum sweep_issue sweep_issue(struct sweep *sweep)
{
	uint32_t pack = sweep->pack;
	struct chunk *chunk;

	if (!find_chunk(sweep)) {
		sweep->pack = SLOT_NONE;
		pack_update(sweep->job, pack)->is_issued = true;
		return SWEEP_HAS_LEFT;
	}
	chunk = take_chunk(sweep);
	if (!chunk)
		return SWEEP_HAS_TO_WAIT;
	chunk_start(sweep, chunk);
	return SWEEP_HAS_ISSUED;
}
