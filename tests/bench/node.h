/* A benchmark's own tierd: started in private folders, ended and removed with the benchmark. */
#ifndef TIERD_TESTS_BENCH_NODE_H
#define TIERD_TESTS_BENCH_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct bench_node {
	char folder[64]; /* of its socket and state: paths of sockets are short */
	char disk[4096]; /* its NVMe path, and room for what is compared with it */
	char socket[108];
	const char *host_budget, *nvme_capacity; /* borrowed */
	pid_t pid;
};
#define BENCH_NODE_INIT                                                                                      \
	{                                                                                                    \
		.pid = -1                                                                                    \
	}

/* Starts the program on a folder in $TMPDIR, or /var/tmp, and waits until it accepts connections. Sizes as
 * tierd's flags take them. */
int bench_node_start(struct bench_node *node, const char *host_budget, const char *nvme_capacity);

/* With SIGKILL; its folders stay, and bench_node_run() starts it on them again. */
void bench_node_kill(struct bench_node *node);
int bench_node_run(struct bench_node *node);
/* Until it accepts connections. */
int bench_node_await(struct bench_node *node);

/* Any user may connect. */
int bench_node_let_others_in(const struct bench_node *node);

/* Bytes that the kernel has read from devices and written to them for it. */
int bench_node_moved_bytes(const struct bench_node *node, double *ret_bytes);
/* A line of its smaps_rollup, such as "Rss", in bytes; 0: it is not there. */
uint64_t bench_node_memory(const struct bench_node *node, const char *what);
/* What processors have worked for it, in the kernel too, all of its threads together. */
int bench_node_processor_ns(const struct bench_node *node, uint64_t *ret_ns);

struct tierd_job;
struct tierd_view;

/* Units of one vector each, which the daemon initializes: "layer.0" and so on, names of unit and tensor. */
struct bench_units {
	unsigned first, count; /* more of them may follow */
	uint64_t elements;     /* of each */
	uint32_t format;       /* enum tierd_format; 0: bf16 */
	bool is_frozen;
};
int bench_define_units(struct tierd_job *job, const struct bench_units *units);

/* Pushes gradients of such a unit in bf16, a constant, of every element: nothing stays zero. */
#define BENCH_GRADIENT 0x3a80 /* of bf16, about 0.001 */
int bench_push(struct tierd_job *job, uint32_t unit, const struct tierd_view *gradients, uint64_t elements);

/* Gathers it, hands in gradients as they are, zeros, and releases it. */
int bench_stream_unit(struct tierd_job *job, uint32_t unit);

/* Also of one that was never started, or only by half. */
void bench_node_stop(struct bench_node *node);

#endif
