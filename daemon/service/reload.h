/* A reload reads the configuration again, and takes over what may change while the daemon runs. */
#ifndef TIERD_DAEMON_RELOAD_H
#define TIERD_DAEMON_RELOAD_H

#include "daemon/service/config.h"

/* Takes into config, which is in effect, the live options of what file and flags say now; what has changed
 * and is not live is named in the log, and stays as it is. Returns how many options have
 * changed. On an error, with its problem, everything stays. */
int reload(struct config *config, int argc, char *const argv[], struct config_problem *problem);

#endif
