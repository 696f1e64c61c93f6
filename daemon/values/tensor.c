/* Values of tensors, written before training and read at any time, through the exchange window of the member:
 * what may be asked for, and when. daemon/values/operation.c moves them. */
#include <errno.h>
#include <string.h>

#include "common/size.h"
#include "daemon/gradients/gradients.h"
#include "daemon/request/request.h"
#include "daemon/residency/residency.h"
#include "daemon/update/update.h"
#include "daemon/values/draft.h"
#include "daemon/values/operation.h"

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
	else if (pending->member->operation || pending->member->batch)
		pending_error(pending, -EBUSY, "the window is in use by another request");
	else
		return true;
	return false;
}

/* ---- A reduced step ---- */

/* Masters, of any elements. */
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
		return reduced_check(pending, write->unit, tensor);
	return false;
}

static void read_gradient(struct pending *pending, const Tierd__Wire__TensorRead *read)
{
	struct job *job = pending->member->job;
	const struct tensor *tensor = &job->catalog.units[read->unit].tensors[read->tensor];
	struct tensor_operation *operation;

	if (!reduced_check(pending, read->unit, tensor))
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
	reduced_begin_copy(job);
	operation_take_sums(operation);
}

/* ---- Write ---- */

static void start_write(struct pending *pending)
{
	struct member *member = pending->member;
	struct job *job = member->job;
	struct tensor *tensor = &job->catalog.units[pending->unit].tensors[pending->tensor];
	bool is_compared = tensor->is_frozen && job->current.state == WRITING_OPEN;
	/* Of a reduced step they take the gradients' place: then it is too late to find no room for the note.
	 */
	int r = tensor_reserve_written(tensor, 1 + reduced_copies(job));
	struct tensor_operation *operation =
		r < 0 ? NULL
		      : operation_new(job, pending, is_compared ? OPERATION_COMPARE : OPERATION_WRITE,
				      pending->unit, pending->tensor, pending->first, pending->count);

	if (!operation) {
		writing_note_failure(job, member, r < 0 ? r : -ENOMEM);
		if (r == -E2BIG)
			operation_refuse_pieces(pending, tensor->name);
		else
			pending_error(pending, -ENOMEM, "out of memory");
		return;
	}
	operation_set_values(operation, member->window.base, pending->is_master);
	operation->state = pending->state;
	operation->is_of_shard = step_is_reduced(&job->current);
	if (operation->is_of_shard)
		reduced_begin_copy(job);
	if (is_compared)
		operation_want_pack(operation, 0);
	else if (job->state == JOB_FORMING || job->current.state == WRITING_OPEN)
		draft_write(operation);
	else if (operation_is_of_state(operation))
		state_write_start(operation);
	else
		operation_start_write(operation);
}

/* Whether there is a place for values now. */
static bool can_write(const struct job *job)
{
	if (job->state == JOB_FORMING)
		return job->values->is_drafted;
	/* What came before comes first. */
	return step_is_reduced(&job->current) || (job->state == JOB_FILLING && !job->values->draft);
}

static bool check_first_values(struct pending *pending, const Tierd__Wire__TensorWrite *write)
{
	const struct tensor *tensor =
		&pending->member->job->catalog.units[write->unit].tensors[write->tensor];

	if (*write->state)
		return state_write_check(pending, write, &pending->state);
	if (tensor->initializer != INITIALIZE_NONE)
		pending_error(pending, -EINVAL, "tensor \"%s\" has an initializer; it cannot be written too",
			      tensor->name);
	else if (tensor->is_frozen && write->is_master)
		pending_error(pending, -EINVAL, "tensor \"%s\" is frozen: it has no master", tensor->name);
	else
		return true;
	return false;
}

static bool check_write(struct pending *pending, const Tierd__Wire__TensorWrite *write)
{
	const struct member *member = pending->member;
	const struct job *job = member->job;
	bool is_wide = *write->state || write->is_master, is_open = job->current.state == WRITING_OPEN;

	if (job_is_broken(job))
		return job_check_live(pending, 0);
	if (job->state == JOB_TRAINED && job->options.optimizer->is_by_owner && !*write->state && !is_open)
		return check_masters(pending, write);
	if (job->state > JOB_FILLING && !is_open) {
		/* Its writing may have ended with another rank. */
		if ((member->epoch != 0 || member->has_reconnected) &&
		    !job_check_live(pending, member->epoch))
			return false;
		pending_error(pending, -EBUSY,
			      "job %s has been ready already: its tensors have values; others are written "
			      "between tierd_write_begin and tierd_write_end",
			      job->name);
		return false;
	}
	return check_range(pending, write->unit, write->tensor, write->first, write->count, is_wide) &&
	       (is_open ? writing_check(pending, write) : check_first_values(pending, write));
}

/* The first write ends the definition of units, unless there is a draft: places for the values are needed
 * now. */
void tensor_write(struct pending *pending, const Tierd__Wire__TensorWrite *write)
{
	struct job *job = pending->member->job;

	pending->state = 0;
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
	if (can_write(job)) {
		start_write(pending);
		return;
	}
	queue_push(&job->values->early_writes, &pending->link);
	job_settle(job);
}

bool tensor_has_waiting(const struct job *job)
{
	return !queue_is_empty(&job->values->early_writes);
}

struct pending *tensor_take_waiting(struct job *job)
{
	struct queue *link = queue_pop(&job->values->early_writes);

	return link ? queue_entry(link, struct pending, link) : NULL;
}

void tensor_fill_waiting(struct job *job)
{
	struct pending *pending;

	if (job->values->draft)
		return;
	while ((pending = tensor_take_waiting(job))) {
		if (pending->member->operation)
			pending_error(pending, -EBUSY, "the window is in use by another request");
		else
			start_write(pending);
	}
}

/* From where the last one was found; NULL: none is left. */
static const struct tensor *next_to_fill(struct job *job)
{
	for (; job->values->initialized_units < job->catalog.unit_count; job->values->initialized_units++) {
		const struct unit *unit = &job->catalog.units[job->values->initialized_units];

		for (; job->values->initialized_tensors < unit->tensor_count;
		     job->values->initialized_tensors++) {
			const struct tensor *tensor = &unit->tensors[job->values->initialized_tensors];

			if (tensor->is_frozen && tensor->initializer != INITIALIZE_NONE &&
			    !tensor_is_written(tensor))
				return tensor;
		}
		job->values->initialized_tensors = 0;
	}
	return NULL;
}

static int fill_tensor(struct job *job, const struct tensor *tensor)
{
	struct tensor_operation *operation =
		operation_new(job, NULL, OPERATION_INITIALIZE, job->values->initialized_units,
			      job->values->initialized_tensors, 0, tensor->layout.elements);

	if (!operation)
		return -ENOMEM;
	job->values->is_filling_tensor = true;
	if (job->location.has_nvme_parameters)
		operation_want_pack(operation, 0);
	else
		operation_start_work(operation);
	return 1;
}

int tensor_initialize(struct job *job)
{
	int r = 0;

	/* What it waits for may bring the job here again. */
	if (job->values->is_filling_tensor)
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
	if (strcmp(name, "step") == 0) {
		*ret_state = READ_UPDATES;
		return 0;
	}
	r = state_find(options, name, ret_state, others, sizeof(others));
	return r < 0 ? refuse(message, size, r, "%s, step%s", others, is_by_owner ? ", gradient" : "") : 0;
}

/* Until it finishes its step, a rank has only the values before that. */
uint64_t tensor_version_for(const struct member *member, uint64_t version)
{
	uint64_t decided = member->job->decided;

	return member_owes_step(member) && version > decided ? decided : version;
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
	operation_want_pack(operation, operation->tensor->is_frozen ? 0 : version);
}

bool tensor_check_read(struct pending *pending, const Tierd__Wire__TensorRead *read, int *ret_state)
{
	const struct job *job = pending->member->job;
	uint64_t version = tensor_version_for(pending->member, read->version);
	char message[256];
	int r;

	if (job->state != JOB_TRAINED || (pending->member->epoch == 0 && !pending->member->has_reconnected)) {
		job_check_live(pending, pending->member->epoch);
		return false;
	}
	r = find_state(&job->options, read->state, ret_state, message, sizeof(message));
	if (r < 0) {
		pending_error(pending, r, "%s", message);
		return false;
	}
	if (!check_range(pending, read->unit, read->tensor, read->first, read->count,
			 *ret_state != STATE_PARAMETER))
		return false;
	const struct tensor *tensor = &job->catalog.units[read->unit].tensors[read->tensor];

	if (*ret_state != READ_GRADIENT && !check_version(pending, tensor, version))
		return false;
	if (!tensor->is_frozen || *ret_state == STATE_PARAMETER)
		return true;
	pending_error(pending, -ENODATA, "tensor \"%s\" is frozen: it has no %s", tensor->name, read->state);
	return false;
}

uint64_t tensor_window_bytes(const struct job *job, const Tierd__Wire__TensorRead *read, int state)
{
	return read->count * window_element_bytes(&job->catalog.units[read->unit].tensors[read->tensor],
						  state != STATE_PARAMETER);
}

void tensor_read(struct pending *pending, const Tierd__Wire__TensorRead *read)
{
	int state;

	if (!tensor_check_read(pending, read, &state))
		return;
	if (state == READ_GRADIENT)
		read_gradient(pending, read);
	else if (read->count == 0)
		pending_reply(pending, NULL);
	else
		start_read(pending, read, state, tensor_version_for(pending->member, read->version));
}
