/* Packs in host memory: slots, gather, prefetch, eviction, cache. */
#ifndef TIERD_DAEMON_RESIDENCY_FRONT_H
#define TIERD_DAEMON_RESIDENCY_FRONT_H

#include "daemon/model/model.h"
#include "daemon/residency/arena.h"
#include "daemon/residency/cache.h"
#include "daemon/residency/damage.h"
#include "daemon/residency/order.h"
#include "daemon/residency/phase.h"
#include "daemon/residency/tract.h"

enum sweep_state { SWEEP_NOTHING, SWEEP_WAITING, SWEEP_RUNNING };

struct residence;

/* Moves a section between its slot and the store. */
struct pack_transfer {
	struct store_transfer transfer;
	struct residence *residence;
	bool is_loading;
};

/* How a pack is present in host memory. */
struct residence {
	enum directory_state state; /* never DRAINING: that takes no time here */
	enum sweep_state sweep;	    /* what the running sweep has to do with it */
	bool is_dirty;		    /* frozen values were written; the NVMe copy is older */
	bool is_blank;		    /* all of it is frozen, and there is no NVMe copy yet */
	bool is_unsaved;	    /* a sweep has updated it since the last backup began */
	bool is_written;	    /* by the writing that is open, or is applied */
	bool awaits_backup;	    /* the one that is under way has not begun to write it */
	bool wants_slot;
	uint32_t slot;
	unsigned pins;		     /* readers in the daemon */
	unsigned writes;	     /* transfers from the slot */
	enum tier_priority priority; /* of the load */
	uint64_t version;
	uint64_t used; /* job->clock at its last use */
	struct queue waiters;
	struct queue link; /* of job->slot_wishes */
	struct pack_transfer parts[UNIT_SECTIONS];
	unsigned transfers_left;
	int status;
	struct job *job;
};

/* The same, because a transfer of the pack to its NVMe store has failed. */
void job_break_write(struct job *job, uint32_t pack, const struct store_transfer *transfer, int status);

/* ---- residency.c, eviction.c, deadlock.c: packs in host memory ---- */

/* Who is told what becomes of packs; the table is of a module above. */
struct residency_listener {
	/* Somebody has come to wait for a pack, as the first one. */
	void (*awaited)(struct job *job, uint32_t pack);
	/* Or for one that the running sweep has begun, at a version that has been decided. */
	void (*raised)(struct job *job, uint32_t pack);
};

int residency_new(struct job *job);
void residency_free(struct job *job);
/* Both borrowed, for as long as there is the job. */
void residency_listen(struct job *job, const struct residency_listener *listener,
		      const struct cache_tenant *tenant);
/* Of the packs that the catalog has, at the job's step, none of which is in host memory. */
int residency_plan(struct job *job);
void residency_clear(struct job *job);
/* Until something of it has been written, there is nothing to load of a pack. What is trained is not written
 * by clients but by the first sweep, which takes zeros for what has no value. */
void residency_mark_blank(struct job *job);
/* What the arena is planned in. */
struct slots *residency_slots(const struct job *job);

/* A client has rung: it has released something that was waited for, or gathered what was expected. */
void residency_ring(struct job *job);

/* True: the pack is resident at the version. False: the waiter is queued, and the pack is loaded if need be.
 */
bool residency_want(struct job *job, uint32_t pack, struct waiter *waiter, enum tier_priority priority);
/* Whether somebody waits for it, at a version that has been decided. */
bool residency_is_awaited(const struct job *job, uint32_t pack);
void residency_forget(struct waiter *waiter);
/* The rank of a gather that waits has come to do nothing else. */
void residency_note_stall(const struct job *job, uint32_t pack, struct waiter *waiter);
/* Starts a load without anybody waiting; false if there is no slot for it. */
bool residency_prefetch(struct job *job, uint32_t pack);
/* Of one that is planned. */
enum directory_state residency_state(const struct job *job, uint32_t pack);
uint64_t residency_version(const struct job *job, uint32_t pack);
bool residency_has_slot(const struct job *job, uint32_t pack);
/* Frozen values have been written that the store does not have. */
void residency_mark_dirty(struct job *job, uint32_t pack);
bool residency_is_dirty(const struct job *job, uint32_t pack);
/* A reader in the daemon, and a transfer from its slot: it stays there, and is not updated. */
void residency_pin(struct job *job, uint32_t pack);
void residency_unpin(struct job *job, uint32_t pack);
void residency_begin_write(struct job *job, uint32_t pack);
void residency_end_write(struct job *job, uint32_t pack);
bool residency_is_in_use(const struct job *job, uint32_t pack);
/* RESIDENT → UPDATING; false while somebody has a lease on one of its trainable units. */
bool residency_begin_update(struct job *job, uint32_t pack);
/* Who has one, or NULL. */
struct member *residency_update_holder(struct job *job, uint32_t pack);
/* ABSENT → UPDATING, if there is a slot for it: where there is room it stays in host memory after the update,
 * as the next pass wants it. */
void residency_update_in_slot(struct job *job, uint32_t pack);
/* Publishes the pack at the version; wakes the waiters. */
void residency_publish(struct job *job, uint32_t pack, uint64_t version);
/* The values have not changed, or are not in host memory: only the version. */
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
/* Whether a gather of the member waits for a slot that comes free only when a rank releases a unit: all that
 * fit are leased, and none is being loaded, written or evicted. */
bool residency_awaits_release(struct job *job, const struct member *member);
/* A step that was awaited has failed: who waits for its version looks again. */
void residency_fail_awaited(struct job *job);
/* A client waits for a slot that it will never get: fails one such wait. Who held all slots then, for
 * messages. */
void residency_check_deadlock(struct job *job);
#define RESIDENCY_HOLDERS_TEXT 384
const char *residency_holders(const struct job *job);
/* What the running sweep has to do with the pack: till it has come through, the pack is neither evicted nor
 * loaded. */
void residency_set_sweep(struct job *job, uint32_t pack, enum sweep_state sweep);
enum sweep_state residency_sweep(const struct job *job, uint32_t pack);
uint32_t residence_pack(const struct residence *residence);
const struct slot_class *residency_class(const struct job *job, uint32_t pack);
/* Its slot is free, whoever is there. */
void residency_vacate(struct job *job, uint32_t pack);
/* No load, write-back or reader. */
bool residency_is_quiet(const struct job *job);
/* The first of its units' names, and what is wrong with a store, for messages. */
const char *pack_name(const struct job *job, uint32_t pack);
const char *store_error(int status);
/* What a transfer of the pack that has failed is about, for the log. */
struct log_fields store_fault(const struct job *job, uint32_t pack, const struct store_transfer *transfer);
char *residency_address(const struct job *job, uint32_t pack);

/* ---- gather.c ---- */
void gather_start(struct pending *pending, const Tierd__Wire__Gather *gather);
/* The member closes the step before version: what it waits for it gets at that version. A lease on older
 * values would be one that it holds through its step. */
void gather_expect(struct member *member, uint64_t version);
/* A step of the member is refused: what waits for its version looks again. */
void gather_fail_refused(struct member *member);
/* True, and it is answered, if the gather waits for a step that its own rank has yet to finish. */
bool gather_refuse_owed(struct pending *pending);
void gather_cancel(struct pending *pending, const Tierd__Wire__GatherCancel *cancel);
/* Its rank has come to do nothing else but to wait for it. */
void gather_await(struct pending *pending, const Tierd__Wire__GatherAwait *await);

/* ---- prefetch.c ---- */
/* Looks at the ranks' progress and loads what comes next. */
void prefetch_run(struct job *job);
/* In the job's turn: parameters that live in host memory come back there, all of them. */
void prefetch_bring_back(struct job *job);
void prefetch_hint(struct pending *pending, const Tierd__Wire__Prefetch *prefetch);
/* Gathers of the rank follow another order from now on. */
void prefetch_enter_phase(struct pending *pending, const Tierd__Wire__Phase *phase);
/* What the ranks will gather next is not what it was. */
void prefetch_expect_anew(struct job *job);
/* The packs in the order of their first use in a pass: of a whole one, or from where the ranks are now on;
 * order has pack_count entries. */
void prefetch_pass_order(struct job *job, bool is_whole, uint32_t *order);

#endif
