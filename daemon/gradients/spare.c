/* Spare buffers: where a contribution that waits for other ranks is put aside, when its own rank wants its
 * buffer back. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "daemon/gradients/own.h"
#include "daemon/gradients/gradient_listener.h"
#include "daemon/gradients/gradients.h"
#include "daemon/model/model.h"
#include "daemon/residency/residency.h"
#include "daemon/resources/resources.h"
#include "daemon/telemetry/telemetry.h"

static void run_copy(struct work *work)
{
	struct spare_buffer *spare = container_of(work, struct spare_buffer, work);

	memcpy(spare->memory.base, spare->source->data, spare->source_bytes);
	if (spare->source->absent)
		memcpy(spare->absent, spare->source->absent,
		       gradient_absent_bytes(spare->source->member->job));
}

/* The copy takes the contribution's place. */
static void on_copied(struct work *work)
{
	struct spare_buffer *spare = container_of(work, struct spare_buffer, work);
	struct contribution *source = TAKE_PTR(spare->source);
	struct member *member = source->member;
	struct job *job = member->job;
	struct sum *sum = gradient_sum_of(job, source->unit, source->rank);

	trace_worked(job, TRACE_HOLD, source->unit, 0, work);
	spare->contribution = (struct contribution){ .member = member,
						     .rank = source->rank,
						     .unit = source->unit,
						     .micro_batch = source->micro_batch,
						     .step = source->step,
						     .data = spare->memory.base,
						     .absent = source->absent ? spare->absent : NULL,
						     .spare = spare,
						     .pending = TAKE_PTR(source->pending),
						     .is_active = !source->is_void };
	queue_init(&spare->contribution.link);
	job->gradients->reductions_running--;
	if (source->is_void) {
		queue_push(&job->gradients->free_spares, &spare->link);
	} else {
		member->busy++;
		contribution_wait(&spare->contribution);
	}
	contribution_finish(source);
	member_release(member);
	sum_try(job, sum);
	gradient_unblock(job, false);
	job->gradients->listener->changed(job);
	job_settle(job);
}

/* What lies in the bytes that a rank waits for. */
struct blocking {
	uint32_t count, reading, arriving;
	struct contribution *waiting; /* the first that no worker reads; NULL: none */
};

static struct blocking find_blocking(const struct member *member, const struct pending *waiter)
{
	const struct gradient_span wanted = { waiter->first, waiter->count };
	struct blocking blocking = { 0 };

	for (uint32_t i = 0; i < member->buffer_count; i++) {
		struct contribution *contribution = &member->pusher->contributions[i];

		if (!buffers_block(member, i, wanted))
			continue;
		blocking.count++;
		blocking.reading += contribution->is_reading;
		blocking.arriving += contribution->is_arriving;
		if (!contribution->is_reading && !blocking.waiting)
			blocking.waiting = contribution;
	}
	return blocking;
}

/* On their way from a GPU: no rank can help, nor a worker. */
static enum statistics_cause cause_of(const struct blocking *blocking)
{
	return blocking->arriving > 0 && !blocking->waiting ? STATISTICS_GPU : STATISTICS_GRADIENT_BUFFER;
}

static void move_stalls(const struct member *member)
{
	QUEUE_FOREACH (link, &member->pusher->buffer_waiters) {
		struct pending *pending = queue_entry(link, struct pending, link);
		const struct blocking blocking = find_blocking(member, pending);

		stall_move(pending, cause_of(&blocking));
	}
}

/* The one that has waited longest. */
static const struct pending *first_waiter(const struct member *member)
{
	return queue_entry(queue_first(&member->pusher->buffer_waiters), struct pending, link);
}

static struct spare_buffer *spare_new(struct job *job)
{
	struct spare_buffer *spare = calloc(1, sizeof(*spare) + gradient_absent_bytes(job));

	if (!spare)
		return NULL;
	spare->memory = (struct memory)MEMORY_INIT;
	if (memory_new_private(job->catalog.gradient_bytes_maximum, &spare->memory) < 0) {
		free(spare);
		return NULL;
	}
	spare->work = (struct work){ .run = run_copy, .done = on_copied, .urgency = WORK_URGENT };
	queue_push(&job->gradients->all_spares, &spare->all_link);
	queue_push(&job->gradients->free_spares, &spare->link);
	return spare;
}

static uint64_t bytes_of_one(const struct job *job)
{
	return size_align(job->catalog.gradient_bytes_maximum, 4096) + sizeof(struct spare_buffer) +
	       gradient_absent_bytes(job);
}

/* A rank that runs ahead of the others, or skips a unit, needs somewhere to put its gradients aside. */
static unsigned planned_count(const struct job *job)
{
	return job->options.stage >= 2 && job->options.world_size > 1 ? job->options.world_size : 0;
}

/* More room than planned, as long as the node has some, beyond the job's own budget too: ranks that skip
 * units would block each other for ever. */
static bool add_extra(struct job *job)
{
	uint64_t bytes = bytes_of_one(job);

	if (!budget_take_beyond(job, bytes))
		return false;
	if (!spare_new(job)) {
		budget_give_beyond(job, bytes);
		return false;
	}
	job->gradients->extra_spares++;
	return true;
}

static void spare_free(struct job *job, struct spare_buffer *spare)
{
	disposal_start_memory(job->node, &spare->memory);
	free(spare);
}

/* What is still read comes free in a turn that comes here again. */
void gradient_give_spares_back(struct job *job)
{
	for (; job->gradients->extra_spares > 0 && !queue_is_empty(&job->gradients->free_spares);
	     job->gradients->extra_spares--) {
		struct spare_buffer *spare =
			queue_entry(queue_pop(&job->gradients->free_spares), struct spare_buffer, link);
		uint64_t bytes = bytes_of_one(job);

		queue_remove(&spare->all_link);
		spare_free(job, spare);
		budget_give_beyond(job, bytes);
	}
}

/* Nobody is left who could push or close anything. with_gathers: ranks that wait for a slot are stuck too, as
 * no slot is or becomes free unless some rank releases a unit. */
static bool all_are_blocked(struct job *job, bool with_gathers)
{
	/* A decision, its sweep, or a buffer for spilled sums frees what waits for it. */
	if (job->current.closed_count == job->options.world_size || step_is_decided(&job->current) ||
	    job->gradients->norm || spill_is_wished(job) || job->gradients->listener->is_giving_up(job))
		return false;
	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		const struct member *member = job->members.ranks[rank];

		if (!member)
			return false;
		if (!member->is_closed && gradient_waits_since(member) == 0 &&
		    !(with_gathers && residency_awaits_release(job, member)))
			return false;
	}
	return true;
}

/* False: there is no room, or it is to wait. A rank that runs ahead waits at last with a lease. Without a
 * slot for each rank those that wait, each at another unit, would take all slots from the rank that they wait
 * for. So there a rank is helped to run ahead only when nobody else can go on: till then all that wait want
 * the same unit, if they push in the same order. */
static bool put_aside(struct job *job, struct contribution *contribution, bool with_gathers)
{
	bool is_planned = !queue_is_empty(&job->gradients->free_spares);

	if (!(is_planned && slots_have_room_for(residency_slots(job), job->options.world_size)) &&
	    !(all_are_blocked(job, with_gathers) && (is_planned || add_extra(job))))
		return false;
	/* And then this is called again. */
	if (contribution->is_on_gpu) {
		arrival_bring_home(contribution);
		return true;
	}
	struct spare_buffer *spare =
		queue_entry(queue_pop(&job->gradients->free_spares), struct spare_buffer, link);

	contribution_take(contribution);
	contribution->is_reading = true;
	spare->source = contribution;
	spare->source_bytes = unit_gradient_bytes(&job->catalog.units[contribution->unit]);
	job->gradients->reductions_running++;
	spare->work.is_timed = trace_is_on(job);
	workers_submit(job->node->workers, &spare->work);
	return true;
}

static void fail_buffer_waiters(struct member *member)
{
	const struct catalog *catalog = &member->job->catalog;
	const struct pending *first = first_waiter(member);
	const struct blocking blocking = find_blocking(member, first);
	uint32_t unit = first->unit;
	char bytes[16];

	for (struct queue *link = queue_pop(&member->pusher->buffer_waiters); link;
	     link = queue_pop(&member->pusher->buffer_waiters))
		pending_error(queue_entry(link, struct pending, link), -ENOBUFS,
			      "no gradient buffer of rank %u is free for unit \"%s\", %s: %u wait for "
			      "other ranks to push unit \"%s\" or close their step, all ranks wait for "
			      "buffers, and host_budget has no room to put gradients aside; raise it, or "
			      "%s, or cut large units into several (slices)",
			      member->rank, catalog->units[unit].name,
			      budget_print_needed(unit_gradient_bytes(&catalog->units[unit]), bytes),
			      blocking.count,
			      blocking.waiting ? catalog->units[blocking.waiting->unit].name : "?",
			      member->job->gradient_buffers.room > 0 ? "gradient_bytes" : "gradient_buffers");
}

/* Ranks that can go on neither by themselves nor by each other get room, or an error. */
void gradient_unblock(struct job *job, bool with_gathers)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		struct member *member = job->members.ranks[rank];

		if (job->gradients->reductions_running > 0 || job->gradients->arriving > 0 ||
		    !all_are_blocked(job, with_gathers))
			return;
		if (gradient_waits_since(member) == 0)
			continue;
		struct contribution *waiting = find_blocking(member, first_waiter(member)).waiting;

		if (waiting && !put_aside(job, waiting, with_gathers))
			fail_buffer_waiters(member);
	}
}

void spare_help(struct member *member)
{
	struct blocking blocking;

	if (queue_is_empty(&member->pusher->buffer_waiters))
		return;
	blocking = find_blocking(member, first_waiter(member));
	if (blocking.reading == 0 && blocking.waiting && !put_aside(member->job, blocking.waiting, false))
		gradient_unblock(member->job, false);
	move_stalls(member);
}

void gradient_wait(struct pending *pending, const Tierd__Wire__BufferWait *wait)
{
	struct member *member = pending->member;
	struct gradient_span wanted;
	struct blocking blocking;

	if (!job_check_live(pending, wait->epoch) || !job_check_unit(pending, wait->unit))
		return;
	wanted = buffers_wanted(member, wait);
	pending->unit = wait->unit;
	pending->first = wanted.first;
	pending->count = wanted.bytes;
	/* One has come back meanwhile. Of those that are not on their way the client knows why it does not
	 * take them: it holds them. */
	blocking = find_blocking(member, pending);
	if (blocking.count < wait->pushed || wait->pushed == 0) {
		pending_reply(pending, NULL);
		return;
	}
	queue_push(&member->pusher->buffer_waiters, &pending->link);
	stall_begin(pending, cause_of(&blocking));
	spare_help(member);
}

/* ---- Memory ---- */

uint64_t gradients_spare_bytes(const struct job *job)
{
	return planned_count(job) * bytes_of_one(job);
}

int spares_init(struct job *job)
{
	unsigned count = job->catalog.gradient_bytes_maximum ? planned_count(job) : 0;

	for (unsigned i = 0; i < count; i++)
		if (!spare_new(job))
			return -ENOMEM;
	return 0;
}

void spares_clear(struct job *job)
{
	for (struct queue *link = queue_pop(&job->gradients->all_spares); link;
	     link = queue_pop(&job->gradients->all_spares))
		spare_free(job, queue_entry(link, struct spare_buffer, all_link));
	queue_init(&job->gradients->free_spares);
	job->gradients->extra_spares = 0;
}
