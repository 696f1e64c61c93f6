#include "client/tierctl/choice.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/plural.h"

static int print(const struct command_context *context, uint32_t snapshots, uint64_t bytes)
{
	char text[TEXT_SIZE];
	cJSON *json;

	if (!context->is_json) {
		printf("%s has room for %" PRIu32 " snapshot%s, and takes %s on NVMe\n",
		       context->arguments[0], snapshots, PLURAL(snapshots), text_bytes(bytes, text));
		return COMMAND_DONE;
	}
	json = cJSON_CreateObject();
	cJSON_AddStringToObject(json, "job", context->arguments[0]);
	cJSON_AddNumberToObject(json, "snapshots", snapshots);
	cJSON_AddNumberToObject(json, "nvme_bytes", (double)bytes);
	return command_print_json(json);
}

int command_reserve(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__JobReserve body = TIERD__WIRE__JOB_RESERVE__INIT;
	const Tierd__Wire__Reply *reply;
	uint64_t count;
	int code;

	if (!command_read_number(context->arguments[1], UINT32_MAX, &count))
		return command_fail(COMMAND_USAGE, "'%s' is no number of snapshots", context->arguments[1]);
	code = choice_ask_owner(context, &ask, &body.name, &body.has_owner, &body.owner);
	if (code != COMMAND_DONE)
		return code;
	body.snapshots = (uint32_t)count;
	code = command_ask_for(ask, WIRE_REQUEST(JOB_RESERVE, job_reserve, &body),
			       TIERD__WIRE__REPLY__BODY_JOB_RESERVE, &reply);
	return code == COMMAND_DONE ? print(context, body.snapshots, reply->job_reserve->nvme_bytes) : code;
}
