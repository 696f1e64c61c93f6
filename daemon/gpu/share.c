/* Packs on their way to all GPUs of an exchange together.
 *
 * Happy path: each GPU copies its part of the pack from host memory into its slot, behind whatever the slot
 * was used for; when all parts are there, an all-gather completes the slots, and the packs are resident.
 *
 * GPUs wait for one another here, and nobody may wait for that: a rank that asks for the pack before all
 * parts are there may be the one that another GPU's rank waits for. So a share breaks then, as it does where
 * a part does not come, and each GPU copies all by itself. The same follows where the all-gather fails. */
#include "daemon/gpu/exchange.h"

#include "common/clock.h"
#include "common/size.h"

/* Where parts begin, for NCCL's sake. */
#define PART_BYTES 16
/* Ranks that train on the same are at most so many units apart. */
#define MOST_APART 8

static size_t bytes_of(const struct gpu_exchange *exchange, uint32_t number)
{
	return exchange->job->catalog.packs[number].slot_bytes;
}

static unsigned member_of(const struct gpu_share *share, const struct gpu_pack *pack)
{
	unsigned member = 0;

	while (share->pack[member] != pack)
		member++;
	return member;
}

/* ---- Parts ---- */

static size_t part_begin(const struct gpu_share *share, unsigned member)
{
	unsigned count = share->exchange->count;
	size_t each = size_round_up((share->bytes + count - 1) / count, PART_BYTES);

	return member * each < share->bytes ? member * each : share->bytes;
}

struct gpu_part gpu_share_part(struct gpu_pack *pack)
{
	const struct gpu_share *share = pack->share;
	size_t all = pack->tier->job->catalog.packs[gpu_pack_number(pack)].slot_bytes;
	struct gpu_part part = { .bytes = all, .is_all = true };

	if (!share || share->way == GPU_WAY_PLAIN)
		return part;
	if (share->is_broken) {
		gpu_share_leave(pack);
		return part;
	}
	part.offset = part_begin(share, member_of(share, pack));
	part.bytes = part_begin(share, member_of(share, pack) + 1) - part.offset;
	part.is_all = false;
	return part;
}

/* Of each member the first rank has its part. */
static void fill_bounds(struct gpu_share *share)
{
	const struct exchange_group *group = &share->exchange->group;
	unsigned members = 0;

	for (unsigned rank = 0; rank < group->rank_count; rank++) {
		members += group->member_of_rank[rank] == members;
		share->bounds[rank + 1] = part_begin(share, members);
	}
}

/* ---- A share ends ---- */

void gpu_share_leave(struct gpu_pack *pack)
{
	struct gpu_share *share = TAKE_PTR(pack->share);

	if (!share)
		return;
	share->pack[member_of(share, pack)] = NULL;
	share->packs--;
	if (share->way == GPU_WAY_PLAIN && !share->is_broken && --share->missing == 0)
		gpu_choice_note(&share->exchange->choice, share->way, share->bytes,
				clock_now_ns() - share->begun_ns);
}

/* One that copies its part just now leaves when that is there. */
static void go_alone(struct gpu_share *share, unsigned member)
{
	struct gpu_pack *pack = share->pack[member];

	if (pack->state != GPU_COPYING && pack->state != GPU_ORDERED) {
		gpu_share_leave(pack);
	} else if (share->is_there[member]) {
		gpu_share_leave(pack);
		gpu_pack_submit(pack);
	}
}

static void end(struct gpu_share *share)
{
	if (share->packs == 0 || share->is_moving || share->is_broken)
		return;
	share->is_broken = true;
	for (unsigned member = 0; member < GPUS_MAX; member++)
		if (share->pack[member])
			go_alone(share, member);
}

void gpu_share_break(struct gpu_pack *pack)
{
	if (pack->share)
		end(pack->share);
}

void gpu_share_look(struct job *job)
{
	struct gpu_exchange *exchange = job->gpu->exchange;

	for (unsigned i = 0; exchange && exchange->state != EXCHANGE_READY && i < GPU_SHARES; i++)
		end(&exchange->shares[i]);
}

/* ---- The operation ---- */

static void on_moved(struct exchange_operation *operation, int status)
{
	struct gpu_share *share = container_of(operation, struct gpu_share, operation);

	share->is_moving = false;
	if (status == 0) {
		gpu_choice_note(&share->exchange->choice, share->way, share->bytes,
				clock_now_ns() - share->begun_ns);
		share->exchange->bytes += share->bytes * (share->packs - 1);
	}
	for (unsigned member = 0; member < GPUS_MAX; member++) {
		struct gpu_pack *pack = share->pack[member];

		if (!pack)
			continue;
		gpu_share_leave(pack);
		pack->tier->outstanding--;
		if (status == 0)
			gpu_pack_finish(pack, 0);
		else
			gpu_pack_submit(pack);
	}
}

static void move(struct gpu_share *share)
{
	const struct gpu_exchange *exchange = share->exchange;

	share->is_moving = true;
	for (unsigned member = 0; member < exchange->count; member++)
		share->pack[member]->tier->outstanding++;
	for (unsigned rank = 0; rank < exchange->group.rank_count; rank++) {
		const struct gpu_pack *pack = share->pack[exchange->member_of_rank[rank]];

		share->operation.requests[rank] = (struct communicator_request){
			.array = (void *)(uintptr_t)(pack->tier->memory.address +
						     pack->tier->slots.offsets[pack->slot])
		};
	}
	share->operation.what = (struct communicator_operation){
		.kind = COMMUNICATOR_ALL_GATHER,
		.name = pack_name(exchange->job, gpu_pack_number(share->pack[0])),
		.bounds = share->bounds,
	};
	share->operation.done = on_moved;
	exchange_submit(&share->operation);
}

bool gpu_share_arrive(struct gpu_pack *pack)
{
	struct gpu_share *share = pack->share;

	if (!share || share->way == GPU_WAY_PLAIN)
		return false;
	share->is_there[member_of(share, pack)] = true;
	if (share->is_broken)
		go_alone(share, member_of(share, pack));
	else if (--share->missing == 0)
		move(share);
	return true;
}

/* ---- A share begins ---- */

/* By one of the ranks on that GPU, at about that place of its order. */
static bool is_expected(const struct gpu_tier *tier, uint32_t number, uint32_t ahead)
{
	const struct job *job = tier->job;
	uint32_t first = ahead > MOST_APART ? ahead - MOST_APART : 0;

	for (unsigned i = 0; i < GPU_RANKS; i++) {
		const struct gpu_rank *rank = tier->ranks[i];

		if (!rank || !rank->member)
			continue;
		for (uint32_t place = first; place <= ahead + MOST_APART; place++) {
			uint32_t unit = prefetch_expected(job, rank->member->rank, place);

			if (unit == ORDER_NONE)
				break;
			if (job->catalog.units[unit].pack == number)
				return true;
		}
	}
	return false;
}

/* Then its parts are copied at once. What comes from NVMe is no faster by parts, and its values could not
 * change before the last GPU has its part, whatever that one waits for. */
static bool is_in_host_memory(const struct job *job, uint32_t number)
{
	return residency_state(job, number) == DIRECTORY_RESIDENT && !residency_is_claimed(job, number);
}

/* All of its GPUs lack it, and expect it. */
static bool is_for_all(const struct gpu_exchange *exchange, uint32_t number, uint32_t ahead)
{
	if (bytes_of(exchange, number) < GPU_CHOICE_LEAST_BYTES || !is_in_host_memory(exchange->job, number))
		return false;
	for (unsigned i = 0; i < exchange->count; i++)
		if (!gpu_pack_is_behind(&exchange->tiers[i]->packs[number]))
			return false;
	for (unsigned i = 0; i < exchange->count; i++)
		if (!is_expected(exchange->tiers[i], number, ahead))
			return false;
	return true;
}

static bool is_used(const struct gpu_exchange *exchange)
{
	return exchange && exchange->state == EXCHANGE_READY && !gpu_choice_is_plain(&exchange->choice);
}

bool gpu_share_will_bring(const struct gpu_pack *pack, uint32_t ahead)
{
	const struct gpu_exchange *exchange = pack->tier->job->gpu->exchange;

	/* What comes next is not waited for. */
	return ahead > 0 && is_used(exchange) && gpu_exchange_has(pack->tier) &&
	       is_for_all(exchange, gpu_pack_number(pack), ahead);
}

static struct gpu_share *find_free(struct gpu_exchange *exchange)
{
	for (unsigned i = 0; i < GPU_SHARES; i++)
		if (exchange->shares[i].packs == 0)
			return &exchange->shares[i];
	return NULL;
}

static bool can_begin(const struct gpu_exchange *exchange, uint32_t number)
{
	for (unsigned i = 0; i < exchange->count; i++)
		if (!gpu_pack_is_free(&exchange->tiers[i]->packs[number]))
			return false;
	return true;
}

static void init(struct gpu_share *share, uint32_t number)
{
	share->way = gpu_choice_next(&share->exchange->choice);
	share->is_broken = false;
	share->missing = share->exchange->count;
	share->bytes = bytes_of(share->exchange, number);
	share->begun_ns = clock_now_ns();
	for (unsigned member = 0; member < GPUS_MAX; member++)
		share->is_there[member] = false;
	fill_bounds(share);
}

/* False: one of them has no slot for it. */
static bool begin(struct gpu_share *share, uint32_t number, uint32_t distance)
{
	const struct gpu_exchange *exchange = share->exchange;

	init(share, number);
	for (unsigned member = 0; member < exchange->count; member++) {
		struct gpu_pack *pack = &exchange->tiers[member]->packs[number];

		share->pack[member] = pack;
		share->packs++;
		pack->share = share;
		if (gpu_pack_load(pack, distance) && pack->state != GPU_EXPECTED)
			continue;
		end(share);
		return false;
	}
	return true;
}

/* False: no more can begin now. */
static bool follow(struct gpu_exchange *exchange, uint32_t rank)
{
	const struct job *job = exchange->job;
	uint32_t unit, ahead = 0;

	for (unit = prefetch_expected(job, rank, 0); unit != ORDER_NONE;
	     unit = prefetch_expected(job, rank, ++ahead)) {
		uint32_t number = job->catalog.units[unit].pack;
		struct gpu_share *share = find_free(exchange);

		if (!is_for_all(exchange, number, ahead) || (share && !can_begin(exchange, number)))
			continue;
		if (!share || !begin(share, number, ahead + 1))
			return false;
	}
	return true;
}

/* What all expect, some rank of the first GPU does; that need not be the same one for all of it. */
void gpu_share_prefetch(struct job *job)
{
	struct gpu_exchange *exchange = job->gpu->exchange;

	if (!is_used(exchange))
		return;
	for (unsigned i = 0; i < GPU_RANKS; i++) {
		const struct gpu_rank *rank = exchange->tiers[0]->ranks[i];

		if (rank && rank->member && rank->leases && !follow(exchange, rank->member->rank))
			return;
	}
}
