/* What reports say of GPUs, and the memory that they say it with. */
#ifndef TIERD_DAEMON_OBSERVE_REPORT_GPUS_H
#define TIERD_DAEMON_OBSERVE_REPORT_GPUS_H

#include "daemon/gpu/gpu.h"
#include "daemon/request/request.h"

struct report_gpus {
	Tierd__Wire__Gpu wires[GPUS_MAX], *pointers[GPUS_MAX];
	char uuids[GPUS_MAX][GPU_UUID_TEXT];
};

/* The body borrows it. */
void report_gpus(const struct node *node, struct report_gpus *gpus, Tierd__Wire__NodeReply *body);

struct report_job_gpu {
	Tierd__Wire__JobGpu wire;
	char uuid[GPU_UUID_TEXT];
};

struct report_job_gpus {
	struct report_job_gpu *gpus; /* NULL: the job is on none */
	Tierd__Wire__JobGpu **pointers;
};

/* The entry borrows it; free it, whatever this returns: 0 or -ENOMEM. */
int report_job_gpus(const struct job *job, struct report_job_gpus *gpus, Tierd__Wire__JobEntry *entry);
void report_job_gpus_free(struct report_job_gpus *gpus);
unsigned report_job_gpu_count(const struct job *job);

#endif
