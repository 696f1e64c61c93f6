/* Sums, on a GPU that all ranks of a job share, of what they have pushed from there: passes of its tier
 * (passes.c), whose kernel adds in the order of docs/numerics.md.
 *
 * A sum is written to the ranks' gradient buffers in host memory, where their contributions would be copied
 * to: they are registered with the GPU, and of one that is lost nobody but these ranks has what it may still
 * write to. So a sum fails as a push does (push_end.c). */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "daemon/gpu/own.h"

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
	struct gpu_tier *tier = find_tier(job);

	return tier && tier->state == GPU_TIER_OPEN && tier->sums && !tier->gpu->has_failed_sum;
}

uint64_t gpu_summed_bytes(const struct job *job)
{
	return job->gpu->summed_bytes;
}

/* ---- Passes ---- */

static void find_parts(const struct gpu_pass *pass, struct gpu_pass_part parts[GPU_PARTS])
{
	const struct gpu_sum *sum = container_of(pass, struct gpu_sum, pass);

	parts[0] = (struct gpu_pass_part){ { (uintptr_t)sum->to, false }, 1, sizeof(float), false, true };
}

static const char *launch(const struct gpu_pass *pass, const struct gpu_chunk *chunk, void *arguments,
			  struct gpu_step *ret_step)
{
	const struct gpu_sum *sum = container_of(pass, struct gpu_sum, pass);
	struct sum_arguments *with = arguments;
	uint64_t skip = sum->segment->offset +
			(sum->skip + chunk->first) * reduce_element_bytes(sum->segment->format);

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
	return sum_kernel(sum->segment->format);
}

static const struct gpu_pass_kind sum_kind = { SUM_THREADS * SUM_GROUP, find_parts, launch };

/* Of the next element: its segment. */
static void find_segment(struct gpu_sum *sum)
{
	sum->segment = sum->segments;
	sum->skip = sum->summed;
	while (sum->skip >= sum->segment->count)
		sum->skip -= (sum->segment++)->count;
}

/* And its sum's place. Returns for how many of them there is room. */
static uint64_t find_place(struct gpu_sum *sum)
{
	const struct gpu_summand *summand = sum->summands;
	uint64_t at = sum->summed * sizeof(float);

	for (; !summand->rank || at >= sum->bytes; summand++)
		at -= summand->rank ? sum->bytes : 0;
	sum->to = summand->rank->member->gradients.base + summand->first + at;
	return (sum->bytes - at) / sizeof(float);
}

static void begin_pass(struct gpu_sum *sum)
{
	uint64_t left, room = find_place(sum);

	find_segment(sum);
	left = sum->segment->count - sum->skip;
	sum->pass.count = left < room ? left : room;
	gpu_updater_run(sum->tier->passes->updater, &sum->pass, &sum_kind);
}

/* ---- A sum ---- */

static uint64_t contributed_bytes(const struct gpu_sum *sum)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < sum->rank_count; i++)
		bytes += sum->summands[i].rank ? sum->bytes : 0;
	return bytes;
}

static void let_ranks_go(const struct gpu_sum *sum)
{
	for (unsigned i = 0; i < sum->rank_count; i++) {
		struct gpu_rank *rank = sum->summands[i].rank;

		if (!rank)
			continue;
		rank->busy--;
		rank->gradients.moving--;
	}
}

static void for_each_rank(const struct gpu_sum *sum, void (*call)(struct gpu_rank *rank, const char *problem))
{
	for (unsigned i = 0; i < sum->rank_count; i++)
		if (sum->summands[i].rank)
			call(sum->summands[i].rank, sum->pass.problem.text);
}

static void send_away(struct gpu_rank *rank, const char *problem)
{
	gpu_send_away(rank->member, problem);
}

static void go_on(struct gpu_rank *rank, const char *problem)
{
	gpu_gradients_go_on(rank);
}

static void on_summed(struct gpu_pass *pass, int status)
{
	struct gpu_sum *sum = container_of(pass, struct gpu_sum, pass);
	struct gpu_tier *tier = sum->tier;

	sum->summed += pass->count;
	if (status == 0 && sum->summed < sum->elements) {
		begin_pass(sum);
		return;
	}
	if (status < 0)
		tier->gpu->has_failed_sum = true;
	else
		tier->job->gpu->summed_bytes += contributed_bytes(sum);
	let_ranks_go(sum);
	if (status == -ENODEV)
		for_each_rank(sum, send_away);
	gpu_end_sum(sum, status, pass->problem.text);
	for_each_rank(sum, go_on);
	sum->is_running = false;
	tier->outstanding--;
	job_settle(tier->job);
}

static void set_summands(struct gpu_sum *sum, const struct gpu_sum_order *order)
{
	sum->rank_count = order->job->options.world_size;
	for (uint32_t i = 0; i < sum->rank_count; i++) {
		struct gpu_rank *rank = order->job->members.ranks[i]->gpu;

		sum->summands[i] = (struct gpu_summand){ order->first[i] == GPU_SUM_NONE ? NULL : rank,
							 order->first[i] };
		if (!sum->summands[i].rank)
			continue;
		rank->busy++;
		rank->gradients.moving++;
	}
}

static struct gpu_sum *find_free(struct gpu_tier *tier)
{
	struct gpu_sum *sum = tier->sums;

	for (; sum->is_running; sum++)
		assert(sum < &tier->sums[GPU_SUMS - 1]);
	return sum;
}

void gpu_sum_begin(const struct gpu_sum_order *order)
{
	struct gpu_tier *tier = find_tier(order->job);
	struct gpu_sum *sum = find_free(tier);

	assert(order->segment_count <= UNIT_TRAINABLE_SECTIONS);
	*sum = (struct gpu_sum){ .pass = { .done = on_summed, .kernels = &tier->passes->sum_kernels },
				 .tier = tier,
				 .is_running = true,
				 .done = order->done,
				 .context = order->context,
				 .segment_count = order->segment_count,
				 .bytes = order->bytes };
	memcpy(sum->segments, order->segments, order->segment_count * sizeof(*order->segments));
	for (unsigned i = 0; i < order->segment_count; i++)
		sum->elements += order->segments[i].count;
	set_summands(sum, order);
	tier->outstanding++;
	begin_pass(sum);
}
