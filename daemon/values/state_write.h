/* Writing what an optimizer keeps: before training, so that the job begins with it, and at the step after
 * which it was kept; or in a writing. Extents are rewritten as a whole, so one piece of a job is written at a
 * time. */
#ifndef TIERD_DAEMON_STATE_WRITE_H
#define TIERD_DAEMON_STATE_WRITE_H

#include "daemon/values/operation.h"

/* False, and the request is answered, if it may not be; else the number of the state. The job has not been
 * ready, or a writing is open; the range is checked. */
bool state_write_check(struct pending *pending, const Tierd__Wire__TensorWrite *write, int *ret_state);
/* Of a job that has its memory and its stores. */
void state_write_start(struct tensor_operation *operation);
/* In the job's turn: starts the next one. False: there is none, and none is under way. */
bool state_write_go_on(struct job *job);
/* In the job's turn, once all is written: it begins at the step that was said. */
void state_write_begin_job(struct job *job);

#endif
