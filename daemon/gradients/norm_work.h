/* The measuring of a step's gradients: the square sums of all blocks of the units that were pushed, on the
 * workers. */
#ifndef TIERD_DAEMON_NORM_WORK_H
#define TIERD_DAEMON_NORM_WORK_H

#include "daemon/model/model.h"

/* On the loop, once, unless it was given up; the measuring is the caller's until it returns. */
typedef void norm_work_done(struct job *job, const struct norm_work *norm);

/* job->norm, until it is done. Nothing changes the sums meanwhile. -ENOMEM. */
int norm_work_start(struct job *job, norm_work_done *done);
/* The epoch has ended meanwhile: done() does not run. */
void norm_work_give_up(struct norm_work *norm);

/* In unit, rank, block order. */
double norm_work_sum(const struct norm_work *norm);
/* The first unit whose gradients are not finite. */
const char *norm_work_nonfinite(const struct norm_work *norm);

#endif
