#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "common/log.h"
#include "daemon/session/client.h"
#include "daemon/telemetry/events.h"
#include "daemon/session/request.h"
#include "daemon/session/session_inside.h"
#include "tests/unit/test.h"

#define INCARNATION 4711
#define OUTPUT_BYTES (2u << 20)

/* Stands in for daemon/session/client.c: notes what reaches it, and answers when it is told to. */
struct client {
	struct port *port;
	unsigned requests;
	uint32_t numbers[256];
	size_t name_length;
	bool answers_at_once, has_leases, is_there;
	unsigned catch_ups;
	char reason[256];
};

static struct client fake;

/* Stands in for daemon/telemetry/events.c. */
static struct {
	unsigned count;
	enum event_kind kind;
	uid_t user;
	char text[1024];
} told;

void events_of_node(struct node *node, enum event_kind kind, const struct log_fields *about,
		    const char *format, ...)
{
	va_list arguments;

	told.count++;
	told.kind = kind;
	told.user = *about->user;
	va_start(arguments, format);
	vsnprintf(told.text, sizeof(told.text), format, arguments);
	va_end(arguments);
}

int client_new(struct node *node, struct port *port, unsigned maximum_requests, struct client **ret_client)
{
	fake.port = port;
	fake.is_there = true;
	*ret_client = &fake;
	return 0;
}

void client_request(struct client *client, uint32_t number, const Tierd__Wire__Request *request)
{
	assert_true(client->requests < 256);
	client->numbers[client->requests++] = number;
	if (request->body_case == TIERD__WIRE__REQUEST__BODY_PHASE)
		client->name_length = strlen(request->phase->name);
	if (client->answers_at_once) {
		port_reply(client->port, number, NULL);
	}
}

bool request_holds_nothing(const Tierd__Wire__Request *request)
{
	return request->body_case == TIERD__WIRE__REQUEST__BODY_PING;
}

void client_hang_up(struct client *client, const char *reason)
{
	assert_string_equal(client->reason, "");
	snprintf(client->reason, sizeof(client->reason), "%s", reason ?: "the daemon ends");
}

void client_catch_up(struct client *client)
{
	client->catch_ups++;
}

bool client_has_leases(const struct client *client)
{
	return client->has_leases;
}

bool client_has_epochs(const struct client *client)
{
	return client->has_leases;
}

bool client_has_jobs(const struct client *client)
{
	return client->has_leases;
}

struct client *client_free(struct client *client)
{
	assert_true(client->is_there);
	client->is_there = false;
	return NULL;
}

/* ---- A session, and the other end of its socket ---- */

struct fixture {
	struct node node;
	struct session_shared shared;
	struct throttles throttles;
	struct throttle *other; /* of another user, who wants something all the time; or NULL */
	struct session *session;
	struct frame_arena *arena; /* of the other end */
	int peer;
	uint32_t version; /* that its frames have, but hellos; 0: 1 */
	pid_t child;
	bool is_over;
	uint8_t bytes[FRAME_MAX_BYTES];
};

static int keep_open[2] = { -1, -1 }; /* a pipe: a grandchild waits for its end */

static void on_over(struct session *session, void *argument)
{
	struct fixture *fixture = argument;

	assert_false(fixture->is_over);
	fixture->is_over = true;
	fixture->session = session_free(session);
}

static void start(struct fixture *fixture, int socket)
{
	fcntl(socket, F_SETFL, O_NONBLOCK);
	assert_int_equal(session_new(socket, &fixture->shared, &fixture->session), 0);
}

static void connect_peer(struct fixture *fixture)
{
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	fixture->peer = ends[1];
	start(fixture, ends[0]);
}

/* Another connection, which has not so much time for its Hello. */
static void connect_again(struct fixture *fixture, unsigned first_frame_ms)
{
	session_free(fixture->session);
	fd_close(fixture->peer);
	fixture->shared.limits.first_frame_ms = first_frame_ms;
	connect_peer(fixture);
}

static int setup(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));

	memset(&fake, 0, sizeof(fake));
	memset(&told, 0, sizeof(told));
	fake.answers_at_once = true;
	fixture->node.incarnation = INCARNATION;
	fixture->shared = (struct session_shared){
		.throttles = &fixture->throttles,
		.loop = event_base_new(),
		.node = &fixture->node,
		.versions = FRAME_VERSIONS,
		.pages = { 3, 3 },
		.limits = { .maximum_requests = 4,
			    .maximum_output = OUTPUT_BYTES,
			    .maximum_frame = FRAME_MAX_BYTES,
			    .first_frame_ms = 1000000,
			    .frame_ms = 1000000 },
		.lease_look_ms = 1,
		.over = on_over,
		.argument = fixture,
	};
	assert_int_equal(frame_arena_new(&fixture->shared.arena), 0);
	assert_int_equal(frame_arena_new(&fixture->arena), 0);
	*state = fixture;
	connect_peer(fixture);
	return 0;
}

static void kill_child(struct fixture *fixture)
{
	kill(fixture->child, SIGKILL);
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;

	if (fixture->child > 0) {
		kill_child(fixture);
		waitpid(fixture->child, NULL, 0);
	}
	session_free(fixture->session);
	throttle_leave(fixture->other);
	throttles_clear(&fixture->throttles);
	keep_open[0] = fd_close(keep_open[0]);
	keep_open[1] = fd_close(keep_open[1]);
	assert_false(fake.is_there);
	fd_close(fixture->peer);
	frame_arena_free(fixture->shared.arena);
	frame_arena_free(fixture->arena);
	event_base_free(fixture->shared.loop);
	free(fixture);
	return 0;
}

static struct fixture *begin_anew(void **state)
{
	teardown(state);
	setup(state);
	return *state;
}

static void turn(struct fixture *fixture)
{
	event_base_loop(fixture->shared.loop, EVLOOP_NONBLOCK);
}

/* More often than anything that can be done at once takes. */
static void turn_often(struct fixture *fixture)
{
	for (unsigned i = 0; i < 100; i++)
		turn(fixture);
}

static void wait_until_over(struct fixture *fixture)
{
	while (!fixture->is_over)
		event_base_loop(fixture->shared.loop, EVLOOP_ONCE);
}

static void wait_until_greeted(struct fixture *fixture)
{
	while (!fake.is_there)
		event_base_loop(fixture->shared.loop, EVLOOP_ONCE);
}

static void wait_until_hung_up(struct fixture *fixture)
{
	while (fake.reason[0] == '\0')
		event_base_loop(fixture->shared.loop, EVLOOP_ONCE);
}

static void send_bytes(struct fixture *fixture, const void *bytes, size_t length)
{
	const char *next = bytes;

	while (length > 0) {
		ssize_t sent = send(fixture->peer, next, length, MSG_DONTWAIT | MSG_NOSIGNAL);

		assert_true(sent > 0 || errno == EAGAIN);
		if (sent > 0) {
			next += sent;
			length -= (size_t)sent;
		}
		turn(fixture);
	}
}

static void send_frame(struct fixture *fixture, enum frame_type type, uint32_t number,
		       const ProtobufCMessage *message)
{
	_cleanup_free_ uint8_t *frame = NULL;
	size_t length;

	assert_int_equal(frame_encode(fixture->version ?: 1, type, number, message, &frame, &length), 0);
	send_bytes(fixture, frame, length);
}

/* The caller frees it. */
static uint8_t *encode_ping(uint32_t number, size_t *ret_length)
{
	Tierd__Wire__Ping ping = TIERD__WIRE__PING__INIT;
	uint8_t *frame;

	assert_int_equal(frame_encode(1, FRAME_REQUEST, number, &WIRE_REQUEST(PING, ping, &ping)->base,
				      &frame, ret_length),
			 0);
	return frame;
}

static void send_ping(struct fixture *fixture, uint32_t number)
{
	size_t length;
	_cleanup_free_ uint8_t *frame = encode_ping(number, &length);

	send_bytes(fixture, frame, length);
}

static void send_hello_with_pages(struct fixture *fixture, struct versions versions, struct versions pages)
{
	Tierd__Wire__Hello hello = TIERD__WIRE__HELLO__INIT;

	hello.version_minimum = versions.minimum;
	hello.version_maximum = versions.maximum;
	hello.pages_minimum = pages.minimum;
	hello.pages_maximum = pages.maximum;
	hello.program = (char *)"test\n1";
	send_frame(fixture, FRAME_HELLO, 7, &hello.base);
}

static void send_hello(struct fixture *fixture, uint32_t minimum, uint32_t maximum)
{
	send_hello_with_pages(fixture, (struct versions){ minimum, maximum }, (struct versions){ 0, 0 });
}

static void send_phase(struct fixture *fixture, uint32_t number, const char *name)
{
	Tierd__Wire__Phase phase = TIERD__WIRE__PHASE__INIT;

	phase.name = (char *)name;
	send_frame(fixture, FRAME_REQUEST, number, &WIRE_REQUEST(PHASE, phase, &phase)->base);
}

static void receive_bytes(struct fixture *fixture, uint8_t *bytes, size_t length)
{
	while (length > 0) {
		ssize_t received = recv(fixture->peer, bytes, length, MSG_DONTWAIT);

		assert_true(received > 0 || (received < 0 && errno == EAGAIN));
		if (received > 0) {
			bytes += received;
			length -= (size_t)received;
		} else {
			turn(fixture);
		}
	}
}

static ProtobufCMessage *receive_frame(struct fixture *fixture, enum frame_type type, uint32_t number,
				       const ProtobufCMessageDescriptor *descriptor)
{
	struct frame_header header;
	ProtobufCMessage *message;

	receive_bytes(fixture, fixture->bytes, FRAME_HEADER_BYTES);
	assert_int_equal(frame_header_decode(fixture->bytes, &header), 0);
	assert_int_equal(header.type, type);
	assert_int_equal(header.request, number);
	assert_int_equal(header.version, type == FRAME_HELLO_REPLY ? 1 : fixture->version ?: 1);
	receive_bytes(fixture, fixture->bytes, header.length);
	assert_int_equal(frame_decode(fixture->arena, descriptor, fixture->bytes, header.length, &message),
			 0);
	return message;
}

static const Tierd__Wire__HelloReply *receive_hello(struct fixture *fixture, uint32_t number)
{
	return (const void *)receive_frame(fixture, FRAME_HELLO_REPLY, number,
					   &tierd__wire__hello_reply__descriptor);
}

static const char *receive_reply(struct fixture *fixture, uint32_t number, int r)
{
	const Tierd__Wire__Reply *reply =
		(const void *)receive_frame(fixture, FRAME_REPLY, number, &tierd__wire__reply__descriptor);

	assert_int_equal(status_to_errno(reply->status->code), r);
	assert_true(r == 0 || *reply->status->message);
	return reply->status->message;
}

static void greet(struct fixture *fixture)
{
	send_hello(fixture, 1, 1);
	assert_int_equal(receive_hello(fixture, 7)->status->code, 0);
}

static void expect_end(struct fixture *fixture)
{
	char byte;

	wait_until_over(fixture);
	ssize_t received = recv(fixture->peer, &byte, 1, MSG_DONTWAIT);

	assert_true(received == 0 || (received < 0 && errno == ECONNRESET));
}

static unsigned count_fds(void)
{
	unsigned count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* ---- Hello ---- */

static void a_hello_is_answered_with_version_and_incarnation(void **state)
{
	const Tierd__Wire__HelloReply *reply;
	struct fixture *fixture = *state;

	assert_int_equal(fixture->session->state, SESSION_HELLO);
	send_hello(fixture, 0, 9);
	reply = receive_hello(fixture, 7);
	assert_int_equal(reply->status->code, 0);
	assert_int_equal(reply->version, FRAME_VERSIONS.maximum);
	assert_int_equal(reply->incarnation, INCARNATION);
	assert_string_equal(reply->daemon, "tierd " TIERD_VERSION);
	assert_int_equal(fixture->session->state, SESSION_OPEN);
	assert_int_equal(fake.port->uid, getuid());
	assert_int_equal(fake.port->pid, getpid());
}

static void a_version_that_we_do_not_speak_is_refused(void **state)
{
	const Tierd__Wire__HelloReply *reply;

	send_hello(*state, 17, 18);
	reply = receive_hello(*state, 7);
	assert_int_equal(status_to_errno(reply->status->code), -EPROTONOSUPPORT);
	assert_non_null(strstr(reply->status->message, "17 to 18"));
	assert_non_null(strstr(reply->status->message, "1 to 1"));
	expect_end(*state);
	assert_int_equal(told.count, 1);
	assert_int_equal(told.kind, EVENT_CLIENT_REFUSED);
	assert_int_equal(told.user, getuid());
	assert_non_null(strstr(told.text, "the client speaks versions 17 to 18"));
	assert_non_null(strstr(told.text, "its connection is closed"));
	assert_null(strstr(told.text, "its ranks"));
	assert_false(fake.is_there);
}

/* A daemon that speaks 3 to 5 meets older and newer peers. */
static void every_range_of_versions_gets_its_highest_or_a_reason(void **state)
{
	struct fixture *fixture;
	const Tierd__Wire__HelloReply *reply;
	char range[32];

	for (uint32_t minimum = 0; minimum < 8; minimum++)
		for (uint32_t maximum = 0; maximum < 8; maximum++) {
			bool agrees = minimum <= maximum && maximum >= 3 && minimum <= 5;

			fixture = begin_anew(state);
			fixture->shared.versions = (struct versions){ 3, 5 };
			send_hello(fixture, minimum, maximum);
			reply = receive_hello(fixture, 7);
			assert_int_equal(status_to_errno(reply->status->code), agrees ? 0 : -EPROTONOSUPPORT);
			assert_int_equal(reply->version, agrees ? maximum < 5 ? maximum : 5 : 0);
			snprintf(range, sizeof(range), "%u to %u of the protocol", minimum, maximum);
			assert_true(agrees || (strstr(reply->status->message, range) &&
					       strstr(reply->status->message, "3 to 5")));
			if (!agrees) {
				expect_end(fixture);
				continue;
			}
			fixture->version = reply->version;
			send_phase(fixture, 9, "");
			receive_reply(fixture, 9, 0);
			/* Any other is none. */
			send_bytes(fixture, "tir1\7\0\3\0\0\0\0\0\12\0\0\0", 16);
			receive_reply(fixture, 10, -EPROTO);
		}
}

static void every_range_of_pages_gets_its_highest_or_a_reason(void **state)
{
	static const struct {
		struct versions pages;
		uint32_t chosen; /* 0: refused */
	} cases[] = { { { 1, 3 }, 0 }, { { 1, 4 }, 4 }, { { 5, 5 }, 5 },
		      { { 4, 9 }, 5 }, { { 6, 9 }, 0 }, { { 9, 4 }, 0 } };
	struct fixture *fixture;
	const Tierd__Wire__HelloReply *reply;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fixture = begin_anew(state);
		fixture->shared.pages = (struct versions){ 4, 5 };
		send_hello_with_pages(fixture, FRAME_VERSIONS, cases[i].pages);
		reply = receive_hello(fixture, 7);
		assert_int_equal(status_to_errno(reply->status->code),
				 cases[i].chosen ? 0 : -EPROTONOSUPPORT);
		assert_int_equal(reply->pages, cases[i].chosen);
		assert_true(cases[i].chosen || strstr(reply->status->message, "of the shared pages"));
	}
}

/* As tierctl does, which maps none. */
static void who_says_nothing_of_pages_needs_none(void **state)
{
	struct fixture *fixture = *state;

	fixture->shared.pages = (struct versions){ 8, 9 };
	greet(fixture);
}

static void note_greeting(struct session *session, bool is_trainer, void *argument)
{
	if (is_trainer)
		session_refuse(session, 0, -EBUSY, "no place for a trainer");
}

static void make_spare(struct fixture *fixture)
{
	fixture->shared.greeted = note_greeting;
	fixture->session->is_spare = true;
}

static void a_spare_session_takes_only_what_holds_nothing(void **state)
{
	struct fixture *fixture = *state;

	make_spare(fixture);
	greet(fixture);
	send_ping(fixture, 8);
	receive_reply(fixture, 8, 0);
	send_phase(fixture, 9, "train");
	receive_reply(fixture, 9, -EBUSY);
	assert_int_equal(fake.requests, 1);
	/* It stays. */
	send_ping(fixture, 10);
	receive_reply(fixture, 10, 0);
}

static void a_spare_session_of_a_trainer_can_be_refused_at_its_hello(void **state)
{
	struct fixture *fixture = *state;

	make_spare(fixture);
	fixture->shared.pages = (struct versions){ 4, 5 };
	send_hello_with_pages(fixture, FRAME_VERSIONS, fixture->shared.pages);
	assert_int_equal(status_to_errno(receive_hello(fixture, 0)->status->code), -EBUSY);
	expect_end(fixture);
	assert_int_equal(fake.requests, 0);
}

static void a_request_before_the_hello_is_refused(void **state)
{
	send_phase(*state, 3, "early");
	assert_int_equal(status_to_errno(receive_hello(*state, 3)->status->code), -EPROTO);
	expect_end(*state);
	assert_int_equal(fake.requests, 0);
}

static void a_second_hello_is_refused(void **state)
{
	greet(*state);
	send_hello(*state, 1, 1);
	receive_reply(*state, 7, -EPROTO);
	expect_end(*state);
	assert_non_null(strstr(fake.reason, "refused"));
}

static void a_silent_connection_is_ended(void **state)
{
	struct fixture *fixture = *state;

	connect_again(fixture, 1);
	assert_int_equal(status_to_errno(receive_hello(fixture, 0)->status->code), -ETIMEDOUT);
	expect_end(fixture);
}

/* ---- Requests ---- */

static void a_request_is_answered_under_its_number(void **state)
{
	greet(*state);
	send_phase(*state, 99, "train");
	receive_reply(*state, 99, 0);
	assert_int_equal(fake.requests, 1);
	assert_int_equal(fake.name_length, 5);
}

static void a_frame_may_arrive_byte_by_byte(void **state)
{
	size_t length;
	_cleanup_free_ uint8_t *frame = encode_ping(5, &length);

	greet(*state);
	for (size_t i = 0; i < length; i++) {
		assert_int_equal(fake.requests, 0);
		send_bytes(*state, frame + i, 1);
	}
	receive_reply(*state, 5, 0);
}

static void many_frames_at_once_are_answered_in_order(void **state)
{
	struct fixture *fixture = *state;
	uint8_t frames[8192];
	size_t used = 0;

	for (uint32_t number = 1; number <= 200; number++) {
		size_t length;
		_cleanup_free_ uint8_t *frame = encode_ping(number, &length);

		memcpy(frames + used, frame, length);
		used += length;
	}
	greet(fixture);
	assert_int_equal(send(fixture->peer, frames, used, 0), used);
	for (uint32_t number = 1; number <= 200; number++)
		receive_reply(fixture, number, 0);
}

static void send_large(struct fixture *fixture, uint32_t number, size_t length)
{
	_cleanup_free_ char *name = calloc(1, length + 1);

	memset(name, 'x', length);
	send_phase(fixture, number, name);
}

static void a_large_frame_is_handled_and_small_ones_after_it(void **state)
{
	greet(*state);
	send_large(*state, 1, 1000000);
	receive_reply(*state, 1, 0);
	assert_int_equal(fake.name_length, 1000000);
	send_phase(*state, 2, "small");
	receive_reply(*state, 2, 0);
	assert_int_equal(fake.name_length, 5);
}

static uint64_t *rest_of_me(struct fixture *fixture)
{
	return throttle_large_until_ns(fixture->session->throttle);
}

static void a_large_frame_waits_while_its_user_rests_and_small_ones_do_not(void **state)
{
	struct fixture *fixture = *state;

	greet(fixture);
	*rest_of_me(fixture) = clock_now_ns() + UINT64_C(1000000000000);
	send_phase(fixture, 1, "small");
	receive_reply(fixture, 1, 0);
	send_large(fixture, 2, 100000);
	turn_often(fixture);
	assert_int_equal(fake.requests, 1);
}

static void a_rest_ends_and_the_next_one_begins_with_the_frame_that_waited(void **state)
{
	struct fixture *fixture = *state;
	uint64_t until = clock_now_ns() + 20000000;

	greet(fixture);
	*rest_of_me(fixture) = until;
	send_large(fixture, 1, 100000);
	send_phase(fixture, 2, "small");
	receive_reply(fixture, 1, 0);
	receive_reply(fixture, 2, 0);
	assert_true(*rest_of_me(fixture) > until);
}

/* Until then, if another user wants something meanwhile, which does not depend on the clock. */
static void rest_until(struct fixture *fixture, uint64_t until_ns)
{
	throttle_charge(fixture->session->throttle, UINT64_C(1000000000), until_ns - UINT64_C(1000000000));
}

static void let_another_ask(struct fixture *fixture)
{
	fixture->other = throttle_enter(&fixture->throttles, fixture->shared.loop, getuid() + 64);
	throttle_hear(fixture->other, clock_now_ns() + UINT64_C(1000000000000));
}

static void a_request_waits_while_its_user_rests_and_another_wants_something(void **state)
{
	struct fixture *fixture = *state;

	greet(fixture);
	let_another_ask(fixture);
	rest_until(fixture, clock_now_ns() + UINT64_C(1000000000000));
	send_phase(fixture, 1, "small");
	turn_often(fixture);
	assert_int_equal(fake.requests, 0);
}

/* Connections that say nothing whole would stay for ever. */
static void a_rest_gives_no_more_time_for_a_hello(void **state)
{
	struct fixture *fixture = *state;

	connect_again(fixture, 50);
	let_another_ask(fixture);
	rest_until(fixture, clock_now_ns() + 200000000);
	send_bytes(fixture, "tir1", 4);
	turn(fixture);
	assert_int_equal(status_to_errno(receive_hello(fixture, 0)->status->code), -ETIMEDOUT);
}

static void nobody_rests_who_is_alone(void **state)
{
	struct fixture *fixture = *state;

	greet(fixture);
	rest_until(fixture, clock_now_ns() + UINT64_C(1000000000000));
	send_phase(fixture, 1, "small");
	turn_often(fixture);
	assert_int_equal(fake.requests, 1);
}

static void what_waited_is_handled_when_the_rest_is_over(void **state)
{
	struct fixture *fixture = *state;

	greet(fixture);
	let_another_ask(fixture);
	rest_until(fixture, clock_now_ns() + 20000000);
	for (uint32_t number = 1; number <= 40; number++)
		send_phase(fixture, number, "small");
	for (uint32_t number = 1; number <= 40; number++)
		receive_reply(fixture, number, 0);
}

static void a_long_request_makes_its_user_rest(void **state)
{
	struct fixture *fixture = *state;
	uint64_t now = clock_now_ns();

	let_another_ask(fixture);
	throttle_charge(fixture->session->throttle, THROTTLE_BRIEF_NS + 1, now);
	assert_true(throttle_is_resting(fixture->session->throttle, now));
	throttle_hear(fixture->other, now);
	assert_false(throttle_is_resting(fixture->other, now));
}

static void many_brief_requests_make_their_user_rest(void **state)
{
	struct fixture *fixture = *state;
	struct throttle *mine = fixture->session->throttle;
	uint64_t now = clock_now_ns();

	let_another_ask(fixture);
	throttle_charge(mine, 10000, now);
	assert_false(throttle_is_resting(mine, now));
	for (unsigned i = 0; i < 100; i++)
		throttle_charge(mine, 10000, now + i * 1000);
	assert_true(throttle_is_resting(mine, now + 100000));
	assert_false(throttle_is_resting(mine, now + 100000000));
}

/* 1065 and 1001 have the same remainder by 64. */
static void no_user_rests_for_another(void **state)
{
	struct fixture *fixture = *state;
	struct throttle *one = throttle_enter(&fixture->throttles, fixture->shared.loop, 1065);
	struct throttle *other = throttle_enter(&fixture->throttles, fixture->shared.loop, 1001);
	uint64_t now = clock_now_ns();

	throttle_hear(one, now);
	throttle_hear(other, now);
	throttle_charge(one, 1000000, now);
	*throttle_large_until_ns(one) = now + 1000000;
	assert_true(throttle_is_resting(one, now));
	assert_false(throttle_is_resting(other, now));
	assert_int_equal(*throttle_large_until_ns(other), 0);
	throttle_leave(one);
	throttle_leave(other);
}

/* Or he would only have to come again. */
static void who_has_left_rests_on(void **state)
{
	struct fixture *fixture = *state;
	uint64_t now = clock_now_ns(), later = now + UINT64_C(1000000000000);
	struct throttle *one = throttle_enter(&fixture->throttles, fixture->shared.loop, 1065);

	throttle_charge(one, 1000000, later);
	throttle_leave(one);
	let_another_ask(fixture);
	assert_ptr_equal(throttle_enter(&fixture->throttles, fixture->shared.loop, 1065), one);
	assert_true(throttle_is_resting(one, later));
	throttle_leave(one);
}

static void frames_that_break_the_protocol_are_refused(void **state)
{
	static const struct {
		uint8_t bytes[20];
		size_t length;
		uint32_t number; /* of the answer */
		int error;
	} cases[] = {
		{ "GET / HTTP/1.0\r\n\r\n", 18, 0, -EPROTO },
		/* Before it arrives. */
		{ "tir1\1\0\3\0\0\0\20\0\1\0\0\0", 16, 0, -EMSGSIZE },
		/* No request, which has a number. */
		{ "tir1\1\0\3\0\3\0\0\0\52\0\0\0\377\377\377", 19, 42, -EPROTO },
		/* Of another version than the one that was agreed on. */
		{ "tir1\2\0\3\0\0\0\0\0\52\0\0\0", 16, 42, -EPROTO },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
		struct fixture *fixture = begin_anew(state);

		greet(fixture);
		send_bytes(fixture, cases[i].bytes, cases[i].length);
		receive_reply(fixture, cases[i].number, cases[i].error);
		expect_end(fixture);
		assert_int_equal(fake.requests, 0);
	}
}

static void a_frame_beyond_the_configured_size_is_refused_before_it_arrives(void **state)
{
	static const uint8_t header[FRAME_HEADER_BYTES] = { 't',  'i',	'r', '1', 1, 0, 3, 0,
							    0xF1, 0xFF, 0,   0,	  1, 0, 0, 0 };
	struct fixture *fixture = *state;

	fixture->shared.limits.maximum_frame = 65536;
	greet(fixture);
	send_bytes(fixture, header, sizeof(header));
	assert_non_null(strstr(receive_reply(fixture, 0, -EMSGSIZE), "more than 65536 bytes"));
	expect_end(fixture);
}

static void a_frame_that_is_never_complete_is_refused(void **state)
{
	struct fixture *fixture = *state;

	fixture->shared.limits.frame_ms = 1;
	greet(fixture);
	send_bytes(fixture, "tir1", 4);
	receive_reply(fixture, 0, -ETIMEDOUT);
	expect_end(fixture);
}

/* ---- Limits ---- */

/* What comes next may be what the others wait for. */
static void unanswered_requests_do_not_stop_the_reading(void **state)
{
	fake.answers_at_once = false;
	greet(*state);
	for (uint32_t number = 1; number <= 40; number++)
		send_phase(*state, number, "wait");
	while (fake.requests < 40)
		turn(*state);
	assert_int_equal(fake.numbers[39], 40);
	port_reply(fake.port, 40, NULL);
	receive_reply(*state, 40, 0);
}

/* With a text of so many bytes. */
static void answer_at_length(uint32_t number, size_t length)
{
	Tierd__Wire__NodeReply node = TIERD__WIRE__NODE_REPLY__INIT;
	_cleanup_free_ char *text = malloc(length + 1);

	memset(text, 'x', length);
	text[length] = '\0';
	node.version = text;
	port_reply(fake.port, number, WIRE_REPLY(NODE, node, &node));
}

static void a_client_that_does_not_read_is_cut_off(void **state)
{
	struct fixture *fixture = *state;

	greet(fixture);
	/* The socket's own buffer takes some of it. */
	for (unsigned i = 0; i < 1000; i++)
		answer_at_length(1, 65535);
	assert_false(fixture->is_over);
	wait_until_over(fixture);
	assert_non_null(strstr(fake.reason, "did not read"));
}

static void a_maximum_that_falls_below_what_waits_cuts_off_at_the_next_answer(void **state)
{
	struct fixture *fixture = *state;

	greet(fixture);
	answer_at_length(1, 700000);
	fixture->shared.limits.maximum_output = 1000;
	assert_false(fixture->is_over);
	fake.has_leases = true;
	port_reply(fake.port, 2, NULL);
	fake.has_leases = false;
	wait_until_over(fixture);
	assert_non_null(strstr(fake.reason, "did not read"));
	assert_int_equal(told.kind, EVENT_RANK_REFUSED);
	assert_non_null(strstr(told.text, "its connection is closed, and its ranks leave their jobs"));
}

/* It is a failure of ours; of a rank, the line of the epoch has it. */
static void what_cannot_be_answered_is_told_once(void **state)
{
	for (unsigned is_rank = 0; is_rank < 2; is_rank++) {
		struct fixture *fixture = begin_anew(state);

		greet(fixture);
		fake.has_leases = is_rank;
		answer_at_length(1, FRAME_MAX_BYTES);
		fake.has_leases = false;
		wait_until_over(fixture);
		assert_int_equal(told.kind, is_rank ? EVENT_RANK_UNSERVED : EVENT_CLIENT_LOST);
		assert_non_null(strstr(fake.reason, "it could not be answered: Message too long"));
	}
}

static void answers_that_wait_stop_the_reading(void **state)
{
	struct fixture *fixture = *state;

	greet(fixture);
	answer_at_length(1, 700000);
	answer_at_length(2, 700000);
	send_phase(fixture, 3, "later");
	turn_often(fixture);
	assert_int_equal(fake.requests, 0);
	receive_reply(fixture, 1, 0);
	receive_reply(fixture, 2, 0);
	receive_reply(fixture, 3, 0);
}

/* Who only listens loses events before its answers stop the reading, and hears of it when it has read on. */
static void one_that_listens_has_room_again_when_it_has_read(void **state)
{
	struct fixture *fixture = *state;

	greet(fixture);
	assert_true(port_has_room(fake.port));
	answer_at_length(1, 900000);
	assert_false(port_has_room(fake.port));
	turn_often(fixture);
	assert_int_equal(fake.catch_ups, 0);
	receive_reply(fixture, 1, 0);
	while (fake.catch_ups == 0)
		turn(fixture);
	assert_true(port_has_room(fake.port));
}

static void descriptors_travel_with_their_frame(void **state)
{
	struct fixture *fixture = *state;
	int pipes[2][2], received[2] = { -1, -1 };
	char control[256], bytes[256];
	struct iovec part = { bytes, sizeof(bytes) };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = 256
	};

	assert_int_equal(pipe2(pipes[0], O_CLOEXEC), 0);
	assert_int_equal(pipe2(pipes[1], O_CLOEXEC), 0);
	greet(fixture);
	unsigned before = count_fds();

	port_reply(fake.port, 1, NULL);
	port_reply_fds(fake.port, 2, NULL, (int[]){ pipes[0][1], pipes[1][1] }, 2);
	assert_int_equal(count_fds(), before);
	receive_reply(fixture, 1, 0);
	assert_true(recvmsg(fixture->peer, &message, MSG_CMSG_CLOEXEC) > 0);
	assert_non_null(CMSG_FIRSTHDR(&message));
	assert_int_equal(CMSG_FIRSTHDR(&message)->cmsg_len, CMSG_LEN(2 * sizeof(int)));
	memcpy(received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(received));
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(write(received[i], "y", 1), 1);
		assert_int_equal(read(pipes[i][0], bytes, 1), 1);
		fd_close(received[i]);
		fd_close(pipes[i][0]);
		fd_close(pipes[i][1]);
	}
}

static void descriptors_that_were_not_sent_are_closed(void **state)
{
	struct fixture *fixture = *state;

	greet(fixture);
	unsigned before = count_fds();

	answer_at_length(1, 1000000);
	port_reply_fds(fake.port, 2, NULL, (int[]){ fixture->peer }, 1);
	assert_int_equal(count_fds(), before + 1);
	shutdown(fixture->peer, SHUT_RDWR);
	wait_until_over(fixture);
	/* The duplicate, the socket and the process. */
	assert_int_equal(count_fds(), before - 2);
}

static void descriptors_from_a_client_are_dropped(void **state)
{
	struct fixture *fixture = *state;
	size_t length;
	_cleanup_free_ uint8_t *frame = encode_ping(1, &length);
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .header = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec part = { frame, length };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
	};

	memcpy(CMSG_DATA(&control.header), &fixture->peer, sizeof(int));
	greet(fixture);
	unsigned before = count_fds();

	assert_int_equal(sendmsg(fixture->peer, &message, 0), length);
	receive_reply(fixture, 1, 0);
	assert_int_equal(count_fds(), before);
}

/* ---- The end ---- */

static void a_closed_connection_frees_the_client(void **state)
{
	struct fixture *fixture = *state;

	greet(fixture);
	fixture->peer = fd_close(fixture->peer);
	wait_until_over(fixture);
	assert_non_null(strstr(fake.reason, "closed the connection"));
	assert_false(fake.is_there);
}

static void what_was_sent_before_the_end_is_handled(void **state)
{
	struct fixture *fixture = *state;

	greet(fixture);
	fake.answers_at_once = false;
	for (uint32_t number = 1; number <= 40; number++)
		send_phase(fixture, number, "last words");
	fixture->peer = fd_close(fixture->peer);
	wait_until_over(fixture);
	assert_int_equal(fake.requests, 40);
}

static void replace_by_child(struct fixture *fixture, void (*act)(int socket));
static void say_much_and_die(int socket);

/* Once its process is dead. */
static void expect_last_words(struct fixture *fixture)
{
	waitpid(fixture->child, NULL, 0);
	fixture->child = 0;
	wait_until_over(fixture);
	assert_int_equal(fake.requests, 40);
}

static void what_one_sent_that_died_while_resting_is_handled(void **state)
{
	struct fixture *fixture = *state;

	fake.answers_at_once = false;
	replace_by_child(fixture, say_much_and_die);
	wait_until_greeted(fixture);
	let_another_ask(fixture);
	rest_until(fixture, clock_now_ns() + 20000000);
	expect_last_words(fixture);
}

static struct throttle *crowded;

static void wait_again(struct throttle_waiter *waiter)
{
	throttle_wait(crowded, waiter, clock_now_ns());
}

static void who_died_goes_though_others_of_his_user_always_wait(void **state)
{
	struct throttle_waiter waiter = { .go = wait_again };
	struct fixture *fixture = *state;

	fake.answers_at_once = false;
	replace_by_child(fixture, say_much_and_die);
	wait_until_greeted(fixture);
	let_another_ask(fixture);
	crowded = throttle_enter(&fixture->throttles, fixture->shared.loop, getuid());
	queue_init(&waiter.link);
	wait_again(&waiter);
	expect_last_words(fixture);
	queue_remove(&waiter.link);
	throttle_leave(crowded);
}

static void an_answer_to_one_that_has_gone_is_dropped(void **state)
{
	struct fixture *fixture = *state;

	greet(fixture);
	fake.has_leases = true;
	fixture->peer = fd_close(fixture->peer);
	wait_until_hung_up(fixture);
	port_reply(fake.port, 1, NULL);
	turn(fixture);
	assert_false(fixture->is_over);
}

/* A process of its own that connects; what it does then is in the comment of each test. */
static void replace_by_child(struct fixture *fixture, void (*act)(int socket))
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	_cleanup_close_ int listening = socket(AF_UNIX, SOCK_STREAM, 0);

	session_free(fixture->session);
	fixture->peer = fd_close(fixture->peer);
	snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "tierd-test-session-%d", getpid());
	assert_int_equal(bind(listening, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listening, 1), 0);
	fixture->child = fork();
	if (fixture->child == 0) {
		int socket_of_child = socket(AF_UNIX, SOCK_STREAM, 0);

		fd_close(listening);
		if (connect(socket_of_child, (struct sockaddr *)&address, sizeof(address)) == 0)
			act(socket_of_child);
		for (;;)
			pause();
	}
	start(fixture, accept(listening, NULL, NULL));
	assert_int_equal(fixture->child > 0, true);
}

static void say_hello(int socket)
{
	Tierd__Wire__Hello hello = TIERD__WIRE__HELLO__INIT;
	uint8_t *frame;
	size_t length;

	hello.version_minimum = hello.version_maximum = 1;
	frame_encode(1, FRAME_HELLO, 1, &hello.base, &frame, &length);
	(void)!write(socket, frame, length);
	free(frame);
}

static void say_hello_and_close(int socket)
{
	say_hello(socket);
	close(socket);
}

/* The grandchild holds the socket, so that its end is not seen. */
static void say_much_and_die(int socket)
{
	size_t length;
	uint8_t *frame = encode_ping(1, &length), reply[256];

	say_hello(socket);
	(void)!read(socket, reply, sizeof(reply));
	for (unsigned i = 0; i < 40; i++)
		(void)!write(socket, frame, length);
	_exit(0);
}

static void fork_and_say_hello(int socket)
{
	if (fork() == 0) {
		char byte;

		close(keep_open[1]);
		(void)!read(keep_open[0], &byte, 1);
		_exit(0);
	}
	say_hello(socket);
}

static void leases_stay_until_the_process_is_dead(void **state)
{
	struct fixture *fixture = *state;

	fake.has_leases = true;
	replace_by_child(fixture, say_hello_and_close);
	wait_until_hung_up(fixture);
	turn_often(fixture);
	assert_false(fixture->is_over);
	assert_true(fake.is_there);

	kill_child(fixture);
	wait_until_over(fixture);
	assert_false(fake.is_there);
}

static void a_session_ends_when_its_last_lease_is_released(void **state)
{
	struct fixture *fixture = *state;

	fake.has_leases = true;
	replace_by_child(fixture, say_hello_and_close);
	wait_until_hung_up(fixture);
	assert_true(fake.is_there);
	fake.has_leases = false;
	wait_until_over(fixture);
	assert_false(fake.is_there);
	assert_int_equal(waitpid(fixture->child, NULL, WNOHANG), 0);
}

static void the_death_of_a_process_is_named(void **state)
{
	struct fixture *fixture = *state;

	fake.has_leases = true;
	replace_by_child(fixture, say_hello);
	wait_until_greeted(fixture);
	kill_child(fixture);
	wait_until_over(fixture);
	assert_string_equal(fake.reason, "its process died");
}

static void death_is_seen_while_another_process_holds_the_socket(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(pipe2(keep_open, O_CLOEXEC), 0);
	replace_by_child(fixture, fork_and_say_hello);
	wait_until_greeted(fixture);
	kill_child(fixture);
	wait_until_over(fixture);
	assert_non_null(strstr(fake.reason, "died"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_hello_is_answered_with_version_and_incarnation),
		TEST(a_version_that_we_do_not_speak_is_refused),
		TEST(every_range_of_versions_gets_its_highest_or_a_reason),
		TEST(every_range_of_pages_gets_its_highest_or_a_reason),
		TEST(who_says_nothing_of_pages_needs_none),
		TEST(a_spare_session_takes_only_what_holds_nothing),
		TEST(a_spare_session_of_a_trainer_can_be_refused_at_its_hello),
		TEST(a_request_before_the_hello_is_refused),
		TEST(a_second_hello_is_refused),
		TEST(a_silent_connection_is_ended),
		TEST(a_request_is_answered_under_its_number),
		TEST(a_frame_may_arrive_byte_by_byte),
		TEST(many_frames_at_once_are_answered_in_order),
		TEST(a_large_frame_is_handled_and_small_ones_after_it),
		TEST(a_large_frame_waits_while_its_user_rests_and_small_ones_do_not),
		TEST(a_rest_ends_and_the_next_one_begins_with_the_frame_that_waited),
		TEST(a_request_waits_while_its_user_rests_and_another_wants_something),
		TEST(a_rest_gives_no_more_time_for_a_hello),
		TEST(nobody_rests_who_is_alone),
		TEST(what_waited_is_handled_when_the_rest_is_over),
		TEST(a_long_request_makes_its_user_rest),
		TEST(many_brief_requests_make_their_user_rest),
		TEST(no_user_rests_for_another),
		TEST(who_has_left_rests_on),
		TEST(what_one_sent_that_died_while_resting_is_handled),
		TEST(who_died_goes_though_others_of_his_user_always_wait),
		TEST(frames_that_break_the_protocol_are_refused),
		TEST(a_frame_beyond_the_configured_size_is_refused_before_it_arrives),
		TEST(a_frame_that_is_never_complete_is_refused),
		TEST(unanswered_requests_do_not_stop_the_reading),
		TEST(a_client_that_does_not_read_is_cut_off),
		TEST(a_maximum_that_falls_below_what_waits_cuts_off_at_the_next_answer),
		TEST(what_cannot_be_answered_is_told_once),
		TEST(answers_that_wait_stop_the_reading),
		TEST(one_that_listens_has_room_again_when_it_has_read),
		TEST(descriptors_travel_with_their_frame),
		TEST(descriptors_that_were_not_sent_are_closed),
		TEST(descriptors_from_a_client_are_dropped),
		TEST(a_closed_connection_frees_the_client),
		TEST(what_was_sent_before_the_end_is_handled),
		TEST(an_answer_to_one_that_has_gone_is_dropped),
		TEST(leases_stay_until_the_process_is_dead),
		TEST(a_session_ends_when_its_last_lease_is_released),
		TEST(the_death_of_a_process_is_named),
		TEST(death_is_seen_while_another_process_holds_the_socket),
	};

	log_open(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
