/* Units in the memory of a GPU: who waits for whom, without a GPU. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "tests/lib/gpu/script.h"
#include "tests/unit/library/gpu_scene.h"
#include "tests/unit/test.h"

/* ---- Gathers ---- */

static void a_miss_has_the_stream_wait_and_nobody_else(void **state)
{
	struct gpu_scene scene = { 0 };

	gpu_scene_start(&scene);
	fake_gpu_hold(&scene.gpu, true);
	/* The copy has not begun. */
	gpu_scene_read(&scene, FIRST, 0);
	assert_int_equal(fake_gpu_leases(&scene.gpu, FIRST), 1);
	fake_gpu_hold(&scene.gpu, false);
	assert_int_equal(gpu_scene_byte(&scene, 0), fake_gpu_value(FIRST, 0));
	assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[0]), 0);
	assert_int_equal(fake_gpu_leases(&scene.gpu, FIRST), 0);
	gpu_scene_end(&scene);
}

static void a_hit_makes_no_call_of_the_driver(void **state)
{
	struct gpu_scene scene = { .gpu.is_whole = true };
	struct tierd_view view;

	gpu_scene_start(&scene);
	gpu_scene_read(&scene, SECOND, 0);
	assert_int_equal(tierd_release_on(scene.job, SECOND, scene.streams[0]), 0);
	fake_gpu_publish(&scene.gpu, SECOND, 0);
	gpu_scene_fail(&scene,
		       "cuCtxGetCurrent=999,cuCtxSetCurrent=999,cuStreamWaitEvent=999,cuEventRecord=999");
	assert_int_equal(tierd_gather_on(scene.job, SECOND, scene.streams[0], &view), 0);
	assert_int_equal(tierd_release_on(scene.job, SECOND, scene.streams[0]), 0);
	gpu_scene_fail(&scene, NULL);
	assert_int_equal(scene.gpu.gathers, 1);
	gpu_scene_read_from(&scene, tierd_at(&view, 0), 0);
	assert_int_equal(gpu_scene_byte(&scene, 0), fake_gpu_value(SECOND, 0));
	gpu_scene_end(&scene);
}

static void gathers_are_counted_and_traced_as_others_are(void **state)
{
	struct gpu_scene scene = { .gpu.is_whole = true };
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;

	gpu_scene_start(&scene);
	gpu_scene_read(&scene, SECOND, 0);
	fake_gpu_publish(&scene.gpu, SECOND, 0);
	gpu_scene_read(&scene, SECOND, 0);
	assert_int_equal(tierd_statistics(scene.job, &statistics), 0);
	assert_int_equal(statistics.gathers, 2);
	assert_int_equal(statistics.gather_misses, 1);
	assert_int_equal(scene.peer.leases->trace_head, 2);
	assert_int_equal((uint32_t)lease_trace(scene.peer.leases)[1], SECOND);
	gpu_scene_end(&scene);
}

/* The peer says that the copy has arrived, so nothing waits for it: in a process of its own, which that ends.
 */
static void read_what_has_not_arrived(void)
{
	struct gpu_scene scene = { .gpu.is_lying = true };

	gpu_scene_start(&scene);
	fake_gpu_hold(&scene.gpu, true);
	gpu_scene_read(&scene, FIRST, 0);
}

static void a_wait_that_is_missing_is_found(void **state)
{
	char said[1024] = "", *const arguments[] = { (char *)"test_gpu", (char *)"race", (char *)"", NULL };
	posix_spawn_file_actions_t actions;
	int ends[2], status;
	pid_t process;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
	assert_int_equal(
		posix_spawn(&process, "/proc/self/exe", &actions, NULL, arguments, standin_environment()), 0);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	assert_int_equal(waitpid(process, &status, 0), process);
	assert_true(read(ends[0], said, sizeof(said) - 1) > 0);
	close(ends[0]);
	assert_int_not_equal(status, 0);
	assert_non_null(strstr(said, "race: "));
}

/* ---- Releases ---- */

static void what_is_released_is_overwritten_behind_its_event(void **state)
{
	struct gpu_scene scene = { 0 };

	gpu_scene_start(&scene);
	gpu_scene_hold(&scene, 0);
	gpu_scene_read(&scene, FIRST, 0);
	assert_int_equal(fake_gpu_released(&scene.gpu, FIRST), 0);
	assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[0]), 0);
	/* Although the stream has not read it yet. */
	assert_int_equal(fake_gpu_leases(&scene.gpu, FIRST), 0);
	assert_int_equal(fake_gpu_released(&scene.gpu, FIRST), 1);
	assert_int_equal(scene.gpu.leases->recorded, 1);
	gpu_scene_go_on(&scene);
	assert_true(fake_gpu_overwrite(&scene.gpu, FIRST, 1));
	assert_int_equal(gpu_scene_byte(&scene, 0), fake_gpu_value(FIRST, 0));
	gpu_scene_end(&scene);
}

/* As the test before, but that nobody waits. */
static void what_is_overwritten_at_once_races(void **state)
{
	struct gpu_scene scene = { 0 };

	gpu_scene_start(&scene);
	gpu_scene_read(&scene, FIRST, 0);
	assert_int_equal(gpu_scene_byte(&scene, 0), fake_gpu_value(FIRST, 0));
	fake_gpu_publish(&scene.gpu, FIRST, 0);
	gpu_scene_hold(&scene, 0);
	gpu_scene_read(&scene, FIRST, 0);
	assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[0]), 0);
	assert_false(fake_gpu_overwrite(&scene.gpu, FIRST, 0));
	gpu_scene_go_on(&scene);
	gpu_scene_end(&scene);
}

static void the_last_event_is_behind_all_streams(void **state)
{
	for (unsigned last = 0; last < STREAMS; last++) {
		struct gpu_scene scene = { 0 };

		gpu_scene_start(&scene);
		gpu_scene_read(&scene, FIRST, 0);
		gpu_scene_read(&scene, FIRST, 1);
		assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[!last]), 0);
		assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[last]), 0);
		assert_int_equal(fake_gpu_released(&scene.gpu, FIRST), 2);
		assert_true(fake_gpu_overwrite(&scene.gpu, FIRST, 2));
		gpu_scene_end(&scene);
	}
}

/* What was recorded in the place of an event is behind what that was behind, whatever stream it is for, and
 * also where the first one is gone. */
static void an_event_that_is_recorded_again_is_behind_what_it_was_behind(void **state)
{
	struct gpu_scene scene = { 0 };
	struct driver_stream *gone;

	gpu_scene_start(&scene);
	assert_int_equal(scene.driver.stream_create(&gone, DRIVER_NO_STREAM_0), 0);
	gpu_scene_hold(&scene, 1);
	gpu_scene_read(&scene, FIRST, 0);
	gpu_scene_read(&scene, SECOND, 1);
	assert_int_equal(tierd_release_on(scene.job, SECOND, scene.streams[1]), 0);
	assert_int_equal(tierd_release_on(scene.job, FIRST, gone), 0);
	assert_int_equal(scene.driver.stream_destroy(gone), 0);
	for (unsigned i = 0; i < GPU_EVENTS; i++) {
		gpu_scene_read(&scene, FROZEN, 0);
		assert_int_equal(tierd_release_on(scene.job, FROZEN, scene.streams[0]), 0);
	}
	assert_int_equal(scene.gpu.leases->recorded, GPU_EVENTS + 2);
	assert_int_equal(fake_gpu_released(&scene.gpu, SECOND), 1);
	assert_int_equal(fake_gpu_released(&scene.gpu, FROZEN), GPU_EVENTS + 2);
	gpu_scene_go_on(&scene);
	assert_true(fake_gpu_overwrite(&scene.gpu, SECOND, 1));
	assert_int_equal(gpu_scene_byte(&scene, 1), fake_gpu_value(SECOND, 0));
	gpu_scene_end(&scene);
}

static void who_waits_for_a_slot_is_told_of_a_release(void **state)
{
	struct gpu_scene scene = { 0 };
	uint64_t rings = 0;

	gpu_scene_start(&scene);
	gpu_scene_read(&scene, FIRST, 0);
	gpu_scene_read(&scene, FIRST, 0);
	assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[0]), 0);
	assert_int_equal(read(scene.peer.fds[4], &rings, sizeof(rings)), -1);
	scene.gpu.leases->is_release_wanted = 1;
	assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[0]), 0);
	assert_int_equal(read(scene.peer.fds[4], &rings, sizeof(rings)), sizeof(rings));
	assert_int_equal(scene.gpu.leases->is_release_wanted, 0);
	gpu_scene_end(&scene);
}

static void a_release_needs_a_gather_there(void **state)
{
	struct gpu_scene scene = { 0 };
	struct tierd_view view;
	uint64_t leases;

	gpu_scene_start(&scene);
	assert_int_equal(tierd_gather(scene.job, FIRST, &view), 0);
	assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[0]), -EINVAL);
	assert_says("unit \"first\" is released without having been gathered on the GPU");
	gpu_scene_read(&scene, FIRST, 0);
	assert_int_equal(tierd_leases(scene.job, FIRST, &leases), 0);
	assert_int_equal(leases, 2);
	assert_int_equal(tierd_release_all(scene.job), 0);
	assert_int_equal(tierd_release(scene.job, FIRST), -EINVAL);
	assert_int_equal(fake_gpu_leases(&scene.gpu, FIRST), 1);
	assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[0]), 0);
	assert_int_equal(tierd_release_on(scene.job, UNITS, scene.streams[0]), -EINVAL);
	assert_says("has no unit 3");
	assert_int_equal(tierd_gather_on(scene.job, UNITS, scene.streams[0], &view), -EINVAL);
	assert_says("has no unit 3");
	gpu_scene_end(&scene);
}

/* ---- Steps ---- */

static void a_step_comes_after_what_all_streams_have_queued(void **state)
{
	struct gpu_scene scene = { .gpu.is_whole = true };

	gpu_scene_start(&scene);
	gpu_scene_hold(&scene, 1);
	for (unsigned stream = 0; stream < STREAMS; stream++) {
		gpu_scene_read(&scene, FIRST, stream);
		assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[stream]), 0);
	}
	assert_int_equal(scene.gpu.leases->fence, 0);
	assert_int_equal(gpu_scene_step(&scene), 0);
	assert_int_equal(scene.gpu.leases->fence, 1);
	assert_int_equal(scene.gpu.leases->recorded, 1);
	assert_int_equal(fake_gpu_released(&scene.gpu, FIRST), 0);
	gpu_scene_go_on(&scene);
	assert_true(fake_gpu_overwrite(&scene.gpu, FIRST, 1));
	assert_int_equal(gpu_scene_byte(&scene, 1), fake_gpu_value(FIRST, 0));
	/* Nothing was queued since. */
	assert_int_equal(gpu_scene_step(&scene), 0);
	assert_int_equal(scene.gpu.leases->fence, 1);
	gpu_scene_read(&scene, FIRST, 0);
	assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[0]), 0);
	assert_int_equal(gpu_scene_step(&scene), 0);
	assert_int_equal(scene.gpu.leases->fence, 2);
	assert_true(fake_gpu_overwrite(&scene.gpu, FIRST, 2));
	gpu_scene_end(&scene);
}

/* Marking the first stream, the second one, or both together. */
static void a_step_that_cannot_be_ordered_fails_and_may_be_tried_again(void **state)
{
	for (unsigned failing = 1; failing <= 3; failing++) {
		struct gpu_scene scene = { .gpu.is_whole = true };
		char failures[32];

		gpu_scene_start(&scene);
		for (unsigned stream = 0; stream < STREAMS; stream++) {
			gpu_scene_read(&scene, FIRST, stream);
			assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[stream]), 0);
		}
		snprintf(failures, sizeof(failures), "cuEventRecord#%u=719", failing);
		gpu_scene_fail(&scene, failures);
		assert_int_equal(gpu_scene_step(&scene), -EIO);
		assert_says("GPU 0: marking what a stream has queued");
		assert_int_equal(scene.peer.step, 0);
		assert_int_equal(gpu_scene_step(&scene), 0);
		gpu_scene_fail(&scene, NULL);
		assert_int_equal(scene.gpu.leases->fence, 1);
		assert_true(fake_gpu_overwrite(&scene.gpu, FIRST, 1));
		gpu_scene_end(&scene);
	}
}

static void a_stream_that_no_step_needs_may_go(void **state)
{
	struct gpu_scene scene = { .gpu.is_whole = true };

	gpu_scene_start(&scene);
	gpu_scene_read(&scene, FIRST, 1);
	assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[1]), 0);
	assert_int_equal(gpu_scene_step(&scene), 0);
	assert_int_equal(scene.driver.stream_destroy(scene.streams[1]), 0);
	assert_int_equal(scene.driver.stream_create(&scene.streams[1], DRIVER_NO_STREAM_0), 0);
	gpu_scene_read(&scene, FIRST, 0);
	assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[0]), 0);
	assert_int_equal(gpu_scene_step(&scene), 0);
	assert_int_equal(scene.gpu.leases->fence, 2);
	gpu_scene_end(&scene);
}

static void a_step_is_refused_while_a_trained_unit_is_held_there(void **state)
{
	struct gpu_scene scene = { .gpu.is_whole = true };

	gpu_scene_start(&scene);
	gpu_scene_read(&scene, SECOND, 0);
	gpu_scene_read(&scene, FROZEN, 0);
	assert_int_equal(gpu_scene_step(&scene), -EBUSY);
	assert_says("leases on a GPU of 1 unit are held: \"second\"; release them before the step");
	assert_int_equal(tierd_write_begin(scene.job), -EBUSY);
	assert_says("\"second\"; release them before values are written");
	assert_int_equal(tierd_release_on(scene.job, SECOND, scene.streams[0]), 0);
	assert_int_equal(gpu_scene_step(&scene), 0);
	gpu_scene_end(&scene);
}

static void after_a_step_the_next_values_are_gathered(void **state)
{
	struct gpu_scene scene = { .gpu.is_whole = true };

	gpu_scene_start(&scene);
	gpu_scene_read(&scene, FIRST, 0);
	gpu_scene_read(&scene, FROZEN, 0);
	assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[0]), 0);
	fake_gpu_publish(&scene.gpu, FIRST, 0);
	fake_gpu_publish(&scene.gpu, FROZEN, 0);
	assert_int_equal(gpu_scene_step(&scene), 0);
	assert_true(fake_gpu_overwrite(&scene.gpu, FIRST, scene.gpu.leases->fence));
	gpu_scene_read(&scene, FIRST, 0);
	assert_int_equal(gpu_scene_byte(&scene, 0), fake_gpu_value(FIRST, 1));
	gpu_scene_read(&scene, FROZEN, 0);
	assert_int_equal(gpu_scene_byte(&scene, 0), fake_gpu_value(FROZEN, 0));
	assert_int_equal(scene.gpu.gathers, 3);
	gpu_scene_end(&scene);
}

/* ---- Streams that are destroyed ---- */

static struct driver_stream *destroy_stream(struct gpu_scene *scene, unsigned stream)
{
	struct driver_stream *gone = scene->streams[stream];

	assert_int_equal(scene->driver.stream_destroy(gone), 0);
	assert_int_equal(scene->driver.stream_create(&scene->streams[stream], DRIVER_NO_STREAM_0), 0);
	return gone;
}

/* Else what it has read is overwritten at once, which is a race. */
static void a_release_for_a_stream_that_has_gone_waits_for_what_it_was_told(void **state)
{
	for (int is_whole = 0; is_whole < 2; is_whole++) {
		struct gpu_scene scene = { .gpu.is_whole = is_whole };
		struct driver_stream *gone;

		gpu_scene_start(&scene);
		gpu_scene_read(&scene, FIRST, 1);
		gone = destroy_stream(&scene, 1);
		gpu_scene_fail(&scene, "cuCtxSynchronize=999");
		assert_int_equal(tierd_release_on(scene.job, FIRST, gone), -EIO);
		assert_int_equal(fake_gpu_leases(&scene.gpu, FIRST), 1);
		gpu_scene_fail(&scene, NULL);
		assert_int_equal(tierd_release_on(scene.job, FIRST, gone), 0);
		assert_int_equal(fake_gpu_leases(&scene.gpu, FIRST), 0);
		assert_true(fake_gpu_overwrite(&scene.gpu, FIRST, 0));
		gpu_scene_end(&scene);
	}
}

static void a_step_waits_for_a_stream_that_has_gone_since_it_released(void **state)
{
	struct gpu_scene scene = { .gpu.is_whole = true };

	gpu_scene_start(&scene);
	gpu_scene_hold(&scene, 0);
	for (unsigned stream = 0; stream < STREAMS; stream++) {
		gpu_scene_read(&scene, FIRST, stream);
		assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[stream]), 0);
	}
	destroy_stream(&scene, 1);
	gpu_scene_go_on(&scene);
	assert_int_equal(gpu_scene_step(&scene), 0);
	assert_true(fake_gpu_overwrite(&scene.gpu, FIRST, scene.gpu.leases->fence));
	/* It is asked for no more. */
	gpu_scene_fail(&scene, "cuCtxSynchronize=999");
	assert_int_equal(gpu_scene_step(&scene), 0);
	gpu_scene_fail(&scene, NULL);
	gpu_scene_end(&scene);
}

/* It is there, and what it does with the unit is in nobody's order. */
static void a_stream_of_another_context_is_refused(void **state)
{
	for (int is_whole = 0; is_whole < 2; is_whole++) {
		struct gpu_scene scene = { .gpu.is_whole = is_whole };
		struct driver_context *context;
		struct driver_stream *stream;

		gpu_scene_start(&scene);
		gpu_scene_read(&scene, FIRST, 0);
		assert_int_equal(scene.driver.context_retain(&context, 1), 0);
		assert_int_equal(scene.driver.context_enter(context), 0);
		assert_int_equal(scene.driver.stream_create(&stream, DRIVER_NO_STREAM_0), 0);
		assert_int_equal(tierd_release_on(scene.job, FIRST, stream), -EINVAL);
		assert_says("which must be one of this GPU's own context");
		assert_int_equal(fake_gpu_leases(&scene.gpu, FIRST), 1);
		assert_int_equal(scene.driver.context_release(1), 0);
		gpu_scene_end(&scene);
	}
}

/* ---- Threads ---- */

#define ROUNDS 50

struct trainer {
	pthread_t thread;
	struct gpu_scene *scene;
	unsigned stream;
};

static void *gather_and_release(void *argument)
{
	const struct trainer *trainer = argument;
	struct gpu_scene *scene = trainer->scene;

	for (unsigned i = 0; i < ROUNDS; i++) {
		gpu_scene_read(scene, i % UNITS, trainer->stream);
		if (tierd_release_on(scene->job, i % UNITS, scene->streams[trainer->stream]) < 0)
			return (void *)tierd_message();
	}
	return NULL;
}

static void threads_gather_and_release_side_by_side(void **state)
{
	for (int is_whole = 0; is_whole < 2; is_whole++) {
		struct gpu_scene scene = { .gpu.is_whole = is_whole };
		struct trainer trainers[STREAMS];
		void *failure;

		gpu_scene_start(&scene);
		for (unsigned i = 0; i < STREAMS; i++) {
			trainers[i] = (struct trainer){ .scene = &scene, .stream = i };
			assert_int_equal(
				pthread_create(&trainers[i].thread, NULL, gather_and_release, &trainers[i]),
				0);
		}
		for (unsigned i = 0; i < STREAMS; i++) {
			assert_int_equal(pthread_join(trainers[i].thread, &failure), 0);
			assert_null(failure);
		}
		assert_int_equal(gpu_scene_step(&scene), 0);
		for (uint32_t unit = 0; unit < UNITS; unit++) {
			assert_int_equal(fake_gpu_leases(&scene.gpu, unit), 0);
			assert_true(fake_gpu_overwrite(&scene.gpu, unit,
						       is_whole ? scene.gpu.leases->fence
								: fake_gpu_released(&scene.gpu, unit)));
		}
		gpu_scene_end(&scene);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_miss_has_the_stream_wait_and_nobody_else),
		cmocka_unit_test(a_hit_makes_no_call_of_the_driver),
		cmocka_unit_test(gathers_are_counted_and_traced_as_others_are),
		cmocka_unit_test(a_wait_that_is_missing_is_found),
		cmocka_unit_test(what_is_released_is_overwritten_behind_its_event),
		cmocka_unit_test(what_is_overwritten_at_once_races),
		cmocka_unit_test(the_last_event_is_behind_all_streams),
		cmocka_unit_test(an_event_that_is_recorded_again_is_behind_what_it_was_behind),
		cmocka_unit_test(who_waits_for_a_slot_is_told_of_a_release),
		cmocka_unit_test(a_release_needs_a_gather_there),
		cmocka_unit_test(a_step_comes_after_what_all_streams_have_queued),
		cmocka_unit_test(a_step_that_cannot_be_ordered_fails_and_may_be_tried_again),
		cmocka_unit_test(a_stream_that_no_step_needs_may_go),
		cmocka_unit_test(a_step_is_refused_while_a_trained_unit_is_held_there),
		cmocka_unit_test(after_a_step_the_next_values_are_gathered),
		cmocka_unit_test(a_release_for_a_stream_that_has_gone_waits_for_what_it_was_told),
		cmocka_unit_test(a_step_waits_for_a_stream_that_has_gone_since_it_released),
		cmocka_unit_test(a_stream_of_another_context_is_refused),
		cmocka_unit_test(threads_gather_and_release_side_by_side),
	};

	standin_tell("STANDIN_GPUS", "2");
	standin_tell("STANDIN_BYTES", "67108864");
	if (argc == 2)
		return fake_gpu_main(argv);
	if (argc == 3)
		read_what_has_not_arrived();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
