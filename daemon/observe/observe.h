/* What users are shown: reports, statistics, wear. */
#ifndef TIERD_DAEMON_OBSERVE_FRONT_H
#define TIERD_DAEMON_OBSERVE_FRONT_H

#include "daemon/observe/endurance.h"
#include "daemon/observe/leases.h"
#include "daemon/observe/report.h"
#include "daemon/observe/statistics.h"

struct node;
struct node_config;

/* 0, or a negative errno, which is logged. */
int observe_new(struct node *node, const struct node_config *config);
void observe_free(struct node *node);
/* What devices that have no endurance of their own may be written with; 0: not known. */
void observe_set_endurance(struct node *node, uint64_t bytes);

#endif
