#include "client/tierctl/import_job.h"

#include <errno.h>
#include <stdlib.h>

#include "client/tierctl/source.h"

static int fail_open(const struct tierd_job_options *options, int r)
{
	if (r != -EEXIST)
		return source_fail(r);
	return command_fail_at(
		COMMAND_FAILED, r,
		"job %s exists, and an import makes a new one: give that another name, or "
		"--replace, with which it takes the place of the old one once it is complete, or "
		"end the old one first (tierctl drop %s); both destroy the old one's state",
		options->name, options->name);
}

int import_job_open(struct import_job *job, const char *socket, const struct tierd_job_options *options)
{
	struct tierd_job_options of_rank = *options;

	job->ranks = calloc(options->world_size, sizeof(struct tierd_job *));
	if (!job->ranks)
		return command_fail_memory();
	if (tierd_connect(socket, &job->node) < 0)
		return command_fail(COMMAND_UNREACHABLE, "%s", tierd_message());
	for (; job->count < options->world_size; job->count++) {
		int r;

		of_rank.rank = job->count;
		r = tierd_job_open(job->node, &of_rank, &job->ranks[job->count]);
		if (r < 0)
			return fail_open(options, r);
	}
	return COMMAND_DONE;
}

static int define_unit(struct import_job *job, const struct import_list *list, const struct import_unit *unit)
{
	_cleanup_free_ struct tierd_tensor *tensors = calloc(unit->count, sizeof(*tensors));
	int r = 0;

	if (!tensors)
		return command_fail_memory();
	for (uint32_t i = 0; i < unit->count; i++)
		tensors[i] = list->by_unit[unit->first + i]->tensor;
	for (uint32_t rank = 0; rank < job->count && r == 0; rank++)
		r = tierd_unit_define(job->ranks[rank], unit->name, tensors, unit->count, NULL);
	return r < 0 ? source_fail(r) : COMMAND_DONE;
}

int import_job_define(struct import_job *job, const struct import_list *list)
{
	int code = COMMAND_DONE;

	for (size_t i = 0; i < list->unit_count && code == COMMAND_DONE; i++)
		code = define_unit(job, list, &list->units[i]);
	return code;
}

/* Each waits for the others: so all of them ask for it before one does wait. */
int import_job_ready(struct import_job *job)
{
	_cleanup_free_ struct tierd_ticket **tickets = calloc(job->count, sizeof(struct tierd_ticket *));
	uint32_t asked = 0;
	int r = tickets ? 0 : -ENOMEM;

	while (r == 0 && asked < job->count) {
		r = tierd_job_ready_begin(job->ranks[asked], -1, &tickets[asked]);
		asked += r == 0;
	}
	for (uint32_t rank = 0; r == 0 && rank < asked; rank++)
		r = tierd_ticket_wait(tickets[rank], TIERD_DONE, -1);
	/* It outlives what frees the tickets. */
	if (r < 0 && tickets)
		source_fail(r);
	while (asked > 0)
		tierd_ticket_free(tickets[--asked]);
	if (!tickets)
		return command_fail_memory();
	return r < 0 ? COMMAND_FAILED : COMMAND_DONE;
}

int import_job_close(struct import_job *job)
{
	while (job->count > 0) {
		int r = tierd_job_close(TAKE_PTR(job->ranks[--job->count]));

		if (r < 0)
			return source_fail(r);
	}
	return COMMAND_DONE;
}

void import_job_clear(struct import_job *job)
{
	tierd_disconnect(job->node);
	free(job->ranks);
	*job = (struct import_job){ NULL };
}
