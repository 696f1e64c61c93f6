/* What processes share on a real GPU: memory by its descriptor, events both ways; and what is left of one
 * that is killed, or makes a mistake. What only a GPU can say is printed behind "asked:". */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "tests/gpu/hardware_engine.h"
#include "tests/unit/gpu/gpu_peer.h"

#define BYTES ((size_t)64 << 20)
#define NOBODY "65534"

/* ---- Processes, where there is no cmocka ---- */

static uint32_t spin_flags[1024] __attribute__((aligned(4096)));

static int give_up(const char *why)
{
	fprintf(stderr, "%s\n", why);
	return 1;
}

/* Maps memory by its descriptor, and overwrites its beginning with a kernel that takes a second. */
static int write_late(int fd)
{
	const struct driver_access access = { { DRIVER_ON_GPU, 0 }, DRIVER_READ_WRITE };
	struct hardware_spin spin = { .nanoseconds = 1000000000, .value = 0xdeadbeef };
	struct driver_stream *stream;
	driver_allocation allocation;

	hardware_enter();
	hardware_expect(hardware_driver.memory_import(&allocation, (void *)(uintptr_t)fd, DRIVER_DESCRIPTOR));
	hardware_expect(hardware_driver.address_reserve(&spin.to, BYTES, 0, 0, 0));
	hardware_expect(hardware_driver.memory_map(spin.to, BYTES, 0, allocation, 0));
	hardware_expect(hardware_driver.memory_allow(spin.to, BYTES, &access, 1));
	spin.flags = hardware_map(spin_flags, sizeof(spin_flags));
	hardware_expect(hardware_driver.stream_create(&stream, DRIVER_NO_STREAM_0));
	hardware_begin_spin(&spin, stream);
	while (*(volatile uint32_t *)spin_flags == 0)
		usleep(100);
	if (write(STDOUT_FILENO, "", 1) != 1)
		return give_up("nobody listens");
	hardware_expect(hardware_driver.stream_synchronize(stream));
	return write(STDOUT_FILENO, "", 1) == 1 ? 0 : give_up("nobody listens");
}

/* The engine gives memory back so, when the context of a GPU that was lost has gone; then it may be opened.
 */
static void ask_for_memory(driver_address address, driver_allocation allocation, size_t before)
{
	int released = hardware_driver.context_release(0), left = hardware_driver.context_enter(NULL);
	int unmapped = hardware_driver.memory_unmap(address, BYTES);
	int freed = hardware_driver.memory_release(allocation), entered;
	struct driver_context *context;
	size_t is_free = 0, unused;

	entered = hardware_driver.context_retain(&context, 0);
	if (entered == DRIVER_DONE)
		entered = hardware_driver.context_enter(context);
	if (entered == DRIVER_DONE)
		entered = hardware_driver.memory_info(&is_free, &unused);
	printf("asked: memory after its context (errors %d, %d): cuMemUnmap: error %d, cuMemRelease: error "
	       "%d; the GPU again: error %d, %zu of %zu MiB are free\n",
	       released, left, unmapped, freed, entered, is_free >> 20, before >> 20);
}

/* The engine takes a GPU for lost if cuMemGetInfo fails, too. */
static int make_mistake(const char *mistake)
{
	const struct driver_memory_kind kind = { .type = DRIVER_PINNED, .location = { DRIVER_ON_GPU, 0 } };
	driver_allocation allocation;
	driver_address address;
	size_t before, unused;
	int error, again;

	hardware_enter();
	hardware_expect(hardware_driver.memory_info(&before, &unused));
	hardware_expect(hardware_driver.memory_create(&allocation, BYTES, &kind, 0));
	hardware_expect(hardware_driver.address_reserve(&address, BYTES, 0, 0, 0));
	hardware_expect(hardware_driver.memory_map(address, BYTES, 0, allocation, 0));
	error = hardware_make_mistake(mistake);
	again = hardware_driver.memory_info(&unused, &unused);
	printf("asked: a kernel that goes wrong (%s): %s (error %d); then cuMemGetInfo: error %d\n", mistake,
	       driver_text(&hardware_driver, error), error, again);
	ask_for_memory(address, allocation, before);
	return error != DRIVER_DONE && again != DRIVER_DONE ? 0 : give_up("cuMemGetInfo does not repeat it");
}

static int run_process(char **argv)
{
	if (strcmp(argv[1], "mistake") == 0)
		return make_mistake(argv[2]);
	if (strcmp(argv[1], "late") == 0)
		return write_late(atoi(argv[2]));
	return gpu_peer_run(2, argv);
}

/* ---- A daemon and its client ---- */

static struct gpu_fixture fixture;
static struct gpu_engine *engine;
static struct gpu_memory memory;
static struct gpu_event behind, used;
static struct gpu_peer peer;
static unsigned char *host;

static void open_scene(void)
{
	engines_open(&fixture);
	engine = fixture.engines[0];
	host = host_new(BYTES);
	assert_int_equal(gpu_memory_create_now(engine, &memory, BYTES), 0);
	assert_int_equal(memory.bytes, BYTES);
}

static void close_scene(void)
{
	assert_int_equal(gpu_memory_destroy_now(engine, &memory), 0);
	munmap(host, BYTES);
	assert_int_equal(fixture.failures, 0);
	gpu_fixture_close(&fixture);
}

/* user: NULL: this one. */
static void open_peer(const char *user)
{
	unsigned char handle[1][GPU_HANDLE_BYTES];

	assert_int_equal(gpu_event_create_now(engine, &behind), 0);
	memcpy(handle[0], &behind.handle, GPU_HANDLE_BYTES);
	if (user)
		setenv("TEST_USER", user, 1);
	gpu_peer_start(&peer);
	unsetenv("TEST_USER");
	gpu_peer_map(&peer, memory.fd, memory.bytes, 1, handle);
	memcpy(&used.handle, peer.events[gpu_event_at(1)], GPU_HANDLE_BYTES);
	assert_int_equal(gpu_event_open_now(engine, &used), 0);
}

static void close_events(void)
{
	assert_int_equal(gpu_event_close_now(engine, &used), 0);
	assert_int_equal(gpu_event_close_now(engine, &behind), 0);
}

static void copy_in(unsigned char byte)
{
	memset(host, byte, BYTES);
	assert_int_equal(gpu_copy_now(engine, GPU_FROM_HOST, memory.address, host_address(host), BYTES), 0);
}

/* The peer's stream stands still, and then reads what the engine has copied. */
static void begin_read(unsigned char byte)
{
	struct test_copy copy;

	gpu_peer_hold(&peer, true);
	memset(host, byte, BYTES);
	test_copy_init(&copy, GPU_FROM_HOST, memory.address, host_address(host), BYTES);
	copy.copy.behind = &behind;
	gpu_copy_submit(engine, &copy.copy);
	while (copy.recorded == 0)
		gpu_reap_once(engine);
	gpu_peer_read(&peer, 0, 0);
	gpu_peer_record(&peer, 1);
	assert_int_equal(test_copy_wait(engine, &copy), 0);
}

static void submit_next(struct test_copy *next)
{
	memset(host, 8, BYTES);
	test_copy_init(next, GPU_FROM_HOST, memory.address, host_address(host), BYTES);
	next->copy.after = &used;
	gpu_copy_submit(engine, &next->copy);
}

static void copies_and_reads_wait_for_one_another(const char *user)
{
	unsigned char found[PEER_READ_BYTES], expected[PEER_READ_BYTES];
	struct test_copy next;

	open_scene();
	open_peer(user);
	begin_read(7);
	submit_next(&next);
	/* Others are not held up. */
	assert_int_equal(gpu_copy_now(fixture.engines[1], GPU_TO_HOST, host_address(host), memory.address, 1),
			 0);
	assert_int_equal(next.ending.count, 0);
	gpu_peer_hold(&peer, false);
	gpu_peer_look(&peer, found);
	memset(expected, 7, sizeof(expected));
	assert_memory_equal(found, expected, sizeof(found));
	assert_int_equal(test_copy_wait(engine, &next), 0);
	gpu_peer_end(&peer);
	close_events();
	close_scene();
}

static void processes_share_memory_and_events(void **state)
{
	copies_and_reads_wait_for_one_another(NULL);
}

/* Files of the driver that not all may write to are no matter of ours. */
static bool others_may(const char *path)
{
	struct stat status;

	return stat(path, &status) < 0 || (status.st_mode & 06) == 06;
}

static void processes_of_other_users_share_them_too(void **state)
{
	if (geteuid() != 0 || !others_may("/dev/nvidia0") || !others_may("/dev/nvidia-uvm")) {
		print_message(
			"skipped: only root can be another user, who must have leave to use /dev/nvidia*\n");
		skip();
	}
	copies_and_reads_wait_for_one_another(NOBODY);
}

/* ---- A client that is killed ---- */

static struct other_process start(const char *what, const char *with)
{
	int out[2];
	struct other_process other = { 0 };

	assert_int_equal(pipe(out), 0);
	fflush(stdout);
	other.process = fork();
	assert_true(other.process >= 0);
	if (other.process == 0) {
		dup2(out[1], STDOUT_FILENO);
		close(out[0]);
		execl("/proc/self/exe", "other", what, with, (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	other.in = dup(out[0]);
	other.out = out[0];
	return other;
}

/* What it had begun must not write when the memory is another's. */
static void a_kernel_of_a_killed_process_writes_no_more(void **state)
{
	struct other_process other;
	uint64_t begun_ns;
	char number[16], byte;
	int fd;

	open_scene();
	copy_in(1);
	fd = dup(memory.fd);
	snprintf(number, sizeof(number), "%d", fd);
	other = start("late", number);
	close(fd);
	assert_int_equal(read(other.out, &byte, 1), 1);
	begun_ns = clock_now_ns();
	other_process_kill(&other);
	print_message("asked: a process that is killed in a kernel has ended after %.0f ms\n",
		      (double)(clock_now_ns() - begun_ns) / 1e6);
	copy_in(2);
	/* Longer than the kernel would take: there is no event of something that does not happen. */
	usleep(1500000);
	assert_int_equal(gpu_copy_now(engine, GPU_TO_HOST, host_address(host), memory.address, BYTES), 0);
	for (size_t i = 0; i < BYTES; i++)
		assert_int_equal(host[i], 2);
	close_scene();
}

/* The same, to its end: so it would have written. */
static void a_kernel_of_another_process_writes(void **state)
{
	struct other_process other;
	char number[16], byte;
	uint32_t found = 0;
	int fd;

	open_scene();
	copy_in(1);
	fd = dup(memory.fd);
	snprintf(number, sizeof(number), "%d", fd);
	other = start("late", number);
	close(fd);
	assert_int_equal(read(other.out, &byte, 1), 1);
	assert_int_equal(read(other.out, &byte, 1), 1);
	assert_int_equal(
		gpu_copy_now(engine, GPU_TO_HOST, host_address(&found), memory.address, sizeof(found)), 0);
	assert_int_equal(found, 0xdeadbeef);
	other_process_kill(&other);
	close_scene();
}

static void ask_event(const char *when)
{
	int error = hardware_driver.event_query(used.event);

	print_message("asked: cuEventQuery of an event of a process %s: %s (error %d)\n", when,
		      driver_text(&hardware_driver, error), error);
}

/* Whatever the driver says of it, the engine goes on. */
static void an_event_of_a_killed_process_does_no_harm(void **state)
{
	struct test_copy next;

	open_scene();
	open_peer(NULL);
	begin_read(7);
	hardware_enter();
	ask_event("that is in a kernel");
	assert_int_equal(hardware_driver.event_query(used.event), DRIVER_NOT_READY);
	submit_next(&next);
	gpu_peer_end(&peer);
	ask_event("that was just killed");
	gpu_copy_cancel(engine, &next.copy);
	(void)test_copy_wait(engine, &next);
	print_message("asked: the copy that waited for it, cancelled: %s\n", strerror(-next.ending.status));
	ask_event("that is gone");
	copy_in(3);
	close_events();
	copy_in(4);
	assert_int_equal(gpu_event_create_now(engine, &behind), 0);
	assert_int_equal(gpu_event_close_now(engine, &behind), 0);
	close_scene();
}

static void memory_is_free_when_the_last_process_has_let_go(void **state)
{
	unsigned char found[PEER_READ_BYTES];
	struct gpu_memory next;
	size_t before;

	open_scene();
	open_peer(NULL);
	copy_in(7);
	before = gpu_free_bytes(&fixture);
	assert_int_equal(gpu_memory_destroy_now(engine, &memory), 0);
	assert_true(gpu_free_bytes(&fixture) < before + BYTES / 2);
	gpu_peer_read(&peer, 0, PEER_NO_EVENT);
	gpu_peer_look(&peer, found);
	assert_int_equal(found[0], 7);
	gpu_peer_end(&peer);
	assert_true(gpu_free_bytes(&fixture) >= before + BYTES);
	assert_int_equal(gpu_memory_create_now(engine, &next, BYTES), 0);
	memory = next;
	close_events();
	close_scene();
}

/* ---- Mistakes ---- */

static void an_event_that_is_none_is_refused(void **state)
{
	struct gpu_event none = { .handle = { .bytes = { 1 } } };

	open_scene();
	assert_true(gpu_event_open_now(engine, &none) < 0);
	print_message("asked: a handle that is none: %s\n", none.request.problem.text);
	copy_in(1);
	close_scene();
}

/* They are seen by the engine, and by nobody else. */
static void a_mistake_lasts_and_is_of_its_process_alone(void **state)
{
	open_scene();
	for (unsigned i = 0; hardware_mistakes[i]; i++) {
		struct other_process other = start("mistake", hardware_mistakes[i]);
		char said[512] = { 0 };
		int status;

		assert_true(read(other.out, said, sizeof(said) - 1) >= 0);
		print_message("%s", said);
		assert_int_equal(waitpid(other.process, &status, 0), other.process);
		assert_int_equal(status, 0);
		close(other.in);
		close(other.out);
		copy_in((unsigned char)i);
	}
	close_scene();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(processes_share_memory_and_events),
		cmocka_unit_test(processes_of_other_users_share_them_too),
		cmocka_unit_test(a_kernel_of_another_process_writes),
		cmocka_unit_test(a_kernel_of_a_killed_process_writes_no_more),
		cmocka_unit_test(an_event_of_a_killed_process_does_no_harm),
		cmocka_unit_test(memory_is_free_when_the_last_process_has_let_go),
		cmocka_unit_test(an_event_that_is_none_is_refused),
		cmocka_unit_test(a_mistake_lasts_and_is_of_its_process_alone),
	};

	if (argc > 1)
		return run_process(argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
