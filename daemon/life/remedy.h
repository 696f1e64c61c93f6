/* A remedy: what brings a broken job back, as a command or an action. */
#ifndef TIERD_DAEMON_REMEDY_H
#define TIERD_DAEMON_REMEDY_H

#include "daemon/model/model.h"

#define REMEDY_TEXT 320

/* Of one that is broken. */
const char *remedy_describe(const struct job *job, char text[static REMEDY_TEXT]);

#endif
