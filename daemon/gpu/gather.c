/* Gathers on a GPU that missed: they wait until the pack's copy has its place in the GPU's order, and get the
 * lease with the answer. */
#include <errno.h>

#include "daemon/gpu/own.h"
#include "daemon/telemetry/telemetry.h"

static struct pending *pending_of(struct queue *link)
{
	return container_of(queue_entry(link, struct waiter, link), struct pending, waiter);
}

/* ---- Stalls ---- */

static enum statistics_cause cause_of(const struct gpu_pack *pack, const struct waiter *waiter)
{
	const struct job *job = pack->tier->job;

	if (waiter->version > job->decided)
		return STATISTICS_STEP;
	return pack->state == GPU_EXPECTED ? residency_cause(job, gpu_pack_number(pack), &pack->host)
					   : STATISTICS_GPU;
}

void gpu_move_stalls(struct gpu_pack *pack)
{
	QUEUE_FOREACH (link, &pack->waiters)
		stall_move(pending_of(link), cause_of(pack, &pending_of(link)->waiter));
}

static void note_stall(const struct gpu_pack *pack, struct pending *pending)
{
	if (pending->waiter.blocked && !queue_is_empty(&pending->waiter.link))
		stall_begin(pending, cause_of(pack, &pending->waiter));
}

/* ---- Answers ---- */

/* The lease is counted here, before anything can evict the pack again. */
static void answer(struct gpu_pack *pack, struct pending *pending)
{
	const struct gpu_rank *rank = pending->member->gpu;
	Tierd__Wire__GpuGatherReply gather = TIERD__WIRE__GPU_GATHER_REPLY__INIT;

	atomic_fetch_add_explicit(&gpu_lease_counters(rank->leases)[pending->unit], 1, memory_order_seq_cst);
	gather.offset = pack->tier->slots.offsets[pack->slot];
	gather.version = pack->version;
	gather.event = pack->slot;
	gather.has_arrived = pack->state == GPU_RESIDENT;
	pending_reply(pending, WIRE_REPLY(GPU_GATHER, gpu_gather, &gather));
}

void gpu_grant(struct gpu_pack *pack)
{
	pack->used = ++pack->tier->clock;
	QUEUE_FOREACH (link, &pack->waiters)
		if (pending_of(link)->waiter.version <= pack->version)
			answer(pack, pending_of(link));
}

void gpu_pack_fail(struct gpu_pack *pack, int status)
{
	struct gpu_tier *tier = pack->tier;

	for (struct queue *link = queue_first(&pack->waiters); link; link = queue_first(&pack->waiters)) {
		struct pending *pending = pending_of(link);
		const char *unit = tier->job->catalog.units[pending->unit].name;

		if (status == -EAGAIN)
			pending_error(pending, -EAGAIN, "the awaited step failed");
		else if (status == -EDEADLK)
			pending_error(pending, status,
				      "unit \"%s\" can never be gathered on %s beside what is leased there "
				      "by ranks "
				      "that wait themselves; release a unit first, or raise gpu_budget",
				      unit, gpu_engine_name(tier->gpu->engine));
		else if (tier->state != GPU_TIER_OPEN)
			pending_error(pending, status, "unit \"%s\": %s", unit, tier->problem);
		else
			pending_error(pending, -EIO, "unit \"%s\" cannot be copied to %s: %s", unit,
				      gpu_engine_name(tier->gpu->engine),
				      pack->copy.request.problem.text[0] ? pack->copy.request.problem.text
									 : store_error(status));
	}
}

void gpu_gather(struct pending *pending, const Tierd__Wire__GpuGather *gather)
{
	struct member *member = pending->member;
	struct gpu_rank *rank = member->gpu;
	struct job *job = member->job;
	struct gpu_pack *pack;

	if (!gather_admit(pending, gather->epoch, gather->unit, gather->version))
		return;
	if (!rank || !rank->leases) {
		pending_error(pending, -EINVAL, "job %s: rank %u has asked for no GPU", job->name,
			      member->rank);
		return;
	}
	if (rank->tier->state != GPU_TIER_OPEN) {
		pending_error(pending, rank->tier->status, "job %s: %s", job->name, rank->tier->problem);
		return;
	}
	if (gather->is_blocking)
		pending->waiter.blocked = member;
	pack = &rank->tier->packs[job->catalog.units[gather->unit].pack];
	queue_push(&pack->waiters, &pending->waiter.link);
	gpu_pack_go_on(pack);
	note_stall(pack, pending);
	gpu_serve(job);
}
