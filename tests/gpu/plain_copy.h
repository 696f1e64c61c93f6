/* What the bus gives: plain copies between pinned host memory and the first GPU, for comparison. */
#ifndef TIERD_TESTS_GPU_PLAIN_COPY_H
#define TIERD_TESTS_GPU_PLAIN_COPY_H

#include <stdbool.h>

/* Bytes a second, over so many seconds. Ends the program if the driver fails; hardware_find() has found it.
 */
double plain_copy_rate(bool is_to_host, double seconds);

#endif
