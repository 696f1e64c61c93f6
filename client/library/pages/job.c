#include "client/library/pages/job.h"

#include <errno.h>
#include <string.h>

#include "client/library/pages/ticket.h"
#include "common/cleanup.h"

void job_poison(struct tierd_job *job)
{
	if (job->attachment)
		job->attachment->live_epoch = ATTACHMENT_NO_EPOCH;
}

bool job_is_attached(const struct tierd_job *job)
{
	return job->attachment && job->attachment->connection == job->node->connections;
}

int job_check_unit(const struct tierd_job *job, uint32_t unit)
{
	if (unit < job->unit_count)
		return 0;
	return message_fail(-EINVAL, "job \"%s\" has no unit %u: it has %u", job->name, unit,
			    job->unit_count);
}

const char *job_unit_name(const struct tierd_job *job, uint32_t unit)
{
	return unit < job->unit_count ? job->units[unit]->name : "?";
}

void writing_forget(struct tierd_job *job)
{
	struct tierd_ticket *ticket = TAKE_PTR(job->writing), *end = TAKE_PTR(job->writing_end);

	job->writing_state = WRITING_NONE;
	if (ticket)
		ticket_abandon(ticket);
	if (end)
		ticket_abandon(end);
}

/* ---- The handle ---- */

struct unit *unit_free(struct unit *unit)
{
	if (!unit)
		return NULL;
	free(unit->name);
	free(unit->tensors);
	free(unit->offsets);
	free(unit->definition.bytes);
	free(unit->gradient_offsets);
	free(unit);
	return NULL;
}

struct tierd_job *job_free(struct tierd_job *job)
{
	if (!job)
		return NULL;
	/* A child has no mapping there, but may have mapped something else. */
	bool is_child = job->generation != connection_generation;

	attachment_free(job->attachment, is_child);
	if (!is_child)
		mapping_free(&job->window_mapping);
	fd_close(job->doorbell_fd);
	gpu_free(job->gpu, is_child);
	free(job->hot);
	for (uint32_t i = 0; i < job->unit_count; i++)
		unit_free(job->units[i]);
	free(job->units);
	free(job->opening.bytes);
	free(job);
	return NULL;
}

int job_new(struct tierd_node *node, const struct tierd_job_options *options,
	    const struct wire_groups *groups, struct tierd_job **ret_job)
{
	struct tierd_job *job = calloc(1, sizeof(*job));

	if (!job)
		return message_fail_memory();
	job->generation = node->generation;
	job->doorbell_fd = -1;
	job->node = node;
	queue_init(&job->link);
	memcpy(job->name, options->name, strlen(options->name) + 1);
	job->rank = options->rank;
	job->world_size = options->world_size;
	job->stage = options->stage;
	job->is_by_owner = options->optimizer == TIERD_NONE;
	job->group_count = options->group_count;
	for (uint32_t i = 0; i < options->group_count; i++)
		job->moments[i] = groups->values[i].moments;
	*ret_job = job;
	return 0;
}
