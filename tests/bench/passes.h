/* A pass is a kernel that goes over ranges of arrays far larger than any cache, on all processors at once. */
#ifndef TIERD_TESTS_BENCH_PASSES_H
#define TIERD_TESTS_BENCH_PASSES_H

#include <stddef.h>
#include <stdint.h>

/* Of each array: a multiple of what the threads divide it by. */
#define PASS_ELEMENTS (UINT64_C(24) << 20)

struct pass {
	/* Elements first … first + count - 1; count is a multiple of 4096. */
	void (*run)(const struct pass *pass, size_t first, size_t count);
};

unsigned pass_threads(void);

/* A side of a comparison, whose context is a struct pass. Elements per second of all threads. */
double pass_run(void *context, double seconds);

/* Of huge pages; ends the program if there is not enough. */
void *pass_allocate(size_t bytes);

#endif
