/* Pieces: the reads of tierd_read_many() and tierd_reader_read_many(). One request is for as many as fit into
 * the exchange window side by side. */
#ifndef TIERD_CLIENT_PIECES_H
#define TIERD_CLIENT_PIECES_H

#include "client/library/connection/connection.h"
#include "client/library/connection/mapping.h"
#include "proto/vocabulary.h"

struct pieces {
	const char *reads; /* as given: a program of a later version may have made them larger */
	size_t count, stride;
	size_t next;   /* the first read that is not complete */
	uint64_t done; /* elements of it */

	/* Of the request that is made. */
	unsigned filled;
	Tierd__Wire__TensorPiece wire[WIRE_MAX_PIECES], *pointers[WIRE_MAX_PIECES];
	bool to_memory; /* in place of the window */
	char *places[WIRE_MAX_PIECES];
	uint64_t bytes[WIRE_MAX_PIECES];
};

/* -EINVAL: a read is wrong. Freed by free(). */
int pieces_new(const struct tierd_read *reads, size_t count, struct pieces **ret_pieces);

/* Makes the next request; filled is 0 if there is nothing left to be read. What is wanted within memory,
 * which may be NULL, is written there by tierd, and the rest to the window. find returns the bytes of an
 * element in the window, or the error that the elements do not exist. */
int pieces_fill(struct pieces *pieces, const struct mapping *window, const struct mapping *memory,
		int (*find)(const void *owner, const struct tierd_read *read, uint64_t *ret_bytes),
		const void *owner);

/* Copies the values of the request from the window to their places, unless tierd has written them there. */
void pieces_land(const struct pieces *pieces, const struct mapping *window);

#endif
