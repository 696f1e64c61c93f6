#include "tests/bench/passes.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/size.h"

#define SHARE_UNIT UINT64_C(4096)
#define PIECE (256 * SHARE_UNIT) /* as a worker gets them */
#define MAX_THREADS 256

struct thread {
	pthread_t id;
	pthread_barrier_t *start;
	const struct pass *pass;
	size_t first, count;
	double seconds, rate;
};

/* Round and round through the thread's share. */
static void *run_thread(void *argument)
{
	struct thread *thread = argument;
	size_t done = 0, at = 0;
	uint64_t begin, now;

	pthread_barrier_wait(thread->start);
	begin = now = clock_now_ns();
	while ((double)(now - begin) < thread->seconds * 1e9) {
		size_t count = thread->count - at < PIECE ? thread->count - at : PIECE;

		thread->pass->run(thread->pass, thread->first + at, count);
		done += count;
		at = at + count == thread->count ? 0 : at + count;
		now = clock_now_ns();
	}
	thread->rate = (double)done / ((double)(now - begin) / 1e9);
	return NULL;
}

unsigned pass_threads(void)
{
	long count = sysconf(_SC_NPROCESSORS_ONLN);

	return count < 1 ? 1 : count > MAX_THREADS ? MAX_THREADS : (unsigned)count;
}

double pass_run(void *context, double seconds)
{
	struct thread threads[MAX_THREADS];
	unsigned count = pass_threads();
	size_t share = PASS_ELEMENTS / count / SHARE_UNIT * SHARE_UNIT;
	pthread_barrier_t start;
	double rate = 0;

	pthread_barrier_init(&start, NULL, count);
	for (unsigned i = 0; i < count; i++) {
		threads[i] = (struct thread){ .start = &start,
					      .pass = context,
					      .first = i * share,
					      .count = share,
					      .seconds = seconds };
		if (pthread_create(&threads[i].id, NULL, run_thread, &threads[i]) != 0)
			abort(); /* the others wait at the barrier for ever */
	}
	for (unsigned i = 0; i < count; i++) {
		pthread_join(threads[i].id, NULL);
		rate += threads[i].rate;
	}
	pthread_barrier_destroy(&start);
	return rate;
}

void *pass_allocate(size_t bytes)
{
	void *place;

	if (posix_memalign(&place, 2 * MIB, bytes) != 0) {
		fprintf(stderr, "not enough memory: %zu bytes\n", bytes);
		exit(EXIT_FAILURE);
	}
	(void)madvise(place, bytes, MADV_HUGEPAGE);
	return place;
}
