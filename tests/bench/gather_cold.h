/* Units that lie on NVMe and are gathered in an order that tierd has learned, by a trainer of one rank. */
#ifndef TIERD_TESTS_BENCH_GATHER_COLD_H
#define TIERD_TESTS_BENCH_GATHER_COLD_H

#include "tests/bench/fio.h"
#include "tests/bench/gather.h"

#define COLD_RUNS 64

struct cold {
	struct bench_node tierd;
	struct tierd_node *node;
	struct tierd_job *job;
	struct fio_job fio;
	uint32_t next;
	/* Of each run: processors at work for the daemon, its seconds of them for a byte, and those of the
	 * trainer with it. */
	double cores[COLD_RUNS], byte_seconds[COLD_RUNS], all_byte_seconds[COLD_RUNS];
	unsigned runs;
};

/* Starts a daemon, and makes the job. With more_disk, a folder, on two devices; else NULL. */
int cold_open(struct cold *cold, const char *more_disk);
void cold_close(struct cold *cold);

/* A side of a comparison. Bytes per second, or a negative errno. */
double cold_run(void *context, double seconds);

#endif
