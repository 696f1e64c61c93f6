#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/library/calls/calls.h"
#include "client/library/pages/buffers.h"
#include "common/cleanup.h"
#include "common/plural.h"
#include "common/size.h"

/* ---- Its answer ---- */

static void push_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	struct tierd_job *job = ticket->job;
	uint32_t buffer = ticket->push.buffer;

	/* If the daemon refuses a push, it does not free the buffer. */
	if (answer->status < 0 && buffer < buffer_count(job) &&
	    job->attachment->buffers[buffer].pushes == ticket->push.number &&
	    buffer_state(job, buffer) == GRADIENT_BUFFER_PUSHED)
		buffer_give_back(job, buffer);
	if (ticket->is_silent && answer->status < 0 && ticket->epoch == job->epoch) {
		job->refused_pushes++;
		job->push_error = answer->status;
		(void)!strncpy(job->push_error_text, answer->text, sizeof(job->push_error_text) - 1);
	}
	ticket_complete(ticket, TIERD_DONE, answer->status, answer->text);
}

static const struct ticket_kind push_kind = { .name = "tierd_push", .answer = push_answer };

int push_check(struct tierd_job *job)
{
	int r = job->push_error;

	job->push_error = 0;
	return r < 0 ? message_fail(r, "an earlier push failed: %s", job->push_error_text) : 0;
}

/* Tensors of a unit that have no gradient: a flag for each tensor; NULL: all have one. */
struct absent {
	const bool *tensors;
	size_t count;
};

static int check_absent(const struct tierd_job *job, uint32_t index, const struct absent *absent)
{
	uint32_t count = job->units[index]->tensor_count;

	if (!absent->tensors || absent->count == count)
		return 0;
	return message_fail(-EINVAL, "unit \"%s\" has %u tensor%s, and %zu flag%s say which have no gradient",
			    job_unit_name(job, index), count, PLURAL(count), absent->count,
			    PLURAL(absent->count));
}

static int clear_absent(const struct unit *unit, const bool *absent, const struct buffer_writer *writer,
			char *address)
{
	int r = 0;

	for (uint32_t i = 0; i < unit->tensor_count && r == 0; i++) {
		const struct tensor_layout *tensor = &unit->tensors[i];

		if (absent[i] && section_is_trainable(tensor->section))
			r = buffer_fill(writer, address + unit->gradient_offsets[i], 0,
					tensor->elements *
						unit_layout_gradient_element(&unit->layout, tensor->section));
	}
	return r;
}

/* Zeros the gradients that are absent, because all bytes of the buffer are summed and measured. */
static int zero_absent(struct tierd_job *job, uint32_t buffer, uint32_t unit, const bool *absent,
		       const struct buffer_writer *writer)
{
	char *address = buffer_address(job, buffer);
	struct gradient_buffer *own;

	if (writer->gpu)
		return clear_absent(job->units[unit], absent, writer, address);
	own = buffer_begin_zeroing(job, buffer);
	clear_absent(job->units[unit], absent, writer, address);
	buffer_end_zeroing(job, own);
	return 0;
}

/* Encodes a bit for each tensor; the first is the lowest bit of the first byte. */
static int encode_absent(const struct absent *absent, ProtobufCBinaryData *ret_bits)
{
	uint8_t *bits = calloc(absent->count / 8 + 1, 1);

	if (!bits)
		return message_fail(-ENOMEM, "out of memory");
	for (size_t i = 0; i < absent->count; i++)
		bits[i / 8] |= (uint8_t)(absent->tensors[i] << i % 8);
	*ret_bits = (ProtobufCBinaryData){ .len = size_divide_up(absent->count, 8), .data = bits };
	return 0;
}

static int find_held(struct tierd_job *job, uint32_t unit, enum place place, uint32_t *ret_buffer)
{
	static const char *const calls[PLACES][2] = {
		[PLACE_HOST] = { "tierd_gradients", "tierd_push" },
		[PLACE_GPU] = { "tierd_gradients_on", "tierd_push_on" },
	};
	int r = job_check(job, JOB_READY);
	enum place held;

	while (r == 0 && buffer_is_being_zeroed(job, buffer_held(job, unit))) {
		buffer_wait_for_zeroing(job);
		r = job_check(job, JOB_READY);
	}
	if (r < 0)
		return r;
	*ret_buffer = buffer_held(job, unit);
	if (*ret_buffer == NO_BUFFER)
		return message_fail(-EINVAL, "no gradient buffer of unit \"%s\" is held; call %s first",
				    job_unit_name(job, unit), calls[place][0]);
	held = job->attachment->buffers[*ret_buffer].place;
	if (held != place)
		return message_fail(-EINVAL, "the gradient buffer of unit \"%s\" is held %s; call %s",
				    job_unit_name(job, unit),
				    held == PLACE_GPU ? "on a GPU" : "in host memory", calls[held][1]);
	return 0;
}

/* Looks for the buffer again after zeroing, which releases the lock: another thread may have pushed it. */
static int prepare_push(struct tierd_job *job, uint32_t unit, const struct absent *absent,
			const struct buffer_writer *writer, uint32_t *ret_buffer)
{
	enum place place = buffer_writer_place(writer);
	int r = job_check_unit(job, unit);

	if (r == 0)
		r = check_absent(job, unit, absent);
	if (r == 0)
		r = find_held(job, unit, place, ret_buffer);
	if (r < 0 || !absent->tensors)
		return r;
	r = zero_absent(job, *ret_buffer, unit, absent->tensors, writer);
	return r < 0 ? r : find_held(job, unit, place, ret_buffer);
}

static int push_locked(struct tierd_job *job, uint32_t unit, const struct absent *absent,
		       const struct buffer_writer *writer, bool is_silent, struct tierd_ticket **ret_ticket)
{
	Tierd__Wire__Push push = TIERD__WIRE__PUSH__INIT;
	_cleanup_free_ uint8_t *bits = NULL;
	struct tierd_ticket *ticket = NULL;
	uint32_t buffer;
	int r = prepare_push(job, unit, absent, writer, &buffer);

	if (r == 0 && absent->tensors)
		r = encode_absent(absent, &push.absent);
	bits = push.absent.data;
	if (r == 0 && writer->gpu)
		r = gpu_tier_mark(job->attachment->gpu, writer->stream, &push.event);
	if (r == 0)
		r = ticket_new(job->node, job, &push_kind, &ticket);
	if (r < 0)
		return r;
	ticket->push.buffer = buffer;
	ticket->push.number = ++job->attachment->buffers[buffer].pushes;
	job->attachment->buffers[buffer].event = push.event;
	ticket->is_silent = is_silent;
	push.job = job->number;
	push.epoch = job->epoch;
	push.unit = unit;
	push.buffer = buffer;
	push.offset =
		job->attachment->gradient_buffers.room > 0 ? job->attachment->buffers[buffer].offset : 0;
	push.is_silent = is_silent;
	buffer_set_state(job, buffer, GRADIENT_BUFFER_PUSHED);
	job->has_undecided = true;
	r = ticket_send(ticket, WIRE_REQUEST(PUSH, push, &push));
	if (r < 0)
		buffer_set_state(job, buffer, GRADIENT_BUFFER_HELD);
	else
		*ret_ticket = ticket;
	return r;
}

/* If ret_ticket is NULL, the push is silent. */
static int push_once(struct tierd_job *job, uint32_t unit, const struct absent *absent,
		     const struct buffer_writer *writer, struct tierd_ticket **ret_ticket)
{
	struct tierd_ticket *ticket = NULL;
	int r = push_check(job);

	if (r == 0)
		r = push_locked(job, unit, absent, writer, !ret_ticket, &ticket);
	if (r == 0 && ret_ticket)
		*ret_ticket = ticket;
	else if (r == 0)
		ticket_abandon(ticket);
	return r;
}

int tierd_push_with(struct tierd_job *job, uint32_t unit, const bool *absent, size_t tensor_count,
		    struct tierd_ticket **ret_ticket)
{
	const struct absent tensors = { absent, tensor_count };
	const struct buffer_writer writer = { .gpu = NULL };
	int r = CHECK_GIVEN(job);

	return r < 0 ? r : JOB_CALL(job, JOB_READY, push_once(job, unit, &tensors, &writer, ret_ticket));
}

int tierd_push(struct tierd_job *job, uint32_t unit)
{
	int r = CHECK_GIVEN(job);

	return r < 0 ? r : tierd_push_with(job, unit, NULL, 0, NULL);
}

int tierd_push_begin(struct tierd_job *job, uint32_t unit, struct tierd_ticket **ret_ticket)
{
	int r = CHECK_GIVEN(job, ret_ticket);

	return r < 0 ? r : tierd_push_with(job, unit, NULL, 0, ret_ticket);
}

/* ---- From a GPU ---- */

static int push_on(struct tierd_job *job, uint32_t unit, const struct absent *absent,
		   struct driver_stream *stream, struct tierd_ticket **ret_ticket)
{
	const struct buffer_writer writer = { job->gpu, stream };
	int r = gpu_check_tier(job, "tierd_push");

	return r < 0 ? r : push_once(job, unit, absent, &writer, ret_ticket);
}

int tierd_push_on(struct tierd_job *job, uint32_t unit, const bool *absent, size_t tensor_count, void *stream,
		  struct tierd_ticket **ret_ticket)
{
	const struct absent tensors = { absent, tensor_count };
	int r = CHECK_GIVEN(job);

	return r < 0 ? r : JOB_CALL(job, JOB_READY, push_on(job, unit, &tensors, stream, ret_ticket));
}
