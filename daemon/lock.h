/* The lock says that this daemon, and no other, works on a state directory. */
#ifndef TIERD_DAEMON_LOCK_H
#define TIERD_DAEMON_LOCK_H

#include <sys/types.h>

/* Creates the directory, and what is missing above it, and locks it until the descriptor that it returns is
 * closed. -EBUSY: another daemon has it; ret_holder is its pid (0: unknown). Otherwise -errno. */
int lock_take(const char *state_directory, pid_t *ret_holder);

#endif
