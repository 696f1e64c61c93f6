/* A benchmark's own tierd: started in private folders, ended and removed with the benchmark. */
#ifndef TIERD_TESTS_BENCH_NODE_H
#define TIERD_TESTS_BENCH_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/tierd.h"

struct bench_node {
	char folder[64]; /* of its socket and state: paths of sockets are short */
	char disk[4096]; /* its NVMe path, and room for what is compared with it */
	char socket[108];
	const char *host_budget, *nvme_capacity; /* borrowed */
	const char *more_disk; /* a second NVMe path, of as much; NULL: there is none. Borrowed */
	pid_t pid;
};
#define BENCH_NODE_INIT                                                                                      \
	{                                                                                                    \
		.pid = -1                                                                                    \
	}

/* Starts the program on a folder in $TMPDIR, or /var/tmp, and waits until it accepts connections. Sizes as
 * tierd's flags take them. */
int bench_node_start(struct bench_node *node, const char *host_budget, const char *nvme_capacity);

/* Kills the daemon. Its folders stay: bench_node_run() starts it on them again. */
void bench_node_kill(struct bench_node *node);
int bench_node_run(struct bench_node *node);
/* Waits until it accepts connections. */
int bench_node_await(struct bench_node *node);

/* Any user may connect. */
int bench_node_let_others_in(const struct bench_node *node);

/* Bytes that the kernel has read from devices and written to them for the daemon. */
int bench_node_moved_bytes(const struct bench_node *node, double *ret_bytes);
/* A line of its smaps_rollup, such as "Rss", in bytes; 0: it is not there. */
uint64_t bench_node_memory(const struct bench_node *node, const char *what);
/* The processor time of all its threads, in the kernel too. */
int bench_node_processor_ns(const struct bench_node *node, uint64_t *ret_ns);

/* Units of one vector each, which the daemon initializes: "layer.0" and so on, names of unit and tensor. */
struct bench_units {
	unsigned first, count; /* more of them may follow */
	uint64_t elements;     /* of each */
	uint32_t format;       /* enum tierd_format; 0: bf16 */
	bool is_frozen;
};
int bench_define_units(struct tierd_job *job, const struct bench_units *units);

/* Opens a job of such units, of one rank, and makes it ready. What went wrong is on stderr. */
int bench_job_open(struct tierd_node *node, const struct tierd_job_options *options,
		   const struct bench_units *units, struct tierd_job **ret_job);
/* Connects to the daemon first; the connection is the caller's, also after an error. */
int bench_job_join(const char *socket, const struct tierd_job_options *options,
		   const struct bench_units *units, struct tierd_node **ret_node, struct tierd_job **ret_job);

/* Pushes gradients of such a unit in bf16, a constant, of every element: nothing stays zero. */
#define BENCH_GRADIENT 0x3a80 /* of bf16, about 0.001 */
int bench_push(struct tierd_job *job, uint32_t unit, const struct tierd_view *gradients, uint64_t elements);

/* Gathers it, pushes so many such gradients, and releases it; 0: the gradients stay zeros. */
int bench_train_unit(struct tierd_job *job, uint32_t unit, uint64_t elements);

/* Gathers it and releases it. */
int bench_gather_unit(struct tierd_job *job, uint32_t unit);

/* Takes a step that changes little: its learning rate is 0. Waits until it is TIERD_DONE, or TIERD_DURABLE.
 */
int bench_step(struct tierd_job *job, enum tierd_event event);

/* Ends the daemon and removes its folders. The daemon may never have started, or only in part. */
void bench_node_stop(struct bench_node *node);

#endif
