#include "tests/bench/attack.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "proto/frame.h"
#include "tests/bench/line.h"

#define FLOOD 256 /* requests in one piece */
#define CROWD 8	  /* connections of one attack */
#define MOST_DESCRIPTORS 253

/* ---- Floods ---- */

static void flood_requests(const char *path)
{
	struct line line = LINE_INIT;
	uint8_t *requests, *replies;

	if (line_open(path, &line) < 0)
		return;
	requests = malloc(FLOOD * line.request_length);
	replies = malloc(FLOOD * line.reply_length);
	for (unsigned i = 0; requests && i < FLOOD; i++)
		memcpy(requests + i * line.request_length, line.request, line.request_length);
	while (requests && replies && line_send(line.socket, requests, FLOOD * line.request_length) == 0 &&
	       line_receive(line.socket, replies, FLOOD * line.reply_length) == 0)
		;
	free(requests);
	free(replies);
	line_close(&line);
}

static void flood_connections(const char *path)
{
	int connection = line_connect(path);

	if (connection >= 0)
		line_greet(connection);
	fd_close(connection);
}

static void flood_garbage(const char *path)
{
	static const char garbage[] = "GET / HTTP/1.1\r\nHost: tierd\r\n\r\n";
	int connection = line_connect(path);
	char rest[512];

	if (connection >= 0 && line_send(connection, garbage, sizeof(garbage)) == 0)
		while (read(connection, rest, sizeof(rest)) > 0)
			;
	fd_close(connection);
}

/* Of fields that nobody knows: each is looked at. */
static void flood_bytes(const char *path)
{
	static uint8_t frame[FRAME_MAX_BYTES];
	const uint32_t header[4] = { FRAME_MAGIC, 1 | FRAME_REQUEST << 16, sizeof(frame) - FRAME_HEADER_BYTES,
				     1 };
	struct line line = LINE_INIT;
	uint8_t reply[LINE_MAX_REPLY];

	memcpy(frame, header, sizeof(header));
	for (size_t i = FRAME_HEADER_BYTES; i + 2 < sizeof(frame); i += 3)
		memcpy(frame + i, "\x80\x7d\x01", 3);
	if (line_open(path, &line) == 0)
		while (line_send(line.socket, frame, sizeof(frame)) == 0 &&
		       read(line.socket, reply, sizeof(reply)) > 0)
			;
	line_close(&line);
}

/* Nobody waits for an answer: there is always one more. */
static void flood_arrivals(const char *path)
{
	fd_close(line_connect(path));
}

static void flood_descriptors(const char *path)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int) * MOST_DESCRIPTORS)];
	} control = { .header = { .cmsg_level = SOL_SOCKET,
				  .cmsg_type = SCM_RIGHTS,
				  .cmsg_len = CMSG_LEN(sizeof(int) * MOST_DESCRIPTORS) } };
	struct line line = LINE_INIT;
	uint8_t reply[LINE_MAX_REPLY];

	if (line_open(path, &line) == 0) {
		struct iovec part = { line.request, line.request_length };
		struct msghdr message = { .msg_iov = &part,
					  .msg_iovlen = 1,
					  .msg_control = &control,
					  .msg_controllen = sizeof(control.bytes) };

		for (unsigned i = 0; i < MOST_DESCRIPTORS; i++)
			memcpy(CMSG_DATA(&control.header) + i * sizeof(int), &line.socket, sizeof(int));
		while (sendmsg(line.socket, &message, MSG_NOSIGNAL) == (ssize_t)line.request_length &&
		       line_receive(line.socket, reply, line.reply_length) == 0)
			;
	}
	line_close(&line);
}

/* ---- A crowd that is slow ---- */

/* Each of them in turn, until one cannot go on. They are slow, so that what is measured is what tierd does
 * with them, and not who gets the processor. */
static void crowd_together(const char *path, bool (*act)(const struct line *line, void *argument),
			   void *argument)
{
	struct line crowd[CROWD];
	bool goes_on = true;

	for (unsigned i = 0; i < CROWD; i++) {
		crowd[i] = (struct line)LINE_INIT;
		goes_on = goes_on && line_open(path, &crowd[i]) == 0;
	}
	while (goes_on) {
		for (unsigned i = 0; i < CROWD && goes_on; i++)
			goes_on = act(&crowd[i], argument);
		clock_sleep_ns(100000);
	}
	for (unsigned i = 0; i < CROWD; i++)
		line_close(&crowd[i]);
}

/* Asks for all that tierd takes, and reads a byte. */
static bool ask_and_read(const struct line *line, void *argument)
{
	uint8_t byte;

	while (send(line->socket, line->request, line->request_length, MSG_NOSIGNAL | MSG_DONTWAIT) ==
	       (ssize_t)line->request_length)
		;
	return (errno == EAGAIN || errno == EWOULDBLOCK) && line_receive(line->socket, &byte, 1) == 0;
}

static void read_slowly(const char *path)
{
	crowd_together(path, ask_and_read, NULL);
}

/* The place in its frame is that of all. */
struct slow_frame {
	uint32_t header[4];
	size_t sent; /* by all of the crowd together */
};

/* A byte of a frame as large as it may be. */
static bool write_byte(const struct line *line, void *argument)
{
	struct slow_frame *frame = argument;
	size_t place = frame->sent++ / CROWD;
	uint8_t byte = place < sizeof(frame->header) ? ((const uint8_t *)frame->header)[place] : 0;

	return line_send(line->socket, &byte, 1) == 0;
}

static void write_slowly(const char *path)
{
	struct slow_frame frame = { .header = { FRAME_MAGIC, 1 | FRAME_REQUEST << 16,
						FRAME_MAX_BYTES - FRAME_HEADER_BYTES, 1 } };

	crowd_together(path, write_byte, &frame);
}

/* ---- All of them ---- */

const struct attack attacks[ATTACKS] = {
	{ "a flood of requests", flood_requests },
	{ "a flood of connections", flood_connections },
	{ "connections that come and go", flood_arrivals },
	{ "a flood of garbage", flood_garbage },
	{ "a flood of the largest messages", flood_bytes },
	{ "a flood of descriptors", flood_descriptors },
	{ "slow readers", read_slowly },
	{ "slow writers", write_slowly },
};

int attack_start(const struct attack *attack, const char *path, pid_t *ret_pid)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		raise(SIGSTOP);
		for (;;)
			attack->run(path);
	}
	if (pid < 0 || waitpid(pid, NULL, WUNTRACED) < 0)
		return -errno;
	*ret_pid = pid;
	return 0;
}

void attack_go_on(pid_t pid)
{
	kill(pid, SIGCONT);
}

int attack_stop(pid_t pid)
{
	kill(pid, SIGSTOP);
	return waitpid(pid, NULL, WUNTRACED) < 0 ? -errno : 0;
}

void attack_end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
