#include "daemon/session/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "common/cleanup.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* In /proc/PID/stat since the kernel has it: PF_EXITING. */
#define FLAG_EXITING 0x4

int peer_open_process(int socket, pid_t pid)
{
	int process;
	socklen_t size = sizeof(process);

	/* Unlike the number, what the kernel kept with the socket cannot have passed to another process. */
	if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &process, &size) < 0) {
		if (errno != ENOPROTOOPT)
			return -errno;
		process = (int)syscall(SYS_pidfd_open, pid, 0);
	}
	if (process < 0)
		return -errno;
	if (fcntl(process, F_SETFD, FD_CLOEXEC) < 0) {
		fd_close(process);
		return -errno;
	}
	return process;
}

int peer_groups(int socket, gid_t **ret_groups, unsigned *ret_count)
{
	socklen_t size = 0;
	gid_t *groups;

	/* The first time around it tells how much room they take. */
	if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, NULL, &size) < 0 && errno != ERANGE)
		return -errno;
	groups = malloc(size ? size : 1);
	if (!groups)
		return -ENOMEM;
	if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups, &size) < 0) {
		int r = -errno;

		free(groups);
		return r;
	}
	*ret_groups = groups;
	*ret_count = size / sizeof(*groups);
	return 0;
}

static bool is_exiting(pid_t pid)
{
	_cleanup_close_ int fd = -1;
	char path[64], text[512], *state;
	unsigned flags;
	ssize_t length;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	length = read(fd, text, sizeof(text) - 1);
	if (length <= 0)
		return false;
	text[length] = '\0';
	/* The name before it may contain anything, parentheses too. */
	state = strrchr(text, ')');
	return state && sscanf(state + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
	       (flags & FLAG_EXITING) != 0;
}

static bool has_exited(int process)
{
	struct pollfd waiting = { .fd = process, .events = POLLIN };

	return poll(&waiting, 1, 0) == 1;
}

bool peer_is_dying(pid_t pid, int process)
{
	/* It may end, and be reaped, between the first two looks. */
	return has_exited(process) || is_exiting(pid) || has_exited(process);
}
