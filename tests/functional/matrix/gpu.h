/* The GPU on which a rank gathers, where $MATRIX_GPU says so: a stand-in's. */
#ifndef TIERD_TESTS_MATRIX_GPU_H
#define TIERD_TESTS_MATRIX_GPU_H

#include "rank.h"

/* "whole": with room for all units; "least": with as little as tierd takes. */
bool gpu_is_wanted(void);
bool gpu_is_least(void);

/* Of two GPUs; one rank of four has none. -1: none. */
int32_t gpu_of_rank(const struct rank *rank);

/* Once the rank is ready. NULL: it has none. */
struct gpu_reader *gpu_reader_new(const struct rank *rank);

/* Gathers it, for the stream that reads it, but for a few units that are gathered in host memory. False: this
 * is one of them. */
bool gpu_gather(const struct rank *rank, unsigned unit, unsigned steps, struct tierd_view *ret_view);
/* False: it was not gathered there. */
bool gpu_release(const struct rank *rank, unsigned unit);

/* Waits until all that was gathered is read, and compares by that. */
void gpu_compare(const struct rank *rank, unsigned steps,
		 void (*compare)(const struct rank *rank, const struct tierd_view *view, unsigned unit,
				 unsigned steps));

#endif
