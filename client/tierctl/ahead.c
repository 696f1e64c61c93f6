#include "client/tierctl/ahead.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "common/size.h"

/* One is used while others are on their way. */
#define BUFFERS 4
#define BUFFER_BYTES ((size_t)4 << 20)
/* O_DIRECT wants offsets and lengths that this divides: no device asks for more. Each buffer has as much
 * room before it, for the end of the buffer before: so no element is torn. */
#define ALIGN_BYTES 4096
#define PITCH (ALIGN_BYTES + BUFFER_BYTES)

struct ahead {
	int fd;
	uint64_t start;	     /* of the first buffer, in the file */
	uint64_t first, end; /* of what is wanted */
	char *memory;
	const char *next; /* of the buffer in use */
	size_t left;
	bool has_buffer;

	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* Under the lock. Buffers are numbered on. */
	uint64_t filled, used;
	bool is_over;
	int error;
};

static char *buffer_of(const struct ahead *ahead, uint64_t number)
{
	return ahead->memory + number % BUFFERS * PITCH + ALIGN_BYTES;
}

/* How many wanted bytes the buffer has; O_DIRECT reads the rest as well. */
static size_t length_of(const struct ahead *ahead, uint64_t number)
{
	uint64_t left = ahead->end - ahead->start - number * BUFFER_BYTES;

	return left < BUFFER_BYTES ? (size_t)left : BUFFER_BYTES;
}

static uint64_t count_buffers(const struct ahead *ahead)
{
	return (ahead->end - ahead->start + BUFFER_BYTES - 1) / BUFFER_BYTES;
}

/* ---- The thread that reads ---- */

static int read_buffer(const struct ahead *ahead, uint64_t number)
{
	char *buffer = buffer_of(ahead, number);
	size_t wanted = length_of(ahead, number), length = (size_t)size_align(wanted, ALIGN_BYTES), at = 0;

	while (at < wanted) {
		off_t offset = (off_t)(ahead->start + number * BUFFER_BYTES + at);
		ssize_t got = pread(ahead->fd, buffer + at, length - at, offset);

		if (got < 0 && errno == EINTR)
			continue;
		/* The file system says that it can, and then cannot; or not from here on. */
		if (got < 0 && errno == EINVAL && (fcntl(ahead->fd, F_GETFL) & O_DIRECT) != 0 &&
		    fcntl(ahead->fd, F_SETFL, fcntl(ahead->fd, F_GETFL) & ~O_DIRECT) == 0)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -ENODATA;
		at += (size_t)got;
	}
	return 0;
}

static void *run(void *argument)
{
	struct ahead *ahead = argument;

	pthread_mutex_lock(&ahead->lock);
	while (!ahead->is_over && ahead->error == 0 && ahead->filled < count_buffers(ahead)) {
		uint64_t number = ahead->filled;

		if (number - ahead->used == BUFFERS) {
			pthread_cond_wait(&ahead->changed, &ahead->lock);
			continue;
		}
		pthread_mutex_unlock(&ahead->lock);
		int r = read_buffer(ahead, number);

		pthread_mutex_lock(&ahead->lock);
		ahead->error = r;
		ahead->filled += r == 0;
		pthread_cond_broadcast(&ahead->changed);
	}
	pthread_mutex_unlock(&ahead->lock);
	return NULL;
}

/* ---- Life ---- */

int ahead_new(int fd, uint64_t first, uint64_t bytes, struct ahead **ret_ahead)
{
	_cleanup_(ahead_freep) struct ahead *ahead = calloc(1, sizeof(*ahead));
	int r;

	if (!ahead)
		return -ENOMEM;
	ahead->fd = fd;
	ahead->start = first / ALIGN_BYTES * ALIGN_BYTES;
	ahead->first = first;
	ahead->end = first + bytes;
	pthread_mutex_init(&ahead->lock, NULL);
	pthread_cond_init(&ahead->changed, NULL);
	ahead->memory = aligned_alloc(ALIGN_BYTES, BUFFERS * PITCH);
	if (!ahead->memory)
		return -ENOMEM;
	/* Without it the page cache does the work, more slowly. */
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_DIRECT);
	r = pthread_create(&ahead->thread, NULL, run, ahead);
	if (r != 0)
		return -r;
	ahead->has_thread = true;
	*ret_ahead = TAKE_PTR(ahead);
	return 0;
}

struct ahead *ahead_free(struct ahead *ahead)
{
	if (!ahead)
		return NULL;
	if (ahead->has_thread) {
		pthread_mutex_lock(&ahead->lock);
		ahead->is_over = true;
		pthread_cond_broadcast(&ahead->changed);
		pthread_mutex_unlock(&ahead->lock);
		pthread_join(ahead->thread, NULL);
	}
	pthread_cond_destroy(&ahead->changed);
	pthread_mutex_destroy(&ahead->lock);
	free(ahead->memory);
	free(ahead);
	return NULL;
}

/* ---- Using ---- */

static int await_buffer(struct ahead *ahead, uint64_t number)
{
	int r = 0;

	pthread_mutex_lock(&ahead->lock);
	while (ahead->filled <= number && ahead->error == 0)
		pthread_cond_wait(&ahead->changed, &ahead->lock);
	if (ahead->filled <= number)
		r = ahead->error;
	pthread_mutex_unlock(&ahead->lock);
	return r;
}

/* The rest of the last buffer moves in front of the next one, and the last one is free. */
static int turn(struct ahead *ahead, uint64_t number)
{
	char *buffer = buffer_of(ahead, number);
	int r = await_buffer(ahead, number);

	if (r < 0)
		return r;
	if (ahead->left > 0)
		memcpy(buffer - ahead->left, ahead->next, ahead->left);
	ahead->next = buffer - ahead->left;
	ahead->left += length_of(ahead, number);
	pthread_mutex_lock(&ahead->lock);
	ahead->used = number;
	pthread_cond_broadcast(&ahead->changed);
	pthread_mutex_unlock(&ahead->lock);
	return 0;
}

static int begin(struct ahead *ahead)
{
	int r = turn(ahead, 0);

	if (r < 0)
		return r;
	ahead->has_buffer = true;
	ahead_take(ahead, (size_t)(ahead->first - ahead->start));
	return 0;
}

int ahead_look(struct ahead *ahead, size_t least, const char **ret_bytes, size_t *ret_length)
{
	int r = 0;

	if (!ahead->has_buffer)
		r = begin(ahead);
	else if (ahead->left < least && ahead->used + 1 < count_buffers(ahead))
		r = turn(ahead, ahead->used + 1);
	if (r < 0)
		return r;
	*ret_bytes = ahead->next;
	*ret_length = ahead->left;
	return 0;
}

void ahead_take(struct ahead *ahead, size_t bytes)
{
	ahead->next += bytes;
	ahead->left -= bytes;
}
