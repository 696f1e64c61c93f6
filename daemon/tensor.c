/* Values of tensors, written before training and read at any time, through the exchange window of the member.
 *
 * Written values of trainable tensors are kept as fp32 masters where the sums of gradients will be, until the
 * first sweep splits them; those of frozen tensors go into the pack's slot. A read takes: the pack, resident
 * and written back; then, if the state is on NVMe, staging buffers and a transfer; then a worker that copies
 * into the window.
 *
 * With the optimizer none, masters are written in the same way, and gradients read there, while a step is
 * reduced. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "daemon/job.h"
#include "daemon/refuse.h"
#include "daemon/spill.h"
#include "offload/format.h"

enum operation_kind { OPERATION_WRITE, OPERATION_READ, OPERATION_INITIALIZE };
enum operation_stage {
	WAITING_FOR_PACK,
	WAITING_FOR_WRITES,
	WAITING_FOR_SUMS,
	WAITING_FOR_STAGING,
	IN_FLIGHT
};

/* Beside those of daemon/state.h. */
#define READ_GRADIENT (-2)

struct tensor_operation {
	struct queue link; /* of the job's waiting ones, in WAITING_FOR_WRITES and WAITING_FOR_SUMS */
	enum operation_kind kind;
	enum operation_stage stage;
	int state; /* STATE_PARAMETER, READ_GRADIENT, STATE_MASTER or a slot's number */
	struct job *job;
	struct member *member;	 /* NULL: the daemon's own */
	struct pending *pending; /* NULL: nobody is left to answer */
	uint32_t unit;
	struct tensor *tensor;
	uint64_t first, count; /* elements of the tensor */
	bool is_master;
	bool is_of_shard; /* between the window and the sums of a reduced step */
	bool has_pin;
	struct waiter waiter;
	struct staging_wish wish;
	struct staging_buffer *buffer;
	struct store_transfer transfer;
	const void *source; /* state beside the parameters */
	int status;
	struct work work;
};

static uint32_t pack_of(const struct tensor_operation *operation)
{
	return operation->job->catalog.units[operation->unit].pack;
}

static enum unit_section section_of(const struct tensor_operation *operation)
{
	return operation->tensor->layout.section;
}

/* Element of the pack's section where the operation begins. */
static uint64_t pack_element(const struct tensor_operation *operation)
{
	const struct unit *unit = &operation->job->catalog.units[operation->unit];

	return unit->pack_first[section_of(operation)] + operation->tensor->layout.first + operation->first;
}

static void *slot_address(const struct tensor_operation *operation)
{
	const struct pack *pack = &operation->job->catalog.packs[pack_of(operation)];

	return residency_address(operation->job, pack_of(operation)) +
	       pack->slot_offset[section_of(operation)] +
	       pack_element(operation) * section_element_bytes(section_of(operation));
}

/* Where the sums of gradients are, or, instead of them, masters. */
static float *sums_address(const struct tensor_operation *operation)
{
	const struct unit *unit = &operation->job->catalog.units[operation->unit];

	return gradient_sum(operation->job, operation->unit) +
	       unit_layout_section_first(&unit->layout, (int)section_of(operation)) +
	       operation->tensor->layout.first + operation->first;
}

/* ---- The end ---- */

static void operation_free(struct tensor_operation *operation)
{
	struct job *job = operation->job;
	struct member *member = operation->member;

	queue_remove(&operation->link);
	residency_forget(&operation->waiter);
	if (operation->kind == OPERATION_INITIALIZE)
		job->is_filling_tensor = false;
	if (operation->stage == WAITING_FOR_SUMS)
		spill_forget(job, pack_of(operation));
	if (operation->is_of_shard)
		job->shard_copies--;
	if (operation->stage == WAITING_FOR_STAGING)
		queue_remove(&operation->wish.link);
	if (operation->buffer)
		staging_give(&job->node->staging, operation->buffer);
	if (member) {
		member->operation = NULL;
		member->busy--;
	}
	if (operation->has_pin)
		residency_unpin(job, pack_of(operation));
	free(operation);
	if (member)
		member_release(member);
}

static void refuse_pieces(struct pending *pending, const char *name)
{
	pending_error(pending, -E2BIG,
		      "tensor \"%s\" is written in more than %d separate pieces; write it in order", name,
		      CATALOG_MAX_SPANS);
}

static void finish(struct tensor_operation *operation)
{
	struct job *job = operation->job;
	struct pending *pending = TAKE_PTR(operation->pending);
	enum operation_kind kind = operation->kind;
	bool is_of_shard = operation->is_of_shard;
	int status = operation->status;
	const char *name = operation->tensor->name;
	char holders[sizeof(job->holders)];

	memcpy(holders, job->holders, sizeof(holders));
	/* The step has been dropped. */
	if (is_of_shard && !job->is_reduced)
		status = -ESTALE;
	if (status == 0 && kind == OPERATION_WRITE)
		status = tensor_mark_written(operation->tensor, operation->first, operation->count);
	if (status == 0 && kind == OPERATION_INITIALIZE)
		status = tensor_mark_written(operation->tensor, 0, operation->tensor->layout.elements);
	operation_free(operation);
	if (pending && status == -EDEADLK)
		pending_error(pending, status, "tensor \"%s\" can never be read beside what is leased (%s)",
			      name, holders);
	else if (pending && status == -EAGAIN)
		pending_error(pending, -ECANCELED, "tensor \"%s\": the awaited step failed", name);
	else if (pending && status == -E2BIG)
		refuse_pieces(pending, name);
	else if (pending && status == -EDOM)
		pending_error(
			pending, status,
			"tensor \"%s\": a NaN or an infinity is among the values; none of them is taken",
			name);
	else if (pending && status == -ESTALE)
		pending_error(pending, status, "%s; call tierd_job_ready", job->reason);
	else if (pending && status < 0)
		pending_error(pending, status, "tensor \"%s\": %s", name, store_error(status));
	else if (pending)
		pending_reply(pending, NULL);
	if (kind == OPERATION_INITIALIZE && status < 0)
		job_break(job, status, NULL, "tensor \"%s\" cannot be initialized: %s", name,
			  store_error(status));
	if (is_of_shard)
		reduced_advance(job);
	job_settle(job);
}

/* The values go where gradients will be summed, or come from there. */
static bool uses_sums(const struct tensor_operation *operation)
{
	if (operation->kind == OPERATION_READ)
		return operation->state == READ_GRADIENT;
	return operation->kind == OPERATION_WRITE && !operation->tensor->is_frozen;
}

static void on_worked(struct work *work)
{
	struct tensor_operation *operation = container_of(work, struct tensor_operation, work);

	if (uses_sums(operation))
		spill_unpin(operation->job, pack_of(operation));
	if (operation->kind != OPERATION_READ && operation->tensor->is_frozen &&
	    operation->job->has_nvme_parameters)
		operation->job->residences[pack_of(operation)].is_dirty = true;
	finish(operation);
}

/* ---- On a worker ---- */

static bool are_finite(const float *values, uint64_t count)
{
	bool has_other = false;

	for (uint64_t i = 0; i < count; i++)
		has_other |= !isfinite(values[i]);
	return !has_other;
}

/* Who changes the window after this look harms the model that he trains, and nothing else. */
static int copy_masters(const struct tensor_operation *operation)
{
	const float *window = (const float *)operation->member->window.base;

	if (operation->is_of_shard && !are_finite(window, operation->count))
		return -EDOM;
	memcpy(sums_address(operation), window, operation->count * sizeof(float));
	return 0;
}

static int write_values(const struct tensor_operation *operation)
{
	const void *window = operation->member->window.base;

	if (operation->tensor->is_frozen) {
		memcpy(slot_address(operation), window,
		       operation->count * section_element_bytes(section_of(operation)));
	} else if (operation->is_master) {
		return copy_masters(operation);
	} else {
		format_widen(state_master_kind(section_of(operation)), window, operation->count,
			     sums_address(operation));
	}
	return 0;
}

/* As an optimizer's kernel takes them. */
static void read_gradients(const struct tensor_operation *operation)
{
	float *window = (float *)operation->member->window.base;
	const float *sums = sums_address(operation), factor = operation->job->factor;

	for (uint64_t i = 0; i < operation->count; i++)
		window[i] = sums[i] * factor;
}

static void read_values(const struct tensor_operation *operation)
{
	void *window = operation->member->window.base;

	if (operation->state == READ_GRADIENT)
		read_gradients(operation);
	else if (operation->state == STATE_PARAMETER)
		memcpy(window, slot_address(operation),
		       operation->count * section_element_bytes(section_of(operation)));
	else if (operation->state == STATE_MASTER)
		format_restore(state_master_kind(section_of(operation)), slot_address(operation),
			       operation->source, operation->count, window);
	else
		memcpy(window, operation->source, operation->count * sizeof(float));
}

/* Frozen tensors that the daemon initializes: a piece at a time, through fp32. */
static void initialize_values(const struct tensor_operation *operation)
{
	float values[4096];
	char *slot = slot_address(operation);

	for (uint64_t at = 0; at < operation->count; at += ARRAY_LENGTH(values)) {
		uint64_t left = operation->count - at;
		size_t count = left < ARRAY_LENGTH(values) ? left : ARRAY_LENGTH(values);

		sweep_fill_tensor(operation->job, operation->tensor, at, count, values);
		format_narrow(state_master_kind(section_of(operation)), values, count,
			      slot + at * section_element_bytes(section_of(operation)));
	}
}

static void run_operation(struct work *work)
{
	struct tensor_operation *operation = container_of(work, struct tensor_operation, work);

	if (operation->kind == OPERATION_WRITE)
		operation->status = write_values(operation);
	else if (operation->kind == OPERATION_READ)
		read_values(operation);
	else
		initialize_values(operation);
}

static void start_work(struct tensor_operation *operation)
{
	operation->stage = IN_FLIGHT;
	operation->work = (struct work){ .run = run_operation, .done = on_worked, .urgency = WORK_URGENT };
	workers_submit(operation->job->node->workers, &operation->work);
}

/* ---- State beside the parameters ---- */

static bool needs_state(const struct tensor_operation *operation)
{
	return operation->kind == OPERATION_READ && operation->state != STATE_PARAMETER &&
	       state_bytes(section_of(operation), (unsigned)operation->state) > 0;
}

/* Where the pack's section begins in the state's stream. */
static uint64_t state_offset(const struct tensor_operation *operation)
{
	return operation->job->places[pack_of(operation)].state[section_of(operation)][operation->state];
}

static void on_state_read(struct store_transfer *transfer, int status)
{
	struct tensor_operation *operation = container_of(transfer, struct tensor_operation, transfer);

	operation->status = status;
	if (status < 0)
		finish(operation);
	else
		start_work(operation);
}

static void read_state(struct tensor_operation *operation, struct staging_buffer *buffer)
{
	const struct job *job = operation->job;
	enum unit_section section = section_of(operation);
	uint64_t bytes = state_bytes(section, (unsigned)operation->state), total;
	uint64_t first = pack_element(operation) * bytes;
	uint64_t start = first / STORE_BLOCK_BYTES * STORE_BLOCK_BYTES;
	uint64_t end = size_align(first + operation->count * bytes, STORE_BLOCK_BYTES);

	total = size_align(job->catalog.packs[pack_of(operation)].elements[section] * bytes,
			   STORE_PAGE_BYTES);
	operation->stage = IN_FLIGHT;
	operation->buffer = buffer;
	operation->source = buffer->data + (first - start);
	operation->transfer =
		(struct store_transfer){ .direction = TIER_READ,
					 .priority = TIER_DEMAND,
					 .stream = job->streams.state[section][operation->state],
					 .offset = state_offset(operation) + start,
					 .length = (end < total ? end : total) - start,
					 .buffer = buffer->data,
					 .done = on_state_read };
	operation->status = store_submit(job->optimizer_store, &operation->transfer);
	if (operation->status < 0)
		finish(operation);
}

static void on_staging(struct staging_wish *wish, struct staging_buffer *buffer)
{
	read_state(container_of(wish, struct tensor_operation, wish), buffer);
}

/* The pack is pinned. */
static void go_on(struct tensor_operation *operation)
{
	struct job *job = operation->job;
	enum unit_section section = section_of(operation);
	uint64_t bytes;

	if (job->residences[pack_of(operation)].unwritten > 0) {
		operation->stage = WAITING_FOR_WRITES;
		queue_push(&job->tensor_waiting, &operation->link);
		return;
	}
	if (!needs_state(operation)) {
		start_work(operation);
		return;
	}
	if (!job->has_nvme_optimizer) {
		bytes = state_bytes(section, (unsigned)operation->state);
		operation->source =
			store_address(job->optimizer_store, job->streams.state[section][operation->state],
				      state_offset(operation) + pack_element(operation) * bytes);
		start_work(operation);
		return;
	}
	operation->stage = WAITING_FOR_STAGING;
	operation->wish.granted = on_staging;
	struct staging_buffer *buffer = staging_take(&job->node->staging, &operation->wish);

	if (buffer)
		read_state(operation, buffer);
}

static void take_sums(struct tensor_operation *operation)
{
	struct job *job = operation->job;

	if (!spill_want(job, pack_of(operation))) {
		operation->stage = WAITING_FOR_SUMS;
		queue_push(&job->tensor_waiting, &operation->link);
		return;
	}
	spill_pin(job, pack_of(operation), operation->kind == OPERATION_WRITE);
	start_work(operation);
}

void tensor_resume(struct job *job)
{
	struct queue waiting;

	queue_init(&waiting);
	for (struct queue *link = queue_pop(&job->tensor_waiting); link;
	     link = queue_pop(&job->tensor_waiting))
		queue_push(&waiting, link);
	for (struct queue *link = queue_pop(&waiting); link; link = queue_pop(&waiting)) {
		struct tensor_operation *operation = queue_entry(link, struct tensor_operation, link);

		if (operation->stage == WAITING_FOR_SUMS)
			take_sums(operation);
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
		finish(operation);
		return;
	}
	operation->has_pin = true;
	residency_pin(operation->job, pack_of(operation));
	go_on(operation);
}

static void want_pack(struct tensor_operation *operation, uint64_t version)
{
	operation->stage = WAITING_FOR_PACK;
	operation->waiter.version = version;
	operation->waiter.done = on_pack;
	if (residency_want(operation->job, pack_of(operation), &operation->waiter, TIER_DEMAND))
		on_pack(&operation->waiter, 0);
}

static struct tensor_operation *operation_new(struct job *job, struct pending *pending,
					      enum operation_kind kind, uint32_t unit, uint32_t tensor,
					      uint64_t first, uint64_t count)
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
	queue_init(&operation->waiter.link);
	queue_init(&operation->wish.link);
	if (pending) {
		operation->member = pending->member;
		operation->member->operation = operation;
		operation->member->busy++;
	}
	return operation;
}

/* In the window a value is fp32 or, unless is_wide, of the tensor's format. */
static uint64_t window_element_bytes(const struct tensor *tensor, bool is_wide)
{
	return is_wide ? sizeof(float) : section_element_bytes(tensor->layout.section);
}

static bool check_range(struct pending *pending, uint32_t unit, uint32_t index, uint64_t first,
			uint64_t count, bool is_wide)
{
	const struct job *job = pending->member->job;
	uint64_t end;

	if (!job_check_unit(pending, unit))
		return false;
	const struct unit *units = &job->catalog.units[unit];

	if (index >= units->tensor_count)
		pending_error(pending, -EINVAL, "unit \"%s\" has no tensor %u; it has %u", units->name, index,
			      units->tensor_count);
	else if (!size_add(first, count, &end) || end > units->tensors[index].layout.elements)
		pending_error(
			pending, -ERANGE, "tensor \"%s\" has %llu elements; %llu from %llu on are beyond",
			units->tensors[index].name, (unsigned long long)units->tensors[index].layout.elements,
			(unsigned long long)count, (unsigned long long)first);
	else if (count > WINDOW_BYTES / window_element_bytes(&units->tensors[index], is_wide))
		pending_error(pending, -E2BIG, "the window has room for %llu bytes",
			      (unsigned long long)WINDOW_BYTES);
	else if (pending->member->operation)
		pending_error(pending, -EBUSY, "the window is in use by another request");
	else
		return true;
	return false;
}

/* ---- A reduced step ---- */

/* Masters, of any part of the member's shard. */
static bool check_masters(struct pending *pending, const Tierd__Wire__TensorWrite *write)
{
	const struct job *job = pending->member->job;

	if (!check_range(pending, write->unit, write->tensor, write->first, write->count, write->is_master))
		return false;
	const struct tensor *tensor = &job->catalog.units[write->unit].tensors[write->tensor];

	if (tensor->is_frozen)
		pending_error(pending, -EINVAL, "tensor \"%s\" is frozen: it is not updated", tensor->name);
	else if (!write->is_master)
		pending_error(pending, -EINVAL,
			      "tensor \"%s\": what a step writes are masters; set is_master, and give fp32",
			      tensor->name);
	else
		return reduced_check(pending, write->unit, tensor, write->first, write->count);
	return false;
}

static void read_gradient(struct pending *pending, const Tierd__Wire__TensorRead *read)
{
	struct job *job = pending->member->job;
	const struct tensor *tensor = &job->catalog.units[read->unit].tensors[read->tensor];
	struct tensor_operation *operation;

	if (!reduced_check(pending, read->unit, tensor, read->first, read->count))
		return;
	if (tensor_has_written(tensor, read->first, read->count)) {
		pending_error(pending, -ENODATA,
			      "tensor \"%s\": masters have been written over its gradients; read those first",
			      tensor->name);
		return;
	}
	operation = operation_new(job, pending, OPERATION_READ, read->unit, read->tensor, read->first,
				  read->count);
	if (!operation) {
		pending_error(pending, -ENOMEM, "out of memory");
		return;
	}
	operation->state = READ_GRADIENT;
	operation->is_of_shard = true;
	job->shard_copies++;
	take_sums(operation);
}

/* ---- Write ---- */

static void start_write(struct pending *pending)
{
	struct member *member = pending->member;
	struct job *job = member->job;
	struct tensor *tensor = &job->catalog.units[pending->unit].tensors[pending->tensor];
	/* Of a reduced step they take the gradients' place: then it is too late to find no room for the note.
	 */
	int r = tensor_reserve_written(tensor, 1 + job->shard_copies);
	struct tensor_operation *operation =
		r < 0 ? NULL
		      : operation_new(job, pending, OPERATION_WRITE, pending->unit, pending->tensor,
				      pending->first, pending->count);

	if (!operation) {
		if (r == -E2BIG)
			refuse_pieces(pending, tensor->name);
		else
			pending_error(pending, -ENOMEM, "out of memory");
		return;
	}
	operation->is_master = pending->is_master;
	operation->is_of_shard = job->is_reduced;
	job->shard_copies += job->is_reduced;
	if (uses_sums(operation))
		take_sums(operation);
	else if (job->has_nvme_parameters)
		want_pack(operation, 0);
	else
		start_work(operation);
}

static bool check_write(struct pending *pending, const Tierd__Wire__TensorWrite *write)
{
	const struct job *job = pending->member->job;

	if (job->phase == JOB_BROKEN)
		return job_check_live(pending, 0);
	if (job->phase == JOB_TRAINED && job->options.optimizer->is_by_owner)
		return check_masters(pending, write);
	if (job->phase > JOB_FILLING) {
		pending_error(pending, -EBUSY, "job %s has been ready already: its tensors have values",
			      job->name);
		return false;
	}
	if (!check_range(pending, write->unit, write->tensor, write->first, write->count, write->is_master))
		return false;
	const struct tensor *tensor = &job->catalog.units[write->unit].tensors[write->tensor];

	if (tensor->initializer != INITIALIZE_NONE)
		pending_error(pending, -EINVAL, "tensor \"%s\" has an initializer; it cannot be written too",
			      tensor->name);
	else if (tensor->is_frozen && write->is_master)
		pending_error(pending, -EINVAL, "tensor \"%s\" is frozen: it has no master", tensor->name);
	else
		return true;
	return false;
}

/* The first write ends the definition of units: places for the values are needed now. */
void tensor_write(struct pending *pending, const Tierd__Wire__TensorWrite *write)
{
	struct job *job = pending->member->job;

	if (!check_write(pending, write))
		return;
	/* There may be nothing at all in the job, and no memory to write to. */
	if (write->count == 0) {
		pending_reply(pending, NULL);
		return;
	}
	pending->unit = write->unit;
	pending->tensor = write->tensor;
	pending->first = write->first;
	pending->count = write->count;
	pending->is_master = write->is_master;
	if (job->phase == JOB_FILLING || job->is_reduced) {
		start_write(pending);
		return;
	}
	queue_push(&job->filling, &pending->link);
	job_settle(job);
}

void tensor_fill_waiting(struct job *job)
{
	for (struct queue *link = queue_pop(&job->filling); link; link = queue_pop(&job->filling)) {
		struct pending *pending = queue_entry(link, struct pending, link);

		if (pending->member->operation)
			pending_error(pending, -EBUSY, "the window is in use by another request");
		else
			start_write(pending);
	}
}

/* From where the last one was found; NULL: none is left. */
static const struct tensor *next_to_fill(struct job *job)
{
	for (; job->initialized_units < job->catalog.unit_count; job->initialized_units++) {
		const struct unit *unit = &job->catalog.units[job->initialized_units];

		for (; job->initialized_tensors < unit->tensor_count; job->initialized_tensors++) {
			const struct tensor *tensor = &unit->tensors[job->initialized_tensors];

			if (tensor->is_frozen && tensor->initializer != INITIALIZE_NONE &&
			    !tensor_is_written(tensor))
				return tensor;
		}
		job->initialized_tensors = 0;
	}
	return NULL;
}

static int fill_tensor(struct job *job, const struct tensor *tensor)
{
	struct tensor_operation *operation =
		operation_new(job, NULL, OPERATION_INITIALIZE, job->initialized_units,
			      job->initialized_tensors, 0, tensor->layout.elements);

	if (!operation)
		return -ENOMEM;
	job->is_filling_tensor = true;
	if (job->has_nvme_parameters)
		want_pack(operation, 0);
	else
		start_work(operation);
	return 1;
}

int tensor_initialize(struct job *job)
{
	int r = 0;

	/* What it waits for may bring the job here again. */
	if (job->is_filling_tensor)
		return 1;
	const struct tensor *tensor = next_to_fill(job);

	if (tensor)
		return fill_tensor(job, tensor);
	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
		if (residency_flush(job, pack))
			r = 1;
	return r;
}

/* ---- Read ---- */

/* What a rank may read beside what the job keeps. */
static int find_state(const struct job_options *options, const char *name, int *ret_state, char *message,
		      size_t size)
{
	bool is_by_owner = options->optimizer->is_by_owner;
	char others[200];
	int r;

	if (is_by_owner && strcmp(name, "gradient") == 0) {
		*ret_state = READ_GRADIENT;
		return 0;
	}
	r = state_find(options, name, ret_state, others, sizeof(others));
	return r < 0 ? refuse(message, size, r, "%s%s", others, is_by_owner ? ", gradient" : "") : 0;
}

/* Until it finishes its step, a rank has only the values before that. */
static uint64_t version_for(const struct member *member, uint64_t version)
{
	uint64_t decided = member->job->decided;

	return reduced_is_owed(member) && version > decided ? decided : version;
}

static bool check_version(struct pending *pending, const struct tensor *tensor, uint64_t version)
{
	const struct job *job = pending->member->job;

	/* What is applied can be read between epochs, too; what is to come, will come only in a live one. */
	if (version > job->decided && !job_check_live(pending, pending->member->epoch))
		return false;
	if (version > job->decided + 2)
		pending_error(pending, -EINVAL, "version %llu is ahead of every step",
			      (unsigned long long)version);
	else if (version > member_last_version(pending->member))
		pending_error(pending, -ECANCELED, "tensor \"%s\": the step that it waits for was refused",
			      tensor->name);
	else
		return true;
	return false;
}

static void start_read(struct pending *pending, const Tierd__Wire__TensorRead *read, int state,
		       uint64_t version)
{
	struct tensor_operation *operation =
		operation_new(pending->member->job, pending, OPERATION_READ, read->unit, read->tensor,
			      read->first, read->count);

	if (!operation) {
		pending_error(pending, -ENOMEM, "out of memory");
		return;
	}
	operation->state = state;
	operation->waiter.blocked = pending->member;
	want_pack(operation, operation->tensor->is_frozen ? 0 : version);
}

void tensor_read(struct pending *pending, const Tierd__Wire__TensorRead *read)
{
	struct job *job = pending->member->job;
	uint64_t version = version_for(pending->member, read->version);
	char message[256];
	int state;

	if (job->phase != JOB_TRAINED || (pending->member->epoch == 0 && !pending->member->has_reconnected)) {
		job_check_live(pending, pending->member->epoch);
		return;
	}
	int r = find_state(&job->options, read->state, &state, message, sizeof(message));

	if (r < 0) {
		pending_error(pending, r, "%s", message);
		return;
	}
	if (!check_range(pending, read->unit, read->tensor, read->first, read->count,
			 state != STATE_PARAMETER))
		return;
	const struct tensor *tensor = &job->catalog.units[read->unit].tensors[read->tensor];

	if (state != READ_GRADIENT && !check_version(pending, tensor, version))
		return;
	if (tensor->is_frozen && state != STATE_PARAMETER)
		pending_error(pending, -ENODATA, "tensor \"%s\" is frozen: it has no %s", tensor->name,
			      read->state);
	else if (state == READ_GRADIENT)
		read_gradient(pending, read);
	else if (read->count == 0)
		pending_reply(pending, NULL);
	else
		start_read(pending, read, state, version);
}

/* ---- Members that go ---- */

bool tensor_is_operating(const struct member *member, const struct pending *pending)
{
	struct tensor_operation *operation = member->operation;

	if (!operation || operation->pending != pending)
		return false;
	/* It may wait for a version that does not come any more, or for sums of a job that is broken. */
	if (operation->stage == WAITING_FOR_PACK || operation->stage == WAITING_FOR_SUMS) {
		operation->pending = NULL;
		operation_free(operation);
		return false;
	}
	return true;
}

void tensor_fail_refused(struct member *member)
{
	struct tensor_operation *operation = member->operation;

	if (!operation || operation->stage != WAITING_FOR_PACK ||
	    operation->waiter.version <= member_last_version(member))
		return;
	residency_forget(&operation->waiter);
	on_pack(&operation->waiter, -EAGAIN);
}

void tensor_forget(struct member *member)
{
	struct tensor_operation *operation = member->operation;

	if (!operation)
		return;
	operation->pending = NULL;
	if (operation->stage != IN_FLIGHT)
		operation_free(operation);
}
