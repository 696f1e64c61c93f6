/* Each allocation fails in turn from the moment that ranks ask for their GPUs until what they have pushed is
 * summed, by the GPU that they share or by two that exchange: each is answered, what is summed is right,
 * wherever that was done, and others train afterwards. */
#include <event2/event.h>
#include <stdlib.h>

#include "tests/fault/alloc_fault.h"
#include "tests/unit/gpu/gpu_crew.h"
#include "tests/unit/test.h"

static const struct crew sharing = { .ranks = 2, .stage = 2, .gpus = { 0, 0 } };

/* Through functions of this program, so that they are counted: --wrap does not see into the library. */
static void *counted_malloc(size_t size)
{
	return malloc(size);
}

static void *counted_realloc(void *pointer, size_t size)
{
	return realloc(pointer, size);
}

static bool exchanges(void)
{
	return crew->gpus[0] != crew->gpus[1];
}

/* Until the exchange is there, or has failed for good. */
static void await_exchange(void)
{
	crew_learn_order();
	while (!crew_exchange() || crew_exchange()->state < EXCHANGE_READY)
		scene_wait(&scene);
}

/* What a rank has got no memory on a GPU for, it pushes from host memory. */
static int attach_and_push(void)
{
	int attached[2], r = 0;
	uint32_t numbers[2];

	for (unsigned rank = 0; rank < 2; rank++)
		attached[rank] = crew_try_to_attach(rank);
	if (exchanges() && attached[0] == 0 && attached[1] == 0)
		await_exchange();
	for (unsigned rank = 0; rank < 2; rank++)
		numbers[rank] = attached[rank] == 0 ? crew_push(rank, HALVES, 0)
						    : crew_push_from_host(rank, HALVES, 0);
	for (unsigned rank = 0; rank < 2; rank++) {
		int status = actor_await(&crew_actors[rank], numbers[rank], 0)->status;

		r = r < 0 ? r : status;
	}
	return r;
}

static void enter(void)
{
	for (unsigned rank = 0; rank < crew->ranks; rank++)
		crew_enter(rank);
	crew_get_ready();
}

/* In good order: what one that dies has left on its GPU is waited for. */
static void leave(void)
{
	for (unsigned rank = 0; rank < crew->ranks; rank++) {
		struct actor *actor = &crew_actors[rank];

		assert_int_equal(actor_await(actor, actor_send_leave(actor, true), 0)->status, 0);
		actor_die(actor);
	}
}

/* Nothing of those that failed is in the way of these. */
static void expect_that_others_sum(void)
{
	leave();
	enter();
	for (unsigned rank = 0; rank < crew->ranks; rank++)
		crew_attach(rank);
	crew_push_all(HALVES, 0);
	crew_expect(HALVES, 1);
}

static void survive(const struct crew *whom)
{
	bool has_tripped = true;

	for (unsigned nth = alloc_fault_first(); has_tripped; nth += alloc_fault_stride()) {
		int r;

		assert_int_equal(crew_setup(NULL), 0);
		crew = whom;
		crew_set_node();
		enter();
		alloc_fault_arm(nth);
		r = attach_and_push();
		has_tripped = alloc_fault_tripped();
		if (r == 0)
			crew_expect(HALVES, 1);
		if (has_tripped) {
			expect_that_others_sum();
		} else {
			assert_int_equal(r, 0);
			assert_int_equal(gpu_summed_bytes(scene_job(NULL)), 2 * crew_bytes(HALVES));
		}
		leave();
		assert_int_equal(crew_teardown(NULL), 0);
	}
}

static void sums_by_a_gpu_survive(void **state)
{
	survive(&sharing);
}

static void sums_by_two_gpus_survive(void **state)
{
	survive(&crew_pair);
}

static int setup(void **state)
{
	event_set_mem_functions(counted_malloc, counted_realloc, free);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_by_a_gpu_survive),
		cmocka_unit_test(sums_by_two_gpus_survive),
	};

	if (argc > 1)
		return gpu_peer_run(argc, argv);
	return cmocka_run_group_tests(tests, setup, NULL);
}
