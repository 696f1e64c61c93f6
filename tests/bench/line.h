/* A line is a connection on which an empty request goes to tierd and back, without libtierd. */
#ifndef TIERD_TESTS_BENCH_LINE_H
#define TIERD_TESTS_BENCH_LINE_H

#include <stddef.h>
#include <stdint.h>

struct line {
	int socket;
	uint8_t *request;
	size_t request_length, reply_length;
};
#define LINE_INIT                                                                                            \
	{                                                                                                    \
		.socket = -1                                                                                 \
	}

#define LINE_MAX_REPLY 256

/* Greets the daemon, and asks once. line_close() is needed after an error, too. */
int line_open(const char *path, struct line *line);
void line_close(struct line *line);
int line_round_trip(const struct line *line);

/* Of any stream socket. 0, or -EIO. */
int line_send(int socket, const void *bytes, size_t length);
int line_receive(int socket, void *bytes, size_t length);

/* Connects, and greets where that is asked for; the socket, or negative errno. */
int line_connect(const char *path);
int line_greet(int socket);

#endif
