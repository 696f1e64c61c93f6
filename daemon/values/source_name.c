/* What is asked for as a source: a name of a job, or of a snapshot of one, that is there. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/model.h"
#include "daemon/request/request.h"
#include "daemon/values/source.h"
#include "proto/name.h"

/* The parts of JOB@SNAPSHOT. False: that is no name of either. */
static bool split_name(struct source *source, const char *name)
{
	size_t length = strcspn(name, "@");
	const char *snapshot = name[length] ? name + length + 1 : "";

	if (length > WIRE_MAX_JOB_NAME || strlen(snapshot) > WIRE_MAX_SNAPSHOT_NAME)
		return false;
	snprintf(source->name, sizeof(source->name), "%s", name);
	snprintf(source->job_name, sizeof(source->job_name), "%.*s", (int)length, name);
	snprintf(source->snapshot_name, sizeof(source->snapshot_name), "%s", snapshot);
	return name_is_word(source->job_name, WIRE_MAX_JOB_NAME) &&
	       (!name[length] || name_is_word(snapshot, WIRE_MAX_SNAPSHOT_NAME));
}

static int read_name(struct source *source, const Tierd__Wire__JobOpen *open, const struct port *port,
		     char *message, size_t size)
{
	uid_t own = open->has_owner ? open->owner : port->uid;

	if (!split_name(source, open->source))
		return refuse(message, size, -EINVAL, "source \"%.*s\" is no name of a job, or JOB@SNAPSHOT",
			      name_fit(open->source, 80), open->source);
	source->uid = open->has_source_owner ? open->source_owner : port->uid;
	if (source->uid == own && strcmp(source->job_name, open->name) == 0)
		return refuse(message, size, -EINVAL, "source %s is the job itself", source->name);
	return 0;
}

struct job *source_find_job(const struct source *source, struct node *node, const struct port *port)
{
	struct job *job = job_find(node, source->uid, source->job_name);

	return job && access_may_see(job, port) ? job : NULL;
}

int source_refuse_missing(const struct source *source, char *message, size_t size)
{
	return refuse(message, size, -ENOENT, "there is no job %s to take values from; look at tierctl jobs",
		      source->job_name);
}

static int look_for_snapshot(const struct source *source, const struct job *job, char *message, size_t size)
{
	struct store_snapshot snapshot;

	return source->snapshot_name[0] ? snapshot_find(job, source->snapshot_name, &snapshot, message, size)
					: 0;
}

static int find_source(const struct source *source, struct node *node, const struct port *port, char *message,
		       size_t size)
{
	const struct job *job = source_find_job(source, node, port);

	return job ? look_for_snapshot(source, job, message, size)
		   : source_refuse_missing(source, message, size);
}

int source_new(struct node *node, const struct port *port, const Tierd__Wire__JobOpen *open,
	       struct source **ret_source, char *message, size_t size)
{
	struct source *source;
	int r;

	if (!open->source[0]) {
		*ret_source = NULL;
		return 0;
	}
	source = calloc(1, sizeof(*source));
	if (!source)
		return refuse(message, size, -ENOMEM, "out of memory");
	source->is_partial = open->partial;
	source->has_state = open->with_optimizer;
	queue_init(&source->from_link);
	r = read_name(source, open, port, message, size);
	if (r == 0)
		r = find_source(source, node, port, message, size);
	if (r < 0) {
		source_free(source);
		return r;
	}
	*ret_source = source;
	return 0;
}

int source_compare(const struct source *here, const struct source *job, char *message, size_t size)
{
	const char *own = here ? here->name : "", *other = job ? job->name : "";

	if (strcmp(own, other) != 0 || (here && here->uid != job->uid))
		return refuse(message, size, -EINVAL, "source is \"%s\" here, \"%s\" in the job", own, other);
	if (here && here->is_partial != job->is_partial)
		return refuse(message, size, -EINVAL, "partial is %d here, %d in the job", here->is_partial,
			      job->is_partial);
	if (here && here->has_state != job->has_state)
		return refuse(message, size, -EINVAL, "with_optimizer is %d here, %d in the job",
			      here->has_state, job->has_state);
	return 0;
}
