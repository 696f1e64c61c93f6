#include "client/tierctl/choice.h"
#include "client/tierctl/command.h"
#include "client/tierctl/fields.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

static int print(const struct command_context *context, const Tierd__Wire__JobReleaseReply *result)
{
	char text[TEXT_SIZE];

	if (context->is_json)
		return command_print_json(fields_json(&result->base, "bytes step"));
	if (result->bytes > 0)
		printf("%s given back; the state of step %" PRIu64 " stays on NVMe\n",
		       text_bytes(result->bytes, text), result->step);
	else
		printf("nothing to give back; the state of step %" PRIu64 " is on NVMe\n", result->step);
	return COMMAND_DONE;
}

/* Its last step may be on its way to the devices. */
static int ask_until_at_rest(struct ask *ask, const Tierd__Wire__Request *request,
			     const Tierd__Wire__Reply **ret_reply)
{
	static const struct timespec pause = { .tv_nsec = 100000000 };
	int r;

	while ((r = ask_request(ask, request, ret_reply)) == -EAGAIN && ask_is_connected(ask))
		nanosleep(&pause, NULL);
	if (r < 0)
		return command_fail(ask_is_connected(ask) ? COMMAND_FAILED : COMMAND_UNREACHABLE, "%s",
				    ask_message(ask));
	if ((*ret_reply)->body_case != TIERD__WIRE__REPLY__BODY_JOB_RELEASE)
		return command_fail_reply();
	return COMMAND_DONE;
}

int command_release(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__JobRelease release = TIERD__WIRE__JOB_RELEASE__INIT;
	const Tierd__Wire__Reply *reply;
	int code = choice_ask_owner(context, &ask, &release.name, &release.has_owner, &release.owner);

	if (code == COMMAND_DONE)
		code = ask_until_at_rest(ask, WIRE_REQUEST(JOB_RELEASE, job_release, &release), &reply);
	return code == COMMAND_DONE ? print(context, reply->job_release) : code;
}
