#include "daemon/telemetry/telemetry.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/telemetry/own.h"

int telemetry_open(struct node *node)
{
	struct node_telemetry *telemetry = calloc(1, sizeof(*telemetry));

	if (!telemetry)
		return -ENOMEM;
	queue_init(&telemetry->watches);
	queue_init(&telemetry->tracers);
	node->telemetry = telemetry;
	return 0;
}

void telemetry_close(struct node *node)
{
	free(node->telemetry);
	node->telemetry = NULL;
}

int telemetry_new(struct job *job)
{
	job->telemetry = calloc(1, sizeof(*job->telemetry));
	if (!job->telemetry)
		return -ENOMEM;
	job->telemetry->page = (struct memory)MEMORY_INIT;
	return 0;
}

void telemetry_free(struct job *job)
{
	free(job->telemetry);
	job->telemetry = NULL;
}

struct statistics_figures *figures_of(const struct job *job)
{
	return &job->telemetry->figures;
}

struct memory *telemetry_page(const struct job *job)
{
	return &job->telemetry->page;
}

bool telemetry_note_wait(struct job *job, uint64_t since_ns)
{
	if (job->telemetry->waits_told_ns == since_ns)
		return false;
	job->telemetry->waits_told_ns = since_ns;
	return true;
}

struct client_count *telemetry_clients(const struct node *node)
{
	return &node->telemetry->clients;
}

struct statistics_figures *figures_past(const struct node *node)
{
	return &node->telemetry->past;
}

void figures_add(struct statistics_figures *sum, const struct statistics_figures *more)
{
	uint64_t *to = (uint64_t *)sum;
	const uint64_t *from = (const uint64_t *)more;

	for (size_t i = 0; i < sizeof(*sum) / sizeof(*to); i++)
		to[i] += from[i];
}
