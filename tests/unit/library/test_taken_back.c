/* A window whose pages tierd takes back behind an answer, because the rank has no part in its job any more,
 * or the connection has ended: what was copied may be what it was, or zeros, and does not count. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "client/library/connection/connection.h"
#include "client/library/pages/job.h"
#include "client/tierd.h"
#include "tests/unit/fake_peer.h"
#include "tests/unit/library/reading.h"
#include "tests/unit/test.h"

#define PATIENCE_MS 20000
#define ROLLED_BACK "job test was rolled back to step 0 by user 7"
#define TAKEN "rank 0 (pid 7) was taken over by another process"

struct scene {
	struct fake_peer peer;
	struct tierd_node *node;
	struct tierd_job *job;
};

static void start(struct scene *scene, int reconnect_ms)
{
	struct tierd_connect_options connect = TIERD_CONNECT_OPTIONS_INIT;
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	uint32_t unit;

	fake_peer_start(&scene->peer);
	connect.socket_path = scene->peer.path;
	connect.reconnect_ms = reconnect_ms;
	assert_int_equal(tierd_connect_with(&connect, &scene->node), 0);
	options.name = "test";
	assert_int_equal(tierd_job_open(scene->node, &options, &scene->job), 0);
	tensor.dimensions = 1;
	tensor.shape[0] = 100;
	tensor.name = "first.w";
	assert_int_equal(tierd_unit_define(scene->job, "first", &tensor, 1, &unit), 0);
}

static void end(struct scene *scene)
{
	tierd_disconnect(scene->node);
	fake_peer_stop(&scene->peer);
}

/* ---- A rank that has no part any more ---- */

static void reply_blob(struct fake_peer *peer, uint32_t number)
{
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;
	Tierd__Wire__BlobReply blob = TIERD__WIRE__BLOB_REPLY__INIT;

	blob.size = blob.count = 4;
	reply.body_case = TIERD__WIRE__REPLY__BODY_BLOB;
	reply.blob = &blob;
	fake_peer_reply(peer, number, &reply);
}

static bool reads(const Tierd__Wire__Request *request)
{
	return request->body_case == BODY(TENSOR_READ) || request->body_case == BODY(TENSOR_READ_MANY) ||
	       request->body_case == BODY(BLOB_READ);
}

static void answer_read(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case == BODY(BLOB_READ))
		reply_blob(peer, number);
	else
		fake_peer_reply(peer, number, NULL);
}

/* As good as behind the answer: the library handles what it reads together. */
static bool answer_and_send_away(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (!reads(request))
		return false;
	fake_peer_send_away(peer, ROLLED_BACK);
	answer_read(peer, number, request);
	return true;
}

static int get_blob(struct scene *scene)
{
	char bytes[4];
	size_t size;

	return tierd_blob_get(scene->job, "key", bytes, sizeof(bytes), &size, 0);
}

static void of_one_that_is_rolled_back_nothing_counts(void **state)
{
	struct scene scene = { .peer = { .hook = answer_and_send_away } };
	struct tierd_read piece = TIERD_READ_INIT;
	uint16_t values[100];

	piece.count = 100;
	piece.ret_data = values;
	start(&scene, PATIENCE_MS);
	assert_int_equal(tierd_job_ready(scene.job, -1, NULL), 0);
	assert_int_equal(tierd_tensor_read(scene.job, 0, 0, "parameter", 0, 100, values), -ESTALE);
	assert_says(ROLLED_BACK "; call tierd_job_ready");
	assert_int_equal(tierd_job_ready(scene.job, -1, NULL), 0);
	assert_int_equal(tierd_read_many(scene.job, &piece, 1), -ESTALE);
	assert_int_equal(tierd_job_ready(scene.job, -1, NULL), 0);
	assert_int_equal(get_blob(&scene), -ESTALE);
	end(&scene);
}

static void nor_does_it_before_its_first_epoch_whether_it_may_return_or_not(void **state)
{
	for (int reconnect_ms = 0; reconnect_ms <= PATIENCE_MS; reconnect_ms += PATIENCE_MS) {
		struct scene scene = { .peer = { .hook = answer_and_send_away } };

		start(&scene, reconnect_ms);
		assert_int_equal(get_blob(&scene), -ESTALE);
		assert_says("the part of this rank in job \"test\" has ended: " ROLLED_BACK);
		end(&scene);
	}
}

static bool answer_and_throw_out(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	if (!reads(request))
		return false;
	fake_peer_end_epoch(peer, TAKEN);
	answer_read(peer, number, request);
	return true;
}

static void of_one_that_is_thrown_out_before_its_first_epoch_nothing_counts(void **state)
{
	struct scene scene = { .peer = { .hook = answer_and_throw_out } };

	start(&scene, PATIENCE_MS);
	assert_int_equal(get_blob(&scene), -ESTALE);
	assert_says("the part of this rank in job \"test\" has ended: " TAKEN);
	end(&scene);
}

/* ---- Another thread reads what tierd sends ---- */

static bool keep_silent_about_ready(struct fake_peer *peer, uint32_t number,
				    const Tierd__Wire__Request *request)
{
	return request->body_case == BODY(JOB_READY);
}

static void *get_ready(void *argument)
{
	const struct scene *scene = argument;

	assert_int_not_equal(tierd_job_ready(scene->job, -1, NULL), 0);
	return NULL;
}

static void what_another_thread_is_about_to_read_is_heard_first(void **state)
{
	struct scene scene = { .peer = { .hook = keep_silent_about_ready } };
	pthread_t other;

	start(&scene, 0);
	assert_int_equal(pthread_create(&other, NULL, get_ready, &scene), 0);
	lock_while_another_thread_reads(scene.node);
	/* The other thread cannot handle it before this one waits. */
	fake_peer_end_epoch(&scene.peer, TAKEN);
	assert_false(scene.job->is_stale);
	connection_hear(scene.node);
	assert_true(scene.job->is_stale);
	connection_exit(scene.node);
	shutdown(scene.peer.fd, SHUT_RDWR);
	pthread_join(other, NULL);
	end(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_one_that_is_rolled_back_nothing_counts),
		cmocka_unit_test(nor_does_it_before_its_first_epoch_whether_it_may_return_or_not),
		cmocka_unit_test(of_one_that_is_thrown_out_before_its_first_epoch_nothing_counts),
		cmocka_unit_test(what_another_thread_is_about_to_read_is_heard_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
