/* Sums that the GPUs of an exchange make together of what the job's ranks have pushed from them.
 *
 * Happy path: the sum is cut into pieces of as many elements, one for each rank that contributes. In rounds
 * each GPU gets what all contribute to some of its ranks' pieces, by a reduce-scatter, and copies these sums
 * to host memory, where the ranks' own contributions would be copied to. A round is of one segment, and of as
 * much of each piece as a GPU has memory for. Two go side by side: one is exchanged while another is copied.
 *
 * Nothing waits for a rank here: an operation is submitted when all that it reads is complete on the GPUs. So
 * what an exchange's thread puts on the streams ends by itself, each in the order in which it was submitted,
 * gathers of packs (share.c) as well; and they come to all streams in that one order.
 *
 * Whatever fails, contributions are in their ranks' memory as before. So the sum fails when none of its
 * rounds writes to host memory any more, and they are copied there one by one. A GPU writes to buffers of its
 * own ranks alone, which are registered with it, and one that is lost is dealt with as in a push
 * (push_end.c). Where the thread does not come back from NCCL nobody waits for it: what NCCL may still write
 * to, pieces and staging memory, is used by nobody else before it is back, and what it may still read stays
 * there, because it is lent to the exchange until that ends. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "daemon/gpu/exchange.h"

/* ---- Which ---- */

/* One that has attached since is none of those that the exchange knows. */
static bool can_contribute(const struct gpu_exchange *exchange, uint32_t number)
{
	const struct member *member = exchange->job->members.ranks[number];
	const struct gpu_rank *rank = member ? member->gpu : NULL;

	return rank && rank->gradients.state == GRADIENTS_OPEN && rank->tier->state == GPU_TIER_OPEN &&
	       rank->tier == exchange->tiers[exchange->member_of_rank[number]];
}

/* What a driver that hung has of a round comes back late, or never. */
static bool has_round(const struct gpu_exchange *exchange)
{
	for (unsigned i = 0; i < GPU_ROUNDS; i++)
		if (exchange->rounds[i].state == ROUND_FREE || exchange->rounds[i].scatter)
			return true;
	return false;
}

bool gpu_scatter_can(const struct job *job)
{
	const struct gpu_exchange *exchange = job->gpu->exchange;

	if (!gpu_exchange_is_ready(exchange) || exchange->window == 0 || exchange->has_failed_sum ||
	    !has_round(exchange))
		return false;
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (!can_contribute(exchange, rank))
			return false;
	return true;
}

/* ---- A sum ends ---- */

static void start_rounds(struct gpu_exchange *exchange);

/* Another one may begin in done(). */
static void end_if_over(struct gpu_scatter *scatter)
{
	if (scatter->rounds > 0 || !queue_is_empty(&scatter->link))
		return;
	scatter->sum.is_running = false;
	gpu_end_sum(&scatter->sum, scatter->status);
}

static void fail(struct gpu_scatter *scatter, int status)
{
	if (scatter->status == 0)
		scatter->status = status;
	queue_remove(&scatter->link);
}

static void fail_waiting(struct gpu_exchange *exchange)
{
	while (!queue_is_empty(&exchange->scattering)) {
		struct gpu_scatter *scatter =
			queue_entry(queue_first(&exchange->scattering), struct gpu_scatter, link);

		fail(scatter, -ECANCELED);
		end_if_over(scatter);
	}
}

/* ---- A round ends ---- */

/* Its sum waits for it no longer. */
static void report(struct gpu_round *round)
{
	struct gpu_scatter *scatter = TAKE_PTR(round->scatter);

	scatter->rounds--;
	if (round->status < 0) {
		round->exchange->has_failed_sum = true;
		fail(scatter, round->status);
	}
	end_if_over(scatter);
}

static void end_piece(struct gpu_round *round, int status)
{
	if (status < 0 && round->status == 0)
		round->status = status;
	if (--round->awaited == 0)
		report(round);
}

/* One that fails on a GPU that is there is not the exchange's to tell. */
static void tell(const struct gpu_round *round, const struct gpu_request *request, int status)
{
	if (status < 0 && status != -ENODEV && !round->exchange->has_failed_sum)
		log_warning("job %s: its GPUs sum no more in this epoch, falling back to processors: %s",
			    round->exchange->job->name, request->problem.text);
}

static void on_copied(struct gpu_request *request, int status)
{
	struct gpu_copy *copy = container_of(request, struct gpu_copy, request);
	struct gpu_round_piece *piece = container_of(copy, struct gpu_round_piece, copy);
	struct gpu_round *round = piece->round;
	struct gpu_exchange *exchange = round->exchange;
	struct gpu_rank *rank = piece->rank;
	bool is_given_up = piece->is_given_up;

	piece->is_under_way = false;
	gpu_end_moving(rank);
	tell(round, request, status);
	if (status == -ENODEV && copy->begun > 0)
		gpu_send_away(rank->member, request->problem.text);
	if (--round->moving == 0)
		round->state = ROUND_FREE;
	if (!is_given_up)
		end_piece(round, status);
	start_rounds(exchange);
	gpu_gradients_go_on(rank);
	job_settle(exchange->job);
}

/* ---- A round goes on: its sums are there ---- */

/* Of the rank's piece of the segment, what is the round's. */
static uint64_t count_of(const struct gpu_round *round, unsigned rank)
{
	const struct communicator_operation *what = &round->operation.what;
	uint64_t piece = round->bounds[rank + 1] - round->bounds[rank];
	uint64_t left = piece > what->window_first ? piece - what->window_first : 0;

	return left < what->window_count ? left : what->window_count;
}

static void copy_piece(struct gpu_round *round, unsigned number)
{
	struct gpu_round_piece *piece = &round->pieces[number];
	struct gpu_rank *rank = round->ranks[number];
	driver_address to = piece->copy.to;

	piece->copy = (struct gpu_copy){ .request.done = on_copied,
					 .direction = GPU_TO_HOST,
					 .priority = TIER_DEMAND,
					 .to = to,
					 .from = (uintptr_t)round->requests[number].sum,
					 .bytes = count_of(round, number) * sizeof(float) };
	piece->round = round;
	piece->rank = rank;
	piece->is_under_way = true;
	piece->is_given_up = false;
	round->moving++;
	round->awaited++;
	gpu_begin_moving(rank);
	gpu_copy_submit(rank->tier->gpu->engine, &piece->copy);
}

/* A rank that leaves has its buffers to itself again. */
static bool can_copy(const struct gpu_round *round)
{
	for (unsigned rank = 0; rank < GPU_RANKS; rank++)
		if (round->ranks[rank] && (round->ranks[rank]->gradients.state != GRADIENTS_OPEN ||
					   round->ranks[rank]->tier->state != GPU_TIER_OPEN))
			return false;
	return true;
}

static void on_exchanged(struct exchange_operation *operation, int status)
{
	struct gpu_round *round = container_of(operation, struct gpu_round, operation);
	struct gpu_exchange *exchange = round->exchange;

	if (status == 0 && !can_copy(round))
		status = -ECANCELED;
	round->state = ROUND_FREE;
	for (unsigned rank = 0; status == 0 && round->scatter && rank < GPU_RANKS; rank++)
		if (round->ranks[rank] && count_of(round, rank) > 0) {
			round->state = ROUND_COPYING;
			copy_piece(round, rank);
		}
	round->status = status;
	if (status < 0 && round->scatter)
		report(round);
	start_rounds(exchange);
	job_settle(exchange->job);
}

/* ---- A round begins ---- */

/* Where the n-th rank that contributes has its piece, if the segment were all: those of the sum before the
 * segment, and behind it, are none of it. */
static uint64_t bound_of(const struct gpu_scatter *scatter, unsigned contributions)
{
	uint64_t at = contributions * scatter->sum.share;
	uint64_t count = scatter->sum.segments[scatter->segment].count;

	if (at <= scatter->before)
		return 0;
	return at - scatter->before < count ? at - scatter->before : count;
}

/* And where it has the place in host memory. */
static driver_address place_of(const struct gpu_round *round, unsigned rank, unsigned contributions)
{
	const struct gpu_scatter *scatter = round->scatter;
	const struct gpu_summand *summand = &scatter->sum.summands[rank];
	uint64_t element = scatter->before + round->bounds[rank] + scatter->first;

	return (uintptr_t)(summand->rank->member->gradients.base + summand->first +
			   (element - contributions * scatter->sum.share) * sizeof(float));
}

/* In the GPU's memory, beside those of other ranks. */
static float *sum_of(const struct gpu_round *round, unsigned rank)
{
	const struct gpu_exchange *exchange = round->exchange;
	unsigned member = exchange->member_of_rank[rank], neighbours = 0;
	size_t at = GPU_STAGING_BYTES + (size_t)(round - exchange->rounds) * GPU_ROUND_BYTES;

	for (unsigned other = 0; other < rank; other++)
		neighbours += exchange->member_of_rank[other] == member;
	return (float *)(uintptr_t)(exchange->group.members[member].staging + at +
				    neighbours * exchange->window * sizeof(float));
}

static void set_rank(struct gpu_round *round, unsigned rank, unsigned contributions)
{
	const struct gpu_scatter *scatter = round->scatter;
	const struct gpu_summand *summand = &scatter->sum.summands[rank];

	round->bounds[rank] = bound_of(scatter, contributions);
	round->bounds[rank + 1] = bound_of(scatter, contributions + (summand->rank != NULL));
	round->is_absent[rank] = !summand->rank;
	round->ranks[rank] = summand->rank;
	round->requests[rank] = (struct communicator_request){ .sum = sum_of(round, rank) };
	if (!summand->rank)
		return;
	round->requests[rank].contribution =
		(void *)(uintptr_t)(summand->rank->gradients.memory.address + summand->first +
				    scatter->sum.segments[scatter->segment].offset);
	round->pieces[rank].copy.to = place_of(round, rank, contributions);
}

/* Those of the segment are in rounds, so the next one is. */
static void advance(struct gpu_scatter *scatter, const struct gpu_round *round)
{
	uint64_t largest = 0;

	for (unsigned rank = 0; rank < scatter->sum.rank_count; rank++) {
		uint64_t count = round->bounds[rank + 1] - round->bounds[rank];

		largest = count > largest ? count : largest;
	}
	scatter->first += round->exchange->window;
	if (scatter->first < largest)
		return;
	scatter->first = 0;
	scatter->before += scatter->sum.segments[scatter->segment++].count;
	if (scatter->segment == scatter->sum.segment_count)
		queue_remove(&scatter->link);
}

static void begin_round(struct gpu_round *round, struct gpu_scatter *scatter)
{
	unsigned contributions = 0;

	round->scatter = scatter;
	round->state = ROUND_EXCHANGING;
	round->status = 0;
	/* The job may have had more ranks before. */
	memset(round->ranks, 0, sizeof(round->ranks));
	for (unsigned rank = 0; rank < scatter->sum.rank_count; rank++) {
		set_rank(round, rank, contributions);
		contributions += scatter->sum.summands[rank].rank != NULL;
	}
	round->operation = (struct exchange_operation){
		.group = &round->exchange->group,
		.what = { .kind = COMMUNICATOR_REDUCE_SCATTER,
			  .name = scatter->sum.name,
			  .bounds = round->bounds,
			  .format = scatter->sum.segments[scatter->segment].format,
			  .is_absent = round->is_absent,
			  .window_first = scatter->first,
			  .window_count = round->exchange->window },
		.requests = round->requests,
		.done = on_exchanged,
	};
	scatter->rounds++;
	advance(scatter, round);
	exchange_submit(&round->operation);
}

static struct gpu_round *find_free_round(struct gpu_exchange *exchange)
{
	for (unsigned i = 0; i < GPU_ROUNDS; i++)
		if (exchange->rounds[i].state == ROUND_FREE)
			return &exchange->rounds[i];
	return NULL;
}

/* Those that wait, wait for a round that is under way, which comes here. */
static void start_rounds(struct gpu_exchange *exchange)
{
	struct gpu_round *round;

	if (!gpu_exchange_is_ready(exchange))
		fail_waiting(exchange);
	while (!queue_is_empty(&exchange->scattering) && (round = find_free_round(exchange)))
		begin_round(round, queue_entry(queue_first(&exchange->scattering), struct gpu_scatter, link));
}

/* ---- What may never come back ---- */

static void lose_pieces(struct gpu_round *round, const struct gpu_tier *tier)
{
	for (unsigned rank = 0; rank < GPU_RANKS; rank++) {
		struct gpu_round_piece *piece = &round->pieces[rank];

		if (!piece->is_under_way || piece->is_given_up || piece->rank->tier != tier)
			continue;
		piece->is_given_up = true;
		end_piece(round, -ENODEV);
	}
}

/* Its operation stays the thread's. */
static void lose_operation(struct gpu_round *round)
{
	if (round->state != ROUND_EXCHANGING || !round->scatter)
		return;
	round->status = -EIO;
	report(round);
}

/* The thread waits for all GPUs of the exchange, too. */
static void give_up(struct gpu_exchange *exchange, const struct gpu_tier *tier)
{
	for (unsigned i = 0; tier && i < GPU_ROUNDS; i++)
		lose_pieces(&exchange->rounds[i], tier);
	if (tier && !gpu_exchange_has(tier) && has_round(exchange))
		return;
	for (unsigned i = 0; i < GPU_ROUNDS; i++)
		lose_operation(&exchange->rounds[i]);
	fail_waiting(exchange);
}

/* ---- Gradients that NCCL knows ---- */

/* Then it reads them without copies of its own, if it can. They stay until the exchange has ended, if their
 * rank leaves before. */
static void lend(struct gpu_exchange *exchange, unsigned number, struct gpu_rank *rank)
{
	struct gpu_lent *lent = &exchange->lent[number];

	if (!rank || lent->rank || !gpu_exchange_is_ready(exchange))
		return;
	lent->rank = rank;
	lent->range = (struct exchange_range){ .group = &exchange->group,
					       .member = exchange->member_of_rank[number],
					       .memory = rank->gradients.memory.address,
					       .bytes = rank->gradients.memory.bytes };
	rank->busy++;
	exchange_register(&lent->range);
}

static void give_back(struct gpu_exchange *exchange)
{
	for (unsigned i = 0; i < GPU_RANKS; i++) {
		struct gpu_rank *rank = TAKE_PTR(exchange->lent[i].rank);

		if (!rank)
			continue;
		rank->busy--;
		gpu_rank_settle(rank);
	}
}

/* ---- A sum begins ---- */

static struct gpu_scatter *find_free(struct gpu_exchange *exchange)
{
	struct gpu_scatter *scatter = exchange->scatters;

	for (; scatter->sum.is_running; scatter++)
		assert(scatter < &exchange->scatters[GPU_SUMS - 1]);
	return scatter;
}

void gpu_scatter_begin(const struct gpu_sum_order *order)
{
	struct gpu_exchange *exchange = order->job->gpu->exchange;
	struct gpu_scatter *scatter = find_free(exchange);

	*scatter = (struct gpu_scatter){ 0 };
	gpu_sum_init(&scatter->sum, order);
	exchange->give_up_sums = give_up;
	exchange->give_back = give_back;
	queue_push(&exchange->scattering, &scatter->link);
	for (unsigned rank = 0; rank < scatter->sum.rank_count; rank++)
		lend(exchange, rank, scatter->sum.summands[rank].rank);
	start_rounds(exchange);
}
