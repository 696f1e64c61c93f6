/* The limit: whether devices or processors keep tierd from giving ranks sooner what they wait for. */
#ifndef TIERD_CLIENT_TIERCTL_LIMIT_H
#define TIERD_CLIENT_TIERCTL_LIMIT_H

#include "client/tierctl/view.h"

/* How busy a node was between two looks; parts of that time. */
struct limit_load {
	double seconds; /* 0: nothing is known */
	double loop, workers;
	double stalls[STATISTICS_CAUSES]; /* seconds a second, of all ranks together */
	uint64_t worker_count, ranks;
	size_t path_count;
	struct {
		const char *path; /* borrowed */
		double busy;
	} paths[STATISTICS_MAX_PATHS];
};

struct limit_load limit_of_looks(const struct statistics_node *now, const struct statistics_node *before);
/* Of the last seconds, as the daemon has measured them. */
struct limit_load limit_of_node(const Tierd__Wire__NodeReply *node);

/* "devices", "processors", "devices and processors", "neither"; NULL: it is not known. */
const char *limit_name(const struct limit_load *load);

/* A line behind its title, which has so many columns; nothing of what is not known. An exit code. */
int limit_print(const struct limit_load *load, int indent);
/* Null where it is not known. */
void limit_add_json(cJSON *json, const struct limit_load *load);
void limit_add_path_json(cJSON *json, const struct limit_load *load, size_t path);

#endif
