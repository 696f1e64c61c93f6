/* Requests of ranks to set and to get blobs, and of those who look at a job for what there is. */
#ifndef TIERD_DAEMON_BLOB_REQUESTS_H
#define TIERD_DAEMON_BLOB_REQUESTS_H

#include "daemon/request/request.h"

void blob_write(struct pending *pending, const Tierd__Wire__BlobWrite *write);
void blob_read(struct pending *pending, const Tierd__Wire__BlobRead *read);
void blob_list(struct pending *pending, const Tierd__Wire__BlobsRead *read);

/* What the member has begun to set and not ended. */
void blob_forget_upload(struct member *member);

#endif
