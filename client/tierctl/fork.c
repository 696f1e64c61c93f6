#include "client/tierctl/choice.h"
#include "client/tierctl/fields.h"

#include <inttypes.h>
#include <stdio.h>

static int print(const struct command_context *context, const struct choice *choice,
		 const Tierd__Wire__JobForkReply *reply)
{
	const char *fork = context->arguments[1];
	char text[TEXT_SIZE];
	cJSON *json;

	if (!context->is_json) {
		printf("%s is at step %" PRIu64 ", as %s%s%s, and has %s on NVMe for what it changes\n", fork,
		       reply->step, choice->job, choice->snapshot ? "@" : "",
		       choice->snapshot ? choice->snapshot : "", text_bytes(reply->nvme_bytes, text));
		return COMMAND_DONE;
	}
	json = cJSON_CreateObject();
	cJSON_AddStringToObject(json, "job", fork);
	cJSON_AddStringToObject(json, "origin", choice->job);
	if (choice->snapshot)
		cJSON_AddStringToObject(json, "snapshot", choice->snapshot);
	fields_add(json, &reply->base, "step nvme_bytes");
	return command_print_json(json);
}

int command_fork(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__JobFork body = TIERD__WIRE__JOB_FORK__INIT;
	const Tierd__Wire__Reply *reply;
	const char *snapshots = command_flag(context, "snapshots");
	struct choice choice;
	uint64_t count = 0;
	int code;

	if (snapshots && !command_read_number(snapshots, UINT32_MAX, &count))
		return command_fail(COMMAND_USAGE, "'%s' is no number of snapshots", snapshots);
	code = choice_read_source(context, &choice);
	if (code == COMMAND_DONE)
		code = command_connect(context, &ask);
	if (code == COMMAND_DONE)
		code = choice_find_owner(ask, &choice, &body.owner);
	if (code != COMMAND_DONE)
		return code;
	body.name = (char *)choice.job;
	body.has_owner = true;
	if (choice.snapshot)
		body.snapshot = (char *)choice.snapshot;
	body.snapshots = (uint32_t)count;
	body.fork = context->arguments[1];
	code = command_ask_for(ask, WIRE_REQUEST(JOB_FORK, job_fork, &body),
			       TIERD__WIRE__REPLY__BODY_JOB_FORK, &reply);
	return code == COMMAND_DONE ? print(context, &choice, reply->job_fork) : code;
}
