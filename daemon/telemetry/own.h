/* The inside of telemetry: what is counted and noted of a job, and who listens on a node. */
#ifndef TIERD_DAEMON_TELEMETRY_OWN_H
#define TIERD_DAEMON_TELEMETRY_OWN_H

#include "daemon/telemetry/telemetry.h"

struct job_telemetry {
	struct unit_account account; /* of rank 0 */
	struct statistics_figures figures;
	struct memory page;
	uint64_t waits_told_ns;
	struct trace *trace; /* NULL: nobody traces it */
};

struct node_telemetry {
	struct queue watches; /* of clients that watch */
	struct queue tracers; /* of clients that trace a job */
};

/* Of a job that is traced. */
void trace_add(struct job *job, const struct trace_event *event);

#endif
