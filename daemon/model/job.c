#include "daemon/model/job.h"

#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct job *job_find(struct node *node, uid_t uid, const char *name)
{
	QUEUE_FOREACH (link, &node->jobs.live) {
		struct job *job = queue_entry(link, struct job, link);

		if (job->uid == uid && strcmp(job->name, name) == 0)
			return job;
	}
	return NULL;
}

const char *job_status_name(const struct job *job)
{
	/* Values may be written before all ranks are here. */
	if (job->state < JOB_INITIALIZING && job->members.count < job->options.world_size)
		return "waiting for its ranks";
	switch (job->state) {
	case JOB_FORMING:
		return "forming";
	case JOB_PLANNING:
	case JOB_RETURNING:
		return "planning";
	case JOB_FILLING:
		return "filling";
	case JOB_INITIALIZING:
		return "initializing";
	case JOB_BROKEN:
	case JOB_LOST:
		return "broken";
	case JOB_DROPPED:
	case JOB_CLOSED:
	case JOB_REPLACED:
	case JOB_REOPENING:
		return "dropped";
	default:
		return job_is_live(job) ? "training" : job_is_idle(job) ? "idle" : "waiting for its ranks";
	}
}

struct store *job_nvme_store(const struct job *job)
{
	return job->location.parameter_store	  ? job->location.parameter_store
	       : job->location.has_nvme_optimizer ? job->location.optimizer_store
						  : NULL;
}

struct store_range job_find_kept(const struct job *job, uint32_t pack, enum unit_section section,
				 unsigned state, uint64_t first, uint64_t count)
{
	uint64_t offset = state_offset(section, state, first);

	return (struct store_range){ .stream = job->location.streams.state[section][state],
				     .offset = job->location.places[pack].state[section][state] + offset,
				     .length = state_bytes(section, state, first + count) - offset };
}

struct store_range job_find_parameters(const struct job *job, uint32_t pack, enum unit_section section,
				       uint64_t first, uint64_t count)
{
	uint64_t bytes = section_element_bytes(section);

	return (struct store_range){ .stream = job->location.streams.parameter[section],
				     .offset = job->location.places[pack].parameter[section] + first * bytes,
				     .length = count * bytes };
}

bool job_is_idle(const struct job *job)
{
	return job->members.count == 0 && job_has_state(job);
}

bool job_check_live(struct pending *pending, uint32_t epoch)
{
	const struct member *member = pending->member;
	const struct job *job = member->job;
	char loss[JOB_LOSS_TEXT];

	if (job_is_broken(job))
		pending_error(pending, -EIO, "%s", job_describe_loss(job, loss, sizeof(loss)));
	else if (member->epoch == 0 && member->has_reconnected)
		pending_error(pending, -ESTALE,
			      "job %s: this rank has lost its connection; call tierd_job_ready", job->name);
	else if (member->epoch == 0)
		pending_error(pending, -EINVAL, "job %s: this rank has not called tierd_job_ready",
			      job->name);
	else if (!job_is_live(job) || member->epoch != job->epoch.number || epoch != job->epoch.number)
		pending_error(pending, -ESTALE, "%s; call tierd_job_ready",
			      job->epoch.reason[0] ? job->epoch.reason : "the epoch has ended");
	else
		return true;
	return false;
}

bool job_check_unit(struct pending *pending, uint32_t unit)
{
	const struct job *job = pending->member->job;

	if (unit < job->catalog.unit_count)
		return true;
	pending_error(pending, -EINVAL, "job %s has no unit %u; it has %u", job->name, unit,
		      job->catalog.unit_count);
	return false;
}

/* ---- Looking again: daemon/life/job.c has made turn and timer ---- */

/* The timer is for those who release without ringing: a broken client, or one that has died. */
void job_watch_slots(struct job *job)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->members.ranks[rank] && job->members.ranks[rank]->has_pages)
			atomic_store_explicit(&job->members.ranks[rank]->leases->is_release_wanted, 1,
					      memory_order_seq_cst);
	job->node->parts->life->watch_slots(job);
}

/* Once, however often it is asked for, and before the loop waits again. */
void job_settle(struct job *job)
{
	job->node->parts->life->settle(job);
}

void job_settle_all(struct node *node)
{
	QUEUE_FOREACH (link, &node->jobs.live)
		job_settle(queue_entry(link, struct job, link));
}

/* ---- What its life has to do ---- */

void job_abort(struct job *job, int r, const char *format, ...)
{
	va_list arguments;

	/* The first reason counts. */
	if (!job_is_live(job))
		return;
	va_start(arguments, format);
	vsnprintf(job->epoch.reason, sizeof(job->epoch.reason), format, arguments);
	va_end(arguments);
	job->node->parts->life->abort(job, r);
}

void job_break(struct job *job, const struct log_fields *about, const char *format, ...)
{
	va_list arguments;

	if (job_is_broken(job))
		return;
	va_start(arguments, format);
	vsnprintf(job->epoch.reason, sizeof(job->epoch.reason), format, arguments);
	va_end(arguments);
	job->node->parts->life->break_down(job, about);
}

void job_throw_out(struct member *member, const char *reason)
{
	member->job->node->parts->life->throw_out(member, reason);
}

void job_send_away(struct member *member, const char *reason)
{
	member->job->node->parts->life->send_away(member, reason);
}

const char *job_describe_loss(const struct job *job, char *text, size_t size)
{
	return job->node->parts->life->describe_loss(job, text, size);
}

bool job_is_quiet(const struct job *job)
{
	return job->node->parts->life->is_quiet(job);
}

bool job_replaces(const struct job *job)
{
	return job->node->parts->life->replaces(job);
}
