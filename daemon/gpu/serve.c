/* In the job's turn: who waits for a slot of a tier, and what comes next. */
#include <errno.h>

#include "daemon/gpu/exchange.h"

/* First it asks for bells, then it looks: a release between the two rings again. */
static void ask_for_releases(struct gpu_tier *tier)
{
	for (unsigned i = 0; i < GPU_RANKS; i++)
		if (tier->ranks[i] && tier->ranks[i]->leases)
			atomic_store_explicit(&tier->ranks[i]->leases->is_release_wanted, 1,
					      memory_order_seq_cst);
	job_watch_slots(tier->job);
}

/* ---- Ranks that wait for slots which only they themselves could free ---- */

/* Those that do nothing else than to wait for the pack, a bit for each. */
static unsigned blocked_by(const struct gpu_pack *pack)
{
	unsigned blocked = 0;

	QUEUE_FOREACH (link, &pack->waiters) {
		const struct member *member = queue_entry(link, struct waiter, link)->blocked;

		if (member)
			blocked |= 1u << member->gpu->place;
	}
	return blocked;
}

static bool is_held_by(const struct gpu_pack *pack, unsigned ranks)
{
	const struct pack *units = &pack->tier->job->catalog.packs[gpu_pack_number(pack)];

	for (unsigned i = 0; i < GPU_RANKS; i++)
		for (uint32_t unit = units->first_unit; unit < units->first_unit + units->unit_count; unit++)
			if ((ranks >> i & 1) && gpu_rank_has_lease(pack->tier->ranks[i], unit))
				return true;
	return false;
}

/* Every slot that fits is leased by one of these. */
static bool can_never_fit(const struct gpu_pack *pack, unsigned stuck)
{
	const struct gpu_tier *tier = pack->tier;
	const struct slot_class *class =
		&tier->slots.classes[tier->slots.class_of_pack[gpu_pack_number(pack)]];

	for (uint32_t slot = class->first; slot < class->first + class->count; slot++)
		if (!slots_has_pack(&tier->slots, slot) ||
		    tier->packs[tier->slots.owners[slot]].state != GPU_RESIDENT ||
		    !is_held_by(&tier->packs[tier->slots.owners[slot]], stuck))
			return false;
	return true;
}

/* Ranks whose packs can still get a slot are not stuck, which may free others; until nothing changes. */
static unsigned find_stuck(const struct gpu_tier *tier)
{
	unsigned stuck = 0, before;

	QUEUE_FOREACH (link, &tier->slot_queue)
		stuck |= blocked_by(queue_entry(link, struct gpu_pack, link));
	do {
		before = stuck;
		QUEUE_FOREACH (link, &tier->slot_queue) {
			const struct gpu_pack *pack = queue_entry(link, struct gpu_pack, link);

			if (!can_never_fit(pack, stuck))
				stuck &= ~blocked_by(pack);
		}
	} while (stuck != before);
	return stuck;
}

static void check_deadlock(struct gpu_tier *tier)
{
	unsigned stuck = find_stuck(tier);

	QUEUE_FOREACH (link, &tier->slot_queue) {
		struct gpu_pack *pack = queue_entry(link, struct gpu_pack, link);

		if (!(blocked_by(pack) & stuck) || !can_never_fit(pack, stuck))
			continue;
		gpu_pack_fail(pack, -EDEADLK);
		gpu_step(pack, GPU_LEAVE_QUEUE);
		return;
	}
}

/* ---- Slots ---- */

static void serve_queue(struct gpu_tier *tier)
{
	if (queue_is_empty(&tier->slot_queue))
		return;
	ask_for_releases(tier);
	QUEUE_FOREACH (link, &tier->slot_queue) {
		struct gpu_pack *pack = queue_entry(link, struct gpu_pack, link);

		if (queue_is_empty(&pack->waiters))
			gpu_step(pack, GPU_LEAVE_QUEUE);
		else
			gpu_pack_go_on(pack);
	}
	check_deadlock(tier);
}

/* Those that somebody has a lease on, whose newer values are wanted. */
static void renew(struct gpu_tier *tier)
{
	QUEUE_FOREACH (link, &tier->renewals) {
		struct gpu_pack *pack = queue_entry(link, struct gpu_pack, renewal);

		if (pack->state == GPU_RESIDENT)
			gpu_pack_go_on(pack);
		if (pack->state != GPU_RESIDENT || queue_is_empty(&pack->waiters))
			queue_remove(&pack->renewal);
	}
}

/* In the order of use, until one finds no slot. */
static void load_next(struct gpu_tier *tier)
{
	struct job *job = tier->job;

	for (unsigned i = 0; i < GPU_RANKS; i++) {
		uint32_t rank, unit, ahead = 0;

		if (!tier->ranks[i] || !tier->ranks[i]->member || !tier->ranks[i]->leases)
			continue;
		rank = tier->ranks[i]->member->rank;
		for (unit = prefetch_expected(job, rank, 0); unit != ORDER_NONE;
		     unit = prefetch_expected(job, rank, ++ahead)) {
			struct gpu_pack *pack = &tier->packs[job->catalog.units[unit].pack];

			if (!gpu_share_will_bring(pack, ahead) && !gpu_pack_prefetch(pack, ahead + 1))
				break;
		}
	}
}

/* Who was sent away keeps what it has there while it holds leases, and nobody tells when it does not. */
static void look_at_those_sent_away(struct gpu_tier *tier)
{
	for (unsigned i = 0; i < GPU_RANKS; i++)
		if (tier->ranks[i] && tier->ranks[i]->member && tier->ranks[i]->member->has_left)
			member_release(tier->ranks[i]->member);
}

void gpu_serve(struct job *job)
{
	if (queue_is_empty(&job->gpu->tiers))
		return;
	gpu_exchange_serve(job);
	gpu_share_look(job);
	QUEUE_FOREACH (link, &job->gpu->tiers) {
		struct gpu_tier *tier = queue_entry(link, struct gpu_tier, link);

		gpu_tier_go_on(tier);
		if (tier->state == GPU_TIER_FAILED)
			look_at_those_sent_away(tier);
		if (gpu_tier_ends(tier) || tier->state != GPU_TIER_OPEN)
			continue;
		serve_queue(tier);
		renew(tier);
	}
	if (!job_is_live(job))
		return;
	prefetch_look(job);
	gpu_share_prefetch(job);
	QUEUE_FOREACH (link, &job->gpu->tiers) {
		struct gpu_tier *tier = queue_entry(link, struct gpu_tier, link);

		if (tier->state == GPU_TIER_OPEN)
			load_next(tier);
	}
}
