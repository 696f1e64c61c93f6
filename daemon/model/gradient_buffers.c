/* An embedding is often far larger than the layers, of which there are many, and is pushed once where they
 * are pushed one after the other. So it gets a buffer of its own, and they get as many as are wanted, which
 * are as large as the largest of them: they overlap as ever. Two units share that buffer where there are so
 * many that the two are an exception: an embedding and a head. Which of that takes least is what counts; of
 * units that are alike that is as many buffers for all.
 *
 * In a room, whose bytes the job was opened with, the rank itself says where a buffer lies, and with its push
 * it tells. What it holds nobody else looks at. */

#include <errno.h>

#include "common/cleanup.h"
#include "common/size.h"
#include "daemon/gradients/gradients.h"
#include "daemon/model/gradient_buffers.h"
#include "daemon/model/job.h"
#include "daemon/request/request.h"

/* Of so many units, two may be an exception. */
#define MANY_UNITS 8

uint64_t gradient_buffers_bytes(const struct gradient_buffers *buffers)
{
	if (buffers->room > 0)
		return buffers->room;
	return size_sum(size_product(buffers->count - 1, buffers->bytes), buffers->last_bytes);
}

struct gradient_buffers gradient_buffers_plan(const struct catalog *catalog, uint32_t wanted, uint64_t room)
{
	uint64_t most = catalog->gradient_bytes_maximum;
	struct gradient_buffers best = { wanted, most, most, 0 };

	if (room > 0 && most > 0)
		return (struct gradient_buffers){ wanted, 0, 0, size_align(room > most ? room : most, 4096) };
	for (unsigned i = 0; i < ARRAY_LENGTH(catalog->gradient_bytes_next); i++) {
		struct gradient_buffers other = { wanted + 1, catalog->gradient_bytes_next[i], most, 0 };

		if (other.bytes > 0 && (i == 0 || catalog->trained_units >= MANY_UNITS) &&
		    gradient_buffers_bytes(&other) < gradient_buffers_bytes(&best))
			best = other;
	}
	return best;
}

/* ---- Where they lie ---- */

/* Of one that is on its way. */
static struct gradient_span span_of(const struct member *member, uint32_t buffer)
{
	const struct contribution *contribution = &member->contributions[buffer];

	return (struct gradient_span){ (uint64_t)((const char *)contribution->data - member->gradients.base),
				       unit_gradient_bytes(&member->job->catalog.units[contribution->unit]) };
}

bool gradient_buffers_block(const struct member *member, uint32_t buffer, struct gradient_span wanted)
{
	return member->contributions[buffer].is_active &&
	       gradient_spans_meet(span_of(member, buffer), wanted);
}

/* Without a room those that take the unit lie side by side. */
struct gradient_span gradient_buffers_wanted(const struct member *member, const Tierd__Wire__BufferWait *wait)
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

uint64_t gradient_buffers_offset(const struct member *member, const Tierd__Wire__Push *push)
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
		if (gradient_buffers_block(member, i, span))
			return refuse(message, size, -EINVAL,
				      "the gradients of unit \"%s\" lie where gradient buffer %u lies, which "
				      "is on its way",
				      unit->name, i);
	return 0;
}

int gradient_buffers_check(const struct member *member, const Tierd__Wire__Push *push, char *message,
			   size_t size)
{
	if (push->buffer >= member->buffer_count)
		return refuse(message, size, -EINVAL, "there is no gradient buffer %u", push->buffer);
	if (member->contributions[push->buffer].is_active)
		return refuse(message, size, -EINVAL, "gradient buffer %u is on its way already",
			      push->buffer);
	if (!member_buffer_takes(member, push->buffer, push->unit) ||
	    (push->offset > 0 && member->job->gradient_buffers.room == 0))
		return refuse(message, size, -EINVAL, "gradient buffer %u is not for unit \"%s\"",
			      push->buffer, member->job->catalog.units[push->unit].name);
	return member->job->gradient_buffers.room > 0 ? check_room(member, push, message, size) : 0;
}

uint64_t gradient_absent_bytes(const struct job *job)
{
	return size_divide_up(job->catalog.unit_tensors, 8);
}
