/* Where a rank's gradient buffers lie, and which of them are on their way.
 *
 * In a room, whose bytes the job was opened with, the rank itself says where a buffer lies, and with its push
 * it tells. What it holds nobody else looks at. */
#include <errno.h>
#include <stdlib.h>

#include "common/size.h"
#include "daemon/gradients/own.h"

int pusher_new(struct member *member)
{
	uint32_t units = member->job->catalog.unit_count;
	struct pusher *pusher = member->pusher = calloc(1, sizeof(*pusher));

	if (!pusher)
		return -ENOMEM;
	queue_init(&pusher->buffer_waiters);
	pusher->pushed = calloc(units + 1, sizeof(*pusher->pushed));
	pusher->closed_pushed = calloc(units + 1, sizeof(*pusher->closed_pushed));
	pusher->contributions = calloc(member->buffer_count, sizeof(*pusher->contributions));
	pusher->absent = calloc(member->buffer_count, gradient_absent_bytes(member->job));
	if (!pusher->pushed || !pusher->closed_pushed || !pusher->contributions || !pusher->absent)
		return -ENOMEM;
	for (uint32_t i = 0; i < member->buffer_count; i++)
		queue_init(&pusher->contributions[i].link);
	return 0;
}

void pusher_free(struct member *member)
{
	struct pusher *pusher = TAKE_PTR(member->pusher);

	if (!pusher)
		return;
	free(pusher->pushed);
	free(pusher->closed_pushed);
	free(pusher->contributions);
	free(pusher->absent);
	free(pusher);
}

/* Of one that is on its way. */
static struct gradient_span span_of(const struct member *member, uint32_t buffer)
{
	const struct contribution *contribution = &member->pusher->contributions[buffer];

	return (struct gradient_span){ (uint64_t)((const char *)contribution->data - member->gradients.base),
				       unit_gradient_bytes(&member->job->catalog.units[contribution->unit]) };
}

bool buffers_block(const struct member *member, uint32_t buffer, struct gradient_span wanted)
{
	return member->pusher->contributions[buffer].is_active &&
	       gradient_spans_meet(span_of(member, buffer), wanted);
}

/* Without a room those that take the unit lie side by side. */
struct gradient_span buffers_wanted(const struct member *member, const Tierd__Wire__BufferWait *wait)
{
	const struct gradient_buffers *buffers = &member->job->gradient_buffers;
	uint64_t others = (buffers->count - 1) * buffers->bytes;

	if (buffers->room > 0)
		return (struct gradient_span){ wait->offset, wait->bytes };
	if (!member_buffer_takes(member, 0, wait->unit))
		return (struct gradient_span){ others, buffers->last_bytes };
	return (struct gradient_span){ 0, buffers->last_bytes > buffers->bytes ? others
									       : others + buffers->bytes };
}

uint64_t buffers_offset(const struct member *member, const Tierd__Wire__Push *push)
{
	const struct gradient_buffers *buffers = &member->job->gradient_buffers;

	return buffers->room > 0 ? push->offset : gradient_buffer_offset(buffers, push->buffer);
}

static int check_room(const struct member *member, const Tierd__Wire__Push *push, char *message, size_t size)
{
	const struct unit *unit = &member->job->catalog.units[push->unit];
	struct gradient_span span = { push->offset, unit_gradient_bytes(unit) };

	if (span.first % UNIT_ALIGN_BYTES != 0 ||
	    span.first > size_rest(member->job->gradient_buffers.room, span.bytes))
		return refuse(message, size, -EINVAL,
			      "the gradients of unit \"%s\" cannot lie at byte %llu of the rank's room",
			      unit->name, (unsigned long long)span.first);
	for (uint32_t i = 0; i < member->buffer_count; i++)
		if (buffers_block(member, i, span))
			return refuse(message, size, -EINVAL,
				      "the gradients of unit \"%s\" lie where gradient buffer %u lies, which "
				      "is on its way",
				      unit->name, i);
	return 0;
}

int buffers_check(const struct member *member, const Tierd__Wire__Push *push, char *message, size_t size)
{
	if (push->buffer >= member->buffer_count)
		return refuse(message, size, -EINVAL, "there is no gradient buffer %u", push->buffer);
	if (member->pusher->contributions[push->buffer].is_active)
		return refuse(message, size, -EINVAL, "gradient buffer %u is on its way already",
			      push->buffer);
	if (!member_buffer_takes(member, push->buffer, push->unit) ||
	    (push->offset > 0 && member->job->gradient_buffers.room == 0))
		return refuse(message, size, -EINVAL, "gradient buffer %u is not for unit \"%s\"",
			      push->buffer, member->job->catalog.units[push->unit].name);
	return member->job->gradient_buffers.room > 0 ? check_room(member, push, message, size) : 0;
}
