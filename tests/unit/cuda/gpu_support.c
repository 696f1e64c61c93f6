#include "tests/unit/cuda/gpu_support.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

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

/* What plays a kernel: to[i] = from[i] + value. */
static unsigned ranges_of_add(const struct standin_kernel *kernel, const void *arguments,
			      struct standin_range *ret_ranges)
{
	const struct add_arguments *with = arguments;

	ret_ranges[0] = (struct standin_range){ with->from, with->count, true, false };
	ret_ranges[1] = (struct standin_range){ with->to, with->count, false, true };
	return 2;
}

static void run_add(const struct standin_kernel *kernel, const void *arguments, unsigned blocks,
		    unsigned threads)
{
	const struct add_arguments *with = arguments;
	const unsigned char *from = (const void *)(uintptr_t)with->from;
	unsigned char *to = (void *)(uintptr_t)with->to;

	for (size_t i = 0; i < with->count && i < (size_t)blocks * threads; i++)
		to[i] = (unsigned char)(from[i] + with->value);
}

static const struct standin_kernel kernels[] = {
	{ "add", sizeof(struct add_arguments), ADD_THREADS, ranges_of_add, run_add },
};

const struct standin_image add_image = { STANDIN_IMAGE, 1, kernels };
const char *const add_names[1] = { "add" };

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
	r = posix_spawn(&other->process, "/proc/self/exe", &actions, NULL, arguments, standin_environment());
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
