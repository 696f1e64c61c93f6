/* Durability: what makes a job's steps survive the daemon.
 *
 * A durable job has a store, in files on the node's NVMe paths (job_file.c). The store belongs to
 * offload/store; this module says what is written there, and when. job_store.c has the states of a job's
 * store as a table.
 *
 * A commit (durable.c) makes an applied step durable. The interval of commits says when one is due (pace.c).
 * It begins between two steps. It writes the record (record.c: what the job is, and how far it is), the blobs
 * of its ranks (blobs.c), and the state that lies in host memory (backup.c); then the store commits. Ranks
 * hear that their steps are durable when the commit has ended.
 *
 * A store task (store_task.c) is what the store is asked for between two commits: a snapshot (snapshot.c),
 * room for more snapshots (reserve.c), the deletion of old ones (retention.c), and requests of other modules:
 * forks, roll-backs, scans. They go one after the other.
 *
 * Jobs that share a store are a family (family.c): a job and its forks. A job that ends leaves the store to
 * the others.
 *
 * The list of jobs (listing.c) is kept outside of the paths. It says which jobs there are, and on which
 * paths, so that a disk that is not mounted is missed. presence.c looks whether the files of running jobs are
 * still in their places.
 *
 * Who calls it: a job's life, which makes it a store, takes it into use (durable_init()) and closes it; the
 * session, with requests for snapshots and blobs; the update, by the listeners that life sets, when a step is
 * applied or fails. It reports upwards by struct durable_listener, when a commit has ended, and by the done()
 * of each store task.
 *
 * Limits: STORE_TASKS_MAXIMUM tasks of clients wait for a job at most; AWAITED_MOST steps of a rank wait for
 * a commit; a job has BLOBS_MOST blobs; a store has STORE_MAX_SNAPSHOTS snapshots, and as many forks. */
#ifndef TIERD_DAEMON_DURABILITY_FRONT_H
#define TIERD_DAEMON_DURABILITY_FRONT_H

#include "daemon/durability/backup.h"
#include "daemon/durability/blobs.h"
#include "daemon/durability/devices.h"
#include "daemon/durability/durable.h"
#include "daemon/durability/family.h"
#include "daemon/durability/host_load.h"
#include "daemon/durability/job_file.h"
#include "daemon/durability/listing.h"
#include "daemon/durability/pinned_step.h"
#include "daemon/durability/presence.h"
#include "daemon/durability/record.h"
#include "daemon/durability/record_unpack.h"
#include "daemon/durability/reserve.h"
#include "daemon/durability/retention.h"
#include "daemon/durability/snapshot.h"
#include "daemon/durability/state_file.h"
#include "daemon/durability/store_task.h"

/* What it keeps of a job that has its options, and of a node. directory: that of the list of jobs, borrowed;
 * NULL: there is none. -ENOMEM; of a node also as listing_new(). What ends them takes one that was not made
 * whole. */
int durability_new(struct job *job);
void durability_free(struct job *job);
int durability_open(struct node *node, const char *directory);
void durability_close(struct node *node);

/* Nothing of the job's is on its way to or from its store, but for scans. */
bool durability_is_quiet(const struct job *job);

#endif
