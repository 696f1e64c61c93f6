#include "client/tierctl/choice.h"
#include "client/tierctl/fields.h"

#include <inttypes.h>
#include <stdio.h>

static int read_number(const char *text, uint64_t most, uint64_t *ret_number)
{
	if (command_read_number(text, most, ret_number))
		return COMMAND_DONE;
	return command_fail(COMMAND_USAGE, "'%s' is no number of steps", text);
}

static int print(const struct command_context *context, const Tierd__Wire__JobRetainReply *reply)
{
	cJSON *json;

	if (!context->is_json) {
		if (reply->every == 0)
			printf("%s keeps no step by itself\n", context->arguments[0]);
		else
			printf("%s keeps each step that %" PRIu64
			       " divides by itself, and of those the last %" PRIu32 "\n",
			       context->arguments[0], reply->every, reply->keep);
		return COMMAND_DONE;
	}
	json = cJSON_CreateObject();
	cJSON_AddStringToObject(json, "job", context->arguments[0]);
	fields_add(json, &reply->base, "every keep");
	return command_print_json(json);
}

int command_retain(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__JobRetain body = TIERD__WIRE__JOB_RETAIN__INIT;
	const Tierd__Wire__Reply *reply;
	uint64_t keep = 0;
	int code = read_number(context->arguments[1], UINT64_MAX, &body.every);

	if (code == COMMAND_DONE && context->count > 2)
		code = read_number(context->arguments[2], UINT32_MAX, &keep);
	if (code == COMMAND_DONE)
		code = choice_ask_owner(context, &ask, &body.name, &body.has_owner, &body.owner);
	if (code != COMMAND_DONE)
		return code;
	body.keep = (uint32_t)keep;
	code = command_ask_for(ask, WIRE_REQUEST(JOB_RETAIN, job_retain, &body),
			       TIERD__WIRE__REPLY__BODY_JOB_RETAIN, &reply);
	return code == COMMAND_DONE ? print(context, reply->job_retain) : code;
}
