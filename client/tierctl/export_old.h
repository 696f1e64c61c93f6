/* What an earlier export has left under the name of a new one, and the new one does not replace: shards of
 * its index, that index, or a file in place of shards. */
#ifndef TIERD_CLIENT_TIERCTL_EXPORT_OLD_H
#define TIERD_CLIENT_TIERCTL_EXPORT_OLD_H

#include "client/tierctl/export_files.h"

struct export_old {
	char **paths; /* in the order in which they go: what speaks of others first */
	size_t count, capacity;
};

/* Before the new files are published: one of them may be the index that names the old ones. Of that only
 * files count that are named as exports name theirs. An exit code, after a message. */
int export_old_find(struct export_old *old, const struct export_files *files);
/* After that. An exit code, after a message: what could not go is named. */
int export_old_remove(const struct export_old *old);
void export_old_clear(struct export_old *old);

#endif
