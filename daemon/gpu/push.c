/* Gradients that ranks push from the memory of a GPU: copies to their buffers in host memory. */
#include <errno.h>

#include "daemon/gpu/own.h"

int gpu_check_push(const struct member *member, char *message, size_t size)
{
	const struct gpu_rank *rank = member->gpu;

	if (!rank || rank->gradients.state != GRADIENTS_OPEN)
		return refuse(message, size, -EINVAL, "job %s: rank %u has no gradient buffers on a GPU",
			      member->job->name, member->rank);
	if (rank->tier->state != GPU_TIER_OPEN)
		return refuse(message, size, rank->tier->status, "job %s: %s", member->job->name,
			      rank->tier->problem);
	return 0;
}

void gpu_begin_moving(struct gpu_rank *rank)
{
	rank->busy++;
	rank->tier->outstanding++;
	rank->gradients.moving++;
}

void gpu_end_moving(struct gpu_rank *rank)
{
	rank->busy--;
	rank->tier->outstanding--;
	rank->gradients.moving--;
}

static void on_copied(struct gpu_request *request, int status)
{
	struct gpu_copy *copy = container_of(request, struct gpu_copy, request);
	struct gpu_push *push = container_of(copy, struct gpu_push, copy);
	struct gpu_rank *rank = push->rank;

	gpu_end_moving(rank);
	if (status == -ENODEV && copy->begun > 0)
		gpu_send_away(rank->member, request->problem.text);
	gpu_end_push(push, status, request->problem.text);
	gpu_gradients_go_on(rank);
	job_settle(rank->tier->job);
}

void gpu_push(struct member *member, uint32_t buffer, struct gradient_span span, uint64_t event,
	      gpu_pushed done)
{
	struct gpu_rank *rank = member->gpu;
	struct gpu_push *push = &rank->gradients.pushes[buffer];

	*push = (struct gpu_push){ .rank = rank, .done = done };
	push->copy =
		(struct gpu_copy){ .request.done = on_copied,
				   .direction = GPU_TO_HOST,
				   .priority = TIER_DEMAND,
				   .to = (driver_address)(uintptr_t)(member->gradients.base + span.first),
				   .from = rank->gradients.memory.address + span.first,
				   .bytes = span.bytes,
				   .after = event > 0 ? &rank->events[gpu_event_at(event)].event : NULL };
	gpu_begin_moving(rank);
	gpu_copy_submit(rank->tier->gpu->engine, &push->copy);
}

void gpu_cancel_push(struct member *member, uint32_t buffer)
{
	const struct gpu_rank *rank = member->gpu;

	gpu_copy_cancel(rank->tier->gpu->engine, &rank->gradients.pushes[buffer].copy);
}

uint64_t gpu_pushed_complete_ns(const struct member *member, uint32_t buffer)
{
	return member->gpu->gradients.pushes[buffer].copy.after_ns;
}
