#include "daemon/values/operation.h"

#include <errno.h>

#include "daemon/durability/durability.h"
#include "daemon/residency/residency.h"

/* So that steps to come can be counted, too. */
#define MAX_FIRST_STEP (UINT64_C(1) << 62)

/* ---- What may be written ---- */

static bool check_step(struct pending *pending, uint64_t step)
{
	const struct job *job = pending->member->job;

	if (step > MAX_FIRST_STEP)
		pending_error(pending, -EINVAL, "no job begins at step %llu", (unsigned long long)step);
	else if (job->values->has_first_step && job->values->first_step != step)
		pending_error(pending, -EINVAL,
			      "what was written before was kept after step %llu, and this after step %llu",
			      (unsigned long long)job->values->first_step, (unsigned long long)step);
	else
		return true;
	return false;
}

/* All of a unit's, if its job has but one number for them. */
static void give_updates(const struct job *job, struct unit *unit, struct tensor *tensor, uint64_t updates)
{
	bool is_counted = job->location.record_format >= RECORD_FORMAT_TENSORS;
	struct tensor *first = is_counted ? tensor : unit->tensors;
	uint32_t count = is_counted ? 1 : unit->tensor_count;

	for (struct tensor *one = first; one < first + count; one++) {
		one->has_given = true;
		one->given = updates;
	}
}

/* Of a writing. */
static bool check_updates(struct pending *pending, const Tierd__Wire__TensorWrite *write)
{
	const struct job *job = pending->member->job;
	struct unit *unit = &job->catalog.units[write->unit];
	struct tensor *tensor = &unit->tensors[write->tensor];

	if (write->step > MAX_FIRST_STEP)
		pending_error(pending, -EINVAL, "no tensor is updated %llu times",
			      (unsigned long long)write->step);
	else if (tensor->has_given && tensor->given != write->step)
		pending_error(pending, -EINVAL,
			      "tensor \"%s\": what was written before was kept after %llu updates, and this "
			      "after %llu",
			      tensor->name, (unsigned long long)tensor->given,
			      (unsigned long long)write->step);
	else {
		give_updates(job, unit, tensor, write->step);
		return true;
	}
	return false;
}

static bool check_time(struct pending *pending, const Tierd__Wire__TensorWrite *write)
{
	struct job *job = pending->member->job;

	if (job->current.state == WRITING_OPEN)
		return check_updates(pending, write);
	if (!check_step(pending, write->step))
		return false;
	job->values->has_first_step = true;
	job->values->first_step = write->step;
	return true;
}

bool state_write_check(struct pending *pending, const Tierd__Wire__TensorWrite *write, int *ret_state)
{
	struct job *job = pending->member->job;
	const struct tensor *tensor = &job->catalog.units[write->unit].tensors[write->tensor];
	char message[256];
	int state = 0, r = state_find(&job->options, write->state, &state, message, sizeof(message));

	if (r < 0)
		pending_error(pending, r, "%s", message);
	else if (state < STATE_SLOTS)
		pending_error(pending, -EINVAL, "%s is no state of the optimizer: write it without a state",
			      write->state);
	else if (tensor->is_frozen)
		pending_error(pending, -ENODATA, "tensor \"%s\" is frozen: it has no %s", tensor->name,
			      write->state);
	else if (check_time(pending, write)) {
		*ret_state = state;
		return true;
	}
	return false;
}

/* ---- One after the other ---- */

/* The pin keeps the job from going on, or away, meanwhile. */
void state_write_begin(struct tensor_operation *operation)
{
	struct job *job = operation->job;

	operation->has_turn = job->values->is_writing_state = true;
	job->location.has_given_slots |= operation_is_of_state(operation);
	operation->has_pin = true;
	residency_pin(job, operation_pack(operation));
	operation_take_state(operation);
}

void state_write_start(struct tensor_operation *operation)
{
	operation->job->location.has_given_masters |= operation->is_split;
	operation->stage = WAITING_FOR_TURN;
	queue_push(&operation->job->values->state_writes, &operation->link);
	job_settle(operation->job);
}

bool state_write_go_on(struct job *job)
{
	if (!job->values->is_writing_state && !queue_is_empty(&job->values->state_writes))
		state_write_begin(
			queue_entry(queue_pop(&job->values->state_writes), struct tensor_operation, link));
	return job->values->is_writing_state;
}

void state_write_begin_job(struct job *job)
{
	if (!job->values->has_first_step)
		return;
	job->step = job->decided = job->values->first_step;
	for (uint32_t u = 0; u < job->catalog.unit_count; u++)
		if (unit_is_trainable(&job->catalog.units[u]))
			job->catalog.units[u].updates = job->catalog.units[u].last_update =
				job->values->first_step;
}
