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
	struct queue watches;		/* of clients that watch */
	struct queue tracers;		/* of clients that trace a job */
	struct statistics_figures past; /* of jobs that are gone */
	struct client_count clients;
};

/* What is told. */
struct watch_news {
	const char *event;     /* its name */
	const struct job *job; /* NULL: of the node */
	bool is_public; /* of the node: for every user, not just for the one concerned and administrators */
	bool is_step;	/* one of many */
	enum log_level level;
	const struct log_fields *fields;
	const char *text;
};

/* Sends it to all watches that it is for. A client that does not read loses it, and hears later how many were
 * lost. */
void watch_tell(struct node *node, const struct watch_news *news);

struct trace_event {
	uint64_t began_ns, ended_ns;
	uint64_t amount, step;
	enum wire_trace kind;
	uint32_t unit, who;
	char stream[WIRE_MAX_STREAM_NAME + 1];
};

/* Notes it if the job is traced, and was when it began. */
void trace_add(struct job *job, const struct trace_event *event);

#endif
