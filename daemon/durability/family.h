/* Family: jobs whose states lie in one store, a job and its forks. Each commits, keeps snapshots, is released
 * and comes back by itself; of one mind they are about their files: how many bytes each of them has there,
 * that they all let go of them when nothing is written there any more, and who removes them. */
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

/* As its store says; of one that has none, that it is alone. */
void family_get(const struct job *job, struct store_family *ret_family);

/* Their names; "" if there are none. */
const char *family_name_others(const struct job *job, char *text, size_t size);
#define FAMILY_TEXT ((STORE_MAX_SNAPSHOTS + 1) * (WIRE_MAX_JOB_NAME + 3))

/* Bytes of its state on NVMe: those that only it has of the jobs in its store that are here, and the others.
 */
void family_measure(const struct job *job, uint64_t *ret_own_bytes, uint64_t *ret_shared_bytes);

/* How many snapshots there is to be room for, as far as anybody has asked for it. */
unsigned family_asked_snapshots(const struct job *job);

/* Takes for a job what it has of its paths: what it may change; the first one of the store, all the rest.
 * is_fork: what there is for it is another one's, and goes over. -ENOSPC with a message. */
int family_charge(struct job *job, bool is_fork, char *message, size_t size);
/* The same for all of them, when there are others than before, or more bytes; and for how many snapshots
 * there is room now. */
void family_charge_again(struct node *node, const char *file);

/* One that has these files open, so that others can be reached through its store; NULL: nobody can be asked.
 */
struct job *family_find_host(const struct node *node, const char *file);

/* 0, or the same: so the job cannot be removed from there. */
int family_check_end(const struct job *job, char *message, size_t size);

/* A job that is to end, and of which nothing is in flight. True: it leaves its store to the others first, and
 * settles then. */
bool family_leave(struct job *job);
/* It did so in vain: it is still to be removed from there. */
bool family_is_left_behind(const struct job *job);

#endif
