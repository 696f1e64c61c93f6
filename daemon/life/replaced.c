#include "daemon/life/replaced.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "daemon/durability/durability.h"
#include "daemon/life/life.h"
#include "daemon/life/life_recovery.h"
#include "daemon/life/lost.h"
#include "daemon/life/own.h"

struct replaced {
	struct node *node;
	struct job *old; /* until it is freed: then its files are */
	struct job_file file;
	bool is_unread; /* nobody knows what else is in it */
	uint64_t path_bytes[NODE_MAX_PATHS];
};

/* ---- The old job ---- */

/* What has never been committed ends with it. */
static bool has_files(const struct job *job)
{
	uint64_t step;

	return job_is_lost(job) || durable_has_step(job, &step);
}

int replaced_new(struct job *old, struct replaced **ret_replaced)
{
	struct replaced *replaced;

	if (!has_files(old)) {
		/* It was to replace one itself. */
		*ret_replaced = TAKE_PTR(old->life->replaced);
		job_drop(old);
		return 0;
	}
	replaced = calloc(1, sizeof(*replaced));
	if (!replaced)
		return -ENOMEM;
	replaced->node = old->node;
	replaced->old = old;
	job_file_get(old, &replaced->file);
	replaced->is_unread = job_is_lost(old) && old->life->loss.is_unread;
	old->life->remains = replaced;
	log_about(LOG_LEVEL_INFO, &(struct log_fields){ .job = old->name, .user = &old->uid },
		  "job %s of user %u: it is replaced; %s stays until the new one has a state of its own",
		  old->name, (unsigned)old->uid, replaced->file.file);
	life_step(old, LIFE_REPLACE);
	*ret_replaced = replaced;
	return 0;
}

void replaced_inherit(struct job *old)
{
	struct replaced *replaced = TAKE_PTR(old->life->remains);

	if (!replaced)
		return;
	replaced->old = NULL;
	memcpy(replaced->path_bytes, budget_path_bytes(old), sizeof(replaced->path_bytes));
	for (unsigned i = 0; i < old->node->path_count; i++)
		old->node->paths[i].used += replaced->path_bytes[i];
}

/* ---- The end ---- */

static void give_paths(struct replaced *replaced)
{
	for (unsigned i = 0; i < replaced->node->path_count; i++)
		replaced->node->paths[i].used -= replaced->path_bytes[i];
}

struct replaced *replaced_leave(struct replaced *replaced)
{
	if (!replaced)
		return NULL;
	if (replaced->old)
		replaced->old->life->remains = NULL;
	give_paths(replaced);
	free(replaced);
	return NULL;
}

static void remove_old(struct replaced *replaced)
{
	if (replaced->old)
		life_step(replaced->old, LIFE_SUPERSEDE);
	else
		lost_remove_file(replaced->node, &replaced->file);
	log_info("job %s of user %u: what was left of it in %s is removed: another one has taken its place",
		 replaced->file.name, (unsigned)replaced->file.uid, replaced->file.file);
}

struct replaced *replaced_remove(struct replaced *replaced)
{
	if (!replaced)
		return NULL;
	/* Then it goes when they are. */
	if (replaced->is_unread && !listing_has_paths(replaced->node, replaced->file.file))
		listing_give_up(replaced->node, replaced->file.file, replaced->file.name);
	if (replaced->is_unread)
		log_warning(
			"job %s of user %u: another one has taken its place, and %s, which could not be "
			"read, is left as it is, because there may be forks in it: a later tierd removes it "
			"if it can read it, or somebody who knows",
			replaced->file.name, (unsigned)replaced->file.uid, replaced->file.file);
	else
		remove_old(replaced);
	job_settle_all(replaced->node);
	return replaced_leave(replaced);
}

static void on_committed(struct job *job)
{
	job->life->replaced = replaced_remove(job->life->replaced);
}

const struct durable_listener replaced_listener = { .committed = on_committed };

struct replaced *replaced_bring_back(struct replaced *replaced)
{
	struct job *old = replaced ? replaced->old : NULL;

	if (!replaced || replaced->node->is_stopping)
		return replaced_leave(replaced);
	log_info("job %s of user %u: what was to replace it has ended before it had a state: it comes back",
		 replaced->file.name, (unsigned)replaced->file.uid);
	if (old) {
		life_step(old, LIFE_REOPEN);
		job_settle(old);
		return replaced_leave(replaced);
	}
	/* It takes what it needs of the paths again. */
	give_paths(replaced);
	replaced->node->parts->recovery->bring_back_file(replaced->node, &replaced->file);
	free(replaced);
	return NULL;
}

/* ---- What is shown of it ---- */

bool replaced_has_file(const struct replaced *replaced, const char *file)
{
	return replaced && strcmp(replaced->file.file, file) == 0;
}

/* That its files take of all paths. */
static uint64_t nvme_bytes(const struct job *job)
{
	const struct replaced *replaced = job->life->replaced;
	uint64_t bytes = 0;

	for (unsigned i = 0; replaced && i < replaced->node->path_count; i++)
		bytes += replaced->path_bytes[i];
	return bytes;
}

const struct holder replaced_holder = {
	.nvme_bytes = nvme_bytes,
};
