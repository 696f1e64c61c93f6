/* Own: folders that nobody else can change, and regular files in them. Whatever name is followed elsewhere
 * may be another user's by the time it is used. */
#ifndef TIERD_COMMON_OWN_H
#define TIERD_COMMON_OWN_H

#include <stddef.h>
#include <sys/types.h>

/* path: for the message. -EPERM, after a message with the remedy: it belongs to another user, or others may
 * write to it. */
int own_check_folder(int fd, const char *path, char *message, size_t size);

/* Opens a folder in one that is open, where a link leads nowhere, or by the path (AT_FDCWD) that whoever
 * configures us has given. -EPERM: it is not our own, or others may write to it. */
int own_open_folder(int at, const char *name);

/* The same of a folder in which names of ours stay ours: that of root will do, and others may write to it if
 * it is sticky, as /tmp is. */
int own_check_shared(int fd, const char *path, char *message, size_t size);

/* NAME or FOLDER/NAME, of which the folder has to be our own. Nothing but a regular file: what waits for
 * others is not waited for, and links lead nowhere. -EPERM: the folder; -ENXIO: it is no regular file. */
int own_open(int at, const char *name, int flags, mode_t mode);

#endif
