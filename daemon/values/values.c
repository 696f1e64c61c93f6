/* The values of a job as a whole: how they begin, and what its life asks of them. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/request/request.h"
#include "daemon/residency/residency.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/values/own.h"

int values_new(struct job *job)
{
	struct job_values *values = calloc(1, sizeof(*values));

	if (!values)
		return -ENOMEM;
	queue_init(&values->readers);
	queue_init(&values->dependents);
	queue_init(&values->blocked);
	queue_init(&values->early_writes);
	queue_init(&values->state_writes);
	queue_init(&values->copies_waiting);
	job->values = values;
	return 0;
}

void values_free(struct job *job)
{
	if (!job->values)
		return;
	values_end(job);
	source_free(job->values->source);
	draft_free(job);
	free(TAKE_PTR(job->values));
}

/* ---- First values ---- */

void values_begin(struct job *job, struct source *source, bool is_drafted)
{
	job->values->source = source;
	job->values->is_drafted = is_drafted;
}

int values_compare(const struct job *job, const struct source *source, bool is_drafted, char *message,
		   size_t size)
{
	if (job->values->is_drafted != is_drafted)
		return refuse(message, size, -EINVAL, "drafted is %d here, %d in the job", is_drafted,
			      job->values->is_drafted);
	return source_compare(source, job->values->source, message, size);
}

bool values_write_on(struct job *job)
{
	return state_write_go_on(job) || draft_go_on(job, NULL);
}

static int check_unwritten(const struct job *job, char *message, size_t size)
{
	char names[256];
	unsigned unwritten = catalog_unwritten(&job->catalog, names, sizeof(names));

	if (unwritten == 0)
		return 0;
	return refuse(message, size, -ENODATA, "%u tensor%s no values and no initializer: %s%s", unwritten,
		      unwritten == 1 ? " has" : "s have", names, unwritten > 4 ? ", …" : "");
}

/* Each tensor has values then, or an initializer. */
static int find_values(struct job *job, char *message, size_t size)
{
	int r = source_go_on(job, message, size);

	if (r < 0)
		events_of_job(job, EVENT_REFUSED, NULL, "it cannot take its values: %s; its ranks are told",
			      message);
	if (r == 0)
		r = check_unwritten(job, message, size);
	job->values->has_values = r == 0;
	return r;
}

int values_complete(struct job *job, char *message, size_t size)
{
	int r = job->values->has_values ? 0 : find_values(job, message, size);

	if (r != 0)
		return r;
	r = tensor_initialize(job);
	if (r < 0)
		return refuse(message, size, r, "no memory to initialize its tensors");
	if (r > 0 || !residency_is_quiet(job))
		return 1;
	state_write_begin_job(job);
	return 0;
}

/* ---- Readers, and jobs that take its values ---- */

void values_go_on(struct job *job)
{
	readers_go_on(job);
	sources_go_on(job);
}

void values_end(struct job *job)
{
	readers_end_job(job);
	sources_end_job(job);
}

unsigned values_end_denied(struct job *job, const char *reason)
{
	unsigned count = readers_end_denied(job, reason);

	sources_end_denied(job, reason);
	return count;
}

bool values_are_quiet(const struct job *job)
{
	return !job->values->is_filling_tensor && source_is_quiet(job) && draft_is_quiet(job) &&
	       job->values->snapshot_copies == 0;
}

void values_flushed(struct job *job)
{
	operation_resume(job);
	copies_resume(job);
}

/* ---- Of a node ---- */

int node_values_new(struct node *node)
{
	node->values = calloc(1, sizeof(*node->values));
	if (!node->values)
		return -ENOMEM;
	queue_init(&node->values->readers);
	return 0;
}

void node_values_free(struct node *node)
{
	free(TAKE_PTR(node->values));
}

bool node_values_have_ended(const struct node *node)
{
	return !node->values || queue_is_empty(&node->values->readers);
}
