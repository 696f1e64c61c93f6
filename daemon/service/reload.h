/* A reload reads the configuration again, and takes over what may change while the daemon runs. */
#ifndef TIERD_DAEMON_RELOAD_H
#define TIERD_DAEMON_RELOAD_H

#include "daemon/service/config.h"

/* Reads file and flags again, and takes their live options over into config, which is in effect. Other
 * options stay as they are; the log names those that have changed. Returns how many live options have
 * changed. On an error, with its problem, everything stays. */
int reload(struct config *config, int argc, char *const argv[], struct config_problem *problem);

#endif
