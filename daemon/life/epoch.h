/* Epoch: what ends it for all ranks. Modules below ask for that by job_abort(), job_break() and
 * job_throw_out(). */
#ifndef TIERD_DAEMON_EPOCH_H
#define TIERD_DAEMON_EPOCH_H

#include "daemon/model/model.h"

/* As struct job_callbacks says. */
void epoch_abort(struct job *job, int r);
void epoch_break(struct job *job, const struct log_fields *about);
void epoch_throw_out(struct member *member, const char *reason);

#endif
