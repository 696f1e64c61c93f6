/* Statistics: pages that the loop fills with what it has counted, so that reading them costs it nothing. */
#ifndef TIERD_DAEMON_STATISTICS_H
#define TIERD_DAEMON_STATISTICS_H

#include <sys/types.h>

#include "common/cleanup.h"
#include "daemon/request/request.h"
#include "proto/statistics.h"

struct job;
struct node;
struct statistics;

/* Fills all pages from now on, as often as STATISTICS_INTERVAL_MS says, and publishes the node's in a file
 * beside the socket (borrowed for the call), for who may use that by its mode. Without the file, which is
 * logged, there are only the pages that clients ask for. */
int statistics_new(struct node *node, const char *socket, mode_t socket_mode,
		   struct statistics **ret_statistics);

/* Removes the file. Before node_free(). */
struct statistics *statistics_free(struct statistics *statistics);
DEFINE_FREEP(struct statistics *, statistics_free)

/* What the node's page would have if it were written now. */
void statistics_look(struct node *node, struct statistics_node *body);

/* Answers with a page's descriptor: of the node, or of a job that the peer may see. */
void statistics_map(struct pending *pending, const Tierd__Wire__StatisticsMap *request);

#endif
