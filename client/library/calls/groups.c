/* The parameter groups of a unit's tensors. */
#include <errno.h>
#include <string.h>

#include "client/library/calls/calls.h"
#include "common/plural.h"

/* The groups of a unit: a number for each of its tensors. */
struct unit_groups {
	uint32_t unit;
	uint32_t *numbers;
	size_t count;
};

static int check(const struct tierd_job *job, const struct unit_groups *groups)
{
	int r = job_check_unit(job, groups->unit);
	uint32_t count = r < 0 ? 0 : job->units[groups->unit]->tensor_count;

	if (r < 0 || groups->count == count)
		return r;
	return message_fail(-EINVAL, "unit \"%s\" has %u tensor%s, and there %s for %zu",
			    job_unit_name(job, groups->unit), count, PLURAL(count),
			    groups->count == 1 ? "is a group" : "are groups", groups->count);
}

/* ---- Setting ---- */

static int set_locked(struct tierd_job *job, const struct unit_groups *groups)
{
	Tierd__Wire__GroupsSet set = TIERD__WIRE__GROUPS_SET__INIT;
	int r = check(job, groups);

	if (r < 0)
		return r;
	set.job = job->number;
	set.epoch = job->epoch;
	set.unit = groups->unit;
	set.n_groups = groups->count;
	set.groups = groups->numbers;
	/* From here on they are a part of the coming step. */
	job->has_undecided = true;
	return ticket_call(job, WIRE_REQUEST(GROUPS_SET, groups_set, &set));
}

int tierd_groups_set(struct tierd_job *job, uint32_t unit, const uint32_t *groups, size_t tensor_count)
{
	const struct unit_groups own = { unit, (uint32_t *)groups, tensor_count };
	int r = CHECK_GIVEN(job, groups);

	return r < 0 ? r : JOB_CALL(job, JOB_READY, set_locked(job, &own));
}

/* ---- Getting ---- */

/* If the ticket was abandoned, the caller's array is gone. */
static void groups_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	const Tierd__Wire__GroupsReply *reply = answer->reply->groups;

	if (answer->status == 0 && reply->n_groups != ticket->groups.count) {
		ticket_violation(ticket, "another reply");
		return;
	}
	if (answer->status == 0 && !ticket->is_orphan)
		memcpy(ticket->groups.numbers, reply->groups, reply->n_groups * sizeof(*reply->groups));
	ticket_complete(ticket, TIERD_DONE, answer->status, answer->text);
}

static const struct ticket_kind groups_kind = { .name = "tierd_groups_get",
						.body = TIERD__WIRE__REPLY__BODY_GROUPS,
						.answer = groups_answer };

static int get_locked(struct tierd_job *job, const struct unit_groups *groups)
{
	Tierd__Wire__GroupsGet get = TIERD__WIRE__GROUPS_GET__INIT;
	struct tierd_ticket *ticket = NULL;
	int r = check(job, groups);

	if (r == 0)
		r = ticket_new(job->node, job, &groups_kind, &ticket);
	if (r < 0)
		return r;
	ticket->groups.numbers = groups->numbers;
	ticket->groups.count = groups->count;
	get.job = job->number;
	get.unit = groups->unit;
	return ticket_run(ticket, WIRE_REQUEST(GROUPS_GET, groups_get, &get),
			  connection_deadline(job->node, -1));
}

int tierd_groups_get(struct tierd_job *job, uint32_t unit, uint32_t *ret_groups, size_t tensor_count)
{
	const struct unit_groups own = { unit, ret_groups, tensor_count };
	int r = CHECK_GIVEN(job, ret_groups);

	return r < 0 ? r : JOB_CALL(job, JOB_LIVE, get_locked(job, &own));
}
