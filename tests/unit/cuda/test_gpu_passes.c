/* Updates on a GPU whose driver fails, that are cancelled, or wait. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/gpu/script.h"
#include "tests/unit/cuda/update_desk.h"

/* In chunks of so many, in the least memory. */
#define COUNT 4000
#define CHUNK 256

struct play {
	struct desk desk;
	struct sample sample;
	struct test_update test;
};

static void begin(struct play *play)
{
	standin_tell("STANDIN_GPUS", "1");
	standin_tell("STANDIN_FAILURES", NULL);
	desk_open(&play->desk, GPU_UPDATES_LEAST_BYTES);
	play->sample = sample_new("adamw", MASTER_SPLIT, MOMENTS_FP32, COUNT, 1);
	test_update_init(&play->desk, &play->test, &play->sample, IN_HOST, 0);
}

/* All can go at once, which the stand-in makes sure of. */
static void end(struct play *play)
{
	standin_tell("STANDIN_FAILURES", NULL);
	sample_free(&play->sample);
	desk_close(&play->desk);
}

static int update(struct play *play)
{
	gpu_updater_update(play->desk.updater, &play->test.update);
	return test_update_wait(&play->desk, &play->test);
}

static void update_anew(struct play *play)
{
	test_update_init(&play->desk, &play->test, &play->sample, IN_HOST, 0);
	assert_int_equal(update(play), 0);
	test_update_check(&play->desk, &play->test);
}

/* Its first calls, or its last ones, fail: as many as there are. */
static unsigned fail_each(const char *call, const char *said, int error, int status)
{
	struct play play;
	char script[64];
	unsigned number = 1;

	begin(&play);
	for (;; number++) {
		snprintf(script, sizeof(script), "%s#%u=%d", call, number, error);
		standin_tell("STANDIN_FAILURES", script);
		test_update_init(&play.desk, &play.test, &play.sample, IN_HOST, 0);
		if (update(&play) == 0)
			break;
		assert_int_equal(play.test.ending.status, status);
		assert_non_null(strstr(play.test.update.pass.problem.text, said));
	}
	standin_tell("STANDIN_FAILURES", NULL);
	test_update_check(&play.desk, &play.test);
	update_anew(&play);
	end(&play);
	return number - 1;
}

static void each_call_fails_and_all_goes_on(void **state)
{
	unsigned chunks = fail_each("cuLaunchKernel", "GPU 0 (stand-in): cuLaunchKernel: ", 701, -EIO);

	assert_int_equal(chunks, (COUNT + CHUNK - 1) / CHUNK);
	assert_int_equal(fail_each("cuMemcpyAsync", "GPU 0 (stand-in): cuMemcpyAsync: ", 1, -EINVAL),
			 chunks * 9);
	assert_int_equal(fail_each("cuEventRecord", "GPU 0 (stand-in): cuEventRecord: ", 999, -EIO), chunks);
}

/* A stream that cannot be asked is waited for. */
static void an_end_cannot_be_asked_for(void **state)
{
	struct play play;

	begin(&play);
	standin_tell("STANDIN_FAILURES", "cuEventQuery=999");
	assert_int_equal(update(&play), 0);
	standin_tell("STANDIN_FAILURES", NULL);
	test_update_check(&play.desk, &play.test);
	end(&play);
}

/* In a kernel, in a copy, in a call. All is let go nevertheless. Of the memory nobody knows who still uses
 * it, so the second update has other. */
static void a_gpu_is_lost(void **state)
{
	static const char *const scripts[] = { "kernel#3=700", "copy#20=719", "cuLaunchKernel#2=719!",
					       "cuEventQuery#4=719!" };

	for (size_t i = 0; i < ARRAY_LENGTH(scripts); i++) {
		struct test_update second;
		struct play play;

		begin(&play);
		test_update_init(&play.desk, &second, &play.sample, IN_HOST, DESK_BYTES / 2);
		standin_tell("STANDIN_FAILURES", scripts[i]);
		assert_int_equal(update(&play), -ENODEV);
		assert_non_null(strstr(play.test.update.pass.problem.text, "GPU 0 (stand-in) is lost: cu"));
		gpu_updater_update(play.desk.updater, &second.update);
		assert_int_equal(test_update_wait(&play.desk, &second), -ENODEV);
		end(&play);
	}
}

/* The engine knows of all that was submitted. */
static void know(struct play *play)
{
	struct gpu_event other;

	assert_int_equal(gpu_event_create_now(play->desk.engine, &other), 0);
	assert_int_equal(gpu_event_close_now(play->desk.engine, &other), 0);
}

/* Of the first moments of a chunk. */
static bool is_new(const struct play *play, unsigned chunk)
{
	size_t bytes = CHUNK * sizeof(float);

	return memcmp(play->test.host[SLOTS] + chunk * bytes,
		      (const char *)play->sample.before.arrays[SLOTS] + chunk * bytes, bytes) != 0;
}

/* The chunks that have begun, two of each stream, are new, and no others. */
static void an_update_is_cancelled_in_the_middle(void **state)
{
	struct play play;

	begin(&play);
	standin_hold(true);
	gpu_updater_update(play.desk.updater, &play.test.update);
	know(&play);
	gpu_updater_cancel(play.desk.updater, &play.test.update.pass);
	know(&play);
	assert_int_equal(play.test.ending.count, 0);
	standin_hold(false);
	assert_int_equal(test_update_wait(&play.desk, &play.test), -ECANCELED);
	for (unsigned chunk = 0; chunk < COUNT / CHUNK; chunk++)
		assert_int_equal(is_new(&play, chunk), chunk < 2 * GPU_STREAMS);
	update_anew(&play);
	end(&play);
}

/* It stands in line behind another. */
static void an_update_is_cancelled_before_it_begins(void **state)
{
	struct test_update second;
	struct play play;

	begin(&play);
	test_update_init(&play.desk, &second, &play.sample, IN_HOST, DESK_BYTES / 2);
	standin_hold(true);
	gpu_updater_update(play.desk.updater, &play.test.update);
	gpu_updater_update(play.desk.updater, &second.update);
	gpu_updater_cancel(play.desk.updater, &second.update.pass);
	assert_int_equal(second.ending.count, 0);
	standin_hold(false);
	assert_int_equal(test_update_wait(&play.desk, &second), -ECANCELED);
	assert_memory_equal(second.host[MASTER], play.sample.before.arrays[MASTER],
			    play.sample.bytes[MASTER]);
	assert_int_equal(test_update_wait(&play.desk, &play.test), 0);
	test_update_check(&play.desk, &play.test);
	/* It is too late for this one. */
	gpu_updater_cancel(play.desk.updater, &play.test.update.pass);
	update_anew(&play);
	end(&play);
}

/* Its gradients come from a copy that it is after; another update does not wait with it. */
static void an_update_waits_for_an_event(void **state)
{
	struct test_update second;
	struct gpu_event event;
	struct test_copy copy;
	struct play play;

	begin(&play);
	test_update_init(&play.desk, &second, &play.sample, IN_HOST, DESK_BYTES / 2);
	assert_int_equal(gpu_event_create_now(play.desk.engine, &event), 0);
	test_copy_init(&copy, GPU_FROM_HOST, play.desk.state.address, host_address(play.test.host[GRADIENT]),
		       play.sample.bytes[GRADIENT]);
	copy.copy.behind = &event;
	play.test.update.gradient = (struct gpu_array){ play.desk.state.address, true };
	play.test.update.pass.after = &event;
	standin_hold(true);
	gpu_copy_submit(play.desk.engine, &copy.copy);
	while (copy.recorded == 0)
		gpu_reap_once(play.desk.engine);
	gpu_updater_update(play.desk.updater, &play.test.update);
	gpu_updater_update(play.desk.updater, &second.update);
	know(&play);
	assert_int_equal(play.test.update.pass.running, 0);
	assert_int_equal(second.update.pass.running, 2 * GPU_STREAMS);
	standin_hold(false);
	assert_int_equal(test_update_wait(&play.desk, &play.test), 0);
	assert_int_equal(test_update_wait(&play.desk, &second), 0);
	assert_int_equal(test_copy_wait(play.desk.engine, &copy), 0);
	test_update_check(&play.desk, &play.test);
	test_update_check(&play.desk, &second);
	assert_int_equal(gpu_event_close_now(play.desk.engine, &event), 0);
	end(&play);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_call_fails_and_all_goes_on),
		cmocka_unit_test(an_end_cannot_be_asked_for),
		cmocka_unit_test(a_gpu_is_lost),
		cmocka_unit_test(an_update_is_cancelled_in_the_middle),
		cmocka_unit_test(an_update_is_cancelled_before_it_begins),
		cmocka_unit_test(an_update_waits_for_an_event),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
