#include "daemon/residency/segment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "daemon/residency/own.h"
#include "daemon/resources/resources.h"
#include "offload/cuda/gpu_engine.h"

uint64_t segment_bytes(const struct job *job, enum segment_state state)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < job->residency->slots.segment_count; i++)
		if (job->residency->slots.segments[i].state == state)
			bytes += job->residency->slots.segments[i].bytes;
	return bytes;
}

uint64_t segment_bytes_to_come(const struct job *job)
{
	return segment_bytes(job, SEGMENT_PLANNED) + segment_bytes(job, SEGMENT_COMING);
}

static int fetch_pages(struct engine *engine, const struct memory *cache, const struct slot_segment *segment)
{
	memory_populate(cache, segment->offset, segment->bytes);
	return engine_buffer_add(engine, cache->base + segment->offset, segment->bytes);
}

/* As large as it may ever become; what has no segment has no pages. */
int segment_make_cache(const struct job *job, struct memory *ret_cache)
{
	int r;

	if (job->residency->slots.cache == 0)
		return 0;
	r = memory_new_shared("tierd-cache", job->residency->slots.cache, ret_cache);
	if (r < 0)
		return r;
	memory_make_huge(ret_cache, false);
	return memory_seal(ret_cache);
}

/* ---- Moving ---- */

struct move {
	struct work work;
	struct queue link; /* of those that leave */
	struct job *job;
	uint32_t segment;
	int status;
};

static void run_fetch(struct work *work)
{
	struct move *move = container_of(work, struct move, work);
	struct job *job = move->job;

	move->status = fetch_pages(job->node->engine, &job->residency->cache,
				   &job->residency->slots.segments[move->segment]);
}

/* Pages that are pinned would stay, whatever becomes of the file. */
static void run_discard(struct work *work)
{
	struct move *move = container_of(work, struct move, work);
	struct job *job = move->job;
	const struct slot_segment *segment = &job->residency->slots.segments[move->segment];

	if (gpu_pin_keeps(job->residency->cache.base + segment->offset, segment->bytes)) {
		move->status = -EBUSY;
		return;
	}
	engine_buffer_remove(job->node->engine, job->residency->cache.base + segment->offset, segment->bytes);
	move->status = memory_discard(&job->residency->cache, segment->offset, segment->bytes);
}

static void on_fetched(struct work *work)
{
	struct move *move = container_of(work, struct move, work);
	struct job *job = move->job;

	node_note_pinning(job->node, move->status);
	slots_open_segment(&job->residency->slots, move->segment);
	job->residency->segment_listener->came(job, move->segment);
	job->residency->cache_moves--;
	job->residency->stuck_waits = 0;
	job_settle(job);
	free(move);
}

static void tell_failure(struct job *job, int status)
{
	if (status != -EBUSY)
		log_error("job %s: the kernel does not take memory of its cache back: %s; the job keeps it",
			  job->name, strerror(-status));
	else if (!job->residency->has_told_kept)
		log_error("job %s: a GPU's driver has not unregistered memory of its cache; the job keeps it",
			  job->name);
	job->residency->has_told_kept |= status == -EBUSY;
}

static void on_discarded(struct work *work)
{
	struct move *move = container_of(work, struct move, work);
	struct job *job = move->job;

	job->residency->cache_moves--;
	if (move->status < 0) {
		tell_failure(job, move->status);
		job->residency->slots.segments[move->segment].failures++;
		slots_open_segment(&job->residency->slots, move->segment);
		job->residency->segment_listener->came(job, move->segment);
	} else {
		job->residency->slots.segments[move->segment].state = SEGMENT_AWAY;
		budget_give_cache(job, job->residency->slots.segments[move->segment].bytes);
	}
	/* The job too: if it was dropped, it waited for this. */
	job_settle(job);
	job_settle_all(job->node);
	free(move);
}

static bool start_move(struct job *job, uint32_t segment, enum segment_state state)
{
	struct move *move = calloc(1, sizeof(*move));

	if (!move)
		return false;
	*move = (struct move){
		.work = { .run = state == SEGMENT_COMING ? run_fetch : run_discard,
			  .done = state == SEGMENT_COMING ? on_fetched : on_discarded,
			  .urgency = WORK_NORMAL },
		.job = job,
		.segment = segment,
	};
	job->residency->slots.segments[segment].state = state;
	job->residency->cache_moves++;
	if (state == SEGMENT_COMING) {
		workers_submit(job->node->slow_workers, &move->work);
	} else {
		queue_push(&job->residency->leaving, &move->link);
		job->residency->segment_listener->leaves(job, segment);
	}
	return true;
}

void segment_go(struct job *job, uint32_t segment)
{
	QUEUE_FOREACH (link, &job->residency->leaving) {
		struct move *move = queue_entry(link, struct move, link);

		if (move->segment != segment)
			continue;
		queue_remove(link);
		workers_submit(job->node->slow_workers, &move->work);
	}
}

bool segment_fetch(struct job *job, uint32_t segment)
{
	return start_move(job, segment, SEGMENT_COMING);
}

void segment_fetch_planned(struct job *job)
{
	const struct slots *slots = &job->residency->slots;

	for (uint32_t i = 0; i < slots->segment_count && cache_is_quiet(job); i++)
		if (slots->segments[i].state == SEGMENT_PLANNED && !segment_fetch(job, i))
			return;
}

uint64_t segment_give_planned(struct job *job, uint64_t bytes)
{
	struct slots *slots = &job->residency->slots;
	uint64_t given = 0;

	for (uint32_t i = slots->segment_count; i-- > 0 && given < bytes;) {
		struct slot_segment *segment = &slots->segments[i];

		if (segment->state != SEGMENT_PLANNED)
			continue;
		segment->state = SEGMENT_AWAY;
		budget_give_cache(job, segment->bytes);
		given += segment->bytes;
	}
	return given;
}

/* ---- Emptying ---- */

void segment_empty(struct job *job, uint32_t index)
{
	const struct slot_segment *segment = &job->residency->slots.segments[index];

	for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
		uint32_t slot = job->residency->slots.in_segments[i];

		if (slots_has_pack(&job->residency->slots, slot))
			residency_evict(job, job->residency->slots.owners[slot]);
	}
	if (slots_is_empty(&job->residency->slots, index))
		start_move(job, index, SEGMENT_GOING);
}

uint32_t segment_held_slots(struct job *job, const struct slot_segment *segment)
{
	uint32_t held = 0;

	for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
		uint32_t slot = job->residency->slots.in_segments[i];

		held += slots_has_pack(&job->residency->slots, slot) &&
			residency_is_held(job, job->residency->slots.owners[slot]);
	}
	return held;
}
