/* What a job keeps of its steps, and what others may ask of it. */
#include "daemon/update/update.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/update/own.h"

/* ---- Life ---- */

int update_new(struct job *job)
{
	uint32_t count = job->options.group_count;
	struct job_update *update = calloc(1, sizeof(*update) + 3 * count * sizeof(update->group_storage[0]));

	if (!update)
		return -ENOMEM;
	update->loss_scale.value = job->options.loss_scale.initial;
	update->groups = update->group_storage;
	update->open_rates.groups = update->group_storage + count;
	update->decided_rates.groups = update->group_storage + 2 * count;
	memcpy(update->groups, job->options.groups, count * sizeof(update->groups[0]));
	job->update = update;
	return 0;
}

void update_listen(struct job *job, const struct commit_listener *commit,
		   const struct writing_listener *writing, const struct sweep_listener *sweep)
{
	job->update->commit_listener = commit;
	job->update->writing_listener = writing;
	job->update->sweep_listener = sweep;
}

void update_free(struct job *job)
{
	free(TAKE_PTR(job->update));
}

void update_release(struct job *job)
{
	read_ahead_clear(job);
	warm_free(job);
}

void update_clear(struct job *job)
{
	sweep_free(job);
	early_clear(job);
	update_release(job);
	free(TAKE_PTR(job->update->packs));
}

/* ---- A plan ---- */

uint64_t update_metadata_bytes(const struct job *job)
{
	return sweep_metadata_bytes(job) + early_metadata_bytes(job) + read_ahead_metadata_bytes(job) +
	       warm_metadata_bytes(job);
}

/* ---- All of it ---- */

bool update_is_sweeping(const struct job *job)
{
	return job->update->sweep;
}

bool update_is_over(const struct job *job)
{
	return !job->update->sweep && !job->update->early;
}

bool update_is_still(const struct job *job)
{
	return !job->update->sweep && !early_is_under_way(job) && !read_ahead_is_reading(job);
}

bool update_is_at_rest(const struct job *job)
{
	return update_is_still(job) && !early_is_busy(job) && !read_ahead_is_busy(job);
}

const struct loss_scale *update_loss_scale(const struct job *job)
{
	return &job->update->loss_scale;
}

const struct optimizer_group *update_groups(const struct job *job)
{
	return job->update->groups;
}

int update_restore(struct job *job, Tierd__Wire__Group *const *groups, size_t group_count,
		   const struct loss_scale *loss_scale, char *message, size_t size)
{
	uint32_t count;
	int r = options_set_groups(&job->options, job->update->groups, &count, groups, group_count, message,
				   size);

	return r < 0 ? r
		     : loss_scale_restore(&job->update->loss_scale, &job->options.loss_scale, loss_scale,
					  message, size);
}

uint64_t update_early_count(const struct job *job)
{
	return job->update->early_updates;
}

uint64_t update_elements(const struct job *job, enum share_side side)
{
	return job->update->share.sides[side].all;
}

uint64_t step_decided_ns(const struct job *job)
{
	return job->update->decided_ns;
}

float step_factor(const struct job *job)
{
	return job->update->factor;
}
