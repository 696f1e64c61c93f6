/* A sweep passes over the packs and applies the decided step to them, or, the first time, splits the masters
 * that were written.
 *
 * It cuts each trainable section into chunks. A chunk reads what is not in host memory into staging buffers,
 * is updated by a worker, is written to free places, and gives its buffers to the next one; as many are on
 * their way as keep the devices at work, and as there are buffers for. A pack that is resident is updated in
 * its slot; others stream past. A pack is published when its last chunk is computed, so that gathers go on
 * long before the sweep ends. */
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/plural.h"
#include "common/size.h"
#include "daemon/gradients/gradients.h"
#include "daemon/residency/residency.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/read_ahead.h"
#include "daemon/update/early.h"
#include "daemon/update/own.h"
#include "daemon/update/step_listeners.h"
#include "daemon/update/sweep.h"
#include "daemon/update/update.h"
#include "proto/name.h"

#define LEASE_PATIENCE_NS UINT64_C(1000000000)
/* Packs that are passed over, being loaded, read or leased, before the sweep waits. */
#define BEGIN_TRIES 16

/* ---- Who watches it ---- */

static void begin_save(struct sweep *sweep, uint32_t pack)
{
	QUEUE_FOREACH (link, &sweep->watches) {
		struct sweep_watch *watch = queue_entry(link, struct sweep_watch, link);

		watch->ops->begin_save(watch, pack);
	}
}

/* Whether somebody keeps what the pack is before its update. */
static bool is_saved(const struct sweep *sweep, uint32_t pack)
{
	QUEUE_FOREACH (link, &sweep->watches) {
		const struct sweep_watch *watch = queue_entry(link, struct sweep_watch, link);

		if (watch->ops->saves(watch, pack))
			return true;
	}
	return false;
}

static void end_save(struct sweep *sweep, uint32_t pack)
{
	QUEUE_FOREACH (link, &sweep->watches) {
		struct sweep_watch *watch = queue_entry(link, struct sweep_watch, link);

		watch->ops->end_save(watch, pack);
	}
}

static void end_watches(struct sweep *sweep)
{
	QUEUE_FOREACH (link, &sweep->watches) {
		struct sweep_watch *watch = queue_entry(link, struct sweep_watch, link);

		watch->ops->end_sweep(watch, sweep->has_failed ? -EIO : 0);
	}
}

/* ---- The end of packs and the sweep ---- */

static void finish_sweep(struct job *job)
{
	bool has_failed = job->update->sweep->has_failed,
	     was_initializing = job->update->sweep->is_initializing;

	sweep_free(job);
	if (has_failed) {
		job_settle(job);
		node_check_idle(job->node);
		return;
	}
	if (!was_initializing) {
		step_applied(job);
		return;
	}
	job->update->sweep_listener->initialized(job);
	events_of_job(
		job, EVENT_INITIALIZED, NULL,
		"%llu parameter%s in %u unit%s, %u rank%s, stage %u; %llu MiB of host memory, %llu MiB on "
		"NVMe; gradient sums %s",
		(unsigned long long)job->catalog.parameters, PLURAL(job->catalog.parameters),
		job->catalog.unit_count, PLURAL(job->catalog.unit_count), job->options.world_size,
		PLURAL(job->options.world_size), job->options.stage,
		(unsigned long long)(budget_host_bytes(job) / MIB),
		(unsigned long long)(budget_nvme_bytes(job) / MIB),
		job->location.has_nvme_sums ? "on NVMe, as far as they do not fit in their buffers"
					    : "in host memory");
	job_settle(job);
}

/* The pack's bytes are all new. */
static void finish_pack(struct job *job, uint32_t pack)
{
	residency_end_update(job, pack);
	if (early_publish(job, pack) && residency_has_slot(job, pack) && !early_keeps(job))
		residency_give_up(job, pack);
	end_save(job->update->sweep, pack);
	if (residency_has_slot(job, pack))
		residency_publish(job, pack, job->decided);
	else
		residency_set_version(job, pack, job->decided);
	for (uint32_t u = job->catalog.packs[pack].first_unit;
	     u < job->catalog.packs[pack].first_unit + job->catalog.packs[pack].unit_count; u++)
		gradient_try(job, u);
}

static void count_update(struct job *job, struct unit *unit)
{
	if (!unit_is_present(unit))
		return;
	unit->updates++;
	unit->last_update = job->decided;
	for (uint32_t i = 0; i < unit->tensor_count; i++)
		unit->tensors[i].missed += !unit->tensors[i].is_frozen && !unit->tensors[i].is_present;
}

static void count_updates(struct job *job, uint32_t pack)
{
	const struct pack *units = &job->catalog.packs[pack];

	if (pack_update(job, pack)->early == EARLY_NOTHING)
		spill_unpin(job, pack);
	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++) {
		count_update(job, &job->catalog.units[u]);
		gradient_reset_unit(job, u);
	}
}

/* A pack in a slot can be used when it is computed; one that only streams past, when it is written. */
void sweep_check_pack(struct sweep *sweep, uint32_t pack)
{
	struct job *job = sweep->job;
	const struct pack_update *update = pack_update(job, pack);

	if (!residency_is_updated(job, pack) || !update->is_issued || update->uncomputed > 0 ||
	    sweep->has_failed)
		return;
	if (!residency_has_slot(job, pack) && update->unwritten > 0)
		return;
	count_updates(job, pack);
	finish_pack(job, pack);
}

/* ---- Picking packs ---- */

/* Nobody can lawfully hold a lease now: all ranks have closed the step without one. */
static void throw_out(struct job *job, uint32_t pack, struct member *holder)
{
	struct port *port = holder->port;
	char reason[160];

	snprintf(reason, sizeof(reason), "rank %u (pid %d) has kept a lease on unit \"%.*s\" through a step",
		 holder->rank, (int)holder->pid, name_fit(pack_name(job, pack), 40), pack_name(job, pack));
	events_of_job(job, EVENT_THROWN_OUT,
		      &(struct log_fields){ .unit = pack_name(job, pack), .rank = &holder->rank },
		      "%s; its session ends, and the step goes on without it", reason);
	holder->has_void_leases = true;
	if (holder->has_left)
		member_release(holder);
	else
		job_throw_out(holder, reason);
	if (port && port->ops->close)
		port->ops->close(port, reason);
}

static void on_lease_timer(evutil_socket_t fd, short events, void *argument)
{
	struct job *job = argument;
	uint32_t pack = job->update->sweep->leased_pack;

	if (clock_now_ns() - job->update->decided_ns >= LEASE_PATIENCE_NS && residency_is_due(job, pack))
		for (struct member *holder = residency_update_holder(job, pack); holder;
		     holder = residency_update_holder(job, pack))
			throw_out(job, pack, holder);
	job_settle(job);
}

static void wait_for_holder(struct sweep *sweep, uint32_t pack)
{
	static const struct timeval soon = { .tv_usec = 500 };

	if (event_pending(sweep->lease_timer, EV_TIMEOUT, NULL))
		return;
	sweep->leased_pack = pack;
	event_add(sweep->lease_timer, &soon);
}

bool sweep_has_frozen(const struct pack *pack)
{
	for (int section = UNIT_TRAINABLE_SECTIONS; section < UNIT_SECTIONS; section++)
		if (pack->elements[section] > 0)
			return true;
	return false;
}

/* Of a pack that was updated early all is done but what is seen: its slot, and what its store shows. */
static void begin_adoption(struct sweep *sweep)
{
	sweep->is_adopting = pack_update(sweep->job, sweep->pack)->early != EARLY_NOTHING;
	sweep->is_saving = sweep->is_adopting && is_saved(sweep, sweep->pack);
}

/* False: it has to wait. */
static bool begin_pack(struct sweep *sweep, uint32_t pack)
{
	struct job *job = sweep->job;

	if (residency_is_pinned(job, pack))
		job->update->sweep_listener->came_to(job, pack);
	/* Its sums may be read ahead while it waits; an early update has consumed them. */
	bool is_early = pack_update(job, pack)->early != EARLY_NOTHING,
	     has_sums = is_early || spill_want(job, pack);

	if (!early_lets(job, pack) || !job->update->commit_listener->lets_update(job, pack) || !has_sums ||
	    !residency_can_update(job, pack))
		return false;
	bool was_absent = !residency_has_slot(job, pack),
	     may_load = (!is_early || early_keeps(job)) && !sweep_has_frozen(&job->catalog.packs[pack]);

	if (!residency_begin_update(job, pack, may_load)) {
		wait_for_holder(sweep, pack);
		return false;
	}
	if (!is_early)
		spill_pin(job, pack, false);
	sweep->was_absent = was_absent;
	update_begin_pack(job, pack);
	pack_update(job, pack)->is_unsaved = true;
	begin_save(sweep, pack);
	sweep_enter(sweep, pack);
	begin_adoption(sweep);
	queue_remove(&pack_update(job, pack)->sweep_link);
	sweep->packs_left--;
	return true;
}

/* One that cannot begin now lets others pass it. */
static bool begin_one_of(struct sweep *sweep, struct queue *packs, unsigned *tries)
{
	QUEUE_FOREACH (link, packs) {
		if (*tries == BEGIN_TRIES)
			return false;
		if (begin_pack(sweep, pack_update_pack(sweep->job,
						       queue_entry(link, struct pack_update, sweep_link))))
			return true;
		(*tries)++;
	}
	return false;
}

static bool is_waiting(const struct job *job, uint32_t pack)
{
	return residency_is_due(job, pack);
}

/* What has been read ahead holds buffers that all others need. */
static bool begin_ahead(struct sweep *sweep)
{
	uint32_t pack = read_ahead_find(sweep->job, is_waiting);

	return pack != SLOT_NONE && begin_pack(sweep, pack);
}

static bool begin_next_pack(struct sweep *sweep)
{
	unsigned tries = 0;

	return begin_one_of(sweep, &sweep->wanted, &tries) || begin_ahead(sweep) ||
	       begin_one_of(sweep, &sweep->waiting, &tries);
}

static void raise_pack(struct job *job, uint32_t pack)
{
	chunks_raise(job->update->sweep, pack);
	/* What it has asked for ahead of it is raised by the sweep. */
	job_settle(job);
}

static void hasten_pack(struct job *job, uint32_t pack)
{
	struct queue *link = &pack_update(job, pack)->sweep_link;

	if (!job->update->sweep || !residency_is_due(job, pack))
		return;
	queue_remove(link);
	queue_push(&job->update->sweep->wanted, link);
}

/* One thing at a time, until something has to be waited for. */
static bool advance(struct sweep *sweep)
{
	uint32_t pack = sweep->pack;
	enum sweep_issue issue;

	if (pack == SLOT_NONE)
		return begin_next_pack(sweep);
	issue = sweep_issue(sweep);
	if (issue == SWEEP_HAS_LEFT)
		sweep_check_pack(sweep, pack);
	return issue != SWEEP_HAS_TO_WAIT;
}

/* What was adopted is written, too. */
static bool has_come_through(const struct sweep *sweep)
{
	return sweep->packs_left == 0 && sweep->pack == SLOT_NONE && !early_is_busy(sweep->job);
}

void sweep_go_on(struct job *job)
{
	struct sweep *sweep = job->update->sweep;

	if (!sweep)
		return;
	while (!sweep->has_failed && advance(sweep))
		;
	if (sweep->running == 0 && (sweep->has_failed || has_come_through(sweep)))
		finish_sweep(job);
}

/* ---- Start and end ---- */

static bool has_work(const struct job *job, uint32_t pack, bool is_initializing)
{
	const struct pack *units = &job->catalog.packs[pack];

	if (is_initializing || job->current.state == WRITING_APPLYING)
		return is_initializing || update_is_written(job, pack);
	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++)
		if (gradient_has_content(job, u))
			return true;
	return false;
}

static void add_pack(struct sweep *sweep, uint32_t pack)
{
	bool is_wanted = residency_has_waiters(sweep->job, pack);

	residency_claim(sweep->job, pack);
	sweep->packs_left++;
	queue_push(is_wanted ? &sweep->wanted : &sweep->waiting, &pack_update(sweep->job, pack)->sweep_link);
}

static int make_sweep(struct job *job, bool is_initializing)
{
	int r = sweep_new(job, job->node->staging->count, &job->update->sweep);

	if (r < 0)
		return r;
	job->update->sweep->is_initializing = is_initializing;
	job->update->sweep->is_writing = job->current.state == WRITING_APPLYING;
	job->update->sweep->rates = &job->update->decided_rates;
	job->update->sweep->factor = job->update->factor;
	job->update->sweep->lease_timer = event_new(job->node->loop, -1, 0, on_lease_timer, job);
	return job->update->sweep->lease_timer ? 0 : -ENOMEM;
}

int sweep_start(struct job *job, bool is_initializing)
{
	_cleanup_free_ uint32_t *order = calloc(job->catalog.pack_count, sizeof(*order));
	int r = order ? make_sweep(job, is_initializing) : -ENOMEM;

	if (r < 0) {
		sweep_free(job);
		return r;
	}
	early_decide(job);
	chunk_gpu_begin_step(job);
	warm_pin(job);
	job->update->sweep_listener->began(job, &job->update->sweep->watches);
	prefetch_pass_order(job, false, order);
	for (uint32_t i = 0; i < job->catalog.pack_count; i++)
		if (has_work(job, order[i], is_initializing))
			add_pack(job->update->sweep, order[i]);
	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
		if (!residency_is_claimed(job, pack))
			residency_set_version(job, pack, job->decided);
	job_settle(job);
	return 0;
}

void sweep_free(struct job *job)
{
	struct sweep *sweep = TAKE_PTR(job->update->sweep);

	if (!sweep)
		return;
	end_watches(sweep);
	if (sweep->lease_timer)
		event_free(sweep->lease_timer);
	/* Of one that has failed. */
	while (queue_pop(&sweep->wanted) || queue_pop(&sweep->waiting))
		;
	sweep_destroy(sweep);
}

void sweep_cancel(struct job *job)
{
	early_withdraw(job);
	if (step_is_writing(&job->current)) {
		step_happens(job, STEP_EVENT_CANCELLED);
		job->update->writing_listener->forget(job);
	}
	if (!job->update->sweep)
		return;
	job->update->sweep->has_failed = true;
	job_settle(job);
}

const struct residency_listener sweep_residency_listener = {
	.awaited = hasten_pack,
	.raised = raise_pack,
};
