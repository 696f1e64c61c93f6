/* A partial file: it is written under another name, beside its own, and gets that when it is complete. */
#ifndef TIERD_CLIENT_TIERCTL_PARTIAL_H
#define TIERD_CLIENT_TIERCTL_PARTIAL_H

#include <stdbool.h>

#include "client/tierctl/command.h"

struct partial;

/* From here on SIGINT, SIGTERM and SIGHUP remove what is partial before they end the process. Before any
 * thread begins. */
void partial_guard(void);

/* Makes PATH.partial, empty. One that was left by a killed process is taken over; one that somebody still
 * writes is refused. An exit code, after a message. */
int partial_new(const char *path, struct partial **ret_partial);
/* Removes what was not published. */
struct partial *partial_free(struct partial *partial);
DEFINE_FREEP(struct partial *, partial_free)

/* Owned by the partial file. */
int partial_fd(const struct partial *partial);
const char *partial_path(const struct partial *partial);

/* Gives all of them their names, in their order, which a signal cannot interrupt; they have been flushed. An
 * earlier file of that name is in the way, unless it may be replaced: then the last one goes before the first
 * comes, so that it never speaks for others. */
int partial_publish(struct partial *const *partials, size_t count, bool may_replace);

#endif
