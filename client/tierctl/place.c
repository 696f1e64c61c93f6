#include "client/tierctl/place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "client/tierctl/command.h"

/* As many as the kernel follows. */
#define LINKS_MOST 40

/* On the way; link: the one that is a stranger's. */
struct walk {
	unsigned links;
	uid_t owner;
	char link[PATH_MAX];
};

void place_clear(struct place *place)
{
	place->folder = fd_close(place->folder);
	free(TAKE_PTR(place->path));
}

/* ---- Links ---- */

static bool is_trusted(int folder, const struct stat *file)
{
	struct stat status;

	return file->st_uid == geteuid() || (fstat(folder, &status) == 0 && file->st_uid == status.st_uid);
}

static bool is_of_processes(int folder)
{
	struct statfs status;

	return fstatfs(folder, &status) == 0 && status.f_type == PROC_SUPER_MAGIC;
}

/* Reads the link, if its owner may be trusted. said: its path, for the message. */
static int read_link(struct walk *walk, int folder, int link, const char *said, char target[PATH_MAX])
{
	struct stat status;
	ssize_t length;

	if (fstat(link, &status) < 0)
		return -errno;
	if (!is_trusted(folder, &status)) {
		walk->owner = status.st_uid;
		snprintf(walk->link, sizeof(walk->link), "%s", said);
		return -EPERM;
	}
	if (++walk->links > LINKS_MOST)
		return -ELOOP;
	length = readlinkat(link, "", target, PATH_MAX);
	if (length < 0)
		return -errno;
	if (length == PATH_MAX)
		return -ENAMETOOLONG;
	target[length] = '\0';
	return 0;
}

static bool is_link(int fd)
{
	struct stat status;

	return fstat(fd, &status) == 0 && S_ISLNK(status.st_mode);
}

/* ---- Folders ---- */

static int enter(struct walk *walk, int from, const char *path);

/* One part of the path that ends at the end of said. */
static int step(struct walk *walk, int folder, const char *name, const char *said)
{
	_cleanup_close_ int next = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	char target[PATH_MAX];
	int r;

	if (next < 0)
		return -errno;
	if (!is_link(next))
		return TAKE_FD(next);
	r = read_link(walk, folder, next, said, target);
	return r < 0 ? r : enter(walk, folder, target);
}

static int enter(struct walk *walk, int from, const char *path)
{
	_cleanup_close_ int folder =
		openat(from, path[0] == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_free_ char *said = strdup(path);
	int r = folder < 0 ? -errno : said ? 0 : -ENOMEM;

	for (char *part = said, *end; r == 0 && *part; part = end) {
		char mark;

		part += strspn(part, "/");
		end = part + strcspn(part, "/");
		if (end == part)
			break;
		mark = *end;
		*end = '\0';
		r = step(walk, folder, part, said);
		*end = mark;
		if (r < 0)
			break;
		close(folder);
		folder = r;
		r = 0;
	}
	return r < 0 ? r : TAKE_FD(folder);
}

static int enter_folder_of(struct walk *walk, const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *folder = slash ? strndup(path, (size_t)(slash + 1 - path)) : strdup(".");
	_cleanup_close_ int fd = folder ? enter(walk, AT_FDCWD, folder) : -ENOMEM;
	struct stat status;

	if (fd < 0)
		return fd;
	if (fstat(fd, &status) < 0)
		return -errno;
	*ret_name = slash ? slash + 1 : path;
	return S_ISDIR(status.st_mode) ? TAKE_FD(fd) : -ENOTDIR;
}

/* ---- The last part ---- */

/* To what the link says, from where it lies. */
static int follow(struct place *place, const char *target)
{
	char *path;
	int folder = target[0] == '/' ? 0 : (int)(place->name - place->path);

	if (asprintf(&path, "%.*s%s", folder, place->path, target) < 0)
		return -ENOMEM;
	place_clear(place);
	place->path = path;
	return 0;
}

static int look_at_last(struct walk *walk, struct place *place, bool *ret_is_last)
{
	_cleanup_close_ int last = -1;
	char target[PATH_MAX];
	int r;

	place->folder = enter_folder_of(walk, place->path, &place->name);
	if (place->folder < 0)
		return place->folder;
	last = openat(place->folder, place->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	*ret_is_last = last < 0 || !is_link(last);
	if (*ret_is_last)
		return last < 0 && errno != ENOENT ? -errno : 0;
	r = read_link(walk, place->folder, last, place->path, target);
	if (r < 0)
		return r;
	place->is_descriptor = *ret_is_last = is_of_processes(place->folder) && target[0] != '/';
	return *ret_is_last ? 0 : follow(place, target);
}

static int fail(const struct walk *walk, const char *path, const char *suffix, int r)
{
	char owner[TEXT_SIZE];

	if (walk->link[0])
		return command_fail_at(
			COMMAND_FAILED, r,
			"%s: %s is a symbolic link of %s, who owns neither its folder nor this "
			"process: name what it leads to, if that is what you want",
			path, walk->link, command_user_name(walk->owner, owner));
	return command_fail_at(COMMAND_FAILED, r, "%s%s: %s", path, r == -ELOOP ? "" : suffix, strerror(-r));
}

int place_find(const char *path, const char *suffix, struct place *ret_place)
{
	struct place place = PLACE_INIT;
	struct walk walk = { 0 };
	bool is_last = false;
	int r = 0;

	place.path = strdup(path);
	if (!place.path)
		return command_fail_memory();
	while (r == 0 && !is_last)
		r = look_at_last(&walk, &place, &is_last);
	if (r < 0) {
		place_clear(&place);
		return fail(&walk, path, suffix, r);
	}
	*ret_place = place;
	return COMMAND_DONE;
}

/* ---- What is no regular file ---- */

int place_open_special(const struct place *place)
{
	int flags = O_WRONLY | O_NOCTTY | O_CLOEXEC | (place->is_descriptor ? 0 : O_NOFOLLOW);
	struct stat status;
	int fd;

	if (fstatat(place->folder, place->name, &status, place->is_descriptor ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!place->is_descriptor && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode)) &&
	    !is_trusted(place->folder, &status))
		return -EPERM;
	fd = openat(place->folder, place->name, flags);
	return fd < 0 ? -errno : fd;
}
