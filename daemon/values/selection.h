/* A selection: the elements of a job's state that a reader wants kept, as pieces of packs. */
#ifndef TIERD_DAEMON_SELECTION_H
#define TIERD_DAEMON_SELECTION_H

#include "daemon/values/copy.h"
#include "proto/frame.h"

/* A chosen tensor is one piece or several. */
#define SELECTION_MAX_PIECES 65536

struct piece {
	struct copy_range range;
	uint64_t offset; /* of its copy in the memory of all */
	uint64_t copied; /* elements */
	enum { PIECE_MISSING, PIECE_SAVING, PIECE_HERE } status;
};

/* The pieces are in the order of their packs. */
struct selection {
	struct piece *pieces; /* owned */
	uint32_t count, capacity;
	uint64_t bytes; /* that their copies take */
};

/* Finds elements of a tensor, in the state of this name, as a range of its pack. may_read_all: also states
 * that are no parameters. -EINVAL, -ENODATA, -EPERM, -ERANGE with a message for the client. */
int selection_find(const struct job *job, bool may_read_all, uint32_t unit, uint32_t tensor,
		   const char *state, uint64_t first, uint64_t count, struct copy_range *ret_range,
		   char *message, size_t size);

/* Reads what a client asks for. Errors as above, and -E2BIG, -ENOMEM; the caller clears the selection even
 * then. */
int selection_read(struct selection *selection, const struct job *job, bool may_read_all,
		   Tierd__Wire__ReaderPiece *const *pieces, size_t count, char *message, size_t size);

/* The first piece of the pack, or of one after it, or NULL. */
struct piece *selection_first(const struct selection *selection, uint32_t pack);
static inline bool selection_has(const struct selection *selection, const struct piece *piece, uint32_t pack)
{
	return piece && piece < selection->pieces + selection->count && piece->range.pack == pack;
}
#define SELECTION_FOREACH(piece, selection, of_pack)                                                         \
	for (struct piece *piece = selection_first(selection, of_pack);                                      \
	     selection_has(selection, piece, of_pack); piece++)

uint64_t selection_bytes(const struct selection *selection); /* of itself */
void selection_clear(struct selection *selection);

#endif
