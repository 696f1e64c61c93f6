/* A hoard: many small pieces of memory side by side, all of which are given back at once. */
#ifndef TIERD_DAEMON_HOARD_H
#define TIERD_DAEMON_HOARD_H

#include <stddef.h>

struct hoard_block;

/* Of zeros it is empty. */
struct hoard {
	struct hoard_block *blocks; /* the newest first; owned */
	size_t used;		    /* of the newest */
};

/* Zeroed, and aligned for pointers and numbers of 64 bits. NULL: out of memory. */
void *hoard_take(struct hoard *hoard, size_t size);
/* A copy of a text: in as many bytes as it has. */
char *hoard_copy_text(struct hoard *hoard, const char *text);

/* Gives back what was taken since the hoard was as in before. */
void hoard_return(struct hoard *hoard, struct hoard before);

/* All of it. */
void hoard_clear(struct hoard *hoard);

#endif
