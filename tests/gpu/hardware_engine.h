/* What tests of the GPU engine on a GPU share: two engines on the first GPU, as two jobs have them. */
#ifndef TIERD_TESTS_GPU_HARDWARE_ENGINE_H
#define TIERD_TESTS_GPU_HARDWARE_ENGINE_H

#include "tests/gpu/hardware.h"
#include "tests/unit/cuda/gpu_support.h"

/* Closed by gpu_fixture_close(). */
void engines_open(struct gpu_fixture *fixture);

/* Whole pages, which are given back by munmap(). */
unsigned char *host_new(size_t bytes);
/* Bytes that only this seed has. */
void host_fill(unsigned char *bytes, size_t count, unsigned seed);

/* Whether a page of host memory is registered. */
bool is_pinned(void *page);

/* There and back, through other memory of the host. */
void expect_round(struct gpu_engine *engine, unsigned char *host, driver_address memory, size_t bytes,
		  unsigned seed);

#endif
