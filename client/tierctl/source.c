#include "client/tierctl/source.h"

static int find_job(const struct command_context *context, const struct choice *choice, uid_t *ret_owner,
		    bool *ret_is_trained)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	const Tierd__Wire__JobEntry *job = NULL;
	const Tierd__Wire__JobsReply *jobs;
	int code = command_connect(context, &ask);

	if (code == COMMAND_DONE)
		code = command_ask_jobs(ask, &jobs);
	if (code == COMMAND_DONE)
		code = choice_find(choice, jobs, &job);
	if (code == COMMAND_DONE) {
		*ret_owner = job->uid;
		*ret_is_trained = job->n_members > 0 && !choice->snapshot;
	}
	return code;
}

int source_fail(void)
{
	return command_fail(COMMAND_FAILED, "%s", tierd_message());
}

int source_open(const struct command_context *context, const struct choice *choice, struct source *source)
{
	struct tierd_reader_options options = TIERD_READER_OPTIONS_INIT;
	uid_t owner;
	int code = find_job(context, choice, &owner, &source->is_trained);

	if (code != COMMAND_DONE)
		return code;
	options.name = choice->job;
	options.owner = owner;
	options.snapshot = choice->snapshot;
	if (tierd_connect(context->socket, &source->node) < 0)
		return command_fail(COMMAND_UNREACHABLE, "%s", tierd_message());
	return tierd_reader_open(source->node, &options, &source->reader) < 0 ? source_fail() : COMMAND_DONE;
}

void source_close(struct source *source)
{
	source->node = tierd_disconnect(source->node);
	source->reader = NULL;
}
