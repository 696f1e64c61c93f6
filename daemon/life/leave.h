/* Leave: a rank closes its job, or detaches from it, and says so. */
#ifndef TIERD_DAEMON_LEAVE_H
#define TIERD_DAEMON_LEAVE_H

#include "daemon/request/request.h"

/* Answers the request when its member has left; that it has been the connection's is over then. */
void leave_job(struct pending *pending, const Tierd__Wire__JobLeave *leave);

#endif
