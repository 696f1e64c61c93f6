/* Where the daemon's socket is, for those who look for it. */
#ifndef TIERD_PROTO_SOCKET_PATH_H
#define TIERD_PROTO_SOCKET_PATH_H

#include <sys/un.h>

#define SOCKET_PATH_SIZE sizeof(((struct sockaddr_un *)0)->sun_path)

/* What was given, else $TIERD_SOCKET, else $XDG_RUNTIME_DIR/tierd/tierd.sock where that exists, else
 * /run/tierd/tierd.sock. NULL and "" count as not given. Borrowed from its arguments, the environment, or
 * buffer. */
const char *socket_path_choose(const char *given, char buffer[SOCKET_PATH_SIZE]);

#endif
