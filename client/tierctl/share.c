#include "client/tierctl/choice.h"
#include "client/tierctl/fields.h"

#include <grp.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/plural.h"
#include "proto/vocabulary.h"

/* Indexed by their numbers on the wire. */
static const char *const names[] = { "none", "read", "train" };

/* It is one of them: client/tierctl/verb.c says which words there can be. */
static uint32_t read_sharing(const char *text)
{
	uint32_t sharing = SHARING_NONE;

	while (sharing < SHARING_TRAIN && strcmp(text, names[sharing]) != 0)
		sharing++;
	return sharing;
}

static int read_group(const char *text, uint32_t *ret_group)
{
	const struct group *group = getgrnam(text);
	uint64_t number;

	if (!group && !command_read_number(text, UINT32_MAX - 1, &number))
		return command_fail(COMMAND_USAGE, "there is no group '%s'", text);
	*ret_group = group ? group->gr_gid : (uint32_t)number;
	return COMMAND_DONE;
}

static void add_group(cJSON *json, uint32_t sharing, uint32_t group)
{
	if (sharing == SHARING_NONE)
		cJSON_AddNullToObject(json, "share_group");
	else
		cJSON_AddNumberToObject(json, "share_group", group);
}

/* Ended: those that have lost it; NULL: nothing was changed. */
static int print(const struct command_context *context, uint32_t sharing, uint32_t gid,
		 const Tierd__Wire__JobShareReply *ended)
{
	const struct group *group = getgrgid(gid);
	cJSON *json;

	if (context->is_json) {
		json = cJSON_CreateObject();
		cJSON_AddStringToObject(json, "job", context->arguments[0]);
		cJSON_AddStringToObject(json, "sharing", sharing == SHARING_NONE ? "no" : names[sharing]);
		add_group(json, sharing, gid);
		if (ended)
			fields_add(json, &ended->base, "ended_ranks=ranks ended_readers=readers");
		return command_print_json(json);
	}
	if (sharing == SHARING_NONE)
		printf("%s is shared with nobody", context->arguments[0]);
	else if (group)
		printf("%s is shared with group %s, to %s", context->arguments[0], group->gr_name,
		       names[sharing]);
	else
		printf("%s is shared with group %" PRIu32 ", to %s", context->arguments[0], gid,
		       names[sharing]);
	if (ended && ended->ranks + ended->readers > 0)
		printf("; %" PRIu32 " rank%s and %" PRIu32 " reader%s have lost it", ended->ranks,
		       PLURAL(ended->ranks), ended->readers, PLURAL(ended->readers));
	putchar('\n');
	return COMMAND_DONE;
}

static int show(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	const Tierd__Wire__JobEntry *job;
	uint32_t sharing = SHARING_NONE;
	int code = choice_ask_job(context, &ask, &job);

	if (code != COMMAND_DONE)
		return code;
	for (uint32_t i = 0; i < ARRAY_LENGTH(names); i++)
		if (strcmp(job->sharing, names[i]) == 0)
			sharing = i;
	return print(context, sharing, job->share_group, NULL);
}

int command_share(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__JobShare body = TIERD__WIRE__JOB_SHARE__INIT;
	const Tierd__Wire__Reply *reply;
	int code = COMMAND_DONE;

	if (context->count < 2)
		return show(context);
	body.has_group = context->count > 2;
	body.sharing = read_sharing(context->arguments[1]);
	if (body.has_group)
		code = read_group(context->arguments[2], &body.group);
	if (code == COMMAND_DONE)
		code = choice_ask_owner(context, &ask, &body.name, &body.has_owner, &body.owner);
	if (code != COMMAND_DONE)
		return code;
	code = command_ask_for(ask, WIRE_REQUEST(JOB_SHARE, job_share, &body),
			       TIERD__WIRE__REPLY__BODY_JOB_SHARE, &reply);
	if (code != COMMAND_DONE)
		return code;
	return print(context, reply->job_share->sharing % ARRAY_LENGTH(names), reply->job_share->group,
		     reply->job_share);
}
