#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "client/connection.h"
#include "client/job.h"
#include "client/reader.h"
#include "client/ticket.h"
#include "common/clock.h"
#include "proto/socket_path.h"

/* A daemon greets at once; one that does not hangs. */
#define GREETING_SECONDS 10

static int choose_path(const char *given, struct sockaddr_un *ret_address)
{
	char buffer[SOCKET_PATH_SIZE];
	const char *path = socket_path_choose(given, buffer);

	*ret_address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (strlen(path) >= SOCKET_PATH_SIZE)
		return message_fail(-ENAMETOOLONG, "the socket's path is longer than %zu bytes: %s",
				    SOCKET_PATH_SIZE - 1, path);
	strcpy(ret_address->sun_path, path);
	return 0;
}

static int fail_to_connect(int r, const char *path)
{
	if (r == -ENOENT || r == -ECONNREFUSED)
		return message_fail(
			r, "no tierd listens at %s; start it, or set TIERD_SOCKET to where it listens", path);
	if (r == -EAGAIN)
		return message_fail(-ETIMEDOUT, "tierd at %s does not accept connections", path);
	return message_fail(r, "connecting to tierd at %s: %s", path, strerror(-r));
}

static int open_socket(const struct sockaddr_un *address, int *ret_fd)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct timeval limit = { .tv_sec = GREETING_SECONDS };

	if (fd < 0)
		return fail_to_connect(-errno, address->sun_path);
	/* Without it a daemon that does not accept would hold us for ever; later calls never block in the
	 * socket. */
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	while (connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
		if (errno != EINTR)
			return fail_to_connect(-errno, address->sun_path);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int tierd_connect(const char *socket_path, struct tierd_node **ret_node)
{
	_cleanup_(connection_freep) struct tierd_node *node = NULL;
	struct sockaddr_un address;
	int fd = -1;
	int r = choose_path(socket_path, &address);

	if (r == 0)
		r = open_socket(&address, &fd);
	if (r < 0)
		return r;
	r = connection_new(fd, &node);
	if (r < 0)
		return message_fail(r, "connecting to tierd: %s", strerror(-r));
	r = connection_greet(node, clock_now_ns() + GREETING_SECONDS * UINT64_C(1000000000));
	if (r == 0)
		*ret_node = TAKE_PTR(node);
	return r;
}

struct tierd_node *tierd_disconnect(struct tierd_node *node)
{
	if (!node)
		return NULL;
	QUEUE_FOREACH (link, &node->jobs)
		job_drop(queue_entry(link, struct tierd_job, link));
	QUEUE_FOREACH (link, &node->readers)
		reader_drop(queue_entry(link, struct tierd_reader, link));
	if (node->generation == connection_generation)
		ticket_leave_node(node);
	return connection_free(node);
}

int tierd_set_timeout(struct tierd_node *node, int timeout_ms)
{
	int r = connection_enter(node);

	if (r < 0)
		return r;
	node->timeout_ms = timeout_ms;
	connection_exit(node);
	return 0;
}
