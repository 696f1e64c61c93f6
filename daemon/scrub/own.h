/* What the scrub module keeps of a job and of a node; for its own files. */
#ifndef TIERD_DAEMON_SCRUB_OWN_H
#define TIERD_DAEMON_SCRUB_OWN_H

#include "daemon/model/model.h"
#include "daemon/scrub/damaged.h"
#include "daemon/scrub/scan.h"
#include "daemon/scrub/scrub_pace.h"

struct job_scrub {
	unsigned scans; /* under way: daemon/scrub/scan.h */
	struct scrub_pace pace;
	uint64_t passes;  /* that are over */
	uint64_t ended_s; /* when the last one was, since 1970 */
	struct damaged damaged;
};

struct node_scrub {
	struct node *node;
	uint64_t period_ns;
	struct event *timer;
	bool is_running; /* the scan, of some job */
	struct scan scan;
	struct queue verifies; /* requests of clients: daemon/scrub/verify.c */
};

#endif
