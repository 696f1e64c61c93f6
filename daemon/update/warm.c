#include "daemon/update/warm.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "common/log.h"
#include "daemon/gpu/gpu.h"
#include "daemon/gradients/gradients.h"
#include "daemon/residency/residency.h"
#include "daemon/resources/resources.h"
#include "daemon/update/own.h"
#include "daemon/update/step_listeners.h"
#include "daemon/update/warm_inside.h"
#include "offload/cuda/gpu_engine.h"

/* ---- Life ---- */

static struct warm *discard(struct warm *warm)
{
	if (warm) {
		free(warm->first_range);
		free(warm->ranges);
	}
	free(warm);
	return NULL;
}

/* NULL: out of memory, or there is nothing that could be warm. */
static struct warm *warm_new(struct job *job)
{
	struct warm_size size = warm_measure(job);
	struct warm *warm = size.bytes > 0 ? calloc(1, sizeof(*warm)) : NULL;

	if (!warm)
		return NULL;
	warm->job = job;
	warm->first_range = calloc(job->catalog.pack_count + 1, sizeof(*warm->first_range));
	warm->ranges = calloc(size.ranges, sizeof(*warm->ranges));
	if (!warm->first_range || !warm->ranges)
		return discard(warm);
	for (unsigned i = 0; i < SEGMENTS_MOST; i++)
		warm->segments[i].warm = warm;
	warm_plan(warm, size);
	flush_init(warm);
	return warm;
}

void warm_free(struct job *job)
{
	struct warm *warm = TAKE_PTR(job->update->warm);

	for (unsigned i = 0; warm && i < SEGMENTS_MOST; i++) {
		assert(warm->segments[i].users == 0);
		disposal_start_memory(job->node, &warm->segments[i].memory);
	}
	discard(warm);
}

/* ---- Ranges ---- */

static struct warm_range *find_range(const struct warm *warm, uint32_t pack, enum unit_section section,
				     uint64_t first)
{
	const uint64_t *elements = warm->job->catalog.packs[pack].elements;
	uint64_t index = warm->first_range[pack] + first / RANGE_ELEMENTS;

	for (int before = 0; before < (int)section; before++)
		index += size_divide_up(elements[before], RANGE_ELEMENTS);
	return &warm->ranges[index];
}

/* Elements of the range that the element lies in. */
static uint64_t range_elements(const struct job *job, uint32_t pack, enum unit_section section,
			       uint64_t first)
{
	uint64_t all = job->catalog.packs[pack].elements[section];
	uint64_t left = all - first / RANGE_ELEMENTS * RANGE_ELEMENTS;

	return left < RANGE_ELEMENTS ? left : RANGE_ELEMENTS;
}

char *warm_state(const struct job *job, const struct warm_range *range, uint32_t pack,
		 enum unit_section section, uint64_t first, unsigned state)
{
	uint64_t count = range_elements(job, pack, section, first), offset = range->offset;

	for (unsigned before = 0; before < state; before++)
		if (state_exists(section, before))
			offset += size_align(state_bytes(section, before, count), STORE_PAGE_BYTES);
	offset += state_offset(section, state, first % RANGE_ELEMENTS);
	return job->update->warm->segments[range->segment].memory.base + offset;
}

static uint8_t chunk_bit(const struct job *job, enum unit_section section, uint64_t first)
{
	uint64_t chunk = first % RANGE_ELEMENTS / chunk_elements(&job->options, section);

	assert(chunk < 8);
	return (uint8_t)(1 << chunk);
}

/* The sweep comes to it. */
static void begin_range(const struct job *job, struct warm_range *range, uint64_t chunks, bool may_defer)
{
	range->unwritten = (uint8_t)chunks;
	range->is_deferred = may_defer && job->location.is_durable &&
			     job->update->commit_listener->seconds(job) > 0 &&
			     job->update->warm->segments[range->segment].state == SEGMENT_HERE;
}

/* What nobody has written is nowhere else. */
static bool is_here(const struct warm *warm, const struct warm_range *range)
{
	return range->segment != SLOT_NONE &&
	       (warm->segments[range->segment].state == SEGMENT_HERE || range->is_dirty);
}

bool warm_has(const struct job *job, uint32_t pack, enum unit_section section, uint64_t first)
{
	return job->update->warm &&
	       is_here(job->update->warm, find_range(job->update->warm, pack, section, first));
}

struct warm_range *warm_take(struct job *job, uint32_t pack, enum unit_section section, uint64_t first,
			     bool may_defer, bool *ret_is_filled)
{
	struct warm *warm = job->update->warm;
	struct warm_range *range = warm ? find_range(warm, pack, section, first) : NULL;

	if (!range || range->segment == SLOT_NONE)
		return NULL;
	if (first % RANGE_ELEMENTS == 0)
		begin_range(job, range,
			    size_divide_up(range_elements(job, pack, section, first),
					   chunk_elements(&job->options, section)),
			    may_defer);
	/* The sweep changes it in the store alone. */
	if (!is_here(warm, range)) {
		range->filled &= (uint8_t)~chunk_bit(job, section, first);
		return NULL;
	}
	assert(!range->is_writing);
	warm->segments[range->segment].users++;
	*ret_is_filled = range->filled & chunk_bit(job, section, first);
	range->filled &= (uint8_t)~chunk_bit(job, section, first);
	return range;
}

void warm_give(struct job *job, struct warm_range *range, enum unit_section section, uint64_t first,
	       bool is_filled)
{
	if (is_filled)
		range->filled |= chunk_bit(job, section, first);
	job->update->warm->segments[range->segment].users--;
}

void warm_note_written(struct job *job, struct warm_range *range)
{
	if (--range->unwritten == 0)
		warm_mark(job, range, false);
}

void warm_mark(struct job *job, struct warm_range *range, bool is_dirty)
{
	int more = (int)is_dirty - (int)range->is_dirty;

	range->is_dirty = is_dirty;
	job->update->warm->segments[range->segment].dirty += (uint32_t)more;
	job->update->warm->dirty += (uint32_t)more;
}

void warm_forget_pack(struct job *job, uint32_t pack)
{
	const struct warm *warm = job->update->warm;

	for (uint32_t i = warm ? warm->first_range[pack] : 0; warm && i < warm->first_range[pack + 1]; i++)
		warm->ranges[i].filled = 0;
}

/* ---- Segments that come ---- */

static void run_fetch(struct work *work)
{
	struct warm_segment *segment = container_of(work, struct warm_segment, work);

	segment->pinning = 0;
	segment->status = memory_new_private(segment->bytes, &segment->memory);
	if (segment->status < 0)
		return;
	memory_make_huge(&segment->memory, true);
	segment->pinning = engine_buffer_add(segment->warm->job->node->engine, segment->memory.base,
					     segment->memory.length);
}

static void on_fetched(struct work *work)
{
	struct warm_segment *segment = container_of(work, struct warm_segment, work);
	struct job *job = segment->warm->job;

	segment->state = segment->status < 0 ? SEGMENT_AWAY : SEGMENT_HERE;
	if (segment->status < 0) {
		log_warning("job %s: the kernel has no memory for more of its state; it is read at each step",
			    job->name);
		segment->warm->is_refused = true;
		budget_give_cache(job, segment->bytes);
	}
	node_note_pinning(job->node, segment->pinning);
	cache_end_move(job);
	job_settle(job);
}

static struct warm_segment *next_away(struct warm *warm)
{
	for (unsigned i = 0; i < SEGMENTS_MOST; i++)
		if (warm->segments[i].bytes > 0 && warm->segments[i].state == SEGMENT_AWAY)
			return &warm->segments[i];
	return NULL;
}

static void start_move(struct warm_segment *segment, enum segment_state state, void (*run)(struct work *work),
		       void (*done)(struct work *work))
{
	struct job *job = segment->warm->job;

	segment->state = state;
	segment->work = (struct work){ .run = run, .done = done, .urgency = WORK_NORMAL };
	cache_begin_move(job);
	workers_submit(job->node->slow_workers, &segment->work);
}

/* That segment, which is charged, is here later, and the job settled. */
static void warm_fetch(struct job *job)
{
	start_move(next_away(job->update->warm), SEGMENT_COMING, run_fetch, on_fetched);
}

void warm_pin(struct job *job)
{
	for (unsigned i = 0; job->update->warm && i < SEGMENTS_MOST; i++) {
		const struct warm_segment *segment = &job->update->warm->segments[i];

		if (segment->state == SEGMENT_HERE)
			gpu_updates_pin(job, segment->memory.base, segment->memory.length);
	}
}

/* ---- Segments that go ---- */

static void run_discard(struct work *work)
{
	struct warm_segment *segment = container_of(work, struct warm_segment, work);

	segment->status = gpu_pin_keeps(segment->memory.base, segment->memory.length) ? -EBUSY : 0;
	if (segment->status < 0)
		return;
	/* In this order: pages that are pinned would stay. */
	engine_buffer_remove(segment->warm->job->node->engine, segment->memory.base, segment->memory.length);
	memory_free(&segment->memory);
}

static void note_kept(struct warm_segment *segment)
{
	struct warm *warm = segment->warm;

	segment->failures++;
	if (!warm->has_told_kept)
		log_error("job %s: a GPU's driver has not unregistered memory of its state; the job keeps it",
			  warm->job->name);
	warm->has_told_kept = true;
}

static void on_discarded(struct work *work)
{
	struct warm_segment *segment = container_of(work, struct warm_segment, work);
	struct job *job = segment->warm->job;

	segment->state = segment->status < 0 ? SEGMENT_HERE : SEGMENT_AWAY;
	if (segment->status == 0)
		budget_give_cache(job, segment->bytes);
	else
		note_kept(segment);
	cache_end_move(job);
	/* The job too: if it was dropped, it waited for this. */
	job_settle(job);
	job_settle_all(job->node);
}

static void forget_segment(const struct warm *warm, uint32_t segment)
{
	for (uint32_t i = 0; i < warm->first_range[warm->job->catalog.pack_count]; i++)
		if (warm->ranges[i].segment == segment)
			warm->ranges[i].filled = 0;
}

/* In the job's turn: what is given up goes, if nobody uses it any more. */
static void warm_go_on(struct job *job)
{
	struct warm *warm = job->update->warm;

	for (unsigned i = 0; warm && i < SEGMENTS_MOST; i++) {
		struct warm_segment *segment = &warm->segments[i];

		if (segment->state != SEGMENT_DRAINING || segment->users > 0)
			continue;
		if (segment->dirty > 0) {
			flush_draining(warm);
			continue;
		}
		if (!gpu_updates_give_up(job, segment->memory.base))
			continue;
		forget_segment(warm, i);
		start_move(segment, SEGMENT_GOING, run_discard, on_discarded);
	}
}

static bool may_leave(const struct warm_segment *segment)
{
	return segment_may_leave(segment->state, segment->failures);
}

static struct warm_segment *last_here(const struct job *job)
{
	unsigned last = SEGMENTS_MOST - 1;

	while (!may_leave(&job->update->warm->segments[last]))
		last--;
	return &job->update->warm->segments[last];
}

void warm_close(struct job *job)
{
	last_here(job)->state = SEGMENT_DRAINING;
}

void warm_keep_all(struct job *job)
{
	for (unsigned i = 0; job->update->warm && i < SEGMENTS_MOST; i++)
		if (job->update->warm->segments[i].state == SEGMENT_DRAINING)
			job->update->warm->segments[i].state = SEGMENT_HERE;
}

/* ---- Bytes ---- */

static uint64_t bytes_in(const struct job *job, enum segment_state first, enum segment_state last)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; job->update->warm && i < SEGMENTS_MOST; i++)
		if (job->update->warm->segments[i].state >= first &&
		    job->update->warm->segments[i].state <= last)
			bytes += job->update->warm->segments[i].bytes;
	return bytes;
}

uint64_t warm_bytes(const struct job *job)
{
	return bytes_in(job, SEGMENT_COMING, SEGMENT_GOING);
}

uint64_t warm_bytes_here(const struct job *job)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; job->update->warm && i < SEGMENTS_MOST; i++)
		if (may_leave(&job->update->warm->segments[i]))
			bytes += job->update->warm->segments[i].bytes;
	return bytes;
}

/* Of the one that would be given up first; there is one. */
static uint64_t warm_bytes_last(const struct job *job)
{
	return last_here(job)->bytes;
}

uint64_t warm_bytes_leaving(const struct job *job)
{
	return bytes_in(job, SEGMENT_DRAINING, SEGMENT_GOING);
}

/* Of the segment that would come next; 0: none would. */
static uint64_t warm_bytes_next(struct job *job)
{
	const struct warm_segment *segment;

	if (!job->update->warm && job->location.has_nvme_optimizer && job->state == JOB_TRAINED)
		job->update->warm = warm_new(job);
	if (!job->update->warm || job->update->warm->is_refused)
		return 0;
	segment = next_away(job->update->warm);
	return segment ? segment->bytes : 0;
}

const struct cache_tenant warm_tenant = {
	.bytes = warm_bytes,
	.bytes_here = warm_bytes_here,
	.bytes_leaving = warm_bytes_leaving,
	.bytes_next = warm_bytes_next,
	.bytes_last = warm_bytes_last,
	.fetch = warm_fetch,
	.close = warm_close,
	.go_on = warm_go_on,
	.keep_all = warm_keep_all,
};
