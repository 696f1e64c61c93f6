/* A tier on top of another that fails on demand, to test what is above it, also in a real daemon. */
#ifndef TIERD_OFFLOAD_FAULT_H
#define TIERD_OFFLOAD_FAULT_H

#include <stdbool.h>

#include "offload/device/tier.h"

enum fault_kind {
	FAULT_SUBMIT,	  /* tier_submit() returns the error */
	FAULT_COMPLETE,	  /* done() gets the error; a write or a flush has not happened */
	FAULT_CORRUPT,	  /* the first bit of what was read or written is flipped */
	FAULT_LOSE,	  /* a write or a flush is acknowledged and never happens */
	FAULT_MISDIRECT,  /* the bytes come from, or go to, a neighbouring place */
	FAULT_KILL,	  /* the process dies of SIGKILL before it */
	FAULT_KILL_AFTER, /* and after it, before done() */
};

struct fault_config {
	enum fault_kind kind;
	int error;		       /* positive errno for SUBMIT and COMPLETE */
	enum tier_direction direction; /* which counts */
	uint64_t countdown;	       /* the countdown-th transfer of that direction fails; 0: none ever */
	bool is_lasting;	       /* and all after it */
};

/* Owns next, also after an error. Allocates for each transfer that it touches: tier_submit() may then return
 * -ENOMEM. */
int fault_tier_new(struct tier *next, const struct fault_config *config, struct tier **ret_tier);
bool fault_tier_has_tripped(const struct tier *tier);

/* Reads "KIND:DIRECTION:COUNTDOWN[:ERRNO][:lasting]", such as "complete:write:3:EIO" (KIND: submit, complete,
 * corrupt, lose, misdirect, kill, kill-after; DIRECTION: read, write, flush; ERRNO: EIO if absent); -EINVAL.
 */
int fault_config_parse(const char *text, struct fault_config *ret_config);

#endif
