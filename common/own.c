#include "common/own.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"

/* ---- Folders ---- */

/* Access lists count: their mask is the group's part of the mode. */
static bool is_own(const struct stat *folder)
{
	return folder->st_uid == geteuid() && !(folder->st_mode & (S_IWGRP | S_IWOTH));
}

static const char *name_user(uid_t uid, char text[32])
{
	const struct passwd *user = getpwuid(uid);

	if (user)
		snprintf(text, 32, "%s", user->pw_name);
	else
		snprintf(text, 32, "%u", (unsigned)uid);
	return text;
}

static bool is_safely_shared(const struct stat *folder)
{
	return (folder->st_uid == geteuid() || folder->st_uid == 0) &&
	       (!(folder->st_mode & (S_IWGRP | S_IWOTH)) || (folder->st_mode & S_ISVTX));
}

static int check(int fd, bool (*is_safe)(const struct stat *folder), const char *path, char *message,
		 size_t size)
{
	char owner[32], user[32];
	struct stat status;

	if (fstat(fd, &status) < 0) {
		int r = -errno;

		snprintf(message, size, "%s: %s", path, strerror(-r));
		return r;
	}
	if (is_safe(&status))
		return 0;
	name_user(geteuid(), user);
	if (status.st_uid != geteuid() && (is_safe == is_own || status.st_uid != 0))
		snprintf(message, size,
			 "%s belongs to %s, and has to be %s's own: move it elsewhere, or, if you trust what "
			 "is in it, as root: chown -R %s %s",
			 path, name_user(status.st_uid, owner), user, user, path);
	else
		snprintf(message, size,
			 "others than %s may write to %s (mode %04o), and so could replace what is in it: "
			 "chmod go-w %s",
			 user, path, (unsigned)(status.st_mode & 07777), path);
	return -EPERM;
}

int own_check_folder(int fd, const char *path, char *message, size_t size)
{
	return check(fd, is_own, path, message, size);
}

int own_check_shared(int fd, const char *path, char *message, size_t size)
{
	return check(fd, is_safely_shared, path, message, size);
}

int own_open_folder(int at, const char *name)
{
	int follow = at == AT_FDCWD ? 0 : O_NOFOLLOW;
	_cleanup_close_ int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow);
	struct stat status;

	if (fd < 0 || fstat(fd, &status) < 0)
		return -errno;
	return is_own(&status) ? TAKE_FD(fd) : -EPERM;
}

/* ---- Files ---- */

static int open_regular(int at, const char *name, int flags, mode_t mode)
{
	_cleanup_close_ int fd =
		openat(at, name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, mode);
	struct stat status;

	if (fd < 0)
		return errno == ELOOP || errno == EISDIR ? -ENXIO : -errno;
	if (fstat(fd, &status) < 0)
		return -errno;
	return S_ISREG(status.st_mode) ? TAKE_FD(fd) : -ENXIO;
}

int own_open(int at, const char *name, int flags, mode_t mode)
{
	const char *slash = strchr(name, '/');
	_cleanup_close_ int folder_fd = -1;
	char folder[NAME_MAX + 1];

	if (!slash)
		return open_regular(at, name, flags, mode);
	if (slash - name >= (ptrdiff_t)sizeof(folder))
		return -ENAMETOOLONG;
	memcpy(folder, name, (size_t)(slash - name));
	folder[slash - name] = '\0';
	folder_fd = own_open_folder(at, folder);
	return folder_fd < 0 ? folder_fd : open_regular(folder_fd, slash + 1, flags, mode);
}
