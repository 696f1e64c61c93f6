/* Scrub: what lies on NVMe is read for the sake of its checksums, so that damage is found before somebody
 * needs what is damaged.
 *
 * A scan (scan.c) reads some extents of one job, one read at a time, when the device has nothing else to do.
 * Two things start scans. The scrub (scrub.c) goes through all that jobs have, again and again and slowly: a
 * pass of a job takes a period, which is configured; a client may hurry it. Verifying (verify.c) reads a part
 * that a client has asked for, at once, and tells him which blocks are damaged. What either finds damaged, or
 * good again, the job knows from then on (damaged.c), and readings of users show it; a block that the scrub
 * finds is told as an event. Data is not repaired here: a block is good again when its extent is written
 * anew. Of a node of the map the store writes a bad copy again from the good one.
 *
 * A job's history (how far its pass is, and what is damaged) goes over to the job that comes back from the
 * same store. A job's life asks whether scans are under way before it frees the job; nothing else goes
 * upwards. The part of a scan that reads the map is a store task, so a commit waits for it.
 *
 * Limits: one scan of the scrub for the whole node, VERIFY_MAX_RUNNING of clients, a MiB of memory for each.
 */
#ifndef TIERD_DAEMON_SCRUB_H
#define TIERD_DAEMON_SCRUB_H

#include "daemon/request/request.h"

/* Verifications that read at once. Each has a MiB of host memory; others wait. */
#define VERIFY_MAX_RUNNING 4

struct job;
struct job_scrub;
struct node;

/* What it keeps of a job, and of a node. -ENOMEM. period_ns: once through all of a job; 0: only what somebody
 * hurries. What ends them takes those that were not made; nothing of them is under way. */
int scrub_new(struct job *job);
void scrub_free(struct job *job);
int scrub_open(struct node *node, uint64_t period_ns);
void scrub_close(struct node *node);

uint64_t scrub_period_ns(unsigned days);
void scrub_set_period(struct node *node, uint64_t period_ns);

/* The job goes on with the history of the one that it was before: that one's job->scrub, which is the job's
 * from now on. Who has taken it there, and has no such job, frees it; NULL. */
void scrub_take_over(struct job *job, struct job_scrub *history);
struct job_scrub *scrub_history_free(struct job_scrub *history);

/* None of the job's scans is under way. */
bool scrub_is_quiet(const struct job *job);
/* That are known. */
uint32_t scrub_damaged_blocks(const struct job *job);

/* A client starts, stops or looks. */
void scrub_request(struct pending *pending, const Tierd__Wire__Scrub *request);

/* ---- verify.c ---- */

/* A client has a part of a job's state on NVMe read, and hears which blocks of it are damaged. */
void verify_begin(struct pending *pending, const Tierd__Wire__Verify *request, struct queue *client_verifies);
/* Nobody waits for them any more. */
void verify_forget_all(struct queue *client_verifies);
/* Ends verifications of the job that only clients wait for who may not any more. */
void verifies_end_denied(const struct job *job, const char *reason);

#endif
