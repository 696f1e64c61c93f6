#include "daemon/service/systemd.h"

#ifdef HAVE_SYSTEMD
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include "common/cleanup.h"
#include "common/log.h"

/* The same socket file: /var/run and /run are two names of one folder. */
static bool is_same_file(const char *one, const char *other)
{
	struct stat left, right;

	return strcmp(one, other) == 0 || (stat(one, &left) == 0 && stat(other, &right) == 0 &&
					   left.st_dev == right.st_dev && left.st_ino == right.st_ino);
}

static int check_path(int fd, const char *path)
{
	struct sockaddr_un address = { 0 };
	socklen_t size = sizeof(address) - 1;

	if (getsockname(fd, (struct sockaddr *)&address, &size) < 0)
		return -errno;
	if (address.sun_path[0] != '\0' && is_same_file(address.sun_path, path))
		return 0;
	log_error("the service manager passed a socket at %s, but the configuration says socket = %s; make "
		  "ListenStream= in tierd.socket and the configuration agree",
		  address.sun_path[0] != '\0' ? address.sun_path : "no path", path);
	return -EINVAL;
}

int activation_take(const char *path, int *ret_socket)
{
	int count = sd_listen_fds(true), r;

	*ret_socket = -1;
	if (count == 0)
		return 0;
	if (count < 0) {
		log_error("the socket that the service manager promised cannot be taken: %s",
			  strerror(-count));
		return count;
	}
	if (count > 1) {
		log_error("the service manager passed %d sockets; tierd takes one, so tierd.socket may have "
			  "one "
			  "ListenStream= only",
			  count);
		return -EINVAL;
	}
	if (sd_is_socket_unix(SD_LISTEN_FDS_START, SOCK_STREAM, true, NULL, 0) <= 0) {
		log_error(
			"what the service manager passed is no Unix stream socket that listens; tierd.socket "
			"needs ListenStream=%s, and Accept=no",
			path);
		return -EINVAL;
	}
	r = check_path(SD_LISTEN_FDS_START, path);
	if (r == 0)
		*ret_socket = SD_LISTEN_FDS_START;
	return r;
}
#else
int activation_take(const char *path, int *ret_socket)
{
	*ret_socket = -1;
	return 0;
}
#endif
