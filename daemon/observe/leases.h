/* Leases, as tierctl shows them: which rank holds which unit. */
#ifndef TIERD_DAEMON_LEASES_H
#define TIERD_DAEMON_LEASES_H

#include "daemon/request/request.h"

/* Answers the request, with as many units as fit. */
void leases_report(struct pending *pending, const Tierd__Wire__LeasesRead *request);

#endif
