#include <errno.h>

#include "client/library/calls/calls.h"
#include "client/library/pages/buffers.h"
#include "client/library/pages/hold.h"
#include "client/library/pages/left.h"

static int fail_to_release(const struct tierd_job *job, uint32_t unit)
{
	if (job->generation != connection_generation)
		return message_fail_child();
	if (unit >= job->ready_units)
		return message_fail(-EINVAL, "job \"%s\" has no unit %u", job->name, unit);
	return message_fail(-EINVAL, "unit \"%s\" is released without having been gathered",
			    job->units[unit]->name);
}

/* If the job is left in the middle of a release, left_begin() waits for the release. */
static inline void begin(struct tierd_job *job)
{
	atomic_fetch_add_explicit(&job->releasing, 1, memory_order_seq_cst);
}

static inline void end(struct tierd_job *job)
{
	atomic_fetch_sub_explicit(&job->releasing, 1, memory_order_release);
}

static bool is_left(const struct tierd_job *job)
{
	return job->generation == connection_generation && job->has_left;
}

int tierd_release(struct tierd_job *job, uint32_t unit)
{
	bool is_given;

	if (UNLIKELY(!job))
		return CHECK_GIVEN(job);
	begin(job);
	is_given = LIKELY(hold_is_known(job, unit)) && LIKELY(hold_give(job, PLACE_HOST, unit));
	end(job);
	if (LIKELY(is_given))
		return 0;
	return is_left(job) ? left_release(job, &unit, 1) : fail_to_release(job, unit);
}

/* ---- On a GPU ---- */

/* Whichever attachment the lease is in, the order is that of what the newest has. */
static int pass(const struct tierd_job *job, uint32_t unit, struct driver_stream *stream)
{
	struct gpu_tier *tier = hold_newest(job)->gpu;

	return LIKELY(tier) ? gpu_tier_pass(tier, unit, stream) : gpu_note(job->gpu, stream);
}

static int fail_to_release_on(const struct tierd_job *job, uint32_t unit)
{
	if (job->generation != connection_generation || unit >= job->ready_units)
		return fail_to_release(job, unit);
	return message_fail(-EINVAL, "unit \"%s\" is released without having been gathered on the GPU",
			    job->units[unit]->name);
}

int tierd_release_on(struct tierd_job *job, uint32_t unit, void *stream)
{
	int r = 1;

	if (UNLIKELY(!job))
		return CHECK_GIVEN(job);
	begin(job);
	if (LIKELY(hold_is_known(job, unit)) && LIKELY(job->gpu)) {
		r = pass(job, unit, stream);
		if (LIKELY(r == 0) && UNLIKELY(!hold_give(job, PLACE_GPU, unit)))
			r = 1;
	}
	end(job);
	if (LIKELY(r <= 0))
		return r;
	return is_left(job) && job->gpu ? left_release_on(job, unit, stream) : fail_to_release_on(job, unit);
}

/* ---- Many ---- */

int tierd_release_many(struct tierd_job *job, const uint32_t *units, size_t count)
{
	const struct attachment *attachment = NULL;
	size_t i;
	int r = CHECK_GIVEN(job);

	if (r == 0 && count > 0)
		r = CHECK_GIVEN(units);
	if (r < 0 || count == 0)
		return r;
	begin(job);
	for (i = 0; i < count; i++) {
		if (LIKELY(hold_is_known(job, units[i])) &&
		    LIKELY(hold_give_quietly(job, PLACE_HOST, units[i], &attachment)))
			continue;
		if (is_left(job))
			break;
		r = r < 0 ? r : fail_to_release(job, units[i]);
	}
	if (attachment)
		hold_tell(job, attachment, PLACE_HOST);
	end(job);
	if (i < count) {
		int left = left_release(job, units + i, count - i);

		r = r < 0 ? r : left;
	}
	return r;
}

int tierd_release_all(struct tierd_job *job)
{
	int r = CHECK_GIVEN(job);

	if (r == 0 && job->has_left)
		return job->generation == connection_generation ? left_release_all(job)
								: message_fail_child();
	if (r == 0)
		r = connection_enter(job->node);
	if (r < 0)
		return r;
	r = gathers_are_over(job);
	for (uint32_t unit = 0; r == 0 && unit < job->ready_units; unit++) {
		while (hold_give(job, PLACE_HOST, unit))
			;
		job->units[unit]->unheard[PLACE_HOST] = 0;
	}
	if (r == 0) {
		gradients_settle(job);
		gradients_drop(job);
	}
	connection_exit(job->node);
	return r;
}
