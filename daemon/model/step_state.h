/* How far the step is that a job is at, or the writing of values that takes the number of a step. All may
 * read it; daemon/update/step_table.c changes it. */
#ifndef TIERD_DAEMON_STEP_STATE_H
#define TIERD_DAEMON_STEP_STATE_H

#include <stdbool.h>

enum step_state {
	STEP_OPEN,	/* no rank has closed its part */
	STEP_CLOSING,	/* some have */
	STEP_MEASURING, /* all have, and the norm of the gradients is computed */
	STEP_REDUCED,	/* with the optimizer none: its owners read the gradients and write the masters */
	STEP_APPLYING,	/* it is decided: a sweep updates the packs */

	WRITING_ENTERED,  /* some rank has come to write values */
	WRITING_OPEN,	  /* values come */
	WRITING_DECIDED,  /* all of them are there; who reads the old ones comes to an end */
	WRITING_FLUSHING, /* what the store lacks is written */
	WRITING_PLACING,  /* the values are written where they belong */
	WRITING_APPLYING, /* a sweep stores them, and shows them */
};
#define STEP_STATES (WRITING_APPLYING + 1)

/* The step that a job is at. */
struct current_step {
	enum step_state state;
	unsigned closed_count; /* ranks that have closed their part */
};

static inline bool step_is_writing(const struct current_step *step)
{
	return step->state >= WRITING_ENTERED;
}

/* It will be finished, whoever goes. */
static inline bool step_is_decided(const struct current_step *step)
{
	return step->state == STEP_APPLYING || step->state >= WRITING_DECIDED;
}

/* Ranks write what is theirs of it: masters, or values. */
static inline bool step_is_reduced(const struct current_step *step)
{
	return step->state == STEP_REDUCED || step->state == WRITING_OPEN;
}

#endif
