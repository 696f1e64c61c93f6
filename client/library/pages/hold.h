/* Holds: leases on units that are resident, taken and given back without a system call or a lock. */
#ifndef TIERD_CLIENT_HOLD_H
#define TIERD_CLIENT_HOLD_H

#include <unistd.h>

#include "client/library/pages/debug.h"
#include "client/library/pages/job.h"

#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

static inline void hold_ring(const struct tierd_job *job)
{
	(void)!write(job->doorbell_fd, &(uint64_t){ 1 }, sizeof(uint64_t));
}

static inline const struct attachment *hold_newest(const struct tierd_job *job)
{
	return atomic_load_explicit(&job->attachment, memory_order_acquire);
}

/* A unit of a job that is ready, and of this process. */
static inline bool hold_is_known(const struct tierd_job *job, uint32_t unit)
{
	return LIKELY(job->generation == connection_generation) &&
	       LIKELY(unit < atomic_load_explicit(&job->ready_units, memory_order_seq_cst));
}

/* Whether the unit is known, and the job stands where the daemon does: else a message says what is the
 * matter. */
static inline bool hold_is_possible(const struct tierd_job *job, uint32_t unit,
				    const struct attachment **ret_attachment)
{
	if (UNLIKELY(!hold_is_known(job, unit)))
		return false;
	*ret_attachment = hold_newest(job);
	return atomic_load_explicit(&(*ret_attachment)->directory->epoch, memory_order_acquire) ==
	       atomic_load_explicit(&(*ret_attachment)->live_epoch, memory_order_relaxed);
}

/* ---- Giving back ---- */

static inline bool hold_give_to(const struct attachment *attachment, uint32_t unit)
{
	return LIKELY(!attachment->debug) ? lease_give(&attachment->counters[unit])
					  : debug_give(attachment->debug, unit);
}

/* The oldest first: a view of a daemon that is gone needs no lease any more, one of this daemon does. */
bool hold_give_to_oldest(const struct attachment *attachment, uint32_t unit);

/* Whoever waits for a release has not been told yet. False: this rank has no lease on the unit. */
static inline bool hold_give_quietly(struct tierd_job *job, uint32_t unit,
				     const struct attachment **ret_attachment)
{
	const struct attachment *attachment;
	bool is_given;

	/* Another thread may have given the lease that we saw, for one that is in a newer attachment. */
	do {
		attachment = hold_newest(job);
		is_given = LIKELY(!attachment->older) ? hold_give_to(attachment, unit)
						      : hold_give_to_oldest(attachment, unit);
	} while (UNLIKELY(!is_given) && attachment != hold_newest(job));
	*ret_attachment = attachment;
	return is_given;
}

static inline void hold_tell(const struct tierd_job *job, const struct attachment *attachment)
{
	if (release_is_awaited(attachment->leases))
		hold_ring(job);
}

static inline bool hold_give(struct tierd_job *job, uint32_t unit)
{
	const struct attachment *attachment;
	bool is_given = hold_give_quietly(job, unit, &attachment);

	hold_tell(job, attachment);
	return is_given;
}

/* Gives a lease back that nobody has seen; or that of another thread, which has given this one for it. */
void hold_take_back(struct tierd_job *job, const struct attachment *attachment, uint32_t unit);

/* ---- Taking ---- */

/* Takes a lease if the unit is there: 1; 0 if not. In a debugging run, an error if its pages do not open. */
static inline int hold_take(struct tierd_job *job, const struct attachment *attachment, uint32_t unit,
			    uint64_t *ret_offset, uint64_t *ret_version)
{
	uint64_t mask = job->hot[unit].awaited_mask;
	uint64_t awaited = atomic_load_explicit(&job->awaited, memory_order_acquire) & mask;
	uint64_t word = 0;

	if (!lease_take(&attachment->entries[unit], &attachment->counters[unit], awaited, &word)) {
		if (UNLIKELY(word == LEASE_OWED))
			hold_give(job, unit);
		return 0;
	}
	/* Another thread may have closed a step, or found the connection lost, before anybody could see this
	 * lease. */
	if (UNLIKELY((atomic_load_explicit(&job->awaited, memory_order_seq_cst) & mask) != awaited) ||
	    UNLIKELY(atomic_load_explicit(&attachment->live_epoch, memory_order_seq_cst) ==
		     ATTACHMENT_NO_EPOCH)) {
		hold_take_back(job, attachment, unit);
		return 0;
	}
	*ret_offset = directory_word_offset(word);
	*ret_version = atomic_load_explicit(&attachment->entries[unit].version, memory_order_relaxed);
	if (LIKELY(!attachment->debug))
		return 1;
	int r = debug_take(attachment->debug, unit, *ret_offset);

	if (r < 0)
		hold_take_back(job, attachment, unit);
	return r < 0 ? r : 1;
}

static inline void hold_show(const struct tierd_job *job, const struct attachment *attachment, uint32_t unit,
			     uint64_t offset, uint64_t version, struct tierd_view *ret_view)
{
	ret_view->base = attachment->arena + offset;
	ret_view->offsets = job->hot[unit].offsets;
	ret_view->version = version;
}

#endif
