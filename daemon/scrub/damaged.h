/* What is known to be damaged of a job's store: how many blocks at each place, as who has read that place
 * last has found. */
#ifndef TIERD_DAEMON_DAMAGED_H
#define TIERD_DAEMON_DAMAGED_H

#include <stddef.h>
#include <stdint.h>

/* A MiB of memory. Of a store with more of them the others are not known: it is lost either way. */
#define DAMAGED_MAX_PLACES 65536

struct damaged_place {
	uint64_t place;
	uint64_t blocks; /* never 0 */
};

/* Embedded; all zeros: nothing. */
struct damaged {
	struct damaged_place *places; /* in order */
	size_t count, capacity;
};

/* 0: it is good. Without memory, or room, a place stays unknown: the log has it. */
void damaged_set(struct damaged *damaged, uint64_t place, uint64_t blocks);
/* As damaged_set(), where fewer were known. */
void damaged_raise(struct damaged *damaged, uint64_t place, uint64_t blocks);
uint32_t damaged_blocks(const struct damaged *damaged);
void damaged_clear(struct damaged *damaged);

#endif
