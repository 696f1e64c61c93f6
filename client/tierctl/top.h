/* A look at node and jobs, beside the one before it: what has happened in between. */
#ifndef TIERD_CLIENT_TIERCTL_TOP_H
#define TIERD_CLIENT_TIERCTL_TOP_H

#include "client/tierctl/view.h"

/* The look before this one. */
struct top_past {
	struct statistics_node node;
	struct statistics_job *jobs; /* owned */
	size_t job_count;
};

/* What a count has grown by. */
uint64_t top_more(uint64_t now, uint64_t before);
double top_seconds(uint64_t now_ns, uint64_t before_ns);

/* NULL: it was not there. */
const struct statistics_job *top_find(const struct top_past *past, const struct statistics_job *job);

/* NULL: out of memory. */
cJSON *top_json(const struct view *view, const struct top_past *past);

#endif
