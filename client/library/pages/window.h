/* The exchange window of a job: memory that this rank shares with tierd, through which tensors and blobs are
 * copied piece by piece. All functions need the node's lock, and may release it for a moment. */
#ifndef TIERD_CLIENT_WINDOW_H
#define TIERD_CLIENT_WINDOW_H

#include "client/library/pages/job.h"

int window_take(struct tierd_job *job, uint64_t deadline);
void window_give(struct tierd_job *job);

/* Called with the window taken. If the call succeeds, the caller still has it; if it fails, the window is
 * given back once tierd no longer uses it. ret_blob: the reply to a request about a blob; may be NULL. */
int window_call(struct tierd_job *job, const Tierd__Wire__Request *request, uint64_t deadline,
		Tierd__Wire__BlobReply *ret_blob);

#endif
