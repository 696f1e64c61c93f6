/* The definition of a job: its units and tensors, told to those who have not defined them. */
#ifndef TIERD_DAEMON_DEFINITION_H
#define TIERD_DAEMON_DEFINITION_H

#include "daemon/model/job.h"

/* The strings stay the tensor's. Without its initializer. */
void definition_fill_tensor(const struct tensor *tensor, Tierd__Wire__Tensor *wire);

/* From this tensor of this unit on, as many as fit in a frame. */
void definition_report(struct pending *pending, const struct job *job, uint32_t unit, uint32_t tensor);
/* The same, with the job's options. */
void definition_report_all(struct pending *pending, const struct job *job, uint32_t unit, uint32_t tensor);

#endif
