/* Place: where a path leads to, as an open folder and a name in it. Symbolic links lead there if they are the
 * caller's or the owner's of the folder that they lie in: another user's leads to what he may not write to.
 */
#ifndef TIERD_CLIENT_TIERCTL_PLACE_H
#define TIERD_CLIENT_TIERCTL_PLACE_H

#include <stdbool.h>

struct place {
	int folder;	  /* for calls that take a name in it: O_PATH */
	char *path;	  /* as a text, for messages */
	const char *name; /* the end of it */
	/* One of the caller's own descriptors (/dev/fd/3, say) that has no name: the kernel alone follows. */
	bool is_descriptor;
};

#define PLACE_INIT                                                                                           \
	{                                                                                                    \
		.folder = -1                                                                                 \
	}

/* Also to what is not there yet. An exit code, after a message about path and suffix. */
int place_find(const char *path, const char *suffix, struct place *ret_place);
void place_clear(struct place *place);

/* Opens what is there for writing and is no regular file. A pipe or a socket has to be the caller's or the
 * folder's owner's. A descriptor, or -errno; -EPERM: it is another user's. */
int place_open_special(const struct place *place);

#endif
