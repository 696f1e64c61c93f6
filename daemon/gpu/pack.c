/* Packs on a GPU: what clients see of them, how they come there, and how they leave. */
#include <errno.h>

#include "daemon/gpu/exchange.h"
#include "daemon/telemetry/telemetry.h"

/* Prefetches under way: what they bring has its slot already, and can be used by nobody yet. */
#define MOST_MOVING_BYTES (UINT64_C(64) << 20)

static const struct pack *units_of(const struct gpu_pack *pack)
{
	return &pack->tier->job->catalog.packs[gpu_pack_number(pack)];
}

static struct directory_entry *entry_of(const struct gpu_pack *pack, uint32_t unit)
{
	return &directory_entries(pack->tier->directory)[unit];
}

#define FOREACH_UNIT(unit, pack)                                                                             \
	for (uint32_t unit = units_of(pack)->first_unit;                                                     \
	     unit < units_of(pack)->first_unit + units_of(pack)->unit_count; unit++)

/* ---- Leases ---- */

static bool is_leased(const struct gpu_pack *pack)
{
	for (unsigned i = 0; i < GPU_RANKS; i++)
		FOREACH_UNIT(unit, pack)
	if (pack->tier->ranks[i] && gpu_rank_has_lease(pack->tier->ranks[i], unit))
		return true;
	return false;
}

static void note_event(uint32_t *behind, uint64_t number)
{
	if (number > 0)
		*behind |= 1u << gpu_event_at(number);
}

/* What its clients have queued goes on: the next copy into its slot is behind that. */
static void note_behind(const struct gpu_pack *pack)
{
	struct gpu_slot *slot = &pack->tier->places[pack->slot];

	for (unsigned i = 0; i < GPU_RANKS; i++) {
		struct gpu_rank *rank = pack->tier->ranks[i];

		if (!rank || !rank->leases)
			continue;
		if (gpu_tier_is_whole(pack->tier)) {
			note_event(&slot->behind[i],
				   atomic_load_explicit(&rank->leases->fence, memory_order_acquire));
			continue;
		}
		_Atomic uint64_t *released =
			gpu_lease_released(rank->leases, pack->tier->job->catalog.unit_count);

		FOREACH_UNIT(unit, pack)
		note_event(&slot->behind[i], atomic_load_explicit(&released[unit], memory_order_acquire));
	}
}

/* Closes the words, then looks at the leases: in this order either a client sees the word or we see its
 * lease. */
bool gpu_close(struct gpu_pack *pack)
{
	if (is_leased(pack))
		return false;
	FOREACH_UNIT(unit, pack)
	directory_close(entry_of(pack, unit), DIRECTORY_DRAINING);
	if (!is_leased(pack)) {
		note_behind(pack);
		return true;
	}
	FOREACH_UNIT(unit, pack)
	{
		uint64_t word = atomic_load_explicit(&entry_of(pack, unit)->word, memory_order_relaxed);

		directory_restore(entry_of(pack, unit),
				  directory_word(DIRECTORY_RESIDENT, directory_word_reloads(word),
						 directory_word_offset(word)));
	}
	return false;
}

/* ---- Slots ---- */

static void close_words(const struct gpu_pack *pack)
{
	FOREACH_UNIT(unit, pack)
	directory_set(entry_of(pack, unit), DIRECTORY_ABSENT);
}

void gpu_give_slot(struct gpu_pack *pack)
{
	gpu_share_break(pack);
	gpu_share_leave(pack);
	close_words(pack);
	slots_give(&pack->tier->slots, pack->slot);
	pack->slot = SLOT_NONE;
}

void gpu_enter_queue(struct gpu_pack *pack)
{
	queue_push(&pack->tier->slot_queue, &pack->link);
}

void gpu_leave_queue(struct gpu_pack *pack)
{
	queue_remove(&pack->link);
}

static bool is_later(const struct gpu_pack *pack, const struct gpu_pack *other)
{
	struct job *job = pack->tier->job;
	uint32_t use = prefetch_next_use(job, gpu_pack_number(pack));
	uint32_t other_use = prefetch_next_use(job, gpu_pack_number(other));

	return use != other_use ? use > other_use : pack->used < other->used;
}

/* The one of the same class with the farthest next use; skips those up to distance. */
static struct gpu_pack *find_victim(const struct gpu_pack *pack, uint32_t distance)
{
	struct gpu_tier *tier = pack->tier;
	const struct slot_class *class =
		&tier->slots.classes[tier->slots.class_of_pack[gpu_pack_number(pack)]];
	struct gpu_pack *victim = NULL;

	for (uint32_t slot = class->first; slot < class->first + class->count; slot++) {
		struct gpu_pack *owner;

		if (!slots_has_pack(&tier->slots, slot))
			continue;
		owner = &tier->packs[tier->slots.owners[slot]];
		if (owner->state != GPU_RESIDENT || !queue_is_empty(&owner->waiters) ||
		    prefetch_next_use(tier->job, gpu_pack_number(owner)) <= distance ||
		    (victim && !is_later(owner, victim)) || is_leased(owner))
			continue;
		victim = owner;
	}
	return victim;
}

/* Each gather that comes in between costs one. */
#define EVICTION_TRIES 16

/* Their packs may wait for other GPUs, and these for the rank that wants a slot: alone they come, and can
 * leave. */
static void break_shares(const struct gpu_pack *pack)
{
	struct gpu_tier *tier = pack->tier;
	const struct slot_class *class =
		&tier->slots.classes[tier->slots.class_of_pack[gpu_pack_number(pack)]];

	for (uint32_t slot = class->first; slot < class->first + class->count; slot++)
		if (slots_has_pack(&tier->slots, slot))
			gpu_share_break(&tier->packs[tier->slots.owners[slot]]);
}

/* Of distance 0 somebody waits for it. */
static bool take_slot(struct gpu_pack *pack, uint32_t distance)
{
	struct slots *slots = &pack->tier->slots;
	uint32_t slot = slots_take(slots, gpu_pack_number(pack));

	for (unsigned tries = 0; slot == SLOT_NONE; tries++) {
		struct gpu_pack *victim = tries < EVICTION_TRIES ? find_victim(pack, distance) : NULL;

		if (!victim) {
			if (distance == 0)
				break_shares(pack);
			return false;
		}
		if (gpu_step(victim, GPU_EVICT))
			slot = slots_take(slots, gpu_pack_number(pack));
	}
	pack->slot = slot;
	return true;
}

/* ---- Copies ---- */

/* Its values in host memory may change, and leave. */
void gpu_pack_unpin(struct gpu_pack *pack)
{
	if (pack->is_pinned)
		residency_unpin(pack->tier->job, gpu_pack_number(pack));
	pack->is_pinned = false;
}

void gpu_pack_finish(struct gpu_pack *pack, int status)
{
	struct job *job = pack->tier->job;

	/* Where the GPU was lost meanwhile, its ranks are told at their next gather. */
	if (status == 0 && pack->tier->state == GPU_TIER_FAILED)
		status = pack->tier->status;
	if (status < 0)
		gpu_share_break(pack);
	gpu_share_leave(pack);
	pack->tier->moving_bytes -= units_of(pack)->slot_bytes;
	gpu_pack_unpin(pack);
	if (status == 0)
		trace_copied(job, pack->priority == TIER_DEMAND ? TRACE_GPU_GATHER : TRACE_GPU_PREFETCH,
			     gpu_pack_number(pack), pack->tier->gpu->number, units_of(pack)->slot_bytes,
			     pack->began_ns);
	gpu_step(pack, status < 0 ? GPU_FAIL : GPU_END);
	if (status < 0)
		gpu_pack_fail(pack, status);
	else
		gpu_pack_go_on(pack);
	job_settle(job);
}

static void on_copied(struct gpu_request *request, int status)
{
	struct gpu_copy *copy = container_of(request, struct gpu_copy, request);
	struct gpu_pack *pack = container_of(copy, struct gpu_pack, copy);
	struct gpu_rank *awaited = TAKE_PTR(pack->awaited);
	bool was_forgotten = awaited && !awaited->member;

	pack->tier->outstanding--;
	if (awaited) {
		awaited->busy--;
		gpu_rank_settle(awaited);
	}
	if (status == 0 && copy->bytes > 0) {
		if (!gpu_share_arrive(pack))
			gpu_pack_finish(pack, 0);
	} else if (pack->tier->state == GPU_TIER_OPEN &&
		   (status == 0 || (status == -ECANCELED && was_forgotten))) {
		gpu_pack_submit(pack);
	} else {
		gpu_pack_finish(pack, status < 0 ? status : -ECANCELED);
	}
}

static void on_ordered(struct gpu_copy *copy)
{
	struct gpu_pack *pack = container_of(copy, struct gpu_pack, copy);

	if (pack->state == GPU_COPYING)
		gpu_step(pack, GPU_ORDER);
}

/* An event that what is in the slot is still used before; NULL: there is none. */
static struct gpu_event *take_behind(struct gpu_pack *pack)
{
	struct gpu_slot *slot = &pack->tier->places[pack->slot];

	for (unsigned i = 0; i < GPU_RANKS; i++) {
		struct gpu_rank *rank = pack->tier->ranks[i];
		unsigned event;

		if (slot->behind[i] == 0)
			continue;
		if (!rank || (!rank->member && !gpu_rank_is_draining(rank))) {
			slot->behind[i] = 0;
			continue;
		}
		event = (unsigned)__builtin_ctz(slot->behind[i]);
		slot->behind[i] &= ~(1u << event);
		pack->awaited = rank;
		rank->busy++;
		return &rank->events[event].event;
	}
	return NULL;
}

static bool has_behind(const struct gpu_pack *pack)
{
	const struct gpu_slot *slot = &pack->tier->places[pack->slot];

	for (unsigned i = 0; i < GPU_RANKS; i++)
		if (slot->behind[i] != 0)
			return true;
	return false;
}

/* One event after the other; the last one, or none, with the bytes. */
void gpu_pack_submit(struct gpu_pack *pack)
{
	struct gpu_tier *tier = pack->tier;
	uint32_t number = gpu_pack_number(pack);
	struct gpu_event *after;

	pack->is_held = tier->state == GPU_TIER_OPEN && gpu_ranks_may_die(tier);
	if (pack->is_held)
		return;
	/* Its values are not kept any more. */
	if (tier->state == GPU_TIER_FAILED) {
		gpu_pack_finish(pack, -ECANCELED);
		return;
	}
	after = take_behind(pack);
	pack->copy = (struct gpu_copy){ .request.done = on_copied,
					.direction = GPU_FROM_HOST,
					.priority = pack->priority,
					.after = after };
	if (!has_behind(pack)) {
		const struct gpu_part part = gpu_share_part(pack);

		pack->copy.to = tier->memory.address + tier->slots.offsets[pack->slot] + part.offset;
		pack->copy.from =
			(driver_address)(uintptr_t)residency_address(tier->job, number) + part.offset;
		pack->copy.bytes = part.bytes;
		pack->copy.behind = part.is_all ? &tier->places[pack->slot].event : NULL;
		pack->copy.recorded = on_ordered;
	}
	tier->outstanding++;
	gpu_copy_submit(tier->gpu->engine, &pack->copy);
}

void gpu_copy(struct gpu_pack *pack)
{
	struct job *job = pack->tier->job;
	uint32_t number = gpu_pack_number(pack);

	residency_pin(job, number);
	pack->is_pinned = true;
	pack->version = residency_version(job, number);
	pack->began_ns = trace_now(job);
	pack->tier->moving_bytes += units_of(pack)->slot_bytes;
	gpu_pack_submit(pack);
}

void gpu_packs_resume(struct gpu_tier *tier)
{
	for (uint32_t i = 0; i < tier->job->catalog.pack_count; i++)
		if (tier->packs[i].is_held)
			gpu_pack_submit(&tier->packs[i]);
}

void gpu_pack_forget(struct gpu_pack *pack, const struct gpu_rank *rank)
{
	if (pack->awaited == rank)
		gpu_copy_cancel(pack->tier->gpu->engine, &pack->copy);
}

/* ---- Values from host memory ---- */

/* The least of those that are wanted: who wants a newer one may have to wait for who wants this one. */
static uint64_t wanted_version(const struct gpu_pack *pack)
{
	uint64_t version = UINT64_MAX;

	QUEUE_FOREACH (link, &pack->waiters) {
		const struct waiter *waiter = queue_entry(link, struct waiter, link);

		if (waiter->version < version)
			version = waiter->version;
	}
	return version == UINT64_MAX ? 0 : version;
}

/* Loading cannot succeed, or a step has failed; its waiters are told. */
static void on_host(struct waiter *host, int status)
{
	struct gpu_pack *pack = container_of(host, struct gpu_pack, host);

	if (pack->state == GPU_EXPECTED)
		gpu_step(pack, status < 0 ? GPU_FAIL : GPU_ARRIVE);
	if (status < 0)
		gpu_pack_fail(pack, status);
	else
		gpu_pack_go_on(pack);
}

static void on_host_moved(struct waiter *host)
{
	gpu_move_stalls(container_of(host, struct gpu_pack, host));
}

/* True: host memory has that version. False: on_host() follows. */
static bool want_host(struct gpu_pack *pack, uint64_t version)
{
	residency_forget(&pack->host);
	pack->host.version = version;
	pack->host.done = on_host;
	pack->host.moved = on_host_moved;
	return residency_want(pack->tier->job, gpu_pack_number(pack), &pack->host, pack->priority);
}

void gpu_expect(struct gpu_pack *pack)
{
	pack->priority = queue_is_empty(&pack->waiters) ? TIER_PREFETCH : TIER_DEMAND;
	if (want_host(pack, wanted_version(pack)))
		gpu_step(pack, GPU_ARRIVE);
}

void gpu_leave_queue_and_expect(struct gpu_pack *pack)
{
	gpu_leave_queue(pack);
	gpu_expect(pack);
}

/* ---- What clients see ---- */

void gpu_publish(struct gpu_pack *pack)
{
	pack->used = ++pack->tier->clock;
	FOREACH_UNIT(unit, pack)
	directory_publish(entry_of(pack, unit), pack->tier->slots.offsets[pack->slot], pack->version);
	gpu_grant(pack);
}

/* ---- Wishes ---- */

/* Before anything is done for a version that no step has decided, that step has to come. */
static bool is_decided(struct gpu_pack *pack, uint64_t version)
{
	if (version <= pack->tier->job->decided)
		return true;
	/* It waits for that already. */
	if (!queue_is_empty(&pack->host.link) && pack->host.version == version)
		return false;
	return want_host(pack, version);
}

static void raise(struct gpu_pack *pack)
{
	if (pack->priority == TIER_DEMAND)
		return;
	pack->priority = TIER_DEMAND;
	gpu_share_break(pack);
	if (pack->is_held)
		return;
	if (pack->state == GPU_COPYING || pack->state == GPU_ORDERED)
		gpu_copy_raise(pack->tier->gpu->engine, &pack->copy, TIER_DEMAND);
	else if (want_host(pack, wanted_version(pack)))
		gpu_step(pack, GPU_ARRIVE);
}

void gpu_pack_go_on(struct gpu_pack *pack)
{
	if (pack->state == GPU_ORDERED || pack->state == GPU_RESIDENT)
		gpu_grant(pack);
	if (queue_is_empty(&pack->waiters) || pack->tier->state != GPU_TIER_OPEN)
		return;
	switch (pack->state) {
	case GPU_ABSENT:
		if (is_decided(pack, wanted_version(pack)))
			gpu_step(pack, take_slot(pack, 0) ? GPU_TAKE : GPU_QUEUE);
		break;
	case GPU_QUEUED:
		if (take_slot(pack, 0))
			gpu_step(pack, GPU_TAKE);
		break;
	case GPU_RESIDENT:
		if (queue_is_empty(&pack->renewal))
			queue_push(&pack->tier->renewals, &pack->renewal);
		if (is_decided(pack, wanted_version(pack)) && !gpu_step(pack, GPU_RENEW))
			job_watch_slots(pack->tier->job);
		break;
	default:
		raise(pack);
		break;
	}
}

bool gpu_pack_is_behind(const struct gpu_pack *pack)
{
	struct job *job = pack->tier->job;
	uint32_t number = gpu_pack_number(pack);

	if (pack->state == GPU_RESIDENT)
		return pack->version < residency_version(job, number) &&
		       residency_state(job, number) == DIRECTORY_RESIDENT;
	/* Values that are to be updated are old before they are used. */
	return pack->state == GPU_ABSENT && !residency_is_claimed(job, number);
}

static bool is_too_much(const struct gpu_pack *pack)
{
	return pack->tier->moving_bytes > 0 &&
	       pack->tier->moving_bytes + units_of(pack)->slot_bytes > MOST_MOVING_BYTES;
}

bool gpu_pack_is_free(const struct gpu_pack *pack)
{
	return !is_too_much(pack) && queue_is_empty(&pack->waiters) && !is_leased(pack);
}

bool gpu_pack_load(struct gpu_pack *pack, uint32_t distance)
{
	if (pack->state == GPU_RESIDENT)
		return gpu_step(pack, GPU_RENEW);
	if (!take_slot(pack, distance))
		return false;
	gpu_step(pack, GPU_TAKE);
	return true;
}

bool gpu_pack_prefetch(struct gpu_pack *pack, uint32_t distance)
{
	if (is_too_much(pack))
		return false;
	if (!gpu_pack_is_behind(pack))
		return true;
	/* One that somebody uses is renewed later. */
	return gpu_pack_load(pack, distance) || pack->state == GPU_RESIDENT;
}
