#include "client/tierctl/choice.h"
#include "client/tierctl/confirm.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DESTROYED "all steps after the snapshot"

/* Looks at the job as it is now. The daemon judges when it rolls back. */
static int find_snapshot(struct ask *ask, const Tierd__Wire__JobRollBack *body, uint64_t *ret_step)
{
	Tierd__Wire__SnapshotsRead read = TIERD__WIRE__SNAPSHOTS_READ__INIT;
	const Tierd__Wire__Reply *reply;
	char names[640] = "none";
	size_t used = 0;
	int code;

	read.name = body->name;
	read.has_owner = true;
	read.owner = body->owner;
	code = command_ask_for(ask, WIRE_REQUEST(SNAPSHOTS_READ, snapshots_read, &read),
			       TIERD__WIRE__REPLY__BODY_SNAPSHOTS, &reply);
	if (code != COMMAND_DONE)
		return code;
	for (size_t i = 0; i < reply->snapshots->n_snapshots; i++) {
		const Tierd__Wire__Snapshot *snapshot = reply->snapshots->snapshots[i];

		if (strcmp(snapshot->name, body->snapshot) == 0) {
			*ret_step = snapshot->step;
			return COMMAND_DONE;
		}
		if (used < sizeof(names))
			used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "",
						 snapshot->name);
	}
	return command_fail_at(COMMAND_FAILED, -ENOENT, "job %s has no snapshot %s; it has %s", body->name,
			       body->snapshot, names);
}

static int ask_person(const struct command_context *context, struct ask *ask,
		      const Tierd__Wire__JobRollBack *body, const Tierd__Wire__JobEntry *job)
{
	uint64_t step = job->step, snapshot_step = 0;
	int code = confirm_unused(context, job, DESTROYED);

	if (code == COMMAND_DONE)
		code = find_snapshot(ask, body, &snapshot_step);
	if (code != COMMAND_DONE)
		return code;
	return confirm(body->name, DESTROYED,
		       "Job %s stands at step %" PRIu64 ", and its snapshot %s is of step %" PRIu64
		       ".\nDiscard all that came after the snapshot",
		       body->name, step, body->snapshot, snapshot_step);
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
	Tierd__Wire__JobRollBack body = TIERD__WIRE__JOB_ROLL_BACK__INIT;
	const Tierd__Wire__JobEntry *job;
	const Tierd__Wire__Reply *reply;
	int code = choice_ask_job(context, &ask, &job);

	if (code != COMMAND_DONE)
		return code;
	body.name = context->arguments[0];
	body.has_owner = true;
	body.owner = job->uid;
	body.snapshot = context->arguments[1];
	body.force = command_flag(context, "force") != NULL;
	if (!command_flag(context, "yes"))
		code = ask_person(context, ask, &body, job);
	if (code != COMMAND_DONE)
		return code;
	code = command_ask_for(ask, WIRE_REQUEST(JOB_ROLL_BACK, job_roll_back, &body),
			       TIERD__WIRE__REPLY__BODY_JOB_ROLL_BACK, &reply);
	return code == COMMAND_DONE ? print(context, reply->job_roll_back->step) : code;
}
