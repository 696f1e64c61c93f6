#include "daemon/update/warm.h"

#include <assert.h>
#include <stdlib.h>

#include "common/log.h"
#include "daemon/gradients/gradients.h"
#include "daemon/residency/residency.h"
#include "daemon/resources/resources.h"
#include "daemon/update/own.h"
#include "daemon/update/step_listeners.h"
#include "daemon/update/warm_inside.h"

/* ---- Life ---- */

static struct warm *discard(struct warm *warm)
{
	if (warm) {
		free(warm->first_stretch);
		free(warm->stretches);
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
	warm->first_stretch = calloc(job->catalog.pack_count + 1, sizeof(*warm->first_stretch));
	warm->stretches = calloc(size.stretches, sizeof(*warm->stretches));
	if (!warm->first_stretch || !warm->stretches)
		return discard(warm);
	for (unsigned i = 0; i < SHARES_MOST; i++)
		warm->shares[i].warm = warm;
	warm_plan(warm, size);
	flush_init(warm);
	return warm;
}

void warm_free(struct job *job)
{
	struct warm *warm = TAKE_PTR(job->update->warm);

	for (unsigned i = 0; warm && i < SHARES_MOST; i++) {
		assert(warm->shares[i].users == 0);
		disposal_start_memory(job->node, &warm->shares[i].memory);
	}
	discard(warm);
}

/* ---- Stretches ---- */

static struct warm_stretch *find_stretch(const struct warm *warm, uint32_t pack, enum unit_section section,
					 uint64_t first)
{
	const uint64_t *elements = warm->job->catalog.packs[pack].elements;
	uint64_t index = warm->first_stretch[pack] + first / STRETCH_ELEMENTS;

	for (int before = 0; before < (int)section; before++)
		index += size_divide_up(elements[before], STRETCH_ELEMENTS);
	return &warm->stretches[index];
}

/* Elements of the stretch that the element lies in. */
static uint64_t stretch_elements(const struct job *job, uint32_t pack, enum unit_section section,
				 uint64_t first)
{
	uint64_t all = job->catalog.packs[pack].elements[section];
	uint64_t left = all - first / STRETCH_ELEMENTS * STRETCH_ELEMENTS;

	return left < STRETCH_ELEMENTS ? left : STRETCH_ELEMENTS;
}

char *warm_state(const struct job *job, const struct warm_stretch *stretch, uint32_t pack,
		 enum unit_section section, uint64_t first, unsigned state)
{
	uint64_t count = stretch_elements(job, pack, section, first), offset = stretch->offset;

	for (unsigned before = 0; before < state; before++)
		if (state_exists(section, before))
			offset += size_align(state_bytes(section, before, count), STORE_PAGE_BYTES);
	offset += state_offset(section, state, first % STRETCH_ELEMENTS);
	return job->update->warm->shares[stretch->share].memory.base + offset;
}

static uint8_t chunk_bit(const struct job *job, enum unit_section section, uint64_t first)
{
	uint64_t chunk = first % STRETCH_ELEMENTS / chunk_elements(&job->options, section);

	assert(chunk < 8);
	return (uint8_t)(1 << chunk);
}

/* The sweep comes to it. */
static void begin_stretch(const struct job *job, struct warm_stretch *stretch, uint64_t chunks,
			  bool may_defer)
{
	stretch->unwritten = (uint8_t)chunks;
	stretch->is_deferred = may_defer && job->location.is_durable &&
			       job->update->commit_listener->seconds(job) > 0 &&
			       job->update->warm->shares[stretch->share].state == SHARE_HERE;
}

/* What nobody has written is nowhere else. */
static bool is_here(const struct warm *warm, const struct warm_stretch *stretch)
{
	return stretch->share != SLOT_NONE &&
	       (warm->shares[stretch->share].state == SHARE_HERE || stretch->is_dirty);
}

bool warm_has(const struct job *job, uint32_t pack, enum unit_section section, uint64_t first)
{
	return job->update->warm &&
	       is_here(job->update->warm, find_stretch(job->update->warm, pack, section, first));
}

struct warm_stretch *warm_take(struct job *job, uint32_t pack, enum unit_section section, uint64_t first,
			       bool may_defer, bool *ret_is_filled)
{
	struct warm *warm = job->update->warm;
	struct warm_stretch *stretch = warm ? find_stretch(warm, pack, section, first) : NULL;

	if (!stretch || stretch->share == SLOT_NONE)
		return NULL;
	if (first % STRETCH_ELEMENTS == 0)
		begin_stretch(job, stretch,
			      size_divide_up(stretch_elements(job, pack, section, first),
					     chunk_elements(&job->options, section)),
			      may_defer);
	/* The sweep changes it in the store alone. */
	if (!is_here(warm, stretch)) {
		stretch->filled &= (uint8_t)~chunk_bit(job, section, first);
		return NULL;
	}
	assert(!stretch->is_writing);
	warm->shares[stretch->share].users++;
	*ret_is_filled = stretch->filled & chunk_bit(job, section, first);
	stretch->filled &= (uint8_t)~chunk_bit(job, section, first);
	return stretch;
}

void warm_give(struct job *job, struct warm_stretch *stretch, enum unit_section section, uint64_t first,
	       bool is_filled)
{
	if (is_filled)
		stretch->filled |= chunk_bit(job, section, first);
	job->update->warm->shares[stretch->share].users--;
}

void warm_note_written(struct job *job, struct warm_stretch *stretch)
{
	if (--stretch->unwritten == 0)
		warm_mark(job, stretch, false);
}

void warm_mark(struct job *job, struct warm_stretch *stretch, bool is_dirty)
{
	int more = (int)is_dirty - (int)stretch->is_dirty;

	stretch->is_dirty = is_dirty;
	job->update->warm->shares[stretch->share].dirty += (uint32_t)more;
	job->update->warm->dirty += (uint32_t)more;
}

void warm_forget_pack(struct job *job, uint32_t pack)
{
	const struct warm *warm = job->update->warm;

	for (uint32_t i = warm ? warm->first_stretch[pack] : 0; warm && i < warm->first_stretch[pack + 1];
	     i++)
		warm->stretches[i].filled = 0;
}

/* ---- Shares that come ---- */

static void run_fetch(struct work *work)
{
	struct share *share = container_of(work, struct share, work);

	share->pinning = 0;
	share->status = memory_new_private(share->bytes, &share->memory);
	if (share->status < 0)
		return;
	memory_make_huge(&share->memory, true);
	share->pinning =
		engine_buffer_add(share->warm->job->node->engine, share->memory.base, share->memory.length);
}

static void on_fetched(struct work *work)
{
	struct share *share = container_of(work, struct share, work);
	struct job *job = share->warm->job;

	share->state = share->status < 0 ? SHARE_AWAY : SHARE_HERE;
	if (share->status < 0) {
		log_warning("job %s: the kernel has no memory for more of its state; it is read at each step",
			    job->name);
		share->warm->is_refused = true;
		budget_give_cache(job, share->bytes);
	}
	node_note_pinning(job->node, share->pinning);
	cache_end_move(job);
	job_settle(job);
}

static struct share *next_away(struct warm *warm)
{
	for (unsigned i = 0; i < SHARES_MOST; i++)
		if (warm->shares[i].bytes > 0 && warm->shares[i].state == SHARE_AWAY)
			return &warm->shares[i];
	return NULL;
}

static void start_move(struct share *share, enum share_state state, void (*run)(struct work *work),
		       void (*done)(struct work *work))
{
	struct job *job = share->warm->job;

	share->state = state;
	share->work = (struct work){ .run = run, .done = done, .urgency = WORK_NORMAL };
	cache_begin_move(job);
	workers_submit(job->node->slow_workers, &share->work);
}

/* That share, which is charged, is here later, and the job settled. */
static void warm_fetch(struct job *job)
{
	start_move(next_away(job->update->warm), SHARE_COMING, run_fetch, on_fetched);
}

/* ---- Shares that go ---- */

static void run_discard(struct work *work)
{
	struct share *share = container_of(work, struct share, work);

	/* In this order: pages that are pinned would stay. */
	engine_buffer_remove(share->warm->job->node->engine, share->memory.base, share->memory.length);
	memory_free(&share->memory);
}

static void on_discarded(struct work *work)
{
	struct share *share = container_of(work, struct share, work);
	struct job *job = share->warm->job;

	share->state = SHARE_AWAY;
	budget_give_cache(job, share->bytes);
	cache_end_move(job);
	/* The job too: if it was dropped, it waited for this. */
	job_settle(job);
	job_settle_all(job->node);
}

static void forget_share(const struct warm *warm, uint32_t share)
{
	for (uint32_t i = 0; i < warm->first_stretch[warm->job->catalog.pack_count]; i++)
		if (warm->stretches[i].share == share)
			warm->stretches[i].filled = 0;
}

/* In the job's turn: what is given up goes, if nobody uses it any more. */
static void warm_go_on(struct job *job)
{
	struct warm *warm = job->update->warm;

	for (unsigned i = 0; warm && i < SHARES_MOST; i++) {
		struct share *share = &warm->shares[i];

		if (share->state != SHARE_DRAINING || share->users > 0)
			continue;
		if (share->dirty > 0) {
			flush_draining(warm);
			continue;
		}
		forget_share(warm, i);
		start_move(share, SHARE_GOING, run_discard, on_discarded);
	}
}

static struct share *last_here(const struct job *job)
{
	unsigned last = SHARES_MOST - 1;

	while (job->update->warm->shares[last].state != SHARE_HERE)
		last--;
	return &job->update->warm->shares[last];
}

void warm_close(struct job *job)
{
	last_here(job)->state = SHARE_DRAINING;
}

void warm_keep_all(struct job *job)
{
	for (unsigned i = 0; job->update->warm && i < SHARES_MOST; i++)
		if (job->update->warm->shares[i].state == SHARE_DRAINING)
			job->update->warm->shares[i].state = SHARE_HERE;
}

/* ---- Bytes ---- */

static uint64_t bytes_in(const struct job *job, enum share_state first, enum share_state last)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; job->update->warm && i < SHARES_MOST; i++)
		if (job->update->warm->shares[i].state >= first && job->update->warm->shares[i].state <= last)
			bytes += job->update->warm->shares[i].bytes;
	return bytes;
}

uint64_t warm_bytes(const struct job *job)
{
	return bytes_in(job, SHARE_COMING, SHARE_GOING);
}

uint64_t warm_bytes_here(const struct job *job)
{
	return bytes_in(job, SHARE_HERE, SHARE_HERE);
}

/* Of the one that would be given up first; there is one. */
static uint64_t warm_bytes_last(const struct job *job)
{
	return last_here(job)->bytes;
}

uint64_t warm_bytes_leaving(const struct job *job)
{
	return bytes_in(job, SHARE_DRAINING, SHARE_GOING);
}

/* Of the share that would come next; 0: none would. */
static uint64_t warm_bytes_next(struct job *job)
{
	const struct share *share;

	if (!job->update->warm && job->location.has_nvme_optimizer && job->state == JOB_TRAINED)
		job->update->warm = warm_new(job);
	if (!job->update->warm || job->update->warm->is_refused)
		return 0;
	share = next_away(job->update->warm);
	return share ? share->bytes : 0;
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
