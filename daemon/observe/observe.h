/* Observe: what users are shown of the node and of jobs.
 *
 * A report (report.c) answers a request of tierctl with what a job, its units, tensors, leases or ranks are
 * at that moment; lists go out in pieces, so that one answer does not keep the loop. Statistics
 * (statistics.c) are pages of figures that a timer writes twice a second, and that clients map or read from a
 * file: they can be read while the loop hangs. Waits (waits.c) finds out which ranks keep others from going
 * on. Endurance counts what is written to each path, in a file of its own, and says how long a device lasts
 * (wear.c).
 *
 * This module reads what the others count (daemon/telemetry) and what their fronts answer, and changes
 * nothing of a job. Nothing below knows of it. */
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
