/* The course of a sweep: the packs that it enters, one after the other, and the chunks that it starts there,
 * each with the buffer that it needs. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/early.h"
#include "daemon/sweep.h"

static void on_staging(struct staging_wish *wish, struct staging_buffer *buffer)
{
	struct sweep *sweep = container_of(wish, struct sweep, wish);

	sweep->is_wishing = false;
	sweep->granted = buffer;
	job_settle(sweep->job);
}

int sweep_new(struct job *job, struct sweep **ret_sweep)
{
	unsigned count = job->node->staging.count;
	struct sweep *sweep = calloc(1, sizeof(*sweep) + count * sizeof(sweep->chunks[0]));

	if (!sweep)
		return -ENOMEM;
	*sweep = (struct sweep){ .job = job, .pack = SLOT_NONE };
	sweep->wish.granted = on_staging;
	queue_init(&sweep->wish.link);
	queue_init(&sweep->free_chunks);
	queue_init(&sweep->wanted);
	queue_init(&sweep->waiting);
	queue_init(&sweep->views);
	for (unsigned i = 0; i < count; i++) {
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
		staging_give(&sweep->job->node->staging, TAKE_PTR(sweep->granted));
}

struct sweep *sweep_destroy(struct sweep *sweep)
{
	if (!sweep)
		return NULL;
	sweep_stop(sweep);
	free(sweep);
	return NULL;
}

void sweep_enter(struct sweep *sweep, uint32_t pack)
{
	struct residence *residence = &sweep->job->residences[pack];

	residence->is_issued = false;
	residence->uncomputed = residence->unwritten = 0;
	sweep->pack = pack;
	sweep->section = (enum unit_section)0;
	sweep->first = 0;
}

/* Nobody keeps what it was, and nothing of what it is goes to a slot. */
static bool has_nothing_to_do(const struct sweep *sweep)
{
	return sweep->is_adopting && !sweep->is_saving &&
	       (sweep->job->residences[sweep->pack].slot == SLOT_NONE || !early_keeps(sweep->job));
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

static bool needs_staging(const struct sweep *sweep)
{
	const struct job *job = sweep->job;

	if (sweep->is_adopting)
		return sweep->is_saving;
	return job->has_nvme_optimizer ||
	       (job->has_stored_parameters && job->residences[sweep->pack].slot == SLOT_NONE);
}

/* A free chunk with the buffer that it needs, or NULL: the sweep goes on when that comes. */
static struct chunk *take_chunk(struct sweep *sweep)
{
	struct queue *link = queue_first(&sweep->free_chunks);
	struct staging_buffer *buffer = NULL;

	if (!link || sweep->is_wishing)
		return NULL;
	if (needs_staging(sweep)) {
		buffer = sweep->granted ? TAKE_PTR(sweep->granted)
					: staging_take(&sweep->job->node->staging, &sweep->wish);
		if (!buffer) {
			sweep->is_wishing = true;
			return NULL;
		}
	}
	struct chunk *chunk = queue_entry(link, struct chunk, link);

	queue_remove(link);
	chunk->buffer = buffer;
	return chunk;
}

enum sweep_issue sweep_issue(struct sweep *sweep)
{
	uint32_t pack = sweep->pack;
	struct chunk *chunk;

	if (!find_chunk(sweep)) {
		sweep->pack = SLOT_NONE;
		sweep->job->residences[pack].is_issued = true;
		return SWEEP_HAS_LEFT;
	}
	chunk = take_chunk(sweep);
	if (!chunk)
		return SWEEP_HAS_TO_WAIT;
	chunk_start(sweep, chunk);
	return SWEEP_HAS_ISSUED;
}
