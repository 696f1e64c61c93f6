/* The norm of a step's gradients: measures the sums of the units that were pushed, on the workers. */
#ifndef TIERD_DAEMON_NORM_H
#define TIERD_DAEMON_NORM_H

#include "daemon/model/model.h"

struct norm;

/* Runs once, on the loop, unless the norm was given up. The norm is freed when it returns. */
typedef void norm_done(struct job *job, const struct norm *norm);

/* The caller leaves the sums alone until done() runs. -ENOMEM. */
int norm_start(struct job *job, norm_done *done);
bool norm_is_running(const struct job *job);
/* The epoch has ended: done() of a running norm does not run. */
void norm_give_up(struct job *job);

/* The square sums of the unit's blocks, of its sum as it is now; NULL: they have not been measured. Borrowed
 * until more is added. */
const double *norm_find(const struct job *job, uint32_t unit);

/* The sum of squares, in the order of unit, rank and block. */
double norm_sum(const struct norm *norm);
/* The first unit whose gradients are not finite. */
const char *norm_find_nonfinite(const struct norm *norm);

#endif
