#include "client/library/connection/connection.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "proto/pages.h"
#include "proto/status.h"

#define GONE                                                                                                 \
	"tierd has ended the connection. Either it was stopped or killed, and durable jobs stand at their "  \
	"last durable step, while others are lost: start tierd again. Or it ended "                          \
	"this "                                                                                              \
	"session: its log says why. Then connect and open the job again"

/* How often a program with is_interrupted is asked while a thread waits. */
#define TURN_NS UINT64_C(100000000)

uint32_t connection_generation;

static void count_fork(void)
{
	connection_generation++;
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, count_fork);
}

static void init_locks(struct tierd_node *node)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&node->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	pthread_mutex_init(&node->lock, NULL);
}

int connection_new(const struct connection_listener *listener, struct tierd_node **ret_node)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	_cleanup_(connection_freep) struct tierd_node *node = calloc(1, sizeof(*node));
	int r;

	pthread_once(&once, watch_forks);
	if (!node)
		return -ENOMEM;
	node->listener = listener;
	node->generation = connection_generation;
	node->timeout_ms = -1;
	node->versions = FRAME_VERSIONS;
	node->pages = PAGES_VERSIONS;
	node->wake_fd = node->poll_fd = node->done_fd = -1;
	queue_init(&node->tickets);
	queue_init(&node->jobs);
	queue_init(&node->readers);
	for (int i = 0; i < CONNECTION_BUCKETS; i++)
		queue_init(&node->pending[i]);
	init_locks(node);
	r = frame_arena_new(&node->arena);
	if (r < 0)
		return r;
	node->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (node->wake_fd < 0)
		return -errno;
	*ret_node = TAKE_PTR(node);
	return 0;
}

struct tierd_node *connection_free(struct tierd_node *node)
{
	if (!node)
		return NULL;
	stream_free(node->stream);
	frame_arena_free(node->arena);
	fd_close(node->wake_fd);
	fd_close(node->poll_fd);
	fd_close(node->done_fd);
	/* In a forked child these may be locked for ever. */
	if (node->generation == connection_generation) {
		pthread_cond_destroy(&node->changed);
		pthread_mutex_destroy(&node->lock);
	}
	free(node);
	return NULL;
}

int connection_enter(struct tierd_node *node)
{
	if (node->generation != connection_generation)
		return message_fail_child();
	pthread_mutex_lock(&node->lock);
	while (node->is_reconnecting)
		pthread_cond_wait(&node->changed, &node->lock);
	return 0;
}

void connection_exit(struct tierd_node *node)
{
	pthread_mutex_unlock(&node->lock);
}

int connection_open(struct tierd_node *node, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct stream *stream;
	int r = stream_new(fd, &stream);

	if (r < 0)
		return message_fail(r, "connecting to tierd: %s", strerror(-r));
	if (node->poll_fd >= 0 && epoll_ctl(node->poll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
		r = -errno;
		stream_free(stream);
		return message_fail(r, "connecting to tierd: %s", strerror(-r));
	}
	stream_free(node->stream);
	node->stream = stream;
	node->connections++;
	node->version = 0;
	node->error = 0;
	node->is_lost = false;
	return 0;
}

void connection_give_up(struct tierd_node *node, int r, const char *text)
{
	node->is_lost = false;
	node->error = r;
	snprintf(node->error_text, sizeof(node->error_text), "%s", text);
}

int connection_check(const struct tierd_node *node)
{
	if (node->is_reconnecting && !pthread_equal(node->reconnecting, pthread_self()))
		return message_fail(-ECONNRESET, "the connection to tierd is being opened again");
	return node->error ? message_fail_text(node->error, node->error_text) : 0;
}

static void wake_reader(struct tierd_node *node)
{
	(void)!write(node->wake_fd, &(uint64_t){ 1 }, sizeof(uint64_t));
}

void connection_fail(struct tierd_node *node, int r, const char *format, ...)
{
	va_list arguments;

	if (node->error)
		return;
	va_start(arguments, format);
	vsnprintf(node->error_text, sizeof(node->error_text), format, arguments);
	va_end(arguments);
	node->error = r;
	node->is_lost = r == -ECONNRESET && node->reconnect_ms > 0;
	shutdown(stream_fd(node->stream), SHUT_RDWR);
	/* It would stay readable, with nothing to be read. */
	if (node->is_lost && node->poll_fd >= 0)
		(void)epoll_ctl(node->poll_fd, EPOLL_CTL_DEL, stream_fd(node->stream), NULL);
	node->listener->lose(node);
	pthread_cond_broadcast(&node->changed);
	wake_reader(node);
}

uint64_t connection_deadline(const struct tierd_node *node, int timeout_ms)
{
	if (timeout_ms < 0)
		timeout_ms = node->timeout_ms;
	return timeout_ms < 0 ? CONNECTION_NEVER : clock_now_ns() + (uint64_t)timeout_ms * 1000000;
}

/* ---- What comes ---- */

static int unpack(struct tierd_node *node, const ProtobufCMessageDescriptor *descriptor,
		  const uint8_t *payload, uint32_t length, ProtobufCMessage **ret_message)
{
	int r = frame_decode(node->arena, descriptor, payload, length, ret_message);

	if (r < 0)
		connection_fail(node, -EPROTO, "tierd sent a malformed %s", descriptor->short_name);
	return r;
}

static void fail_version(struct tierd_node *node, const Tierd__Wire__HelloReply *hello, const char *what,
			 uint32_t chosen, struct versions ours)
{
	connection_fail(node, -EPROTONOSUPPORT,
			"%.40s chose version %u of the %s, and this library (" TIERD_VERSION
			") speaks %u to %u; update the older of the two",
			*hello->daemon ? hello->daemon : "tierd", chosen, what, ours.minimum, ours.maximum);
}

static void accept_hello(struct tierd_node *node, const Tierd__Wire__HelloReply *hello)
{
	node->version = hello->version;
	node->incarnation = hello->incarnation;
}

static void handle_hello(struct tierd_node *node, const uint8_t *payload, uint32_t length)
{
	ProtobufCMessage *message;

	if (unpack(node, &tierd__wire__hello_reply__descriptor, payload, length, &message) < 0)
		return;
	const Tierd__Wire__HelloReply *hello = (const Tierd__Wire__HelloReply *)message;
	int r = hello->status ? status_to_errno(hello->status->code) : -EPROTO;

	if (r < 0)
		connection_fail(node, r, "tierd refused the connection: %s",
				hello->status ? hello->status->message : "it gave no reason");
	else if (!versions_have(node->versions, hello->version))
		fail_version(node, hello, "protocol", hello->version, node->versions);
	else if (hello->pages != 0 && !versions_have(node->pages, hello->pages))
		fail_version(node, hello, "shared pages", hello->pages, node->pages);
	else
		accept_hello(node, hello);
}

static void handle_reply(struct tierd_node *node, uint32_t request, const uint8_t *payload, uint32_t length)
{
	ProtobufCMessage *message;

	if (unpack(node, &tierd__wire__reply__descriptor, payload, length, &message) < 0)
		return;
	const Tierd__Wire__Reply *reply = (const Tierd__Wire__Reply *)message;

	if (!reply->status)
		connection_fail(node, -EPROTO, "tierd sent a reply without a status");
	else
		node->listener->answer(node, request, reply);
}

static void handle_event(struct tierd_node *node, const uint8_t *payload, uint32_t length)
{
	ProtobufCMessage *message;

	if (unpack(node, &tierd__wire__event__descriptor, payload, length, &message) < 0)
		return;
	const Tierd__Wire__Event *event = (const Tierd__Wire__Event *)message;

	/* Events that this version does not know are ignored. */
	if (event->body_case == TIERD__WIRE__EVENT__BODY_EPOCH_ENDED)
		node->listener->end_epoch(node, event->epoch_ended);
}

static void handle(struct tierd_node *node, const struct frame_header *header, const uint8_t *payload)
{
	if (header->version != (node->version ? node->version : FRAME_VERSION_HELLO))
		connection_fail(node, -EPROTO, "tierd sent a frame of protocol version %u, agreed was %u",
				header->version, node->version ? node->version : FRAME_VERSION_HELLO);
	else if (header->type == FRAME_HELLO_REPLY && node->version == 0)
		handle_hello(node, payload, header->length);
	else if (header->type == FRAME_REPLY && node->version != 0)
		handle_reply(node, header->request, payload, header->length);
	else if (header->type == FRAME_EVENT && node->version != 0)
		handle_event(node, payload, header->length);
	else
		connection_fail(node, -EPROTO, "tierd sent a frame of type %d out of order", header->type);
}

/* Handles everything that is there, also what the daemon sent before it closed the connection. */
static void read_all(struct tierd_node *node)
{
	struct frame_header header;
	const uint8_t *payload;
	int r;

	while (!node->error && (r = stream_fill(node->stream)) != -EAGAIN) {
		if (r == -ECONNRESET)
			connection_fail(node, r, GONE);
		else if (r < 0)
			connection_fail(node, r, "reading from tierd: %s", strerror(-r));
		while (!node->error && (r = stream_next(node->stream, &header, &payload)) != 0)
			if (r < 0)
				connection_fail(node, -EPROTO,
						"tierd sent what is not a frame of its protocol");
			else
				handle(node, &header, payload);
		if (!node->error && stream_has_stray_fds(node->stream))
			connection_fail(node, -EPROTO, "tierd sent descriptors that nobody asked for");
	}
}

static void write_all(struct tierd_node *node)
{
	int r = stream_flush(node->stream);

	if (r == 0)
		return;
	if (!node->has_reader)
		read_all(node);
	if (r == -ECONNRESET)
		connection_fail(node, r, GONE);
	else
		connection_fail(node, r, "writing to tierd: %s", strerror(-r));
}

/* ---- Waiting ---- */

static struct timespec timespec_from_ns(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000) };
}

static void read_for_all(struct tierd_node *node, uint64_t deadline)
{
	bool has_output = stream_has_output(node->stream);
	struct pollfd fds[] = {
		{ .fd = stream_fd(node->stream), .events = (short)(POLLIN | (has_output ? POLLOUT : 0)) },
		{ .fd = node->wake_fd, .events = POLLIN },
	};
	uint64_t now = clock_now_ns();
	struct timespec rest = timespec_from_ns(deadline > now ? deadline - now : 0);
	uint64_t wakes;

	node->has_reader = true;
	node->is_reader_awake_to_output = has_output;
	pthread_mutex_unlock(&node->lock);
	(void)ppoll(fds, 2, deadline == CONNECTION_NEVER ? NULL : &rest, NULL);
	pthread_mutex_lock(&node->lock);
	if (fds[1].revents)
		(void)!read(node->wake_fd, &wakes, sizeof(wakes));
	read_all(node);
	if (!node->error)
		write_all(node);
	node->has_reader = false;
	pthread_cond_broadcast(&node->changed);
}

static void wait_for_reader(struct tierd_node *node, uint64_t deadline)
{
	struct timespec end = timespec_from_ns(deadline);

	if (deadline == CONNECTION_NEVER)
		pthread_cond_wait(&node->changed, &node->lock);
	else
		pthread_cond_timedwait(&node->changed, &node->lock, &end);
}

/* The thread that opens the connection again does it for all threads: it cannot be interrupted here. */
static bool may_be_interrupted(const struct tierd_node *node)
{
	return node->is_interrupted &&
	       !(node->is_reconnecting && pthread_equal(node->reconnecting, pthread_self()));
}

static uint64_t end_of_turn(const struct tierd_node *node, uint64_t deadline)
{
	uint64_t end = may_be_interrupted(node) ? clock_now_ns() + TURN_NS : deadline;

	return end < deadline ? end : deadline;
}

bool connection_is_interrupted(const struct tierd_node *node)
{
	return node->is_interrupted && node->is_interrupted(node->interrupt_argument);
}

/* Releases the lock to call the program. */
static bool is_interrupted(struct tierd_node *node)
{
	bool is;

	connection_exit(node);
	is = connection_is_interrupted(node);
	pthread_mutex_lock(&node->lock);
	return is;
}

int connection_wait(struct tierd_node *node, bool (*is_done)(const void *argument), const void *argument,
		    uint64_t deadline)
{
	uint64_t end = end_of_turn(node, deadline);

	for (bool has_looked = false; !is_done(argument); has_looked = true) {
		if (node->error)
			return connection_check(node);
		if (has_looked && end != CONNECTION_NEVER && clock_now_ns() >= end) {
			if (end == deadline || is_interrupted(node))
				return -ETIMEDOUT;
			end = end_of_turn(node, deadline);
		} else if (node->has_reader) {
			wait_for_reader(node, end);
		} else {
			read_for_all(node, end);
		}
	}
	return 0;
}

void connection_look(struct tierd_node *node)
{
	if (!node->error && !node->has_reader)
		read_all(node);
}

static bool has_input(const struct tierd_node *node)
{
	struct pollfd fd = { .fd = stream_fd(node->stream), .events = POLLIN };

	return poll(&fd, 1, 0) > 0;
}

void connection_hear(struct tierd_node *node)
{
	/* The thread that reads is awake then, and broadcasts when it has handled all. */
	while (!node->error && node->has_reader && has_input(node))
		pthread_cond_wait(&node->changed, &node->lock);
	connection_look(node);
}

void connection_copy(struct tierd_node *node, void *to, const void *from, size_t bytes)
{
	connection_exit(node);
	memcpy(to, from, bytes);
	pthread_mutex_lock(&node->lock);
}

/* ---- Sending ---- */

static bool is_sent(const void *argument)
{
	const struct tierd_node *node = argument;

	return !stream_has_output(node->stream);
}

/* If the daemon does not read for the node's timeout, a thread that waits for a reply will notice. */
static int push_out(struct tierd_node *node)
{
	write_all(node);
	if (node->error)
		return connection_check(node);
	if (is_sent(node))
		return 0;
	if (node->has_reader && !node->is_reader_awake_to_output)
		wake_reader(node);
	return connection_wait(node, is_sent, node, connection_deadline(node, -1));
}

uint32_t connection_number(struct tierd_node *node)
{
	/* 0 marks events. When numbers come again, the old requests have been answered. */
	if (++node->last_request == 0)
		node->last_request = 1;
	return node->last_request;
}

int connection_send(struct tierd_node *node, uint32_t number, const Tierd__Wire__Request *request)
{
	uint32_t connection = node->connections;
	int r = connection_check(node);

	if (r < 0)
		return r;
	while ((r = stream_queue(node->stream, node->version, FRAME_REQUEST, number, &request->base)) ==
	       -ENOBUFS) {
		r = push_out(node);
		/* The request was made for the lost connection: its numbers mean nothing now. */
		if (r == 0 && node->connections != connection)
			return message_fail(-ECONNRESET, GONE);
		if (r == -ETIMEDOUT)
			return message_fail(r, "tierd does not read what this process sends");
		if (r < 0)
			return r;
	}
	if (r == -EMSGSIZE)
		return message_fail(r, "the request is larger than %u bytes, the most that tierd takes",
				    FRAME_MAX_BYTES);
	if (r == -ENOMEM)
		return message_fail_memory();
	r = push_out(node);
	return r == -ETIMEDOUT ? 0 : r;
}

void connection_post(struct tierd_node *node, uint32_t number, const Tierd__Wire__Request *request)
{
	int r;

	if (node->error)
		return;
	r = stream_queue(node->stream, node->version, FRAME_REQUEST, number, &request->base);
	if (r < 0) {
		connection_fail(node, r, "sending to tierd: %s", strerror(-r));
		return;
	}
	if (stream_flush(node->stream) == 0 && stream_has_output(node->stream) && node->has_reader &&
	    !node->is_reader_awake_to_output)
		wake_reader(node);
}

static bool is_greeted(const void *argument)
{
	const struct tierd_node *node = argument;

	return node->version != 0;
}

int connection_greet(struct tierd_node *node, uint64_t deadline)
{
	Tierd__Wire__Hello hello = TIERD__WIRE__HELLO__INIT;
	int r;

	hello.version_minimum = node->versions.minimum;
	hello.version_maximum = node->versions.maximum;
	hello.pages_minimum = node->pages.minimum;
	hello.pages_maximum = node->pages.maximum;
	hello.program = (char *)"libtierd " TIERD_VERSION;
	r = stream_queue(node->stream, FRAME_VERSION_HELLO, FRAME_HELLO, 0, &hello.base);
	if (r < 0)
		return message_fail_text(r, NULL);
	write_all(node);
	r = connection_wait(node, is_greeted, node, deadline);
	return r == -ETIMEDOUT ? message_fail(r, "tierd accepted the connection but says nothing") : r;
}
