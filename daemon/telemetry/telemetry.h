/* Events and who watches them, traces, counters, where they arise. */
#ifndef TIERD_DAEMON_TELEMETRY_FRONT_H
#define TIERD_DAEMON_TELEMETRY_FRONT_H

#include "daemon/model/model.h"
#include "daemon/telemetry/events.h"
#include "daemon/telemetry/figures.h"
#include "daemon/telemetry/stall.h"
#include "daemon/telemetry/trace.h"
#include "daemon/telemetry/watch.h"

/* ---- telemetry.c ---- */
int telemetry_open(struct node *node);
/* No client listens any more. */
void telemetry_close(struct node *node);
int telemetry_new(struct job *job);
void telemetry_free(struct job *job);

/* Who does what is counted adds to it there. */
struct statistics_figures *figures_of(const struct job *job);
/* The page of its statistics, once a client has asked for it; its descriptor is -1 until then. observe/ makes
 * and writes it. */
struct memory *telemetry_page(const struct job *job);
/* Ranks wait since then. False: that was noted before. */
bool telemetry_note_wait(struct job *job, uint64_t since_ns);

/* ---- account.c ---- */
void account_read(struct pending *pending);
/* Units have been defined. */
void account_define(struct job *job, struct member *member);
/* Of a member, or, NULL, as rank 0 counts it. */
void account_statistics(struct job *job, struct member *member, Tierd__Wire__StatisticsReply *reply);
/* It has been submitted. */
void account_transfer(struct job *job, enum statistics_kind kind, struct store_transfer *transfer);
void account_step(struct job *job);
void account_push(struct job *job, struct member *member, uint32_t unit);

#endif
