#include "daemon/durability/pinned_step.h"

#include "daemon/durability/snapshot.h"
#include "daemon/durability/own.h"

void pinned_step_begin(struct job *job, struct pinned_step *pinned)
{
	queue_push(&job->durability->pinned_steps, &pinned->link);
}

/* A snapshot that is read may have been deleted, and another taken under its name. */
static bool is_without_snapshot(const struct job *job, const struct pinned_step *pinned)
{
	struct store_snapshot snapshot;

	return !snapshot_look_for(job, pinned->name, &snapshot) || snapshot.step != pinned->step;
}

unsigned pinned_steps_list(const struct job *job,
			   const struct pinned_step *ret_pinned[PINNED_STEPS_LISTED_MOST])
{
	unsigned count = 0;

	QUEUE_FOREACH (link, &job->durability->pinned_steps) {
		const struct pinned_step *pinned = queue_entry(link, struct pinned_step, link);

		if (count < PINNED_STEPS_LISTED_MOST && is_without_snapshot(job, pinned))
			ret_pinned[count++] = pinned;
	}
	return count;
}
