#include "client/tierctl/partial.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "client/tierctl/place.h"
#include "common/own.h"
#include "common/queue.h"

struct partial {
	struct queue link;
	struct place place;
	char *temporary; /* name in its folder */
	int fd;
};

/* A signal removes these. It does not interrupt who holds the lock. */
static struct queue partials = { &partials, &partials };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- Signals ---- */

void partial_remove_all(void)
{
	QUEUE_FOREACH (link, &partials) {
		const struct partial *partial = queue_entry(link, struct partial, link);

		unlinkat(partial->place.folder, partial->temporary, 0);
	}
}

static void *wait_for_signal(void *argument)
{
	const sigset_t *signals = argument;
	int signal_number;

	while (sigwait(signals, &signal_number) != 0)
		;
	pthread_mutex_lock(&lock);
	partial_remove_all();
	/* As the signal would have ended it: a shell wants to know. */
	signal(signal_number, SIG_DFL);
	pthread_sigmask(SIG_UNBLOCK, signals, NULL);
	raise(signal_number);
	_exit(128 + signal_number);
}

void partial_guard(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
	static sigset_t signals;
	struct sigaction action;
	pthread_t thread;

	sigemptyset(&signals);
	/* Signals that the parent ignores stay ignored. */
	for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++)
		if (sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			sigaddset(&signals, numbers[i]);
	/* A file that may not grow, and a reader of the progress who has left, are errors to tell of. */
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	if (pthread_create(&thread, NULL, wait_for_signal, &signals) == 0)
		pthread_detach(thread);
	else
		pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
}

/* ---- New ---- */

struct partial *partial_free(struct partial *partial)
{
	if (!partial)
		return NULL;
	pthread_mutex_lock(&lock);
	if (!queue_is_empty(&partial->link))
		unlinkat(partial->place.folder, partial->temporary, 0);
	queue_remove(&partial->link);
	pthread_mutex_unlock(&lock);
	fd_close(partial->fd);
	free(partial->temporary);
	place_clear(&partial->place);
	free(partial);
	return NULL;
}

int partial_fd(const struct partial *partial)
{
	return partial->fd;
}

const char *partial_path(const struct partial *partial)
{
	return partial->place.path;
}

/* Removes one that nobody writes any more. 0: look again. */
static int remove_left(int folder, const char *name)
{
	_cleanup_close_ int fd = own_open(folder, name, O_RDWR, 0);
	struct stat open_one, named;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	if (fstat(fd, &open_one) < 0)
		return -errno;
	/* Another may have removed it, and made its own, since it was opened. */
	if (fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) < 0 || named.st_ino != open_one.st_ino ||
	    named.st_dev != open_one.st_dev)
		return 0;
	return unlinkat(folder, name, 0) < 0 ? -errno : 0;
}

static int create(struct partial *partial)
{
	int r = 0;

	for (unsigned i = 0; i < 10 && r == 0; i++) {
		partial->fd =
			own_open(partial->place.folder, partial->temporary, O_RDWR | O_CREAT | O_EXCL, 0666);
		if (partial->fd >= 0)
			return flock(partial->fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
		r = partial->fd == -EEXIST ? remove_left(partial->place.folder, partial->temporary)
					   : partial->fd;
	}
	return r < 0 ? r : -EBUSY;
}

int partial_check(const char *path, bool may_replace)
{
	struct stat status;

	if (stat(path, &status) < 0)
		return COMMAND_DONE;
	if (!S_ISREG(status.st_mode))
		return command_fail_at(COMMAND_FAILED, -EINVAL, "%s is no regular file; name another", path);
	if (may_replace)
		return COMMAND_DONE;
	return command_fail_at(COMMAND_FAILED, -EEXIST,
			       "%s exists; name another file, or replace it with --force", path);
}

int partial_new(const char *path, struct partial **ret_partial)
{
	_cleanup_(partial_freep) struct partial *partial = calloc(1, sizeof(*partial));
	int r;

	if (!partial)
		return command_fail_memory();
	partial->fd = -1;
	partial->place = (struct place)PLACE_INIT;
	queue_init(&partial->link);
	r = place_find(path, ".partial", &partial->place);
	if (r != COMMAND_DONE)
		return r;
	if (asprintf(&partial->temporary, "%s.partial", partial->place.name) < 0) {
		partial->temporary = NULL;
		return command_fail_memory();
	}
	pthread_mutex_lock(&lock);
	r = create(partial);
	if (partial->fd >= 0)
		queue_push(&partials, &partial->link);
	pthread_mutex_unlock(&lock);
	if (r == -EBUSY)
		return command_fail_at(COMMAND_FAILED, -EBUSY,
				       "%s.partial is being written by another process; wait for it, or name "
				       "another file",
				       partial->place.path);
	if (r == -ENXIO)
		return command_fail_at(COMMAND_FAILED, r,
				       "%s.partial is no regular file; remove it, or name another file",
				       partial->place.path);
	if (r < 0)
		return command_fail_at(COMMAND_FAILED, r, "%s.partial: %s", partial->place.path,
				       strerror(-r));
	*ret_partial = TAKE_PTR(partial);
	return COMMAND_DONE;
}

/* ---- Publish ---- */

static int publish_one(struct partial *partial, bool may_replace)
{
	const struct place *place = &partial->place;
	int r = renameat2(place->folder, partial->temporary, place->folder, place->name,
			  may_replace ? 0 : RENAME_NOREPLACE);

	/* Not every file system knows how to leave another alone. */
	if (r < 0 && errno == EINVAL && !may_replace &&
	    faccessat(place->folder, place->name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		r = renameat(place->folder, partial->temporary, place->folder, place->name);
	if (r < 0)
		return command_fail_at(COMMAND_FAILED, -errno, "%s: %s", place->path, strerror(errno));
	queue_remove(&partial->link);
	return COMMAND_DONE;
}

static int flush_folder(const struct place *place)
{
	_cleanup_close_ int fd = openat(place->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fsync(fd) < 0)
		return command_fail_at(COMMAND_FAILED, -errno, "%s: flushing its folder: %s", place->path,
				       strerror(errno));
	return COMMAND_DONE;
}

static int publish_all(struct partial *const *partials_in_order, size_t count, bool may_replace)
{
	const struct place *last = &partials_in_order[count - 1]->place;
	int code = COMMAND_DONE;
	size_t done = 0;

	if (may_replace && count > 1 && unlinkat(last->folder, last->name, 0) < 0 && errno != ENOENT)
		return command_fail_at(COMMAND_FAILED, -errno, "%s: %s", last->path, strerror(errno));
	while (done < count && code == COMMAND_DONE) {
		/* The last one names the others, so they are on the disk before it. */
		if (done > 0 && done + 1 == count)
			code = flush_folder(last);
		if (code == COMMAND_DONE)
			code = publish_one(partials_in_order[done], may_replace);
		done += code == COMMAND_DONE;
	}
	/* All of them or none. */
	while (code != COMMAND_DONE && !may_replace && done > 0) {
		const struct place *place = &partials_in_order[--done]->place;

		unlinkat(place->folder, place->name, 0);
	}
	return code == COMMAND_DONE ? flush_folder(last) : code;
}

int partial_publish(struct partial *const *partials_in_order, size_t count, bool may_replace)
{
	int code;

	pthread_mutex_lock(&lock);
	code = publish_all(partials_in_order, count, may_replace);
	pthread_mutex_unlock(&lock);
	return code;
}
