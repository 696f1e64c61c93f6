/* Each allocation of the thread that drives communicators, and of one that it makes, fails in turn, until a
 * run needs no more of them. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "daemon/gpu/exchange_thread.h"
#include "tests/fault/alloc_fault.h"
#include "tests/unit/cuda/gpu_support.h"

static struct gpu_fixture fixture;
static struct exchange_thread *thread;
static unsigned ready, failed, ended;

static void on_ready(struct exchange_group *group)
{
	ready++;
}

static void on_failed(struct exchange_group *group, const char *problem)
{
	assert_non_null(strstr(problem, strerror(ENOMEM)));
	failed++;
}

static void on_ended(struct exchange_group *group)
{
	ended++;
}

static void reap(void)
{
	struct pollfd results = { .fd = exchange_thread_fd(thread), .events = POLLIN };

	assert_int_equal(poll(&results, 1, 60000), 1);
	exchange_thread_reap(thread);
}

static int make(void)
{
	static const unsigned member_of_rank[] = { 0, 1 };
	struct exchange_group group = { .job = "gpt",
					.rank_count = 2,
					.member_count = 2,
					.member_of_rank = member_of_rank,
					.members = { { .gpu = 0, .engine = fixture.engines[0] },
						     { .gpu = 1, .engine = fixture.engines[1] } },
					.timeout_ns = UINT64_C(60000000000),
					.ready = on_ready,
					.failed = on_failed,
					.ended = on_ended };
	int r = exchange_thread_new(&thread);

	if (r < 0)
		return r;
	ready = failed = ended = 0;
	exchange_begin(thread, &group);
	while (ready + failed == 0)
		reap();
	exchange_end(&group);
	while (ended == 0)
		reap();
	thread = exchange_thread_free(thread);
	assert_null(thread);
	return failed > 0 ? -ENOMEM : 0;
}

static void an_exchange_survives(void **state)
{
	gpu_fixture_open(&fixture);
	assert_true(alloc_fault_each(make) > COMMUNICATOR_QUEUE);
	gpu_fixture_close(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_exchange_survives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
