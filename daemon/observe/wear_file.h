/* The file of the state directory that keeps what was written to each path, so that a restart forgets
 * nothing. */
#ifndef TIERD_DAEMON_WEAR_FILE_H
#define TIERD_DAEMON_WEAR_FILE_H

#include <stddef.h>

#include "daemon/observe/wear.h"

#define WEAR_FILE_MAX_PATHS 64
#define WEAR_FILE_MAX_PATH 4096

struct wear_entry {
	char *path; /* owned */
	struct wear wear;
};

/* Paths that are not configured any more stay in it: they may come back. */
struct wear_file {
	struct wear_entry entries[WEAR_FILE_MAX_PATHS];
	size_t count;
};

void wear_file_clear(struct wear_file *file);
/* The one of the path, a new one if need be; NULL: there are too many, or no memory. */
struct wear *wear_file_find(struct wear_file *file, const char *path);

/* -EBADMSG: these are not what wear_file_encode() has made; nothing is taken. -ENOMEM. */
int wear_file_decode(struct wear_file *file, const void *bytes, size_t length);
/* The caller frees the bytes. -ENOMEM. */
int wear_file_encode(const struct wear_file *file, void **ret_bytes, size_t *ret_length);

/* -ENOENT: there is none yet; -EBADMSG: it is damaged, and is called name.damaged now. Slow. */
int wear_file_read(struct wear_file *file, const char *directory);
/* In the place of the one that is there, all or nothing. Slow. */
int wear_file_write(const char *directory, const void *bytes, size_t length);

#endif
