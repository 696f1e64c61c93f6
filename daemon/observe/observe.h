/* What users are shown: reports, statistics, wear. */
#ifndef TIERD_DAEMON_OBSERVE_FRONT_H
#define TIERD_DAEMON_OBSERVE_FRONT_H

#include "daemon/observe/endurance.h"
#include "daemon/observe/leases.h"
#include "daemon/observe/report.h"
#include "daemon/observe/statistics.h"

#endif
