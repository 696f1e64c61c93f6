#include "client/tierctl/choice.h"
#include "client/tierctl/fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

/* ---- Take and delete ---- */

static cJSON *chosen_json(const struct command_context *context)
{
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "job", context->arguments[0]);
	cJSON_AddStringToObject(json, "snapshot", context->arguments[1]);
	return json;
}

static int print_taken(const struct command_context *context, uint64_t step)
{
	cJSON *json;

	if (!context->is_json) {
		printf("%s@%s is step %" PRIu64 "\n", context->arguments[0], context->arguments[1], step);
		return COMMAND_DONE;
	}
	json = chosen_json(context);
	cJSON_AddNumberToObject(json, "step", (double)step);
	return command_print_json(json);
}

static int take(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__SnapshotTake body = TIERD__WIRE__SNAPSHOT_TAKE__INIT;
	const Tierd__Wire__Reply *reply;
	int code = choice_ask_owner(context, &ask, &body.name, &body.has_owner, &body.owner);

	body.snapshot = context->arguments[1];
	if (code == COMMAND_DONE)
		code = command_ask_for(ask, WIRE_REQUEST(SNAPSHOT_TAKE, snapshot_take, &body),
				       TIERD__WIRE__REPLY__BODY_SNAPSHOT_TAKE, &reply);
	return code == COMMAND_DONE ? print_taken(context, reply->snapshot_take->step) : code;
}

static int delete (const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__SnapshotDelete body = TIERD__WIRE__SNAPSHOT_DELETE__INIT;
	const Tierd__Wire__Reply *reply;
	int code = choice_ask_owner(context, &ask, &body.name, &body.has_owner, &body.owner);

	body.snapshot = context->arguments[1];
	body.is_lost = command_flag(context, "lost") != NULL;
	if (code == COMMAND_DONE)
		code = command_ask(ask, WIRE_REQUEST(SNAPSHOT_DELETE, snapshot_delete, &body), &reply);
	if (code == COMMAND_DONE && context->is_json)
		return command_print_json(chosen_json(context));
	if (code == COMMAND_DONE)
		printf("%s@%s is deleted\n", context->arguments[0], context->arguments[1]);
	return code;
}

int command_snapshot(const struct command_context *context)
{
	if (command_flag(context, "delete"))
		return delete (context);
	if (command_flag(context, "lost"))
		return command_fail(COMMAND_USAGE, "--lost goes with --delete");
	return take(context);
}

/* ---- Difference ---- */

static int print_diff(const struct command_context *context, const Tierd__Wire__SnapshotDiffReply *reply)
{
	const char *to = context->count > 2 ? context->arguments[2] : NULL;
	char changed[TEXT_SIZE], all[TEXT_SIZE];
	cJSON *json;

	if (!context->is_json) {
		printf("%s of %s differ between %s and %s\n", text_bytes(reply->changed_bytes, changed),
		       text_bytes(reply->state_bytes, all), context->arguments[1],
		       to ? to : "the last durable step");
		return COMMAND_DONE;
	}
	json = cJSON_CreateObject();
	cJSON_AddStringToObject(json, "job", context->arguments[0]);
	cJSON_AddStringToObject(json, "from", context->arguments[1]);
	if (to)
		cJSON_AddStringToObject(json, "to", to);
	fields_add(json, &reply->base, "changed_bytes state_bytes");
	return command_print_json(json);
}

int command_diff(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__SnapshotDiff body = TIERD__WIRE__SNAPSHOT_DIFF__INIT;
	const Tierd__Wire__Reply *reply;
	int code = choice_ask_owner(context, &ask, &body.name, &body.has_owner, &body.owner);

	body.from = context->arguments[1];
	if (context->count > 2)
		body.to = context->arguments[2];
	if (code == COMMAND_DONE)
		code = command_ask_for(ask, WIRE_REQUEST(SNAPSHOT_DIFF, snapshot_diff, &body),
				       TIERD__WIRE__REPLY__BODY_SNAPSHOT_DIFF, &reply);
	return code == COMMAND_DONE ? print_diff(context, reply->snapshot_diff) : code;
}

/* ---- List ---- */

static cJSON *snapshot_json(const Tierd__Wire__Snapshot *snapshot)
{
	cJSON *json = fields_json(&snapshot->base, "name step seconds");

	fields_add_known(json, &snapshot->base, snapshot->is_measured, "own_bytes");
	fields_add(json, &snapshot->base, "is_lost");
	return json;
}

static int print_json(const Tierd__Wire__SnapshotsReply *reply)
{
	cJSON *json = fields_json(&reply->base, "maximum state_bytes"), *snapshots, *readers;

	snapshots = cJSON_AddArrayToObject(json, "snapshots");
	for (size_t i = 0; i < reply->n_snapshots; i++)
		cJSON_AddItemToArray(snapshots, snapshot_json(reply->snapshots[i]));
	readers = cJSON_AddArrayToObject(json, "readers");
	for (size_t i = 0; i < reply->n_readers; i++)
		cJSON_AddItemToArray(readers, fields_json(&reply->readers[i]->base, "step seconds uid"));
	return command_print_json(json);
}

static void add_own(struct table *table, const Tierd__Wire__Snapshot *snapshot)
{
	if (snapshot->is_measured)
		table_add_bytes(table, snapshot->own_bytes);
	else
		table_add(table, "%s", snapshot->is_lost ? "lost" : "not known yet");
}

static void add_step(struct table *table, uint64_t step, uint64_t since, uint64_t bytes)
{
	const time_t seconds = (time_t)since;
	struct tm local = { 0 };
	char taken[TEXT_SIZE];

	localtime_r(&seconds, &local);
	strftime(taken, sizeof(taken), "%F %T", &local);
	table_add(table, "%" PRIu64, step);
	table_add(table, "%s", taken);
	table_add_bytes(table, bytes);
}

/* No snapshot can be called like that. */
static void add_reader(struct table *table, const Tierd__Wire__SnapshotReader *reader, uint64_t bytes)
{
	table_add(table, "(a reader of user %" PRIu32 ")", reader->uid);
	add_step(table, reader->step, reader->seconds, bytes);
	table_add(table, "until it ends");
}

static int print_list(const Tierd__Wire__SnapshotsReply *reply)
{
	static const char *const titles[] = { "~SNAPSHOT", ">STEP", "2TAKEN", "1>SIZE", ">ITS OWN", NULL };
	_cleanup_(table_freep) struct table *table = table_new(titles);

	for (size_t i = 0; table && i < reply->n_snapshots; i++) {
		const Tierd__Wire__Snapshot *snapshot = reply->snapshots[i];

		table_add(table, "%s", snapshot->name);
		add_step(table, snapshot->step, snapshot->seconds, reply->state_bytes);
		add_own(table, snapshot);
	}
	for (size_t i = 0; table && i < reply->n_readers; i++)
		add_reader(table, reply->readers[i], reply->state_bytes);
	return command_print_table(table);
}

int command_snapshots(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__SnapshotsRead body = TIERD__WIRE__SNAPSHOTS_READ__INIT;
	const Tierd__Wire__Reply *reply;
	int code = choice_ask_owner(context, &ask, &body.name, &body.has_owner, &body.owner);

	body.measures = true;
	if (code == COMMAND_DONE)
		code = command_ask_for(ask, WIRE_REQUEST(SNAPSHOTS_READ, snapshots_read, &body),
				       TIERD__WIRE__REPLY__BODY_SNAPSHOTS, &reply);
	if (code != COMMAND_DONE)
		return code;
	return context->is_json ? print_json(reply->snapshots) : print_list(reply->snapshots);
}
