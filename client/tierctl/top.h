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

void top_add_rate(struct table *table, uint64_t now, uint64_t before, double seconds);
/* Null without time between the looks. */
void top_rate_json(cJSON *json, const char *name, uint64_t now, uint64_t before, double seconds);

/* GPUs that jobs use: nothing is printed where there are none. */
int top_print_gpus(const struct statistics_node *now, const struct statistics_node *before, double seconds);
cJSON *top_gpus_json(const struct statistics_node *now, const struct statistics_node *before, double seconds);
/* Of steps that were applied between the looks; 0: there were none. */
double top_joules_per_step(const struct statistics_job *now, const struct statistics_job *before);

/* NULL: out of memory. */
cJSON *top_json(const struct view *view, const struct top_past *past);

#endif
