/* An empty request's way to tierd and back, beside as many bytes on a bare Unix socket between two processes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "tests/bench/gather.h"
#include "tests/bench/line.h"
#include "tests/bench/node.h"

#define BLOCKS 41 /* odd: one is the median */
#define BLOCK 500 /* round trips */

/* Microseconds of each round trip of a block, on average. */
static int run_block(const struct line *line, double *ret_us)
{
	uint64_t start = clock_now_ns();
	int r = 0;

	for (unsigned i = 0; i < BLOCK && r == 0; i++)
		r = line_round_trip(line);
	*ret_us = (double)(clock_now_ns() - start) / 1e3 / BLOCK;
	return r;
}

/* ---- To a process that does nothing else ---- */

static void run_echo(int socket, size_t request_length, size_t reply_length)
{
	uint8_t bytes[LINE_MAX_REPLY] = { 0 };

	while (line_receive(socket, bytes, request_length) == 0 &&
	       line_send(socket, bytes, reply_length) == 0)
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

/* Blocks in turn: what else the machine does meets both alike. Without a bar: where nothing else is at work
 * most of it is the waking of an idle processor, which the daemon sleeps on and the other process does not.
 */
static int measure(struct bench *bench, const struct line *tierd, const struct line *bare)
{
	double ours[BLOCKS], theirs[BLOCKS], ratios[BLOCKS];
	int r = 0;

	for (unsigned i = 0; i < BLOCKS && r == 0; i++) {
		r = run_block(tierd, &ours[i]);
		if (r == 0)
			r = run_block(bare, &theirs[i]);
		ratios[i] = r == 0 ? ours[i] / theirs[i] : 0;
	}
	if (r < 0)
		return r;
	printf("request_ratio: %.1f us to tierd and back, %.1f us to a process that does nothing\n",
	       bench_median(ours, BLOCKS), bench_median(theirs, BLOCKS));
	return bench_record(bench, "request_ratio", bench_median(ratios, BLOCKS), "times", 0);
}

int bench_requests(struct bench *bench)
{
	struct bench_node node = BENCH_NODE_INIT;
	struct line tierd = LINE_INIT, bare = LINE_INIT;
	pid_t echo = -1;
	int r = bench_node_start(&node, "256M", "1G");

	if (r == 0)
		r = line_open(node.socket, &tierd);
	if (r == 0)
		r = open_bare(&tierd, &bare, &echo);
	if (r == 0)
		r = measure(bench, &tierd, &bare);
	fd_close(bare.socket);
	if (echo > 0)
		waitpid(echo, NULL, 0);
	line_close(&tierd);
	bench_node_stop(&node);
	return r;
}
