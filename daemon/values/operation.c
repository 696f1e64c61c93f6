#include "daemon/values/operation.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gradients/gradients.h"
#include "daemon/model/model.h"
#include "daemon/residency/residency.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/update.h"

/* As many values are moved in a microsecond or two; many pieces of them are not handed over one by one. */
#define BRIEF_ELEMENTS 4096

uint32_t operation_pack(const struct tensor_operation *operation)
{
	return operation->job->catalog.units[operation->unit].pack;
}

uint64_t operation_pack_element(const struct tensor_operation *operation)
{
	const struct unit *unit = &operation->job->catalog.units[operation->unit];

	return tensor_part(unit, operation->tensor)->pack_first + operation->tensor->layout.first +
	       operation->first;
}

/* What is kept of its elements, in the stream of their state. */
static struct store_range operation_kept(const struct tensor_operation *operation)
{
	return job_find_kept(operation->job, operation_pack(operation), operation_section(operation),
			     (unsigned)operation->state, operation_pack_element(operation), operation->count);
}

/* ---- The end ---- */

void operation_free(struct tensor_operation *operation)
{
	struct job *job = operation->job;
	struct member *member = operation->member;

	queue_remove(&operation->link);
	residency_forget(&operation->waiter);
	if (operation->kind == OPERATION_INITIALIZE)
		job->values->is_filling_tensor = false;
	if (operation->stage == WAITING_FOR_SUMS)
		spill_forget(job, operation_pack(operation));
	if (operation->is_of_shard)
		reduced_end_copy(job);
	if (operation->stage == WAITING_FOR_STAGING)
		queue_remove(&operation->wish.link);
	if (operation->buffer)
		staging_give(job->node->staging, operation->buffer);
	if (member) {
		member->operation = NULL;
		member->busy--;
	}
	if (operation->has_turn)
		job->values->is_writing_state = false;
	if (operation->has_pin)
		residency_unpin(job, operation_pack(operation));
	if (operation->has_sums)
		spill_unpin(job, operation_pack(operation));
	free(operation);
	if (member)
		member_release(member);
}

void operation_refuse_pieces(struct pending *pending, const char *name)
{
	pending_error(pending, -E2BIG,
		      "tensor \"%s\" is written in more than %d separate pieces; write it in order", name,
		      CATALOG_MAX_SPANS);
}

/* From the last one on, which is written last where things go in order. */
static bool pack_is_filled(const struct job *job, const struct pack *pack)
{
	for (uint32_t u = pack->first_unit + pack->unit_count; u-- > pack->first_unit;)
		for (uint32_t t = job->catalog.units[u].tensor_count; t-- > 0;) {
			const struct tensor *tensor = &job->catalog.units[u].tensors[t];

			if (tensor->is_frozen && !tensor_is_written(tensor))
				return false;
		}
	return true;
}

/* Frozen values that are complete go to the devices while others come: its slot will be wanted. */
static void write_behind(const struct tensor_operation *operation)
{
	struct job *job = operation->job;
	uint32_t pack = operation_pack(operation);

	if (operation->tensor->is_frozen && job->state == JOB_FILLING && job->location.has_nvme_parameters &&
	    tensor_is_written(operation->tensor) && pack_is_filled(job, &job->catalog.packs[pack]))
		residency_flush(job, pack);
}

/* What it has come to, with what follows from that while it is still there. */
static int conclude(const struct tensor_operation *operation)
{
	struct job *job = operation->job;
	enum operation_kind kind = operation->kind;
	int status = operation->status;

	/* The step has been dropped. */
	if (operation->is_of_shard && !step_is_reduced(&job->current))
		status = -ESTALE;
	else if (operation->is_of_shard && status < 0 && operation->member && kind != OPERATION_COMPARE)
		writing_note_failure(job, operation->member, status);
	if (status == 0 && kind == OPERATION_WRITE && !operation_is_of_state(operation))
		status = tensor_mark_written(operation->tensor, operation->first, operation->count);
	if (status == 0 && kind == OPERATION_INITIALIZE)
		status = tensor_mark_written(operation->tensor, 0, operation->tensor->layout.elements);
	if (status == 0 && kind == OPERATION_WRITE)
		write_behind(operation);
	return status;
}

/* Of the tensor of that name; damage: what is known of a transfer that failed, or "". */
static void tell(struct pending *pending, int status, const struct job *job, const char *name,
		 const char *holders, const char *damage)
{
	if (status == 0)
		pending_reply(pending, NULL);
	else if (status == -EDEADLK)
		pending_error(pending, status, "tensor \"%s\" can never be read beside what is leased (%s)",
			      name, holders);
	else if (status == -EAGAIN)
		pending_error(pending, -ECANCELED, "tensor \"%s\": the awaited step failed", name);
	else if (status == -E2BIG)
		operation_refuse_pieces(pending, name);
	else if (status == -EDOM)
		pending_error(
			pending, status,
			"tensor \"%s\": a NaN or an infinity is among the values; none of them is taken",
			name);
	else if (status == -EOPNOTSUPP)
		pending_error(
			pending, status,
			"tensor \"%s\" is frozen, and keeps its first values, and these are others: leave "
			"it out, or make a new job of this one with other values (the option source)",
			name);
	else if (status == -ESTALE)
		pending_error(pending, status, "%s; call tierd_job_ready", job->epoch.reason);
	else if (*damage)
		pending_error(pending, status, "job %s: %s", job->name, damage);
	else
		pending_error(pending, status, "job %s, tensor \"%s\": %s", job->name, name,
			      store_error(status));
}

static void answer(struct tensor_operation *operation)
{
	struct job *job = operation->job;
	struct pending *pending = TAKE_PTR(operation->pending);
	bool is_initializing = operation->kind == OPERATION_INITIALIZE;
	void (*done)(struct job * job, int status) = operation->done;
	bool is_of_shard = operation->is_of_shard;
	const char *name = operation->tensor->name;
	char holders[RESIDENCY_HOLDERS_TEXT], damage[DAMAGE_TEXT] = "";
	int status;

	if (operation->transfer.status < 0)
		damage_explain(job, name, &operation->transfer, operation->status, damage);
	memcpy(holders, residency_holders(job), sizeof(holders));
	status = conclude(operation);
	operation_free(operation);
	if (done)
		done(job, status);
	if (pending)
		tell(pending, status, job, name, holders, damage);
	if (is_initializing && status < 0)
		job_break(job, NULL, "tensor \"%s\" cannot be initialized: %s", name, store_error(status));
	if (is_of_shard)
		reduced_advance(job);
}

void operation_end(struct tensor_operation *operation)
{
	struct job *job = operation->job;

	if (operation->batch)
		operation = batch_collect(operation);
	if (operation)
		answer(operation);
	job_settle(job);
}

/* The values go where gradients will be summed, or come from there. */
static bool operation_uses_sums(const struct tensor_operation *operation)
{
	if (operation->kind == OPERATION_READ)
		return operation->state == READ_GRADIENT;
	return operation->kind == OPERATION_WRITE && !operation->tensor->is_frozen &&
	       !operation_is_of_state(operation);
}

static bool writes_state(const struct tensor_operation *operation)
{
	return operation->is_split || operation_is_of_state(operation);
}

static void move_state(struct tensor_operation *operation, enum tier_direction direction);

static void on_worked(struct work *work)
{
	struct tensor_operation *operation = container_of(work, struct tensor_operation, work);

	if ((operation->kind == OPERATION_WRITE || operation->kind == OPERATION_INITIALIZE) &&
	    operation->tensor->is_frozen && operation->job->location.has_stored_parameters)
		residency_mark_dirty(operation->job, operation_pack(operation));
	if (writes_state(operation) && operation->buffer)
		move_state(operation, TIER_WRITE);
	else
		operation_end(operation);
}

static void run_operation(struct work *work)
{
	struct tensor_operation *operation = container_of(work, struct tensor_operation, work);

	operation->status = operation_work(operation);
}

void operation_start_work(struct tensor_operation *operation)
{
	operation->stage = IN_FLIGHT;
	operation->work = (struct work){ .run = run_operation,
					 .done = on_worked,
					 .urgency = writes_state(operation) ? WORK_NORMAL : WORK_URGENT,
					 .is_brief = operation->batch && operation->count <= BRIEF_ELEMENTS };
	workers_submit(operation->job->node->workers, &operation->work);
}

/* ---- State beside the parameters ---- */

static bool needs_state(const struct tensor_operation *operation)
{
	return operation->kind == OPERATION_READ && operation->state >= STATE_MASTER &&
	       state_exists(operation_section(operation), (unsigned)operation->state);
}

static void on_state_moved(struct store_transfer *transfer, int status)
{
	struct tensor_operation *operation = container_of(transfer, struct tensor_operation, transfer);

	operation->status = status;
	if (transfer->direction == TIER_WRITE)
		trace_transferred(operation->job, operation_pack(operation),
				  operation->job->location.optimizer_store, transfer);
	if (status < 0 && operation->kind == OPERATION_READ)
		damage_tell_read(operation->job, transfer, status, "who wanted it is told");
	if (status == 0 && transfer->direction == TIER_READ)
		operation_start_work(operation);
	else
		operation_end(operation);
}

static void move_state(struct tensor_operation *operation, enum tier_direction direction)
{
	operation->transfer.direction = direction;
	operation->transfer.priority = direction == TIER_READ ? TIER_DEMAND : TIER_WRITE_BACK;
	operation->transfer.done = on_state_moved;
	operation->status = store_submit(operation->job->location.optimizer_store, &operation->transfer);
	if (operation->status < 0)
		operation_end(operation);
	else if (direction == TIER_WRITE)
		account_transfer(operation->job, STATISTICS_WRITE_BACK, &operation->transfer);
}

/* Of what is written, all of the extents that it touches, up to the section's end: what lies beside it stays.
 */
static void read_state(struct tensor_operation *operation, struct staging_buffer *buffer)
{
	struct store *store = operation->job->location.optimizer_store;
	const struct store_range kept = operation_kept(operation);
	struct store_range whole;

	if (writes_state(operation))
		store_find_extents(store, kept.stream, kept.offset, kept.length, &whole);
	else
		store_find_blocks(store, kept.stream, kept.offset, kept.length, &whole);
	assert(whole.length <= STAGING_BYTES);
	operation->stage = IN_FLIGHT;
	operation->buffer = buffer;
	operation->source = buffer->data + (kept.offset - whole.offset);
	operation->transfer = (struct store_transfer){
		.stream = whole.stream, .offset = whole.offset, .length = whole.length, .buffer = buffer->data
	};
	move_state(operation, TIER_READ);
}

static void on_staging(struct staging_wish *wish, struct staging_buffer *buffer)
{
	read_state(container_of(wish, struct tensor_operation, wish), buffer);
}

void operation_take_state(struct tensor_operation *operation)
{
	struct job *job = operation->job;
	struct staging_buffer *buffer;

	if (!job->location.has_nvme_optimizer) {
		const struct store_range kept = operation_kept(operation);

		operation->source = store_address(job->location.optimizer_store, kept.stream, kept.offset);
		operation_start_work(operation);
		return;
	}
	operation->stage = WAITING_FOR_STAGING;
	operation->wish.granted = on_staging;
	operation->wish.share = budget_device_share(job);
	buffer = staging_take(job->node->staging, &operation->wish);
	if (buffer)
		read_state(operation, buffer);
}

/* What the store has is some steps old. */
static void await_flush(struct tensor_operation *operation)
{
	struct job *job = operation->job;

	if (job_is_broken(job) || job_is_ending(job)) {
		operation->status = -EIO;
		operation_end(operation);
		return;
	}
	operation->stage = WAITING_FOR_WRITES;
	queue_push(&job->values->blocked, &operation->link);
	warm_flush(job);
}

/* The pack is pinned. */
static void go_on(struct tensor_operation *operation)
{
	struct job *job = operation->job;

	if (update_is_writing(job, operation_pack(operation))) {
		operation->stage = WAITING_FOR_WRITES;
		queue_push(&job->values->blocked, &operation->link);
		return;
	}
	if (operation->state == READ_UPDATES)
		operation->updates = writing_updates(job, operation->unit, operation->tensor);
	if (!needs_state(operation))
		operation_start_work(operation);
	else if (warm_is_dirty(job, operation_pack(operation)))
		await_flush(operation);
	else
		operation_take_state(operation);
}

/* A sum that is no wider than the parameters has room for them alone. What is written as a parameter of bf16
 * is its master, too, as long as nothing else was written there. */
static bool is_split(const struct tensor_operation *operation)
{
	const struct job *job = operation->job;
	enum master_kind kind = state_master_kind(operation_section(operation));

	return operation->kind == OPERATION_WRITE && operation_uses_sums(operation) &&
	       sums_are_as_parameters(job, &job->catalog.units[operation->unit],
				      operation_section(operation)) &&
	       kind != MASTER_ITSELF &&
	       (kind == MASTER_BESIDE || !operation->is_same_format || job->location.has_given_masters);
}

void operation_take_sums(struct tensor_operation *operation)
{
	struct job *job = operation->job;

	if (!spill_want(job, operation_pack(operation))) {
		operation->stage = WAITING_FOR_SUMS;
		queue_push(&job->values->blocked, &operation->link);
		return;
	}
	spill_pin(job, operation_pack(operation), operation->kind == OPERATION_WRITE);
	operation->has_sums = true;
	operation->is_split = is_split(operation);
	if (operation->is_split)
		state_write_start(operation);
	else
		operation_start_work(operation);
}

void operation_start_write(struct tensor_operation *operation)
{
	if (operation_uses_sums(operation))
		operation_take_sums(operation);
	else if (operation->job->location.has_nvme_parameters)
		operation_want_pack(operation, 0);
	else
		operation_start_work(operation);
}

void operation_resume(struct job *job)
{
	struct queue waiting;

	queue_init(&waiting);
	for (struct queue *link = queue_pop(&job->values->blocked); link;
	     link = queue_pop(&job->values->blocked))
		queue_push(&waiting, link);
	for (struct queue *link = queue_pop(&waiting); link; link = queue_pop(&waiting)) {
		struct tensor_operation *operation = queue_entry(link, struct tensor_operation, link);

		if (operation->stage == WAITING_FOR_SUMS)
			operation_take_sums(operation);
		else
			go_on(operation);
	}
}

/* ---- Start ---- */

static void on_pack(struct waiter *waiter, int status)
{
	struct tensor_operation *operation = container_of(waiter, struct tensor_operation, waiter);

	operation->status = status;
	if (status < 0) {
		operation_end(operation);
		return;
	}
	operation->has_pin = true;
	residency_pin(operation->job, operation_pack(operation));
	go_on(operation);
}

void operation_want_pack(struct tensor_operation *operation, uint64_t version)
{
	operation->stage = WAITING_FOR_PACK;
	operation->waiter.version = version;
	operation->waiter.done = on_pack;
	if (residency_want(operation->job, operation_pack(operation), &operation->waiter, TIER_DEMAND))
		on_pack(&operation->waiter, 0);
}

struct tensor_operation *operation_new(struct job *job, struct pending *pending, enum operation_kind kind,
				       uint32_t unit, uint32_t tensor, uint64_t first, uint64_t count)
{
	struct tensor_operation *operation = calloc(1, sizeof(*operation));

	if (!operation)
		return NULL;
	*operation = (struct tensor_operation){ .kind = kind,
						.job = job,
						.pending = pending,
						.unit = unit,
						.tensor = &job->catalog.units[unit].tensors[tensor],
						.first = first,
						.count = count };
	queue_init(&operation->link);
	queue_init(&operation->batch_link);
	queue_init(&operation->waiter.link);
	queue_init(&operation->wish.link);
	if (pending) {
		operation->member = pending->member;
		operation->member->operation = operation;
		operation->member->busy++;
	}
	return operation;
}

/* ---- Members that go ---- */

/* It may be a version that does not come any more, or sums of a job that is broken. */
bool operation_only_waits(const struct tensor_operation *operation)
{
	return operation->stage == WAITING_FOR_PACK || operation->stage == WAITING_FOR_SUMS ||
	       operation->stage == WAITING_FOR_TURN;
}

bool operation_is_under_way(struct member *member, const struct pending *pending)
{
	struct tensor_operation *operation = member->operation;

	if (batch_is_under_way(member, pending))
		return true;
	if (!operation || operation->pending != pending)
		return false;
	if (operation_only_waits(operation)) {
		operation->pending = NULL;
		operation_free(operation);
		return false;
	}
	return true;
}

void operation_refuse_version(struct tensor_operation *operation)
{
	if (operation->stage != WAITING_FOR_PACK ||
	    operation->waiter.version <= member_last_version(operation->member))
		return;
	residency_forget(&operation->waiter);
	on_pack(&operation->waiter, -EAGAIN);
}

void operation_fail_refused(struct member *member)
{
	batch_fail_refused(member);
	if (member->operation)
		operation_refuse_version(member->operation);
}

void operation_give_up(struct tensor_operation *operation)
{
	operation->pending = NULL;
	if (operation->stage != IN_FLIGHT)
		operation_free(operation);
}

void operation_forget(struct member *member)
{
	batch_forget(member);
	if (member->operation)
		operation_give_up(member->operation);
}
