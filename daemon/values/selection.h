/* A selection: the elements of a job's state that a reader wants kept, as pieces of packs. */
#ifndef TIERD_DAEMON_SELECTION_H
#define TIERD_DAEMON_SELECTION_H

#include "daemon/values/copy.h"
#include "proto/frame.h"

/* Each tensor that is chosen is a piece, or several. */
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

/* Elements of a tensor, in a state of this name, as a range of its pack. What is no parameter, only where
 * may_read_all. A negative errno with a message for the client: -EINVAL, -ENODATA, -EPERM, -ERANGE. */
int selection_find(const struct job *job, bool may_read_all, uint32_t unit, uint32_t tensor,
		   const char *state, uint64_t first, uint64_t count, struct copy_range *ret_range,
		   char *message, size_t size);

/* What a client asks for; in the same way, and -E2BIG, -ENOMEM. The selection is the caller's to clear, also
 * after an error. */
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
