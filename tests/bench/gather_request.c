/* An empty request's way to tierd and back, beside as many bytes on a bare Unix socket between two processes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "proto/frame.h"
#include "tests/bench/gather.h"
#include "tests/bench/node.h"

#define BLOCKS 41 /* odd: one is the median */
#define BLOCK 500 /* round trips */
#define MAX_REPLY 256

struct line {
	int socket;
	uint8_t *request;
	size_t request_length, reply_length;
};

static int send_all(int socket, const uint8_t *bytes, size_t length)
{
	return send(socket, bytes, length, MSG_NOSIGNAL) == (ssize_t)length ? 0 : -EIO;
}

static int receive_all(int socket, uint8_t *bytes, size_t length)
{
	return recv(socket, bytes, length, MSG_WAITALL) == (ssize_t)length ? 0 : -EIO;
}

static int round_trip(const struct line *line)
{
	uint8_t reply[MAX_REPLY];
	int r = send_all(line->socket, line->request, line->request_length);

	return r < 0 ? r : receive_all(line->socket, reply, line->reply_length);
}

/* Microseconds of each round trip of a block, on average. */
static int run_block(const struct line *line, double *ret_us)
{
	uint64_t start = clock_now_ns();
	int r = 0;

	for (unsigned i = 0; i < BLOCK && r == 0; i++)
		r = round_trip(line);
	*ret_us = (double)(clock_now_ns() - start) / 1e3 / BLOCK;
	return r;
}

/* ---- To tierd ---- */

static int receive_frame(int socket, enum frame_type type, size_t *ret_length)
{
	uint8_t bytes[FRAME_HEADER_BYTES + MAX_REPLY];
	struct frame_header header;
	int r = receive_all(socket, bytes, FRAME_HEADER_BYTES);

	if (r == 0)
		r = frame_header_decode(bytes, &header);
	if (r == 0 && (header.type != type || header.length > MAX_REPLY - FRAME_HEADER_BYTES))
		r = -EPROTO;
	if (r == 0 && header.length > 0)
		r = receive_all(socket, bytes + FRAME_HEADER_BYTES, header.length);
	if (r == 0)
		*ret_length = FRAME_HEADER_BYTES + header.length;
	return r;
}

static int say_hello(int socket)
{
	Tierd__Wire__Hello hello = TIERD__WIRE__HELLO__INIT;
	_cleanup_free_ uint8_t *frame = NULL;
	size_t length, reply;
	int r;

	hello.version_minimum = FRAME_VERSION_MINIMUM;
	hello.version_maximum = FRAME_VERSION_MAXIMUM;
	hello.program = (char *)"bench_gather";
	r = frame_encode(FRAME_HELLO, 0, &hello.base, &frame, &length);
	if (r == 0)
		r = send_all(socket, frame, length);
	return r < 0 ? r : receive_frame(socket, FRAME_HELLO_REPLY, &reply);
}

static int open_line(const char *path, struct line *line)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__Ping ping = TIERD__WIRE__PING__INIT;
	int r;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	line->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (line->socket < 0 || connect(line->socket, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	request.body_case = TIERD__WIRE__REQUEST__BODY_PING;
	request.ping = &ping;
	r = say_hello(line->socket);
	if (r == 0)
		r = frame_encode(FRAME_REQUEST, 1, &request.base, &line->request, &line->request_length);
	if (r == 0)
		r = send_all(line->socket, line->request, line->request_length);
	return r < 0 ? r : receive_frame(line->socket, FRAME_REPLY, &line->reply_length);
}

/* ---- To a process that does nothing else ---- */

static void run_echo(int socket, size_t request_length, size_t reply_length)
{
	uint8_t bytes[MAX_REPLY] = { 0 };

	while (receive_all(socket, bytes, request_length) == 0 && send_all(socket, bytes, reply_length) == 0)
		;
	_exit(EXIT_SUCCESS);
}

static int open_bare(const struct line *like, struct line *bare, pid_t *ret_process)
{
	int sockets[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0)
		return -errno;
	*bare = *like;
	bare->socket = sockets[0];
	fflush(NULL);
	*ret_process = fork();
	if (*ret_process == 0) {
		close(sockets[0]);
		run_echo(sockets[1], like->request_length, like->reply_length);
	}
	close(sockets[1]);
	return *ret_process < 0 ? -errno : 0;
}

/* ---- */

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int measure(struct bench *bench, const struct line *tierd, const struct line *bare)
{
	double ours[BLOCKS], theirs[BLOCKS];
	int r = 0;

	for (unsigned i = 0; i < BLOCKS && r == 0; i++) {
		r = run_block(tierd, &ours[i]);
		if (r == 0)
			r = run_block(bare, &theirs[i]);
	}
	if (r < 0)
		return r;
	qsort(ours, BLOCKS, sizeof(ours[0]), compare_doubles);
	qsort(theirs, BLOCKS, sizeof(theirs[0]), compare_doubles);
	return bench_record(bench, &(struct bench_result){ .name = "request_us",
							   .value = ours[BLOCKS / 2],
							   .unit = "us",
							   .limit = theirs[BLOCKS / 2] });
}

int bench_requests(struct bench *bench)
{
	struct bench_node node = BENCH_NODE_INIT;
	struct line tierd = { .socket = -1 }, bare = { .socket = -1 };
	pid_t echo = -1;
	int r = bench_node_start(&node, "256M", "1G");

	if (r == 0)
		r = open_line(node.socket, &tierd);
	if (r == 0)
		r = open_bare(&tierd, &bare, &echo);
	if (r == 0)
		r = measure(bench, &tierd, &bare);
	fd_close(bare.socket);
	fd_close(tierd.socket);
	if (echo > 0)
		waitpid(echo, NULL, 0);
	free(tierd.request);
	bench_node_stop(&node);
	return r;
}
