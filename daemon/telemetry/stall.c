#include "daemon/telemetry/stall.h"

#include "common/clock.h"
#include "daemon/telemetry/own.h"
#include "daemon/telemetry/trace.h"

static void count(struct pending *pending, uint64_t now)
{
	static const enum wire_trace traced[STATISTICS_CAUSES] = {
		[STATISTICS_NVME_READ] = TRACE_WAIT_READ, [STATISTICS_SLOT] = TRACE_WAIT_SLOT,
		[STATISTICS_STEP] = TRACE_WAIT_STEP,	  [STATISTICS_GRADIENT_BUFFER] = TRACE_WAIT_BUFFER,
		[STATISTICS_GPU] = TRACE_WAIT_GPU,
	};
	struct waiter *waiter = &pending->waiter;

	trace_waited(pending->member->job, traced[waiter->cause], pending->member->rank,
		     waiter->blocked ? pending->unit : TRACE_NO_UNIT, waiter->stalled_ns, now);
	pending->member->job->telemetry->figures.stall_ns[waiter->cause] += now - waiter->stalled_ns;
	waiter->stalled_ns = now;
}

void stall_begin(struct pending *pending, enum statistics_cause cause)
{
	if (pending->waiter.stalled_ns != 0)
		return;
	pending->waiter.cause = cause;
	pending->waiter.stalled_ns = clock_now_ns();
}

void stall_move(struct pending *pending, enum statistics_cause cause)
{
	if (pending->waiter.stalled_ns == 0 || pending->waiter.cause == cause)
		return;
	count(pending, clock_now_ns());
	pending->waiter.cause = cause;
}

void stall_end(struct pending *pending)
{
	if (pending->waiter.stalled_ns == 0)
		return;
	count(pending, clock_now_ns());
	pending->waiter.stalled_ns = 0;
}

void stall_count(struct job *job)
{
	uint64_t now = clock_now_ns();

	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		if (!job->members.ranks[rank])
			continue;
		QUEUE_FOREACH (link, &job->members.ranks[rank]->pendings) {
			struct pending *pending = queue_entry(link, struct pending, member_link);

			if (pending->waiter.stalled_ns != 0)
				count(pending, now);
		}
	}
}
