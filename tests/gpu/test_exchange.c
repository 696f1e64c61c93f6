/* Packs that come to two real GPUs by parts: NCCL between them, on memory that processes share. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "common/clock.h"
#include "daemon/gpu/exchange_thread.h"
#include "tests/gpu/hardware_engine.h"

#define GPUS 2
#define MIB ((size_t)1 << 20)
#define BYTES (64 * MIB)
#define SECOND UINT64_C(1000000000)

static struct gpus gpus;
static struct gpu_engine *engines[GPUS];
static struct gpu_memory memories[GPUS];
static struct gpu_pin pin;
static unsigned char *host, *back;
static struct exchange_thread *thread;

static int open_all(void **state)
{
	struct gpu_problem problem;

	host = host_new(BYTES);
	back = host_new(BYTES);
	host_fill(host, BYTES, 1);
	for (unsigned i = 0; i < GPUS; i++) {
		const struct gpu_engine_config config = { .gpus = &gpus, .gpu = i };

		assert_int_equal(gpu_engine_new(&config, &problem, &engines[i]), 0);
		assert_int_equal(gpu_memory_create_now(engines[i], &memories[i], BYTES), 0);
	}
	assert_int_equal(gpu_pin_add_now(engines[0], &pin, host, BYTES), 0);
	assert_int_equal(exchange_thread_new(&thread), 0);
	return 0;
}

static int close_all(void **state)
{
	exchange_thread_free(thread);
	assert_int_equal(gpu_pin_remove_now(engines[0], &pin), 0);
	for (unsigned i = 0; i < GPUS; i++) {
		assert_int_equal(gpu_memory_destroy_now(engines[i], &memories[i]), 0);
		gpu_engine_free(engines[i]);
	}
	munmap(host, BYTES);
	munmap(back, BYTES);
	return 0;
}

/* ---- The thread ---- */

static bool is_ready, is_done, has_ended;
static int status;

static void on_ready(struct exchange_group *group)
{
	is_ready = true;
}

static void on_failed(struct exchange_group *group, const char *problem)
{
	fail_msg("%s", problem);
}

static void on_ended(struct exchange_group *group)
{
	has_ended = true;
}

static void on_done(struct exchange_operation *operation, int result)
{
	is_done = true;
	status = result;
}

static void await(const bool *what)
{
	struct pollfd results = { .fd = exchange_thread_fd(thread), .events = POLLIN };

	while (!*what) {
		assert_int_equal(poll(&results, 1, 60000), 1);
		exchange_thread_reap(thread);
	}
}

static struct exchange_group group;
static struct communicator_request requests[GPUS];
static struct exchange_operation operation;

static void begin(void)
{
	static const unsigned member_of_rank[GPUS] = { 0, 1 };

	is_ready = has_ended = false;
	group = (struct exchange_group){ .job = "gpt",
					 .rank_count = GPUS,
					 .member_count = GPUS,
					 .member_of_rank = member_of_rank,
					 .timeout_ns = 60 * SECOND,
					 .ready = on_ready,
					 .failed = on_failed,
					 .ended = on_ended };
	for (unsigned i = 0; i < GPUS; i++)
		group.members[i] = (struct exchange_member){
			.gpu = i, .engine = engines[i], .memory = memories[i].address, .bytes = BYTES
		};
	exchange_begin(thread, &group);
	await(&is_ready);
}

static void gather(void)
{
	static const uint64_t bounds[GPUS + 1] = { 0, BYTES / 2, BYTES };

	is_done = false;
	for (unsigned i = 0; i < GPUS; i++)
		requests[i] =
			(struct communicator_request){ .array = (void *)(uintptr_t)memories[i].address };
	operation = (struct exchange_operation){
		.group = &group,
		.what = { .kind = COMMUNICATOR_ALL_GATHER, .name = "layer 7", .bounds = bounds },
		.requests = requests,
		.done = on_done
	};
	exchange_submit(&operation);
}

static void end(void)
{
	exchange_end(&group);
	await(&has_ended);
}

/* ---- Copies to all of them at once ---- */

static void copy(size_t bytes, bool is_part)
{
	struct test_copy copies[GPUS];

	for (unsigned i = 0; i < GPUS; i++) {
		size_t first = is_part ? i * bytes : 0;

		test_copy_init(&copies[i], GPU_FROM_HOST, memories[i].address + first,
			       host_address(host) + first, bytes);
		gpu_copy_submit(engines[i], &copies[i].copy);
	}
	for (unsigned i = 0; i < GPUS; i++)
		assert_int_equal(test_copy_wait(engines[i], &copies[i]), 0);
}

static void expect_all_there(void)
{
	for (unsigned i = 0; i < GPUS; i++) {
		memset(back, 0, BYTES);
		assert_int_equal(
			gpu_copy_now(engines[i], GPU_TO_HOST, host_address(back), memories[i].address, BYTES),
			0);
		assert_memory_equal(back, host, BYTES);
	}
}

/* ---- Tests ---- */

static void parts_come_together(void **state)
{
	uint64_t shared_ns = UINT64_MAX, plain_ns = UINT64_MAX;

	begin();
	for (unsigned round = 0; round < 8; round++) {
		uint64_t began_ns = clock_now_ns(), took_ns;

		copy(BYTES / GPUS, true);
		gather();
		await(&is_done);
		assert_int_equal(status, 0);
		took_ns = clock_now_ns() - began_ns;
		shared_ns = took_ns < shared_ns ? took_ns : shared_ns;
		expect_all_there();

		began_ns = clock_now_ns();
		copy(BYTES, false);
		took_ns = clock_now_ns() - began_ns;
		plain_ns = took_ns < plain_ns ? took_ns : plain_ns;
	}
	end();
	printf("asked: 64 MiB to two GPUs: by parts in %.2f ms, all by each in %.2f ms\n",
	       (double)shared_ns / 1e6, (double)plain_ns / 1e6);
}

/* NCCL has its kernels on both GPUs, or is about to. */
static void what_is_under_way_is_aborted(void **state)
{
	for (unsigned round = 0; round < 4; round++) {
		uint64_t began_ns;

		begin();
		for (unsigned again = 0; again < round; again++) {
			gather();
			await(&is_done);
		}
		gather();
		began_ns = clock_now_ns();
		end();
		assert_true(is_done && (status == 0 || status == -ECANCELED));
		printf("asked: aborted in %.1f ms\n", (double)(clock_now_ns() - began_ns) / 1e6);
	}
	copy(BYTES, false);
	expect_all_there();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(parts_come_together, open_all, close_all),
		cmocka_unit_test_setup_teardown(what_is_under_way_is_aborted, open_all, close_all),
	};
	struct dynamic_library library = { 0 };
	const char *why = hardware_find();
	struct nccl nccl;

	if (!why && !nccl_open(&nccl, &library))
		why = library.problem;
	if (!why)
		gpus_find(&gpus);
	if (!why && gpus.count < GPUS)
		why = "no second GPU";
	if (why) {
		printf("skipped: %s\n", why);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
