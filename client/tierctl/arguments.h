/* The arguments of tierctl, read by what its verbs take. */
#ifndef TIERD_CLIENT_TIERCTL_ARGUMENTS_H
#define TIERD_CLIENT_TIERCTL_ARGUMENTS_H

#include "client/tierctl/command.h"

/* Fills the context, which has the list of verbs already; its arguments lie in argv from then on. With --help
 * or --version the verb may be missing, and is not checked. An exit code, after a message. */
int arguments_read(int argc, char *argv[], struct command_context *context);

#endif
