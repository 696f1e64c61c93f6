/* A bundle: reads of a member's that one request asks for. They go side by side, each to its own place in the
 * window, and are answered together when all of them have ended. */
#ifndef TIERD_DAEMON_BUNDLE_H
#define TIERD_DAEMON_BUNDLE_H

#include "daemon/values/operation.h"

void bundle_read(struct pending *pending, const Tierd__Wire__TensorReadMany *many);

/* An operation of a bundle has ended. NULL: others have not; else the bundle has gone, and this one, which
 * has its pending, is to be answered and freed in place of all. */
struct tensor_operation *bundle_collect(struct tensor_operation *operation);

/* As of an operation: daemon/model/job.h, daemon/values/operation.h. */
bool bundle_is_under_way(struct member *member, const struct pending *pending);
void bundle_fail_refused(struct member *member);
void bundle_forget(struct member *member);

#endif
