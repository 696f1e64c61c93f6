#include "proto/socket_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SYSTEM_SOCKET "/run/tierd/tierd.sock"

const char *socket_path_choose(const char *given, char buffer[SOCKET_PATH_SIZE])
{
	const char *chosen = getenv("TIERD_SOCKET"), *runtime = getenv("XDG_RUNTIME_DIR");

	if (given && *given)
		return given;
	if (chosen && *chosen)
		return chosen;
	if (runtime && *runtime) {
		int length = snprintf(buffer, SOCKET_PATH_SIZE, "%s/tierd/tierd.sock", runtime);

		if (length < (int)SOCKET_PATH_SIZE && access(buffer, F_OK) == 0)
			return buffer;
	}
	return SYSTEM_SOCKET;
}
