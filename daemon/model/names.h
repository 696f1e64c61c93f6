/* Names that are unique among themselves, whoever chose them. */
#ifndef TIERD_DAEMON_NAMES_H
#define TIERD_DAEMON_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A table of them, by their hashes: a name lies at its own place or behind it, with no hole between. Of zeros
 * it is empty. */
struct names {
	const char **texts; /* borrowed; NULL: a hole */
	uint32_t count;
	uint32_t places; /* a power of two, or 0; a quarter at least are holes */
};

/* What each takes beside its text, at most: just after the table has grown, and while it grows. */
#define NAMES_BYTES (4 * sizeof(char *))

bool names_have(const struct names *names, const char *text);

/* The text stays the caller's, until it is removed. -ENOMEM. */
int names_add(struct names *names, const char *text);

/* Only if it is this very string, not an equal one that is somewhere else. Takes NULL. */
void names_remove(struct names *names, const char *text);

void names_clear(struct names *names);

#endif
