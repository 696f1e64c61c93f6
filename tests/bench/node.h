/* A benchmark's own tierd: started in private folders, ended and removed with the benchmark. */
#ifndef TIERD_TESTS_BENCH_NODE_H
#define TIERD_TESTS_BENCH_NODE_H

#include <sys/types.h>

struct bench_node {
	char folder[64]; /* of its socket and state: paths of sockets are short */
	char disk[4096]; /* its NVMe path, and room for what is compared with it */
	char socket[108];
	pid_t pid;
};
#define BENCH_NODE_INIT                                                                                      \
	{                                                                                                    \
		.pid = -1                                                                                    \
	}

/* Starts the program on a folder in $TMPDIR, or /var/tmp, and waits until it accepts connections. Sizes as
 * tierd's flags take them. */
int bench_node_start(struct bench_node *node, const char *host_budget, const char *nvme_capacity);

/* Also of one that was never started, or only by half. */
void bench_node_stop(struct bench_node *node);

#endif
