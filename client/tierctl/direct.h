/* Writing a file from its beginning to its end, past the page cache where that is possible, while what comes
 * next is being made. */
#ifndef TIERD_CLIENT_TIERCTL_DIRECT_H
#define TIERD_CLIENT_TIERCTL_DIRECT_H

#include <stddef.h>
#include <stdint.h>

#include "common/cleanup.h"

struct direct;

/* The descriptor stays the caller's, and is used until the end. The file system reserves the bytes. -ENOSPC:
 * it has no room for them; -EFBIG: the file may not grow so far. */
int direct_new(int fd, uint64_t bytes, struct direct **ret_direct);
/* Waits for what is being written, and forgets the rest. */
struct direct *direct_free(struct direct *direct);
DEFINE_FREEP(struct direct *, direct_free)

/* Where the next bytes go, and for how many there is room: a multiple of 8 as long as what was written is.
 * Waits while nothing is free. */
int direct_room(struct direct *direct, char **ret_room, size_t *ret_bytes);
/* The caller has filled this many of them. */
void direct_advance(struct direct *direct, size_t bytes);

int direct_append(struct direct *direct, const void *bytes, size_t length);

/* Waits until all is written, and flushed. */
int direct_finish(struct direct *direct);

#endif
