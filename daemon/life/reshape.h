/* A job's shape is its world size, its stage, whether its units are pushed once, and the memory for that. It
 * does not change how the state is stored. So an idle job gets another shape when it is opened with one:
 * nothing is copied, and what its ranks need is planned anew. */
#ifndef TIERD_DAEMON_RESHAPE_H
#define TIERD_DAEMON_RESHAPE_H

#include "daemon/model/model.h"

/* Gives the job, which has a state, the shape of these options; all else in them has to be equal, as for
 * options_compare(). On a negative errno, with a message, the job stays as it was: -EBUSY names the ranks
 * that are there; -EAGAIN: it has not come to rest yet, but soon will. */
int reshape(struct job *job, const struct job_options *options, char *message, size_t size);

bool reshape_is_asked(const struct job *job, const struct job_options *options);
/* A job that cannot get other sums keeps those for several pushes, which take a single one, too. */
void reshape_overlook(const struct job *job, struct job_options *asked);

/* The job has the memory for its shape: the shape stays, and the next commit has it. -ENOMEM. */
int reshape_keep(struct job *job);

/* All ranks have left before that: the job gets its former shape back. */
void reshape_undo(struct job *job);

#endif
