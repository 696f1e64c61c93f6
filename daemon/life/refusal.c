#include "daemon/life/refusal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/model.h"

struct refusal {
	int error; /* 0: none */
	char job[WIRE_MAX_JOB_NAME + 1];
	uid_t owner;
	uint32_t rank;
	char text[512];
};

int refusal_new(struct refusal **ret_refusal)
{
	struct refusal *refusal = calloc(1, sizeof(*refusal));

	if (!refusal)
		return -ENOMEM;
	*ret_refusal = refusal;
	return 0;
}

struct refusal *refusal_free(struct refusal *refusal)
{
	free(refusal);
	return NULL;
}

uint64_t refusal_bytes(void)
{
	return sizeof(struct refusal);
}

void refusal_note(struct refusal *refusal, const struct job *job, uint32_t rank, int r, const char *text)
{
	refusal->error = r;
	refusal->owner = job->uid;
	refusal->rank = rank;
	snprintf(refusal->job, sizeof(refusal->job), "%s", job->name);
	snprintf(refusal->text, sizeof(refusal->text), "%s", text);
}

static bool is_of(const struct refusal *refusal, const struct job *job)
{
	return refusal->error < 0 && refusal->owner == job->uid && strcmp(refusal->job, job->name) == 0;
}

void refusal_forget(struct refusal *refusal, const struct job *job, uint32_t rank)
{
	if (is_of(refusal, job) && refusal->rank == rank)
		refusal->error = 0;
	for (uint32_t i = 0; i < job->options.world_size; i++)
		if (job->members.ranks[i] && job->members.ranks[i]->untold->rank == rank)
			job->members.ranks[i]->untold->error = 0;
}

bool refusal_answer(struct pending *ready)
{
	struct refusal *untold = ready->member->untold;

	if (untold->error == 0)
		return false;
	pending_error(ready, untold->error, "job %s: rank %u has gone, whose opening was refused: %s",
		      untold->job, untold->rank, untold->text);
	untold->error = 0;
	return true;
}

/* Who has been in an epoch waits for a rank that is started again, as for one that was killed. */
static void tell(struct member *member, const struct refusal *refusal)
{
	struct pending *ready = TAKE_PTR(member->ready);

	*member->untold = *refusal;
	if (ready)
		refusal_answer(ready);
}

void refusal_tell(struct refusal *refusal, struct node *node, const struct job *left)
{
	struct job *job = refusal->error < 0 ? job_find(node, refusal->owner, refusal->job) : NULL;

	if (!job || (left && job != left) ||
	    (refusal->rank < job->options.world_size && job->members.ranks[refusal->rank]))
		return;
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->members.ranks[rank] && job->members.ranks[rank]->epoch == 0)
			tell(job->members.ranks[rank], refusal);
	refusal->error = 0;
}
