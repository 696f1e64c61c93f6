#include "daemon/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "common/cleanup.h"

static int make_folders(const char *path)
{
	_cleanup_free_ char *prefix = strdup(path);

	if (!prefix)
		return -ENOMEM;
	for (char *slash = strchr(prefix + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(prefix, 0700) < 0 && errno != EEXIST)
			return -errno;
		*slash = '/';
	}
	return mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

static pid_t read_holder(int fd)
{
	char text[32] = "";

	return pread(fd, text, sizeof(text) - 1, 0) > 0 ? (pid_t)atoi(text) : 0;
}

static int write_holder(int fd)
{
	char text[32];
	int length = snprintf(text, sizeof(text), "%d\n", getpid());

	if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)length, 0) != length)
		return -errno;
	return 0;
}

int lock_take(const char *state_directory, pid_t *ret_holder)
{
	_cleanup_free_ char *path = NULL;
	_cleanup_close_ int fd = -1;
	int r = make_folders(state_directory);

	if (r < 0)
		return r;
	if (asprintf(&path, "%s/lock", state_directory) < 0)
		return -ENOMEM;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return -errno;
		*ret_holder = read_holder(fd);
		return -EBUSY;
	}
	r = write_holder(fd);
	return r < 0 ? r : TAKE_FD(fd);
}
