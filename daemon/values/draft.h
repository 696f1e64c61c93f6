/* A draft: values that ranks give while units are still being defined, or in a writing. It lies on the node's
 * paths, or in host memory where there are none, in the order in which they came. Once the job is laid out,
 * or the writing decided, they are written where they belong in that order, as if they came then: the bits
 * are those of a job that was defined first. */
#ifndef TIERD_DAEMON_DRAFT_H
#define TIERD_DAEMON_DRAFT_H

#include "daemon/values/operation.h"

/* Takes a write of a member into the draft of its job, which is begun if there is none. It is answered once
 * the values are there, or with what they lack. */
void draft_write(struct tensor_operation *operation);

/* Whether there is room for a job of which this much is defined: 0, or a negative errno with a message. */
typedef int draft_check(struct job *job, char *message, size_t size);

/* In the job's turn: takes what waits, or, once the job is laid out, writes on. False: there is nothing to do
 * now; of a job that is laid out: all is written, and the draft has gone.
 * check: of a job whose units are being defined; NULL: it is laid out, and has its room. */
bool draft_go_on(struct job *job, draft_check *check);

/* Nothing of it is in flight. */
bool draft_is_quiet(const struct job *job);
/* The job is dropped: what of it only waits does so no longer. */
void draft_cancel(struct job *job);
/* In the turn of a broken job: it has gone as soon as nothing of it is in flight. */
void draft_give_up(struct job *job);
/* With its files. It is quiet, or there is none. */
void draft_free(struct job *job);

#endif
