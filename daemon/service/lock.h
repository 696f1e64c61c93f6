/* The lock of a state directory: one daemon at a time works on it. */
#ifndef TIERD_DAEMON_LOCK_H
#define TIERD_DAEMON_LOCK_H

#include <sys/types.h>

/* Creates the directory, and what is missing above it, and locks it until the descriptor that it returns is
 * closed. After a message, for which 640 bytes are enough: -EBUSY: another daemon has it; -EPERM: others
 * could replace what is in it. Otherwise -errno. */
int lock_take(const char *state_directory, char *message, size_t size);

#endif
