#include "client/library/pages/gradient_room.h"

/* Small units, such as norms and biases, are held for long: their gradients come one by one while layers are
 * pushed. They lie at the front, so that they do not split the space that a large unit needs. */
#define SMALL_PART 16
#define FRONT_PART 8

static bool is_small(const struct gradient_room *room, uint64_t bytes)
{
	return bytes <= room->bytes / SMALL_PART;
}

static uint64_t front_bytes(const struct gradient_room *room)
{
	return room->bytes / FRONT_PART;
}

/* Whether a held span overlaps this one, and where it ends. */
static bool find_held(const struct gradient_span *held, unsigned count, struct gradient_span span,
		      uint64_t *ret_end)
{
	for (unsigned i = 0; i < count; i++)
		if (gradient_spans_meet(held[i], span)) {
			*ret_end = held[i].first + held[i].bytes;
			return true;
		}
	return false;
}

static bool find_within(const struct gradient_span *held, unsigned count, struct gradient_span span,
			uint64_t end, uint64_t *ret_offset)
{
	while (span.bytes <= end && span.first <= end - span.bytes) {
		if (!find_held(held, count, span, &span.first)) {
			*ret_offset = span.first;
			return true;
		}
	}
	return false;
}

static bool find_around(const struct gradient_span *held, unsigned count, struct gradient_span span,
			uint64_t end, uint64_t *ret_offset)
{
	return find_within(held, count, span, end, ret_offset) ||
	       find_within(held, count, (struct gradient_span){ 0, span.bytes }, end, ret_offset);
}

bool gradient_room_find(const struct gradient_room *room, const struct gradient_span *held, unsigned count,
			uint64_t bytes, uint64_t *ret_offset)
{
	if (is_small(room, bytes) &&
	    find_around(held, count, (struct gradient_span){ room->next_small, bytes }, front_bytes(room),
			ret_offset))
		return true;
	return find_around(held, count, (struct gradient_span){ room->next, bytes }, room->bytes, ret_offset);
}

void gradient_room_take(struct gradient_room *room, struct gradient_span span)
{
	uint64_t end = span.first + span.bytes;

	if (is_small(room, span.bytes) && end <= front_bytes(room))
		room->next_small = end;
	else
		room->next = end;
}

void gradient_room_rewind(struct gradient_room *room)
{
	room->next = front_bytes(room);
	room->next_small = 0;
}
