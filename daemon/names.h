/* Names that are unique among themselves, whoever chose them. */
#ifndef TIERD_DAEMON_NAMES_H
#define TIERD_DAEMON_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* Its default is exit(). */
#define HASH_NONFATAL_OOM 1
/* Its own hash has no key: names could be chosen that all meet in one bucket, and each look at it would take
 * as long as there are names. */
#define HASH_FUNCTION(text, length, value) ((value) = names_hash(text, length))
#include <uthash.h>

unsigned names_hash(const char *text, size_t length);

struct name {
	const char *text; /* borrowed */
	UT_hash_handle hh;
};

/* What each takes beside its text, with its share of the table. */
#define NAMES_BYTES (sizeof(struct name) + 2 * sizeof(UT_hash_bucket))

bool names_have(struct name *names, const char *text);

/* The text stays the caller's, until it is removed. -ENOMEM. */
int names_add(struct name **names, const char *text);

/* Only if it is this very string, not an equal one that is somewhere else. Takes NULL. */
void names_remove(struct name **names, const char *text);

void names_clear(struct name **names);

#endif
