/* GPUs that jobs use, as tierctl shows them. */
#ifndef TIERD_CLIENT_TIERCTL_GPUS_H
#define TIERD_CLIENT_TIERCTL_GPUS_H

#include "client/tierctl/command.h"

/* Nothing, where there are none. */
int gpus_print(const Tierd__Wire__NodeReply *node);
int gpus_print_job(const Tierd__Wire__JobEntry *job);

cJSON *gpus_json(const Tierd__Wire__NodeReply *node);
cJSON *gpus_job_json(const Tierd__Wire__JobEntry *job);

/* "0.27", "7310": in J. */
const char *gpus_text_energy(double joules, char text[TEXT_SIZE]);

/* Of all of them together. */
uint64_t gpus_job_bytes(const Tierd__Wire__JobEntry *job);

#endif
