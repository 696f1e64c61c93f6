#include "common/workers.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "common/clock.h"

struct worker {
	struct workers *workers;
	pthread_t thread;
};

struct workers {
	pthread_mutex_t lock;
	pthread_cond_t is_wanted;
	struct queue waiting[WORK_URGENCIES];
	struct queue finished;
	bool is_stopping;
	int fd;
	unsigned count;
	unsigned busy;			   /* threads that have work */
	uint64_t busy_ns, busy_changed_ns; /* theirs, up to when their number has changed last */
	struct worker threads[];
};

static struct queue *pop_waiting(struct workers *workers)
{
	for (int urgency = 0; urgency < WORK_URGENCIES; urgency++) {
		struct queue *link = queue_pop(&workers->waiting[urgency]);

		if (link)
			return link;
	}
	return NULL;
}

/* With the lock held. The descriptor is written once per batch: the reader takes all that is there. */
static void finish(struct workers *workers, struct work *work)
{
	bool was_empty = queue_is_empty(&workers->finished);

	queue_push(&workers->finished, &work->link);
	if (was_empty)
		(void)!write(workers->fd, &(uint64_t){ 1 }, sizeof(uint64_t));
}

/* What it takes to look at the clock is the pay of those who want to know. */
static void run(struct work *work, unsigned number)
{
	if (!work->is_timed) {
		work->run(work);
		return;
	}
	work->worker = number;
	work->began_ns = clock_now_ns();
	work->run(work);
	work->ended_ns = clock_now_ns();
}

/* With the lock held. A thread that goes from work to work stays busy, and nobody looks at the clock. */
static void count_busy(struct workers *workers, int change)
{
	uint64_t now_ns = clock_now_ns();

	workers->busy_ns += workers->busy * (now_ns - workers->busy_changed_ns);
	workers->busy_changed_ns = now_ns;
	workers->busy += (unsigned)change;
}

static void wait_for_work(struct workers *workers, bool *is_busy)
{
	if (*is_busy)
		count_busy(workers, -1);
	*is_busy = false;
	pthread_cond_wait(&workers->is_wanted, &workers->lock);
}

static void *work_until_stopped(void *argument)
{
	const struct worker *worker = argument;
	struct workers *workers = worker->workers;
	bool is_busy = false;

	pthread_mutex_lock(&workers->lock);
	for (;;) {
		struct queue *link = pop_waiting(workers);

		if (!link && workers->is_stopping)
			break;
		if (!link) {
			wait_for_work(workers, &is_busy);
			continue;
		}
		if (!is_busy)
			count_busy(workers, 1);
		is_busy = true;
		struct work *work = queue_entry(link, struct work, link);

		pthread_mutex_unlock(&workers->lock);
		run(work, (unsigned)(worker - workers->threads));
		pthread_mutex_lock(&workers->lock);
		finish(workers, work);
	}
	pthread_mutex_unlock(&workers->lock);
	return NULL;
}

static int start_thread(struct workers *workers, const char *name)
{
	char thread_name[16];
	struct worker *worker = &workers->threads[workers->count];
	int r;

	worker->workers = workers;
	r = pthread_create(&worker->thread, NULL, work_until_stopped, worker);
	if (r != 0)
		return -r;
	snprintf(thread_name, sizeof(thread_name), "%s-%u", name, workers->count);
	pthread_setname_np(worker->thread, thread_name);
	workers->count++;
	return 0;
}

int workers_new(unsigned count, const char *name, struct workers **ret_workers)
{
	_cleanup_(workers_freep) struct workers *workers = NULL;
	sigset_t all, previous;
	int r = 0;

	if (count == 0)
		return -EINVAL;
	workers = calloc(1, sizeof(*workers) + count * sizeof(workers->threads[0]));
	if (!workers)
		return -ENOMEM;
	pthread_mutex_init(&workers->lock, NULL);
	pthread_cond_init(&workers->is_wanted, NULL);
	for (int urgency = 0; urgency < WORK_URGENCIES; urgency++)
		queue_init(&workers->waiting[urgency]);
	queue_init(&workers->finished);
	workers->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (workers->fd < 0)
		return -errno;

	/* Threads inherit the mask: signals are the loop's. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &previous);
	while (r == 0 && workers->count < count)
		r = start_thread(workers, name);
	pthread_sigmask(SIG_SETMASK, &previous, NULL);
	if (r < 0)
		return r;

	*ret_workers = TAKE_PTR(workers);
	return 0;
}

struct workers *workers_free(struct workers *workers)
{
	if (!workers)
		return NULL;
	pthread_mutex_lock(&workers->lock);
	workers->is_stopping = true;
	pthread_cond_broadcast(&workers->is_wanted);
	pthread_mutex_unlock(&workers->lock);
	for (unsigned i = 0; i < workers->count; i++)
		pthread_join(workers->threads[i].thread, NULL);
	fd_close(workers->fd);
	pthread_cond_destroy(&workers->is_wanted);
	pthread_mutex_destroy(&workers->lock);
	free(workers);
	return NULL;
}

unsigned workers_count(const struct workers *workers)
{
	return workers->count;
}

uint64_t workers_busy_ns(struct workers *workers)
{
	uint64_t busy_ns;

	pthread_mutex_lock(&workers->lock);
	count_busy(workers, 0);
	busy_ns = workers->busy_ns;
	pthread_mutex_unlock(&workers->lock);
	return busy_ns;
}

void workers_submit(struct workers *workers, struct work *work)
{
	if (work->is_brief)
		run(work, workers->count);
	pthread_mutex_lock(&workers->lock);
	if (work->is_brief) {
		finish(workers, work);
	} else {
		queue_push(&workers->waiting[work->urgency], &work->link);
		pthread_cond_signal(&workers->is_wanted);
	}
	pthread_mutex_unlock(&workers->lock);
}

int workers_fd(const struct workers *workers)
{
	return workers->fd;
}

void workers_reap(struct workers *workers)
{
	struct queue finished, *link;
	uint64_t ignored;

	queue_init(&finished);
	pthread_mutex_lock(&workers->lock);
	(void)!read(workers->fd, &ignored, sizeof(ignored));
	while ((link = queue_pop(&workers->finished)))
		queue_push(&finished, link);
	pthread_mutex_unlock(&workers->lock);

	while ((link = queue_pop(&finished))) {
		struct work *work = queue_entry(link, struct work, link);

		work->done(work);
	}
}
