/* Large memory is given back off the loop: it is still there as long as the thread that does so is busy, and
 * the loop goes on meanwhile. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "daemon/resources/disposal.h"
#include "daemon/gradients/own.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

static struct actor first, second;
static struct blockade blockade;

static void open_rank(struct actor *actor, uint32_t rank)
{
	const struct actor_tensor tensor = { "w", FORMAT_FP32, INITIALIZE_ONES, 1000, false };
	const struct actor_job job = { .stage = 2, .rank = rank, .world_size = 2 };

	assert_int_equal(actor_enter(&scene, actor), 0);
	assert_int_equal(actor_open(actor, &job), 0);
	assert_int_equal(actor_define(actor, "unit", &tensor, 1), 0);
}

static struct job *start_two(void)
{
	uint32_t ready;

	open_rank(&first, 0);
	open_rank(&second, 1);
	ready = actor_send_ready(&first, -1);
	assert_int_equal(actor_ready(&second), 0);
	assert_int_equal(actor_finish_ready(&first, ready), 0);
	return job_find(scene.node, geteuid(), "play");
}

static bool is_mapped(const void *address)
{
	return msync((void *)(uintptr_t)address, 4096, MS_ASYNC) == 0 || errno != ENOMEM;
}

static void gradients_of_a_rank_that_dies_are_unmapped_off_the_loop(void **state)
{
	const void *gradients = start_two()->members.ranks[1]->gradients.base;

	blockade_begin(&scene, scene.node->slow_workers, &blockade);
	actor_die(&second);
	scene_settle(&scene);
	assert_true(is_mapped(gradients));
	/* Nobody waits for it. */
	assert_int_equal(first.ended_epochs, 1);
	open_rank(&second, 1);
	blockade_end(&blockade);
	scene_await_disposals(&scene);
	assert_false(is_mapped(gradients));
}

static void spare_buffers_of_a_job_that_ends_are_unmapped_off_the_loop(void **state)
{
	struct job *job = start_two();
	const void *spare =
		queue_entry(queue_first(&job->gradients->all_spares), struct spare_buffer, all_link)
			->memory.base;

	actor_die(&first);
	actor_die(&second);
	blockade_begin(&scene, scene.node->slow_workers, &blockade);
	job_drop(job);
	scene_settle(&scene);
	assert_true(is_mapped(spare));
	blockade_end(&blockade);
	scene_await_disposals(&scene);
	assert_false(is_mapped(spare));
}

/* A page of ones that somebody keeps open. */
static int dispose_of_a_page(void)
{
	struct memory memory = MEMORY_INIT;
	int fd;

	assert_int_equal(memory_new_shared("page", 4096, &memory), 0);
	memset(memory.base, 1, 4096);
	fd = memory_client_fd(&memory, MEMORY_READ_ONLY);
	assert_true(fd >= 0);
	disposal_start_shared(scene.node, 1000, true, &memory);
	scene_await_disposals(&scene);
	return fd;
}

static char first_byte(int fd)
{
	char byte;

	assert_int_equal(pread(fd, &byte, 1, 0), 1);
	return byte;
}

static void nobody_withholds_any_number_of_pieces(void **state)
{
	int fds[DISPOSAL_WITHHELD_MOST + 1];

	for (unsigned i = 0; i < ARRAY_LENGTH(fds); i++)
		fds[i] = dispose_of_a_page();
	assert_int_equal(disposal_withheld(scene.node, 1000).bytes, DISPOSAL_WITHHELD_MOST * 4096);
	assert_int_equal(first_byte(fds[0]), 1);
	assert_int_equal(first_byte(fds[DISPOSAL_WITHHELD_MOST]), 0);
	for (unsigned i = 0; i < ARRAY_LENGTH(fds); i++)
		fd_close(fds[i]);
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(gradients_of_a_rank_that_dies_are_unmapped_off_the_loop),
		TEST(spare_buffers_of_a_job_that_ends_are_unmapped_off_the_loop),
		TEST(nobody_withholds_any_number_of_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
