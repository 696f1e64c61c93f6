/* A library meets older and newer daemons: what both speak is used, anything else refused by name. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/library/connection/connection.h"
#include "client/library/pages/job.h"
#include "client/library/pages/ticket.h"
#include "tests/unit/fake_peer.h"
#include "tests/unit/test.h"

static void two_sides_agree_on_the_highest_that_both_speak(void **state)
{
	for (uint32_t all = 0; all < 6 * 6 * 6 * 6; all++) {
		struct versions one = { all % 6, all / 6 % 6 }, other = { all / 36 % 6, all / 216 };
		uint32_t highest = 0;

		for (uint32_t version = 1; version < 6; version++)
			if (versions_have(one, version) && versions_have(other, version))
				highest = version;
		assert_int_equal(versions_agree(one, other), highest);
	}
}

/* ---- A library that speaks 2 to 4, and the bytes at the other end ---- */

static void send_message(int end, uint32_t version, enum frame_type type, const ProtobufCMessage *message)
{
	uint8_t *frame;
	size_t length;

	assert_int_equal(frame_encode(version, type, 1, message, &frame, &length), 0);
	assert_int_equal(send(end, frame, length, MSG_NOSIGNAL), length);
	free(frame);
}

/* The answer lies there before the question is asked. */
static int greet(int end, struct tierd_node *node, uint32_t version, uint32_t pages)
{
	Tierd__Wire__Status status = TIERD__WIRE__STATUS__INIT;
	Tierd__Wire__HelloReply hello = TIERD__WIRE__HELLO_REPLY__INIT;

	hello.status = &status;
	hello.version = version;
	hello.pages = pages;
	hello.daemon = (char *)"tierd 9.9";
	send_message(end, 77, FRAME_HELLO_REPLY, &hello.base);
	node->versions = (struct versions){ 2, 4 };
	node->pages = (struct versions){ 6, 7 };
	assert_int_equal(connection_enter(node), 0);
	int r = connection_greet(node, CONNECTION_NEVER);

	connection_exit(node);
	return r;
}

/* The node has no jobs. */
static void lose_nothing(struct tierd_node *node)
{
}

static const struct connection_listener listener = { .answer = ticket_answer, .lose = lose_nothing };

static struct tierd_node *open_node(int *ret_end)
{
	struct tierd_node *node;
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(connection_new(&listener, &node), 0);
	assert_int_equal(connection_open(node, ends[0]), 0);
	*ret_end = ends[1];
	return node;
}

static uint32_t receive_header(int end, uint8_t *payload, struct frame_header *ret_header)
{
	uint8_t bytes[FRAME_HEADER_BYTES];

	assert_int_equal(recv(end, bytes, sizeof(bytes), MSG_WAITALL), sizeof(bytes));
	assert_int_equal(frame_header_decode(bytes, ret_header), 0);
	assert_true(ret_header->length > 0 && ret_header->length < 256);
	assert_int_equal(recv(end, payload, ret_header->length, MSG_WAITALL), ret_header->length);
	return ret_header->version;
}

static void frames_have_the_version_that_was_agreed_on(void **state)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__Ping ping = TIERD__WIRE__PING__INIT;
	struct frame_header header;
	uint8_t payload[256];

	request.body_case = BODY(PING);
	request.ping = &ping;
	for (uint32_t version = 2; version <= 4; version++) {
		int end;
		struct tierd_node *node = open_node(&end);

		assert_int_equal(greet(end, node, version, 7), 0);
		assert_int_equal(receive_header(end, payload, &header), 1);
		Tierd__Wire__Hello *hello = tierd__wire__hello__unpack(NULL, header.length, payload);
		assert_int_equal(hello->version_minimum, 2);
		assert_int_equal(hello->version_maximum, 4);
		assert_int_equal(hello->pages_minimum, 6);
		assert_int_equal(hello->pages_maximum, 7);
		tierd__wire__hello__free_unpacked(hello, NULL);
		assert_int_equal(connection_enter(node), 0);
		assert_int_equal(connection_send(node, 5, &request), 0);
		connection_exit(node);
		assert_int_equal(receive_header(end, payload, &header), version);
		close(end);
		connection_free(node);
	}
}

static void a_version_that_the_library_does_not_speak_is_refused_by_name(void **state)
{
	static const uint32_t wrong[] = { 0, 1, 5, 65537, UINT32_MAX };
	char words[64];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		int end;
		struct tierd_node *node = open_node(&end);

		assert_int_equal(greet(end, node, wrong[i], 7), -EPROTONOSUPPORT);
		snprintf(words, sizeof(words), "tierd 9.9 chose version %u of the protocol", wrong[i]);
		assert_says(words);
		assert_says("speaks 2 to 4");
		close(end);
		connection_free(node);
	}
}

static void pages_that_the_library_cannot_use_are_refused_by_name(void **state)
{
	for (uint32_t pages = 0; pages < 10; pages++) {
		int end;
		struct tierd_node *node = open_node(&end);
		/* An older daemon says nothing; its pages are looked at when they come. */
		bool is_fine = pages == 0 || pages == 6 || pages == 7;

		assert_int_equal(greet(end, node, 3, pages), is_fine ? 0 : -EPROTONOSUPPORT);
		if (!is_fine) {
			assert_says("of the shared pages");
			assert_says("speaks 6 to 7");
		}
		close(end);
		connection_free(node);
	}
}

static bool event_is_taken(const void *argument)
{
	const struct tierd_node *node = argument;

	return node->error != 0;
}

static int take(struct tierd_node *node)
{
	int r;

	assert_int_equal(connection_enter(node), 0);
	r = connection_wait(node, event_is_taken, node, 0);
	connection_exit(node);
	return r == -ETIMEDOUT ? 0 : node->error;
}

static void what_a_newer_daemon_adds_is_left_alone(void **state)
{
	/* Event { field 500: "new" }, and one with a number beside it; a Reply to nobody with a new body. */
	static const uint8_t event[] = "tir1\3\0\5\0\6\0\0\0\0\0\0\0\242\037\3new";
	static const uint8_t reply[] = "tir1\3\0\4\0\10\0\0\0\6\0\0\0\12\0\242\037\3new";
	int end;
	struct tierd_node *node = open_node(&end);

	assert_int_equal(greet(end, node, 3, 7), 0);
	assert_int_equal(send(end, event, sizeof(event) - 1, 0), sizeof(event) - 1);
	assert_int_equal(send(end, reply, sizeof(reply) - 1, 0), sizeof(reply) - 1);
	assert_int_equal(take(node), 0);
	close(end);
	connection_free(node);
}

static void a_frame_of_another_version_ends_the_connection(void **state)
{
	Tierd__Wire__Event event = TIERD__WIRE__EVENT__INIT;

	for (uint32_t version = 1; version < 7; version++) {
		int end;
		struct tierd_node *node = open_node(&end);

		assert_int_equal(greet(end, node, 3, 7), 0);
		send_message(end, version, FRAME_EVENT, &event.base);
		assert_int_equal(take(node), version == 3 ? 0 : -EPROTO);
		close(end);
		connection_free(node);
	}
}

/* ---- With a daemon ---- */

static bool lay_out_other_pages(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(JOB_READY))
		return false;
	fake_peer_make_pages(peer);
	peer->directory->version = peer->leases->version = PAGES_VERSION + 1;
	return false;
}

/* What tierd_job_ready() says of the pages of a job of one unit. */
static int be_ready(struct fake_peer *peer)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	struct tierd_node *node;
	struct tierd_job *job;
	uint32_t unit;
	int r;

	options.name = "job";
	tensor.name = "w";
	tensor.dimensions = 1;
	tensor.shape[0] = 256;
	fake_peer_start(peer);
	assert_int_equal(tierd_connect(peer->path, &node), 0);
	assert_int_equal(tierd_job_open(node, &options, &job), 0);
	assert_int_equal(tierd_unit_define(job, "unit", &tensor, 1, &unit), 0);
	r = tierd_job_ready(job, -1, NULL);
	tierd_disconnect(node);
	fake_peer_stop(peer);
	return r;
}

static void pages_of_another_version_are_refused_by_name(void **state)
{
	char theirs[32], ours[32];

	assert_int_equal(be_ready(&(struct fake_peer){ .hook = lay_out_other_pages }), -EPROTONOSUPPORT);
	snprintf(theirs, sizeof(theirs), "in version %d", PAGES_VERSION + 1);
	snprintf(ours, sizeof(ours), "uses %d to %d", PAGES_VERSION, PAGES_VERSION);
	assert_says(theirs);
	assert_says(ours);
}

static bool forget_a_section(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(JOB_READY))
		return false;
	fake_peer_make_pages(peer);
	peer->directory->section_count--;
	return false;
}

static void a_directory_that_lacks_a_section_is_refused(void **state)
{
	assert_int_equal(be_ready(&(struct fake_peer){ .hook = NULL }), 0);
	assert_int_equal(be_ready(&(struct fake_peer){ .hook = forget_a_section }), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_sides_agree_on_the_highest_that_both_speak),
		cmocka_unit_test(frames_have_the_version_that_was_agreed_on),
		cmocka_unit_test(a_version_that_the_library_does_not_speak_is_refused_by_name),
		cmocka_unit_test(pages_that_the_library_cannot_use_are_refused_by_name),
		cmocka_unit_test(what_a_newer_daemon_adds_is_left_alone),
		cmocka_unit_test(a_frame_of_another_version_ends_the_connection),
		cmocka_unit_test(pages_of_another_version_are_refused_by_name),
		cmocka_unit_test(a_directory_that_lacks_a_section_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
