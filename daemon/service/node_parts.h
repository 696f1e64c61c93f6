/* The table by which a node makes, asks and ends what the modules above resources keep for it. */
#ifndef TIERD_DAEMON_NODE_PARTS_H
#define TIERD_DAEMON_NODE_PARTS_H

#include "daemon/resources/resources.h"

extern const struct node_parts node_parts;

#endif
