/* A job's shape: its world size, its stage, whether its units are pushed once, and the memory for that. They
 * are ways of reading the same state, so an idle job gets another shape by being opened with one: nothing is
 * copied, and what its ranks need is planned anew. */
#ifndef TIERD_DAEMON_RESHAPE_H
#define TIERD_DAEMON_RESHAPE_H

#include "daemon/model/model.h"

/* All but the shape is what options_compare() wants to be equal; of a job with a state, and no rank in its
 * old shape, that is the job's from here on. A negative errno with a message, and the job as it was: -EBUSY
 * names the ranks that are there; -EAGAIN: it has not come to rest yet, but soon will. */
int reshape(struct job *job, const struct job_options *options, char *message, size_t size);

bool reshape_is_asked(const struct job *job, const struct job_options *options);
/* Units that are pushed once go into sums that are made for more, too, of a job that cannot get others. */
void reshape_overlook(const struct job *job, struct job_options *asked);

/* Its memory has been planned and made: the shape stays, and the next commit says so. -ENOMEM. */
int reshape_keep(struct job *job);

/* All who wanted the shape have left before that: the job has its former one again. */
void reshape_undo(struct job *job);

#endif
