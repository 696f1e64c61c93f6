#include "daemon/residency/own.h"
#include "daemon/telemetry/telemetry.h"

/* Eviction: packs leave host memory, and are closed to clients while they are updated. */

/* ---- Leases ---- */

static struct member *unit_holder_among(struct queue *members, uint32_t unit)
{
	QUEUE_FOREACH (link, members) {
		struct member *member = queue_entry(link, struct member, link);

		if (member_has_lease(member, unit))
			return member;
	}
	return NULL;
}

/* Some member that has a lease on the unit, or NULL. */
static struct member *unit_holder(struct job *job, uint32_t unit)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->members.ranks[rank] && member_has_lease(job->members.ranks[rank], unit))
			return job->members.ranks[rank];
	return unit_holder_among(&job->members.lingering, unit);
}

static struct member *pack_holder(struct job *job, uint32_t pack, bool only_trainable)
{
	const struct pack *units = &job->catalog.packs[pack];

	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++) {
		if (only_trainable && !unit_is_trainable(&job->catalog.units[u]))
			continue;
		struct member *holder = unit_holder(job, u);

		if (holder)
			return holder;
	}
	return NULL;
}

/* Closes the words, then looks at the leases: in this order either a client sees the word or we see its
 * lease. */
static bool pack_close(struct job *job, uint32_t pack, enum directory_state state, bool only_trainable)
{
	const struct pack *units = &job->catalog.packs[pack];

	if (pack_holder(job, pack, only_trainable))
		return false;
	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++)
		if (!only_trainable || unit_is_trainable(&job->catalog.units[u]))
			directory_close(residency_entry(job, u), state);
	if (!pack_holder(job, pack, only_trainable))
		return true;
	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++) {
		uint64_t word = atomic_load_explicit(&residency_entry(job, u)->word, memory_order_relaxed);

		directory_restore(residency_entry(job, u),
				  directory_word(DIRECTORY_RESIDENT, directory_word_reloads(word),
						 directory_word_offset(word)));
	}
	return false;
}

struct member *residency_update_holder(struct job *job, uint32_t pack)
{
	return pack_holder(job, pack, true);
}

bool close_to_updates(struct job *job, uint32_t pack)
{
	return pack_close(job, pack, DIRECTORY_UPDATING, true);
}

bool close_to_all(struct job *job, uint32_t pack)
{
	return pack_close(job, pack, DIRECTORY_DRAINING, false);
}

/* ---- Eviction ---- */

/* Who waits for a resident pack waits for the version of a step that is not decided: these values are of no
 * use to him, but their slot may be to a rank that has yet to close that step. */
static bool is_evictable(const struct residence *residence)
{
	return residence->state == RESIDENCE_RESIDENT && residence->pins == 0 && residence->writes == 0;
}

static bool is_later(const struct job *job, uint32_t pack, uint32_t other)
{
	if (job->residency->next_use[pack] != job->residency->next_use[other])
		return job->residency->next_use[pack] > job->residency->next_use[other];
	return job->residency->residences[pack].used < job->residency->residences[other].used;
}

/* The evictable pack of the same class with the farthest next use; skips those up to distance. */
static uint32_t find_victim(struct job *job, uint32_t pack, uint32_t distance)
{
	const struct slot_class *class = residency_class(job, pack);
	uint32_t victim = SLOT_NONE;

	for (uint32_t slot = class->first; slot < class->first + class->count; slot++) {
		uint32_t owner = job->residency->slots.owners[slot];

		if (!slots_has_pack(&job->residency->slots, slot) ||
		    !is_evictable(&job->residency->residences[owner]))
			continue;
		if (job->residency->next_use[owner] <= distance ||
		    (victim != SLOT_NONE && !is_later(job, owner, victim)))
			continue;
		if (pack_holder(job, owner, false))
			continue;
		victim = owner;
	}
	return victim;
}

void give_slot(struct job *job, uint32_t pack)
{
	const struct pack *units = &job->catalog.packs[pack];
	struct residence *residence = residence_of(job, pack);

	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++)
		directory_set(residency_entry(job, u), DIRECTORY_ABSENT);
	slots_give(&job->residency->slots, residence->slot);
	residence->slot = SLOT_NONE;
}

void evict(struct job *job, uint32_t pack)
{
	trace_evicted(job, pack);
	give_slot(job, pack);
}

/* Each gather that comes in between costs one; who has a lease whenever we look must not keep the loop. The
 * slot timer tries again. */
#define EVICTION_TRIES 16

bool residency_take_slot(struct job *job, uint32_t pack, uint32_t distance)
{
	uint32_t slot = slots_take(&job->residency->slots, pack);

	for (unsigned tries = 0; slot == SLOT_NONE; tries++) {
		if (tries == EVICTION_TRIES)
			return false;
		uint32_t victim = find_victim(job, pack, distance);

		if (victim == SLOT_NONE || residency_flush(job, victim))
			return false;
		if (residence_step(job, victim, RESIDENCE_EVICT))
			slot = slots_take(&job->residency->slots, pack);
	}
	job->residency->residences[pack].slot = slot;
	return true;
}

bool residency_is_leased(struct job *job, uint32_t pack)
{
	return pack_holder(job, pack, false) != NULL;
}

bool residency_is_held(struct job *job, uint32_t pack)
{
	return !is_evictable(residence_of(job, pack)) || residency_is_leased(job, pack);
}

bool residency_evict(struct job *job, uint32_t pack)
{
	return is_evictable(residence_of(job, pack)) && !residency_flush(job, pack) &&
	       residence_step(job, pack, RESIDENCE_EVICT);
}
