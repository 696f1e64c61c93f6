/* Takes and gives back leases on resident units, without a system call and without a lock. */
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

/* Whether the job is ready, was opened by this process, and has this unit. */
static inline bool hold_is_known(const struct tierd_job *job, uint32_t unit)
{
	return LIKELY(job->generation == connection_generation) &&
	       LIKELY(unit < atomic_load_explicit(&job->ready_units, memory_order_seq_cst));
}

/* Whether the unit is known and the job's epoch is the daemon's. If not, the slow path finds out why. */
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

/* False: the attachment has no lease on the unit there. */
static inline bool hold_give_to(const struct attachment *attachment, enum place place, uint32_t unit)
{
	const struct lease_table *table = attachment_table(attachment, place);

	if (UNLIKELY(!table))
		return false;
	return LIKELY(!table->debug) ? lease_give(&table->counters[unit]) : debug_give(table->debug, unit);
}

/* Gives back the oldest lease on the unit: views of a daemon that has ended need no lease, those of this
 * daemon do. */
bool hold_give_to_oldest(const struct attachment *attachment, enum place place, uint32_t unit);

/* Gives a lease back without ringing the doorbell; hold_tell() does that. False: this rank has no lease on
 * the unit there. */
static inline bool hold_give_quietly(struct tierd_job *job, enum place place, uint32_t unit,
				     const struct attachment **ret_attachment)
{
	const struct attachment *attachment;
	bool is_given;

	/* Another thread may have given back the lease that we saw in place of one in a newer attachment. */
	do {
		attachment = hold_newest(job);
		is_given = LIKELY(!attachment->older) ? hold_give_to(attachment, place, unit)
						      : hold_give_to_oldest(attachment, place, unit);
	} while (UNLIKELY(!is_given) && attachment != hold_newest(job));
	*ret_attachment = attachment;
	return is_given;
}

static inline void hold_tell(const struct tierd_job *job, const struct attachment *attachment,
			     enum place place)
{
	const struct lease_table *table = attachment_table(attachment, place);

	if (table && release_is_awaited(table->is_release_wanted))
		hold_ring(job);
}

static inline bool hold_give(struct tierd_job *job, enum place place, uint32_t unit)
{
	const struct attachment *attachment;
	bool is_given = hold_give_quietly(job, place, unit, &attachment);

	hold_tell(job, attachment, place);
	return is_given;
}

/* Gives back a lease that was just taken. If another thread has given back this one in place of its own,
 * gives back that thread's. */
void hold_take_back(struct tierd_job *job, const struct attachment *attachment, enum place place,
		    uint32_t unit);

/* ---- Taking ---- */

/* Tells the daemon of a gather, which so learns the order. */
static inline void hold_note(struct tierd_job *job, const struct attachment *attachment, uint32_t unit)
{
	atomic_fetch_add_explicit(&job->hot[unit].gathers, 1, memory_order_relaxed);
	if (trace_append(attachment->leases, &unit, 1))
		hold_ring(job);
}

/* Takes a lease: 1, or 0 if the unit is not resident there at the awaited version. With TIERD_DEBUG=leases a
 * negative errno, if its pages cannot be made readable. */
static inline int hold_take(struct tierd_job *job, const struct attachment *attachment, enum place place,
			    uint32_t unit, uint64_t *ret_offset, uint64_t *ret_version)
{
	const struct lease_table *table = attachment_table(attachment, place);
	uint64_t mask = job->hot[unit].awaited_mask;
	uint64_t awaited = atomic_load_explicit(&job->awaited, memory_order_acquire) & mask;
	uint64_t word = 0;

	if (UNLIKELY(!table))
		return 0;
	if (!lease_take(&table->entries[unit], &table->counters[unit], awaited, &word)) {
		if (UNLIKELY(word == LEASE_OWED))
			hold_give(job, place, unit);
		return 0;
	}
	/* Another thread may have closed a step, or lost the connection, before this lease was visible. */
	if (UNLIKELY((atomic_load_explicit(&job->awaited, memory_order_seq_cst) & mask) != awaited) ||
	    UNLIKELY(atomic_load_explicit(&attachment->live_epoch, memory_order_seq_cst) ==
		     ATTACHMENT_NO_EPOCH)) {
		hold_take_back(job, attachment, place, unit);
		return 0;
	}
	*ret_offset = directory_word_offset(word);
	*ret_version = atomic_load_explicit(&table->entries[unit].version, memory_order_relaxed);
	if (LIKELY(!table->debug))
		return 1;
	int r = debug_take(table->debug, unit, *ret_offset);

	if (r < 0)
		hold_take_back(job, attachment, place, unit);
	return r < 0 ? r : 1;
}

static inline void hold_show(const struct tierd_job *job, const struct attachment *attachment,
			     enum place place, uint32_t unit, uint64_t offset, uint64_t version,
			     struct tierd_view *ret_view)
{
	ret_view->base = attachment_table(attachment, place)->memory + offset;
	ret_view->offsets = job->hot[unit].offsets;
	ret_view->version = version;
}

#endif
