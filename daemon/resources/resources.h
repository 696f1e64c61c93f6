/* The node's memory and disk: budgets, staging buffers, who holds what. */
#ifndef TIERD_DAEMON_RESOURCES_FRONT_H
#define TIERD_DAEMON_RESOURCES_FRONT_H

#include "daemon/resources/budget.h"
#include "daemon/resources/disposal.h"
#include "daemon/resources/loop.h"
#include "daemon/resources/node.h"
#include "daemon/resources/placement.h"
#include "daemon/resources/slots.h"
#include "daemon/resources/shortage.h"
#include "daemon/resources/staging.h"

#endif
