/* fio: what the device gives, for comparison: io_uring, direct, 1 MiB transfers, 16 at once, registered. */
#ifndef TIERD_TESTS_BENCH_FIO_H
#define TIERD_TESTS_BENCH_FIO_H

#include <stdbool.h>

#include "common/size.h"

#define FIO_FILE_BYTES GIB

bool fio_is_installed(void);

/* Reads or writes the file ("read", "write"), or as much of both ("readwrite"), of FIO_FILE_BYTES, for that
 * many seconds; 0: the whole file, once. Bytes per second, or a negative errno. */
double fio_run(const char *file, const char *direction, double seconds);

#endif
