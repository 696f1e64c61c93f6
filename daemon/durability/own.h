/* What the durability module keeps of a job and of a node; for its own files and tests. */
#ifndef TIERD_DAEMON_DURABILITY_OWN_H
#define TIERD_DAEMON_DURABILITY_OWN_H

#include "daemon/durability/blobs.h"
#include "daemon/durability/job_file.h"
#include "daemon/durability/job_store.h"
#include "daemon/model/model.h"

struct durable;
struct event;
struct backup;
struct listing;

/* ---- blobs.c ---- */

/* Keys of each rank, and keys that all ranks share. The record has room for BLOBS_MOST blobs of a job,
 * whatever its world size becomes. */
#define BLOB_KEYS 16
#define BLOBS_MOST 1024

struct blob {
	struct queue link; /* those that count, in the order of their offsets; then the others */
	char key[WIRE_MAX_BLOB_KEY + 1];
	uint32_t rank;		     /* or BLOB_SHARED */
	bool counts;		     /* a step that is applied has set it */
	uint64_t size, offset, step; /* if it counts; step: the one that has set it */
	uint64_t room;		     /* the most that it takes, now or in a step to come */
};

/* A blob that is set with a step: not before that is applied. */
struct staged_blob {
	struct queue link; /* of blobs->begun, or of blobs->staged once it is complete */
	struct blob *blob;
	uint32_t rank; /* that has set it */
	uint64_t step, size;
	bool is_deletion;
	char bytes[];
};

/* Blobs that count lie side by side in an image, in the order of the list. Commits write the image as it is.
 * Blobs of steps to come have memory of their own. */
struct blobs {
	struct queue all;		 /* struct blob */
	struct queue begun;		 /* struct staged_blob: whose bytes still come */
	struct queue staged;		 /* struct staged_blob: by step, then by rank */
	uint64_t used;			 /* of the image */
	uint64_t room;			 /* of all blobs */
	uint64_t dirty_first, dirty_end; /* bytes of the image that no commit has taken */
	struct memory image;		 /* once there is one */
	uint32_t count;			 /* of all */
	bool is_loading;		 /* from the store; the job must stay */
};

void blobs_init(struct blobs *blobs);
void blobs_free(struct job *job);

/* How many there are at most. */
uint32_t blobs_most(const struct job *job);
bool blob_key_is_valid(const char *key);

/* Room for one of that size; with a message: -EINVAL, -ENOSPC, -ENOMEM. It is staged by blobs_stage(), or
 * given up. */
int blobs_begin(struct job *job, const char *key, uint32_t rank, uint64_t size, bool is_deletion,
		struct staged_blob **ret_staged, char *message, size_t length);
/* Replaces what the rank has staged under that key with that step. */
void blobs_stage(struct job *job, struct staged_blob *staged, uint32_t rank, uint64_t step);
void blobs_give_up(struct job *job, struct staged_blob *staged);

struct blob *blobs_find(const struct job *job, const char *key, uint32_t rank);

/* What a commit has to write: whole extents of the image. False: nothing. */
bool blobs_take_dirty(struct job *job, uint64_t *ret_offset, uint64_t *ret_length);

/* ---- presence.c ---- */

/* Looks every few seconds at the files of all jobs. -ENOMEM: presence_close() follows all the same. */
int presence_open(struct node *node);
void presence_close(struct node *node);
/* Looks now, and tells it if that has changed. Whether the files are there, as they were found first. */
bool presence_check(struct job *job);

/* Of a job. */
struct presence_files {
	ino_t inodes[NODE_MAX_PATHS]; /* by the node's paths; 0: not looked at yet */
	bool is_removed;
	unsigned removed; /* the path */
};

/* ---- backup.c ---- */

/* Of a job with location.has_backup. done(): a backup has ended. -ECANCELED: the job is broken or dropped;
 * other errors have broken it. Never in backup_begin(). -ENOMEM. */
int backup_init(struct job *job, void (*done)(struct job *job, int status));
void backup_free(struct job *job);
/* Writes what has changed since the last backup. The job stands between two steps, and no backup is under
 * way.
 */
void backup_begin(struct job *job);

/* ---- durable.c ---- */

/* The commit that writes its new definition is still to come, or on its way. */
bool durable_is_redefined(const struct job *job);

/* ---- family.c ---- */

/* 0, or -EIO with a message: nothing is written to its store, because the map of another job in it, or of a
 * snapshot of that, cannot be read. */
int family_check_lost(const struct job *job, char *message, size_t size);

/* ---- pace.c ---- */

struct pace {
	struct job *job;
	struct event *timer;
	uint64_t applied_ns; /* the first step that no commit has taken; 0: there is none */
	uint64_t taken_ns;   /* the same, of what the commit that is under way has taken */
	bool is_due;
};

/* -ENOMEM. */
int pace_init(struct pace *pace, struct job *job);
void pace_end(struct pace *pace);

/* There is an applied step that no commit has taken. When it has waited for long enough, durable_advance() is
 * called. May be called again for the same step. */
void pace_note_step(struct pace *pace);
/* A commit takes all applied steps. */
void pace_take(struct pace *pace);
/* It has ended. */
void pace_end_commit(struct pace *pace);

/* How long the oldest applied step has waited that is not durable. */
uint64_t pace_lag_ns(const struct pace *pace);

/* ---- retention.c ---- */

/* A step has become durable. */
void retention_note_commit(struct job *job);

/* ---- store_task.c ---- */

/* The most tasks of clients that wait for a job. They are done even if their clients are gone. */
#define STORE_TASKS_MAXIMUM 256
bool store_tasks_have_room(const struct job *job);
/* Begins the first one if it can go. True: one is under way. */
bool store_tasks_advance(struct job *job);

/* ---- job_file.c ---- */

/* Of "UID/NAME-N.store", in a path's folder; false: it is no such name. */
bool job_file_parse(const char *file, struct job_file *ret_job);
/* No file of any job is there, nor what could be one. */
bool job_files_are_absent(struct node *node, unsigned path);

/* ---- The module's part of a job ---- */

struct job_durability {
	struct job *job;
	struct presence_files files; /* of its store, once it is durable */
	enum job_store_state store;
	struct store_request leaving;
	bool is_retention_missed;  /* a step was not kept by itself that was due, and none since */
	uint64_t first_kept;	   /* earlier steps are not kept by themselves: retention_begin() */
	uint32_t snapshots_asked;  /* options.snapshots may be more: what forks that are gone have left */
	bool is_retention_set;	   /* by retain_snapshots(): its ranks need not know */
	struct queue pinned_steps; /* for readers: daemon/durability/pinned_step.h */
	bool has_earlier_updates;  /* units have had more than its steps, there */
	struct blobs blobs;
	struct durable *durable; /* NULL: its state ends with the daemon, or has not begun */
	struct backup *backup;	 /* NULL: it needs none */
	struct queue tasks;	 /* of its store, beside commits: daemon/durability/store_task.h */
};

/* And of a node. */
struct node_durability {
	struct listing *listing; /* NULL: it keeps no list of jobs */
	struct event *presence;	 /* the timer of presence.c */
};

#endif
