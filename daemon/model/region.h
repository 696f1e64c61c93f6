/* A region allocates many small pieces of memory side by side, and frees them all at once. */
#ifndef TIERD_DAEMON_REGION_H
#define TIERD_DAEMON_REGION_H

#include <stddef.h>

struct region_block;

/* Of zeros it is empty. */
struct region {
	struct region_block *blocks; /* the newest first; owned */
	size_t used;		     /* of the newest */
};

/* Zeroed, and aligned for pointers and numbers of 64 bits. NULL: out of memory. */
void *region_alloc(struct region *region, size_t size);
/* A copy of a text, which is not aligned. */
char *region_copy_text(struct region *region, const char *text);

/* Frees what was allocated since the copy before was made of it. */
void region_rewind(struct region *region, struct region before);

/* All of it. */
void region_clear(struct region *region);

#endif
