#include "client/tierctl/source.h"

#include <stdio.h>

static int find_job(const struct command_context *context, const struct choice *choice, struct source *source,
		    uid_t *ret_owner)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	const Tierd__Wire__JobEntry *job = NULL;
	const Tierd__Wire__JobsReply *jobs;
	int code = command_connect(context, &ask);

	if (code == COMMAND_DONE)
		code = command_ask_jobs(ask, &jobs);
	if (code == COMMAND_DONE)
		code = choice_find(ask, choice, jobs, &job);
	if (code == COMMAND_DONE) {
		*ret_owner = job->uid;
		source->is_trained |= job->n_members > 0 && !choice->snapshot;
	}
	return code;
}

int source_fail(int r)
{
	return command_fail_at(COMMAND_FAILED, r, "%s", tierd_message());
}

static int open_reader(struct source *source, struct tierd_reader_options *options, bool as_snapshot)
{
	int r;

	options->as_snapshot = as_snapshot;
	r = tierd_reader_open(source->node, options, &source->reader);
	source->is_kept = r == 0 && (as_snapshot || options->snapshot);
	return r;
}

int source_open(const struct command_context *context, const struct choice *choice, bool shall_keep,
		struct source *source)
{
	struct tierd_reader_options options = TIERD_READER_OPTIONS_INIT;
	uid_t owner;
	int code = find_job(context, choice, source, &owner), r;

	if (code != COMMAND_DONE)
		return code;
	options.name = choice->job;
	options.owner = owner;
	options.snapshot = choice->snapshot;
	r = tierd_connect(context->socket, &source->node);
	if (r < 0)
		return command_fail_at(COMMAND_UNREACHABLE, r, "%s", tierd_message());
	if (shall_keep && source->is_trained) {
		if (open_reader(source, &options, true) == 0)
			return COMMAND_DONE;
		snprintf(source->refusal, sizeof(source->refusal), "%s", tierd_message());
	}
	r = open_reader(source, &options, false);
	return r < 0 ? source_fail(r) : COMMAND_DONE;
}

void source_close(struct source *source)
{
	source->node = tierd_disconnect(source->node);
	source->reader = NULL;
}

uint64_t source_elements(const struct tierd_tensor *tensor)
{
	uint64_t elements = 1;

	for (uint32_t i = 0; i < tensor->dimensions; i++)
		elements *= tensor->shape[i];
	return elements;
}
