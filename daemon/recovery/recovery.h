/* Jobs come back from their stores: after a start, a roll back, a fork. */
#ifndef TIERD_DAEMON_RECOVERY_FRONT_H
#define TIERD_DAEMON_RECOVERY_FRONT_H

#include "daemon/recovery/fork.h"
#include "daemon/recovery/restore.h"
#include "daemon/recovery/roll_back.h"

#endif
