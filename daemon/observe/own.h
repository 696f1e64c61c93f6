/* What is shown of a node, for the files of this module alone. */
#ifndef TIERD_DAEMON_OBSERVE_OWN_H
#define TIERD_DAEMON_OBSERVE_OWN_H

#include "daemon/observe/load.h"
#include "daemon/observe/observe.h"
#include "offload/device/memory.h"

struct node_observe {
	struct endurance *endurance;
	struct load load;
	void *published; /* the mapping of its file: see daemon/observe/statistics.h; NULL: there is none */
	struct memory page; /* the node's page of statistics, once somebody has asked for it */
};

#endif
