#include <errno.h>
#include <string.h>

#include "client/library/calls/calls.h"
#include "client/library/pages/buffers.h"
#include "client/library/pages/left.h"
#include "common/clock.h"
#include "common/plural.h"
#include "common/size.h"

static uint64_t gradient_bytes(const struct tierd_job *job, uint32_t unit)
{
	return unit_layout_gradient_bytes(&job->units[unit]->layout);
}

/* Only a buffer that the unit may use counts. */
static bool is_in_state(const struct tierd_job *job, uint32_t buffer, uint32_t unit,
			enum gradient_buffer_state state)
{
	return gradient_buffer_takes(&job->attachment->gradient_buffers, buffer, gradient_bytes(job, unit)) &&
	       buffer_state(job, buffer) == state;
}

static uint32_t count_in_state(const struct tierd_job *job, uint32_t unit, enum gradient_buffer_state state)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < buffer_count(job); i++)
		count += is_in_state(job, i, unit, state);
	return count;
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

/* The bytes of a buffer that is held or pushed. */
static struct gradient_span span_of(const struct tierd_job *job, uint32_t buffer)
{
	const struct gradient_buffer *own = &job->attachment->buffers[buffer];

	return (struct gradient_span){ own->offset, gradient_bytes(job, own->unit) };
}

static unsigned held_spans(const struct tierd_job *job, struct gradient_span spans[WIRE_MAX_GRADIENT_BUFFERS])
{
	unsigned count = 0;

	for (uint32_t i = 0; i < buffer_count(job) && count < WIRE_MAX_GRADIENT_BUFFERS; i++)
		if (buffer_state(job, i) == GRADIENT_BUFFER_HELD)
			spans[count++] = span_of(job, i);
	return count;
}

/* Pushed buffers that overlap these bytes. */
static uint32_t count_pushed(const struct tierd_job *job, struct gradient_span span)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < buffer_count(job); i++)
		count += buffer_state(job, i) == GRADIENT_BUFFER_PUSHED &&
			 gradient_spans_meet(span_of(job, i), span);
	return count;
}

/* ---- Take ---- */

/* The padding is zeroed, because it is summed and measured, and no caller writes it. With TIERD_DEBUG=leases
 * an overwritten buffer is filled with NaN, which shows what the caller has not written. */
static int clear(const struct unit *unit, const struct buffer_writer *writer, char *address, uint64_t dirty,
		 bool is_overwritten, bool has_debug)
{
	int r = 0;

	if (!is_overwritten || has_debug)
		r = buffer_fill(writer, address, is_overwritten ? 0xff : 0, dirty);
	if (r == 0 && is_overwritten)
		r = unit_clear_gradient_padding(unit, writer, address);
	return r;
}

/* Returns how many bytes of it may not be zero, and notes that from now on all of them may not be. */
static uint64_t make_dirty(struct attachment *attachment, struct gradient_span span)
{
	uint64_t dirty = size_rest(attachment->gradients_end, span.first);

	if (attachment->gradients_end < span.first + span.bytes)
		attachment->gradients_end = span.first + span.bytes;
	return dirty < span.bytes ? dirty : span.bytes;
}

/* Host memory takes its time. A stream does so later, in its order. */
static int clear_for(struct tierd_job *job, uint32_t buffer, const struct buffer_writer *writer,
		     uint64_t dirty, bool is_overwritten)
{
	bool has_debug = job->attachment->host.debug != NULL;
	const struct unit *unit = job->units[job->attachment->buffers[buffer].unit];
	char *address = buffer_address(job, buffer);
	struct gradient_buffer *own;

	if (writer->gpu)
		return clear(unit, writer, address, dirty, is_overwritten, has_debug);
	own = buffer_begin_zeroing(job, buffer);
	clear(unit, writer, address, dirty, is_overwritten, has_debug);
	buffer_end_zeroing(job, own);
	return 0;
}

/* Behind what other streams may still write there. Its kernels write there, too, also if there is nothing to
 * be zeroed. */
static int begin_stream(const struct tierd_job *job, const struct buffer_writer *writer)
{
	uint64_t event = job->attachment->gradients_behind;
	int r = event > 0 ? gpu_follow(writer->gpu, event, writer->stream) : 0;

	return r < 0 ? r : gpu_note(writer->gpu, writer->stream);
}

/* What is pushed from a GPU comes to the same bytes of host memory. Those of the GPU may have any value. */
static int hand_out(struct tierd_job *job, uint32_t buffer, uint32_t unit, uint64_t offset,
		    bool is_overwritten, const struct buffer_writer *writer)
{
	struct gradient_buffer *own = &job->attachment->buffers[buffer];
	struct gradient_span span = { offset, gradient_bytes(job, unit) };
	uint64_t dirty = make_dirty(job->attachment, span);
	int r;

	own->unit = unit;
	own->offset = offset;
	own->place = buffer_writer_place(writer);
	own->stream = writer->stream;
	own->event = 0;
	if (room_of(job))
		gradient_room_take(room_of(job), span);
	if (writer->gpu || (is_overwritten && job->attachment->host.debug))
		dirty = span.bytes;
	buffer_set_state(job, buffer, GRADIENT_BUFFER_HELD);
	r = writer->gpu ? begin_stream(job, writer) : 0;
	if (r == 0)
		r = clear_for(job, buffer, writer, dirty, is_overwritten);
	if (r < 0)
		buffer_give_back(job, buffer);
	return r;
}

/* Waits for a buffer, or for the bytes of a span in a room. */
static int wait_for_buffer(struct tierd_job *job, uint32_t unit, uint32_t pushed, struct gradient_span span)
{
	Tierd__Wire__BufferWait wait = TIERD__WIRE__BUFFER_WAIT__INIT;

	wait.job = job->number;
	wait.epoch = job->epoch;
	wait.unit = unit;
	wait.pushed = pushed;
	wait.offset = span.first;
	wait.bytes = span.bytes;
	uint64_t start = clock_now_ns();
	int r = ticket_call(job, WIRE_REQUEST(BUFFER_WAIT, buffer_wait, &wait));

	job->gradient_wait_ns += clock_now_ns() - start;
	return r;
}

static unsigned long long kib(uint64_t bytes)
{
	return size_divide_up(bytes, KIB);
}

/* The buffers that this rank holds leave no place for the unit in its room. */
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

/* This rank holds all buffers that the unit may use. */
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

/* Finds a free buffer for the unit; NO_BUFFER: it has waited, and the caller tries again. */
static int find_fixed(struct tierd_job *job, uint32_t unit, uint32_t *ret_buffer, uint64_t *ret_offset)
{
	/* Counted first: if a buffer comes back later, the daemon knows that the count is old. */
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
	/* Counted first, as above. */
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

static int take_buffer(struct tierd_job *job, uint32_t unit, bool is_overwritten,
		       const struct buffer_writer *writer)
{
	uint32_t buffer = NO_BUFFER;
	uint64_t offset = 0;
	int r = room_of(job) ? find_in_room(job, unit, &buffer, &offset)
			     : find_fixed(job, unit, &buffer, &offset);

	if (r == 0 && buffer != NO_BUFFER)
		r = hand_out(job, buffer, unit, offset, is_overwritten, writer);
	return r;
}

static int check_place(const struct tierd_job *job, uint32_t buffer, const struct buffer_writer *writer)
{
	const struct gradient_buffer *own = &job->attachment->buffers[buffer];

	if (own->place == buffer_writer_place(writer))
		return 0;
	return message_fail(-EBUSY,
			    "this rank holds a buffer for the gradients of unit \"%s\" %s already; push or "
			    "discard that first",
			    job_unit_name(job, own->unit),
			    own->place == PLACE_GPU ? "on its GPU" : "in host memory");
}

/* Checks everything again after the lock was released: over another connection nothing is mapped on a GPU. */
static int gradients_locked(struct tierd_job *job, uint32_t unit, uint32_t flags,
			    const struct buffer_writer *writer, uint32_t *ret_buffer)
{
	uint32_t buffer = NO_BUFFER;
	int r = job_check_unit(job, unit);

	if (r == 0 && !unit_is_trainable(job->units[unit]))
		r = message_fail(-EINVAL, "unit \"%s\" has no gradients: all its tensors are frozen",
				 job_unit_name(job, unit));
	while (r == 0) {
		r = writer->gpu ? gpu_have_gradients(job) : 0;
		if (r < 0)
			break;
		buffer = buffer_held(job, unit);
		if (buffer == NO_BUFFER)
			r = take_buffer(job, unit, flags & TIERD_GRADIENTS_OVERWRITE, writer);
		else if (buffer_is_being_zeroed(job, buffer))
			buffer_wait_for_zeroing(job);
		else
			break;
		if (r == 0)
			r = job_check(job, JOB_READY);
	}
	if (r == 0)
		r = check_place(job, buffer, writer);
	if (r < 0)
		return r;
	job->attachment->buffers[buffer].stream = writer->stream;
	*ret_buffer = buffer;
	return 0;
}

int gradients_show(struct tierd_job *job, uint32_t unit, uint32_t flags, const struct buffer_writer *writer,
		   struct tierd_view *ret_gradients)
{
	uint32_t buffer;
	int r = gradients_locked(job, unit, flags, writer, &buffer);

	if (r == 0)
		*ret_gradients = (struct tierd_view){ .base = buffer_address(job, buffer),
						      .offsets = job->units[unit]->gradient_offsets,
						      .version = job->awaited };
	return r;
}

int gradients_check_flags(uint32_t flags, const char *call)
{
	if (flags & ~(uint32_t)TIERD_GRADIENTS_OVERWRITE)
		return message_fail(-EINVAL, "0x%x has flags that %s does not know", flags, call);
	return 0;
}

int tierd_gradients_with(struct tierd_job *job, uint32_t unit, uint32_t flags,
			 struct tierd_view *ret_gradients)
{
	const struct buffer_writer writer = { .gpu = NULL };
	int r = CHECK_GIVEN(job, ret_gradients);

	if (r == 0)
		r = gradients_check_flags(flags, "tierd_gradients_with");
	return r < 0 ? r : JOB_CALL(job, JOB_READY, gradients_show(job, unit, flags, &writer, ret_gradients));
}

int tierd_gradients(struct tierd_job *job, uint32_t unit, struct tierd_view *ret_gradients)
{
	return tierd_gradients_with(job, unit, 0, ret_gradients);
}

/* ---- Discard ---- */

int tierd_discard(struct tierd_job *job, uint32_t unit)
{
	uint32_t buffer;
	int r = CHECK_GIVEN(job);

	if (r == 0)
		r = left_lock_node(job);
	if (r < 0)
		return r;
	while (buffer_is_being_zeroed(job, buffer_held(job, unit)))
		buffer_wait_for_zeroing(job);
	buffer = buffer_held(job, unit);
	if (buffer == NO_BUFFER)
		r = message_fail(-EINVAL, "no gradient buffer of unit \"%s\" is held",
				 job_unit_name(job, unit));
	else
		buffer_give_back(job, buffer);
	connection_exit(job->node);
	return r;
}
