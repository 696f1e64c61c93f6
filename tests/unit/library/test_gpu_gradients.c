/* Gradients in the memory of a GPU: who zeros them, what a push says, and what is refused. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "tests/unit/library/gpu_scene.h"
#include "tests/unit/test.h"

static Tierd__Wire__Push pushed;
static unsigned asked;

/* In memory that nothing else uses in these tests. */
static bool answer(struct gpu_scene *scene, uint32_t number, const Tierd__Wire__Request *request)
{
	Tierd__Wire__GpuGradientsReply reply = TIERD__WIRE__GPU_GRADIENTS_REPLY__INIT;

	if (request->body_case == BODY(PUSH))
		pushed = *request->push;
	if (request->body_case == BODY(PUSH) && scene->peer.stage == 3) {
		fake_peer_fail(&scene->peer, number, -EBUSY, "not now");
		return true;
	}
	if (request->body_case != BODY(GPU_GRADIENTS))
		return false;
	asked++;
	reply.bytes = scene->peer.stage == 1 ? 4096 : FAKE_GPU_BYTES;
	if (scene->peer.stage == 2)
		fake_peer_fail(&scene->peer, number, -ENOMEM, "gpu_budget has no room");
	else
		fake_peer_reply_fds(&scene->peer, number, WIRE_REPLY(GPU_GRADIENTS, gpu_gradients, &reply),
				    &scene->gpu.fds[2], 1);
	return true;
}

static int take(struct gpu_scene *scene, uint32_t unit, uint32_t flags, struct tierd_view *ret_view)
{
	return tierd_gradients_on(scene->job, unit, flags, scene->streams[0], ret_view);
}

static int push(struct gpu_scene *scene, uint32_t unit)
{
	return tierd_push_on(scene->job, unit, NULL, 0, scene->streams[0], NULL);
}

/* What the first stream finds there. */
static int byte_of(struct gpu_scene *scene, const struct tierd_view *view)
{
	gpu_scene_read_from(scene, tierd_at(view, 0), 0);
	return gpu_scene_byte(scene, 0);
}

static void a_stream_zeros_them_in_its_order(void **state)
{
	struct gpu_scene scene = { .hook = answer };
	struct tierd_view view, again;

	gpu_scene_start(&scene);
	asked = 0;
	gpu_scene_hold(&scene, 0);
	assert_int_equal(take(&scene, FIRST, 0, &view), 0);
	gpu_scene_read_from(&scene, tierd_at(&view, 0), 0);
	gpu_scene_go_on(&scene);
	assert_int_equal(gpu_scene_byte(&scene, 0), 0);
	/* A second call gives the same buffer, and another unit another one. */
	assert_int_equal(take(&scene, FIRST, 0, &again), 0);
	assert_ptr_equal(again.base, view.base);
	assert_int_equal(take(&scene, SECOND, TIERD_GRADIENTS_OVERWRITE, &again), 0);
	assert_ptr_not_equal(again.base, view.base);
	assert_int_equal(byte_of(&scene, &again), 0xff);
	assert_int_equal(asked, 1);
	assert_int_equal(tierd_discard(scene.job, FIRST), 0);
	assert_int_equal(tierd_discard(scene.job, SECOND), 0);
	gpu_scene_end(&scene);
}

static void a_push_names_the_event_behind_what_the_stream_has(void **state)
{
	struct gpu_scene scene = { .hook = answer };
	struct tierd_ticket *ticket;
	struct tierd_view view;

	gpu_scene_start(&scene);
	assert_int_equal(take(&scene, FIRST, 0, &view), 0);
	assert_int_equal(tierd_push_on(scene.job, FIRST, NULL, 0, scene.streams[0], &ticket), 0);
	assert_int_equal(tierd_ticket_wait(ticket, TIERD_DONE, -1), 0);
	tierd_ticket_free(ticket);
	assert_int_equal(pushed.unit, FIRST);
	assert_int_equal(pushed.event, 1);
	assert_int_equal(scene.gpu.leases->recorded, 1);
	/* Of one in host memory there is none. */
	assert_int_equal(tierd_gradients(scene.job, SECOND, &view), 0);
	assert_int_equal(tierd_push_begin(scene.job, SECOND, &ticket), 0);
	assert_int_equal(tierd_ticket_wait(ticket, TIERD_DONE, -1), 0);
	tierd_ticket_free(ticket);
	assert_int_equal(pushed.unit, SECOND);
	assert_int_equal(pushed.event, 0);
	gpu_scene_end(&scene);
}

/* What it has queued there, and what it queues, takes its time. */
static void write_slowly(struct gpu_scene *scene, struct tierd_view *ret_view)
{
	assert_int_equal(take(scene, FIRST, 0, ret_view), 0);
	gpu_scene_hold(scene, 0);
	gpu_scene_fill(scene, tierd_at(ret_view, 0), 7, 0);
}

/* The other stream, of what it has zeroed there. */
static void expect_in_order(struct gpu_scene *scene, const struct tierd_view *view)
{
	struct tierd_view again;

	assert_int_equal(tierd_gradients_on(scene->job, FIRST, 0, scene->streams[1], &again), 0);
	assert_ptr_equal(again.base, view->base);
	gpu_scene_read_from(scene, tierd_at(&again, 0), 1);
	gpu_scene_go_on(scene);
	assert_int_equal(gpu_scene_byte(scene, 1), 0);
	assert_int_equal(tierd_discard(scene->job, FIRST), 0);
}

static void another_stream_comes_behind_what_was_discarded(void **state)
{
	struct gpu_scene scene = { .hook = answer };
	struct tierd_view view;

	gpu_scene_start(&scene);
	write_slowly(&scene, &view);
	assert_int_equal(tierd_discard(scene.job, FIRST), 0);
	expect_in_order(&scene, &view);
	gpu_scene_end(&scene);
}

static void another_stream_comes_behind_a_push_that_was_refused(void **state)
{
	struct gpu_scene scene = { .hook = answer, .peer.stage = 3 };
	struct tierd_ticket *ticket;
	struct tierd_view view;

	gpu_scene_start(&scene);
	write_slowly(&scene, &view);
	assert_int_equal(tierd_push_on(scene.job, FIRST, NULL, 0, scene.streams[0], &ticket), 0);
	assert_int_equal(tierd_ticket_wait(ticket, TIERD_DONE, -1), -EBUSY);
	tierd_ticket_free(ticket);
	expect_in_order(&scene, &view);
	gpu_scene_end(&scene);
}

static void begin_another_epoch(struct gpu_scene *scene)
{
	fake_peer_end_epoch(&scene->peer, "rank 1 is lost");
	assert_int_equal(tierd_phase(scene->job, "train"), -ESTALE);
	assert_int_equal(tierd_job_ready(scene->job, -1, NULL), 0);
}

static void another_stream_comes_behind_what_was_held_when_the_epoch_ended(void **state)
{
	struct gpu_scene scene = { .hook = answer };
	struct tierd_view view;

	gpu_scene_start(&scene);
	write_slowly(&scene, &view);
	begin_another_epoch(&scene);
	expect_in_order(&scene, &view);
	gpu_scene_end(&scene);
}

/* tierd frees the buffer without having waited for the stream. */
static void another_stream_comes_behind_a_push_that_was_lost_with_its_epoch(void **state)
{
	struct gpu_scene scene = { .hook = answer };
	struct tierd_view view;

	gpu_scene_start(&scene);
	write_slowly(&scene, &view);
	assert_int_equal(push(&scene, FIRST), 0);
	begin_another_epoch(&scene);
	expect_in_order(&scene, &view);
	gpu_scene_end(&scene);
}

static void absent_gradients_are_zeroed_by_the_stream(void **state)
{
	struct gpu_scene scene = { .hook = answer };
	struct tierd_ticket *ticket;
	struct tierd_view view;

	gpu_scene_start(&scene);
	assert_int_equal(take(&scene, FIRST, TIERD_GRADIENTS_OVERWRITE, &view), 0);
	assert_int_equal(byte_of(&scene, &view), 0xff);
	assert_int_equal(tierd_push_on(scene.job, FIRST, (const bool[]){ true }, 2, scene.streams[0], NULL),
			 -EINVAL);
	assert_int_equal(
		tierd_push_on(scene.job, FIRST, (const bool[]){ true }, 1, scene.streams[0], &ticket), 0);
	assert_int_equal(byte_of(&scene, &view), 0);
	assert_int_equal(tierd_ticket_wait(ticket, TIERD_DONE, -1), 0);
	tierd_ticket_free(ticket);
	gpu_scene_end(&scene);
}

static void a_buffer_is_in_one_of_the_two_memories(void **state)
{
	struct gpu_scene scene = { .hook = answer };
	struct tierd_view view;

	gpu_scene_start(&scene);
	assert_int_equal(push(&scene, FIRST), -EINVAL);
	assert_says("no gradient buffer of unit \"first\" is held; call tierd_gradients_on first");
	assert_int_equal(take(&scene, FIRST, 0, &view), 0);
	assert_int_equal(tierd_gradients(scene.job, FIRST, &view), -EBUSY);
	assert_says("for the gradients of unit \"first\" on its GPU already");
	assert_int_equal(tierd_push(scene.job, FIRST), -EINVAL);
	assert_says("is held on a GPU; call tierd_push_on");
	assert_int_equal(tierd_discard(scene.job, FIRST), 0);
	assert_int_equal(tierd_gradients(scene.job, FIRST, &view), 0);
	assert_int_equal(take(&scene, FIRST, 0, &view), -EBUSY);
	assert_says("for the gradients of unit \"first\" in host memory already");
	assert_int_equal(push(&scene, FIRST), -EINVAL);
	assert_says("is held in host memory; call tierd_push");
	assert_int_equal(tierd_push(scene.job, FIRST), 0);
	gpu_scene_end(&scene);
}

static void what_cannot_be_had_is_refused(void **state)
{
	struct gpu_scene scene = { .hook = answer, .peer.stage = 2 };
	struct tierd_view view;

	gpu_scene_start(&scene);
	asked = 0;
	for (unsigned i = 1; i < 3; i++) {
		assert_int_equal(take(&scene, FIRST, 0, &view), -ENOMEM);
		assert_says("gpu_budget has no room");
		assert_int_equal(asked, i);
	}
	assert_int_equal(take(&scene, FROZEN, 0, &view), -ENOMEM);
	assert_int_equal(take(&scene, UNITS, 0, &view), -EINVAL);
	assert_int_equal(take(&scene, FIRST, 2, &view), -EINVAL);
	assert_says("0x2 has flags that tierd_gradients_on does not know");
	scene.peer.stage = 0;
	assert_int_equal(take(&scene, FROZEN, 0, &view), -EINVAL);
	assert_int_equal(take(&scene, FIRST, 0, &view), 0);
	assert_int_equal(push(&scene, FIRST), 0);
	gpu_scene_end(&scene);
}

static void memory_that_is_too_small_ends_the_connection(void **state)
{
	struct gpu_scene scene = { .hook = answer, .peer.stage = 1 };
	struct tierd_view view;

	gpu_scene_start(&scene);
	assert_int_equal(take(&scene, FIRST, 0, &view), -EPROTO);
	assert_says("memory that is too small");
	gpu_scene_end(&scene);
}

static void what_fails_leaves_the_buffer_as_it_was(void **state)
{
	struct gpu_scene scene = { .hook = answer };
	struct tierd_view view;

	gpu_scene_start(&scene);
	gpu_scene_fail(&scene, "cuMemImportFromShareableHandle=1");
	assert_int_equal(take(&scene, FIRST, 0, &view), -EINVAL);
	gpu_scene_fail(&scene, "cuMemsetD8Async=719");
	assert_int_equal(take(&scene, FIRST, 0, &view), -EIO);
	assert_says("zeroing gradients");
	gpu_scene_fail(&scene, NULL);
	assert_int_equal(push(&scene, FIRST), -EINVAL);
	assert_int_equal(take(&scene, FIRST, 0, &view), 0);
	gpu_scene_fail(&scene, "cuEventRecord=1");
	assert_int_equal(push(&scene, FIRST), -EINVAL);
	assert_says("marking what a stream has queued");
	gpu_scene_fail(&scene, NULL);
	assert_int_equal(push(&scene, FIRST), 0);
	gpu_scene_end(&scene);
}

/* What is leased stays mapped, what is pushed from does not. */
static void their_memory_goes_when_the_job_is_left(void **state)
{
	struct gpu_scene scene = { .hook = answer };
	struct tierd_view parameters, gradients;
	struct tierd_job *job;

	gpu_scene_start(&scene);
	job = TAKE_PTR(scene.job);
	assert_int_equal(tierd_gather_on(job, FIRST, scene.streams[0], &parameters), 0);
	assert_int_equal(
		tierd_gradients_on(job, FIRST, TIERD_GRADIENTS_OVERWRITE, scene.streams[0], &gradients), 0);
	assert_int_equal(gpu_scene_mappings(), 2);
	assert_int_equal(tierd_job_detach(job), 0);
	gpu_scene_await_mappings(&scene, 1);
	assert_int_equal(tierd_release_on(job, FIRST, scene.streams[0]), 0);
	gpu_scene_await_mappings(&scene, 0);
	gpu_scene_end(&scene);
}

/* Whoever has waited finds the connection lost. */
static bool answer_and_die(struct gpu_scene *scene, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(BUFFER_WAIT) || scene->peer.connection > 1)
		return answer(scene, number, request);
	scene->peer.directory->epoch++;
	fake_peer_answer(&scene->peer, number, request);
	shutdown(scene->peer.fd, SHUT_RDWR);
	return true;
}

static void after_a_lost_connection_their_memory_is_asked_for_anew(void **state)
{
	struct gpu_scene scene = { .hook = answer_and_die, .reconnect_ms = 20000, .peer.connections = 2 };
	struct tierd_view view;

	gpu_scene_start(&scene);
	asked = 0;
	for (uint32_t unit = FIRST; unit <= SECOND; unit++) {
		assert_int_equal(take(&scene, unit, 0, &view), 0);
		assert_int_equal(push(&scene, unit), 0);
	}
	assert_int_equal(gpu_scene_step(&scene), 0);
	assert_int_equal(take(&scene, FIRST, 0, &view), 0);
	assert_int_equal(asked, 2);
	assert_int_equal(byte_of(&scene, &view), 0);
	assert_int_equal(push(&scene, FIRST), 0);
	gpu_scene_end(&scene);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stream_zeros_them_in_its_order),
		cmocka_unit_test(a_push_names_the_event_behind_what_the_stream_has),
		cmocka_unit_test(another_stream_comes_behind_what_was_discarded),
		cmocka_unit_test(another_stream_comes_behind_a_push_that_was_refused),
		cmocka_unit_test(another_stream_comes_behind_what_was_held_when_the_epoch_ended),
		cmocka_unit_test(another_stream_comes_behind_a_push_that_was_lost_with_its_epoch),
		cmocka_unit_test(absent_gradients_are_zeroed_by_the_stream),
		cmocka_unit_test(a_buffer_is_in_one_of_the_two_memories),
		cmocka_unit_test(what_cannot_be_had_is_refused),
		cmocka_unit_test(memory_that_is_too_small_ends_the_connection),
		cmocka_unit_test(after_a_lost_connection_their_memory_is_asked_for_anew),
		cmocka_unit_test(their_memory_goes_when_the_job_is_left),
		cmocka_unit_test(what_fails_leaves_the_buffer_as_it_was),
	};

	if (argc > 1)
		return fake_gpu_main(argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
