/* Release: an idle job gives its host memory back at once, because its owner or an administrator says so. */
#ifndef TIERD_DAEMON_RELEASE_H
#define TIERD_DAEMON_RELEASE_H

#include "daemon/model/model.h"
#include "daemon/request/request.h"

/* Answers the request. */
void release_job(struct pending *pending, const Tierd__Wire__JobRelease *request);

#endif
