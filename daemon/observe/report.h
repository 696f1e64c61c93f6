/* Reports: what tierctl shows of the node, its jobs, their units and tensors. */
#ifndef TIERD_DAEMON_REPORT_H
#define TIERD_DAEMON_REPORT_H

#include "daemon/resources/resources.h"
#include "daemon/request/request.h"

void report_node(struct pending *pending, struct node *node);
void report_jobs(struct pending *pending, struct node *node);
void report_units(struct pending *pending, const Tierd__Wire__UnitsRead *request);
void report_tensors(struct pending *pending, const Tierd__Wire__TensorsRead *request);

/* Answers with the logical account of the rank that asks. */
void report_statistics(struct pending *pending);
/* The account of a member, or, if NULL, that of rank 0. */
void report_account(struct job *job, struct member *member, Tierd__Wire__StatisticsReply *reply);

#endif
