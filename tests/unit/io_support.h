/* What the tests of offload's I/O share: a scratch directory, and a loop that waits for what was submitted.
 */
#ifndef TIERD_TESTS_UNIT_IO_SUPPORT_H
#define TIERD_TESTS_UNIT_IO_SUPPORT_H

#include <stdint.h>

#include "common/workers.h"
#include "offload/device/engine.h"

struct scratch {
	char path[256];
	int fd;
};

void scratch_open(struct scratch *scratch);
/* Removes the directory, which must be empty. */
void scratch_close(struct scratch *scratch);

/* Everything that completes something; what is NULL is left out. */
struct io_loop {
	struct engine *engine;
	struct workers *workers;
	struct tier *hosts[4];
};

/* Runs what is complete; waits for something if there is no host tier. */
void io_loop_turn(struct io_loop *loop);

/* A transfer that remembers how it ended. */
struct test_io {
	struct tier_io io;
	int status;
	unsigned done_count;
	unsigned order; /* among all, counted from 1 */
};

void test_io_init(struct test_io *test, enum tier_direction direction, void *buffer, uint64_t offset,
		  size_t length);
/* Turns the loop until it is done; its status. */
int test_io_wait(struct io_loop *loop, struct test_io *test);

/* Page-aligned memory; free() it. */
unsigned char *pages_new(size_t length);
/* Fills with bytes that differ by seed and position. */
void pages_fill(unsigned char *pages, size_t length, uint64_t seed);

#endif
