#include "daemon/service/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/own.h"
#include "daemon/request/request.h"

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

static int refuse_held(const char *folder, pid_t holder, char *message, size_t size)
{
	char process[32] = "";

	if (holder > 0)
		snprintf(process, sizeof(process), ", pid %d", holder);
	return refuse(message, size, -EBUSY,
		      "the state directory %s is in use by another tierd%s; end that one, or choose another "
		      "--state-dir",
		      folder, process);
}

static int refuse_unusable(const char *folder, int r, char *message, size_t size)
{
	if (r == -ENXIO)
		return refuse(message, size, r,
			      "the state directory %s cannot be used: %s/lock is no regular file; remove it",
			      folder, folder);
	return refuse(
		message, size, r,
		"the state directory %s cannot be used: %s; tierd has to be able to make it and to write "
		"there, or choose another --state-dir",
		folder, strerror(-r));
}

static int check_folder(int fd, const char *folder, char *message, size_t size)
{
	char why[512];

	if (own_check_folder(fd, folder, why, sizeof(why)) == 0)
		return 0;
	return refuse(message, size, -EPERM,
		      "the state directory cannot be used: %s; or choose another --state-dir", why);
}

int lock_take(const char *state_directory, char *message, size_t size)
{
	_cleanup_close_ int folder = -1, fd = -1;
	int r = make_folders(state_directory);

	if (r < 0)
		return refuse_unusable(state_directory, r, message, size);
	folder = open(state_directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0)
		return refuse_unusable(state_directory, -errno, message, size);
	r = check_folder(folder, state_directory, message, size);
	if (r < 0)
		return r;
	fd = own_open(folder, "lock", O_RDWR | O_CREAT, 0600);
	if (fd < 0)
		return refuse_unusable(state_directory, fd, message, size);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? refuse_held(state_directory, read_holder(fd), message, size)
					    : refuse_unusable(state_directory, -errno, message, size);
	r = write_holder(fd);
	return r < 0 ? refuse_unusable(state_directory, r, message, size) : TAKE_FD(fd);
}
