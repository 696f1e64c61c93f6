#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/job.h"
#include "client/left.h"
#include "client/ticket.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/plural.h"
#include "common/size.h"

#define NO_BUFFER UINT32_MAX

/* The states lie in the lease page: this rank takes and pushes, the daemon frees. The unit of a held buffer
 * is known only here. */
static uint32_t state_of(const struct tierd_job *job, uint32_t buffer)
{
	return atomic_load_explicit(&job->attachment->buffer_states[buffer], memory_order_acquire);
}

static void set_state(struct tierd_job *job, uint32_t buffer, enum gradient_buffer_state state)
{
	atomic_store_explicit(&job->attachment->buffer_states[buffer], state, memory_order_release);
}

static uint32_t buffer_count(const struct tierd_job *job)
{
	return job->attachment ? job->attachment->buffer_count : 0;
}

static uint64_t gradient_bytes(const struct tierd_job *job, uint32_t unit)
{
	return unit_layout_gradient_bytes(&job->units[unit]->layout);
}

/* Of those that the unit may have. */
static bool is_in_state(const struct tierd_job *job, uint32_t buffer, uint32_t unit,
			enum gradient_buffer_state state)
{
	return gradient_buffer_takes(&job->attachment->gradient_buffers, buffer, gradient_bytes(job, unit)) &&
	       state_of(job, buffer) == state;
}

static uint32_t count_in_state(const struct tierd_job *job, uint32_t unit, enum gradient_buffer_state state)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < buffer_count(job); i++)
		count += is_in_state(job, i, unit, state);
	return count;
}

static uint32_t held_buffer(const struct tierd_job *job, uint32_t unit)
{
	for (uint32_t i = 0; i < buffer_count(job); i++)
		if (state_of(job, i) == GRADIENT_BUFFER_HELD && job->attachment->buffers[i].unit == unit)
			return i;
	return NO_BUFFER;
}

static uint32_t buffer_in_state(const struct tierd_job *job, uint32_t unit, enum gradient_buffer_state state)
{
	for (uint32_t i = 0; i < buffer_count(job); i++)
		if (is_in_state(job, i, unit, state))
			return i;
	return NO_BUFFER;
}

static struct gradient_room *room_of(const struct tierd_job *job)
{
	return job->attachment->gradient_buffers.room > 0 ? &job->attachment->room : NULL;
}

/* Of one that is held or pushed. */
static struct gradient_span span_of(const struct tierd_job *job, uint32_t buffer)
{
	const struct gradient_buffer *own = &job->attachment->buffers[buffer];

	return (struct gradient_span){ own->offset, gradient_bytes(job, own->unit) };
}

static unsigned held_spans(const struct tierd_job *job, struct gradient_span spans[WIRE_MAX_GRADIENT_BUFFERS])
{
	unsigned count = 0;

	for (uint32_t i = 0; i < buffer_count(job) && count < WIRE_MAX_GRADIENT_BUFFERS; i++)
		if (state_of(job, i) == GRADIENT_BUFFER_HELD)
			spans[count++] = span_of(job, i);
	return count;
}

/* Of those that have some of these bytes. */
static uint32_t count_pushed(const struct tierd_job *job, struct gradient_span span)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < buffer_count(job); i++)
		count += state_of(job, i) == GRADIENT_BUFFER_PUSHED &&
			 gradient_spans_meet(span_of(job, i), span);
	return count;
}

/* Another thread, without the lock. */
static bool is_being_zeroed(const struct tierd_job *job, uint32_t buffer)
{
	return buffer < buffer_count(job) && job->attachment->buffers[buffer].is_being_zeroed;
}

static void wait_for_zeroing(struct tierd_job *job)
{
	pthread_cond_wait(&job->node->changed, &job->node->lock);
}

static bool any_is_being_zeroed(const struct tierd_job *job)
{
	for (uint32_t i = 0; i < buffer_count(job); i++)
		if (is_being_zeroed(job, i))
			return true;
	return false;
}

void gradients_settle(struct tierd_job *job)
{
	while (any_is_being_zeroed(job))
		wait_for_zeroing(job);
}

void gradients_drop(struct tierd_job *job)
{
	for (uint32_t i = 0; i < buffer_count(job); i++)
		if (state_of(job, i) == GRADIENT_BUFFER_HELD)
			set_state(job, i, GRADIENT_BUFFER_FREE);
	gradients_rewind(job);
}

void gradients_rewind(struct tierd_job *job)
{
	if (job->attachment)
		gradient_room_rewind(&job->attachment->room);
}

void gradients_recover(struct tierd_job *job)
{
	for (uint32_t i = 0; i < buffer_count(job); i++)
		if (state_of(job, i) == GRADIENT_BUFFER_PUSHED)
			set_state(job, i, GRADIENT_BUFFER_FREE);
}

/* ---- Take ---- */

static char *buffer_address(const struct tierd_job *job, uint32_t buffer)
{
	return (char *)job->attachment->gradient_mapping.address + job->attachment->buffers[buffer].offset;
}

/* Padding is summed and measured like the rest, and no caller writes it. In a debugging run what the caller
 * forgets to write is a NaN. */
static void clear(const struct unit *unit, char *address, uint64_t dirty, bool is_overwritten, bool has_debug)
{
	if (!is_overwritten || has_debug)
		memset(address, is_overwritten ? 0xff : 0, dirty);
	if (is_overwritten)
		unit_clear_gradient_padding(unit, address);
}

/* How much of it may be another thing than zero; and that it may be so from now on. */
static uint64_t make_dirty(struct attachment *attachment, struct gradient_span span)
{
	uint64_t dirty = size_rest(attachment->gradients_end, span.first);

	if (attachment->gradients_end < span.first + span.bytes)
		attachment->gradients_end = span.first + span.bytes;
	return dirty < span.bytes ? dirty : span.bytes;
}

/* Without the lock, which others need while a large unit is zeroed. */
static void hand_out(struct tierd_job *job, uint32_t buffer, uint32_t unit, uint64_t offset,
		     bool is_overwritten)
{
	const struct unit *definition = job->units[unit];
	bool has_debug = job->attachment->debug != NULL;
	struct gradient_buffer *own = &job->attachment->buffers[buffer];
	struct gradient_span span = { offset, gradient_bytes(job, unit) };
	uint64_t dirty = make_dirty(job->attachment, span);

	own->unit = unit;
	own->offset = offset;
	own->is_being_zeroed = true;
	if (room_of(job))
		gradient_room_take(room_of(job), span);
	if (is_overwritten && has_debug)
		dirty = span.bytes;
	char *address = buffer_address(job, buffer);

	set_state(job, buffer, GRADIENT_BUFFER_HELD);
	job_exit(job);
	clear(definition, address, dirty, is_overwritten, has_debug);
	pthread_mutex_lock(&job->node->lock);
	own->is_being_zeroed = false;
	pthread_cond_broadcast(&job->node->changed);
}

/* span: of a room. */
static int wait_for_buffer(struct tierd_job *job, uint32_t unit, uint32_t pushed, struct gradient_span span)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__BufferWait wait = TIERD__WIRE__BUFFER_WAIT__INIT;

	wait.job = job->number;
	wait.epoch = job->epoch;
	wait.unit = unit;
	wait.pushed = pushed;
	wait.offset = span.first;
	wait.bytes = span.bytes;
	request.body_case = TIERD__WIRE__REQUEST__BODY_BUFFER_WAIT;
	request.buffer_wait = &wait;
	uint64_t start = clock_now_ns();
	int r = ticket_call(job, &request);

	job->gradient_wait_ns += clock_now_ns() - start;
	return r;
}

static unsigned long long kib(uint64_t bytes)
{
	return size_divide_up(bytes, KIB);
}

/* What this rank holds leaves no place for it. */
static int refuse_room(const struct tierd_job *job, uint32_t unit)
{
	struct gradient_span held[WIRE_MAX_GRADIENT_BUFFERS];
	unsigned count = held_spans(job, held);
	const char *holder = gradients_held(job, &(uint32_t){ 0 });
	uint64_t bytes = 0;

	for (unsigned i = 0; i < count; i++)
		bytes += held[i].bytes;
	return message_fail(
		-ENOBUFS,
		"the gradients of \"%s\" take %llu KiB, and this rank holds %llu KiB of its room of "
		"%llu KiB for %u unit%s, one of them \"%s\"; push or discard some, or open the job "
		"with more %s",
		job_unit_name(job, unit), kib(gradient_bytes(job, unit)), kib(bytes),
		kib(room_of(job)->bytes), count, PLURAL(count), holder ? holder : "?",
		count == buffer_count(job) ? "gradient_buffers" : "gradient_bytes");
}

/* This rank holds all that the unit may have. */
static int refuse_buffer(const struct tierd_job *job, uint32_t unit)
{
	const struct gradient_buffers *buffers = &job->attachment->gradient_buffers;
	uint32_t held = buffer_in_state(job, unit, GRADIENT_BUFFER_HELD);
	const char *holder =
		held == NO_BUFFER ? "?" : job_unit_name(job, job->attachment->buffers[held].unit);

	if (buffers->room > 0)
		return refuse_room(job, unit);
	if (gradient_bytes(job, unit) > buffers->bytes)
		return message_fail(
			-ENOBUFS,
			"the gradients of \"%s\" take %llu KiB, for which this rank has one buffer, "
			"of %llu KiB, and holds it for \"%s\"; push or discard that, or cut one of the "
			"two into several units (slices)",
			job_unit_name(job, unit), kib(gradient_bytes(job, unit)), kib(buffers->last_bytes),
			holder);
	return message_fail(
		-ENOBUFS,
		"all %u gradient buffers of %llu KiB are held by this rank, one of them for \"%s\"; "
		"push or discard one, or open the job with more",
		buffers->count - (buffers->last_bytes > buffers->bytes), kib(buffers->bytes), holder);
}

/* A buffer that is free for the unit, and where it begins; NO_BUFFER after a wait. */
static int find_fixed(struct tierd_job *job, uint32_t unit, uint32_t *ret_buffer, uint64_t *ret_offset)
{
	/* First: of what comes back from now on the daemon knows. */
	uint32_t pushed = count_in_state(job, unit, GRADIENT_BUFFER_PUSHED);

	*ret_buffer = buffer_in_state(job, unit, GRADIENT_BUFFER_FREE);
	if (*ret_buffer != NO_BUFFER)
		*ret_offset = gradient_buffer_offset(&job->attachment->gradient_buffers, *ret_buffer);
	else if (pushed == 0)
		return refuse_buffer(job, unit);
	else
		return wait_for_buffer(job, unit, pushed, (struct gradient_span){ 0, 0 });
	return 0;
}

/* The same, in a room. */
static int find_in_room(struct tierd_job *job, uint32_t unit, uint32_t *ret_buffer, uint64_t *ret_offset)
{
	struct gradient_span held[WIRE_MAX_GRADIENT_BUFFERS], all = { 0, room_of(job)->bytes };
	struct gradient_span span = { 0, gradient_bytes(job, unit) };
	/* As above. */
	uint32_t buffer, pushed = count_pushed(job, all);

	if (!gradient_room_find(room_of(job), held, held_spans(job, held), span.bytes, &span.first))
		return refuse_buffer(job, unit);
	buffer = buffer_in_state(job, unit, GRADIENT_BUFFER_FREE);
	if (buffer == NO_BUFFER)
		return pushed == 0 ? refuse_buffer(job, unit) : wait_for_buffer(job, unit, pushed, all);
	pushed = count_pushed(job, span);
	if (pushed > 0)
		return wait_for_buffer(job, unit, pushed, span);
	*ret_buffer = buffer;
	*ret_offset = span.first;
	return 0;
}

static int take_buffer(struct tierd_job *job, uint32_t unit, bool is_overwritten)
{
	uint32_t buffer = NO_BUFFER;
	uint64_t offset = 0;
	int r = room_of(job) ? find_in_room(job, unit, &buffer, &offset)
			     : find_fixed(job, unit, &buffer, &offset);

	if (r == 0 && buffer != NO_BUFFER)
		hand_out(job, buffer, unit, offset, is_overwritten);
	return r;
}

/* Whatever has released the lock, others may have done anything meanwhile. */
static int gradients_locked(struct tierd_job *job, uint32_t unit, uint32_t flags, uint32_t *ret_buffer)
{
	uint32_t buffer = NO_BUFFER;
	int r = job_check_unit(job, unit);

	if (r == 0 && !unit_is_trainable(job->units[unit]))
		r = message_fail(-EINVAL, "unit \"%s\" has no gradients: all its tensors are frozen",
				 job_unit_name(job, unit));
	while (r == 0) {
		buffer = held_buffer(job, unit);
		if (buffer == NO_BUFFER)
			r = take_buffer(job, unit, flags & TIERD_GRADIENTS_OVERWRITE);
		else if (is_being_zeroed(job, buffer))
			wait_for_zeroing(job);
		else
			break;
		if (r == 0)
			r = job_check(job, JOB_READY);
	}
	if (r == 0)
		*ret_buffer = buffer;
	return r;
}

static int gradients_once(struct tierd_job *job, uint32_t unit, uint32_t flags,
			  struct tierd_view *ret_gradients)
{
	uint32_t buffer;
	int r = job_enter(job, JOB_READY);

	if (r < 0)
		return r;
	r = gradients_locked(job, unit, flags, &buffer);
	if (r == 0)
		*ret_gradients = (struct tierd_view){ .base = buffer_address(job, buffer),
						      .offsets = job->units[unit]->gradient_offsets,
						      .version = job->awaited };
	return job_finish(job, r);
}

int tierd_gradients_with(struct tierd_job *job, uint32_t unit, uint32_t flags,
			 struct tierd_view *ret_gradients)
{
	int r = CHECK_GIVEN(job, ret_gradients);

	if (r == 0 && (flags & ~(uint32_t)TIERD_GRADIENTS_OVERWRITE))
		r = message_fail(-EINVAL, "0x%x has flags that tierd_gradients_with does not know", flags);
	return r < 0 ? r : JOB_REPEAT(gradients_once(job, unit, flags, ret_gradients));
}

int tierd_gradients(struct tierd_job *job, uint32_t unit, struct tierd_view *ret_gradients)
{
	return tierd_gradients_with(job, unit, 0, ret_gradients);
}

/* ---- Push and discard ---- */

static void push_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	struct tierd_job *job = ticket->job;
	uint32_t buffer = ticket->push.buffer;

	/* A push that the daemon refused has left the buffer as it was; nobody will free it. */
	if (answer->status < 0 && buffer < buffer_count(job) &&
	    job->attachment->buffers[buffer].pushes == ticket->push.number &&
	    state_of(job, buffer) == GRADIENT_BUFFER_PUSHED)
		set_state(job, buffer, GRADIENT_BUFFER_FREE);
	if (ticket->push.is_silent && answer->status < 0 && ticket->epoch == job->epoch) {
		job->refused_pushes++;
		job->push_error = answer->status;
		(void)!strncpy(job->push_error_text, answer->text, sizeof(job->push_error_text) - 1);
	}
	ticket_complete(ticket, TIERD_DONE, answer->status, answer->text);
}

static const struct ticket_kind push_kind = { .name = "tierd_push", .replies = 1, .answer = push_answer };

void push_forget(struct tierd_job *job, uint32_t request)
{
	QUEUE_FOREACH (link, &job->node->tickets) {
		struct tierd_ticket *ticket = queue_entry(link, struct tierd_ticket, all);

		if (ticket->job == job && ticket->kind == &push_kind && ticket->push.is_silent &&
		    ticket->is_orphan && (int32_t)(ticket->request - request) <= 0)
			ticket_complete(ticket, TIERD_DONE, 0, NULL);
	}
}

int push_check(struct tierd_job *job)
{
	int r = job->push_error;

	job->push_error = 0;
	return r < 0 ? message_fail(r, "an earlier push failed: %s", job->push_error_text) : 0;
}

/* Which of a unit's tensors have no gradient: a flag for each; NULL: all have one. */
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

static void clear_absent(const struct unit *unit, const bool *absent, char *address)
{
	for (uint32_t i = 0; i < unit->tensor_count; i++) {
		const struct tensor_layout *tensor = &unit->tensors[i];

		if (absent[i] && section_is_trainable(tensor->section))
			memset(address + unit->gradient_offsets[i], 0,
			       tensor->elements *
				       unit_layout_gradient_element(&unit->layout, tensor->section));
	}
}

/* What nobody has a gradient of is summed and measured like the rest. Without the lock, as above. */
static void zero_absent(struct tierd_job *job, uint32_t buffer, uint32_t unit, const bool *absent)
{
	struct gradient_buffer *own = &job->attachment->buffers[buffer];
	char *address = buffer_address(job, buffer);

	own->is_being_zeroed = true;
	job_exit(job);
	clear_absent(job->units[unit], absent, address);
	pthread_mutex_lock(&job->node->lock);
	own->is_being_zeroed = false;
	pthread_cond_broadcast(&job->node->changed);
}

/* On the wire: a bit for each, the first in the lowest of the first byte. */
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

static int find_held(struct tierd_job *job, uint32_t unit, uint32_t *ret_buffer)
{
	int r = job_check(job, JOB_READY);

	while (r == 0 && is_being_zeroed(job, held_buffer(job, unit))) {
		wait_for_zeroing(job);
		r = job_check(job, JOB_READY);
	}
	if (r < 0)
		return r;
	*ret_buffer = held_buffer(job, unit);
	if (*ret_buffer != NO_BUFFER)
		return 0;
	return message_fail(-EINVAL, "no gradient buffer of unit \"%s\" is held; call tierd_gradients first",
			    job_unit_name(job, unit));
}

/* Somebody else may have had the unit's buffer while it was zeroed. */
static int prepare_push(struct tierd_job *job, uint32_t unit, const struct absent *absent,
			uint32_t *ret_buffer)
{
	int r = job_check_unit(job, unit);

	if (r == 0)
		r = check_absent(job, unit, absent);
	if (r == 0)
		r = find_held(job, unit, ret_buffer);
	if (r < 0 || !absent->tensors)
		return r;
	zero_absent(job, *ret_buffer, unit, absent->tensors);
	return find_held(job, unit, ret_buffer);
}

static int push_locked(struct tierd_job *job, uint32_t unit, const struct absent *absent, bool is_silent,
		       struct tierd_ticket **ret_ticket)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__Push push = TIERD__WIRE__PUSH__INIT;
	_cleanup_free_ uint8_t *bits = NULL;
	struct tierd_ticket *ticket = NULL;
	uint32_t buffer;
	int r = prepare_push(job, unit, absent, &buffer);

	if (r == 0 && absent->tensors)
		r = encode_absent(absent, &push.absent);
	bits = push.absent.data;
	if (r == 0)
		r = ticket_new(job->node, job, &push_kind, &ticket);
	if (r < 0)
		return r;
	ticket->push.buffer = buffer;
	ticket->push.number = ++job->attachment->buffers[buffer].pushes;
	ticket->push.is_silent = is_silent;
	push.job = job->number;
	push.epoch = job->epoch;
	push.unit = unit;
	push.buffer = buffer;
	push.offset = room_of(job) ? job->attachment->buffers[buffer].offset : 0;
	push.is_silent = is_silent;
	request.body_case = TIERD__WIRE__REQUEST__BODY_PUSH;
	request.push = &push;
	set_state(job, buffer, GRADIENT_BUFFER_PUSHED);
	job->has_undecided = true;
	r = ticket_send(ticket, &request);
	if (r < 0)
		set_state(job, buffer, GRADIENT_BUFFER_HELD);
	else
		*ret_ticket = ticket;
	return r;
}

/* Without a place for a ticket it is silent. */
static int push_once(struct tierd_job *job, uint32_t unit, const struct absent *absent,
		     struct tierd_ticket **ret_ticket)
{
	struct tierd_ticket *ticket = NULL;
	int r = job_enter(job, JOB_READY);

	if (r < 0)
		return r;
	r = push_check(job);
	if (r == 0)
		r = push_locked(job, unit, absent, !ret_ticket, &ticket);
	if (r == 0 && ret_ticket)
		*ret_ticket = ticket;
	else if (r == 0)
		ticket_abandon(ticket);
	return job_finish(job, r);
}

int tierd_push_with(struct tierd_job *job, uint32_t unit, const bool *absent, size_t tensor_count,
		    struct tierd_ticket **ret_ticket)
{
	const struct absent tensors = { absent, tensor_count };
	int r = CHECK_GIVEN(job);

	return r < 0 ? r : JOB_REPEAT(push_once(job, unit, &tensors, ret_ticket));
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

int tierd_discard(struct tierd_job *job, uint32_t unit)
{
	uint32_t buffer;
	int r = CHECK_GIVEN(job);

	if (r == 0)
		r = left_lock_node(job);
	if (r < 0)
		return r;
	while (is_being_zeroed(job, held_buffer(job, unit)))
		wait_for_zeroing(job);
	buffer = held_buffer(job, unit);
	if (buffer == NO_BUFFER)
		r = message_fail(-EINVAL, "no gradient buffer of unit \"%s\" is held",
				 job_unit_name(job, unit));
	else
		set_state(job, buffer, GRADIENT_BUFFER_FREE);
	job_exit(job);
	return r;
}

const char *gradients_held(const struct tierd_job *job, uint32_t *next)
{
	for (uint32_t i = *next; i < buffer_count(job); i++)
		if (state_of(job, i) == GRADIENT_BUFFER_HELD) {
			*next = i + 1;
			return job_unit_name(job, job->attachment->buffers[i].unit);
		}
	return NULL;
}
