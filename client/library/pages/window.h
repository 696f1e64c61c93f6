/* The exchange window of a job: memory of this rank's that it shares with tierd, for one piece of a tensor or
 * of a blob at a time. All functions need the node's lock, and may release it for a moment. */
#ifndef TIERD_CLIENT_WINDOW_H
#define TIERD_CLIENT_WINDOW_H

#include "client/library/pages/job.h"

int window_take(struct tierd_job *job, uint64_t deadline);
void window_give(struct tierd_job *job);

/* With the window taken; it is kept if the call succeeds, and given back when tierd is done with it if not.
 * ret_blob: NULL, or what is known of a blob, where the reply says it. */
int window_call(struct tierd_job *job, const Tierd__Wire__Request *request, uint64_t deadline,
		Tierd__Wire__BlobReply *ret_blob);

#endif
