/* Verifying: a client has a part of a job's state on NVMe read, and hears which blocks of it are damaged. */
#ifndef TIERD_DAEMON_VERIFY_H
#define TIERD_DAEMON_VERIFY_H

#include "daemon/request/request.h"

/* That read at once; others wait for them, each for its part. They have a MiB of host memory each. */
#define VERIFY_MAX_RUNNING 4

struct job;

void verify_begin(struct pending *pending, const Tierd__Wire__Verify *request, struct queue *client_verifies);
/* Nobody waits for them any more. */
void verify_forget_all(struct queue *client_verifies);

/* Those of the job that only who may not any more waits for. */
void verifies_end_denied(const struct job *job, const char *reason);

#endif
