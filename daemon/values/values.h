/* Values of tensors: readers, views, copies, sources, drafts. */
#ifndef TIERD_DAEMON_VALUES_FRONT_H
#define TIERD_DAEMON_VALUES_FRONT_H

#include "daemon/model/model.h"
#include "daemon/values/bundle.h"
#include "daemon/values/copy.h"
#include "daemon/values/draft.h"
#include "daemon/values/reader.h"
#include "daemon/values/source.h"
#include "daemon/values/state_write.h"
#include "daemon/values/writing.h"

/* ---- tensor.c ---- */
void tensor_write(struct pending *pending, const Tierd__Wire__TensorWrite *write);
void tensor_read(struct pending *pending, const Tierd__Wire__TensorRead *read);
/* Fills frozen tensors that have an initializer, one at a time, and writes them back. 0: all is done; 1:
 * something is under way, and job_settle() follows; or -errno. */
int tensor_initialize(struct job *job);
void tensor_fill_waiting(struct job *job);

/* ---- operation.c: see daemon/values/operation.h, too ---- */
/* A pack has been written back, or its sums are in host memory. */
void operation_resume(struct job *job);
/* The request belongs to an operation in flight; it is answered when that is done. */
bool operation_is_under_way(struct member *member, const struct pending *pending);
/* A step of the member is refused: an operation that waits for its version fails. */
void operation_fail_refused(struct member *member);
/* The operation in flight, if any, has nobody to answer any more. */
void operation_forget(struct member *member);

#endif
