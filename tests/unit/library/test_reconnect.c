/* A library whose daemon goes and comes back, with the state that it had or another, or not as it was. */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "client/library/connection/connection.h"
#include "client/tierd.h"
#include "tests/unit/fake_peer.h"
#include "tests/unit/library/reading.h"
#include "tests/unit/test.h"

#define PATIENCE_MS 20000

struct scene {
	struct fake_peer peer;
	struct tierd_node *node;
	struct tierd_job *job;
};

static void connect_to_peer(struct scene *scene, int reconnect_ms)
{
	struct tierd_connect_options connect = TIERD_CONNECT_OPTIONS_INIT;

	fake_peer_start(&scene->peer);
	connect.socket_path = scene->peer.path;
	connect.reconnect_ms = reconnect_ms;
	assert_int_equal(tierd_connect_with(&connect, &scene->node), 0);
}

static void open_units(struct scene *scene)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	uint32_t unit;

	options.name = "test";
	options.mode = TIERD_CREATE;
	options.world_size = 2;
	assert_int_equal(tierd_job_open(scene->node, &options, &scene->job), 0);
	tensor.dimensions = 1;
	tensor.shape[0] = 100;
	tensor.name = "first.w";
	assert_int_equal(tierd_unit_define(scene->job, "first", &tensor, 1, &unit), 0);
	tensor.name = "second.w";
	assert_int_equal(tierd_unit_define(scene->job, "second", &tensor, 1, &unit), 0);
}

static void train_step(struct scene *scene)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_view gradients;

	for (uint32_t unit = 0; unit < 2; unit++) {
		assert_int_equal(tierd_gradients(scene->job, unit, &gradients), 0);
		assert_int_equal(tierd_push(scene->job, unit), 0);
	}
	assert_int_equal(tierd_step(scene->job, &rates, NULL), 0);
}

static void start_for(struct scene *scene, int reconnect_ms)
{
	connect_to_peer(scene, reconnect_ms);
	open_units(scene);
	assert_int_equal(tierd_job_ready(scene->job, -1, NULL), 0);
	train_step(scene);
}

static void start(struct scene *scene)
{
	start_for(scene, PATIENCE_MS);
}

static void end(struct scene *scene)
{
	tierd_disconnect(scene->node);
	fake_peer_stop(&scene->peer);
}

/* Of the first connection. */
static bool dies_at_phase(struct fake_peer *peer, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(PHASE) || peer->connection > 1)
		return false;
	shutdown(peer->fd, SHUT_RDWR);
	return true;
}

/* ---- One that drains ---- */

/* Its openings; then it is stopped, and another one comes. */
static bool drains_at_first(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(JOB_OPEN) || peer->connection > 1)
		return false;
	if (peer->stage++ < 2)
		fake_peer_fail(peer, number, -ESHUTDOWN, "tierd drains");
	else
		shutdown(peer->fd, SHUT_RDWR);
	return true;
}

static void one_that_drains_is_waited_for_and_the_next_one_asked(void **state)
{
	struct scene scene = { .peer = { .hook = drains_at_first, .connections = 2 } };

	start(&scene);
	assert_int_equal(scene.peer.connection, 2);
	assert_int_equal(scene.peer.stage, 3);
	end(&scene);
}

static bool drains(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(JOB_OPEN))
		return false;
	peer->stage++;
	fake_peer_fail(peer, number, -ESHUTDOWN, "tierd drains");
	return true;
}

static void one_that_drains_refuses_whoever_does_not_reconnect(void **state)
{
	struct scene scene = { .peer = { .hook = drains } };
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;

	connect_to_peer(&scene, 0);
	options.name = "test";
	assert_int_equal(tierd_job_open(scene.node, &options, &scene.job), -ESHUTDOWN);
	assert_says("tierd drains");
	assert_int_equal(scene.peer.stage, 1);
	end(&scene);
}

/* ---- As if nothing had happened ---- */

static char last_phase[64];
static unsigned openings;

static bool look_and_die_once(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case == BODY(PHASE))
		snprintf(last_phase, sizeof(last_phase), "%s", request->phase->name);
	if (request->body_case == BODY(JOB_OPEN)) {
		assert_int_equal(request->job_open->mode, peer->connection > 1 ? TIERD_EITHER : TIERD_CREATE);
		assert_int_equal(request->job_open->is_reconnect, peer->connection > 1);
		assert_int_equal(request->job_open->world_size, 2);
		openings++;
	}
	if (request->body_case != BODY(GATHER) || peer->connection > 1)
		return false;
	shutdown(peer->fd, SHUT_RDWR);
	return true;
}

static void a_daemon_that_comes_back_with_the_state_is_not_noticed(void **state)
{
	struct scene scene = { .peer = { .hook = look_and_die_once, .connections = 2 } };
	struct tierd_view view;
	struct tierd_job_state stands;

	openings = 0;
	start(&scene);
	assert_int_equal(tierd_phase(scene.job, "evaluation"), 0);
	/* In the middle of the call. */
	assert_int_equal(tierd_gather(scene.job, 1, &view), 0);
	assert_int_equal(view.version, 1);
	assert_int_equal(tierd_release(scene.job, 1), 0);
	assert_int_equal(openings, 2);
	assert_string_equal(last_phase, "evaluation");
	assert_int_equal(scene.peer.unit_count, 2);
	assert_int_equal(tierd_job_state(scene.job, &stands), 0);
	assert_int_equal(stands.step, 1);
	train_step(&scene);
	assert_int_equal(tierd_job_close(scene.job), 0);
	end(&scene);
}

static bool die_while_it_comes_back(struct fake_peer *peer, uint32_t number,
				    const Tierd__Wire__Request *request)
{
	static const int victims[] = { BODY(PHASE), BODY(JOB_OPEN), BODY(UNIT_DEFINE), BODY(JOB_READY) };

	if (peer->connection > 4 || (int)request->body_case != victims[peer->connection - 1])
		return false;
	shutdown(peer->fd, SHUT_RDWR);
	return true;
}

static void one_that_goes_again_while_it_comes_back_is_waited_for(void **state)
{
	struct scene scene = { .peer = { .hook = die_while_it_comes_back, .connections = 5 } };

	start(&scene);
	assert_int_equal(tierd_phase(scene.job, "evaluation"), 0);
	assert_int_equal(scene.peer.connection, 5);
	train_step(&scene);
	end(&scene);
}

static unsigned opened_over;

/* The answer to the first opening is the last that is heard of the first daemon, the answer to the last
 * definition that of the third one: the end is there when the answer is read, or soon after. */
static bool answer_and_die(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	static const struct {
		int kind;
		unsigned units;
	} ends[] = { { BODY(JOB_OPEN), 0 }, { BODY(PHASE), 2 }, { BODY(UNIT_DEFINE), 1 }, { 0, 0 } };
	unsigned i = peer->connection - 1;

	if (request->body_case == BODY(JOB_OPEN))
		opened_over = peer->connection;
	if (opened_over != peer->connection) {
		fake_peer_fail(peer, number, -EINVAL, "this connection has no open job");
		return true;
	}
	if ((int)request->body_case != ends[i].kind || peer->unit_count != ends[i].units)
		return false;
	if (request->body_case != BODY(PHASE))
		fake_peer_answer(peer, number, request);
	shutdown(peer->fd, SHUT_RDWR);
	return true;
}

static void one_that_goes_with_its_answer_is_asked_again(void **state)
{
	for (unsigned i = 0; i < 50; i++) {
		struct scene scene = { .peer = { .hook = answer_and_die, .connections = 4 } };

		start(&scene);
		assert_int_equal(tierd_phase(scene.job, "evaluation"), 0);
		assert_int_equal(scene.peer.connection, 4);
		end(&scene);
	}
}

/* ---- Not as it was ---- */

static bool forget_a_step(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case == BODY(JOB_OPEN) && peer->connection == 2)
		peer->step = 3;
	return dies_at_phase(peer, request);
}

static void a_job_that_stands_elsewhere_is_said(void **state)
{
	struct scene scene = { .peer = { .hook = forget_a_step, .connections = 2 } };
	struct tierd_job_state stands;

	start(&scene);
	for (unsigned i = 0; i < 4; i++)
		train_step(&scene);
	assert_int_equal(tierd_phase(scene.job, "evaluation"), -ESTALE);
	assert_says("tierd was restarted: job \"test\" stands at step 3, this rank was at step 5");
	assert_int_equal(tierd_job_ready(scene.job, -1, &stands), 0);
	assert_int_equal(stands.step, 3);
	train_step(&scene);
	end(&scene);
}

static bool know_no_job(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case == BODY(JOB_OPEN) && peer->connection == 2) {
		fake_peer_fail(peer, number, -EINVAL, "rank 0 differs");
		return true;
	}
	return dies_at_phase(peer, request);
}

static void a_job_that_cannot_be_opened_again_can_only_be_closed(void **state)
{
	struct scene scene = { .peer = { .hook = know_no_job, .connections = 2 } };

	start(&scene);
	assert_int_equal(tierd_phase(scene.job, "evaluation"), -EINVAL);
	assert_says("cannot be opened again: rank 0 differs; close it");
	assert_int_equal(tierd_job_ready(scene.job, -1, NULL), -EINVAL);
	assert_int_equal(tierd_job_close(scene.job), 0);
	end(&scene);
}

static bool speak_another_version(struct fake_peer *peer, uint32_t number,
				  const Tierd__Wire__Request *request)
{
	peer->version = request->body_case == BODY(PHASE) ? 9 : 0;
	return dies_at_phase(peer, request);
}

static void one_that_comes_back_with_another_protocol_is_given_up(void **state)
{
	struct scene scene = { .peer = { .hook = speak_another_version, .connections = 2 } };

	start(&scene);
	assert_int_equal(tierd_phase(scene.job, "evaluation"), -EPROTONOSUPPORT);
	assert_says("version 9");
	assert_int_equal(tierd_phase(scene.job, "evaluation"), -EPROTONOSUPPORT);
	end(&scene);
}

static bool die_at_every_phase(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(PHASE))
		return false;
	shutdown(peer->fd, SHUT_RDWR);
	return true;
}

static void one_that_always_hangs_up_at_a_request_is_not_asked_for_ever(void **state)
{
	struct scene scene = { .peer = { .hook = die_at_every_phase, .connections = 1000 } };

	start(&scene);
	assert_int_equal(tierd_phase(scene.job, "evaluation"), -ECONNRESET);
	assert_true(scene.peer.connection > 2 && scene.peer.connection < 100);
	tierd_disconnect(scene.node);
	fake_peer_stop(&scene.peer);
}

/* ---- Sent away ---- */

#define ROLLED_BACK "job test was rolled back to step 0 by user 7"

static bool send_away_at_phase(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(PHASE))
		return false;
	fake_peer_send_away(peer, ROLLED_BACK);
	peer->step = 0;
	fake_peer_fail(peer, number, -ESTALE, ROLLED_BACK);
	return true;
}

/* At first it is not there yet, then the daemon drains. */
static bool roll_back(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(JOB_OPEN) || openings++ == 0)
		return send_away_at_phase(peer, number, request);
	assert_int_equal(request->job_open->mode, TIERD_RESUME);
	assert_false(request->job_open->is_reconnect);
	if (openings > 3)
		return false;
	fake_peer_fail(peer, number, openings == 2 ? -EAGAIN : -ESHUTDOWN, "try again");
	return true;
}

static void assert_is_sent_away(struct scene *scene)
{
	struct tierd_view view;

	assert_int_equal(tierd_phase(scene->job, "evaluation"), -ESTALE);
	assert_int_equal(tierd_gather(scene->job, 0, &view), -ESTALE);
	assert_says(ROLLED_BACK "; call tierd_job_ready");
}

static void a_rank_that_was_sent_away_opens_the_job_again_when_it_gets_ready(void **state)
{
	struct scene scene = { .peer = { .hook = roll_back } };
	struct tierd_job_state stands;
	struct tierd_view view;

	openings = 0;
	start(&scene);
	/* A lease of before is good until it is released. */
	assert_int_equal(tierd_gather(scene.job, 1, &view), 0);
	assert_is_sent_away(&scene);
	assert_int_equal(openings, 1);
	assert_int_equal(tierd_release(scene.job, 1), 0);
	assert_int_equal(tierd_job_ready(scene.job, -1, &stands), 0);
	assert_int_equal(stands.step, 0);
	assert_int_equal(openings, 4);
	assert_int_equal(scene.peer.unit_count, 2);
	train_step(&scene);
	assert_int_equal(tierd_job_state(scene.job, &stands), 0);
	assert_int_equal(stands.step, 1);
	assert_int_equal(tierd_job_close(scene.job), 0);
	end(&scene);
}

/* Where it defines its units the second time, and where it gets ready the third time. */
static bool roll_back_again(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	bool is_definition = request->body_case == BODY(UNIT_DEFINE) && openings == 2;
	bool is_ready = request->body_case == BODY(JOB_READY) && openings == 3;

	openings += request->body_case == BODY(JOB_OPEN);
	if (!is_definition && !is_ready)
		return send_away_at_phase(peer, number, request);
	fake_peer_send_away(peer, ROLLED_BACK);
	fake_peer_fail(peer, number, is_ready ? -ENOENT : -ESTALE, ROLLED_BACK);
	return true;
}

static void one_that_is_sent_away_while_it_returns_returns_again(void **state)
{
	struct scene scene = { .peer = { .hook = roll_back_again } };

	openings = 0;
	start(&scene);
	assert_is_sent_away(&scene);
	assert_int_equal(tierd_job_ready(scene.job, -1, NULL), -ESTALE);
	assert_says(ROLLED_BACK);
	assert_int_equal(openings, 3);
	assert_int_equal(tierd_job_ready(scene.job, -1, NULL), 0);
	assert_int_equal(openings, 4);
	train_step(&scene);
	end(&scene);
}

/* The library's clock. */
static _Atomic time_t ahead_seconds;
static _Atomic unsigned looks;
static _Atomic bool has_come_back;

int __real_clock_gettime(clockid_t clock, struct timespec *ret_now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now)
{
	int r = __real_clock_gettime(clock, ret_now);

	looks++;
	ret_now->tv_sec += ahead_seconds;
	return r;
}

/* The library wakes, and looks at the clock. */
static void wake(struct fake_peer *peer)
{
	Tierd__Wire__Event nothing = TIERD__WIRE__EVENT__INIT;
	unsigned before = looks;
	uint8_t *frame;
	size_t length;

	assert_int_equal(frame_encode(1, FRAME_EVENT, 0, &nothing.base, &frame, &length), 0);
	fake_peer_send(peer, frame, length);
	free(frame);
	while (looks == before && !has_come_back)
		sched_yield();
}

/* The second look, at the latest, is one after it was woken. */
static bool take_its_time(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case == BODY(JOB_OPEN) && openings++ == 1) {
		ahead_seconds = 11;
		wake(peer);
		wake(peer);
	}
	return send_away_at_phase(peer, number, request);
}

static void one_that_returns_waits_as_long_as_its_node_does(void **state)
{
	struct scene scene = { .peer = { .hook = take_its_time } };
	int r;

	openings = 0;
	start(&scene);
	assert_is_sent_away(&scene);
	r = tierd_job_ready(scene.job, -1, NULL);
	has_come_back = true;
	ahead_seconds = 0;
	assert_int_equal(r, 0);
	end(&scene);
}

/* Behind the answer that opens it; the library reads both together. */
static bool open_and_send_away(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(JOB_OPEN) || openings++ > 0)
		return false;
	while (peer->stage == 0)
		sched_yield();
	fake_peer_answer(peer, number, request);
	fake_peer_send_away(peer, ROLLED_BACK);
	peer->stage++;
	return true;
}

static void *open_test(void *argument)
{
	struct scene *scene = argument;
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;

	options.name = "test";
	assert_int_equal(tierd_job_open(scene->node, &options, &scene->job), 0);
	return NULL;
}

static void one_that_is_sent_away_with_its_opening_returns(void **state)
{
	struct scene scene = { .peer = { .hook = open_and_send_away } };
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	pthread_t other;
	uint32_t unit;

	openings = 0;
	connect_to_peer(&scene, PATIENCE_MS);
	assert_int_equal(pthread_create(&other, NULL, open_test, &scene), 0);
	lock_while_another_thread_reads(scene.node);
	scene.peer.stage = 1;
	while (scene.peer.stage == 1)
		sched_yield();
	connection_exit(scene.node);
	pthread_join(other, NULL);
	tensor.name = "w";
	tensor.dimensions = 1;
	tensor.shape[0] = 100;
	assert_int_equal(tierd_unit_define(scene.job, "unit", &tensor, 1, &unit), -ESTALE);
	assert_says(ROLLED_BACK "; call tierd_job_ready");
	assert_int_equal(tierd_job_ready(scene.job, -1, NULL), -EINVAL);
	assert_int_equal(openings, 2);
	assert_int_equal(tierd_unit_define(scene.job, "unit", &tensor, 1, &unit), 0);
	assert_int_equal(tierd_job_ready(scene.job, -1, NULL), 0);
	end(&scene);
}

/* Where it defines its units over the second connection. */
static bool roll_back_when_it_comes_back(struct fake_peer *peer, uint32_t number,
					 const Tierd__Wire__Request *request)
{
	openings += request->body_case == BODY(JOB_OPEN);
	if (request->body_case != BODY(UNIT_DEFINE) || openings != 2)
		return dies_at_phase(peer, request);
	fake_peer_send_away(peer, ROLLED_BACK);
	fake_peer_fail(peer, number, -ESTALE, ROLLED_BACK);
	return true;
}

static void one_that_is_sent_away_while_it_comes_back_opens_it_once_more(void **state)
{
	struct scene scene = { .peer = { .hook = roll_back_when_it_comes_back, .connections = 2 } };

	openings = 0;
	start(&scene);
	assert_int_equal(tierd_phase(scene.job, "evaluation"), -ESTALE);
	assert_says(ROLLED_BACK);
	assert_int_equal(openings, 3);
	assert_int_equal(tierd_job_ready(scene.job, -1, NULL), 0);
	end(&scene);
}

/* What tierd says to who has no part in the job any more. */
static bool know_it_no_more(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	openings += request->body_case == BODY(JOB_OPEN);
	if (openings > 1 ||
	    (request->body_case != BODY(JOB_READY) && request->body_case != BODY(JOB_LEAVE)) ||
	    peer->epoch < 2)
		return send_away_at_phase(peer, number, request);
	fake_peer_fail(peer, number, request->body_case == BODY(JOB_READY) ? -ENOENT : -ESTALE,
		       ROLLED_BACK ", and this rank has no part in it any more");
	return true;
}

static void one_that_does_not_reconnect_closes_the_job_and_opens_it_again(void **state)
{
	struct scene scene = { .peer = { .hook = know_it_no_more } };
	struct tierd_view view;

	openings = 0;
	start_for(&scene, 0);
	assert_int_equal(tierd_phase(scene.job, "evaluation"), -ESTALE);
	assert_int_equal(tierd_gather(scene.job, 0, &view), -ESTALE);
	assert_says(ROLLED_BACK "; close the job, and open it again");
	assert_int_equal(tierd_job_ready(scene.job, -1, NULL), -ENOENT);
	assert_says("has no part in it any more");
	assert_int_equal(tierd_job_close(scene.job), -ESTALE);
	open_units(&scene);
	assert_int_equal(openings, 2);
	assert_int_equal(tierd_job_ready(scene.job, -1, NULL), 0);
	train_step(&scene);
	end(&scene);
}

static bool drop_instead(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(JOB_OPEN) || openings++ == 0)
		return send_away_at_phase(peer, number, request);
	fake_peer_fail(peer, number, -ENOENT, "there is no job test to resume");
	return true;
}

static void one_whose_job_is_not_there_any_more_hears_so(void **state)
{
	struct scene scene = { .peer = { .hook = drop_instead } };

	openings = 0;
	start(&scene);
	assert_is_sent_away(&scene);
	for (unsigned i = 2; i < 4; i++) {
		assert_int_equal(tierd_job_ready(scene.job, -1, NULL), -ENOENT);
		assert_says("there is no job test to resume");
		assert_int_equal(openings, i);
	}
	end(&scene);
}

static bool die_when_it_returns(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(JOB_OPEN) || openings++ != 1)
		return send_away_at_phase(peer, number, request);
	shutdown(peer->fd, SHUT_RDWR);
	return true;
}

static void one_that_returns_to_a_daemon_that_dies_finds_the_next(void **state)
{
	struct scene scene = { .peer = { .hook = die_when_it_returns, .connections = 2 } };
	struct tierd_job_state stands;

	openings = 0;
	start(&scene);
	assert_is_sent_away(&scene);
	assert_int_equal(tierd_job_ready(scene.job, -1, &stands), 0);
	assert_int_equal(openings, 3);
	assert_int_equal(stands.step, 0);
	train_step(&scene);
	end(&scene);
}

/* Dies at a snapshot, and the next one rolls the job back. */
static bool roll_back_at_snapshot(struct fake_peer *peer, uint32_t number,
				  const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(SNAPSHOT_TAKE))
		return false;
	if (peer->connection == 1) {
		shutdown(peer->fd, SHUT_RDWR);
		return true;
	}
	fake_peer_send_away(peer, ROLLED_BACK);
	peer->step = 0;
	fake_peer_fail(peer, number, -ESTALE, ROLLED_BACK);
	return true;
}

static void a_rollback_before_the_ranks_of_a_reopened_job_meet_is_said(void **state)
{
	struct scene scene = { .peer = { .hook = roll_back_at_snapshot, .connections = 2 } };
	struct tierd_job_state stands;

	start(&scene);
	assert_int_equal(tierd_snapshot(scene.job, "first"), -ESTALE);
	assert_is_sent_away(&scene);
	assert_int_equal(tierd_job_ready(scene.job, -1, &stands), 0);
	assert_int_equal(stands.step, 0);
	train_step(&scene);
	end(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_that_drains_is_waited_for_and_the_next_one_asked),
		cmocka_unit_test(one_that_drains_refuses_whoever_does_not_reconnect),
		cmocka_unit_test(a_daemon_that_comes_back_with_the_state_is_not_noticed),
		cmocka_unit_test(one_that_goes_again_while_it_comes_back_is_waited_for),
		cmocka_unit_test(one_that_goes_with_its_answer_is_asked_again),
		cmocka_unit_test(a_job_that_stands_elsewhere_is_said),
		cmocka_unit_test(a_job_that_cannot_be_opened_again_can_only_be_closed),
		cmocka_unit_test(one_that_comes_back_with_another_protocol_is_given_up),
		cmocka_unit_test(one_that_always_hangs_up_at_a_request_is_not_asked_for_ever),
		cmocka_unit_test(a_rank_that_was_sent_away_opens_the_job_again_when_it_gets_ready),
		cmocka_unit_test(one_that_is_sent_away_while_it_returns_returns_again),
		cmocka_unit_test(one_that_does_not_reconnect_closes_the_job_and_opens_it_again),
		cmocka_unit_test(one_that_returns_waits_as_long_as_its_node_does),
		cmocka_unit_test(one_that_is_sent_away_with_its_opening_returns),
		cmocka_unit_test(one_that_is_sent_away_while_it_comes_back_opens_it_once_more),
		cmocka_unit_test(one_whose_job_is_not_there_any_more_hears_so),
		cmocka_unit_test(one_that_returns_to_a_daemon_that_dies_finds_the_next),
		cmocka_unit_test(a_rollback_before_the_ranks_of_a_reopened_job_meet_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
