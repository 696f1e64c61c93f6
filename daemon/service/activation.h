/* A socket that the service manager opened, and on which it may have accepted clients before the daemon ran.
 */
#ifndef TIERD_DAEMON_ACTIVATION_H
#define TIERD_DAEMON_ACTIVATION_H

/* Takes the socket, which must listen at path. 0: there is none, ret_socket is -1. What else was passed is
 * refused, with an error in the log. Call it once, before any other descriptor is opened. */
int activation_take(const char *path, int *ret_socket);

#endif
