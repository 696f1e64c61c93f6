/* The stand-in for the GPU driver finds the mistakes that it is there for. Each case is a process of its own:
 * some end by them, and the driver serves no forked child. */
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "common/cleanup.h"
#include "tests/unit/cuda/gpu_support.h"

#define MEMORY ((size_t)4 << 20)
#define BYTES ((size_t)1 << 20)

static struct driver driver;
static struct driver_context *contexts[2];
static char host[2 * BYTES];

/* In a case, where cmocka does not see it. */
#define must(condition)                                                                                      \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                      \
			_exit(1);                                                                            \
		}                                                                                            \
	} while (0)
#define did(call) must((call) == DRIVER_DONE)

static void start(void)
{
	struct dynamic_library library = { 0 };

	standin_tell("STANDIN_GPUS", "2");
	standin_tell("STANDIN_BYTES", "16777216");
	standin_tell("STANDIN_DELAY_US", "1000");
	must(driver_open(&driver, &library));
	for (int gpu = 1; gpu >= 0; gpu--) {
		did(driver.context_retain(&contexts[gpu], gpu));
		did(driver.context_enter(contexts[gpu]));
	}
	did(driver.host_register(host, sizeof(host), DRIVER_PORTABLE));
}

static struct driver_memory_kind kind_on(int gpu)
{
	return (struct driver_memory_kind){
		.type = DRIVER_PINNED,
		.handles = DRIVER_DESCRIPTOR,
		.location = { DRIVER_ON_GPU, gpu },
	};
}

static driver_address map(driver_allocation allocation, size_t bytes, int gpu)
{
	const struct driver_access access = { { DRIVER_ON_GPU, gpu }, DRIVER_READ_WRITE };
	driver_address address;

	did(driver.address_reserve(&address, bytes, 0, 0, 0));
	did(driver.memory_map(address, bytes, 0, allocation, 0));
	did(driver.memory_allow(address, bytes, &access, 1));
	return address;
}

static driver_address allocate(size_t bytes, int gpu, driver_allocation *ret_allocation)
{
	const struct driver_memory_kind kind = kind_on(gpu);

	did(driver.memory_create(ret_allocation, bytes, &kind, 0));
	return map(*ret_allocation, bytes, gpu);
}

static struct driver_stream *stream(void)
{
	struct driver_stream *made;

	did(driver.stream_create(&made, DRIVER_NO_STREAM_0));
	return made;
}

static struct driver_event *event(void)
{
	struct driver_event *made;

	did(driver.event_create(&made, DRIVER_NO_TIMES | DRIVER_SHARED));
	return made;
}

static driver_address in_host(size_t offset)
{
	return (uintptr_t)(host + offset);
}

static bool is_all(const char *bytes, size_t count, int value)
{
	for (size_t i = 0; i < count; i++)
		if (bytes[i] != (char)value)
			return false;
	return true;
}

/* Host → GPU in one stream, GPU → host in another. */
struct two {
	driver_allocation allocation;
	driver_address memory;
	struct driver_stream *in, *out;
};

static struct two begin_two(void)
{
	struct two two;

	start();
	two.memory = allocate(MEMORY, 0, &two.allocation);
	two.in = stream();
	two.out = stream();
	memset(host, 7, BYTES);
	did(driver.copy(two.memory, in_host(0), BYTES, two.in));
	return two;
}

static void end_two(const struct two *two)
{
	did(driver.copy(in_host(BYTES), two->memory, BYTES, two->out));
	did(driver.stream_synchronize(two->out));
	must(is_all(host + BYTES, BYTES, 7));
}

static void nothing_waits(void)
{
	struct two two = begin_two();

	end_two(&two);
}

static void a_stream_waits(void)
{
	struct two two = begin_two();
	struct driver_event *behind = event();

	did(driver.event_record(behind, two.in));
	did(driver.stream_wait(two.out, behind, 0));
	end_two(&two);
}

/* The event is not behind anything yet. */
static void a_stream_waits_too_early(void)
{
	struct two two = begin_two();
	struct driver_event *behind = event();

	did(driver.stream_wait(two.out, behind, 0));
	did(driver.event_record(behind, two.in));
	end_two(&two);
}

/* What comes behind the event is another matter. */
static void a_stream_waits_for_the_copy_before(void)
{
	struct two two = begin_two();
	struct driver_event *behind = event();

	did(driver.event_record(behind, two.in));
	did(driver.copy(two.memory, in_host(0), BYTES, two.in));
	did(driver.stream_wait(two.out, behind, 0));
	end_two(&two);
}

static void the_program_waits(void)
{
	struct two two = begin_two();

	did(driver.stream_synchronize(two.in));
	end_two(&two);
}

static void the_program_looks_until(void)
{
	struct two two = begin_two();
	struct driver_event *behind = event();
	int error;

	did(driver.event_record(behind, two.in));
	while ((error = driver.event_query(behind)) == DRIVER_NOT_READY)
		;
	did(error);
	end_two(&two);
}

/* Others read the same host memory: no race. Nor do halves that do not meet. */
static void nothing_has_to_wait(void)
{
	struct two two = begin_two();

	did(driver.copy(two.memory + BYTES, in_host(0), BYTES, two.out));
	did(driver.stream_synchronize(two.out));
}

static void a_copy_overwrites_what_is_read(void)
{
	struct two two = begin_two();

	did(driver.copy(in_host(BYTES / 2), two.memory + BYTES, BYTES, two.out));
	did(driver.stream_synchronize(two.out));
}

/* What a host function of the first stream writes, as a kernel would. */
static void write_9(void *argument)
{
	memset(argument, 9, BYTES);
}

static void launch(const struct two *two)
{
	did(cuLaunchHostFunc(two->in, write_9, (void *)(uintptr_t)two->memory));
	standin_touch(two->in, two->memory, BYTES, true);
}

static void nothing_waits_for_a_kernel(void)
{
	struct two two = begin_two();

	did(driver.stream_synchronize(two.in));
	launch(&two);
	end_two(&two);
}

static void a_stream_waits_for_a_kernel(void)
{
	struct two two = begin_two();
	struct driver_event *behind = event();

	launch(&two);
	did(driver.event_record(behind, two.in));
	did(driver.stream_wait(two.out, behind, 0));
	did(driver.copy(in_host(BYTES), two.memory, BYTES, two.out));
	did(driver.stream_synchronize(two.out));
	must(is_all(host + BYTES, BYTES, 9));
}

static void wait_for_it(void *argument)
{
	must(sem_wait(argument) == 0);
}

/* Who waits for the first record does not go on with the second, which ends before it. */
static void an_event_is_recorded_again(void)
{
	struct two two = begin_two();
	struct driver_event *behind = event();
	struct driver_stream *other = stream();
	sem_t going;

	sem_init(&going, 0, 0);
	did(cuLaunchHostFunc(two.in, wait_for_it, &going));
	launch(&two);
	did(driver.event_record(behind, two.in));
	did(driver.stream_wait(two.out, behind, 0));
	did(driver.copy(in_host(BYTES), two.memory, BYTES, two.out));
	for (int i = 0; i < 5; i++)
		did(driver.event_record(behind, other));
	did(driver.stream_synchronize(other));
	must(cuStreamQuery(two.out) == DRIVER_NOT_READY);
	must(sem_post(&going) == 0);
	did(driver.stream_synchronize(two.out));
	must(is_all(host + BYTES, BYTES, 9));
}

static struct driver_module *module(struct driver_function **ret_function)
{
	struct driver_module *made;

	did(driver.module_load(&made, &add_image));
	did(driver.module_function(ret_function, made, "add"));
	return made;
}

/* Adds to the bytes there, or to so many of other memory. */
static int add(struct driver_function *function, struct driver_stream *in, driver_address there,
	       unsigned threads)
{
	struct add_arguments with = { .to = there, .from = there, .count = BYTES, .value = 2 };
	void *parameters[] = { &with };
	int error =
		driver.launch(function, BYTES / ADD_THREADS, 1, 1, threads, 1, 1, 0, in, parameters, NULL);

	/* They were read when the call returned. */
	with.value = 100;
	return error;
}

static void a_kernel_waits_for_nothing(void)
{
	struct two two = begin_two();
	struct driver_function *function;

	(void)module(&function);
	did(add(function, two.out, two.memory, ADD_THREADS));
}

static void a_copy_does_not_wait_for_a_kernel(void)
{
	struct two two = begin_two();
	struct driver_function *function;

	(void)module(&function);
	did(add(function, two.in, two.memory, ADD_THREADS));
	end_two(&two);
}

static void a_kernel_is_in_its_stream(void)
{
	struct two two = begin_two();
	struct driver_function *function;
	struct driver_module *made = module(&function);

	did(add(function, two.in, two.memory, ADD_THREADS));
	did(driver.copy(in_host(BYTES), two.memory, BYTES, two.in));
	did(driver.stream_synchronize(two.in));
	must(is_all(host + BYTES, BYTES, 9));
	did(driver.module_unload(made));
	must(driver.module_unload(made) == DRIVER_INVALID_HANDLE);
}

static void a_kernel_has_blocks_of_another_size(void)
{
	struct two two = begin_two();
	struct driver_function *function;

	(void)module(&function);
	(void)add(function, two.in, two.memory, 2 * ADD_THREADS);
}

static void a_kernel_uses_other_memory(void)
{
	static char pageable[BYTES];
	struct two two = begin_two();
	struct driver_function *function;

	(void)module(&function);
	(void)add(function, two.in, (uintptr_t)pageable, ADD_THREADS);
}

static void a_module_is_unloaded_in_use(void)
{
	struct two two = begin_two();
	struct driver_function *function;
	struct driver_module *made = module(&function);

	did(add(function, two.in, two.memory, ADD_THREADS));
	(void)driver.module_unload(made);
}

static void modules_are_the_drivers(void)
{
	static const uint64_t other[2] = { 1, 2 };
	struct two two = begin_two();
	struct driver_function *function;
	struct driver_module *made = module(&function);

	must(driver.module_load(&made, other) == DRIVER_INVALID_IMAGE);
	must(driver.module_function(&function, made, "subtract") == DRIVER_NOT_FOUND);
	did(driver.context_enter(contexts[1]));
	must(driver.module_function(&function, made, "add") == DRIVER_INVALID_HANDLE);
	must(add(function, stream(), two.memory, ADD_THREADS) == DRIVER_INVALID_HANDLE);
}

static void a_kernel_fails(void)
{
	struct two two = begin_two();
	struct driver_function *function;

	(void)module(&function);
	standin_tell("STANDIN_FAILURES", "kernel#1=700");
	did(add(function, two.in, two.memory, ADD_THREADS));
	must(driver.stream_synchronize(two.in) == DRIVER_ILLEGAL_ADDRESS);
}

static void look_at_memory(void *argument)
{
	size_t bytes;

	(void)driver.memory_info(&bytes, &bytes);
}

static void a_host_function_calls_the_driver(void)
{
	struct two two = begin_two();

	did(cuLaunchHostFunc(two.in, look_at_memory, NULL));
	did(driver.stream_synchronize(two.in));
}

static void memory_is_filled(void)
{
	struct two two = begin_two();

	did(cuMemsetD8Async(two.memory, 3, MEMORY, two.in));
	did(driver.copy(in_host(BYTES), two.memory + 1, BYTES, two.in));
	did(cuStreamSynchronize(two.in));
	must(is_all(host + BYTES, BYTES, 3));
}

static void memory_is_new(void)
{
	struct two two = begin_two();

	did(driver.copy(in_host(BYTES), two.memory + BYTES, BYTES, two.in));
	did(driver.stream_synchronize(two.in));
	must(is_all(host + BYTES, BYTES, 0xff));
}

static void memory_is_unmapped_in_use(void)
{
	struct two two = begin_two();

	did(driver.memory_unmap(two.memory, MEMORY));
}

static void host_memory_is_unregistered_in_use(void)
{
	(void)begin_two();
	did(driver.host_unregister(host));
}

static void memory_is_used_when_unmapped(void)
{
	struct two two = begin_two();

	did(driver.stream_synchronize(two.in));
	did(driver.memory_unmap(two.memory, MEMORY));
	did(driver.address_free(two.memory, MEMORY));
	end_two(&two);
}

static void memory_is_of_another_gpu(void)
{
	struct two two = begin_two();
	driver_allocation allocation;
	driver_address memory = allocate(MEMORY, 1, &allocation);

	(void)driver.copy(memory, two.memory, BYTES, two.in);
}

static void a_stream_is_of_another_context(void)
{
	struct two two = begin_two();

	did(driver.context_enter(contexts[1]));
	must(driver.copy(in_host(BYTES), in_host(0), 1, two.in) == DRIVER_INVALID_HANDLE);
	must(driver.event_record(event(), two.in) == DRIVER_INVALID_HANDLE);
}

static void memory_is_bounded(void)
{
	const struct driver_memory_kind kind = kind_on(0);
	driver_allocation first, second;
	size_t bytes, total;

	start();
	did(driver.memory_create(&first, 3 * MEMORY, &kind, 0));
	must(driver.memory_create(&second, 2 * MEMORY, &kind, 0) == DRIVER_OUT_OF_MEMORY);
	did(driver.memory_info(&bytes, &total));
	must(bytes == MEMORY && total == 4 * MEMORY);
	did(driver.memory_release(first));
	did(driver.memory_create(&second, 4 * MEMORY, &kind, 0));
	must(driver.memory_create(&first, 1, &kind, 0) == DRIVER_INVALID_VALUE);
}

static void hidden_gpus_change_no_uuid(void)
{
	struct driver_uuid both[2], one;

	start();
	for (int gpu = 0; gpu < 2; gpu++)
		did(driver.device_uuid(&both[gpu], gpu));
	must(memcmp(&both[0], &both[1], sizeof(one)) != 0);
	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	did(driver.device_uuid(&one, 0));
	must(memcmp(&one, &both[1], sizeof(one)) == 0);
	must(driver.device_uuid(&one, 1) == DRIVER_INVALID_DEVICE);
}

static void calls_fail(void)
{
	struct two two = begin_two();
	size_t bytes;

	did(driver.stream_synchronize(two.in));
	standin_tell("STANDIN_FAILURES", "cuMemcpyAsync#2=1,cuMemGetInfo_v2=2");
	did(driver.copy(two.memory, in_host(0), BYTES, two.in));
	must(driver.copy(two.memory, in_host(0), BYTES, two.in) == 1);
	did(driver.copy(two.memory, in_host(0), BYTES, two.in));
	must(driver.memory_info(&bytes, &bytes) == 2 && driver.memory_info(&bytes, &bytes) == 2);
	did(driver.stream_synchronize(two.in));
}

/* In the middle: what was told before fails, and all that comes. The other GPU goes on. */
static void a_gpu_is_lost(void)
{
	struct two two;
	struct driver_event *behind;
	size_t bytes;

	standin_tell("STANDIN_FAILURES", "copy#2=719");
	two = begin_two();
	behind = event();
	did(driver.copy(two.memory, in_host(0), BYTES, two.in));
	did(driver.event_record(behind, two.in));
	must(driver.stream_synchronize(two.in) == 719);
	must(driver.event_query(behind) == 719);
	must(driver.memory_info(&bytes, &bytes) == 719);
	must(driver.memory_unmap(two.memory, MEMORY) == 719);
	did(driver.context_enter(contexts[1]));
	did(driver.memory_info(&bytes, &bytes));
	did(driver.context_release(0));
	did(driver.context_retain(&contexts[0], 0));
	did(driver.context_enter(contexts[0]));
	did(driver.memory_info(&bytes, &bytes));
}

/* What a process gets from the one that started it, from its standard input. */
struct gift {
	struct driver_event_handle handle;
	bool is_waited_for;
};

/* The other process: reads what the first one copies to the GPU. */
static int be_the_other(int fd)
{
	driver_allocation allocation;
	struct driver_event *behind;
	driver_address memory;
	struct gift gift;
	struct driver_stream *out;

	start();
	must(read(0, &gift, sizeof(gift)) == sizeof(gift));
	did(driver.memory_import(&allocation, (void *)(uintptr_t)fd, DRIVER_DESCRIPTOR));
	close(fd);
	memory = map(allocation, MEMORY, 0);
	out = stream();
	did(driver.event_import(&behind, gift.handle));
	if (gift.is_waited_for)
		did(driver.stream_wait(out, behind, 0));
	did(driver.copy(in_host(BYTES), memory, BYTES, out));
	did(driver.stream_synchronize(out));
	must(is_all(host + BYTES, BYTES, 7));
	must(write(1, "", 1) == 1);
	(void)!read(0, &gift, 1);
	return 0;
}

static void play_two_processes(bool is_waited_for)
{
	struct two two = begin_two();
	struct driver_event *behind = event();
	struct gift gift = { .is_waited_for = is_waited_for };
	size_t before, bytes, total;
	struct other_process other;
	int fd;

	did(driver.event_record(behind, two.in));
	did(driver.event_export(&gift.handle, behind));
	did(driver.memory_export(&fd, two.allocation, DRIVER_DESCRIPTOR, 0));
	did(driver.memory_info(&before, &total));
	must(other_process_start(&other, fd) == 0);
	close(fd);
	must(write(other.in, &gift, sizeof(gift)) == sizeof(gift));
	must(read(other.out, &gift, 1) == 1);

	/* It has the memory now, also when it is gone here. */
	did(driver.stream_synchronize(two.in));
	did(driver.memory_unmap(two.memory, MEMORY));
	did(driver.memory_release(two.allocation));
	did(driver.memory_info(&bytes, &total));
	must(bytes == before);
	other_process_kill(&other);
	did(driver.memory_info(&bytes, &total));
	must(bytes == before + MEMORY);
}

static void another_process_waits(void)
{
	play_two_processes(true);
}

/* Plays a case, which ends well, or aborts with such a text. */
static void expect(void (*play)(void), const char *text)
{
	char said[4096] = "";
	size_t length = 0;
	ssize_t count;
	int ends[2], status;
	pid_t process;

	assert_int_equal(pipe(ends), 0);
	process = fork();
	assert_true(process >= 0);
	if (process == 0) {
		dup2(ends[1], 2);
		play();
		/* Not by _exit(), in which ThreadSanitizer waits for a second. */
		syscall(SYS_exit_group, 0);
	}
	close(ends[1]);
	while ((count = read(ends[0], said + length, sizeof(said) - 1 - length)) > 0)
		length += (size_t)count;
	close(ends[0]);
	assert_int_equal(waitpid(process, &status, 0), process);
	if (text ? !strstr(said, text) || status == 0 : said[0] || status != 0)
		fail_msg("status %x, expected %s: %s", (unsigned)status, text ? text : "success", said);
}

static void two_processes_do_not_wait(void)
{
	play_two_processes(false);
}

static void a_copy_that_waits_for_nothing_is_found(void **state)
{
	expect(nothing_waits, "race: ");
	expect(a_stream_waits_too_early, "race: ");
	expect(a_stream_waits_for_the_copy_before, "race: ");
	expect(a_copy_overwrites_what_is_read, "bytes 524288 to 1572864");
	expect(two_processes_do_not_wait, "race: ");
	expect(nothing_waits_for_a_kernel, "race: ");
	expect(a_kernel_waits_for_nothing,
	       "race: a kernel reads bytes 0 to 1048576, and another stream writes");
	expect(a_copy_does_not_wait_for_a_kernel, "race: a copy reads");
}

static void copies_that_wait_pass(void **state)
{
	expect(a_stream_waits, NULL);
	expect(the_program_waits, NULL);
	expect(the_program_looks_until, NULL);
	expect(nothing_has_to_wait, NULL);
	expect(another_process_waits, NULL);
	expect(a_stream_waits_for_a_kernel, NULL);
	expect(an_event_is_recorded_again, NULL);
	expect(memory_is_filled, NULL);
	expect(a_kernel_is_in_its_stream, NULL);
}

static void a_wrong_use_of_memory_is_found(void **state)
{
	expect(memory_is_new, NULL);
	expect(memory_is_unmapped_in_use, "GPU memory is unmapped while a stream may still use it");
	expect(host_memory_is_unregistered_in_use, "host memory is unregistered while a stream may");
	expect(memory_is_used_when_unmapped, "a copy uses GPU memory that is not mapped");
	expect(a_kernel_has_blocks_of_another_size, "kernel add of 32 threads is launched with 64");
	expect(a_kernel_uses_other_memory, "a kernel uses host memory that is not pinned");
	expect(a_module_is_unloaded_in_use, "a module is unloaded while a stream may still run its kernels");
	expect(memory_is_of_another_gpu, "a copy of GPU 0 uses memory that is not mapped for it");
}

static void limits_and_failures_are_the_drivers(void **state)
{
	expect(memory_is_bounded, NULL);
	expect(a_stream_is_of_another_context, NULL);
	expect(a_host_function_calls_the_driver, "a host function calls cuMemGetInfo_v2");
	expect(hidden_gpus_change_no_uuid, NULL);
	expect(calls_fail, NULL);
	expect(a_gpu_is_lost, NULL);
	expect(modules_are_the_drivers, NULL);
	expect(a_kernel_fails, NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_copy_that_waits_for_nothing_is_found),
		cmocka_unit_test(copies_that_wait_pass),
		cmocka_unit_test(a_wrong_use_of_memory_is_found),
		cmocka_unit_test(limits_and_failures_are_the_drivers),
	};

	if (argc > 1)
		return be_the_other(atoi(argv[1]));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
