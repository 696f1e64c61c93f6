/* What a daemon and its client share of a GPU. The client is another process, this program once more. */
#include <errno.h>
#include <string.h>

#include "tests/unit/cuda/gpu_support.h"

#define BYTES ((size_t)4096)

/* What the client gets, and says. */
struct gift {
	struct driver_event_handle behind; /* of the daemon's copy */
};
struct answer {
	struct driver_event_handle used; /* of the client's own stream */
	unsigned char first, last;	 /* bytes that it has found */
};

static unsigned char host[BYTES];

static void read_all(int fd, void *bytes, size_t count)
{
	assert_int_equal(read(fd, bytes, count), count);
}

static void write_all(int fd, const void *bytes, size_t count)
{
	assert_int_equal(write(fd, bytes, count), count);
}

/* The client's part, where there is no cmocka: it waits for the copy, reads, and says when it has read, on
 * the GPU; but its stream is held before, until it is told to go on. */
static int be_the_client(int fd)
{
	const struct driver_access access = { { DRIVER_ON_GPU, 0 }, DRIVER_READ_WRITE };
	struct driver_event *behind, *used;
	struct driver_context *context;
	struct driver_stream *stream;
	struct answer answer;
	driver_allocation allocation;
	driver_address memory;
	struct gift gift;
	int error = cuInit(0);

	error |= cuDevicePrimaryCtxRetain(&context, 0);
	error |= cuCtxSetCurrent(context);
	error |= cuMemImportFromShareableHandle(&allocation, (void *)(uintptr_t)fd, DRIVER_DESCRIPTOR);
	close(fd);
	error |= cuMemAddressReserve(&memory, MEMORY_BYTES, 0, 0, 0);
	error |= cuMemMap(memory, MEMORY_BYTES, 0, allocation, 0);
	error |= cuMemSetAccess(memory, MEMORY_BYTES, &access, 1);
	error |= cuMemHostRegister_v2(host, BYTES, 0);
	error |= cuStreamCreate(&stream, DRIVER_NO_STREAM_0);
	error |= cuEventCreate(&used, DRIVER_NO_TIMES | DRIVER_SHARED);
	error |= cuIpcGetEventHandle(&answer.used, used);
	if (error || read(0, &gift, sizeof(gift)) != sizeof(gift))
		return 1;
	error |= cuIpcOpenEventHandle(&behind, gift.behind);
	error |= cuStreamWaitEvent(stream, behind, 0);
	standin_hold(true);
	error |= cuMemcpyAsync(host_address(host), memory, BYTES, stream);
	error |= cuEventRecord(used, stream);
	if (error || write(1, &answer, sizeof(answer)) != sizeof(answer) || read(0, &gift, 1) != 1)
		return 1;
	standin_hold(false);
	if (cuStreamSynchronize(stream) != DRIVER_DONE)
		return 1;
	answer.first = host[0];
	answer.last = host[BYTES - 1];
	if (write(1, &answer, sizeof(answer)) != sizeof(answer))
		return 1;
	(void)!read(0, &gift, 1);
	return 0;
}

/* A unit that was copied to the GPU, and a client that is reading it there. */
struct scene {
	struct gpu_fixture fixture;
	struct gpu_engine *engine;
	struct gpu_memory memory;
	struct gpu_pin pin;
	struct gpu_event behind, used;
	struct other_process client;
	struct answer answer;
};

static void open_scene(struct scene *scene)
{
	struct test_copy copy;
	struct gift gift;

	gpu_fixture_open(&scene->fixture);
	scene->engine = scene->fixture.engines[0];
	memset(host, 7, BYTES);
	assert_int_equal(gpu_memory_create_now(scene->engine, &scene->memory, MEMORY_BYTES), 0);
	assert_int_equal(gpu_pin_add_now(scene->engine, &scene->pin, host, BYTES), 0);
	assert_int_equal(gpu_event_create_now(scene->engine, &scene->behind), 0);
	assert_int_equal(other_process_start(&scene->client, scene->memory.fd), 0);

	/* The client is told when the copy is on its way, not when it has arrived. */
	standin_hold(true);
	test_copy_init(&copy, GPU_FROM_HOST, scene->memory.address, host_address(host), BYTES);
	copy.copy.behind = &scene->behind;
	gpu_copy_submit(scene->engine, &copy.copy);
	while (copy.recorded == 0)
		gpu_reap_once(scene->engine);
	gift.behind = scene->behind.handle;
	write_all(scene->client.in, &gift, sizeof(gift));
	read_all(scene->client.out, &scene->answer, sizeof(scene->answer));
	standin_hold(false);
	assert_int_equal(test_copy_wait(scene->engine, &copy), 0);
	scene->used.handle = scene->answer.used;
	assert_int_equal(gpu_event_open_now(scene->engine, &scene->used), 0);
}

static void close_scene(struct scene *scene)
{
	other_process_kill(&scene->client);
	assert_int_equal(gpu_event_close_now(scene->engine, &scene->used), 0);
	assert_int_equal(gpu_event_close_now(scene->engine, &scene->behind), 0);
	assert_int_equal(gpu_pin_remove_now(scene->engine, &scene->pin), 0);
	if (scene->memory.address)
		assert_int_equal(gpu_memory_destroy_now(scene->engine, &scene->memory), 0);
	assert_int_equal(gpu_free_bytes(&scene->fixture), (size_t)64 << 20);
	gpu_fixture_close(&scene->fixture);
}

/* The next unit may not overwrite what the client still reads. */
static void submit_next(struct scene *scene, struct test_copy *next)
{
	memset(host, 8, BYTES);
	test_copy_init(next, GPU_FROM_HOST, scene->memory.address, host_address(host), BYTES);
	next->copy.after = &scene->used;
	gpu_copy_submit(scene->engine, &next->copy);
}

static void a_client_waits_for_a_copy_and_a_copy_for_a_client(void **state)
{
	struct test_copy next;
	struct scene scene;

	open_scene(&scene);
	submit_next(&scene, &next);
	/* Others are not held up. */
	assert_int_equal(gpu_copy_now(scene.engine, GPU_FROM_HOST, scene.memory.address + BYTES,
				      host_address(host), BYTES),
			 0);
	assert_int_equal(next.ending.count, 0);
	write_all(scene.client.in, "", 1);
	assert_int_equal(test_copy_wait(scene.engine, &next), 0);
	read_all(scene.client.out, &scene.answer, sizeof(scene.answer));
	assert_int_equal(scene.answer.first, 7);
	assert_int_equal(scene.answer.last, 7);
	close_scene(&scene);
}

/* Its event never comes. */
static void a_client_is_killed_in_a_kernel(void **state)
{
	struct test_copy next;
	struct scene scene;

	open_scene(&scene);
	submit_next(&scene, &next);
	other_process_kill(&scene.client);
	assert_int_equal(gpu_copy_now(scene.engine, GPU_FROM_HOST, scene.memory.address + BYTES,
				      host_address(host), BYTES),
			 0);
	assert_int_equal(next.ending.count, 0);
	gpu_copy_cancel(scene.engine, &next.copy);
	assert_int_equal(test_copy_wait(scene.engine, &next), -ECANCELED);
	/* The driver has ended what the client did. */
	assert_int_equal(
		gpu_copy_now(scene.engine, GPU_FROM_HOST, scene.memory.address, host_address(host), BYTES),
		0);
	close_scene(&scene);
}

static void memory_is_used_until_the_client_lets_go(void **state)
{
	struct scene scene;

	open_scene(&scene);
	assert_int_equal(gpu_memory_destroy_now(scene.engine, &scene.memory), 0);
	assert_int_equal(gpu_free_bytes(&scene.fixture), ((size_t)64 << 20) - MEMORY_BYTES);
	write_all(scene.client.in, "", 1);
	read_all(scene.client.out, &scene.answer, sizeof(scene.answer));
	assert_int_equal(scene.answer.last, 7);
	close_scene(&scene);
}

/* What a client sends. */
static void an_event_that_is_none_is_refused(void **state)
{
	struct gpu_event event = { .handle = { .bytes = { 1 } } };
	struct gpu_fixture fixture;

	gpu_fixture_open(&fixture);
	assert_int_equal(gpu_event_open_now(fixture.engines[0], &event), -EINVAL);
	assert_non_null(strstr(event.request.problem.text, "GPU 0 (stand-in): cuIpcOpenEventHandle: "));
	assert_int_equal(fixture.failures, 0);
	gpu_fixture_close(&fixture);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_client_waits_for_a_copy_and_a_copy_for_a_client),
		cmocka_unit_test(a_client_is_killed_in_a_kernel),
		cmocka_unit_test(memory_is_used_until_the_client_lets_go),
		cmocka_unit_test(an_event_that_is_none_is_refused),
	};

	if (argc > 1)
		return be_the_client(atoi(argv[1]));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
