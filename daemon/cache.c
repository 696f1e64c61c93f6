/* Who gives: jobs without ranks, which need none now; then whoever has the most, tract by tract, so that
 * caches become alike and small ones are spared. A tract that goes is emptied first: nothing new comes into
 * its slots, and what is leased, moved or updated there is left until it is not. Then a worker unpins its
 * pages and gives them to the kernel, and only then they are somebody else's. A tract that does not become
 * empty delays, but does not prevent that: another one is emptied beside it. */
#include "daemon/cache.h"

#include "common/size.h"
#include "daemon/budget.h"
#include "daemon/tract.h"

/* How often a rank without a slot waits for a turn of the slot timer, until memory of others comes. */
#define RESCUES_MOST 100

static bool is_usable(const struct job *job)
{
	return job->directory && job->phase >= JOB_FILLING && job->phase <= JOB_TRAINED && !job->is_dropped;
}

/* What bounds the one that wants memory is what must be given back. */
static bool may_give(const struct claim *claim, const struct job *job)
{
	return is_usable(job) && job != claim->job &&
	       (room_for(claim).bound != ROOM_OF_USER || job->uid == claim->uid);
}

/* ---- Shrinking ---- */

/* The one that becomes empty soonest. */
static uint32_t find_tract(struct job *job)
{
	uint32_t found = SLOT_NONE, least = UINT32_MAX;

	for (uint32_t i = job->slots.tract_count; i-- > 0 && least > 0;) {
		const struct slot_tract *tract = &job->slots.tracts[i];
		uint32_t held = tract->state == TRACT_HERE ? tract_held_slots(job, tract) : UINT32_MAX;

		if (held < least) {
			least = held;
			found = i;
		}
	}
	return found;
}

static bool gives_before(const struct job *job, const struct job *other)
{
	if (job_is_idle(job) != job_is_idle(other))
		return job_is_idle(job);
	return tract_bytes(job, TRACT_HERE) > tract_bytes(other, TRACT_HERE);
}

static struct job *find_giver(const struct claim *claim)
{
	struct job *giver = NULL;

	QUEUE_FOREACH (link, &claim->node->jobs) {
		struct job *job = queue_entry(link, struct job, link);

		if (may_give(claim, job) && tract_bytes(job, TRACT_HERE) > 0 &&
		    (!giver || gives_before(job, giver)))
			giver = job;
	}
	return giver;
}

uint64_t cache_bytes_on_the_way(const struct claim *claim)
{
	uint64_t bytes = 0;

	QUEUE_FOREACH (link, &claim->node->jobs) {
		const struct job *job = queue_entry(link, struct job, link);

		if (may_give(claim, job))
			bytes += tract_bytes(job, TRACT_DRAINING) + tract_bytes(job, TRACT_GOING);
	}
	return bytes;
}

uint64_t cache_bytes_at_most(const struct claim *claim)
{
	uint64_t bytes = cache_bytes_on_the_way(claim);

	QUEUE_FOREACH (link, &claim->node->jobs) {
		const struct job *job = queue_entry(link, struct job, link);

		if (may_give(claim, job))
			bytes += tract_bytes(job, TRACT_HERE);
	}
	return bytes;
}

void cache_reclaim(const struct claim *claim, uint64_t bytes)
{
	struct job *giver;

	while (cache_bytes_on_the_way(claim) < bytes && (giver = find_giver(claim))) {
		slots_close_tract(&giver->slots, find_tract(giver));
		job_settle(giver);
	}
}

static void keep_all(struct job *job)
{
	for (uint32_t i = 0; i < job->slots.tract_count; i++)
		if (job->slots.tracts[i].state == TRACT_DRAINING) {
			slots_open_tract(&job->slots, i);
			job_settle(job);
		}
}

bool cache_make_room(const struct claim *claim, uint64_t bytes)
{
	uint64_t lacking = room_lacking(claim, bytes);

	if (lacking > 0)
		cache_reclaim(claim, lacking);
	return cache_bytes_on_the_way(claim) >= lacking;
}

void cache_keep_all(struct node *node)
{
	QUEUE_FOREACH (link, &node->jobs)
		keep_all(queue_entry(link, struct job, link));
}

/* ---- Growing ---- */

static bool may_grow(const struct job *job)
{
	return is_usable(job) && !job_is_idle(job) && job->cache_moves == 0 &&
	       job->slots.here < job->slots.count;
}

static bool goes_before(const struct job *other, const struct job *job)
{
	return other->rescues > 0 || (may_grow(other) && other->cache_bytes < job->cache_bytes);
}

/* Nobody has less, or waits for what there is. */
static bool is_next(const struct job *job)
{
	if (!queue_is_empty(&job->node->shortages))
		return false;
	QUEUE_FOREACH (link, &job->node->jobs) {
		const struct job *other = queue_entry(link, struct job, link);

		if (other != job && goes_before(other, job))
			return false;
	}
	return true;
}

static uint32_t find_away(const struct job *job)
{
	for (uint32_t i = 0; i < job->slots.tract_count; i++)
		if (job->slots.tracts[i].state == TRACT_AWAY)
			return i;
	return SLOT_NONE;
}

static bool fetch(struct job *job)
{
	uint32_t tract = find_away(job);

	if (tract == SLOT_NONE || !budget_take_tract(job, tract))
		return false;
	if (tract_fetch(job, tract))
		return true;
	budget_give_tract(job, tract);
	return false;
}

/* Takes from who has more, also afterwards, or has no use for it. */
static void balance(struct job *job)
{
	struct claim claim = room_claim(job);
	const struct job *giver = find_giver(&claim);
	uint32_t tract = find_away(job);

	if (tract == SLOT_NONE || !giver || cache_bytes_on_the_way(&claim) > 0)
		return;
	uint64_t bytes = job->slots.tracts[tract].bytes, lacking = room_lacking(&claim, bytes);
	uint64_t left = tract_bytes(giver, TRACT_HERE), taken = lacking + giver->slots.tracts[0].bytes;

	if (bytes > budget_own_room(job))
		return;
	if ((job_is_idle(giver) && left >= lacking) ||
	    (left > taken && left - taken > job->cache_bytes + bytes))
		cache_reclaim(&claim, lacking);
}

/* ---- Turns ---- */

void cache_go_on(struct job *job)
{
	bool is_draining = false;

	if (!is_usable(job) || job->slots.tract_count == 0)
		return;
	for (uint32_t i = 0; i < job->slots.tract_count; i++)
		if (job->slots.tracts[i].state == TRACT_DRAINING) {
			tract_empty(job, i);
			is_draining |= job->slots.tracts[i].state == TRACT_DRAINING;
		}
	if (is_draining)
		job_watch_slots(job);
	else if (may_grow(job) && is_next(job) && !fetch(job))
		balance(job);
}

/* Others give up what their ranks can do without, but may hold that for long: then it was no help. */
static bool is_helped(struct job *job)
{
	struct claim claim = room_claim(job);
	uint32_t tract = find_away(job);
	uint64_t bytes = tract != SLOT_NONE ? job->slots.tracts[tract].bytes : 0;

	if (bytes == 0 || bytes > budget_own_room(job) || ++job->rescues > RESCUES_MOST)
		job->rescues = 0;
	else if (cache_make_room(&claim, bytes))
		return true;
	return false;
}

bool cache_rescue(struct job *job)
{
	if (tract_bytes(job, TRACT_COMING) > 0)
		return true;
	if (tract_bytes(job, TRACT_DRAINING) > 0) {
		keep_all(job);
		return true;
	}
	return fetch(job) || is_helped(job);
}
