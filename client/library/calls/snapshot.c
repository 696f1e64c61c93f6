#include <errno.h>
#include <string.h>

#include "client/library/calls/calls.h"

static const struct ticket_kind snapshot_kind = { .name = "tierd_snapshot",
						  .body = TIERD__WIRE__REPLY__BODY_SNAPSHOT_TAKE };

/* If ret_ticket is NULL, waits for the snapshot. */
static int take_snapshot(struct tierd_job *job, const char *name, struct tierd_ticket **ret_ticket)
{
	Tierd__Wire__SnapshotTake take = TIERD__WIRE__SNAPSHOT_TAKE__INIT;
	struct tierd_ticket *ticket = NULL;
	int r;

	if (strlen(name) > TIERD_MAX_SNAPSHOT_NAME)
		return message_fail(-EINVAL, "a snapshot of job \"%s\" has a name, of 1 to %d bytes",
				    job->name, TIERD_MAX_SNAPSHOT_NAME);
	r = ticket_new(job->node, job, &snapshot_kind, &ticket);
	if (r < 0)
		return r;
	take.job = job->number;
	take.snapshot = (char *)name;
	if (!ret_ticket)
		return ticket_run(ticket, WIRE_REQUEST(SNAPSHOT_TAKE, snapshot_take, &take),
				  connection_deadline(job->node, -1));
	r = ticket_send(ticket, WIRE_REQUEST(SNAPSHOT_TAKE, snapshot_take, &take));
	if (r == 0)
		*ret_ticket = ticket;
	return r;
}

int tierd_snapshot_begin(struct tierd_job *job, const char *name, struct tierd_ticket **ret_ticket)
{
	int r = CHECK_GIVEN(job, name, ret_ticket);

	return r < 0 ? r : JOB_CALL(job, JOB_OPEN, take_snapshot(job, name, ret_ticket));
}

int tierd_snapshot(struct tierd_job *job, const char *name)
{
	int r = CHECK_GIVEN(job, name);

	return r < 0 ? r : JOB_CALL(job, JOB_OPEN, take_snapshot(job, name, NULL));
}
