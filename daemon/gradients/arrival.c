/* Contributions that come from the memory of a GPU: they are copied to where the rank's host memory has them,
 * and wait for their sums from then on. One that its GPU may sum (combined.c) waits in the GPU's memory, from
 * when it is complete there, and is copied only if it turns out that it is not summed there. */
#include <errno.h>

#include "daemon/gradients/own.h"

static uint64_t *waiting_of(const struct contribution *contribution)
{
	return &contribution->member->job->gradients->waiting_of_step[contribution->step % 2];
}

static void fail(struct contribution *contribution, const char *problem)
{
	struct job *job = contribution->member->job;

	job_abort(job, -ESTALE, "the gradients of unit \"%s\" that rank %u has pushed cannot be read: %s",
		  job->catalog.units[contribution->unit].name, contribution->rank, problem);
}

static void on_arrived(struct member *member, uint32_t buffer, int status, const char *problem)
{
	struct contribution *contribution = &member->pusher->contributions[buffer];
	struct job *job = member->job;

	job->gradients->arriving--;
	contribution->is_arriving = false;
	if (!contribution->is_void)
		(*waiting_of(contribution))--;
	/* Nothing of the epoch is worth anything without it. */
	if (status < 0 && !contribution->is_void)
		fail(contribution, problem);
	if (status < 0 || contribution->is_void) {
		contribution_finish(contribution);
	} else {
		contribution->is_reading = false;
		contribution->complete_ns = gpu_pushed_complete_ns(member, buffer);
		contribution_wait(contribution);
		sum_try(job, gradient_sum_of(job, contribution->unit, contribution->rank));
		spare_help(member);
	}
	gradient_unblock(job, false);
	job->gradients->listener->changed(job);
	member_release(member);
	job_settle(job);
}

/* event: as of gpu_push(). */
static void begin(struct contribution *contribution, uint64_t event)
{
	struct member *member = contribution->member;
	const struct gradient_span span = {
		(uint64_t)((const char *)contribution->data - member->gradients.base),
		contribution->is_on_gpu ? 0
					: unit_gradient_bytes(&member->job->catalog.units[contribution->unit])
	};

	queue_init(&contribution->link);
	contribution->is_arriving = contribution->is_reading = true;
	member->job->gradients->arriving++;
	(*waiting_of(contribution))++;
	gpu_push(member, contribution->buffer, span, event, on_arrived);
}

void arrival_begin(struct contribution *contribution, uint64_t event)
{
	contribution->is_on_gpu = combined_may_be(contribution);
	begin(contribution, event);
}

bool arrival_bring_home(struct contribution *contribution)
{
	char problem[sizeof(contribution->member->push_message)];

	/* The GPU is lost. */
	if (gpu_check_push(contribution->member, problem, sizeof(problem)) < 0) {
		fail(contribution, problem);
		return false;
	}
	contribution_take(contribution);
	contribution->is_on_gpu = false;
	begin(contribution, 0);
	return true;
}

void arrival_void(struct contribution *contribution)
{
	(*waiting_of(contribution))--;
	gpu_cancel_push(contribution->member, contribution->buffer);
}

/* With them come their counts: relabel_waiting() in gradient.c. */
void arrivals_relabel(struct job *job, uint64_t step)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		const struct member *member = job->members.ranks[rank];

		for (uint32_t i = 0; member && i < member->buffer_count; i++) {
			struct contribution *contribution = &member->pusher->contributions[i];

			if (contribution->is_arriving && !contribution->is_void)
				contribution->step = step;
		}
	}
}
