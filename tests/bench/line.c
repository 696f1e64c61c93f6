#include "tests/bench/line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/cleanup.h"
#include "proto/frame.h"

int line_send(int socket, const void *bytes, size_t length)
{
	return send(socket, bytes, length, MSG_NOSIGNAL) == (ssize_t)length ? 0 : -EIO;
}

int line_receive(int socket, void *bytes, size_t length)
{
	return recv(socket, bytes, length, MSG_WAITALL) == (ssize_t)length ? 0 : -EIO;
}

int line_round_trip(const struct line *line)
{
	uint8_t reply[LINE_MAX_REPLY];
	int r = line_send(line->socket, line->request, line->request_length);

	return r < 0 ? r : line_receive(line->socket, reply, line->reply_length);
}

static int receive_frame(int socket, enum frame_type type, size_t *ret_length)
{
	uint8_t bytes[FRAME_HEADER_BYTES + LINE_MAX_REPLY];
	struct frame_header header;
	int r = line_receive(socket, bytes, FRAME_HEADER_BYTES);

	if (r == 0)
		r = frame_header_decode(bytes, &header);
	if (r == 0 && (header.type != type || header.length > LINE_MAX_REPLY - FRAME_HEADER_BYTES))
		r = -EPROTO;
	if (r == 0 && header.length > 0)
		r = line_receive(socket, bytes + FRAME_HEADER_BYTES, header.length);
	if (r == 0)
		*ret_length = FRAME_HEADER_BYTES + header.length;
	return r;
}

int line_connect(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	_cleanup_close_ int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	return TAKE_FD(connection);
}

int line_greet(int socket)
{
	Tierd__Wire__Hello hello = TIERD__WIRE__HELLO__INIT;
	_cleanup_free_ uint8_t *frame = NULL;
	size_t length, reply;
	int r;

	hello.version_minimum = FRAME_VERSIONS.minimum;
	hello.version_maximum = FRAME_VERSIONS.maximum;
	hello.program = (char *)"bench_gather";
	r = frame_encode(1, FRAME_HELLO, 0, &hello.base, &frame, &length);
	if (r == 0)
		r = line_send(socket, frame, length);
	return r < 0 ? r : receive_frame(socket, FRAME_HELLO_REPLY, &reply);
}

int line_open(const char *path, struct line *line)
{
	Tierd__Wire__Ping ping = TIERD__WIRE__PING__INIT;
	int r;

	line->socket = line_connect(path);
	if (line->socket < 0)
		return line->socket;
	r = line_greet(line->socket);
	if (r == 0)
		r = frame_encode(1, FRAME_REQUEST, 1, &WIRE_REQUEST(PING, ping, &ping)->base, &line->request,
				 &line->request_length);
	if (r == 0)
		r = line_send(line->socket, line->request, line->request_length);
	return r < 0 ? r : receive_frame(line->socket, FRAME_REPLY, &line->reply_length);
}

void line_close(struct line *line)
{
	line->socket = fd_close(line->socket);
	free(line->request);
	line->request = NULL;
}
