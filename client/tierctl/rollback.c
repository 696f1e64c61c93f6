#include "client/tierctl/choice.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static int ask_person(const struct command_context *context)
{
	char answer[16];

	if (!isatty(STDIN_FILENO))
		return command_fail(COMMAND_USAGE, "there is no terminal to ask at; roll it back with --yes");
	fprintf(stderr, "Discard all of job %s that came after its snapshot %s? [y/N] ",
		context->arguments[0], context->arguments[1]);
	if (fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
		return COMMAND_DONE;
	return command_fail(COMMAND_FAILED, "job %s stays as it is", context->arguments[0]);
}

static int print(const struct command_context *context, uint64_t step)
{
	cJSON *json;

	if (!context->is_json) {
		printf("%s stands at step %" PRIu64 ", as its snapshot %s\n", context->arguments[0], step,
		       context->arguments[1]);
		return COMMAND_DONE;
	}
	json = cJSON_CreateObject();
	cJSON_AddStringToObject(json, "job", context->arguments[0]);
	cJSON_AddStringToObject(json, "snapshot", context->arguments[1]);
	cJSON_AddNumberToObject(json, "step", (double)step);
	return command_print_json(json);
}

int command_rollback(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobRollBack body = TIERD__WIRE__JOB_ROLL_BACK__INIT;
	const Tierd__Wire__Reply *reply;
	int code = choice_ask_owner(context, &ask, &body.name, &body.has_owner, &body.owner);

	if (code == COMMAND_DONE && !command_flag(context, "yes"))
		code = ask_person(context);
	if (code != COMMAND_DONE)
		return code;
	body.snapshot = context->arguments[1];
	body.force = command_flag(context, "force") != NULL;
	request.body_case = TIERD__WIRE__REQUEST__BODY_JOB_ROLL_BACK;
	request.job_roll_back = &body;
	code = command_ask_for(ask, &request, TIERD__WIRE__REPLY__BODY_JOB_ROLL_BACK, &reply);
	return code == COMMAND_DONE ? print(context, reply->job_roll_back->step) : code;
}
