/* The measuring of a step's gradients: the square sums of all blocks of the units that were pushed, on the
 * workers. */
#ifndef TIERD_DAEMON_NORM_WORK_H
#define TIERD_DAEMON_NORM_WORK_H

#include "daemon/model/model.h"

struct norm_work;

/* On the loop, once, unless it was given up; the measuring is the caller's until it returns. */
typedef void norm_work_done(struct job *job, const struct norm_work *norm);

/* Nothing changes the sums until it is done. -ENOMEM. */
int norm_work_start(struct job *job, norm_work_done *done);
bool norm_is_running(const struct job *job);
/* The epoch has ended: done() does not run, if it is running. */
void norm_give_up(struct job *job);

/* In unit, rank, block order. */
double norm_work_sum(const struct norm_work *norm);
/* The first unit whose gradients are not finite. */
const char *norm_work_nonfinite(const struct norm_work *norm);

#endif
