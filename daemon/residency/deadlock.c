/* Deadlock: ranks that wait for slots which only they themselves could free. */
#include <errno.h>
#include <stdio.h>

#include "daemon/model/model.h"
#include "daemon/residency/cache.h"
#include "daemon/residency/own.h"

static struct waiter *stuck_waiter(struct residence *residence)
{
	QUEUE_FOREACH (link, &residence->waiters) {
		struct waiter *waiter = queue_entry(link, struct waiter, link);

		if (waiter->blocked && waiter->blocked->is_stuck)
			return waiter;
	}
	return NULL;
}

static void mark_stuck(struct job *job)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->members.ranks[rank])
			job->members.ranks[rank]->is_stuck = false;
	QUEUE_FOREACH (place, &job->residency->slot_queue) {
		struct residence *residence = queue_entry(place, struct residence, link);

		QUEUE_FOREACH (link, &residence->waiters) {
			struct waiter *waiter = queue_entry(link, struct waiter, link);

			if (waiter->blocked)
				waiter->blocked->is_stuck = true;
		}
	}
}

static struct member *stuck_holder(struct job *job, uint32_t pack)
{
	const struct pack *units = &job->catalog.packs[pack];

	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++)
		for (uint32_t rank = 0; rank < job->options.world_size; rank++)
			if (job->members.ranks[rank] && job->members.ranks[rank]->is_stuck &&
			    member_has_lease(job->members.ranks[rank], u))
				return job->members.ranks[rank];
	return NULL;
}

/* Every slot that fits is leased by a rank that waits for a slot itself. */
static bool can_never_fit(struct job *job, uint32_t pack)
{
	const struct slot_class *class = residency_class(job, pack);

	for (uint32_t slot = class->first; slot < class->first + class->count; slot++)
		if (job->residency->slots.owners[slot] == SLOT_NONE ||
		    (slots_has_pack(&job->residency->slots, slot) &&
		     !stuck_holder(job, job->residency->slots.owners[slot])))
			return false;
	return true;
}

bool residency_awaits_release(struct job *job, const struct member *member)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->members.ranks[rank])
			job->members.ranks[rank]->is_stuck = true;
	QUEUE_FOREACH (place, &job->residency->slot_queue) {
		struct residence *residence = queue_entry(place, struct residence, link);

		QUEUE_FOREACH (link, &residence->waiters)
			if (queue_entry(link, struct waiter, link)->blocked == member &&
			    can_never_fit(job, residence_pack(residence)))
				return true;
	}
	return false;
}

static bool unmark_waiters(struct residence *residence)
{
	bool has_changed = false;

	for (struct waiter *waiter = stuck_waiter(residence); waiter; waiter = stuck_waiter(residence)) {
		waiter->blocked->is_stuck = false;
		has_changed = true;
	}
	return has_changed;
}

/* Ranks whose packs can still get a slot are not stuck, which may free others; until nothing changes. */
static void unmark_lucky(struct job *job)
{
	bool has_changed = true;

	while (has_changed) {
		has_changed = false;
		QUEUE_FOREACH (link, &job->residency->slot_queue) {
			struct residence *residence = queue_entry(link, struct residence, link);

			if (!can_never_fit(job, residence_pack(residence)))
				has_changed |= unmark_waiters(residence);
		}
	}
}

static void name_holders(struct job *job, uint32_t pack, char *text, size_t size)
{
	const struct slot_class *class = residency_class(job, pack);
	size_t used = 0;

	text[0] = '\0';
	for (uint32_t slot = class->first; slot < class->first + class->count && used + 64 < size; slot++) {
		struct member *holder = slots_has_pack(&job->residency->slots, slot)
						? stuck_holder(job, job->residency->slots.owners[slot])
						: NULL;

		/* It may have let go since we looked: leases are the clients' to change. */
		if (!holder)
			continue;
		used += (size_t)snprintf(text + used, size - used, "%s\"%s\" by rank %u", used ? ", " : "",
					 pack_name(job, job->residency->slots.owners[slot]), holder->rank);
	}
}

const char *residency_holders(const struct job *job)
{
	return job->residency->holders;
}

void residency_check_deadlock(struct job *job)
{
	if (queue_is_empty(&job->residency->slot_queue))
		return;
	mark_stuck(job);
	unmark_lucky(job);
	QUEUE_FOREACH (link, &job->residency->slot_queue) {
		struct residence *residence = queue_entry(link, struct residence, link);
		struct waiter *waiter = stuck_waiter(residence);

		if (!waiter || !can_never_fit(job, residence_pack(residence)))
			continue;
		if (cache_help_stuck(job))
			return;
		name_holders(job, residence_pack(residence), job->residency->holders,
			     sizeof(job->residency->holders));
		queue_remove(&waiter->link);
		if (queue_is_empty(&residence->waiters))
			residence_step(job, residence_pack(residence), RESIDENCE_LEAVE_QUEUE);
		waiter->done(waiter, -EDEADLK);
		return;
	}
}
