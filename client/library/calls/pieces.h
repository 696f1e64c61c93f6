/* Pieces: what a call reads into many places, a request after the other, each for as many as fit into the
 * exchange window side by side. */
#ifndef TIERD_CLIENT_PIECES_H
#define TIERD_CLIENT_PIECES_H

#include "client/library/connection/connection.h"
#include "client/library/connection/mapping.h"
#include "proto/vocabulary.h"

struct pieces {
	const char *reads; /* as given: a program of a later version may have made them larger */
	size_t count, stride;
	size_t next;   /* that is not whole */
	uint64_t done; /* elements of it */

	/* Of the request that is made. */
	unsigned filled;
	Tierd__Wire__TensorPiece wire[WIRE_MAX_PIECES], *pointers[WIRE_MAX_PIECES];
	bool to_memory; /* in place of the window */
	char *places[WIRE_MAX_PIECES];
	uint64_t bytes[WIRE_MAX_PIECES];
};

/* -EINVAL: what is given cannot be. To be freed by free(). */
int pieces_new(const struct tierd_read *reads, size_t count, struct pieces **ret_pieces);

/* What is to be read next; filled is 0 if there is nothing more. What is wanted within memory, which may be
 * NULL, goes there at once, and the rest to the window. find: the bytes of an element in the window, or why
 * the elements are not there. */
int pieces_fill(struct pieces *pieces, const struct mapping *window, const struct mapping *memory,
		int (*find)(const void *owner, const struct tierd_read *read, uint64_t *ret_bytes),
		const void *owner);

/* Copies them from the window to where they are wanted, unless they are there. */
void pieces_land(const struct pieces *pieces, const struct mapping *window);

#endif
