/* Each allocation of a communicator fails in turn, until a run needs no more of them. */
#include "collectives/nccl/communicator.h"
#include "tests/fault/alloc_fault.h"
#include "tests/unit/test.h"

/* On one GPU, so that nothing is allocated but by us. */
static int make(void)
{
	const unsigned member_of_rank[] = { 0, 0, 0 };
	const struct communicator_member member = { .gpu = 0 };
	const struct communicator_gpu_ops ops = { NULL };
	const struct communicator_options options = { .job = "gpt",
						      .rank_count = 3,
						      .member_count = 1,
						      .member_of_rank = member_of_rank,
						      .local_count = 1,
						      .members = &member,
						      .ops = &ops };
	struct communicator *communicator = NULL;
	int r = communicator_new(&options, 0, &communicator);

	assert_int_equal(communicator == NULL, r < 0);
	if (communicator) {
		communicator_abort(communicator, "the test is over");
		assert_int_equal(communicator_poll(communicator, 0), UINT64_MAX);
	}
	communicator_free(communicator);
	return r;
}

static void communicator_new_survives(void **state)
{
	assert_true(alloc_fault_each(make) > COMMUNICATOR_QUEUE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(communicator_new_survives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
