/* Segments that are planned go first, and at once: nothing is in them yet. Then warm state goes before any
 * other segment: without it a sweep reads more, and without slots ranks wait. Who gives: jobs without ranks,
 * which need none now; then whoever has the most, segment by segment, so that caches become alike and small
 * ones are spared. A segment that goes is emptied first: nothing new comes into its slots, and what is
 * leased, moved or updated there is left until it is not. Then a worker unpins its pages and gives them to
 * the kernel, and only then they are somebody else's. A segment that does not become empty delays, but does
 * not prevent that: another one is emptied beside it. */

#include "daemon/residency/cache.h"
#include "daemon/residency/segment.h"
#include "daemon/residency/own.h"
#include "daemon/resources/resources.h"

/* How often a rank without a slot waits for a turn of the slot timer, until memory of others comes. */
#define STUCK_WAITS_MOST 100

static bool is_usable(const struct job *job)
{
	return job->residency->directory && job->state >= JOB_FILLING && job->state <= JOB_TRAINED;
}

/* What bounds the one that wants memory is what must be given back. */
static bool may_give(const struct claim *claim, const struct job *job)
{
	return is_usable(job) && job != claim->job &&
	       (headroom_for(claim).bound != HEADROOM_OF_USER || job->uid == claim->uid);
}

/* ---- Shrinking ---- */

/* The one that becomes empty soonest. */
static uint32_t find_segment(struct job *job)
{
	uint32_t found = SLOT_NONE, least = UINT32_MAX;

	for (uint32_t i = job->residency->slots.segment_count; i-- > 0 && least > 0;) {
		const struct slot_segment *segment = &job->residency->slots.segments[i];
		uint32_t held = segment_may_leave(segment->state, segment->failures)
					? segment_held_slots(job, segment)
					: UINT32_MAX;

		if (held < least) {
			least = held;
			found = i;
		}
	}
	return found;
}

/* What it has of it, and may give up. */
typedef uint64_t stock_of(const struct job *job);

static uint64_t segments_here(const struct job *job)
{
	const struct slots *slots = &job->residency->slots;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < slots->segment_count; i++)
		if (segment_may_leave(slots->segments[i].state, slots->segments[i].failures))
			bytes += slots->segments[i].bytes;
	return bytes;
}

static uint64_t warm_here(const struct job *job)
{
	return job->residency->cache_tenant->bytes_here(job);
}

static bool gives_before(const struct job *job, const struct job *other, stock_of *stock)
{
	if (job_is_idle(job) != job_is_idle(other))
		return job_is_idle(job);
	return stock(job) > stock(other);
}

static struct job *find_giver(const struct claim *claim, stock_of *stock)
{
	struct job *giver = NULL;

	QUEUE_FOREACH (link, &claim->node->jobs.live) {
		struct job *job = queue_entry(link, struct job, link);

		if (may_give(claim, job) && stock(job) > 0 && (!giver || gives_before(job, giver, stock)))
			giver = job;
	}
	return giver;
}

static uint64_t sum_of_givers(const struct claim *claim, stock_of *stock)
{
	uint64_t bytes = 0;

	QUEUE_FOREACH (link, &claim->node->jobs.live) {
		const struct job *job = queue_entry(link, struct job, link);

		if (may_give(claim, job))
			bytes += stock(job);
	}
	return bytes;
}

static uint64_t bytes_leaving(const struct job *job)
{
	return segment_bytes(job, SEGMENT_DRAINING) + segment_bytes(job, SEGMENT_GOING) +
	       job->residency->cache_tenant->bytes_leaving(job);
}

static uint64_t cache_bytes_on_the_way(const struct claim *claim)
{
	return sum_of_givers(claim, bytes_leaving);
}

/* Segments that are to come may be given up at once, or when they are here. */
static uint64_t bytes_at_most(const struct claim *claim)
{
	return cache_bytes_on_the_way(claim) + sum_of_givers(claim, warm_here) +
	       sum_of_givers(claim, segment_bytes_to_come) + sum_of_givers(claim, segments_here);
}

/* False: nobody has anything left. */
static bool give_up_some(const struct claim *claim)
{
	struct job *giver = find_giver(claim, warm_here);

	if (giver) {
		giver->residency->cache_tenant->close(giver);
	} else {
		giver = find_giver(claim, segments_here);
		if (!giver)
			return false;
		slots_close_segment(&giver->residency->slots, find_segment(giver));
	}
	job_settle(giver);
	return true;
}

/* Returns how many bytes there are now. */
static uint64_t give_up_planned(const struct claim *claim, uint64_t bytes)
{
	uint64_t given = 0;

	QUEUE_FOREACH (link, &claim->node->jobs.live) {
		struct job *job = queue_entry(link, struct job, link);

		if (may_give(claim, job))
			given += segment_give_planned(job, size_rest(bytes, given));
	}
	if (given > 0)
		job_settle_all(claim->node);
	return given;
}

void cache_reclaim(const struct claim *claim, uint64_t bytes)
{
	uint64_t given = give_up_planned(claim, size_rest(bytes, cache_bytes_on_the_way(claim)));

	bytes = size_rest(bytes, given);
	while (cache_bytes_on_the_way(claim) < bytes && give_up_some(claim))
		;
}

static void keep_all(struct job *job)
{
	for (uint32_t i = 0; i < job->residency->slots.segment_count; i++)
		if (job->residency->slots.segments[i].state == SEGMENT_DRAINING) {
			slots_open_segment(&job->residency->slots, i);
			job_settle(job);
		}
}

void cache_keep_all(struct node *node)
{
	QUEUE_FOREACH (link, &node->jobs.live) {
		struct job *job = queue_entry(link, struct job, link);

		keep_all(job);
		job->residency->cache_tenant->keep_all(job);
	}
}

void cache_begin_move(struct job *job)
{
	job->residency->cache_moves++;
}

void cache_end_move(struct job *job)
{
	job->residency->cache_moves--;
}

bool cache_is_quiet(const struct job *job)
{
	return job->residency->cache_moves == 0;
}

/* ---- Growing ---- */

static bool may_grow(const struct job *job)
{
	return is_usable(job) && !job_is_idle(job) && job->residency->cache_moves == 0 &&
	       job->residency->slots.here < job->residency->slots.count;
}

static uint64_t segments_of(const struct job *job)
{
	return budget_cache_bytes(job) - job->residency->cache_tenant->bytes(job);
}

static bool goes_before(const struct job *other, const struct job *job)
{
	return other->residency->stuck_waits > 0 ||
	       (may_grow(other) && segments_of(other) < segments_of(job));
}

/* Nobody has less, or waits for what there is. */
static bool is_next(const struct job *job)
{
	if (shortage_is_awaited(job->node))
		return false;
	QUEUE_FOREACH (link, &job->node->jobs.live) {
		const struct job *other = queue_entry(link, struct job, link);

		if (other != job && goes_before(other, job))
			return false;
	}
	return true;
}

static uint32_t find_away(const struct job *job)
{
	for (uint32_t i = 0; i < job->residency->slots.segment_count; i++)
		if (job->residency->slots.segments[i].state == SEGMENT_AWAY)
			return i;
	return SLOT_NONE;
}

static bool fetch(struct job *job)
{
	uint32_t segment = find_away(job);

	if (segment == SLOT_NONE || !budget_take_cache(job, job->residency->slots.segments[segment].bytes))
		return false;
	if (segment_fetch(job, segment))
		return true;
	budget_give_cache(job, job->residency->slots.segments[segment].bytes);
	return false;
}

/* Of what a job wants more of, and another has. */
struct trade {
	const struct job *giver; /* NULL: nobody has any */
	uint64_t left, least;	 /* that it has; that goes of it at once */
	uint64_t own, wanted;
};

/* From who has more, also afterwards, or has no use for it. */
static bool is_fair(const struct trade *trade, uint64_t lacking)
{
	uint64_t taken = lacking + trade->least;

	if (!trade->giver)
		return false;
	return (job_is_idle(trade->giver) && trade->left >= lacking) ||
	       (trade->left > taken && trade->left - taken > trade->own + trade->wanted);
}

/* Warm state of others is taken for it, and then segments, where that is fair. */
static void balance(struct job *job)
{
	struct claim claim = claim_of_job(job);
	const struct job *giver = find_giver(&claim, segments_here);
	uint32_t segment = find_away(job);

	if (segment == SLOT_NONE || cache_bytes_on_the_way(&claim) > 0)
		return;
	uint64_t bytes = job->residency->slots.segments[segment].bytes,
		 lacking = headroom_lacking(&claim, bytes);
	uint64_t warm = sum_of_givers(&claim, warm_here);
	const struct trade trade = { .giver = giver,
				     .left = giver ? segments_here(giver) : 0,
				     .least = giver ? giver->residency->slots.segments[0].bytes : 0,
				     .own = segments_of(job),
				     .wanted = bytes };

	if (bytes > budget_own_headroom(job))
		return;
	if (warm >= lacking || is_fair(&trade, lacking - warm))
		cache_reclaim(&claim, lacking);
}

/* ---- Growing of warm state ---- */

static bool may_warm(struct job *job)
{
	return is_usable(job) && !job_is_idle(job) && job->residency->cache_moves == 0 &&
	       job->residency->slots.here == job->residency->slots.count &&
	       job->residency->cache_tenant->bytes_next(job) > 0;
}

/* It would take more, if the node had it. */
static bool may_take_warm(struct job *job)
{
	struct claim claim = claim_of_job(job);
	uint64_t bytes;

	if (!may_warm(job))
		return false;
	bytes = job->residency->cache_tenant->bytes_next(job);
	return bytes <= budget_own_headroom(job) &&
	       (headroom_for(&claim).bound != HEADROOM_OF_USER || headroom_lacking(&claim, bytes) == 0);
}

/* It will get the memory for another segment, if nobody takes that before. */
static bool awaits_segment(const struct job *job)
{
	struct claim claim = claim_of_job(job);
	uint32_t segment = is_usable(job) && !job_is_idle(job) ? find_away(job) : SLOT_NONE;
	uint64_t bytes;

	if (segment == SLOT_NONE)
		return false;
	bytes = job->residency->slots.segments[segment].bytes;
	return bytes <= budget_own_headroom(job) &&
	       headroom_lacking(&claim, bytes) <=
		       cache_bytes_on_the_way(&claim) + sum_of_givers(&claim, warm_here);
}

static bool is_next_to_warm(struct job *job)
{
	if (shortage_is_awaited(job->node))
		return false;
	QUEUE_FOREACH (link, &job->node->jobs.live) {
		struct job *other = queue_entry(link, struct job, link);

		if (other != job &&
		    (other->residency->stuck_waits > 0 || awaits_segment(other) ||
		     (may_take_warm(other) && other->residency->cache_tenant->bytes(other) <
						      job->residency->cache_tenant->bytes(job))))
			return false;
	}
	return true;
}

static void balance_warm(struct job *job)
{
	struct claim claim = claim_of_job(job);
	const struct job *giver = find_giver(&claim, warm_here);
	uint64_t bytes = job->residency->cache_tenant->bytes_next(job),
		 lacking = headroom_lacking(&claim, bytes);
	const struct trade trade = { .giver = giver,
				     .left = giver ? warm_here(giver) : 0,
				     .least = giver ? giver->residency->cache_tenant->bytes_last(giver) : 0,
				     .own = job->residency->cache_tenant->bytes(job),
				     .wanted = bytes };

	if (bytes <= budget_own_headroom(job) && cache_bytes_on_the_way(&claim) == 0 &&
	    is_fair(&trade, lacking))
		cache_reclaim(&claim, lacking);
}

static void shrink_warm(struct job *job)
{
	/* Nobody knows whether it is ever trained again. */
	while (job_is_idle(job) && warm_here(job) > 0)
		job->residency->cache_tenant->close(job);
	job->residency->cache_tenant->go_on(job);
}

static void grow_warm(struct job *job)
{
	if (!may_warm(job) || !is_next_to_warm(job))
		return;
	if (budget_take_cache(job, job->residency->cache_tenant->bytes_next(job)))
		job->residency->cache_tenant->fetch(job);
	else
		balance_warm(job);
}

/* ---- Turns ---- */

/* False: some segment of it is not empty yet. */
static bool empty_segments(struct job *job)
{
	bool is_draining = false;

	for (uint32_t i = 0; i < job->residency->slots.segment_count; i++)
		if (job->residency->slots.segments[i].state == SEGMENT_DRAINING) {
			segment_empty(job, i);
			is_draining |= job->residency->slots.segments[i].state == SEGMENT_DRAINING;
		}
	return !is_draining;
}

void cache_go_on(struct job *job)
{
	if (!is_usable(job))
		return;
	shrink_warm(job);
	/* Nobody waits for them. */
	if (job_is_idle(job) && segment_give_planned(job, UINT64_MAX) > 0)
		job_settle_all(job->node);
	segment_fetch_planned(job);
	if (!empty_segments(job))
		job_watch_slots(job);
	else if (may_grow(job) && is_next(job) && !fetch(job))
		balance(job);
	else
		grow_warm(job);
}

/* Others give up what their ranks can do without, but may hold that for long: then it was no help. */
static bool is_helped(struct job *job)
{
	struct claim claim = claim_of_job(job);
	uint32_t segment = find_away(job);
	uint64_t bytes = segment != SLOT_NONE ? job->residency->slots.segments[segment].bytes : 0;

	if (bytes == 0 || bytes > budget_own_headroom(job) ||
	    ++job->residency->stuck_waits > STUCK_WAITS_MOST)
		job->residency->stuck_waits = 0;
	else if (holders_make_room(&claim, bytes))
		return true;
	return false;
}

bool cache_help_stuck(struct job *job)
{
	if (segment_bytes_to_come(job) > 0)
		return true;
	if (segment_bytes(job, SEGMENT_DRAINING) > 0) {
		keep_all(job);
		return true;
	}
	return fetch(job) || is_helped(job);
}

const struct holder cache_holder = {
	.reclaim = cache_reclaim,
	.bytes_on_the_way = cache_bytes_on_the_way,
	.bytes_at_most = bytes_at_most,
	.keep_all = cache_keep_all,
};
