/* Blobs: bytes under keys that ranks keep with their job's state, for the trainer's own use: where it is in
 * its data, random states. What a rank has set belongs to the step that it closes next, and counts when that
 * is applied. */
#ifndef TIERD_DAEMON_BLOBS_H
#define TIERD_DAEMON_BLOBS_H

#include "daemon/request/request.h"

#define BLOB_SHARED UINT32_MAX /* in place of a rank */

struct job;
struct store_transfer;

/* What the job's options ask for, in whole extents. */
uint64_t blobs_bytes(const struct job *job);

/* The applied step's count now. No commit is writing the image. */
void blobs_apply(struct job *job);
/* The rank's part of a step that is not decided is lost. */
void blobs_drop_undecided(struct job *job, uint32_t rank);
/* The open step has failed, of all ranks; what is closed as the one after it is the open one now. */
void blobs_fail_step(struct job *job);

/* One that counts comes back, behind those before it; its bytes are to be loaded. -EBADMSG, -ENOMEM. */
int blobs_restore(struct job *job, const char *key, uint32_t rank, uint64_t size, uint64_t step);
/* Reads the bytes of all that have come back; transfer: the caller's, with done() set. They are loading until
 * blobs_end_load(). -ENODATA: there are none; another negative errno: done() never runs. */
int blobs_load(struct job *job, struct store_transfer *transfer);
void blobs_end_load(struct job *job);
bool blobs_are_loading(const struct job *job);

/* ---- Requests: blob_requests.c ---- */

void blob_write(struct pending *pending, const Tierd__Wire__BlobWrite *write);
void blob_read(struct pending *pending, const Tierd__Wire__BlobRead *read);
/* Of whoever may look at the job. */
void blob_list(struct pending *pending, const Tierd__Wire__BlobsRead *read);
/* What the member has begun to set and not ended. */
void blob_forget_upload(struct member *member);

#endif
