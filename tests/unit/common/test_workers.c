#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>

#include "common/clock.h"
#include "common/workers.h"
#include "tests/unit/test.h"

#define TASKS 200

struct task {
	struct work work;
	bool is_held; /* it posts started, and waits for gate */
	struct workers *workers;
	unsigned resubmissions;
	unsigned run_place; /* when it ran, among all; 0: not yet */
	unsigned done_count;
	pthread_t runner, finisher;
};

static atomic_uint places;
static sem_t started, gate;

static void task_run(struct work *work)
{
	struct task *task = container_of(work, struct task, work);

	task->runner = pthread_self();
	if (task->is_held) {
		sem_post(&started);
		sem_wait(&gate);
	}
	task->run_place = atomic_fetch_add(&places, 1) + 1;
}

static void task_done(struct work *work)
{
	struct task *task = container_of(work, struct task, work);

	task->finisher = pthread_self();
	task->done_count++;
	if (task->resubmissions > 0) {
		task->resubmissions--;
		workers_submit(task->workers, work);
	}
}

static void submit(struct workers *workers, struct task *task, enum work_urgency urgency)
{
	task->work = (struct work){ .run = task_run, .done = task_done, .urgency = urgency };
	task->workers = workers;
	workers_submit(workers, &task->work);
}

static bool is_readable(struct workers *workers, int timeout_ms)
{
	struct pollfd waiting = { .fd = workers_fd(workers), .events = POLLIN };

	return poll(&waiting, 1, timeout_ms) == 1;
}

static unsigned done_in_all(const struct task *tasks, unsigned count)
{
	unsigned done = 0;

	for (unsigned i = 0; i < count; i++)
		done += tasks[i].done_count;
	return done;
}

static void reap_until(struct workers *workers, const struct task *tasks, unsigned count, unsigned wanted)
{
	while (done_in_all(tasks, count) < wanted) {
		assert_true(is_readable(workers, -1));
		workers_reap(workers);
	}
}

static struct workers *start(unsigned count)
{
	struct workers *workers = NULL;

	atomic_store(&places, 0);
	sem_init(&started, 0, 0);
	sem_init(&gate, 0, 0);
	assert_int_equal(workers_new(count, "test", &workers), 0);
	assert_int_equal(workers_count(workers), count);
	return workers;
}

static void no_workers_are_refused(void **state)
{
	struct workers *untouched = (struct workers *)&places, *workers = untouched;

	assert_int_equal(workers_new(0, "test", &workers), -EINVAL);
	assert_ptr_equal(workers, untouched);
	assert_null(workers_free(NULL));
}

static void work_runs_on_a_worker_and_ends_on_the_reaper(void **state)
{
	_cleanup_(workers_freep) struct workers *workers = start(1);
	struct task task = { .is_held = false };

	submit(workers, &task, WORK_NORMAL);
	assert_true(is_readable(workers, -1));
	assert_int_equal(task.done_count, 0);
	workers_reap(workers);
	assert_int_equal(task.done_count, 1);
	assert_int_equal(task.run_place, 1);
	assert_false(pthread_equal(task.runner, pthread_self()));
	assert_true(pthread_equal(task.finisher, pthread_self()));
	assert_false(is_readable(workers, 0));
}

/* One worker, held by a first task until all the others are queued. */
static void the_urgent_start_first_and_each_urgency_in_order(void **state)
{
	_cleanup_(workers_freep) struct workers *workers = start(1);
	struct task tasks[7] = { 0 };

	tasks[0].is_held = true;
	submit(workers, &tasks[0], WORK_NORMAL);
	sem_wait(&started);
	for (int i = 1; i < 4; i++)
		submit(workers, &tasks[i], WORK_NORMAL);
	for (int i = 4; i < 7; i++)
		submit(workers, &tasks[i], WORK_URGENT);
	sem_post(&gate);
	reap_until(workers, tasks, 7, 7);

	for (unsigned i = 1; i < 4; i++)
		assert_int_equal(tasks[i].run_place, i + 4);
	for (unsigned i = 4; i < 7; i++)
		assert_int_equal(tasks[i].run_place, i - 2);
}

static void workers_run_at_the_same_time(void **state)
{
	_cleanup_(workers_freep) struct workers *workers = start(3);
	struct task tasks[3] = { 0 };

	for (int i = 0; i < 3; i++) {
		tasks[i].is_held = true;
		submit(workers, &tasks[i], WORK_NORMAL);
	}
	for (int i = 0; i < 3; i++)
		sem_wait(&started);
	for (int i = 0; i < 3; i++)
		sem_post(&gate);
	reap_until(workers, tasks, 3, 3);
}

static void done_may_submit_again(void **state)
{
	_cleanup_(workers_freep) struct workers *workers = start(2);
	struct task tasks[TASKS] = { 0 };

	for (unsigned i = 0; i < TASKS; i++) {
		tasks[i].resubmissions = 4;
		submit(workers, &tasks[i], i % 2 ? WORK_URGENT : WORK_NORMAL);
	}
	reap_until(workers, tasks, TASKS, 5 * TASKS);
	for (unsigned i = 0; i < TASKS; i++)
		assert_int_equal(tasks[i].done_count, 5);
	assert_int_equal(atomic_load(&places), 5 * TASKS);
}

static void freeing_finishes_what_is_queued_without_done(void **state)
{
	struct workers *workers = start(1);
	struct task tasks[TASKS] = { 0 };

	tasks[0].is_held = true;
	for (unsigned i = 0; i < TASKS; i++)
		submit(workers, &tasks[i], WORK_NORMAL);
	sem_wait(&started);
	sem_post(&gate);
	assert_null(workers_free(workers));
	for (unsigned i = 0; i < TASKS; i++) {
		assert_int_equal(tasks[i].run_place, i + 1);
		assert_int_equal(tasks[i].done_count, 0);
	}
}

struct signal_task {
	struct work work;
	sigset_t mask;
	bool is_done;
};

static void signal_task_run(struct work *work)
{
	pthread_sigmask(SIG_BLOCK, NULL, &container_of(work, struct signal_task, work)->mask);
}

static void signal_task_done(struct work *work)
{
	container_of(work, struct signal_task, work)->is_done = true;
}

static void signals_stay_with_the_loop(void **state)
{
	_cleanup_(workers_freep) struct workers *workers = start(1);
	struct signal_task task = { .work = { .run = signal_task_run, .done = signal_task_done } };
	sigset_t own;

	workers_submit(workers, &task.work);
	while (!task.is_done) {
		assert_true(is_readable(workers, -1));
		workers_reap(workers);
	}
	assert_int_equal(sigismember(&task.mask, SIGTERM), 1);
	assert_int_equal(sigismember(&task.mask, SIGINT), 1);
	pthread_sigmask(SIG_BLOCK, NULL, &own);
	assert_int_equal(sigismember(&own, SIGTERM), 0);
}

static void a_worker_says_when_it_ran_what_is_timed(void **state)
{
	_cleanup_(workers_freep) struct workers *workers = start(3);
	struct signal_task tasks[2] = {
		{ .work = { .run = signal_task_run, .done = signal_task_done, .is_timed = true } },
		{ .work = { .run = signal_task_run, .done = signal_task_done } },
	};
	uint64_t before = clock_now_ns();

	for (unsigned i = 0; i < 2; i++)
		workers_submit(workers, &tasks[i].work);
	while (!tasks[0].is_done || !tasks[1].is_done) {
		assert_true(is_readable(workers, -1));
		workers_reap(workers);
	}
	assert_in_range(tasks[0].work.worker, 0, 2);
	assert_in_range(tasks[0].work.began_ns, before, tasks[0].work.ended_ns);
	assert_in_range(tasks[0].work.ended_ns, tasks[0].work.began_ns, clock_now_ns());
	assert_int_equal(tasks[1].work.began_ns, 0);
}

static void brief_work_runs_where_it_is_submitted(void **state)
{
	_cleanup_(workers_freep) struct workers *workers = start(1);
	struct task task = { .workers = workers };

	task.work = (struct work){ .run = task_run, .done = task_done, .is_brief = true, .is_timed = true };
	workers_submit(workers, &task.work);
	assert_int_equal(task.run_place, 1);
	assert_true(pthread_equal(task.runner, pthread_self()));
	assert_int_equal(task.work.worker, workers_count(workers));
	/* As of any other work, its end comes later. */
	assert_int_equal(task.done_count, 0);
	assert_true(is_readable(workers, 0));
	workers_reap(workers);
	assert_int_equal(task.done_count, 1);
	assert_false(is_readable(workers, 0));
}

static uint64_t busy_ns_of_those_who_wait(struct workers *workers)
{
	uint64_t busy_ns = workers_busy_ns(workers), last;

	/* They wait a little after their last work is done. */
	do {
		last = busy_ns;
		busy_ns = workers_busy_ns(workers);
	} while (busy_ns != last);
	return busy_ns;
}

static void workers_are_busy_while_they_have_work(void **state)
{
	_cleanup_(workers_freep) struct workers *workers = start(3);
	struct task tasks[2] = { 0 };
	uint64_t began_ns, ended_ns, busy_ns;

	assert_int_equal(workers_busy_ns(workers), 0);
	for (unsigned i = 0; i < 2; i++) {
		tasks[i].is_held = true;
		submit(workers, &tasks[i], WORK_NORMAL);
	}
	for (unsigned i = 0; i < 2; i++)
		sem_wait(&started);
	busy_ns = workers_busy_ns(workers);
	began_ns = clock_now_ns();
	ended_ns = clock_now_ns();
	assert_true(workers_busy_ns(workers) - busy_ns >= 2 * (ended_ns - began_ns));
	for (unsigned i = 0; i < 2; i++)
		sem_post(&gate);
	reap_until(workers, tasks, 2, 2);
	busy_ns = busy_ns_of_those_who_wait(workers);
	assert_int_equal(workers_busy_ns(workers), busy_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_workers_are_refused),
		cmocka_unit_test(work_runs_on_a_worker_and_ends_on_the_reaper),
		cmocka_unit_test(the_urgent_start_first_and_each_urgency_in_order),
		cmocka_unit_test(workers_run_at_the_same_time),
		cmocka_unit_test(done_may_submit_again),
		cmocka_unit_test(freeing_finishes_what_is_queued_without_done),
		cmocka_unit_test(signals_stay_with_the_loop),
		cmocka_unit_test(a_worker_says_when_it_ran_what_is_timed),
		cmocka_unit_test(brief_work_runs_where_it_is_submitted),
		cmocka_unit_test(workers_are_busy_while_they_have_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
