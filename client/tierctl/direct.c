#include "client/tierctl/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "common/size.h"

/* One is filled while others are on their way. */
#define BUFFERS 4
#define BUFFER_BYTES ((size_t)4 << 20)
/* O_DIRECT wants offsets and lengths that this divides: no device asks for more. */
#define ALIGN_BYTES 4096

struct direct {
	int fd;
	char *memory;
	size_t filled; /* of the buffer that is being filled */
	uint64_t length;

	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* Under the lock. Buffers are numbered on; the last of them may be short. */
	uint64_t given, taken;
	size_t lengths[BUFFERS];
	bool is_over;
	int error;
};

static char *buffer_of(const struct direct *direct, uint64_t number)
{
	return direct->memory + number % BUFFERS * BUFFER_BYTES;
}

/* ---- The thread that writes ---- */

static int write_all(const struct direct *direct, const char *bytes, size_t length, uint64_t offset)
{
	while (length > 0) {
		ssize_t written = pwrite(direct->fd, bytes, length, (off_t)offset);

		if (written < 0 && errno == EINTR)
			continue;
		/* The file system says that it can, and then cannot. */
		if (written < 0 && errno == EINVAL && (fcntl(direct->fd, F_GETFL) & O_DIRECT) != 0 &&
		    fcntl(direct->fd, F_SETFL, fcntl(direct->fd, F_GETFL) & ~O_DIRECT) == 0)
			continue;
		if (written <= 0)
			return written < 0 ? -errno : -EIO;
		bytes += written;
		length -= (size_t)written;
		offset += (uint64_t)written;
	}
	return 0;
}

static void *run(void *argument)
{
	struct direct *direct = argument;

	pthread_mutex_lock(&direct->lock);
	for (;;) {
		while (direct->taken == direct->given && !direct->is_over)
			pthread_cond_wait(&direct->changed, &direct->lock);
		if (direct->taken == direct->given)
			break;
		uint64_t number = direct->taken;
		size_t length = direct->lengths[number % BUFFERS];
		int r = direct->error;

		pthread_mutex_unlock(&direct->lock);
		if (r == 0)
			r = write_all(direct, buffer_of(direct, number), length, number * BUFFER_BYTES);
		pthread_mutex_lock(&direct->lock);
		direct->error = r;
		direct->taken++;
		pthread_cond_broadcast(&direct->changed);
	}
	pthread_mutex_unlock(&direct->lock);
	return NULL;
}

/* ---- New ---- */

/* Where that is not known it shows while it is written. */
static int reserve(int fd, uint64_t bytes)
{
	if (bytes == 0 || fallocate(fd, 0, 0, (off_t)bytes) == 0 || errno == EOPNOTSUPP || errno == ENOSYS)
		return 0;
	return -errno;
}

int direct_new(int fd, uint64_t bytes, struct direct **ret_direct)
{
	_cleanup_(direct_freep) struct direct *direct = calloc(1, sizeof(*direct));
	int r;

	if (!direct)
		return -ENOMEM;
	direct->fd = fd;
	pthread_mutex_init(&direct->lock, NULL);
	pthread_cond_init(&direct->changed, NULL);
	r = reserve(fd, bytes);
	if (r < 0)
		return r;
	direct->memory = aligned_alloc(ALIGN_BYTES, BUFFERS * BUFFER_BYTES);
	if (!direct->memory)
		return -ENOMEM;
	/* Without it the page cache does the work, more slowly. */
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_DIRECT);
	r = pthread_create(&direct->thread, NULL, run, direct);
	if (r != 0)
		return -r;
	direct->has_thread = true;
	*ret_direct = TAKE_PTR(direct);
	return 0;
}

static void end_thread(struct direct *direct)
{
	if (!direct->has_thread)
		return;
	pthread_mutex_lock(&direct->lock);
	direct->is_over = true;
	pthread_cond_broadcast(&direct->changed);
	pthread_mutex_unlock(&direct->lock);
	pthread_join(direct->thread, NULL);
	direct->has_thread = false;
}

struct direct *direct_free(struct direct *direct)
{
	if (!direct)
		return NULL;
	pthread_mutex_lock(&direct->lock);
	direct->error = direct->error ? direct->error : -ECANCELED;
	pthread_mutex_unlock(&direct->lock);
	end_thread(direct);
	pthread_cond_destroy(&direct->changed);
	pthread_mutex_destroy(&direct->lock);
	free(direct->memory);
	free(direct);
	return NULL;
}

/* ---- Filling ---- */

static void give(struct direct *direct, size_t length)
{
	pthread_mutex_lock(&direct->lock);
	direct->lengths[direct->given++ % BUFFERS] = length;
	pthread_cond_broadcast(&direct->changed);
	pthread_mutex_unlock(&direct->lock);
	direct->filled = 0;
}

int direct_room(struct direct *direct, char **ret_room, size_t *ret_bytes)
{
	int r;

	pthread_mutex_lock(&direct->lock);
	while (direct->given - direct->taken == BUFFERS)
		pthread_cond_wait(&direct->changed, &direct->lock);
	r = direct->error;
	pthread_mutex_unlock(&direct->lock);
	if (r < 0)
		return r;
	*ret_room = buffer_of(direct, direct->given) + direct->filled;
	*ret_bytes = BUFFER_BYTES - direct->filled;
	return 0;
}

void direct_advance(struct direct *direct, size_t bytes)
{
	direct->filled += bytes;
	direct->length += bytes;
	if (direct->filled == BUFFER_BYTES)
		give(direct, BUFFER_BYTES);
}

int direct_append(struct direct *direct, const void *bytes, size_t length)
{
	while (length > 0) {
		size_t room;
		char *target;
		int r = direct_room(direct, &target, &room);

		if (r < 0)
			return r;
		if (room > length)
			room = length;
		memcpy(target, bytes, room);
		direct_advance(direct, room);
		bytes = (const char *)bytes + room;
		length -= room;
	}
	return 0;
}

/* The last buffer is written up to a multiple of what O_DIRECT wants, and the file is cut then. */
int direct_finish(struct direct *direct)
{
	size_t rest = direct->filled, padded = (size_t)size_align(rest, ALIGN_BYTES);

	if (rest > 0) {
		memset(buffer_of(direct, direct->given) + rest, 0, padded - rest);
		give(direct, padded);
	}
	end_thread(direct);
	if (direct->error < 0)
		return direct->error;
	if (ftruncate(direct->fd, (off_t)direct->length) < 0 || fsync(direct->fd) < 0)
		return -errno;
	return 0;
}
