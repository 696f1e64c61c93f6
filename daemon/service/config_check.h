/* Whether a configuration can work on this machine. */
#ifndef TIERD_DAEMON_CONFIG_CHECK_H
#define TIERD_DAEMON_CONFIG_CHECK_H

#include "daemon/service/config.h"

/* -EINVAL with a problem: the daemon could not start, or not do what it is told. */
int config_check(const struct config *config, struct config_problem *problem);

/* Logs what is allowed and hardly meant: more than the machine has. */
void config_warn(const struct config *config);

#endif
