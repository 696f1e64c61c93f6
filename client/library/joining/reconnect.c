/* How a lost connection comes back.
 *
 * Lost: tierd has ended the connection (connection_fail). Tickets have failed, the hot path misses, and each
 * job knows whether something of its rank was undecided (job_lose).
 *
 * Opening: the first call that needs the node connects, again and again with longer and longer pauses, for
 * reconnect_ms. Other threads wait for it.
 *
 * Opened: every job is opened again, with the options and units that it had (job_reopen). A job that stands
 * where its rank does goes on at its next call; another one says first what was lost.
 *
 * Given up: no daemon came back in time, or it speaks another protocol. The connection has ended for good. */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "client/library/joining/reopen.h"
#include "common/clock.h"

#define FIRST_PAUSE_NS UINT64_C(2000000)
#define LONGEST_PAUSE_NS UINT64_C(200000000)

/* A daemon greets at once, unless it hangs. */
#define GREETING_NS UINT64_C(10000000000)

/* ---- The socket ---- */

static int fail_to_connect(int r, const char *path)
{
	if (r == -ENOENT || r == -ECONNREFUSED)
		return message_fail(
			r, "no tierd listens at %s; start it, or set TIERD_SOCKET to where it listens", path);
	if (r == -EAGAIN)
		return message_fail(-ETIMEDOUT, "tierd at %s does not accept connections", path);
	return message_fail(r, "connecting to tierd at %s: %s", path, strerror(-r));
}

static int open_socket(const char *path, int *ret_fd)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct timeval limit = { .tv_sec = (time_t)(GREETING_NS / 1000000000) };
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (fd < 0)
		return fail_to_connect(-errno, path);
	strcpy(address.sun_path, path);
	/* A daemon that does not accept connections would block connect() for ever. Later calls never block
	 * in the socket. */
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	while (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		if (errno != EINTR)
			return fail_to_connect(-errno, path);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* ---- Attempts ---- */

struct attempts {
	uint64_t deadline, pause;
};

static struct attempts attempts_begin(const struct tierd_node *node)
{
	return (struct attempts){ clock_now_ns() + (uint64_t)node->reconnect_ms * 1000000, FIRST_PAUSE_NS };
}

/* Errors that may be over soon: no daemon listens, it has no place for a connection, or it ends. */
static bool may_pass(int r)
{
	return r == -ENOENT || r == -ECONNREFUSED || r == -ECONNRESET || r == -ETIMEDOUT || r == -EBUSY ||
	       r == -ESHUTDOWN || r == -EAGAIN;
}

/* Sleeps before another attempt; called without the lock. False: the error will not pass, or the time is
 * over. */
static bool attempts_pause(struct attempts *attempts, int r)
{
	uint64_t now = clock_now_ns();
	uint64_t pause = attempts->pause;

	if (!may_pass(r) || now >= attempts->deadline)
		return false;
	if (pause > attempts->deadline - now)
		pause = attempts->deadline - now;
	clock_sleep_ns(pause);
	if (attempts->pause < LONGEST_PAUSE_NS)
		attempts->pause *= 2;
	return true;
}

/* Called with the lock, which it releases to connect. */
static int open_connection(struct tierd_node *node)
{
	int fd = -1, r;

	connection_exit(node);
	r = open_socket(node->socket_path, &fd);
	pthread_mutex_lock(&node->lock);
	if (r == 0)
		r = connection_open(node, fd);
	return r == 0 ? connection_greet(node, clock_now_ns() + GREETING_NS) : r;
}

int reconnect_first(struct tierd_node *node)
{
	struct attempts attempts = attempts_begin(node);
	int r;

	do {
		pthread_mutex_lock(&node->lock);
		r = open_connection(node);
		connection_exit(node);
	} while (r < 0 && attempts_pause(&attempts, r) && !connection_is_interrupted(node));
	return r;
}

/* ---- A connection that was lost ---- */

void reconnect_settle(struct tierd_node *node)
{
	while (node->is_reconnecting)
		pthread_cond_wait(&node->changed, &node->lock);
}

static struct tierd_job *find_busy(struct tierd_node *node)
{
	QUEUE_FOREACH (link, &node->jobs) {
		struct tierd_job *job = queue_entry(link, struct tierd_job, link);

		if (job->is_window_busy)
			return job;
	}
	return NULL;
}

/* Waits for threads in the middle of a call: their tickets have failed, and they send no other request before
 * they enter the job again. */
static void wait_for_threads(struct tierd_node *node)
{
	while (node->has_reader || find_busy(node))
		pthread_cond_wait(&node->changed, &node->lock);
}

static struct tierd_job *find_closed(struct tierd_node *node)
{
	QUEUE_FOREACH (link, &node->jobs) {
		struct tierd_job *job = queue_entry(link, struct tierd_job, link);

		if (job->membership == MEMBER_LOST)
			return job;
	}
	return NULL;
}

static int open_again(struct tierd_node *node)
{
	struct tierd_job *job;
	int r = open_connection(node);

	while (r == 0 && (job = find_closed(node)))
		r = job_reopen(job);
	if (r < 0 && !node->error)
		connection_fail(node, r, "%s", tierd_message());
	return r;
}

static void give_up(struct tierd_node *node, int r)
{
	char text[sizeof(node->error_text)];

	snprintf(text, sizeof(text),
		 "the connection to tierd was lost, and for %d ms (reconnect_ms) it could not be "
		 "opened again: %s",
		 node->reconnect_ms, tierd_message());
	connection_give_up(node, may_pass(r) ? -ECONNRESET : r, text);
}

static int reconnect_all(struct tierd_node *node)
{
	struct attempts attempts = attempts_begin(node);
	bool goes_on, is_interrupted;
	int r;

	wait_for_threads(node);
	do {
		r = open_again(node);
		connection_exit(node);
		goes_on = r < 0 && attempts_pause(&attempts, r);
		is_interrupted = goes_on && connection_is_interrupted(node);
		pthread_mutex_lock(&node->lock);
	} while (goes_on && !is_interrupted);
	if (is_interrupted)
		r = message_fail(-ETIMEDOUT,
				 "interrupted while the connection to tierd was opened again; the next call "
				 "goes on with that");
	else if (r < 0)
		give_up(node, r);
	return r;
}

int reconnect(struct tierd_node *node)
{
	int r;

	reconnect_settle(node);
	if (!node->is_lost)
		return connection_check(node);
	node->is_reconnecting = true;
	node->reconnecting = pthread_self();
	r = reconnect_all(node);
	node->is_reconnecting = false;
	pthread_cond_broadcast(&node->changed);
	/* It was interrupted, and the next call goes on. */
	if (r < 0 && node->is_lost)
		return r;
	return r < 0 ? connection_check(node) : 0;
}
