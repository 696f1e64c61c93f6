/* How far the update of a pack is that began before its step was decided, and what happens to it. */
#ifndef TIERD_DAEMON_EARLY_STATE_H
#define TIERD_DAEMON_EARLY_STATE_H

#include "common/transition.h"

enum early_state {
	EARLY_NOTHING,
	EARLY_MEASURING, /* the norm of its gradients is computed */
	EARLY_RUNNING,	 /* its chunks are on their way */
	EARLY_WRITING,	 /* all of them are computed, and some are being written */
	EARLY_READY,	 /* all is done but what is seen */
	EARLY_ADOPTED,	 /* its slot is seen, and some chunks are still being written */
};
#define EARLY_STATES (EARLY_ADOPTED + 1)

enum early_event {
	EARLY_EVENT_BEGIN,    /* no rank can push more of it */
	EARLY_EVENT_REFUSE,   /* its gradients are not finite, or the step is measured or decided already */
	EARLY_EVENT_START,    /* they are finite */
	EARLY_EVENT_COMPUTED, /* its last chunk is */
	EARLY_EVENT_WRITTEN,  /* its last chunk is, before the sweep has come to it */
	EARLY_EVENT_ADOPT,    /* the sweep has come to it before that */
	EARLY_EVENT_PUBLISH,  /* what the store holds back is seen */
	EARLY_EVENT_WITHDRAW, /* the step comes to nothing, or the job breaks or is dropped */
};
#define EARLY_EVENTS (EARLY_EVENT_WITHDRAW + 1)

extern const struct transition_table early_table;

#endif
