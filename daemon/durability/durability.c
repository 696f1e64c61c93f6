#include "daemon/durability/durability.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/durability/listing_inside.h"
#include "daemon/durability/own.h"
#include "daemon/durability/presence.h"

int durability_new(struct job *job)
{
	struct job_durability *durability = calloc(1, sizeof(*durability));

	if (!durability)
		return -ENOMEM;
	durability->job = job;
	durability->snapshots_asked = job->options.snapshots;
	blobs_init(&durability->blobs);
	queue_init(&durability->pinned_steps);
	queue_init(&durability->tasks);
	job->durability = durability;
	return 0;
}

void durability_free(struct job *job)
{
	if (job->durability)
		blobs_free(job);
	free(job->durability);
	job->durability = NULL;
}

bool durability_is_quiet(const struct job *job)
{
	return job->durability->store != JOB_STORE_LEAVING && !job->durability->blobs.is_loading &&
	       durable_is_quiet(job) && store_tasks_are_quiet(job);
}

int durability_open(struct node *node, const char *directory)
{
	int r;

	node->durability = calloc(1, sizeof(*node->durability));
	if (!node->durability)
		return -ENOMEM;
	r = listing_new(node, directory, &node->durability->listing);
	return r < 0 ? r : presence_open(node);
}

void durability_close(struct node *node)
{
	if (!node->durability)
		return;
	node->durability->listing = listing_free(node->durability->listing);
	presence_close(node);
	free(node->durability);
	node->durability = NULL;
}
