/* Packs in host memory: which are there, which come, and which leave.
 *
 * A *pack* is the units that are moved and updated together. Its *residence* says how it is present in host
 * memory; state.c has the states. A *slot* is the place of one pack in the *arena*, which clients map; the
 * *directory* beside it tells clients what lies where, at which version. The plan reserves at least two slots
 * of each size for a job. Slots beyond that are its *cache*. They lie in *segments*, whose memory comes and
 * goes as other jobs need it. The pages of what is reserved come while the job's values are computed or read.
 *
 * A gather that finds its unit in the directory needs nothing of this module. One that misses waits here: the
 * pack gets a free slot, or that of the pack whose next use is farthest, and is read into it. Where every
 * slot is in use, it is queued for one. Each rank writes a trace of its gathers; the order that they follow
 * is learned from it for each phase, and what comes next is loaded before it is asked for. A sweep of the
 * update *claims* packs: from then on until it has ended a pack's update, the pack is neither loaded nor
 * evicted. A client's lease, a reader's pin and a transfer from the slot keep a pack where it is.
 *
 * Life cycle: residency_new() and residency_free() with the job; residency_plan() when its packs are known;
 * arena_take_over(), arena_open() and arena_fetch() when its memory is there, whose pages may still come;
 * arena_give_up() and residency_forget_all() when it is released; residency_clear() at the end.
 *
 * Callers: the session's requests (gather, prefetch, phase), the update, readers and writers of values,
 * backups, and the job's life, whose turns call residency_serve(), cache_go_on() and prefetch_bring_back().
 *
 * Upwards it reports by two tables: residency_listener hears that somebody waits for a pack, and cache_tenant
 * has the part of the cache that is no segment. What was in flight and has come home ends in job_settle().
 *
 * Limits: prefetches load at most 64 MiB at once; an eviction looks 16 times for a pack that no client has
 * just leased; a rank that can go on in no other way has other jobs asked 100 times for memory, and then it
 * is told who keeps it waiting. */
#ifndef TIERD_DAEMON_RESIDENCY_FRONT_H
#define TIERD_DAEMON_RESIDENCY_FRONT_H

#include "daemon/model/model.h"
#include "daemon/residency/arena.h"
#include "daemon/residency/cache.h"
#include "daemon/residency/damage.h"
#include "daemon/residency/order.h"
#include "daemon/residency/phase.h"
#include "daemon/residency/segment.h"

/* job_break(), because a transfer of the pack to its NVMe store has failed. */
void job_break_write(struct job *job, uint32_t pack, const struct store_transfer *transfer, int status);

/* ---- residency.c, load.c, eviction.c, deadlock.c: packs in host memory ---- */

/* Who is told what becomes of packs; the table is of a module above. */
struct residency_listener {
	/* Somebody has come to wait for a pack, as the first one. */
	void (*awaited)(struct job *job, uint32_t pack);
	/* Or for one that the running sweep has begun, at a version that has been decided. */
	void (*raised)(struct job *job, uint32_t pack);
};

int residency_new(struct job *job);
void residency_free(struct job *job);
/* All borrowed, for as long as there is the job. */
void residency_listen(struct job *job, const struct residency_listener *listener,
		      const struct cache_tenant *tenant, const struct segment_listener *segment_listener);
/* Makes the residences of the catalog's packs, at the job's step; none is in host memory yet. Each takes
 * residency_pack_bytes(). */
int residency_plan(struct job *job);
uint64_t residency_pack_bytes(void);
void residency_clear(struct job *job);
/* Until something of a frozen pack has been written there is nothing to load. The first sweep writes what is
 * trained; it takes zeros for what has no value. */
void residency_mark_blank(struct job *job);
/* The slots of its arena, which the budget plans. */
struct slots *residency_slots(const struct job *job);

/* A client has rung: it has released what somebody waits for, or gathered what was expected. */
void residency_ring(struct job *job);

/* True: the pack is resident at the version. False: the waiter is queued, and the pack is loaded if need be.
 */
bool residency_want(struct job *job, uint32_t pack, struct waiter *waiter, enum tier_priority priority);
/* Somebody waits for the pack, at any version; at a version that has been decided. */
bool residency_has_waiters(const struct job *job, uint32_t pack);
bool residency_is_awaited(const struct job *job, uint32_t pack);
void residency_forget(struct waiter *waiter);
/* What somebody who waits for the pack waits for. */
enum statistics_cause residency_cause(const struct job *job, uint32_t pack, const struct waiter *waiter);
/* The rank of a waiting gather does nothing else from now on. */
void residency_note_stall(const struct job *job, uint32_t pack, struct waiter *waiter);
/* Starts a load for which nobody waits. False: there is no slot for it. */
bool residency_prefetch(struct job *job, uint32_t pack);
/* Its packs have residences. The state is as clients see it, unless a sweep updates only some units of it. */
bool residency_is_planned(const struct job *job);
enum directory_state residency_state(const struct job *job, uint32_t pack);
uint64_t residency_version(const struct job *job, uint32_t pack);
bool residency_has_slot(const struct job *job, uint32_t pack);
/* Frozen values have been written that the store does not have. */
void residency_mark_dirty(struct job *job, uint32_t pack);
bool residency_is_dirty(const struct job *job, uint32_t pack);
/* While a reader in the daemon has a pin, or a transfer from its slot is under way, the pack stays in its
 * slot, and is not updated. */
void residency_pin(struct job *job, uint32_t pack);
void residency_unpin(struct job *job, uint32_t pack);
void residency_begin_write(struct job *job, uint32_t pack);
void residency_end_write(struct job *job, uint32_t pack);
bool residency_is_pinned(const struct job *job, uint32_t pack);
/* It is pinned, or written. */
bool residency_is_in_use(const struct job *job, uint32_t pack);

/* ---- Updates ---- */

/* A sweep is to update the pack. Until it has, the pack is neither loaded nor evicted. */
void residency_claim(struct job *job, uint32_t pack);
/* The pack waits for its update; is being updated; is in one of these two states. */
bool residency_is_due(const struct job *job, uint32_t pack);
bool residency_is_updated(const struct job *job, uint32_t pack);
bool residency_is_claimed(const struct job *job, uint32_t pack);
/* No transfer moves it, no reader uses it, and its slot has pages. */
bool residency_can_update(const struct job *job, uint32_t pack);
/* False while somebody has a lease on one of its trainable units. may_load: it gets a slot if there is one,
 * and stays there after the update, as the next pass wants it. */
bool residency_begin_update(struct job *job, uint32_t pack, bool may_load);
/* Some member that has such a lease, or NULL. */
struct member *residency_update_holder(struct job *job, uint32_t pack);
/* The pack has its new bytes. Next it is published, or, without a slot, gets its version. */
void residency_end_update(struct job *job, uint32_t pack);
/* Its bytes are in the store alone: its slot becomes free. */
void residency_give_up(struct job *job, uint32_t pack);
/* Publishes the pack, which has a slot, at the version; wakes the waiters. */
void residency_publish(struct job *job, uint32_t pack, uint64_t version);
/* Only the version changes: values are as before, or not in host memory. */
void residency_set_version(struct job *job, uint32_t pack, uint64_t version);
/* Serves those who wait for slots, after a release or the end of a transfer. */
void residency_serve(struct job *job);
/* Somebody waits for a slot; some pack is being loaded. */
bool residency_awaits_slot(const struct job *job);
bool residency_is_loading(const struct job *job);
/* The pack leaves host memory, unless somebody reads it, or it has to be written first. */
bool residency_evict(struct job *job, uint32_t pack);
/* Somebody has a lease on one of its units. */
bool residency_is_leased(struct job *job, uint32_t pack);
/* The arena has gone, and all packs with it. */
void residency_forget_all(struct job *job);
/* Writes frozen values that are only in host memory; true if it started something. */
bool residency_flush(struct job *job, uint32_t pack);
/* A gather of the member waits for a slot, and none becomes free before a rank releases a unit: all slots
 * that fit are leased, and none is being loaded, written or evicted. */
bool residency_awaits_release(struct job *job, const struct member *member);
/* A step has failed: who waits for its version looks again. */
void residency_fail_awaited(struct job *job);
/* Fails one wait for a slot that can never come, if there is one. residency_holders(): who held all slots
 * then, for messages. */
void residency_check_deadlock(struct job *job);
#define RESIDENCY_HOLDERS_TEXT 384
const char *residency_holders(const struct job *job);
const struct slot_class *residency_class(const struct job *job, uint32_t pack);
/* No load, write-back or reader. */
bool residency_is_quiet(const struct job *job);
/* The first of its units' names, and what is wrong with a store, for messages. */
const char *pack_name(const struct job *job, uint32_t pack);
const char *store_error(int status);
/* What a transfer of the pack that has failed is about, for the log. */
struct log_fields store_fault(const struct job *job, uint32_t pack, const struct store_transfer *transfer);
/* Where the pack's slot is, and where an element of a section is in it. */
char *residency_address(const struct job *job, uint32_t pack);
char *residency_element(const struct job *job, uint32_t pack, enum unit_section section, uint64_t element);

/* ---- gather.c ---- */
/* A gather of the pending's member may wait for that version, which is in its waiter then. False: the request
 * is answered. */
bool gather_admit(struct pending *pending, uint32_t epoch, uint32_t unit, uint64_t version);
void gather_start(struct pending *pending, const Tierd__Wire__Gather *gather);
/* The member closes the step before version, so it gets what it waits for at that version: it would hold a
 * lease on older values through its step. */
void gather_expect(struct member *member, uint64_t version);
/* A step of the member is refused: its gathers that wait for that version fail. */
void gather_fail_refused(struct member *member);
void gather_cancel(struct pending *pending, const Tierd__Wire__GatherCancel *cancel);
/* Its rank does nothing else from now on than to wait for it. */
void gather_await(struct pending *pending, const Tierd__Wire__GatherAwait *await);

/* ---- prefetch.c ---- */
/* Looks at the ranks' progress and loads what comes next. */
void prefetch_run(struct job *job);
/* In the job's turn: parameters that live in host memory come back there, all of them. */
void prefetch_bring_back(struct job *job);
void prefetch_hint(struct pending *pending, const Tierd__Wire__Prefetch *prefetch);
/* Gathers of the rank follow another order from now on. */
void prefetch_enter_phase(struct pending *pending, const Tierd__Wire__Phase *phase);
/* Reads what the ranks have gathered since. The unit that one of them is expected to gather next but so many;
 * ORDER_NONE: nothing is known. In how many gathers a pack is used next, of any rank. */
void prefetch_look(struct job *job);
uint32_t prefetch_expected(const struct job *job, uint32_t rank, uint32_t ahead);
uint32_t prefetch_next_use(struct job *job, uint32_t pack);
/* The ranks will gather something else next than was expected. */
void prefetch_expect_anew(struct job *job);
/* Lists all packs by their first use in a pass: a whole one, or what is left of the present one. order has
 * pack_count entries. */
void prefetch_pass_order(struct job *job, bool is_whole, uint32_t *order);

#endif
