/* Pushes and sums whose GPU is lost: who waits is told, and the rank's memory is not used again. */
#include <errno.h>
#include <stdio.h>

#include "daemon/gpu/exchange.h"
#include "daemon/telemetry/telemetry.h"

void gpu_send_away(struct member *member, const char *problem)
{
	char reason[GPU_PROBLEM_TEXT];

	if (member->has_left)
		return;
	snprintf(reason, sizeof(reason),
		 "rank %u (pid %d) has gradient buffers that a GPU may still write to: %.400s", member->rank,
		 (int)member->pid, problem);
	events_of_job(member->job, EVENT_THROWN_OUT, &(struct log_fields){ .rank = &member->rank },
		      "%s; it may come back, with others", reason);
	job_send_away(member, reason);
}

void gpu_end_push(struct gpu_push *push, int status, const char *problem)
{
	const struct gpu_rank *rank = push->rank;
	gpu_pushed done = TAKE_PTR(push->done);

	if (done)
		done(rank->member, (uint32_t)(push - rank->gradients.pushes), status, problem);
}

static uint64_t contributed_bytes(const struct gpu_sum *sum)
{
	uint64_t bytes = 0, contributions = 0;

	for (unsigned i = 0; i < sum->segment_count; i++)
		bytes += sum->segments[i].count * reduce_element_bytes(sum->segments[i].format);
	for (unsigned i = 0; i < sum->rank_count; i++)
		contributions += sum->summands[i].rank != NULL;
	return bytes * contributions;
}

void gpu_end_sum(struct gpu_sum *sum, int status)
{
	gpu_summed done = TAKE_PTR(sum->done);

	if (!done)
		return;
	if (status == 0)
		sum->job->gpu->summed_bytes += contributed_bytes(sum);
	done(sum->context, status);
}

/* The copies are the engine's still. Until they come home, which may be never, the rank's memory is there. */
static void give_up(struct gpu_rank *rank)
{
	if (rank->gradients.moving == 0)
		return;
	gpu_send_away(rank->member, rank->tier->problem);
	for (uint32_t i = 0; i < rank->member->buffer_count; i++)
		gpu_end_push(&rank->gradients.pushes[i], -ENODEV, rank->tier->problem);
}

void gpu_give_pushes_up(struct gpu_tier *tier)
{
	struct gpu_exchange *exchange = tier->job->gpu->exchange;

	for (unsigned i = 0; i < GPU_RANKS; i++)
		if (tier->ranks[i])
			give_up(tier->ranks[i]);
	for (unsigned i = 0; tier->sums && i < GPU_SUMS; i++)
		if (tier->sums[i].sum.is_running)
			gpu_end_sum(&tier->sums[i].sum, -ENODEV);
	if (exchange && exchange->give_up_sums)
		exchange->give_up_sums(exchange, tier);
}
