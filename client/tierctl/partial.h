/* A partial file: it is written under another name, beside its own, and gets that when it is complete. */
#ifndef TIERD_CLIENT_TIERCTL_PARTIAL_H
#define TIERD_CLIENT_TIERCTL_PARTIAL_H

#include <stdbool.h>

#include "client/tierctl/command.h"

struct partial;

/* From here on SIGINT, SIGTERM, SIGHUP and SIGQUIT remove what is partial before they end the process. Before
 * any thread begins. */
void partial_guard(void);

/* For a handler of signals that ends a process of one thread. */
void partial_remove_all(void);

/* A file that is there is in the way, unless it may be replaced; what is no regular file always is. An exit
 * code, after a message. */
int partial_check(const char *path, bool may_replace);

/* Makes PATH.partial, empty; where PATH is a symbolic link, that of what it leads to. One that was left by a
 * killed process is taken over; one that somebody still writes is refused. An exit code, after a message. */
int partial_new(const char *path, struct partial **ret_partial);
/* Removes what was not published. */
struct partial *partial_free(struct partial *partial);
DEFINE_FREEP(struct partial *, partial_free)

/* Owned by the partial file. */
int partial_fd(const struct partial *partial);
/* Where it will be: no symbolic link. */
const char *partial_path(const struct partial *partial);

/* Gives all of them their names, in their order, which a signal cannot interrupt; they have been flushed. An
 * earlier file of that name is in the way, unless it may be replaced: then the last one goes before the first
 * comes, so that it never speaks for others. */
int partial_publish(struct partial *const *partials, size_t count, bool may_replace);

#endif
