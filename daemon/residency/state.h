/* How a pack is present in host memory, what happens to it, and what it is then: the table is in state.c. */
#ifndef TIERD_DAEMON_RESIDENCE_STATE_H
#define TIERD_DAEMON_RESIDENCE_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/transition.h"

struct job;

enum residence_state {
	RESIDENCE_ABSENT,
	RESIDENCE_QUEUED, /* absent, and somebody waits for it, and it for a slot */
	RESIDENCE_LOADING,
	RESIDENCE_RESIDENT,
	RESIDENCE_UNPUBLISHED, /* in its slot, where clients see no values of it yet, or none of its version
				*/
	/* The same, and a sweep is to update it: until then it is neither loaded nor evicted. */
	RESIDENCE_DUE_ABSENT,
	RESIDENCE_DUE_LOADING,
	RESIDENCE_DUE_RESIDENT,
	RESIDENCE_DUE_UNPUBLISHED,
	/* The sweep updates it: in its slot, or without one, by staging buffers. */
	RESIDENCE_UPDATING,
	RESIDENCE_STREAMING,
};
#define RESIDENCE_STATES (RESIDENCE_STREAMING + 1)

enum residence_event {
	RESIDENCE_QUEUE,       /* somebody waits for it, and there is no slot */
	RESIDENCE_LEAVE_QUEUE, /* nobody waits for it any more */
	RESIDENCE_LOAD,	       /* it has got a slot, and is read into it */
	RESIDENCE_LOAD_FAILED,
	RESIDENCE_FILL,	   /* it has got a slot, where values are written */
	RESIDENCE_PUBLISH, /* its bytes are in its slot */
	RESIDENCE_EVICT,
	RESIDENCE_CLAIM,	/* a sweep is to update it */
	RESIDENCE_BEGIN,	/* and begins with that, where the pack is */
	RESIDENCE_BEGIN_LOADED, /* and does, in a slot that it has just got */
	RESIDENCE_END,		/* and has ended it */
	RESIDENCE_GIVE_UP,	/* its bytes are in the store alone */
	RESIDENCE_FORGET,	/* the arena has gone */
};
#define RESIDENCE_EVENTS (RESIDENCE_FORGET + 1)

struct residence_transition {
	struct transition transition;
	bool (*guard)(struct job *job, uint32_t pack);	/* NULL: always */
	void (*action)(struct job *job, uint32_t pack); /* when it has that state; or NULL */
	const char *guard_name, *action_name;
};

/* Its rows are these. */
extern const struct transition_table residence_table;

/* False: its guard is against it, and nothing has changed. The table has to have the event. */
bool residence_step(struct job *job, uint32_t pack, enum residence_event event);

#endif
