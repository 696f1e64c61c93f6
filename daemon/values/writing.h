/* A writing: between two steps ranks give tensors, and what the optimizer keeps, other values. It takes the
 * number of a step, so no two states of a job have the same one. What is written waits in a draft; when all
 * ranks have ended their part it is decided, and then applied like a step, whoever dies. */
#ifndef TIERD_DAEMON_WRITING_H
#define TIERD_DAEMON_WRITING_H

#include "daemon/model/model.h"

void writing_enter(struct pending *pending, const Tierd__Wire__WriteBegin *begin);
void writing_leave(struct pending *pending, const Tierd__Wire__WriteEnd *end);
/* False, and the request is answered: the rank cannot enter now. */
bool writing_check_enter(struct pending *pending);
/* All ranks have entered, and what was before is applied. */
void writing_open(struct job *job);

/* False, and the request is answered, if the rank may not write that now; else pending->state is set. The
 * range is the caller's to check. */
bool writing_check(struct pending *pending, const Tierd__Wire__TensorWrite *write);
/* A write has failed that was not wrong: the writing comes to nothing. */
void writing_note_failure(struct job *job, const struct member *member, int status);

/* All ranks have ended their part, and nothing of theirs is under way. */
void writing_decide(struct job *job);
/* In the job's turn. False: there is nothing to do, and nothing left of one that came to nothing. */
bool writing_go_on(struct job *job);
/* How often a tensor of the unit was updated, by the version that its pack has. */
uint64_t writing_updates(const struct job *job, uint32_t unit, const struct tensor *tensor);
/* The sweep is done. */
void writing_end(struct job *job);
/* The epoch has ended: one that is not decided comes to nothing. */
void writing_abort(struct job *job);
/* The job is broken or dropped. */
void writing_cancel(struct job *job);

#endif
