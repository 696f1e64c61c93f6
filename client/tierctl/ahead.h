/* Reading a part of a file from its beginning to its end, past the page cache where that is possible, ahead
 * of who uses it. */
#ifndef TIERD_CLIENT_TIERCTL_AHEAD_H
#define TIERD_CLIENT_TIERCTL_AHEAD_H

#include <stddef.h>
#include <stdint.h>

#include "common/cleanup.h"

struct ahead;

/* Reads this many bytes from first on. The descriptor stays the caller's. It is used until the end, and may
 * lose O_DIRECT. */
int ahead_new(int fd, uint64_t first, uint64_t bytes, struct ahead **ret_ahead);
struct ahead *ahead_free(struct ahead *ahead);
DEFINE_FREEP(struct ahead *, ahead_free)

/* What comes next, in one piece of least bytes (at most AHEAD_LEAST) or more, while so many are left. Valid
 * until the next call. -ENODATA: the file ends before. */
#define AHEAD_LEAST 8
int ahead_look(struct ahead *ahead, size_t least, const char **ret_bytes, size_t *ret_length);
/* The caller has used this many of them. */
void ahead_take(struct ahead *ahead, size_t bytes);

#endif
