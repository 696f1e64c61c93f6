/* Job files: the files that earlier daemons have left on the node's NVMe paths, found by their names:
 * PATH/UID/NAME-N.store, one on each path. They have the state of the job that they are named after, and of
 * its forks; or of forks alone. Nothing here looks into them. */
#ifndef TIERD_DAEMON_JOB_FILE_H
#define TIERD_DAEMON_JOB_FILE_H

#include "daemon/model/model.h"
#include "proto/vocabulary.h"

struct job_file {
	uid_t uid;
	char name[WIRE_MAX_JOB_NAME + 1];
	uint64_t number;	   /* a later job of the same name has a higher one */
	char file[JOB_FILE_BYTES]; /* in the folder of each path */
	bool is_unfinished;	   /* nothing in it was to outlive the daemon that made it */
	bool is_given_up;	   /* nobody wants it any more: daemon/durability/listing.h */
};

/* Gives the job that number, and files of its own. */
void job_file_assign(struct job *job, uint64_t number);
/* Of a job of this node. */
void job_file_get(const struct job *job, struct job_file *ret_job);

/* Its files on these paths were unfinished, and are to stay from now on. What is in them is on the disk
 * already. Slow. */
int job_file_finish(const struct node *node, const struct path_list *paths, const struct job_file *job);

/* Removes its files; slow where they are large. */
void job_file_remove(const struct node *node, const struct job_file *job);

/* Calls found() for each job that has a file on some path, or is on the list of jobs, the oldest first.
 * Whatever is no file of a job is logged, and left where it is. Jobs that are opened from now on get higher
 * numbers than all that was seen.
 *
 * found() may take the files away; after a negative errno it is not called again, and that is returned.
 * -ENOMEM; others: a path cannot be read, which is logged. */
int job_files_find(struct node *node,
		   int (*found)(struct node *node, const struct job_file *job, void *argument),
		   void *argument);

#endif
