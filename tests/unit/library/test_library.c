/* libtierd against a fake peer: what it makes of good answers, bad ones, late ones, and none. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/tierd.h"
#include "tests/unit/fake_peer.h"
#include "tests/unit/test.h"

enum { TRAINED, FROZEN, UNITS };

/* More than are asked for at once. */
static const uint32_t many[] = { FROZEN, TRAINED, FROZEN, TRAINED, TRAINED, FROZEN, TRAINED,
				 FROZEN, TRAINED, FROZEN, TRAINED, TRAINED, FROZEN, TRAINED };
enum { MANY = sizeof(many) / sizeof(many[0]), MANY_FROZEN = 6 };

struct scene {
	struct fake_peer peer;
	struct tierd_node *node;
	struct tierd_job *job;
};

static void define_units(struct scene *scene)
{
	struct tierd_tensor weights[2] = { TIERD_TENSOR_INIT, TIERD_TENSOR_INIT };
	uint32_t unit;

	weights[0].name = "norm";
	weights[0].format = TIERD_FP32;
	weights[0].dimensions = 1;
	weights[0].shape[0] = 3;
	weights[1].name = "weight";
	weights[1].dimensions = 2;
	weights[1].shape[0] = 100;
	weights[1].shape[1] = 10;
	assert_int_equal(tierd_unit_define(scene->job, "trained", weights, 2, &unit), 0);
	assert_int_equal(unit, TRAINED);
	weights[0].is_frozen = weights[1].is_frozen = true;
	assert_int_equal(tierd_unit_define(scene->job, "frozen", weights, 2, &unit), 0);
	assert_int_equal(unit, FROZEN);
}

static void connect_to(struct scene *scene)
{
	fake_peer_start(&scene->peer);
	assert_int_equal(tierd_connect(scene->peer.path, &scene->node), 0);
}

static void open_job(struct scene *scene)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;

	connect_to(scene);
	options.name = "test";
	options.world_size = 2;
	assert_int_equal(tierd_job_open(scene->node, &options, &scene->job), 0);
}

static void make_ready(struct scene *scene)
{
	struct tierd_job_state state;

	open_job(scene);
	define_units(scene);
	assert_int_equal(tierd_job_ready(scene->job, -1, &state), 0);
	assert_int_equal(state.epoch, 1);
}

static void end(struct scene *scene)
{
	tierd_disconnect(scene->node);
	fake_peer_stop(&scene->peer);
}

static uint32_t leases_on(struct scene *scene, uint32_t unit)
{
	return lease_counters(scene->peer.leases, FAKE_BUFFERS)[unit];
}

/* The peer's refusal of requests of one kind. */
static struct refusal {
	int body, error;
	const char *words;
} refusal;

static bool refuse(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if ((int)request->body_case != refusal.body)
		return false;
	fake_peer_fail(peer, number, refusal.error, refusal.words);
	return true;
}

static const struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };

/* ---- Connections ---- */

static void nobody_listening_is_said(void **state)
{
	struct tierd_node *node = NULL;

	assert_int_equal(tierd_connect("/nonexistent/tierd.sock", &node), -ENOENT);
	assert_null(node);
	assert_says("/nonexistent/tierd.sock");
}

static void a_path_that_is_too_long_is_refused(void **state)
{
	struct tierd_node *node;
	char path[300];

	memset(path, 'x', sizeof(path));
	path[299] = '\0';
	assert_int_equal(tierd_connect(path, &node), -ENAMETOOLONG);
}

/* What the peer sends in place of a greeting. */
static struct greeting {
	const char *bytes;
	size_t length;
	int error;
	const char *words;
} greeting;
#define BYTES(text) text, sizeof(text) - 1

static bool greet_badly(struct fake_peer *peer)
{
	fake_peer_send(peer, greeting.bytes, greeting.length);
	return greeting.error != -ECONNRESET;
}

static void bad_greetings_are_refused(void **state)
{
	static const struct greeting greetings[] = {
		{ BYTES("HTTP/1.1 400 Bad Request\r\n\r\n"), -EPROTO, "not a frame" },
		/* Half a frame. */
		{ BYTES("tir1\1\0\2\0\377\0\0\0\0\0\0\0half"), -ECONNRESET, "ended the connection" },
		/* An unknown type; too long. */
		{ BYTES("tir1\1\0\11\0\0\0\0\0\0\0\0\0"), -EPROTO, "not a frame" },
		{ BYTES("tir1\1\0\2\0\377\377\377\177\0\0\0\0"), -EPROTO, "not a frame" },
		{ BYTES("tir1\1\0\2\0\3\0\0\0\0\0\0\0\12\377\1"), -EPROTO, "malformed HelloReply" },
		/* Reply { status {} } */
		{ BYTES("tir1\1\0\4\0\2\0\0\0\1\0\0\0\12\0"), -EPROTO, "out of order" },
		{ BYTES(""), -ECONNRESET, "ended the connection" },
		/* HelloReply { status { code: 17 (EPROTONOSUPPORT) message: "old" } } */
		{ BYTES("tir1\1\0\2\0\11\0\0\0\0\0\0\0\12\7\10\21\22\3old"), -EPROTONOSUPPORT, "old" },
		/* HelloReply { status {} version: 9 } */
		{ BYTES("tir1\1\0\2\0\4\0\0\0\0\0\0\0\12\0\20\11"), -EPROTONOSUPPORT, "version 9" },
	};

	for (size_t i = 0; i < sizeof(greetings) / sizeof(greetings[0]); i++) {
		struct scene scene = { .peer.greet = greet_badly };

		greeting = greetings[i];
		fake_peer_start(&scene.peer);
		assert_int_equal(tierd_connect(scene.peer.path, &scene.node), greeting.error);
		assert_says(greeting.words);
		fake_peer_stop(&scene.peer);
	}
}

static bool die_at_phase(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(PHASE))
		return false;
	shutdown(peer->fd, SHUT_RDWR);
	return true;
}

static void a_dead_daemon_ends_all_calls(void **state)
{
	struct scene scene = { .peer.hook = die_at_phase };
	struct tierd_view view;
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;

	make_ready(&scene);
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
	assert_int_equal(tierd_phase(scene.job, "evaluation"), -ECONNRESET);
	assert_says("start tierd");
	/* Resident or not: nothing is gathered from a daemon that is gone. */
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), -ECONNRESET);
	assert_int_equal(tierd_statistics(scene.job, &statistics), -ECONNRESET);
	assert_int_equal(tierd_release(scene.job, TRAINED), 0);
	assert_int_equal(tierd_job_close(scene.job), -ECONNRESET);
	end(&scene);
}

static bool answer_with_unknown_status(struct fake_peer *peer, uint32_t number,
				       const Tierd__Wire__Request *request)
{
	Tierd__Wire__Status status = TIERD__WIRE__STATUS__INIT;
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;
	uint8_t *frame;
	size_t length;

	if (request->body_case != BODY(PHASE))
		return false;
	status.code = 4711;
	reply.status = &status;
	assert_int_equal(frame_encode(1, FRAME_REPLY, number, &reply.base, &frame, &length), 0);
	fake_peer_send(peer, frame, length);
	free(frame);
	return true;
}

static void an_unknown_status_is_a_protocol_error_of_one_call(void **state)
{
	struct scene scene = { .peer.hook = answer_with_unknown_status };
	struct tierd_view view;

	make_ready(&scene);
	assert_int_equal(tierd_phase(scene.job, "evaluation"), -EPROTO);
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
	end(&scene);
}

/* Replies of 16 bytes, each to a phase. */
static const char *answer_bytes;

static bool answer_with_bytes(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(PHASE))
		return false;
	fake_peer_send(peer, answer_bytes, 16);
	return true;
}

static bool answer_with_a_descriptor(struct fake_peer *peer, uint32_t number,
				     const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(PHASE))
		return false;
	fake_peer_reply_fds(peer, number, NULL, &peer->fds[4], 1);
	return true;
}

static void answers_that_make_no_sense_end_the_connection(void **state)
{
	/* Without a status; of another version; with a descriptor that nobody asked for. */
	static const char *const answers[] = { "tir1\1\0\4\0\0\0\0\0\1\0\0\0", "tir1\2\0\4\0\0\0\0\0\1\0\0\0",
					       NULL };

	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		struct scene scene = { .peer.hook =
					       answers[i] ? answer_with_bytes : answer_with_a_descriptor };
		int r;

		answer_bytes = answers[i];
		make_ready(&scene);
		/* The stray descriptor comes with a good reply: at the latest the next call fails. */
		r = tierd_phase(scene.job, "evaluation");
		assert_int_equal(r == 0 ? tierd_phase(scene.job, "training") : r, -EPROTO);
		end(&scene);
	}
}

static bool ready_without_descriptors(struct fake_peer *peer, uint32_t number,
				      const Tierd__Wire__Request *request)
{
	peer->has_sent_pages = request->body_case == BODY(JOB_READY);
	if (peer->has_sent_pages) {
		Tierd__Wire__JobReadyReply ready = TIERD__WIRE__JOB_READY_REPLY__INIT;
		Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;

		ready.unit_count = peer->unit_count;
		reply.body_case = TIERD__WIRE__REPLY__BODY_JOB_READY;
		reply.job_ready = &ready;
		fake_peer_reply(peer, number, &reply);
	}
	return peer->has_sent_pages;
}

static void missing_descriptors_are_a_protocol_error(void **state)
{
	struct scene scene = { .peer.hook = ready_without_descriptors };
	struct tierd_job_state job_state;

	open_job(&scene);
	define_units(&scene);
	assert_int_equal(tierd_job_ready(scene.job, -1, &job_state), -EPROTO);
	assert_says("too few descriptors");
	end(&scene);
}

/* Keeps the first answer to a phase until the second is asked. */
static bool answer_late(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(PHASE))
		return false;
	if (peer->stage++ == 0)
		return true;
	fake_peer_fail(peer, number - 1, -EIO, "late");
	fake_peer_reply(peer, number, NULL);
	return true;
}

static void a_late_reply_is_dropped(void **state)
{
	struct scene scene = { .peer.hook = answer_late };

	make_ready(&scene);
	assert_int_equal(tierd_set_timeout(scene.node, 1), 0);
	assert_int_equal(tierd_phase(scene.job, "evaluation"), -ETIMEDOUT);
	assert_int_equal(tierd_set_timeout(scene.node, -1), 0);
	assert_int_equal(tierd_phase(scene.job, "train"), 0);
	end(&scene);
}

static bool open_late(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	while (request->body_case == BODY(JOB_OPEN) && peer->stage == 0)
		sched_yield();
	return false;
}

static void a_membership_that_comes_late_is_left(void **state)
{
	struct scene scene = { .peer.hook = open_late };
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;

	connect_to(&scene);
	options.name = "test";
	tierd_set_timeout(scene.node, 1);
	assert_int_equal(tierd_job_open(scene.node, &options, &scene.job), -ETIMEDOUT);
	tierd_set_timeout(scene.node, -1);
	scene.peer.stage = 1;
	assert_int_equal(tierd_job_open(scene.node, &options, &scene.job), 0);
	assert_int_equal(tierd_job_close(scene.job), 0);
	assert_int_equal(scene.peer.leaves, 2);
	end(&scene);
}

static void a_forked_child_is_refused(void **state)
{
	struct scene scene = { 0 };
	struct tierd_view view;
	int status;

	make_ready(&scene);
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
	pid_t child = fork();

	if (child == 0) {
		bool is_good = tierd_gather(scene.job, TRAINED, &view) == -ECHILD &&
			       tierd_release(scene.job, TRAINED) == -ECHILD &&
			       tierd_gather_try(scene.job, TRAINED, &view) == -ECHILD &&
			       tierd_gather_many(scene.job, many, 1, &view) == -ECHILD &&
			       tierd_release_many(scene.job, many, 1) == -ECHILD &&
			       tierd_push(scene.job, TRAINED) == -ECHILD &&
			       tierd_set_timeout(scene.node, 0) == -ECHILD;

		tierd_disconnect(scene.node);
		_exit(is_good ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(tierd_release(scene.job, TRAINED), 0);
	end(&scene);
}

/* ---- Definitions ---- */

static void bad_options_are_refused_at_once(void **state)
{
	static const char *const names[] = { NULL, "", "_a", "-a", "a/b", "a..b", ".a", "a b" };
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct scene scene = { 0 };

	connect_to(&scene);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		options.name = names[i];
		assert_int_equal(tierd_job_open(scene.node, &options, &scene.job), -EINVAL);
	}
	options.name = "test";
	options.rank = 1;
	assert_int_equal(tierd_job_open(scene.node, &options, &scene.job), -EINVAL);
	assert_says("rank 1");
	options.rank = 0;
	options.stage = 4;
	assert_int_equal(tierd_job_open(scene.node, &options, &scene.job), -EINVAL);
	end(&scene);
}

static int define_one(struct tierd_job *job, const struct tierd_tensor *tensor)
{
	uint32_t unit;

	return tierd_unit_define(job, "unit", tensor, 1, &unit);
}

static void bad_tensors_are_refused_at_once(void **state)
{
	struct tierd_tensor good = TIERD_TENSOR_INIT, bad;
	struct scene scene = { 0 };
	char long_name[TIERD_MAX_NAME + 2];

	memset(long_name, 'n', sizeof(long_name));
	long_name[TIERD_MAX_NAME + 1] = '\0';
	good.name = "tensor";
	good.dimensions = 2;
	good.shape[0] = good.shape[1] = 2;
	open_job(&scene);
	bad = good, bad.name = "";
	assert_int_equal(define_one(scene.job, &bad), -EINVAL);
	bad = good, bad.name = "a\nb";
	assert_int_equal(define_one(scene.job, &bad), -EINVAL);
	bad = good, bad.name = long_name;
	assert_int_equal(define_one(scene.job, &bad), -ENAMETOOLONG);
	bad = good, bad.dimensions = 9;
	assert_int_equal(define_one(scene.job, &bad), -EINVAL);
	bad = good, bad.shape[0] = UINT64_MAX / 2;
	assert_int_equal(define_one(scene.job, &bad), -EOVERFLOW);
	bad = good, bad.format = 4;
	assert_int_equal(define_one(scene.job, &bad), -EINVAL);
	bad = good, bad.group = 1;
	assert_int_equal(define_one(scene.job, &bad), -EINVAL);
	assert_says("group 1");
	bad = good, bad.initializer = 9;
	assert_int_equal(define_one(scene.job, &bad), -EINVAL);
	bad = good, bad.slice_of = "big", bad.slice_rows = 3, bad.slice_row = 2;
	assert_int_equal(define_one(scene.job, &bad), -ERANGE);
	assert_int_equal(scene.peer.unit_count, 0);
	assert_int_equal(define_one(scene.job, &good), 0);
	end(&scene);
}

/* As a program built against a later version would pass them. */
struct larger_tensor {
	struct tierd_tensor tensor;
	uint64_t unknown;
};

static void larger_structures_are_taken_if_their_tail_is_zero(void **state)
{
	struct larger_tensor tensors[2] = { { TIERD_TENSOR_INIT, 0 }, { TIERD_TENSOR_INIT, 0 } };
	struct scene scene = { 0 };
	uint32_t unit;

	tensors[0].tensor.size = tensors[1].tensor.size = sizeof(struct larger_tensor);
	tensors[0].tensor.name = "a";
	tensors[1].tensor.name = "b";
	open_job(&scene);
	assert_int_equal(tierd_unit_define(scene.job, "unit", &tensors[0].tensor, 2, &unit), 0);
	tensors[1].unknown = 1;
	assert_int_equal(tierd_unit_define(scene.job, "other", &tensors[0].tensor, 2, &unit), -EINVAL);
	end(&scene);
}

/* ---- Gather ---- */

static void a_resident_unit_is_gathered_without_the_daemon(void **state)
{
	struct scene scene = { 0 };
	struct tierd_view first, again;

	make_ready(&scene);
	assert_int_equal(tierd_gather(scene.job, FROZEN, &first), 0);
	memcpy(scene.peer.arena_bytes + FROZEN * FAKE_SLOT_BYTES, "canary", 7);
	assert_string_equal((char *)tierd_at(&first, 1), "canary");
	assert_int_equal(first.offsets[1], 0);
	assert_int_equal(first.offsets[0], 2048);
	assert_int_equal(scene.peer.gathers, 1);
	assert_int_equal(tierd_gather(scene.job, FROZEN, &again), 0);
	assert_ptr_equal(first.base, again.base);
	assert_int_equal(scene.peer.gathers, 1);
	assert_int_equal(leases_on(&scene, FROZEN), 2);
	assert_int_equal(scene.peer.leases->trace_head, 2);
	assert_int_equal(tierd_release(scene.job, FROZEN), 0);
	assert_int_equal(tierd_release(scene.job, FROZEN), 0);
	assert_int_equal(tierd_release(scene.job, FROZEN), -EINVAL);
	assert_says("without having been gathered");
	assert_int_equal(tierd_gather(scene.job, UNITS, &first), -EINVAL);
	assert_int_equal(tierd_release(scene.job, UNITS), -EINVAL);
	end(&scene);
}

static void gather_before_ready_is_refused(void **state)
{
	struct scene scene = { 0 };
	struct tierd_view view;

	open_job(&scene);
	assert_int_equal(tierd_gather(scene.job, 0, &view), -EINVAL);
	assert_says("tierd_job_ready");
	assert_int_equal(tierd_gather_try(scene.job, 0, &view), -EINVAL);
	assert_says("tierd_job_ready");
	assert_int_equal(tierd_gather_many(scene.job, many, 1, &view), -EINVAL);
	assert_says("tierd_job_ready");
	end(&scene);
}

static void a_gather_that_is_only_tried_asks_nobody(void **state)
{
	struct tierd_view tried = { .base = (char *)1 }, view;
	struct scene scene = { 0 };

	make_ready(&scene);
	assert_int_equal(tierd_gather_try(scene.job, TRAINED, &tried), -EAGAIN);
	assert_says("call tierd_gather");
	assert_int_equal(tierd_gather_try(scene.job, UNITS, &tried), -EINVAL);
	assert_ptr_equal(tried.base, (char *)1);
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
	assert_int_equal(scene.peer.gathers, 1);
	assert_int_equal(tierd_gather_try(scene.job, TRAINED, &tried), 0);
	assert_ptr_equal(tried.base, view.base);
	assert_int_equal(leases_on(&scene, TRAINED), 2);
	assert_int_equal(scene.peer.leases->trace_head, 2);
	assert_int_equal(tierd_release(scene.job, TRAINED), 0);
	assert_int_equal(tierd_release(scene.job, TRAINED), 0);
	/* Resident, but not at the version that is awaited. */
	assert_int_equal(tierd_step(scene.job, &rates, NULL), 0);
	assert_int_equal(tierd_gather_try(scene.job, TRAINED, &tried), -EAGAIN);
	assert_int_equal(leases_on(&scene, TRAINED), 0);
	assert_int_equal(scene.peer.gathers, 1);
	end(&scene);
}

static void the_doorbell_rings_when_it_is_asked_to(void **state)
{
	struct scene scene = { 0 };
	struct tierd_view view;
	uint64_t rings;

	make_ready(&scene);
	scene.peer.leases->doorbell_at = 2;
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
	assert_int_equal(read(scene.peer.fds[4], &rings, sizeof(rings)), -1);
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
	assert_int_equal(read(scene.peer.fds[4], &rings, sizeof(rings)), sizeof(rings));
	assert_int_equal(rings, 1);
	end(&scene);
}

static bool refuse_once(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	return request->body_case == BODY(GATHER) && peer->stage++ == 0 && refuse(peer, number, request);
}

static void a_gather_overtaken_by_a_failed_step_looks_again(void **state)
{
	struct scene scene = { .peer.hook = refuse_once };
	struct tierd_view view;

	refusal = (struct refusal){ BODY(GATHER), -EAGAIN, "a step failed" };
	make_ready(&scene);
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
	assert_int_equal(scene.peer.stage, 2);
	end(&scene);
}

static const struct refusal deadlock = { BODY(GATHER), -EDEADLK, "it can never fit beside \"frozen\"" };

static void the_daemons_words_reach_the_caller(void **state)
{
	struct scene scene = { .peer.hook = refuse };
	struct tierd_view view = { .base = (char *)1 };

	refusal = deadlock;
	make_ready(&scene);
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), -EDEADLK);
	assert_string_equal(tierd_message(), "it can never fit beside \"frozen\"");
	assert_ptr_equal(view.base, (char *)1);
	end(&scene);
}

/* Holds a gather back until its cancel comes, and then grants it all the same: the two have crossed. */
static bool grant_with_the_cancel(struct fake_peer *peer, uint32_t number,
				  const Tierd__Wire__Request *request)
{
	if (request->body_case == BODY(GATHER))
		return true;
	if (request->body_case == BODY(GATHER_CANCEL))
		fake_peer_gather(peer, request->gather_cancel->request, TRAINED);
	return false;
}

static void a_gather_ticket_given_up_leaves_no_lease(void **state)
{
	struct scene scene = { .peer.hook = grant_with_the_cancel };
	struct tierd_ticket *ticket;
	struct tierd_view view;

	make_ready(&scene);
	assert_int_equal(tierd_gather_begin(scene.job, TRAINED, &ticket), 0);
	assert_int_equal(tierd_gather_end(ticket, 0, &view), -ETIMEDOUT);
	tierd_ticket_free(ticket);
	assert_int_equal(tierd_phase(scene.job, "train"), 0);
	assert_int_equal(scene.peer.cancels, 1);
	assert_int_equal(leases_on(&scene, TRAINED), 0);
	/* Resident now: the ticket is done at once, and freeing it releases. */
	assert_int_equal(tierd_gather_begin(scene.job, TRAINED, &ticket), 0);
	assert_int_equal(leases_on(&scene, TRAINED), 1);
	tierd_ticket_free(ticket);
	assert_int_equal(leases_on(&scene, TRAINED), 0);
	assert_int_equal(tierd_gather_begin(scene.job, TRAINED, &ticket), 0);
	assert_int_equal(tierd_gather_end(ticket, -1, &view), 0);
	assert_int_equal(leases_on(&scene, TRAINED), 1);
	end(&scene);
}

/* ---- Leases that outlive their job's handle ---- */

static bool is_readable(const void *address)
{
	int pipe_fds[2];
	ssize_t written;

	assert_int_equal(pipe(pipe_fds), 0);
	written = write(pipe_fds[1], address, 1);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	return written == 1;
}

static void hold_two(struct scene *scene, struct tierd_view *views)
{
	make_ready(scene);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		assert_int_equal(tierd_gather(scene->job, unit, &views[unit]), 0);
		memcpy(scene->peer.arena_bytes + unit * FAKE_SLOT_BYTES, unit ? "frozen" : "weight", 7);
	}
	assert_int_equal(tierd_gather(scene->job, TRAINED, &views[TRAINED]), 0);
}

/* The daemon uses the memory for something else. */
static void require_values(struct scene *scene, const struct tierd_view *views)
{
	memset(scene->peer.arena_bytes, 'x', UNITS * FAKE_SLOT_BYTES);
	assert_string_equal(tierd_at(&views[TRAINED], 1), "weight");
	assert_string_equal(tierd_at(&views[FROZEN], 1), "frozen");
}

static void require_only_releases(struct tierd_job *job)
{
	struct tierd_ticket *ticket;
	struct tierd_view view;

	assert_int_equal(tierd_gather(job, TRAINED, &view), -EBADF);
	assert_says("was left");
	assert_int_equal(tierd_gather_try(job, TRAINED, &view), -EBADF);
	assert_int_equal(tierd_gather_many(job, many, MANY, (struct tierd_view[MANY]){ 0 }), -EBADF);
	assert_int_equal(tierd_gather_begin(job, TRAINED, &ticket), -EBADF);
	assert_int_equal(tierd_gradients(job, TRAINED, &view), -EBADF);
	assert_int_equal(tierd_push(job, TRAINED), -EBADF);
	assert_int_equal(tierd_discard(job, TRAINED), -EBADF);
	assert_int_equal(tierd_phase(job, "train"), -EBADF);
	assert_int_equal(tierd_job_ready(job, -1, NULL), -EBADF);
	assert_int_equal(tierd_job_close(job), -EBADF);
	assert_int_equal(tierd_job_detach(job), -EBADF);
	assert_int_equal(tierd_release(job, UNITS), -EINVAL);
}

static void leases_outlive_the_handle(void **state)
{
	static const uint32_t last[] = { TRAINED, FROZEN };
	struct tierd_view views[UNITS];

	for (int way = 0; way < 4; way++) {
		struct scene scene = { 0 };

		hold_two(&scene, views);
		if (way == 0)
			assert_int_equal(tierd_job_close(scene.job), 0);
		else if (way == 1)
			assert_int_equal(tierd_job_detach(scene.job), 0);
		else
			scene.node = tierd_disconnect(scene.node);
		assert_int_equal(leases_on(&scene, TRAINED) + leases_on(&scene, FROZEN), 0);
		require_values(&scene, views);
		require_only_releases(scene.job);
		assert_int_equal(tierd_release(scene.job, TRAINED), 0);
		require_values(&scene, views);
		assert_int_equal(
			way < 3 ? tierd_release_many(scene.job, last, 2) : tierd_release_all(scene.job), 0);
		end(&scene);
	}
}

static void a_lease_that_outlives_the_handle_is_watched_in_a_debugging_run(void **state)
{
	struct tierd_view views[UNITS];
	struct scene scene = { 0 };

	setenv("TIERD_DEBUG", "leases", 1);
	hold_two(&scene, views);
	unsetenv("TIERD_DEBUG");
	assert_int_equal(tierd_job_close(scene.job), 0);
	require_values(&scene, views);
	/* Where the daemon has put it since is nothing to this process. */
	directory_entries(scene.peer.directory)[TRAINED].word =
		directory_word(DIRECTORY_RESIDENT, 1, FAKE_SLOT_BYTES);
	assert_int_equal(tierd_release(scene.job, TRAINED), 0);
	assert_true(is_readable(tierd_at(&views[TRAINED], 1)));
	assert_int_equal(tierd_release(scene.job, TRAINED), 0);
	assert_false(is_readable(tierd_at(&views[TRAINED], 1)));
	assert_true(is_readable(tierd_at(&views[FROZEN], 1)));
	assert_int_equal(tierd_release(scene.job, FROZEN), 0);
	end(&scene);
}

static void a_ticket_keeps_no_handle(void **state)
{
	struct scene scene = { 0 };
	struct tierd_ticket *ticket;
	struct tierd_view view;

	make_ready(&scene);
	assert_int_equal(tierd_gather(scene.job, FROZEN, &view), 0);
	assert_int_equal(tierd_release(scene.job, FROZEN), 0);
	assert_int_equal(tierd_gather_begin(scene.job, FROZEN, &ticket), 0);
	assert_int_equal(tierd_job_close(scene.job), 0);
	assert_int_equal(tierd_gather_end(ticket, -1, &view), -ECANCELED);
	assert_int_equal(leases_on(&scene, FROZEN), 0);
	end(&scene);
}

static void a_child_releases_what_its_parent_holds_without_a_crash(void **state)
{
	struct tierd_view views[UNITS];
	struct scene scene = { 0 };
	int status;

	hold_two(&scene, views);
	pid_t child = fork();

	if (child == 0) {
		tierd_disconnect(scene.node);
		_exit(tierd_release(scene.job, TRAINED) == -ECHILD &&
				      tierd_release_all(scene.job) == -ECHILD &&
				      tierd_gather(scene.job, TRAINED, views) == -EBADF
			      ? 0
			      : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(tierd_release_all(scene.job), 0);
	end(&scene);
}

enum { THREADS = 4, LEASES_EACH = 200 };

struct tensor_owner {
	struct scene *scene;
	pthread_barrier_t *start;
	const struct tierd_view *views;
};

static void *release_often(void *argument)
{
	const struct tensor_owner *owner = argument;
	bool is_good = true;

	pthread_barrier_wait(owner->start);
	for (int i = 0; i < LEASES_EACH; i++) {
		is_good = is_good &&
			  strcmp(tierd_at(&owner->views[i % UNITS], 1), i % UNITS ? "frozen" : "weight") == 0;
		is_good = is_good && tierd_release(owner->scene->job, (uint32_t)i % UNITS) == 0;
	}
	return is_good ? NULL : argument;
}

static void threads_release_while_and_after_the_job_is_left(void **state)
{
	struct tierd_view views[UNITS], view;
	struct scene scene = { 0 };
	pthread_barrier_t start;
	struct tensor_owner owner = { &scene, &start, views };
	pthread_t threads[THREADS];
	void *failure;

	hold_two(&scene, views);
	assert_int_equal(tierd_release(scene.job, TRAINED), 0);
	for (int i = UNITS; i < THREADS * LEASES_EACH; i++)
		assert_int_equal(tierd_gather(scene.job, (uint32_t)i % UNITS, &view), 0);
	pthread_barrier_init(&start, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, release_often, &owner), 0);
	pthread_barrier_wait(&start);
	assert_int_equal(tierd_job_close(scene.job), 0);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], &failure), 0);
		assert_null(failure);
	}
	pthread_barrier_destroy(&start);
	end(&scene);
}

/* ---- Gathers of many ---- */

static void many_units_come_side_by_side_and_then_without_the_daemon(void **state)
{
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;
	struct scene scene = { 0 };
	struct tierd_view views[MANY];
	unsigned asked;

	make_ready(&scene);
	assert_int_equal(tierd_gather_many(scene.job, many, MANY, views), 0);
	asked = scene.peer.gathers;
	assert_in_range(asked, 2, MANY);
	assert_int_equal(tierd_gather_many(scene.job, many, MANY, views), 0);
	assert_int_equal(scene.peer.gathers, asked);
	for (unsigned i = 0; i < MANY; i++) {
		assert_ptr_equal(views[i].base - many[i] * FAKE_SLOT_BYTES,
				 views[0].base - many[0] * FAKE_SLOT_BYTES);
		assert_int_equal(views[i].offsets[1], 0);
		/* In order, whichever of them came by message. */
		assert_int_equal((uint32_t)lease_trace(scene.peer.leases)[i], many[i]);
		assert_int_equal((uint32_t)lease_trace(scene.peer.leases)[MANY + i], many[i]);
	}
	assert_int_equal(scene.peer.leases->trace_head, 2 * MANY);
	assert_int_equal(leases_on(&scene, FROZEN), 2 * MANY_FROZEN);
	assert_int_equal(leases_on(&scene, TRAINED), 2 * (MANY - MANY_FROZEN));
	assert_int_equal(tierd_release_many(scene.job, many, MANY), 0);
	assert_int_equal(tierd_release_many(scene.job, many, MANY), 0);
	assert_int_equal(leases_on(&scene, FROZEN), 0);
	assert_int_equal(leases_on(&scene, TRAINED), 0);
	assert_int_equal(tierd_statistics(scene.job, &statistics), 0);
	assert_int_equal(statistics.gathers, 2 * MANY);
	assert_int_equal(statistics.gather_misses, asked);
	assert_int_equal(statistics.communicated_elements, 1000 + 2 * MANY * 1280);
	end(&scene);
}

static bool refuse_trained(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	return request->body_case == BODY(GATHER) && request->gather->unit == TRAINED &&
	       refuse(peer, number, request);
}

static void of_many_units_all_are_leased_or_none(void **state)
{
	struct scene scene = { .peer.hook = refuse_trained };
	const uint32_t unknown[] = { FROZEN, UNITS, FROZEN };
	struct tierd_view views[MANY];

	refusal = deadlock;
	make_ready(&scene);
	assert_int_equal(tierd_gather_many(scene.job, many, MANY, views), -EDEADLK);
	assert_string_equal(tierd_message(), "it can never fit beside \"frozen\"");
	assert_int_equal(tierd_phase(scene.job, "train"), 0);
	assert_int_equal(leases_on(&scene, FROZEN), 0);
	assert_int_equal(leases_on(&scene, TRAINED), 0);
	assert_int_equal(tierd_gather(scene.job, FROZEN, views), 0);
	assert_int_equal(tierd_gather_many(scene.job, unknown, 3, views), -EINVAL);
	assert_says("has no unit 2");
	assert_int_equal(leases_on(&scene, FROZEN), 1);
	for (unsigned i = 0; i < 3; i++)
		assert_null(views[i].base);
	assert_int_equal(tierd_gather_many(scene.job, unknown, 0, NULL), 0);
	end(&scene);
}

static void of_many_releases_the_wrong_one_is_named_and_the_rest_done(void **state)
{
	const uint32_t units[] = { FROZEN, TRAINED, FROZEN };
	struct scene scene = { 0 };
	struct tierd_view views[2];
	uint64_t rings;

	make_ready(&scene);
	assert_int_equal(tierd_gather(scene.job, FROZEN, views), 0);
	assert_int_equal(tierd_gather(scene.job, FROZEN, views), 0);
	scene.peer.leases->is_release_wanted = 1;
	assert_int_equal(tierd_release_many(scene.job, units, 3), -EINVAL);
	assert_says("\"trained\" is released without having been gathered");
	assert_int_equal(leases_on(&scene, FROZEN), 0);
	assert_int_equal(read(scene.peer.fds[4], &rings, sizeof(rings)), sizeof(rings));
	assert_int_equal(rings, 1);
	assert_int_equal(tierd_release_many(scene.job, units, 0), 0);
	end(&scene);
}

static bool end_epoch_at_phase(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request);

static void all_that_a_rank_holds_is_given_back_at_once(void **state)
{
	struct scene scene = { .peer.hook = end_epoch_at_phase };
	struct tierd_ticket *ticket;
	struct tierd_view view, views[MANY];

	make_ready(&scene);
	assert_int_equal(tierd_release_all(scene.job), 0);
	assert_int_equal(tierd_gather_many(scene.job, many, MANY, views), 0);
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
	assert_int_equal(tierd_gradients(scene.job, TRAINED, &view), 0);
	assert_int_equal(tierd_phase(scene.job, "evaluation"), -ESTALE);
	assert_int_equal(tierd_release_all(scene.job), 0);
	assert_int_equal(leases_on(&scene, TRAINED), 0);
	assert_int_equal(leases_on(&scene, FROZEN), 0);
	assert_int_equal(tierd_discard(scene.job, TRAINED), -EINVAL);
	assert_int_equal(tierd_release(scene.job, FROZEN), -EINVAL);
	/* What a ticket has is its caller's. */
	assert_int_equal(tierd_job_ready(scene.job, -1, NULL), 0);
	assert_int_equal(tierd_gather_begin(scene.job, FROZEN, &ticket), 0);
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
	assert_int_equal(tierd_release_all(scene.job), -EBUSY);
	assert_says("a gather of unit \"frozen\" was begun");
	assert_int_equal(leases_on(&scene, TRAINED), 1);
	assert_int_equal(tierd_gather_end(ticket, -1, &view), 0);
	assert_int_equal(tierd_release_all(scene.job), 0);
	assert_int_equal(leases_on(&scene, FROZEN), 0);
	assert_int_equal(leases_on(&scene, TRAINED), 0);
	end(&scene);
}

static bool grant_with_the_phase(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	/* As if the gather had been granted just before it was given up. */
	if (request->body_case == BODY(GATHER_CANCEL))
		fake_peer_gather(peer, number - 1, TRAINED);
	return request->body_case == BODY(GATHER) || request->body_case == BODY(GATHER_CANCEL);
}

static void a_lease_that_comes_after_its_gather_was_given_up_is_not_mixed_up(void **state)
{
	struct scene scene = { .peer.hook = grant_with_the_phase };
	struct tierd_ticket *ticket;
	struct tierd_view view;

	make_ready(&scene);
	assert_int_equal(tierd_gather_begin(scene.job, TRAINED, &ticket), 0);
	tierd_ticket_free(ticket);
	assert_int_equal(tierd_release_all(scene.job), 0);
	scene.peer.hook = NULL;
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
	assert_int_equal(tierd_phase(scene.job, "train"), 0);
	assert_int_equal(leases_on(&scene, TRAINED), 1);
	end(&scene);
}

static _Atomic uint64_t head_at_last_gather;

/* It never becomes resident, so each gather asks. */
static bool lease_and_look_at_trace(struct fake_peer *peer, uint32_t number,
				    const Tierd__Wire__Request *request)
{
	Tierd__Wire__GatherReply gather = TIERD__WIRE__GATHER_REPLY__INIT;
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;

	if (request->body_case != BODY(GATHER))
		return false;
	head_at_last_gather = peer->leases->trace_head;
	lease_counters(peer->leases, FAKE_BUFFERS)[request->gather->unit]++;
	peer->gathers++;
	gather.offset = request->gather->unit * FAKE_SLOT_BYTES;
	reply.body_case = TIERD__WIRE__REPLY__BODY_GATHER;
	reply.gather = &gather;
	fake_peer_reply(peer, number, &reply);
	return true;
}

/* What the daemon loads next depends on how far they are; and there may be more than the trace holds. */
static void of_many_units_the_daemon_learns_as_they_come(void **state)
{
	enum { ASKED = 40 };
	struct scene scene = { .peer.hook = lease_and_look_at_trace };
	uint32_t units[ASKED];
	struct tierd_view views[ASKED];

	for (unsigned i = 0; i < ASKED; i++)
		units[i] = FROZEN;
	make_ready(&scene);
	assert_int_equal(tierd_gather_many(scene.job, units, ASKED, views), 0);
	assert_int_equal(scene.peer.gathers, ASKED);
	assert_in_range(head_at_last_gather, ASKED / 2, ASKED - 1);
	assert_int_equal(scene.peer.leases->trace_head, ASKED);
	end(&scene);
}

static void many_gathers_ring_the_doorbell_once(void **state)
{
	const uint32_t units[] = { FROZEN, FROZEN, FROZEN };
	struct scene scene = { 0 };
	struct tierd_view views[3];
	uint64_t rings;

	make_ready(&scene);
	assert_int_equal(tierd_gather(scene.job, FROZEN, views), 0);
	scene.peer.leases->doorbell_at = 3;
	assert_int_equal(tierd_gather_many(scene.job, units, 1, views), 0);
	assert_int_equal(read(scene.peer.fds[4], &rings, sizeof(rings)), -1);
	assert_int_equal(tierd_gather_many(scene.job, units, 3, views), 0);
	assert_int_equal(read(scene.peer.fds[4], &rings, sizeof(rings)), sizeof(rings));
	assert_int_equal(rings, 1);
	end(&scene);
}

static void released_ranges_fault_in_a_debugging_run(void **state)
{
	const uint32_t trained = TRAINED;
	struct scene scene = { 0 };
	struct tierd_view view;

	setenv("TIERD_DEBUG", "leases", 1);
	make_ready(&scene);
	unsetenv("TIERD_DEBUG");
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
	assert_true(is_readable(tierd_at(&view, 0)));
	assert_false(is_readable(view.base + FAKE_SLOT_BYTES));
	assert_int_equal(tierd_release(scene.job, TRAINED), 0);
	assert_true(is_readable(tierd_at(&view, 0)));
	assert_int_equal(tierd_release(scene.job, TRAINED), 0);
	assert_false(is_readable(tierd_at(&view, 0)));
	assert_int_equal(tierd_release(scene.job, TRAINED), -EINVAL);
	assert_int_equal(tierd_gather_many(scene.job, &trained, 1, &view), 0);
	assert_true(is_readable(tierd_at(&view, 0)));
	assert_int_equal(tierd_release_many(scene.job, &trained, 1), 0);
	assert_false(is_readable(tierd_at(&view, 0)));
	assert_int_equal(leases_on(&scene, TRAINED), 0);
	end(&scene);
}

/* ---- Gradients and steps ---- */

static void gradients_are_zero_once_and_the_same_until_pushed(void **state)
{
	struct scene scene = { 0 };
	struct tierd_view view, again;

	make_ready(&scene);
	for (int micro_batch = 0; micro_batch < 5; micro_batch++) {
		assert_int_equal(tierd_gradients(scene.job, TRAINED, &view), 0);
		for (int i = 0; i < 1024; i++)
			assert_int_equal(((uint16_t *)tierd_at(&view, 1))[i], 0);
		memset(view.base, 0xff, 2 * 1024 + 4 * 256);
		assert_int_equal(tierd_gradients(scene.job, TRAINED, &again), 0);
		assert_ptr_equal(view.base, again.base);
		assert_int_equal(again.base[0], (char)0xff);
		assert_int_equal(tierd_push(scene.job, TRAINED), 0);
		assert_int_equal(tierd_push(scene.job, TRAINED), -EINVAL);
	}
	assert_int_equal(tierd_gradients(scene.job, FROZEN, &view), -EINVAL);
	assert_int_equal(tierd_discard(scene.job, TRAINED), -EINVAL);
	end(&scene);
}

enum { PIECES = 3, PIECE = 100, FIRST_OF_PIECES = 128 };

/* Three tensors, each at a multiple of 256 bytes. */
static void define_pieces(struct scene *scene, uint32_t gradient_format)
{
	struct tierd_tensor pieces[PIECES] = { TIERD_TENSOR_INIT, TIERD_TENSOR_INIT, TIERD_TENSOR_INIT };
	struct tierd_job_state job_state;

	for (int i = 0; i < PIECES; i++) {
		pieces[i].name = (const char *[]){ "a", "b", "c" }[i];
		pieces[i].dimensions = 1;
		pieces[i].shape[0] = PIECE;
		pieces[i].gradient_format = gradient_format;
	}
	assert_int_equal(tierd_unit_define(scene->job, "pieces", pieces, PIECES, NULL), 0);
	assert_int_equal(tierd_job_ready(scene->job, -1, &job_state), 0);
}

/* Every buffer is full of ones once. */
static void scribble_over_gradients(struct scene *scene, uint32_t unit)
{
	struct tierd_view view;

	for (int i = 0; i < FAKE_BUFFERS; i++) {
		assert_int_equal(tierd_gradients(scene->job, unit, &view), 0);
		memset(view.base, 0xff, 512 * sizeof(uint16_t));
		assert_int_equal(tierd_push(scene->job, unit), 0);
	}
}

static void of_gradients_to_be_overwritten_the_padding_alone_is_zeroed(void **state)
{
	struct scene scene = { 0 };
	struct tierd_view view, again;

	open_job(&scene);
	define_pieces(&scene, 0);
	scribble_over_gradients(&scene, 0);
	assert_int_equal(tierd_gradients_with(scene.job, 0, 2, &view), -EINVAL);
	assert_int_equal(tierd_gradients_with(scene.job, 0, TIERD_GRADIENTS_OVERWRITE, &view), 0);
	for (int i = 0; i < 512; i++) {
		bool is_padding = i >= PIECES * FIRST_OF_PIECES || i % FIRST_OF_PIECES >= PIECE;

		assert_int_equal(((uint16_t *)view.base)[i], is_padding ? 0 : 0xffff);
	}
	assert_int_equal(tierd_gradients(scene.job, 0, &again), 0);
	assert_ptr_equal(view.base, again.base);
	assert_int_equal(*(uint16_t *)tierd_at(&again, 1), 0xffff);
	assert_int_equal(tierd_discard(scene.job, 0), 0);
	end(&scene);
}

static void in_a_debugging_run_gradients_that_were_not_overwritten_are_nan(void **state)
{
	struct scene scene = { 0 };
	struct tierd_view view;

	assert_int_equal(setenv("TIERD_DEBUG", "leases", 1), 0);
	open_job(&scene);
	define_pieces(&scene, 0);
	assert_int_equal(unsetenv("TIERD_DEBUG"), 0);
	assert_int_equal(tierd_gradients_with(scene.job, 0, TIERD_GRADIENTS_OVERWRITE, &view), 0);
	assert_int_equal(((uint16_t *)tierd_at(&view, 2))[PIECE - 1], 0xffff);
	assert_int_equal(((uint16_t *)tierd_at(&view, 2))[PIECE], 0);
	end(&scene);
}

/* Whatever the format of their gradients is. */
static void of_tensors_without_gradient_all_is_zeroed_before_the_push(void **state)
{
	static const uint32_t formats[] = { 0, TIERD_FP32 };
	static const bool absent[PIECES] = { false, true, false };

	for (int i = 0; i < 2; i++) {
		uint64_t bytes = PIECE * (formats[i] ? sizeof(float) : sizeof(uint16_t));
		struct scene scene = { 0 };
		struct tierd_view view;
		char *pushed;

		open_job(&scene);
		define_pieces(&scene, formats[i]);
		assert_int_equal(tierd_gradients(scene.job, 0, &view), 0);
		for (uint32_t tensor = 0; tensor < PIECES; tensor++)
			memset(tierd_at(&view, tensor), 0xff, bytes);
		assert_int_equal(tierd_push_with(scene.job, 0, absent, PIECES, NULL), 0);
		/* The first of the rank's buffers. */
		pushed = scene.peer.gradients;
		for (uint32_t tensor = 0; tensor < PIECES; tensor++)
			for (uint64_t at = 0; at < bytes; at++)
				assert_int_equal((uint8_t)pushed[view.offsets[tensor] + at],
						 absent[tensor] ? 0 : 0xff);
		end(&scene);
	}
}

/* ---- Beside a thread that zeros a buffer ---- */

static struct {
	struct tierd_job *job;
	void *memory; /* of gradients; closed, so that who zeros some stops there */
	uint64_t bytes;
	int stopped[2], go[2]; /* pipes */
	_Atomic bool goes_on;
} zeroing;

static void stop_in_the_middle(int number, siginfo_t *information, void *context)
{
	char byte = 0;

	if (write(zeroing.stopped[1], &byte, 1) != 1 || read(zeroing.go[0], &byte, 1) != 1)
		_exit(1);
	mprotect(zeroing.memory, zeroing.bytes, PROT_READ | PROT_WRITE);
}

static void *take_gradients(void *unused)
{
	struct tierd_view view;

	return tierd_gradients(zeroing.job, TRAINED, &view) == 0 ? NULL : zeroing.job;
}

struct giver {
	int (*give_back)(struct tierd_job *job);
	_Atomic pid_t thread;
	_Atomic bool has_returned;
	bool has_waited;
	int result;
};

static void *give_buffer_back(void *argument)
{
	struct giver *giver = argument;

	giver->thread = gettid();
	giver->result = giver->give_back(zeroing.job);
	giver->has_waited = zeroing.goes_on;
	giver->has_returned = true;
	return NULL;
}

/* Or gone. */
static bool is_asleep(pid_t thread)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
	file = fopen(path, "r");
	if (!file)
		return true;
	assert_int_equal(fscanf(file, "%*d %*s %c", &state), 1);
	fclose(file);
	return state == 'S';
}

static void expect_to_wait(int (*give_back)(struct tierd_job *job), int result)
{
	struct sigaction own = { .sa_sigaction = stop_in_the_middle, .sa_flags = SA_SIGINFO }, previous;
	struct tierd_mappings mappings = TIERD_MAPPINGS_INIT;
	struct giver giver = { .give_back = give_back };
	pthread_t taking, giving;
	struct scene scene = { 0 };
	char byte = 0;
	void *failure;

	make_ready(&scene);
	scribble_over_gradients(&scene, TRAINED);
	assert_int_equal(tierd_mappings(scene.job, &mappings), 0);
	zeroing.job = scene.job;
	zeroing.memory = mappings.gradients;
	zeroing.bytes = mappings.gradient_bytes;
	zeroing.goes_on = false;
	assert_int_equal(pipe(zeroing.stopped), 0);
	assert_int_equal(pipe(zeroing.go), 0);
	assert_int_equal(sigaction(SIGSEGV, &own, &previous), 0);
	assert_int_equal(mprotect(zeroing.memory, zeroing.bytes, PROT_NONE), 0);
	assert_int_equal(pthread_create(&taking, NULL, take_gradients, NULL), 0);
	assert_int_equal(read(zeroing.stopped[0], &byte, 1), 1);
	assert_int_equal(pthread_create(&giving, NULL, give_buffer_back, &giver), 0);
	while (!giver.has_returned && !(giver.thread && is_asleep(giver.thread)))
		sched_yield();
	zeroing.goes_on = true;
	assert_int_equal(write(zeroing.go[1], &byte, 1), 1);
	assert_int_equal(pthread_join(giving, NULL), 0);
	assert_int_equal(pthread_join(taking, &failure), 0);
	assert_int_equal(sigaction(SIGSEGV, &previous, NULL), 0);
	assert_true(giver.has_waited);
	assert_int_equal(giver.result, result);
	assert_null(failure);
	for (int i = 0; i < 2; i++) {
		close(zeroing.stopped[i]);
		close(zeroing.go[i]);
	}
	end(&scene);
}

static int discard(struct tierd_job *job)
{
	return tierd_discard(job, TRAINED);
}

static int push(struct tierd_job *job)
{
	return tierd_push(job, TRAINED);
}

static int make_ready_again(struct tierd_job *job)
{
	return tierd_job_ready(job, -1, NULL);
}

static void a_buffer_that_is_being_zeroed_goes_nowhere(void **state)
{
	expect_to_wait(discard, 0);
	expect_to_wait(push, 0);
	expect_to_wait(tierd_release_all, 0);
	expect_to_wait(make_ready_again, 0);
}

static void holding_all_buffers_is_an_error(void **state)
{
	struct scene scene = { 0 };
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	struct tierd_job_state job_state;
	struct tierd_view view;
	uint32_t unit;

	open_job(&scene);
	for (int i = 0; i < 3; i++)
		assert_int_equal(
			tierd_unit_define(scene.job, "unit",
					  (tensor.name = (const char *[]){ "a", "b", "c" }[i], &tensor), 1,
					  &unit),
			0);
	assert_int_equal(tierd_job_ready(scene.job, -1, &job_state), 0);
	assert_int_equal(tierd_gradients(scene.job, 0, &view), 0);
	assert_int_equal(tierd_gradients(scene.job, 1, &view), 0);
	assert_int_equal(tierd_gradients(scene.job, 2, &view), -ENOBUFS);
	assert_int_equal(tierd_discard(scene.job, 1), 0);
	assert_int_equal(tierd_gradients(scene.job, 2, &view), 0);
	end(&scene);
}

static void a_step_with_something_held_is_refused(void **state)
{
	struct tierd_rates bad_rates = rates;
	struct scene scene = { 0 };
	struct tierd_view view;

	make_ready(&scene);
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
	assert_int_equal(tierd_gather(scene.job, FROZEN, &view), 0);
	assert_int_equal(tierd_step(scene.job, &rates, NULL), -EBUSY);
	assert_says("leases of 1 unit are held: \"trained\"; release");
	assert_int_equal(tierd_release(scene.job, TRAINED), 0);
	assert_int_equal(tierd_gradients(scene.job, TRAINED, &view), 0);
	assert_int_equal(tierd_step(scene.job, &rates, NULL), -EBUSY);
	assert_says("gradient buffers of 1 unit are held: \"trained\"; push");
	assert_int_equal(tierd_discard(scene.job, TRAINED), 0);
	assert_int_equal(tierd_step(scene.job, &rates, NULL), 0);
	bad_rates.group_count = 2;
	assert_int_equal(tierd_step(scene.job, &bad_rates, NULL), -EINVAL);
	end(&scene);
}

static void after_a_step_only_its_version_is_gathered(void **state)
{
	struct scene scene = { 0 };
	struct tierd_view view;

	make_ready(&scene);
	for (uint64_t step = 0; step < 3; step++) {
		assert_int_equal(tierd_gather(scene.job, FROZEN, &view), 0);
		assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
		assert_int_equal(view.version, step);
		/* One message for the frozen unit in all, and one for each version of the other. */
		assert_int_equal(scene.peer.gathers, step + 2);
		assert_int_equal(tierd_release(scene.job, TRAINED), 0);
		assert_int_equal(tierd_step(scene.job, &rates, NULL), 0);
	}
	end(&scene);
}

static void a_step_that_fails_leaves_the_old_version_awaited(void **state)
{
	struct scene scene = { .peer.hook = refuse };
	struct tierd_ticket *ticket;
	struct tierd_view view;

	refusal = (struct refusal){ BODY(STEP), -EDOM, "the gradients of \"trained\" hold a NaN" };
	make_ready(&scene);
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
	assert_int_equal(tierd_release(scene.job, TRAINED), 0);
	assert_int_equal(tierd_step(scene.job, &rates, &ticket), 0);
	assert_int_equal(tierd_ticket_wait(ticket, TIERD_DURABLE, -1), -EDOM);
	assert_int_equal(tierd_ticket_wait(ticket, TIERD_DONE, -1), -EDOM);
	tierd_ticket_free(ticket);
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
	assert_int_equal(scene.peer.gathers, 1);
	end(&scene);
}

static void a_silent_push_that_fails_is_reported_by_the_next_call(void **state)
{
	struct scene scene = { .peer.hook = refuse };
	struct tierd_view view;

	refusal = (struct refusal){ BODY(PUSH), -EINVAL, "more micro-batches than announced" };
	make_ready(&scene);
	assert_int_equal(tierd_gradients(scene.job, TRAINED, &view), 0);
	assert_int_equal(tierd_push(scene.job, TRAINED), 0);
	assert_int_equal(tierd_phase(scene.job, "train"), 0);
	assert_int_equal(tierd_step(scene.job, &rates, NULL), -EINVAL);
	assert_says("more micro-batches than announced");
	/* Its buffer is not lost. */
	assert_int_equal(lease_buffers(scene.peer.leases)[0], GRADIENT_BUFFER_FREE);
	assert_int_equal(tierd_step(scene.job, &rates, NULL), 0);
	end(&scene);
}

/* Begins of a writing wait until a phase is named. */
static bool begin_writing_at_a_phase(struct fake_peer *peer, uint32_t number,
				     const Tierd__Wire__Request *request)
{
	static uint32_t begun;
	Tierd__Wire__StepReduced reduced = TIERD__WIRE__STEP_REDUCED__INIT;
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;

	if (request->body_case == BODY(WRITE_BEGIN)) {
		begun = number;
		peer->stage = 1;
		return true;
	}
	if (request->body_case == BODY(PHASE)) {
		reply.body_case = TIERD__WIRE__REPLY__BODY_STEP_REDUCED;
		reply.step_reduced = &reduced;
		fake_peer_reply(peer, begun, &reply);
	}
	return false;
}

static void *begin_writing(void *job)
{
	return tierd_write_begin(job) == 0 ? NULL : job;
}

static void one_thread_at_a_time_begins_and_ends_a_writing(void **state)
{
	struct scene scene = { .peer.hook = begin_writing_at_a_phase };
	pthread_t thread;
	void *failure;

	make_ready(&scene);
	assert_int_equal(pthread_create(&thread, NULL, begin_writing, scene.job), 0);
	while (scene.peer.stage == 0)
		sched_yield();
	assert_int_equal(tierd_set_timeout(scene.node, 0), 0);
	assert_int_equal(tierd_write_begin(scene.job), -EALREADY);
	assert_says("another thread");
	assert_int_equal(tierd_write_end(scene.job, NULL), -EALREADY);
	assert_int_equal(tierd_write_cancel(scene.job), -EALREADY);
	assert_int_equal(tierd_set_timeout(scene.node, -1), 0);
	assert_int_equal(tierd_phase(scene.job, "evaluation"), 0);
	assert_int_equal(pthread_join(thread, &failure), 0);
	assert_null(failure);
	assert_int_equal(tierd_write_cancel(scene.job), 0);
	end(&scene);
}

static void tickets_share_a_descriptor(void **state)
{
	struct scene scene = { 0 };
	struct tierd_step_result result;
	struct tierd_job_state job_state;
	struct tierd_ticket *step, *push;
	struct tierd_view view;

	make_ready(&scene);
	assert_int_equal(tierd_gradients(scene.job, TRAINED, &view), 0);
	assert_int_equal(tierd_push_begin(scene.job, TRAINED, &push), 0);
	assert_int_equal(tierd_step(scene.job, &rates, &step), 0);
	struct pollfd poll_fd = { .fd = tierd_ticket_descriptor(step), .events = POLLIN };

	assert_true(poll_fd.fd >= 0);
	assert_int_equal(tierd_ticket_descriptor(push), poll_fd.fd);
	assert_int_equal(poll(&poll_fd, 1, -1), 1);
	/* Waiting for one reads the other's reply too; the descriptor must still tell. */
	assert_int_equal(tierd_ticket_wait(step, TIERD_DURABLE, -1), -EOPNOTSUPP);
	assert_int_equal(poll(&poll_fd, 1, 0), 1);
	assert_int_equal(tierd_ticket_wait(push, TIERD_DONE, 0), 0);
	assert_int_equal(poll(&poll_fd, 1, 0), 0);
	assert_int_equal(tierd_ticket_wait(push, TIERD_DURABLE, 0), -EINVAL);
	assert_int_equal(tierd_ticket_step_result(step, &result), 0);
	assert_int_equal(result.step, 1);
	assert_true(result.gradient_norm == 2.5);
	assert_int_equal(tierd_ticket_step_result(push, &result), -EINVAL);
	assert_int_equal(tierd_ticket_job_state(step, &job_state), -EINVAL);
	assert_null(tierd_ticket_free(push));
	/* This one outlives its node. */
	end(&scene);
	assert_int_equal(tierd_ticket_wait(step, TIERD_DONE, -1), 0);
	assert_null(tierd_ticket_free(step));
}

/* ---- Epochs ---- */

static bool end_epoch_at_phase(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(PHASE) || peer->stage++ > 0)
		return false;
	fake_peer_end_epoch(peer, "rank 1 (process 4711) died");
	fake_peer_fail(peer, number, -ESTALE, "rank 1 (process 4711) died");
	return true;
}

static void an_epoch_that_ended_is_named_until_ready(void **state)
{
	struct scene scene = { .peer.hook = end_epoch_at_phase };
	struct tierd_job_state job_state;
	struct tierd_view view;

	make_ready(&scene);
	assert_int_equal(tierd_step(scene.job, &rates, NULL), 0);
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
	assert_int_equal(tierd_gradients(scene.job, TRAINED, &view), 0);
	assert_int_equal(tierd_phase(scene.job, "train"), -ESTALE);
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), -ESTALE);
	assert_says("rank 1 (process 4711) died");
	assert_int_equal(tierd_push(scene.job, TRAINED), -ESTALE);
	assert_int_equal(tierd_job_state(scene.job, &job_state), -ESTALE);
	assert_int_equal(tierd_release(scene.job, TRAINED), 0);
	assert_int_equal(tierd_job_ready(scene.job, -1, &job_state), 0);
	assert_int_equal(job_state.epoch, 2);
	assert_int_equal(job_state.step, 1);
	/* The buffer that was held is free again. */
	assert_int_equal(tierd_push(scene.job, TRAINED), -EINVAL);
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
	end(&scene);
}

static bool end_epoch_in_the_directory_first(struct fake_peer *peer, uint32_t number,
					     const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(PHASE))
		return false;
	fake_peer_reply(peer, number, NULL);
	fake_peer_end_epoch(peer, "rank 1 left");
	return true;
}

static void the_hot_path_sees_the_end_of_an_epoch(void **state)
{
	struct scene scene = { .peer.hook = end_epoch_in_the_directory_first };
	struct tierd_view view;

	make_ready(&scene);
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
	assert_int_equal(tierd_release(scene.job, TRAINED), 0);
	assert_int_equal(tierd_phase(scene.job, "train"), 0);
	while (scene.peer.directory->epoch == 1)
		sched_yield();
	assert_int_equal(tierd_gather(scene.job, TRAINED, &view), -ESTALE);
	assert_says("rank 1 left");
	end(&scene);
}

/* ---- Tensors, blobs and statistics ---- */

static uint8_t stored[2000];

/* Keeps a bf16 tensor, as pieces through the window. */
static bool keep_tensor(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case == BODY(TENSOR_WRITE)) {
		memcpy(stored + 2 * request->tensor_write->first, peer->window,
		       2 * request->tensor_write->count);
		peer->stage++;
	} else if (request->body_case == BODY(TENSOR_READ)) {
		memcpy(peer->window, stored + 2 * request->tensor_read->first,
		       2 * request->tensor_read->count);
	} else {
		return false;
	}
	fake_peer_reply(peer, number, NULL);
	return true;
}

static void tensors_go_through_the_window_in_pieces(void **state)
{
	struct scene scene = { .peer.hook = keep_tensor };
	static uint16_t values[1000], copies[1000];
	static float masters[1000];

	make_ready(&scene);
	for (uint16_t i = 0; i < 1000; i++)
		values[i] = i;
	assert_int_equal(tierd_tensor_write(scene.job, TRAINED, 1, 0, 1000, values, false), 0);
	assert_int_equal(scene.peer.stage, 1);
	assert_int_equal(tierd_tensor_read(scene.job, TRAINED, 1, "parameter", 10, 990, copies), 0);
	assert_memory_equal(values + 10, copies, 2 * 990);
	assert_int_equal(tierd_tensor_write(scene.job, TRAINED, 1, 0, 1001, values, false), -EINVAL);
	assert_int_equal(tierd_tensor_write(scene.job, TRAINED, 1, UINT64_MAX, 2, values, false), -EINVAL);
	assert_int_equal(tierd_tensor_write(scene.job, TRAINED, 2, 0, 1, values, false), -EINVAL);
	assert_int_equal(tierd_tensor_read(scene.job, TRAINED, 1, NULL, 0, 1, masters), -EINVAL);
	end(&scene);
}

static void pieces_are_as_large_as_the_window(void **state)
{
	struct scene scene = { 0 };
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	struct tierd_job_state job_state;
	static float values[10000], copies[10000];
	uint32_t unit;

	open_job(&scene);
	tensor.name = "large";
	tensor.dimensions = 1;
	tensor.shape[0] = 10000;
	assert_int_equal(tierd_unit_define(scene.job, "unit", &tensor, 1, &unit), 0);
	assert_int_equal(tierd_tensor_write(scene.job, unit, 0, 0, 10000, values, true), 0);
	assert_int_equal(tierd_job_ready(scene.job, -1, &job_state), 0);
	copies[9999] = 1.0f;
	assert_int_equal(tierd_tensor_read(scene.job, unit, 0, "m", 0, 10000, copies), 0);
	assert_memory_equal(values, copies, sizeof(values));
	end(&scene);
}

/* Of two pieces, until the first one has been read; then the next step has brought a short one. */
static bool shorten_blob(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;
	Tierd__Wire__BlobReply blob = TIERD__WIRE__BLOB_REPLY__INIT;
	uint32_t left;

	if (request->body_case != BODY(BLOB_READ))
		return false;
	blob.step = peer->stage++ == 0 ? 1 : 2;
	blob.size = blob.step == 1 ? 2 * FAKE_WINDOW_BYTES : 10;
	left = request->blob_read->offset < blob.size ? (uint32_t)(blob.size - request->blob_read->offset)
						      : 0;
	blob.count = left < request->blob_read->count ? left : request->blob_read->count;
	memset(peer->window, (int)blob.step, blob.count);
	reply.body_case = TIERD__WIRE__REPLY__BODY_BLOB;
	reply.blob = &blob;
	fake_peer_reply(peer, number, &reply);
	return true;
}

static void a_blob_that_becomes_shorter_is_read_from_its_beginning(void **state)
{
	struct scene scene = { .peer.hook = shorten_blob };
	static char bytes[2 * FAKE_WINDOW_BYTES], expected[10];
	size_t size;

	make_ready(&scene);
	memset(expected, 2, sizeof(expected));
	assert_int_equal(tierd_blob_get(scene.job, "position", bytes, sizeof(bytes), &size, 0), 0);
	assert_int_equal(size, sizeof(expected));
	assert_memory_equal(bytes, expected, sizeof(expected));
	end(&scene);
}

static bool tell_nothing_of_blob(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;
	Tierd__Wire__BlobReply blob = TIERD__WIRE__BLOB_REPLY__INIT;

	if (request->body_case != BODY(BLOB_READ))
		return false;
	blob.size = 10;
	reply.body_case = TIERD__WIRE__REPLY__BODY_BLOB;
	reply.blob = &blob;
	fake_peer_reply(peer, number, &reply);
	return true;
}

static void a_blob_without_its_bytes_is_no_blob(void **state)
{
	struct scene scene = { .peer.hook = tell_nothing_of_blob };
	char bytes[10];
	size_t size;

	make_ready(&scene);
	assert_int_equal(tierd_blob_get(scene.job, "position", bytes, sizeof(bytes), &size, 0), -EPROTO);
	assert_int_equal(tierd_blob_get(scene.job, "position", NULL, 0, &size, 0), 0);
	assert_int_equal(size, 10);
	end(&scene);
}

static void shards_follow_the_layout(void **state)
{
	struct scene scene = { 0 };
	uint64_t first, count;

	/* Elements 0 … 999 are the weight, 1024 … 1026 the norm, of 1280; rank 0 of 2 has the first 512. */
	open_job(&scene);
	define_units(&scene);
	assert_int_equal(tierd_tensor_shard(scene.job, TRAINED, 1, &first, &count), 0);
	assert_int_equal(first, 0);
	assert_int_equal(count, 512);
	assert_int_equal(tierd_tensor_shard(scene.job, TRAINED, 0, &first, &count), 0);
	assert_int_equal(count, 0);
	assert_int_equal(tierd_tensor_shard(scene.job, FROZEN, 0, &first, &count), -EINVAL);
	end(&scene);
}

static void statistics_join_both_sides(void **state)
{
	struct scene scene = { 0 };
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;
	struct tierd_view view;

	make_ready(&scene);
	for (int i = 0; i < 3; i++)
		assert_int_equal(tierd_gather(scene.job, TRAINED, &view), 0);
	assert_int_equal(tierd_statistics(scene.job, &statistics), 0);
	assert_int_equal(statistics.gathers, 3);
	assert_int_equal(statistics.gather_misses, 1);
	assert_int_equal(statistics.pushes, 3);
	assert_int_equal(statistics.communicated_elements, 1000 + 3 * 1280);
	end(&scene);
}

/* ---- Threads ---- */

static void *call_often(void *argument)
{
	struct tierd_job *job = argument;
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;
	struct tierd_view view;
	intptr_t failures = 0;

	for (int i = 0; i < 300; i++) {
		failures += tierd_phase(job, "train") != 0;
		failures += tierd_gather(job, FROZEN, &view) != 0;
		failures += tierd_release(job, FROZEN) != 0;
		failures += tierd_statistics(job, &statistics) != 0 || statistics.pushes != 3;
	}
	return (void *)failures;
}

static void threads_share_a_connection(void **state)
{
	struct scene scene = { 0 };
	pthread_t threads[4];
	void *failures;

	make_ready(&scene);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, call_often, scene.job), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(threads[i], &failures), 0);
		assert_null(failures);
	}
	end(&scene);
}

static void *wait_for_phase(void *argument)
{
	return (void *)(intptr_t)tierd_phase(argument, "evaluation");
}

static bool die_at_third_phase(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(PHASE))
		return false;
	if (++peer->stage == 3)
		shutdown(peer->fd, SHUT_RDWR);
	return true;
}

static void all_waiting_threads_hear_of_a_death(void **state)
{
	struct scene scene = { .peer.hook = die_at_third_phase };
	pthread_t threads[3];
	void *r;

	make_ready(&scene);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, wait_for_phase, scene.job), 0);
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], &r);
		assert_int_equal((intptr_t)r, -ECONNRESET);
	}
	end(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_listening_is_said),
		cmocka_unit_test(a_path_that_is_too_long_is_refused),
		cmocka_unit_test(bad_greetings_are_refused),
		cmocka_unit_test(a_dead_daemon_ends_all_calls),
		cmocka_unit_test(an_unknown_status_is_a_protocol_error_of_one_call),
		cmocka_unit_test(answers_that_make_no_sense_end_the_connection),
		cmocka_unit_test(missing_descriptors_are_a_protocol_error),
		cmocka_unit_test(a_late_reply_is_dropped),
		cmocka_unit_test(a_membership_that_comes_late_is_left),
		cmocka_unit_test(a_forked_child_is_refused),
		cmocka_unit_test(bad_options_are_refused_at_once),
		cmocka_unit_test(bad_tensors_are_refused_at_once),
		cmocka_unit_test(larger_structures_are_taken_if_their_tail_is_zero),
		cmocka_unit_test(a_resident_unit_is_gathered_without_the_daemon),
		cmocka_unit_test(gather_before_ready_is_refused),
		cmocka_unit_test(a_gather_that_is_only_tried_asks_nobody),
		cmocka_unit_test(the_doorbell_rings_when_it_is_asked_to),
		cmocka_unit_test(a_gather_overtaken_by_a_failed_step_looks_again),
		cmocka_unit_test(the_daemons_words_reach_the_caller),
		cmocka_unit_test(a_gather_ticket_given_up_leaves_no_lease),
		cmocka_unit_test(leases_outlive_the_handle),
		cmocka_unit_test(a_lease_that_outlives_the_handle_is_watched_in_a_debugging_run),
		cmocka_unit_test(a_ticket_keeps_no_handle),
		cmocka_unit_test(a_child_releases_what_its_parent_holds_without_a_crash),
		cmocka_unit_test(threads_release_while_and_after_the_job_is_left),
		cmocka_unit_test(many_units_come_side_by_side_and_then_without_the_daemon),
		cmocka_unit_test(of_many_units_all_are_leased_or_none),
		cmocka_unit_test(of_many_releases_the_wrong_one_is_named_and_the_rest_done),
		cmocka_unit_test(all_that_a_rank_holds_is_given_back_at_once),
		cmocka_unit_test(a_lease_that_comes_after_its_gather_was_given_up_is_not_mixed_up),
		cmocka_unit_test(of_many_units_the_daemon_learns_as_they_come),
		cmocka_unit_test(many_gathers_ring_the_doorbell_once),
		cmocka_unit_test(released_ranges_fault_in_a_debugging_run),
		cmocka_unit_test(gradients_are_zero_once_and_the_same_until_pushed),
		cmocka_unit_test(of_gradients_to_be_overwritten_the_padding_alone_is_zeroed),
		cmocka_unit_test(in_a_debugging_run_gradients_that_were_not_overwritten_are_nan),
		cmocka_unit_test(of_tensors_without_gradient_all_is_zeroed_before_the_push),
		cmocka_unit_test(a_buffer_that_is_being_zeroed_goes_nowhere),
		cmocka_unit_test(holding_all_buffers_is_an_error),
		cmocka_unit_test(a_step_with_something_held_is_refused),
		cmocka_unit_test(after_a_step_only_its_version_is_gathered),
		cmocka_unit_test(a_step_that_fails_leaves_the_old_version_awaited),
		cmocka_unit_test(a_silent_push_that_fails_is_reported_by_the_next_call),
		cmocka_unit_test(one_thread_at_a_time_begins_and_ends_a_writing),
		cmocka_unit_test(tickets_share_a_descriptor),
		cmocka_unit_test(an_epoch_that_ended_is_named_until_ready),
		cmocka_unit_test(the_hot_path_sees_the_end_of_an_epoch),
		cmocka_unit_test(tensors_go_through_the_window_in_pieces),
		cmocka_unit_test(pieces_are_as_large_as_the_window),
		cmocka_unit_test(a_blob_that_becomes_shorter_is_read_from_its_beginning),
		cmocka_unit_test(a_blob_without_its_bytes_is_no_blob),
		cmocka_unit_test(shards_follow_the_layout),
		cmocka_unit_test(statistics_join_both_sides),
		cmocka_unit_test(threads_share_a_connection),
		cmocka_unit_test(all_waiting_threads_hear_of_a_death),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
