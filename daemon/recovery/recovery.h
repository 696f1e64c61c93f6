/* Recovery: jobs come back from their stores, at their last durable step.
 *
 * It happens when a daemon starts (restore_start.c), when a job is rolled back to a snapshot (roll_back.c),
 * when a fork is made (fork.c), when a job has failed and is opened again, and when what was to replace a job
 * ends before it has a state.
 *
 * Each of them is a restore (own.h). It waits until nobody else opens or leaves the files of its store, opens
 * them, or attaches to the store of a job that has them open (restore_store.c), reads the job's record and
 * makes a job of it, idle and released (record_read.c). What cannot be read becomes a job that is lost, with
 * the reason (daemon/life/lost.h). A restore may also remove a job from its store, where nobody wants it any
 * more.
 *
 * When a daemon starts all records are read before any of them becomes a job: of two jobs of one name the
 * later one counts. Restores become jobs in the order in which they began, so that where there is not room
 * for all of them the same ones get it each time.
 *
 * The session calls it with requests to fork and to roll back, the service when it starts. A job's life asks
 * it to bring jobs back by the table recovery_of_life, which lies below it. It reports nothing upwards but by
 * the notice of who waits for a job. */
#ifndef TIERD_DAEMON_RECOVERY_FRONT_H
#define TIERD_DAEMON_RECOVERY_FRONT_H

#include "daemon/recovery/restore.h"

/* ---- Requests ---- */

/* A new job begins as a snapshot of another one, or as its last step. It lies in the same store, in which
 * what neither has changed lies once. requesters, here and below: of the client, until it is answered. */
void fork_job(struct pending *pending, const Tierd__Wire__JobFork *request, struct queue *requesters);

/* A job's state becomes that of one of its snapshots. Answers once the job is there again. */
void roll_back_job(struct pending *pending, const Tierd__Wire__JobRollBack *request,
		   struct queue *requesters);

/* A snapshot whose map cannot be read is given up, and the job comes back where it was: what is free is
 * counted anew. */
void roll_back_delete_lost(struct pending *pending, const Tierd__Wire__SnapshotDelete *request,
			   struct queue *requesters);

/* ---- Life ---- */

struct life_recovery;
extern const struct life_recovery recovery_of_life;

/* What it keeps of a node, whose jobs have ended, or which has none yet. -ENOMEM. */
int recovery_open(struct node *node);
void recovery_close(struct node *node);

/* Some job is on its way back, or out of its store. */
bool recovery_is_under_way(const struct node *node);

#endif
