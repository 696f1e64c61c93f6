/* Sums, on GPUs, of what ranks have pushed from there: by the GPU that all ranks of a job share, or by
 * several that exchange (scatter.c).
 *
 * The one GPU makes passes of its tier (passes.c), whose kernel adds in the order of docs/numerics.md. A sum
 * is written to the ranks' gradient buffers in host memory, where their contributions would be copied to:
 * they are registered with the GPU, and of one that is lost nobody but these ranks has what it may still
 * write to. So a sum that loses its GPU fails as a push does (push_end.c). */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "daemon/gpu/exchange.h"

static_assert(sizeof(struct sum_arguments) <= GPU_ARGUMENTS_BYTES && GPU_RANKS <= SUM_MAX_RANKS,
	      "a chunk has room for them");

/* ---- Which ---- */

/* On which all ranks have gradient buffers; NULL: there is none. */
static struct gpu_tier *find_tier(const struct job *job)
{
	struct gpu_tier *tier = NULL;

	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		const struct member *member = job->members.ranks[rank];

		if (!member || !member->gpu || member->gpu->gradients.state != GRADIENTS_OPEN ||
		    (tier && tier != member->gpu->tier))
			return NULL;
		tier = member->gpu->tier;
	}
	return tier;
}

bool gpu_can_sum(const struct job *job)
{
	const struct gpu_tier *tier = find_tier(job);

	if (!tier)
		return gpu_scatter_can(job);
	return tier->state == GPU_TIER_OPEN && tier->sums && !tier->gpu->has_failed_sum;
}

uint64_t gpu_summed_bytes(const struct job *job)
{
	return job->gpu->summed_bytes;
}

/* ---- A sum, whoever makes it ---- */

void gpu_sum_init(struct gpu_sum *sum, const struct gpu_sum_order *order)
{
	assert(order->segment_count <= UNIT_TRAINABLE_SECTIONS);
	*sum = (struct gpu_sum){ .job = order->job,
				 .is_running = true,
				 .done = order->done,
				 .context = order->context,
				 .name = order->name,
				 .segment_count = order->segment_count,
				 .rank_count = order->job->options.world_size,
				 .share = order->share };
	memcpy(sum->segments, order->segments, order->segment_count * sizeof(*order->segments));
	for (unsigned i = 0; i < order->segment_count; i++)
		sum->elements += order->segments[i].count;
	for (uint32_t i = 0; i < sum->rank_count; i++)
		if (order->first[i] != GPU_SUM_NONE)
			sum->summands[i] =
				(struct gpu_summand){ order->job->members.ranks[i]->gpu, order->first[i] };
}

/* ---- Passes ---- */

static void find_parts(const struct gpu_pass *pass, struct gpu_pass_part parts[GPU_PARTS])
{
	const struct gpu_pass_sum *own = container_of(pass, struct gpu_pass_sum, pass);

	parts[0] = (struct gpu_pass_part){ { (uintptr_t)own->to, false }, 1, sizeof(float), false, true };
}

static const char *launch(const struct gpu_pass *pass, const struct gpu_chunk *chunk, void *arguments,
			  struct gpu_step *ret_step)
{
	const struct gpu_pass_sum *own = container_of(pass, struct gpu_pass_sum, pass);
	const struct gpu_sum *sum = &own->sum;
	struct sum_arguments *with = arguments;
	uint64_t skip = own->segment->offset +
			(own->skip + chunk->first) * reduce_element_bytes(own->segment->format);

	*with = (struct sum_arguments){ .sum = (float *)(uintptr_t)chunk->here[0],
					.count = chunk->count,
					.rank_count = sum->rank_count };
	for (unsigned rank = 0; rank < sum->rank_count; rank++) {
		const struct gpu_summand *summand = &sum->summands[rank];

		if (summand->rank)
			with->contributions[rank] =
				(const void *)(uintptr_t)(summand->rank->gradients.memory.address +
							  summand->first + skip);
	}
	*ret_step = (struct gpu_step){ .arguments = with,
				       .blocks = sum_blocks(chunk->count),
				       .threads = SUM_THREADS };
	return sum_kernel(own->segment->format);
}

static const struct gpu_pass_kind sum_kind = { SUM_THREADS * SUM_GROUP, find_parts, launch };

/* Of the next element: its segment. */
static void find_segment(struct gpu_pass_sum *own)
{
	own->segment = own->sum.segments;
	own->skip = own->summed;
	while (own->skip >= own->segment->count)
		own->skip -= (own->segment++)->count;
}

/* And its sum's place. Returns for how many of them there is room. */
static uint64_t find_place(struct gpu_pass_sum *own)
{
	const struct gpu_summand *summand = own->sum.summands;
	uint64_t at = own->summed, share = own->sum.share;

	for (; !summand->rank || at >= share; summand++)
		at -= summand->rank ? share : 0;
	own->to = summand->rank->member->gradients.base + summand->first + at * sizeof(float);
	return share - at;
}

static void begin_pass(struct gpu_pass_sum *own)
{
	uint64_t left, room = find_place(own);

	find_segment(own);
	left = own->segment->count - own->skip;
	own->pass.count = left < room ? left : room;
	gpu_updater_run(own->tier->passes->updater, &own->pass, &sum_kind);
}

static void for_each_rank(const struct gpu_pass_sum *own,
			  void (*call)(struct gpu_rank *rank, const char *problem))
{
	for (unsigned i = 0; i < own->sum.rank_count; i++)
		if (own->sum.summands[i].rank)
			call(own->sum.summands[i].rank, own->pass.problem.text);
}

static void hold(struct gpu_rank *rank, const char *problem)
{
	gpu_begin_moving(rank);
}

static void let_go(struct gpu_rank *rank, const char *problem)
{
	gpu_end_moving(rank);
}

static void send_away(struct gpu_rank *rank, const char *problem)
{
	gpu_send_away(rank->member, problem);
}

static void go_on(struct gpu_rank *rank, const char *problem)
{
	gpu_gradients_go_on(rank);
}

/* For no job, until the daemon ends. */
static void refuse_more(struct gpu_tier *tier, const char *problem)
{
	if (!tier->gpu->has_failed_sum)
		log_warning("what ranks push from %s is summed there no more, falling back to processors: %s",
			    gpu_engine_name(tier->gpu->engine), problem);
	tier->gpu->has_failed_sum = true;
}

static void on_summed(struct gpu_pass *pass, int status)
{
	struct gpu_pass_sum *own = container_of(pass, struct gpu_pass_sum, pass);
	struct job *job = own->sum.job;

	own->summed += pass->count;
	if (status == 0 && own->summed < own->sum.elements) {
		begin_pass(own);
		return;
	}
	if (status < 0)
		refuse_more(own->tier, pass->problem.text);
	for_each_rank(own, let_go);
	if (status == -ENODEV)
		for_each_rank(own, send_away);
	gpu_end_sum(&own->sum, status);
	for_each_rank(own, go_on);
	own->sum.is_running = false;
	job_settle(job);
}

static struct gpu_pass_sum *find_free(struct gpu_tier *tier)
{
	struct gpu_pass_sum *own = tier->sums;

	for (; own->sum.is_running; own++)
		assert(own < &tier->sums[GPU_SUMS - 1]);
	return own;
}

void gpu_sum_begin(const struct gpu_sum_order *order)
{
	struct gpu_tier *tier = find_tier(order->job);
	struct gpu_pass_sum *own;

	if (!tier) {
		gpu_scatter_begin(order);
		return;
	}
	own = find_free(tier);
	*own = (struct gpu_pass_sum){ .pass = { .done = on_summed, .kernels = &tier->passes->sum_kernels },
				      .tier = tier };
	gpu_sum_init(&own->sum, order);
	for_each_rank(own, hold);
	begin_pass(own);
}
