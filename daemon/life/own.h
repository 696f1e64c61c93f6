/* What the life of a job keeps, for the files of this module alone. */
#ifndef TIERD_DAEMON_LIFE_OWN_H
#define TIERD_DAEMON_LIFE_OWN_H

#include "daemon/life/life.h"

struct job_life {
	struct loss loss;	   /* of a job that is or was lost */
	struct replaced *replaced; /* what it takes the place of, until it has a state; owned */
	struct replaced *remains;  /* or it is replaced itself: what is left of it then; borrowed */
	struct setup *setup;
	struct event *slot_timer, *turn, *idle_timer; /* idle_timer: NULL, or of daemon/life/idle.c */
	uint32_t turns_in_a_row;		      /* that only other turns have asked for */
};

struct node_life {
	bool is_in_turn;   /* of one of its jobs */
	unsigned mistakes; /* told: turns of jobs that get nothing done, and changes that no state has */
};

#endif
