/* A request of a client, and where its answer goes. */
#ifndef TIERD_DAEMON_REQUEST_FRONT_H
#define TIERD_DAEMON_REQUEST_FRONT_H

#include "daemon/request/asker.h"
#include "daemon/request/pending.h"
#include "daemon/request/port.h"
#include "daemon/request/refuse.h"

#endif
