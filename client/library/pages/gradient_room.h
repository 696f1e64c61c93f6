/* A room of gradients: bytes in which the buffers of a rank lie, each as large as its unit's gradients.
 *
 * A buffer lies behind the one before it, in a circle, beside what the rank holds. Where it lies does not
 * follow from which of those that were pushed have come back: their places are waited for. So whether there
 * is a place at all follows from the calls of a step alone, and is the same in each run and rank. */
#ifndef TIERD_CLIENT_GRADIENT_ROOM_H
#define TIERD_CLIENT_GRADIENT_ROOM_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/pages.h"

struct gradient_room {
	uint64_t bytes;
	uint64_t next, next_small;
};

/* held: what the rank holds, in any order. False: there is no place for so many bytes beside that. */
bool gradient_room_find(const struct gradient_room *room, const struct gradient_span *held, unsigned count,
			uint64_t bytes, uint64_t *ret_offset);

/* A buffer was taken there. */
void gradient_room_take(struct gradient_room *room, struct gradient_span span);

/* The next buffer lies where the first one did. */
void gradient_room_rewind(struct gradient_room *room);

#endif
