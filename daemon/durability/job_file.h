/* Job files: the files of jobs that an earlier daemon has left on the node's NVMe paths, found by their
 * names: PATH/UID/NAME-N.store, one on each path for each job. What is in them is for others to look at:
 * forks of the job, too, and perhaps nothing else any more. */
#ifndef TIERD_DAEMON_JOB_FILE_H
#define TIERD_DAEMON_JOB_FILE_H

#include "daemon/model/model.h"
#include "proto/vocabulary.h"

struct job_file {
	uid_t uid;
	char name[WIRE_MAX_JOB_NAME + 1];
	uint64_t number;	   /* a later job of the same name has a higher one */
	char file[JOB_FILE_BYTES]; /* in the folder of each path */
	bool is_outdated;	   /* there is a later one */
	bool is_unfinished;	   /* nothing in it was to outlive the daemon that made it */
	bool is_given_up;	   /* nobody wants it any more: daemon/durability/listing.h */
	uint32_t missing;	   /* paths that lack a file of it, by their bits */
};

/* The job has that number, and files of its own. */
void job_file_assign(struct job *job, uint64_t number);
/* What a job of this node leaves. */
void job_file_get(const struct job *job, struct job_file *ret_job);

/* Its files, made unfinished on these paths, are there for good, under their names: what is in them is safe
 * already. Slow. */
int job_file_finish(const struct node *node, const struct path_list *paths, const struct job_file *job);

/* Removes its files; slow where they are large. */
void job_file_remove(const struct node *node, const struct job_file *job);

/* Calls found() for each job that has a file on some path, or is on the list of jobs: the oldest first, but
 * those that are outdated at the end. Whatever is no file of a job is logged, and left where it is. Jobs that
 * are opened from now on get higher numbers than all that was seen.
 *
 * found() may take the files away; after a negative errno it is not called again, and that is returned.
 * -ENOMEM; others: a path cannot be read, which is logged. */
int job_files_find(struct node *node,
		   int (*found)(struct node *node, const struct job_file *job, void *argument),
		   void *argument);

#endif
