/* The norm of a step's gradients: measures the sums of the units that were pushed, on the workers. */
#ifndef TIERD_DAEMON_NORM_H
#define TIERD_DAEMON_NORM_H

#include "daemon/model/model.h"

struct norm;

/* On the loop, once, unless it was given up; the norm is the caller's until it returns. */
typedef void norm_done(struct job *job, const struct norm *norm);

/* Nothing changes the sums until it is done. -ENOMEM. */
int norm_start(struct job *job, norm_done *done);
bool norm_is_running(const struct job *job);
/* The epoch has ended: done() does not run, if it is running. */
void norm_give_up(struct job *job);

/* In unit, rank, block order. */
double norm_sum(const struct norm *norm);
/* The first unit whose gradients are not finite. */
const char *norm_find_nonfinite(const struct norm *norm);

#endif
