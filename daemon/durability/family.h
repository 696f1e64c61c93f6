/* Family: the jobs whose states lie in one store, a job and its forks. Each commits, keeps snapshots, is
 * released and comes back by itself. What they share is their files: how many bytes each of them has there,
 * that all of them close the files when nothing can be written there any more, and who removes the files. */
#ifndef TIERD_DAEMON_FAMILY_H
#define TIERD_DAEMON_FAMILY_H

#include "daemon/model/model.h"
#include "daemon/durability/job_file.h"

/* Jobs of the node, here or on their way out (jobs: its list of either), whose state lies in a file. The body
 * may remove the current one. */
#define FAMILY_FOREACH(item, jobs, file)                                                                     \
	for (struct job *item = family_next(jobs, file, NULL), *next_##item = family_next(jobs, file, item); \
	     item; item = next_##item, next_##item = family_next(jobs, file, item))
/* After that one; at first there is none. NULL: no more. */
struct job *family_next(const struct queue *jobs, const char *file, const struct job *job);

/* As its store says. A job that has none is alone. */
void family_get(const struct job *job, struct store_family *ret_family);

/* The names of the others; "" if there are none. */
const char *family_name_others(const struct job *job, char *text, size_t size);
#define FAMILY_TEXT ((STORE_MAX_SNAPSHOTS + 1) * (WIRE_MAX_JOB_NAME + 3))

/* Bytes of its state on NVMe: those that no other job of its store has, and those that it shares. */
void family_measure(const struct job *job, uint64_t *ret_own_bytes, uint64_t *ret_shared_bytes);

/* The most snapshots that any job of the family has asked room for. */
unsigned family_asked_snapshots(const struct job *job);

/* Charges a job for its part of the paths: what it may change. The first job of the store is charged for all
 * the rest, too. is_fork: its part was charged to its origin until now. -ENOSPC with a message. */
int family_charge(struct job *job, bool is_fork, char *message, size_t size);
/* The same for all of them: their number has changed, or their bytes, or the room for snapshots. */
void family_charge_again(struct node *node, const char *file);

/* A job that has these files open, through whose store others can be opened; NULL: there is none. */
struct job *family_find_host(const struct node *node, const char *file);

/* 0, or -EIO with a message: the job cannot be removed from the store, because a map in it cannot be read. */
int family_check_end(const struct job *job, char *message, size_t size);

/* Of a job that is to end, and has nothing in flight. True: it is being removed from the store that the
 * others keep, and settles then. */
bool family_leave(struct job *job);
/* That has failed: it is still to be removed. */
bool family_is_left_behind(const struct job *job);

#endif
