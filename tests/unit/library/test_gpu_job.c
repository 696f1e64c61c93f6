/* How a rank gets memory of a GPU, does without, and gives it back. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "tests/lib/gpu/cuda_calls.h"
#include "tests/lib/gpu/script.h"
#include "tests/unit/library/gpu_scene.h"
#include "tests/unit/test.h"

/* ---- Attaching ---- */

static bool end_epoch_at_phase(struct gpu_scene *scene, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case == BODY(PHASE))
		fake_peer_end_epoch(&scene->peer, "the rank 1 has left");
	return false;
}

static void a_rank_that_is_ready_has_memory_of_its_gpu(void **state)
{
	struct gpu_scene scene = { .hook = end_epoch_at_phase };
	struct driver_uuid uuid;
	struct tierd_job_state now;

	gpu_scene_start(&scene);
	assert_int_equal(scene.driver.device_uuid(&uuid, 0), 0);
	assert_memory_equal(scene.gpu.uuid, &uuid, sizeof(uuid));
	assert_int_equal(scene.gpu.budget, 12345);
	assert_true(scene.gpu.update_fraction == 0.25f);
	assert_int_equal(scene.state.gpu_bytes, FAKE_GPU_BYTES);
	assert_int_equal(tierd_job_state(scene.job, &now), 0);
	assert_int_equal(now.gpu_bytes, FAKE_GPU_BYTES);
	/* In the next epoch it is still there. */
	assert_int_equal(tierd_phase(scene.job, "evaluation"), 0);
	assert_int_equal(tierd_job_ready(scene.job, -1, &now), 0);
	assert_int_equal(now.gpu_bytes, FAKE_GPU_BYTES);
	assert_int_equal(scene.gpu.attached, 1);
	gpu_scene_read(&scene, FIRST, 0);
	assert_int_equal(gpu_scene_byte(&scene, 0), fake_gpu_value(FIRST, 0));
	gpu_scene_end(&scene);
}

static void the_ticket_of_a_ready_waits_for_the_memory(void **state)
{
	struct gpu_scene scene = { 0 };
	struct tierd_ticket *ticket;

	gpu_scene_open(&scene);
	assert_int_equal(tierd_job_ready_begin(scene.job, -1, &ticket), 0);
	assert_int_equal(tierd_ticket_wait(ticket, TIERD_DONE, -1), 0);
	assert_int_equal(tierd_ticket_job_state(ticket, &scene.state), 0);
	assert_int_equal(scene.state.gpu_bytes, FAKE_GPU_BYTES);
	tierd_ticket_free(ticket);
	gpu_scene_end(&scene);
}

static bool refuse_at_first(struct gpu_scene *scene, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(GPU_ATTACH) || scene->peer.stage++ > 0)
		return end_epoch_at_phase(scene, number, request);
	fake_peer_fail(&scene->peer, number, -ENOMEM, "GPU 0 has 1.0 GiB free, and the job needs 2.0 GiB");
	return true;
}

static void a_rank_that_gets_none_goes_on_without_and_asks_again(void **state)
{
	struct gpu_scene scene = { .hook = refuse_at_first };
	struct tierd_view view;

	gpu_scene_start(&scene);
	assert_int_equal(scene.state.gpu_bytes, 0);
	assert_int_equal(tierd_gather_on(scene.job, FIRST, scene.streams[0], &view), -EOPNOTSUPP);
	assert_says(
		"no memory on GPU 0: GPU 0 has 1.0 GiB free, and the job needs 2.0 GiB; call tierd_gather");
	assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[0]), -EINVAL);
	assert_int_equal(tierd_gather(scene.job, FIRST, &view), 0);
	assert_int_equal(tierd_release(scene.job, FIRST), 0);
	assert_int_equal(gpu_scene_step(&scene), 0);
	assert_int_equal(tierd_phase(scene.job, "evaluation"), 0);
	assert_int_equal(tierd_job_ready(scene.job, -1, &scene.state), 0);
	assert_int_equal(scene.state.gpu_bytes, FAKE_GPU_BYTES);
	gpu_scene_read(&scene, FIRST, 0);
	assert_int_equal(gpu_scene_byte(&scene, 0), fake_gpu_value(FIRST, 1));
	gpu_scene_end(&scene);
}

static void open_with(struct gpu_scene *scene, int32_t gpu, int expected)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_job *job;

	options.name = "other";
	options.gpu = gpu;
	assert_int_equal(tierd_job_open(scene->node, &options, &job), expected);
	if (expected == 0)
		tierd_job_detach(job);
}

static void a_gpu_that_is_not_there_is_said_at_once(void **state)
{
	struct gpu_scene scene = { 0 };

	gpu_scene_start(&scene);
	open_with(&scene, 2, -ENODEV);
	assert_says(
		"there is no GPU 2: this process has 2, counted from 0; $CUDA_VISIBLE_DEVICES says which");
	open_with(&scene, -2, -EINVAL);
	assert_says("gpu is -2; it is a GPU's number, from 0 on, or -1 for none");
	gpu_scene_fail(&scene, "cuInit=100");
	open_with(&scene, 0, -ENODEV);
	assert_says("there is no GPU 0, for there is no driver that serves one: it does not start");
	open_with(&scene, -1, 0);
	gpu_scene_fail(&scene, NULL);
	gpu_scene_end(&scene);
}

static void a_fraction_of_updates_that_is_none_is_refused(void **state)
{
	static const float fractions[] = { -0.5f, 1.25f, NAN };
	struct gpu_scene scene = { 0 };
	struct tierd_job *job;

	gpu_scene_start(&scene);
	for (unsigned i = 0; i < ARRAY_LENGTH(fractions); i++) {
		struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;

		options.name = "other";
		options.gpu_update = fractions[i];
		assert_int_equal(tierd_job_open(scene.node, &options, &job), -EINVAL);
		assert_non_null(
			strstr(tierd_message(), "it is a fraction, from 0 to 1, or TIERD_AS_MEASURED"));
	}
	gpu_scene_end(&scene);
}

static void a_job_without_a_gpu_says_so(void **state)
{
	struct gpu_scene scene = { 0 };
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	struct tierd_view view;

	gpu_scene_open(&scene);
	assert_int_equal(tierd_job_detach(scene.job), 0);
	options.name = "test";
	/* As of a program that knows no GPUs. */
	options.size = offsetof(struct tierd_job_options, gpu);
	options.gpu = 0;
	scene.peer.unit_count = 0;
	assert_int_equal(tierd_job_open(scene.node, &options, &scene.job), -EINVAL);
	options.size = sizeof(options);
	options.gpu = -1;
	assert_int_equal(tierd_job_open(scene.node, &options, &scene.job), 0);
	tensor.name = "w";
	tensor.dimensions = 1;
	tensor.shape[0] = 100;
	assert_int_equal(tierd_unit_define(scene.job, "only", &tensor, 1, NULL), 0);
	assert_int_equal(tierd_gather_on(scene.job, 0, NULL, &view), -EINVAL);
	assert_says("is not ready");
	assert_int_equal(tierd_job_ready(scene.job, -1, NULL), 0);
	assert_int_equal(tierd_gather_on(scene.job, 0, NULL, &view), -EOPNOTSUPP);
	assert_says("job \"test\" was opened without a GPU: set gpu in its options, or call tierd_gather");
	assert_int_equal(tierd_release_on(scene.job, 0, NULL), -EINVAL);
	assert_int_equal(scene.gpu.attached, 0);
	gpu_scene_end(&scene);
}

/* ---- A daemon that answers what it must not ---- */

static void spoil_directory_bytes(struct fake_gpu *gpu, Tierd__Wire__GpuAttachReply *reply)
{
	reply->directory_bytes--;
}

static void spoil_lease_bytes(struct fake_gpu *gpu, Tierd__Wire__GpuAttachReply *reply)
{
	reply->lease_bytes++;
}

static void spoil_few_lease_bytes(struct fake_gpu *gpu, Tierd__Wire__GpuAttachReply *reply)
{
	reply->lease_bytes -= 8;
}

static void spoil_magic(struct fake_gpu *gpu, Tierd__Wire__GpuAttachReply *reply)
{
	gpu->directory->magic++;
}

static void spoil_lease_magic(struct fake_gpu *gpu, Tierd__Wire__GpuAttachReply *reply)
{
	gpu->leases->magic++;
}

static void spoil_units(struct fake_gpu *gpu, Tierd__Wire__GpuAttachReply *reply)
{
	gpu->directory->unit_count++;
}

static void spoil_lease_units(struct fake_gpu *gpu, Tierd__Wire__GpuAttachReply *reply)
{
	gpu->leases->unit_count++;
}

static void spoil_memory_bytes(struct fake_gpu *gpu, Tierd__Wire__GpuAttachReply *reply)
{
	reply->memory_bytes = 0;
}

static void spoil_handle(struct fake_gpu *gpu, Tierd__Wire__GpuAttachReply *reply)
{
	reply->events[3].len--;
}

static void wrong_pages_end_the_connection(void **state)
{
	static void (*const spoils[])(struct fake_gpu *, Tierd__Wire__GpuAttachReply *) = {
		spoil_directory_bytes, spoil_lease_bytes,  spoil_few_lease_bytes,
		spoil_magic,	       spoil_lease_magic,  spoil_units,
		spoil_lease_units,     spoil_memory_bytes, spoil_handle,
	};

	for (size_t i = 0; i < ARRAY_LENGTH(spoils); i++) {
		struct gpu_scene scene = { .gpu.spoil = spoils[i] };

		gpu_scene_open(&scene);
		assert_int_equal(tierd_job_ready(scene.job, -1, NULL), -EPROTO);
		assert_says("tierd answered tierd_job_ready with pages of a GPU of another layout");
		gpu_scene_end(&scene);
		assert_int_equal(gpu_scene_mappings(), 0);
	}
}

static void spoil_version(struct fake_gpu *gpu, Tierd__Wire__GpuAttachReply *reply)
{
	gpu->directory->version = gpu->leases->version = 7;
}

static void spoil_event(struct fake_gpu *gpu, Tierd__Wire__GpuAttachReply *reply)
{
	static const char nothing[GPU_HANDLE_BYTES];

	reply->events[3].data = (uint8_t *)nothing;
}

static void spoil_size(struct fake_gpu *gpu, Tierd__Wire__GpuAttachReply *reply)
{
	reply->memory_bytes *= 2;
}

static void what_cannot_be_used_is_done_without(void **state)
{
	static const struct {
		void (*spoil)(struct fake_gpu *gpu, Tierd__Wire__GpuAttachReply *reply);
		const char *words;
	} cases[] = {
		{ spoil_version, "in version 7, and this library" },
		{ spoil_event, "GPU 0: opening events of tierd's: the stand-in's error 400" },
		{ spoil_size, "GPU 0: mapping memory of tierd's: the stand-in's error 1" },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
		struct gpu_scene scene = { .hook = end_epoch_at_phase, .gpu.spoil = cases[i].spoil };
		struct tierd_view view;

		gpu_scene_start(&scene);
		assert_int_equal(scene.state.gpu_bytes, 0);
		assert_int_equal(tierd_gather_on(scene.job, FIRST, scene.streams[0], &view), -EOPNOTSUPP);
		assert_says(cases[i].words);
		gpu_scene_await_mappings(&scene, 0);
		/* It has been given: asking again would not help. */
		assert_int_equal(tierd_phase(scene.job, "evaluation"), 0);
		assert_int_equal(tierd_job_ready(scene.job, -1, NULL), 0);
		assert_int_equal(tierd_gather_on(scene.job, FIRST, scene.streams[0], &view), -EOPNOTSUPP);
		assert_says(cases[i].words);
		assert_int_equal(scene.gpu.attached, 1);
		gpu_scene_end(&scene);
	}
}

static bool answer_attach_with_a_bare_status(struct gpu_scene *scene, uint32_t number,
					     const Tierd__Wire__Request *request)
{
	int fds[] = { scene->gpu.fds[2], scene->gpu.fds[2], scene->gpu.fds[2] };

	if (request->body_case != BODY(GPU_ATTACH))
		return false;
	fake_peer_reply_fds(&scene->peer, number, NULL, fds, scene->peer.stage);
	return true;
}

static void another_answer_ends_the_connection(void **state)
{
	static const char *const words[] = { "too few descriptors", "another reply" };

	for (int with_fds = 0; with_fds < 2; with_fds++) {
		struct gpu_scene scene = { .hook = answer_attach_with_a_bare_status,
					   .peer.stage = 3 * with_fds };

		gpu_scene_open(&scene);
		assert_int_equal(tierd_job_ready(scene.job, -1, NULL), -EPROTO);
		assert_says(words[with_fds]);
		gpu_scene_end(&scene);
	}
}

static bool answer_gather_wrongly(struct gpu_scene *scene, uint32_t number,
				  const Tierd__Wire__Request *request)
{
	Tierd__Wire__GpuGatherReply reply = TIERD__WIRE__GPU_GATHER_REPLY__INIT;

	if (request->body_case != BODY(GPU_GATHER))
		return false;
	reply.offset = scene->peer.stage == 0 ? FAKE_GPU_BYTES : scene->peer.stage == 1 ? UINT64_MAX : 0;
	reply.event = scene->peer.stage == 2 ? FAKE_GPU_SLOTS : 0;
	fake_peer_reply(&scene->peer, number, WIRE_REPLY(GPU_GATHER, gpu_gather, &reply));
	return true;
}

static void wrong_places_and_events_end_the_connection(void **state)
{
	static const char *const words[] = { "a place outside the memory", "a place outside the memory",
					     "an event that there is not" };

	for (int i = 0; i < 3; i++) {
		struct gpu_scene scene = { .hook = answer_gather_wrongly, .peer.stage = i };
		struct tierd_view view;

		gpu_scene_start(&scene);
		assert_int_equal(tierd_gather_on(scene.job, FIRST, scene.streams[0], &view), -EPROTO);
		assert_says(words[i]);
		gpu_scene_end(&scene);
	}
}

/* ---- Failures of the driver ---- */

static void use_until_it_fails(struct gpu_scene *scene)
{
	struct tierd_view view;
	int r;

	/* A GPU that cannot be used hinders no training. */
	assert_int_equal(tierd_job_ready(scene->job, -1, &scene->state), 0);
	r = tierd_gather_on(scene->job, FIRST, scene->streams[0], &view);
	if (scene->state.gpu_bytes == 0) {
		assert_int_equal(r, -EOPNOTSUPP);
		return;
	}
	assert_int_equal(fake_gpu_leases(&scene->gpu, FIRST), r == 0);
	if (r == 0)
		r = tierd_release_on(scene->job, FIRST, scene->streams[0]);
	assert_int_equal(r, -EIO);
}

static void end_after_failure(struct gpu_scene *scene)
{
	if (scene->job) {
		(void)tierd_release_on(scene->job, FIRST, scene->streams[0]);
		assert_int_equal(tierd_job_detach(scene->job), 0);
	}
	scene->job = NULL;
	assert_int_equal(scene->driver.context_enter(scene->context), 0);
	assert_int_equal(scene->driver.stream_synchronize(scene->streams[0]), 0);
	gpu_scene_await_mappings(scene, 0);
	gpu_scene_end(scene);
}

static void each_call_of_the_driver_may_fail(void **state)
{
	static const char *const calls[] = {
		"cuDeviceGetCount",	  "cuDeviceGet",
		"cuDeviceGetUuid_v2",	  "cuDevicePrimaryCtxRetain",
		"cuCtxGetCurrent",	  "cuCtxSetCurrent",
		"cuStreamCreate",	  "cuEventCreate",
		"cuIpcGetEventHandle",	  "cuMemImportFromShareableHandle",
		"cuMemAddressReserve",	  "cuMemMap",
		"cuMemSetAccess",	  "cuIpcOpenEventHandle",
		"cuStreamWaitEvent",	  "cuEventRecord",
		"cuIpcGetEventHandle#32", "cuIpcOpenEventHandle#16",
		"cuEventCreate#2",	  "cuEventCreate#34",
	};

	for (size_t i = 0; i < ARRAY_LENGTH(calls); i++) {
		struct gpu_scene scene = { 0 };
		char failures[64];

		snprintf(failures, sizeof(failures), "%s=999", calls[i]);
		gpu_scene_open(&scene);
		assert_int_equal(tierd_job_detach(scene.job), 0);
		gpu_scene_fail(&scene, failures);
		gpu_scene_job(&scene);
		if (scene.job)
			use_until_it_fails(&scene);
		/* What failed is named, with the driver's error. */
		assert_says("GPU 0: ");
		assert_says("999");
		gpu_scene_fail(&scene, NULL);
		end_after_failure(&scene);
	}
}

static void a_stream_of_another_gpu_is_refused(void **state)
{
	struct gpu_scene scene = { 0 };
	struct driver_context *other;
	struct driver_stream *stream;
	struct tierd_view view;

	for (int is_whole = 0; is_whole < 2; is_whole++) {
		scene = (struct gpu_scene){ .gpu.is_whole = is_whole };
		gpu_scene_start(&scene);
		assert_int_equal(scene.driver.context_retain(&other, 1), 0);
		assert_int_equal(scene.driver.context_enter(other), 0);
		assert_int_equal(scene.driver.stream_create(&stream, DRIVER_NO_STREAM_0), 0);
		assert_int_equal(tierd_gather_on(scene.job, FIRST, stream, &view), -EINVAL);
		assert_says("GPU 0: having a stream wait for a copy, which must be one of this GPU's own "
			    "context");
		assert_int_equal(fake_gpu_leases(&scene.gpu, FIRST), 0);
		assert_int_equal(tierd_gather_on(scene.job, FIRST, scene.streams[0], &view), 0);
		assert_int_equal(tierd_release_on(scene.job, FIRST, stream), -EINVAL);
		assert_says("GPU 0: marking what a stream has queued");
		assert_int_equal(fake_gpu_leases(&scene.gpu, FIRST), 1);
		assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[0]), 0);
		assert_int_equal(gpu_scene_step(&scene), 0);
		assert_int_equal(scene.driver.stream_destroy(stream), 0);
		assert_int_equal(scene.driver.context_release(1), 0);
		gpu_scene_end(&scene);
	}
}

static void assert_current(struct gpu_scene *scene, const struct driver_context *expected)
{
	struct driver_context *current;

	assert_int_equal(scene->driver.context_current(&current), 0);
	assert_ptr_equal(current, expected);
}

static void the_threads_context_stays_as_it_was(void **state)
{
	struct driver_context *contexts[3] = { NULL };
	struct gpu_scene scene = { 0 };
	struct tierd_view view;

	gpu_scene_start(&scene);
	contexts[1] = scene.context;
	assert_int_equal(scene.driver.context_retain(&contexts[2], 1), 0);
	for (unsigned i = 0; i < ARRAY_LENGTH(contexts); i++) {
		assert_int_equal(scene.driver.context_enter(contexts[i]), 0);
		open_with(&scene, 0, 0);
		assert_current(&scene, contexts[i]);
		assert_int_equal(tierd_gather_on(scene.job, FIRST, scene.streams[0], &view), 0);
		assert_current(&scene, contexts[i]);
		assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[0]), 0);
		assert_current(&scene, contexts[i]);
		assert_int_equal(gpu_scene_step(&scene), 0);
		assert_current(&scene, contexts[i]);
	}
	assert_int_equal(tierd_job_close(scene.job), 0);
	scene.job = NULL;
	assert_current(&scene, contexts[2]);
	assert_int_equal(scene.driver.context_enter(NULL), 0);
	assert_int_equal(scene.driver.context_release(1), 0);
	gpu_scene_end(&scene);
}

/* ---- The end ---- */

static void a_forked_child_has_none_of_it(void **state)
{
	struct gpu_scene scene = { 0 };
	struct tierd_view view;
	pid_t process;
	int status;

	gpu_scene_start(&scene);
	gpu_scene_read(&scene, FIRST, 0);
	process = fork();
	if (process == 0) {
		bool is_good = tierd_gather_on(scene.job, FIRST, scene.streams[0], &view) == -ECHILD &&
			       tierd_release_on(scene.job, FIRST, scene.streams[0]) == -ECHILD &&
			       tierd_job_close(scene.job) == -ECHILD;

		syscall(SYS_exit_group, is_good ? 0 : 1);
	}
	assert_int_equal(waitpid(process, &status, 0), process);
	assert_int_equal(status, 0);
	assert_int_equal(gpu_scene_byte(&scene, 0), fake_gpu_value(FIRST, 0));
	assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[0]), 0);
	gpu_scene_end(&scene);
}

static bool die_at_phase(struct gpu_scene *scene, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(PHASE) || scene->peer.connection > 1)
		return false;
	shutdown(scene->peer.fd, SHUT_RDWR);
	return true;
}

static void after_a_lost_connection_old_memory_stays_for_its_leases(void **state)
{
	struct gpu_scene scene = { .hook = die_at_phase, .reconnect_ms = 20000, .peer.connections = 2 };
	struct tierd_view old, new;

	gpu_scene_start(&scene);
	assert_int_equal(tierd_gather_on(scene.job, FIRST, scene.streams[0], &old), 0);
	assert_int_equal(tierd_phase(scene.job, "evaluation"), 0);
	assert_int_equal(tierd_gather_on(scene.job, FIRST, scene.streams[0], &new), 0);
	assert_int_equal(scene.gpu.attached, 2);
	assert_ptr_not_equal(old.base, new.base);
	assert_int_equal(gpu_scene_mappings(), 2);
	gpu_scene_read_from(&scene, old.base, 0);
	assert_int_equal(gpu_scene_byte(&scene, 0), fake_gpu_value(FIRST, 0));
	gpu_scene_hold(&scene, 0);
	gpu_scene_read_from(&scene, old.base, 0);
	/* The older lease is given back first. */
	assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[0]), 0);
	assert_int_equal(fake_gpu_leases(&scene.gpu, FIRST), 1);
	assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[0]), 0);
	assert_int_equal(fake_gpu_leases(&scene.gpu, FIRST), 0);
	/* Unmapped once the stream is through. */
	assert_int_equal(gpu_scene_step(&scene), 0);
	assert_int_equal(gpu_scene_mappings(), 2);
	gpu_scene_go_on(&scene);
	assert_int_equal(gpu_scene_byte(&scene, 0), fake_gpu_value(FIRST, 0));
	gpu_scene_await_mappings(&scene, 1);
	gpu_scene_end(&scene);
}

static bool die_at_gather(struct gpu_scene *scene, uint32_t number, const Tierd__Wire__Request *request)
{
	if (request->body_case != BODY(GPU_GATHER) || scene->peer.connection > 1)
		return false;
	/* The lease was counted, and its reply is lost. */
	gpu_lease_counters(scene->gpu.leases)[FIRST]++;
	shutdown(scene->peer.fd, SHUT_RDWR);
	return true;
}

static void a_lease_whose_reply_was_lost_hinders_no_step(void **state)
{
	struct gpu_scene scene = { .hook = die_at_gather, .reconnect_ms = 20000, .peer.connections = 2 };

	gpu_scene_start(&scene);
	gpu_scene_read(&scene, FIRST, 0);
	assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[0]), 0);
	assert_int_equal(gpu_scene_step(&scene), 0);
	gpu_scene_end(&scene);
}

static void closing_waits_for_no_stream(void **state)
{
	for (int is_whole = 0; is_whole < 2; is_whole++) {
		struct gpu_scene scene = { .gpu.is_whole = is_whole };

		gpu_scene_start(&scene);
		gpu_scene_hold(&scene, 0);
		gpu_scene_read(&scene, FIRST, 0);
		assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[0]), 0);
		assert_int_equal(tierd_job_close(scene.job), 0);
		scene.job = NULL;
		/* Others that the daemon serves come after it. */
		assert_int_equal(is_whole ? scene.gpu.leases->fence : fake_gpu_released(&scene.gpu, FIRST),
				 1);
		assert_int_equal(gpu_scene_mappings(), 1);
		gpu_scene_go_on(&scene);
		assert_true(fake_gpu_overwrite(&scene.gpu, FIRST, 1));
		assert_int_equal(gpu_scene_byte(&scene, 0), fake_gpu_value(FIRST, 0));
		gpu_scene_await_mappings(&scene, 0);
		gpu_scene_end(&scene);
	}
}

static void leases_may_outlive_the_job(void **state)
{
	struct gpu_scene scene = { 0 };
	struct tierd_view view;

	gpu_scene_start(&scene);
	assert_int_equal(tierd_gather_on(scene.job, FIRST, scene.streams[0], &view), 0);
	assert_int_equal(tierd_gather_on(scene.job, SECOND, scene.streams[0], &view), 0);
	assert_int_equal(tierd_job_close(scene.job), 0);
	assert_int_equal(fake_gpu_leases(&scene.gpu, FIRST), 0);
	assert_int_equal(tierd_gather_on(scene.job, FIRST, scene.streams[0], &view), -EBADF);
	assert_int_equal(tierd_release_on(scene.job, FROZEN, scene.streams[0]), -EINVAL);
	assert_int_equal(tierd_release(scene.job, FIRST), -EINVAL);
	assert_int_equal(tierd_release_on(scene.job, FIRST, scene.streams[0]), 0);
	gpu_scene_hold(&scene, 0);
	gpu_scene_read_from(&scene, view.base, 0);
	assert_int_equal(tierd_release_on(scene.job, SECOND, scene.streams[0]), 0);
	scene.job = NULL;
	gpu_scene_go_on(&scene);
	assert_int_equal(gpu_scene_byte(&scene, 0), fake_gpu_value(SECOND, 0));
	gpu_scene_await_mappings(&scene, 0);
	gpu_scene_end(&scene);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rank_that_is_ready_has_memory_of_its_gpu),
		cmocka_unit_test(the_ticket_of_a_ready_waits_for_the_memory),
		cmocka_unit_test(a_rank_that_gets_none_goes_on_without_and_asks_again),
		cmocka_unit_test(a_gpu_that_is_not_there_is_said_at_once),
		cmocka_unit_test(a_fraction_of_updates_that_is_none_is_refused),
		cmocka_unit_test(a_job_without_a_gpu_says_so),
		cmocka_unit_test(wrong_pages_end_the_connection),
		cmocka_unit_test(what_cannot_be_used_is_done_without),
		cmocka_unit_test(another_answer_ends_the_connection),
		cmocka_unit_test(wrong_places_and_events_end_the_connection),
		cmocka_unit_test(each_call_of_the_driver_may_fail),
		cmocka_unit_test(a_stream_of_another_gpu_is_refused),
		cmocka_unit_test(the_threads_context_stays_as_it_was),
		cmocka_unit_test(a_forked_child_has_none_of_it),
		cmocka_unit_test(after_a_lost_connection_old_memory_stays_for_its_leases),
		cmocka_unit_test(a_lease_whose_reply_was_lost_hinders_no_step),
		cmocka_unit_test(closing_waits_for_no_stream),
		cmocka_unit_test(leases_may_outlive_the_job),
	};

	standin_tell("STANDIN_GPUS", "2");
	standin_tell("STANDIN_BYTES", "67108864");
	if (argc == 2)
		return fake_gpu_main(argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
