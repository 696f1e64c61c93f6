/* What this module keeps of a job and of a node; for its own files. */
#ifndef TIERD_DAEMON_RESOURCES_OWN_H
#define TIERD_DAEMON_RESOURCES_OWN_H

#include "daemon/resources/budget.h"
#include "daemon/resources/node.h"
#include "daemon/resources/shortage.h"
#include "daemon/resources/staging.h"

/* What a job has of the node's memory and disk. */
struct job_resources {
	struct budget_limits limits;
	uint64_t host_bytes, nvme_bytes; /* of the budgets */
	uint64_t charged_bytes;		 /* of host_bytes: outside of the plan */
	uint64_t kept_bytes;		 /* of its plan: what stays when it is released */
	uint64_t cache_bytes;		 /* of host_bytes: segments and warm state */
	struct shortage shortage;	 /* what its plan lacks */
	uint32_t windows;		 /* of members, as many as were charged */
	bool has_plan;			 /* all its ranks' windows are in it */
	uint64_t path_bytes[NODE_MAX_PATHS];
	uint64_t lent_path_bytes;  /* the same: for growth that is not there yet, or a fork */
	uint64_t sums_path_bytes;  /* of path_bytes, on each of its paths: its spilled sums */
	uint64_t draft_path_bytes; /* the same: its draft */
};

struct node_events;

/* What is used of a node's budget, who waits for more, and what is under way to give memory back. */
struct node_resources {
	struct node_events *events; /* daemon/resources/node.c */
	struct staging staging;
	unsigned device_count;
	uint64_t host_used;
	struct queue shortages; /* that are waited for */
	struct queue withheld;	/* of disposals: daemon/resources/disposal.h */
	unsigned works;		/* under way: node_begin_work() */
	void (*on_idle)(void *argument);
	void *idle_argument;
	bool has_noted_pinning;
};

#endif
