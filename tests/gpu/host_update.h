/* AdamW on a GPU over state that lies in pinned host memory, and what the bus and the kernel allow. Whatever
 * fails ends the program, and says why. */
#ifndef TIERD_TESTS_GPU_HOST_UPDATE_H
#define TIERD_TESTS_GPU_HOST_UPDATE_H

#include <stddef.h>

#include "offload/optimizer/optimizer.h"

struct host_update;

/* Parameters are bf16. What the memory holds does not matter for the time. */
struct host_update *host_update_new(enum moment_format format, uint64_t count);
struct host_update *host_update_free(struct host_update *host);

/* Bytes of an update, both ways. */
size_t host_update_bytes(const struct host_update *host);

/* One update, until it is done. */
void host_update_run(struct host_update *host);
/* As many bytes both ways, and the kernel over as many elements: side by side, none waits for another. */
void host_update_run_apart(struct host_update *host);

#endif
