/* Evict: units that nobody uses leave host memory because the job's owner or an administrator says so. */
#ifndef TIERD_DAEMON_EVICT_H
#define TIERD_DAEMON_EVICT_H

#include "daemon/request/request.h"

/* Answers the request. */
void evict_units(struct pending *pending, const Tierd__Wire__JobEvict *request);

#endif
