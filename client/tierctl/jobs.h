/* What tierctl jobs knows of a job. */
#ifndef TIERD_CLIENT_TIERCTL_JOBS_H
#define TIERD_CLIENT_TIERCTL_JOBS_H

#include "client/tierctl/command.h"

/* World size, stage, epoch, step, units, parameters and optimizer are true: not of one whose store cannot be
 * opened, nor its record read. */
bool jobs_has_record(const Tierd__Wire__JobEntry *job);
/* Other ranks wait for this one. */
bool jobs_is_waited_for(const Tierd__Wire__JobEntry *job, uint32_t rank);

/* What is not known is null. */
cJSON *jobs_json(const Tierd__Wire__JobEntry *job);

#endif
