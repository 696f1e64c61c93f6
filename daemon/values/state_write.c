#include "daemon/values/operation.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "daemon/durability/durability.h"
#include "daemon/residency/residency.h"
#include "offload/optimizer/moments.h"

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

/* ---- One piece ---- */

static void end(struct tensor_operation *operation, int status)
{
	operation->status = status;
	operation_end(operation);
}

static void on_written(struct store_transfer *transfer, int status)
{
	end(container_of(transfer, struct tensor_operation, transfer), status);
}

static void submit(struct tensor_operation *operation, enum tier_direction direction,
		   void (*done)(struct store_transfer *transfer, int status))
{
	int r;

	operation->transfer.direction = direction;
	operation->transfer.priority = direction == TIER_READ ? TIER_DEMAND : TIER_WRITE_BACK;
	operation->transfer.done = done;
	r = store_submit(operation->job->location.optimizer_store, &operation->transfer);
	if (r < 0)
		end(operation, r);
}

static void on_copied(struct work *work)
{
	struct tensor_operation *operation = container_of(work, struct tensor_operation, work);

	if (operation->job->location.has_nvme_optimizer)
		submit(operation, TIER_WRITE, on_written);
	else
		end(operation, 0);
}

static void run_copy(struct work *work)
{
	struct tensor_operation *operation = container_of(work, struct tensor_operation, work);

	if (operation->is_split)
		operation_split(operation, (void *)operation->source);
	else
		moments_keep(state_moments(operation_section(operation)),
			     (unsigned)operation->state - STATE_SLOTS, operation->written,
			     operation_pack_element(operation), operation->count, (void *)operation->source);
}

static void copy(struct tensor_operation *operation)
{
	operation->stage = IN_FLIGHT;
	operation->work = (struct work){ .run = run_copy, .done = on_copied, .urgency = WORK_NORMAL };
	workers_submit(operation->job->node->workers, &operation->work);
}

static void on_read(struct store_transfer *transfer, int status)
{
	struct tensor_operation *operation = container_of(transfer, struct tensor_operation, transfer);

	if (status < 0)
		end(operation, status);
	else
		copy(operation);
}

/* All of the extents that it touches, up to the section's end: what lies beside it stays. */
static void read_extents(struct tensor_operation *operation, struct staging_buffer *buffer)
{
	const struct job *job = operation->job;
	const struct store_piece kept = operation_kept(operation);
	struct store_piece extents;

	store_find_extents(job->location.optimizer_store, kept.stream, kept.offset, kept.length, &extents);
	assert(extents.length <= STAGING_BYTES);
	operation->stage = IN_FLIGHT;
	operation->buffer = buffer;
	operation->source = buffer->data + (kept.offset - extents.offset);
	operation->transfer = (struct store_transfer){
		.stream = extents.stream,
		.offset = extents.offset,
		.length = extents.length,
		.buffer = buffer->data,
	};
	submit(operation, TIER_READ, on_read);
}

static void on_staging(struct staging_wish *wish, struct staging_buffer *buffer)
{
	read_extents(container_of(wish, struct tensor_operation, wish), buffer);
}

/* The pin keeps the job from going on, or away, meanwhile. */
static void begin(struct tensor_operation *operation)
{
	struct job *job = operation->job;
	struct staging_buffer *buffer;

	operation->has_turn = job->values->is_writing_state = true;
	job->location.has_given_slots |= operation_is_of_state(operation);
	operation->has_pin = true;
	residency_pin(job, operation_pack(operation));
	if (!job->location.has_nvme_optimizer) {
		const struct store_piece kept = operation_kept(operation);

		operation->source = store_address(job->location.optimizer_store, kept.stream, kept.offset);
		copy(operation);
		return;
	}
	operation->stage = WAITING_FOR_STAGING;
	operation->wish.granted = on_staging;
	operation->wish.share = job_share(job);
	buffer = staging_take(&job->node->staging, &operation->wish);
	if (buffer)
		read_extents(operation, buffer);
}

/* ---- One after the other ---- */

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
		begin(queue_entry(queue_pop(&job->values->state_writes), struct tensor_operation, link));
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
