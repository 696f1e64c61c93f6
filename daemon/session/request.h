/* Requests of a client, and the modules that serve them. */
#ifndef TIERD_DAEMON_REQUEST_H
#define TIERD_DAEMON_REQUEST_H

#include <stdbool.h>

#include "daemon/request/request.h"

/* It is answered at once, and leaves nothing behind on the connection. */
bool request_holds_nothing(const Tierd__Wire__Request *request);
/* Its answer may wait for other clients. The number of such requests of a client is limited. */
bool request_may_wait(const Tierd__Wire__Request *request);

/* Finds the rank or reader that the request is about, and calls the module that serves it, which answers it
 * now or later. */
void request_handle(struct pending *pending, const Tierd__Wire__Request *request);

#endif
