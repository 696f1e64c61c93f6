/* Snapshots: steps of a job that stay on its devices under names, while the job goes on. */
#ifndef TIERD_DAEMON_SNAPSHOT_H
#define TIERD_DAEMON_SNAPSHOT_H

#include "daemon/durability/store_task.h"

/* member: who asks as a rank, or NULL. requesters: of the client, until they are answered. */
void snapshot_take(struct pending *pending, const struct member *member,
		   const Tierd__Wire__SnapshotTake *take, struct queue *requesters);
void snapshot_delete(struct pending *pending, const Tierd__Wire__SnapshotDelete *request,
		     struct queue *requesters);
void snapshot_diff(struct pending *pending, const Tierd__Wire__SnapshotDiff *diff, struct queue *requesters);

/* The job's snapshots, and what each of them keeps: snapshot_list.c. Answers at once, or, if the client asks
 * how much each keeps, when the store has measured that. */
void snapshot_list(struct pending *pending, const Tierd__Wire__SnapshotsRead *read, struct queue *requesters);

/* The job's snapshots, and those of them that are lost. */
unsigned snapshot_count(const struct job *job);
unsigned snapshot_count_lost(const struct job *job);
/* 0, or -EIO with a message: nothing can be written to the job's store, because the map of a snapshot or of a
 * job in it is lost. */
int snapshot_check_lost(const struct job *job, char *message, size_t size);
/* 0, or why snapshots of the job cannot be asked for now. */
int snapshot_check_job(const struct job *job, char *message, size_t size);
/* 0, or why what the store has of the job cannot be changed now. */
int snapshot_check_change(const struct job *job, char *message, size_t size);
/* 0, or why the user at the port cannot take a snapshot now. */
int snapshot_check_take(const struct job *job, const struct port *port, char *message, size_t size);
/* False: the job has none of that name. */
bool snapshot_look_for(const struct job *job, const char *name, struct store_snapshot *ret_snapshot);
/* The same, after snapshot_check_job(). -ENOENT: the message names those that the job has. */
int snapshot_find(const struct job *job, const char *name, struct store_snapshot *ret_snapshot, char *message,
		  size_t size);
/* Says to a person why the store has refused or failed. */
void snapshot_explain(const struct job *job, const char *name, int status, char *message, size_t size);
#define SNAPSHOT_TEXT 900
/* Answers the client of the task with that. */
void snapshot_fail(struct store_task *task, const char *name, int status);

#endif
