#include "raw_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "crash_support.h"

static void connect_to(struct raw_client *client)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", getenv("TIERD_SOCKET"));
	client->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	REQUIRE(connect(client->socket, (struct sockaddr *)&address, sizeof(address)) == 0);
}

static bool send_message(struct raw_client *client, enum frame_type type, const ProtobufCMessage *message)
{
	uint8_t *frame;
	size_t length;

	REQUIRE(frame_encode(1, type, ++client->number, message, &frame, &length) == 0);
	ssize_t sent = send(client->socket, frame, length, MSG_NOSIGNAL);
	free(frame);
	return sent == (ssize_t)length;
}

static void take_descriptors(struct raw_client *client, struct msghdr *message)
{
	struct cmsghdr *control = CMSG_FIRSTHDR(message);
	size_t bytes = control ? control->cmsg_len - CMSG_LEN(0) : 0;

	REQUIRE(client->fd_count + bytes / sizeof(int) <= RAW_MAX_FDS);
	if (bytes > 0)
		memcpy(&client->fds[client->fd_count], CMSG_DATA(control), bytes);
	client->fd_count += (unsigned)(bytes / sizeof(int));
}

/* More of the stream. 0, or negative errno; -EPIPE at its end. */
static int receive(struct raw_client *client, int flags)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * 8)];
	struct iovec part = { client->bytes + client->used, FRAME_MAX_BYTES - client->used };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
	};
	ssize_t received = recvmsg(client->socket, &message, MSG_CMSG_CLOEXEC | flags);

	if (received <= 0)
		return received < 0 ? -errno : -EPIPE;
	take_descriptors(client, &message);
	client->used += (size_t)received;
	return 0;
}

/* Takes the first frame out of what has come; NULL: it is not whole. */
static ProtobufCMessage *next_frame(struct raw_client *client, struct frame_header *header)
{
	ProtobufCMessage *message;

	if (client->used < FRAME_HEADER_BYTES)
		return NULL;
	REQUIRE(frame_header_decode(client->bytes, header) == 0);
	if (client->used < FRAME_HEADER_BYTES + header->length)
		return NULL;
	REQUIRE(frame_decode(client->arena,
			     header->type == FRAME_HELLO_REPLY ? &tierd__wire__hello_reply__descriptor
			     : header->type == FRAME_REPLY     ? &tierd__wire__reply__descriptor
							       : &tierd__wire__event__descriptor,
			     client->bytes + FRAME_HEADER_BYTES, header->length, &message) == 0);
	client->used -= FRAME_HEADER_BYTES + header->length;
	memmove(client->bytes, client->bytes + FRAME_HEADER_BYTES + header->length, client->used);
	return message;
}

static ProtobufCMessage *await_frame(struct raw_client *client, enum frame_type type)
{
	struct frame_header header;

	for (;;) {
		ProtobufCMessage *message = next_frame(client, &header);

		if (message && header.type == type && header.request == client->number)
			return message;
		if (!message && receive(client, 0) < 0)
			return NULL;
	}
}

void raw_open(struct raw_client *client)
{
	Tierd__Wire__Hello hello = TIERD__WIRE__HELLO__INIT;

	*client = (struct raw_client){ .bytes = malloc(FRAME_MAX_BYTES) };
	REQUIRE(client->bytes && frame_arena_new(&client->arena) == 0);
	connect_to(client);
	hello.version_minimum = FRAME_VERSIONS.minimum;
	hello.version_maximum = FRAME_VERSIONS.maximum;
	REQUIRE(send_message(client, FRAME_HELLO, &hello.base));
	REQUIRE(await_frame(client, FRAME_HELLO_REPLY));
}

void raw_close(struct raw_client *client)
{
	close(client->socket);
	while (client->fd_count > 0)
		close(client->fds[--client->fd_count]);
	frame_arena_free(client->arena);
	free(client->bytes);
}

bool raw_send(struct raw_client *client, Tierd__Wire__Request *request)
{
	return send_message(client, FRAME_REQUEST, &request->base);
}

const Tierd__Wire__Reply *raw_call(struct raw_client *client, Tierd__Wire__Request *request)
{
	return raw_send(client, request) ? (const Tierd__Wire__Reply *)await_frame(client, FRAME_REPLY)
					 : NULL;
}

bool raw_drain(struct raw_client *client)
{
	int r;

	while ((r = receive(client, MSG_DONTWAIT)) == 0)
		client->used = 0;
	return r == -EAGAIN;
}
