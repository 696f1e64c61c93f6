/* Request: what a client may ask for, and who answers it. */
#ifndef TIERD_DAEMON_REQUEST_H
#define TIERD_DAEMON_REQUEST_H

#include <stdbool.h>

#include "daemon/request/request.h"

/* It is answered at once, and the connection has no more afterwards than before. */
bool request_holds_nothing(const Tierd__Wire__Request *request);
/* Its answer may wait for others, however long: a client has only so many of these. */
bool request_may_wait(const Tierd__Wire__Request *request);

/* Finds what of its client's it is about, and who does it: he answers, now or later. */
void request_handle(struct pending *pending, const Tierd__Wire__Request *request);

#endif
