#include "client/tierctl/ask.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/clock.h"
#include "proto/status.h"

#define PROGRAM "tierctl " TIERD_VERSION

/* An answer gets so long, however little is left until end_ns: one of a daemon that turns comes. */
#define TIMEOUT_LEAST_MS 1000

struct ask {
	int socket;
	int descriptor; /* that came with the last answer, or -1 */
	unsigned timeout_ms;
	uint64_t end_ns; /* of all questions; 0: none */
	const char *path;
	struct frame_arena *arena;
	uint8_t *bytes;
	uint32_t version; /* of the protocol; 0: not greeted yet */
	uint32_t number;
	bool was_refused;
	char daemon[64];
	char message[1280];
};

static int fail(struct ask *ask, int r, const char *format, ...) __attribute__((format(printf, 3, 4)));

static int fail(struct ask *ask, int r, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(ask->message, sizeof(ask->message), format, arguments);
	va_end(arguments);
	return r;
}

static int fail_to_wait(struct ask *ask)
{
	return fail(
		ask, -ETIMEDOUT,
		"tierd at %s does not answer within %.0f s: it is stopped or stuck; tierctl top and tierctl "
		"metrics show its last figures",
		ask->path, ask->timeout_ms / 1000.0);
}

/* The connection is of no use any more. */
static int lose(struct ask *ask, int r)
{
	ask->socket = fd_close(ask->socket);
	if (r == -EAGAIN)
		return fail_to_wait(ask);
	if (r == -EPIPE || r == -ECONNRESET)
		return fail(ask, r, "tierd at %s closed the connection", ask->path);
	if (r == -EPROTO || r == -EMSGSIZE)
		return fail(ask, r, "what listens at %s does not speak tierd's protocol", ask->path);
	return fail(ask, r, "the connection to tierd at %s broke: %s", ask->path, strerror(-r));
}

/* ---- Bytes -----------------------------------------------------------------------------------------------
 */

static int send_all(struct ask *ask, const uint8_t *bytes, size_t length)
{
	while (length > 0) {
		ssize_t sent = send(ask->socket, bytes, length, MSG_NOSIGNAL);

		if (sent < 0 && errno != EINTR)
			return -errno;
		if (sent > 0) {
			bytes += sent;
			length -= (size_t)sent;
		}
	}
	return 0;
}

/* It takes one descriptor of them, and the kernel closes the others. */
static void take_descriptor(struct ask *ask, struct msghdr *message)
{
	struct cmsghdr *control = CMSG_FIRSTHDR(message);

	if (!control || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS ||
	    control->cmsg_len != CMSG_LEN(sizeof(int)))
		return;
	fd_close(ask->descriptor);
	memcpy(&ask->descriptor, CMSG_DATA(control), sizeof(int));
}

static ssize_t receive_some(struct ask *ask, uint8_t *bytes, size_t length)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct iovec part = { bytes, length };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
	};
	ssize_t received = recvmsg(ask->socket, &message, MSG_CMSG_CLOEXEC);

	if (received >= 0)
		take_descriptor(ask, &message);
	return received;
}

static int receive_all(struct ask *ask, uint8_t *bytes, size_t length)
{
	while (length > 0) {
		ssize_t received = receive_some(ask, bytes, length);

		if (received == 0)
			return -EPIPE;
		if (received < 0 && errno != EINTR)
			return -errno;
		if (received > 0) {
			bytes += received;
			length -= (size_t)received;
		}
	}
	return 0;
}

static int send_message(struct ask *ask, enum frame_type type, const ProtobufCMessage *message)
{
	_cleanup_free_ uint8_t *frame = NULL;
	size_t length;
	int r = frame_encode(ask->version, type, ++ask->number, message, &frame, &length);

	if (r == 0)
		r = send_all(ask, frame, length);
	/* A daemon that refuses a connection says why before it closes: the answer is worth reading. */
	return r == -EPIPE ? 0 : r;
}

static int receive_message(struct ask *ask, enum frame_type type,
			   const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **ret_message)
{
	uint8_t bytes[FRAME_HEADER_BYTES];
	struct frame_header header;
	int r = receive_all(ask, bytes, sizeof(bytes));

	if (r == 0)
		r = frame_header_decode(bytes, &header);
	if (r == 0)
		r = receive_all(ask, ask->bytes, header.length);
	if (r == 0 &&
	    (header.type != type || header.version != (ask->version ? ask->version : FRAME_VERSION_HELLO)))
		r = -EPROTO;
	if (r == 0)
		r = frame_decode(ask->arena, descriptor, ask->bytes, header.length, ret_message);
	return r;
}

/* ---- Requests --------------------------------------------------------------------------------------------
 */

static int refuse(struct ask *ask, const Tierd__Wire__Status *status)
{
	int r;

	if (!status)
		return lose(ask, -EPROTO);
	r = status_to_errno(status->code);
	ask->was_refused = r < 0;
	if (r == 0)
		return 0;
	if (*status->message)
		return fail(ask, r, "%s", status->message);
	return fail(ask, r, "%s", strerror(-r));
}

static int say_hello(struct ask *ask)
{
	Tierd__Wire__Hello hello = TIERD__WIRE__HELLO__INIT;
	const Tierd__Wire__HelloReply *reply;
	ProtobufCMessage *message;
	int r;

	hello.version_minimum = FRAME_VERSIONS.minimum;
	hello.version_maximum = FRAME_VERSIONS.maximum;
	hello.program = (char *)PROGRAM;
	r = send_message(ask, FRAME_HELLO, &hello.base);
	if (r == 0)
		r = receive_message(ask, FRAME_HELLO_REPLY, &tierd__wire__hello_reply__descriptor, &message);
	if (r < 0)
		return lose(ask, r);
	reply = (const Tierd__Wire__HelloReply *)message;
	snprintf(ask->daemon, sizeof(ask->daemon), "%s", reply->daemon);
	r = refuse(ask, reply->status);
	if (r < 0)
		return r;
	if (!versions_have(FRAME_VERSIONS, reply->version))
		return fail(ask, -EPROTONOSUPPORT,
			    "tierd at %s chose version %u of the protocol, and " PROGRAM
			    " speaks %u to %u; update the older of the two",
			    ask->path, reply->version, FRAME_VERSIONS.minimum, FRAME_VERSIONS.maximum);
	ask->version = reply->version;
	return 0;
}

/* The time that is left, as poll() takes it. */
static int milliseconds_until(uint64_t end_ns)
{
	uint64_t now_ns = clock_now_ns(), ms;

	if (end_ns == 0)
		return -1;
	if (now_ns >= end_ns)
		return 0;
	ms = (end_ns - now_ns + 999999) / 1000000;
	return ms > INT_MAX ? INT_MAX : (int)ms;
}

static void set_timeout(struct ask *ask)
{
	struct timeval timeout;
	int left_ms = milliseconds_until(ask->end_ns);

	if (left_ms >= 0 && left_ms < ASK_TIMEOUT_MS)
		ask->timeout_ms = left_ms > TIMEOUT_LEAST_MS ? (unsigned)left_ms : TIMEOUT_LEAST_MS;
	timeout = (struct timeval){ .tv_sec = (time_t)(ask->timeout_ms / 1000),
				    .tv_usec = (suseconds_t)(ask->timeout_ms % 1000 * 1000) };
	setsockopt(ask->socket, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	setsockopt(ask->socket, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
}

static int connect_to(struct ask *ask)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (strlen(ask->path) >= sizeof(address.sun_path))
		return fail(ask, -ENAMETOOLONG, "the path of a socket has at most 107 bytes: %s", ask->path);
	strcpy(address.sun_path, ask->path);
	ask->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (ask->socket < 0)
		return fail(ask, -errno, "no socket: %s", strerror(errno));
	set_timeout(ask);
	if (connect(ask->socket, (const struct sockaddr *)&address, sizeof(address)) == 0)
		return 0;
	if (errno == ENOENT || errno == ECONNREFUSED)
		return fail(ask, -errno, "no tierd listens at %s; start it, or name its socket with --socket",
			    ask->path);
	/* Too many have asked already. */
	if (errno == EAGAIN)
		return fail_to_wait(ask);
	if (errno == EACCES)
		return fail(ask, -errno,
			    "you may not use %s: it is for its owner, and for its group where it has one",
			    ask->path);
	return fail(ask, -errno, "%s: %s", ask->path, strerror(errno));
}

int ask_open(const char *socket_path, unsigned timeout_ms, uint64_t end_ns, struct ask **ret_ask)
{
	_cleanup_(ask_freep) struct ask *ask = calloc(1, sizeof(*ask));
	int r;

	if (!ask)
		return -ENOMEM;
	ask->socket = ask->descriptor = -1;
	ask->timeout_ms = timeout_ms;
	ask->end_ns = end_ns;
	ask->path = socket_path;
	ask->bytes = malloc(FRAME_MAX_BYTES);
	if (!ask->bytes || frame_arena_new(&ask->arena) < 0)
		return -ENOMEM;
	r = connect_to(ask);
	if (r == 0)
		r = say_hello(ask);
	if (r < 0)
		ask->socket = fd_close(ask->socket);
	*ret_ask = TAKE_PTR(ask);
	return r;
}

struct ask *ask_free(struct ask *ask)
{
	if (!ask)
		return NULL;
	fd_close(ask->socket);
	fd_close(ask->descriptor);
	frame_arena_free(ask->arena);
	free(ask->bytes);
	free(ask);
	return NULL;
}

/* Whether it answers on a connection of its own, or says why it does not. */
static bool daemon_turns(const struct ask *ask)
{
	_cleanup_(ask_freep) struct ask *other = NULL;
	int r = ask_open(ask->path, ask->timeout_ms / 2, 0, &other);

	return r == 0 || (other && other->was_refused);
}

/* Some answers come when much has been written, or read. */
static int await_answer(struct ask *ask)
{
	struct pollfd socket = { .fd = ask->socket, .events = POLLIN };
	bool is_patient = ask->end_ns == 0 && ask->timeout_ms == ASK_TIMEOUT_MS, has_told = false;
	int r;

	while ((r = poll(&socket, 1, (int)(is_patient ? ask->timeout_ms / 2 : ask->timeout_ms))) <= 0) {
		if (r < 0 && errno != EINTR)
			return -errno;
		if (r < 0)
			continue;
		if (!is_patient || !daemon_turns(ask))
			return -EAGAIN;
		if (!has_told)
			fprintf(stderr, "tierctl: tierd runs, and has not done it yet: waiting\n");
		has_told = true;
	}
	return 0;
}

int ask_request(struct ask *ask, const Tierd__Wire__Request *request, const Tierd__Wire__Reply **ret_reply)
{
	const Tierd__Wire__Reply *reply;
	ProtobufCMessage *message;
	int r;

	ask->descriptor = fd_close(ask->descriptor);
	if (ask->end_ns > 0)
		set_timeout(ask);
	r = send_message(ask, FRAME_REQUEST, &request->base);
	if (r == 0)
		r = await_answer(ask);
	if (r == 0)
		r = receive_message(ask, FRAME_REPLY, &tierd__wire__reply__descriptor, &message);
	if (r < 0)
		return lose(ask, r);
	reply = (const Tierd__Wire__Reply *)message;
	r = refuse(ask, reply->status);
	if (r < 0)
		return r;
	*ret_reply = reply;
	return 0;
}

int ask_event(struct ask *ask, uint64_t end_ns, const Tierd__Wire__Event **ret_event)
{
	struct pollfd socket = { .fd = ask->socket, .events = POLLIN };
	ProtobufCMessage *message;
	int r;

	do
		r = poll(&socket, 1, milliseconds_until(end_ns));
	while (r < 0 && errno == EINTR);
	if (r == 0)
		return fail(ask, -ETIMEDOUT, "nothing happened");
	r = receive_message(ask, FRAME_EVENT, &tierd__wire__event__descriptor, &message);
	if (r < 0)
		return lose(ask, r);
	*ret_event = (const Tierd__Wire__Event *)message;
	return 0;
}

int ask_take_descriptor(struct ask *ask)
{
	return TAKE_FD(ask->descriptor);
}

bool ask_is_connected(const struct ask *ask)
{
	return ask->socket >= 0;
}

bool ask_was_refused(const struct ask *ask)
{
	return ask->was_refused;
}

const char *ask_message(const struct ask *ask)
{
	return ask->message;
}

const char *ask_daemon(const struct ask *ask)
{
	return ask->daemon;
}
