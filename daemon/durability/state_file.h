/* State file: a small file that is there as a whole, in its old or its new form, whatever happens. All of it
 * is slow. */
#ifndef TIERD_DAEMON_STATE_FILE_H
#define TIERD_DAEMON_STATE_FILE_H

#include <stddef.h>

/* The caller frees the bytes. -ENOENT: there is none; -EFBIG: it has more than most bytes; -ENOMEM; others.
 */
int state_file_read(int folder_fd, const char *name, size_t most, void **ret_bytes, size_t *ret_length);

/* In the place of the one that is there, and safe when this returns. */
int state_file_write(int folder_fd, const char *name, const void *bytes, size_t length);

/* The same, in a folder by its path. */
int state_file_read_in(const char *directory, const char *name, size_t most, void **ret_bytes,
		       size_t *ret_length);
int state_file_write_in(const char *directory, const char *name, const void *bytes, size_t length);

/* It is called NAME.damaged from now on, or NAME.damaged-2 and so on: none that is there is lost. */
#define STATE_FILE_NAME 64
int state_file_set_aside(const char *directory, const char *name, char ret_name[STATE_FILE_NAME]);

#endif
