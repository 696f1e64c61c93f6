/* Telemetry: what is told, counted and traced, where it happens.
 *
 * An event is something that happens to a job or to the node, once, with its cause and what follows from it
 * (events.h). It is logged, and sent to each watch: a client's wish to hear of events, of jobs that it may
 * see. Figures are counters of a job, which whoever does the counted thing adds to. A stall is
 * the time that a rank waits, by its cause (stall.h). The account is what memory and communication each rank
 * would have by the ZeRO papers, whatever the node shares. A trace is a ring of a job's last reads, writes,
 * work and waits, with their times (trace.h); a job has one as long as some client, a tracer, follows it.
 *
 * telemetry_open() and telemetry_new() make what a node and a job have of it. A watch and a tracer are
 * embedded in their client, who ends them. A trace outlives its job (trace_leave_job()), so that tracers read
 * it to the end.
 *
 * All modules above tell, count and trace; session begins watches and tracers, and observe shows figures in
 * pages and reports. Telemetry calls nobody back, but for the port of a client.
 *
 * Limits: log lines of a user (log_limit.h), TRACE_MAX and TRACE_MAX_PER_USER. A client that does not read
 * loses events, and hears how many. Counting and tracing allocate nothing but the ring of a trace. */
#ifndef TIERD_DAEMON_TELEMETRY_FRONT_H
#define TIERD_DAEMON_TELEMETRY_FRONT_H

#include "daemon/model/model.h"
#include "daemon/telemetry/events.h"
#include "daemon/telemetry/stall.h"
#include "daemon/telemetry/trace.h"
#include "daemon/telemetry/watch.h"

/* ---- telemetry.c ---- */
int telemetry_open(struct node *node);
/* No client listens any more. */
void telemetry_close(struct node *node);
int telemetry_new(struct job *job);
void telemetry_free(struct job *job);

/* Clients that are connected, and all requests of clients so far. */
struct client_count {
	unsigned connected;
	uint64_t requests;
};
struct client_count *telemetry_clients(const struct node *node);

/* The figures of jobs that are gone. */
struct statistics_figures *figures_past(const struct node *node);
/* Whoever does the counted thing adds to them. */
struct statistics_figures *figures_of(const struct job *job);
void figures_add(struct statistics_figures *sum, const struct statistics_figures *more);
/* The page of its statistics, once a client has asked for it; its descriptor is -1 until then. observe/ makes
 * and writes it. */
struct memory *telemetry_page(const struct job *job);
/* Notes that ranks wait since then. False: it was noted before. */
bool telemetry_note_wait(struct job *job, uint64_t since_ns);

/* ---- account.c ---- */
/* Units have been defined. */
void account_define(struct job *job, struct member *member);
/* The account of a member, or, if NULL, that of rank 0. */
void account_statistics(struct job *job, struct member *member, Tierd__Wire__StatisticsReply *reply);
/* It has been submitted. */
void account_transfer(struct job *job, enum statistics_kind kind, struct store_transfer *transfer);
void account_step(struct job *job);
void account_push(struct job *job, struct member *member, uint32_t unit);

#endif
