#include <errno.h>

#include "client/hold.h"

static int fail_to_release(const struct tierd_job *job, uint32_t unit)
{
	if (job->generation != connection_generation)
		return message_fail_child();
	if (unit >= job->ready_units)
		return message_fail(-EINVAL, "job \"%s\" has no unit %u", job->name, unit);
	return message_fail(-EINVAL, "unit \"%s\" is released without having been gathered",
			    job->units[unit]->name);
}

int tierd_release(struct tierd_job *job, uint32_t unit)
{
	int r;

	if (LIKELY(job) && LIKELY(hold_is_known(job, unit)) && LIKELY(hold_give(job, unit)))
		return 0;
	r = CHECK_GIVEN(job);
	return r < 0 ? r : fail_to_release(job, unit);
}

int tierd_release_many(struct tierd_job *job, const uint32_t *units, size_t count)
{
	const struct attachment *attachment = NULL;
	int r = CHECK_GIVEN(job);

	if (r == 0 && count > 0)
		r = CHECK_GIVEN(units);
	if (r < 0)
		return r;
	for (size_t i = 0; i < count; i++)
		if (UNLIKELY(!hold_is_known(job, units[i])) ||
		    UNLIKELY(!hold_give_quietly(job, units[i], &attachment)))
			r = r < 0 ? r : fail_to_release(job, units[i]);
	if (attachment)
		hold_tell(job, attachment);
	return r;
}

int tierd_release_all(struct tierd_job *job)
{
	int r = CHECK_GIVEN(job);

	if (r == 0)
		r = connection_enter(job->node);
	if (r < 0)
		return r;
	r = gathers_are_over(job);
	for (uint32_t unit = 0; r == 0 && unit < job->ready_units; unit++) {
		while (hold_give(job, unit))
			;
		job->units[unit]->unheard = 0;
	}
	if (r == 0)
		gradients_drop(job);
	job_exit(job);
	return r;
}
