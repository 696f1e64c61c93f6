#include "client/tierctl/choice.h"
#include "client/tierctl/command.h"
#include "client/tierctl/fields.h"

#include <inttypes.h>
#include <time.h>

enum { SCRUB_LOOK, SCRUB_HURRY, SCRUB_STOP };

static int read_action(const struct command_context *context, uint32_t *ret_action)
{
	bool is_hurried = command_flag(context, "now"), is_stopped = command_flag(context, "stop");

	if (is_hurried && is_stopped)
		return command_fail(COMMAND_USAGE, "--now and --stop are opposites; give one of them");
	*ret_action = is_hurried ? SCRUB_HURRY : is_stopped ? SCRUB_STOP : SCRUB_LOOK;
	return COMMAND_DONE;
}

static int print_json(const Tierd__Wire__ScrubReply *reply)
{
	cJSON *json = cJSON_CreateObject();
	cJSON *jobs = cJSON_AddArrayToObject(json, "jobs");

	fields_add(json, &reply->base, "period_s");
	for (size_t i = 0; i < reply->n_jobs; i++)
		cJSON_AddItemToArray(jobs,
				     fields_json(&reply->jobs[i]->base, "job uid extents done is_hurried "
									"passes ended_s damaged_blocks"));
	return command_print_json(json);
}

static void add_last(struct table *table, uint64_t ended_s)
{
	uint64_t now_s = (uint64_t)time(NULL);
	char text[TEXT_SIZE];

	if (ended_s == 0)
		table_add(table, "-");
	else
		table_add(table, "%s ago",
			  text_duration(now_s > ended_s ? (now_s - ended_s) * 1000 : 0, text));
}

static int print(const Tierd__Wire__ScrubReply *reply)
{
	static const char *const titles[] = { "~JOB",  "2~USER",   ">OF ITS EXTENTS", ">READ",
					      "1PACE", ">DAMAGED", "1>LAST PASS",     NULL };
	_cleanup_(table_freep) struct table *table = table_new(titles);
	char user[TEXT_SIZE];

	for (size_t i = 0; table && i < reply->n_jobs; i++) {
		const Tierd__Wire__ScrubEntry *entry = reply->jobs[i];

		table_add(table, "%s", entry->job);
		table_add(table, "%s", command_user_name(entry->uid, user));
		table_add(table, "%" PRIu64, entry->extents);
		table_add(table, "%" PRIu64, entry->done);
		if (entry->is_hurried)
			table_add(table, "now");
		else if (reply->period_s == 0)
			table_add(table, "never");
		else
			table_add(table, "%" PRIu64 " days", reply->period_s / 86400);
		table_add(table, "%u", entry->damaged_blocks);
		add_last(table, entry->ended_s);
	}
	return command_print_table(table);
}

/* Whose it is, if it is one. */
static int find_job(const struct choice *choice, struct ask *ask, Tierd__Wire__Scrub *scrub)
{
	if (!choice->job)
		return COMMAND_DONE;
	scrub->job = (char *)choice->job;
	scrub->has_owner = true;
	return choice_find_owner(ask, choice, &scrub->owner);
}

int command_scrub(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__Scrub scrub = TIERD__WIRE__SCRUB__INIT;
	const Tierd__Wire__Reply *reply;
	struct choice choice;
	int code = choice_read(context, &choice);

	if (code == COMMAND_DONE)
		code = read_action(context, &scrub.action);
	if (code == COMMAND_DONE)
		code = command_connect(context, &ask);
	if (code == COMMAND_DONE)
		code = find_job(&choice, ask, &scrub);
	if (code == COMMAND_DONE)
		code = command_ask_for(ask, WIRE_REQUEST(SCRUB, scrub, &scrub),
				       TIERD__WIRE__REPLY__BODY_SCRUB, &reply);
	if (code != COMMAND_DONE)
		return code;
	return context->is_json ? print_json(reply->scrub) : print(reply->scrub);
}
