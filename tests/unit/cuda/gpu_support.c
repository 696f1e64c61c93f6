#include "tests/unit/cuda/gpu_support.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char **environ;

void standin_tell(const char *name, const char *value)
{
	if (value)
		assert_int_equal(setenv(name, value, 1), 0);
	else
		assert_int_equal(unsetenv(name), 0);
}

static void note_failure(void *context, const char *problem)
{
	struct gpu_fixture *fixture = context;

	fixture->failures++;
	snprintf(fixture->failure, sizeof(fixture->failure), "%s", problem);
}

void gpu_fixture_open(struct gpu_fixture *fixture)
{
	standin_tell("STANDIN_GPUS", "2");
	standin_tell("STANDIN_BYTES", "67108864");
	standin_tell("STANDIN_FAILURES", NULL);
	*fixture = (struct gpu_fixture){ 0 };
	gpus_find(&fixture->gpus);
	assert_int_equal(fixture->gpus.count, 2);
	for (unsigned gpu = 0; gpu < 2; gpu++) {
		const struct gpu_engine_config config = {
			.gpus = &fixture->gpus, .gpu = gpu, .failed = note_failure, .context = fixture
		};
		struct gpu_problem problem;

		assert_int_equal(gpu_engine_new(&config, &problem, &fixture->engines[gpu]), 0);
	}
}

void gpu_fixture_close(struct gpu_fixture *fixture)
{
	for (unsigned gpu = 0; gpu < 2; gpu++)
		fixture->engines[gpu] = gpu_engine_free(fixture->engines[gpu]);
}

void gpu_reap_once(struct gpu_engine *engine)
{
	struct pollfd wanted = { .fd = gpu_engine_fd(engine), .events = POLLIN };

	assert_int_equal(poll(&wanted, 1, 60000), 1);
	gpu_engine_reap(engine);
}

static void end_copy(struct gpu_request *request, int status)
{
	static unsigned order;
	struct test_copy *test = container_of(request, struct test_copy, copy.request);

	test->ending.count++;
	test->ending.status = status;
	test->order = ++order;
}

static void note_recorded(struct gpu_copy *copy)
{
	container_of(copy, struct test_copy, copy)->recorded++;
}

void test_copy_init(struct test_copy *test, enum gpu_direction direction, driver_address to,
		    driver_address from, size_t bytes)
{
	*test = (struct test_copy){ .copy = { .request = { .done = end_copy },
					      .direction = direction,
					      .to = to,
					      .from = from,
					      .bytes = bytes,
					      .recorded = note_recorded } };
}

int test_copy_wait(struct gpu_engine *engine, struct test_copy *test)
{
	while (test->ending.count == 0)
		gpu_reap_once(engine);
	assert_int_equal(test->ending.count, 1);
	return test->ending.status;
}

int gpu_copy_now(struct gpu_engine *engine, enum gpu_direction direction, driver_address to,
		 driver_address from, size_t bytes)
{
	struct test_copy test;

	test_copy_init(&test, direction, to, from, bytes);
	gpu_copy_submit(engine, &test.copy);
	return test_copy_wait(engine, &test);
}

/* Of the one request that is waited for. */
static struct gpu_ending ending;

static void end_request(struct gpu_request *request, int status)
{
	ending.count++;
	ending.status = status;
}

static int wait_for(struct gpu_engine *engine)
{
	while (ending.count == 0)
		gpu_reap_once(engine);
	assert_int_equal(ending.count, 1);
	ending.count = 0;
	return ending.status;
}

int gpu_memory_create_now(struct gpu_engine *engine, struct gpu_memory *memory, size_t bytes)
{
	*memory = (struct gpu_memory){ .request = { .done = end_request }, .bytes = bytes };
	gpu_memory_create(engine, memory);
	return wait_for(engine);
}

int gpu_memory_destroy_now(struct gpu_engine *engine, struct gpu_memory *memory)
{
	gpu_memory_destroy(engine, memory);
	return wait_for(engine);
}

int gpu_pin_add_now(struct gpu_engine *engine, struct gpu_pin *pin, void *base, size_t bytes)
{
	*pin = (struct gpu_pin){ .request = { .done = end_request }, .base = base, .bytes = bytes };
	gpu_pin_add(engine, pin);
	return wait_for(engine);
}

int gpu_pin_remove_now(struct gpu_engine *engine, struct gpu_pin *pin)
{
	gpu_pin_remove(engine, pin);
	return wait_for(engine);
}

int gpu_event_create_now(struct gpu_engine *engine, struct gpu_event *event)
{
	*event = (struct gpu_event){ .request = { .done = end_request } };
	gpu_event_create(engine, event);
	return wait_for(engine);
}

int gpu_event_open_now(struct gpu_engine *engine, struct gpu_event *event)
{
	event->request = (struct gpu_request){ .done = end_request };
	gpu_event_open(engine, event);
	return wait_for(engine);
}

int gpu_event_close_now(struct gpu_engine *engine, struct gpu_event *event)
{
	gpu_event_close(engine, event);
	return wait_for(engine);
}

static void enter(void)
{
	struct driver_context *context;

	assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), 0);
	assert_int_equal(cuCtxSetCurrent(context), 0);
}

static void leave(void)
{
	assert_int_equal(cuCtxSetCurrent(NULL), 0);
	assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), 0);
}

size_t gpu_free_bytes(const struct gpu_fixture *fixture)
{
	size_t is_free, total;

	enter();
	assert_int_equal(cuMemGetInfo_v2(&is_free, &total), 0);
	leave();
	return is_free;
}

bool gpu_has_pinned(void *base)
{
	driver_address address;
	int error;

	enter();
	error = cuMemHostGetDevicePointer_v2(&address, base, 0);
	leave();
	return error == DRIVER_DONE;
}

static int spawn(struct other_process *other, int fd, int in, int out)
{
	_cleanup_close_ int copy = dup(fd);
	posix_spawn_file_actions_t actions;
	char number[16];
	char *const arguments[] = { (char *)"other", number, NULL };
	int r;

	snprintf(number, sizeof(number), "%d", copy);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in, 0);
	posix_spawn_file_actions_adddup2(&actions, out, 1);
	r = posix_spawn(&other->process, "/proc/self/exe", &actions, NULL, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	return -r;
}

int other_process_start(struct other_process *other, int fd)
{
	int in[2], out[2], r;

	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
		return -errno;
	r = spawn(other, fd, in[0], out[1]);
	close(in[0]);
	close(out[1]);
	other->in = in[1];
	other->out = out[0];
	return r;
}

void other_process_kill(struct other_process *other)
{
	if (other->process == 0)
		return;
	kill(other->process, SIGKILL);
	waitpid(other->process, NULL, 0);
	close(other->in);
	close(other->out);
	other->process = 0;
}
