/* The parts of a node: what each module above resources keeps for the daemon's node, and does for it. */
#ifndef TIERD_DAEMON_NODE_PARTS_H
#define TIERD_DAEMON_NODE_PARTS_H

#include "daemon/resources/resources.h"

extern const struct node_parts node_parts;

#endif
