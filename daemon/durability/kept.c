#include "daemon/durability/kept.h"

#include "daemon/durability/snapshot.h"
#include "daemon/durability/own.h"

void kept_begin(struct job *job, struct kept *kept)
{
	queue_push(&job->durability->kept_steps, &kept->link);
}

/* A snapshot that is read may have been deleted, and another taken under its name. */
static bool is_without_snapshot(const struct job *job, const struct kept *kept)
{
	struct store_snapshot snapshot;

	return !snapshot_look_for(job, kept->name, &snapshot) || snapshot.step != kept->step;
}

unsigned kept_list(const struct job *job, const struct kept *ret_kept[KEPT_LISTED_MOST])
{
	unsigned count = 0;

	QUEUE_FOREACH (link, &job->durability->kept_steps) {
		const struct kept *kept = queue_entry(link, struct kept, link);

		if (count < KEPT_LISTED_MOST && is_without_snapshot(job, kept))
			ret_kept[count++] = kept;
	}
	return count;
}
