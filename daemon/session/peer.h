/* A peer is the process at the other end of a connection, as the kernel knows it. */
#ifndef TIERD_DAEMON_PEER_H
#define TIERD_DAEMON_PEER_H

#include <stdbool.h>
#include <sys/socket.h>

/* A descriptor that becomes readable when the process dies, whatever else holds the socket open by then.
 * Returns it, or -errno; -ESRCH: the process is dead already. */
int peer_open_process(int socket, pid_t pid);

/* The groups of the peer when it connected, beside the one of SO_PEERCRED; the caller frees them. */
int peer_groups(int socket, gid_t **ret_groups, unsigned *ret_count);

/* Is the process dead, or on its way: its memory is gone or going? A process that is killed closes its
 * sockets some microseconds before it counts as dead, so that process may not be readable yet when the socket
 * ends. */
bool peer_is_dying(pid_t pid, int process);

#endif
