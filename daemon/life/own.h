/* What the life of a job keeps, and what its files do for each other. */
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

/* epoch.c: what ends an epoch for all ranks. As struct job_callbacks says: modules below ask for that by
 * job_abort(), job_break(), job_throw_out() and job_send_away(). */
void epoch_abort(struct job *job, int r);
void epoch_break(struct job *job, const struct log_fields *about);
void epoch_throw_out(struct member *member, const char *reason);
void epoch_send_away(struct member *member, const char *reason);
/* The member leaves, and disturbs the others: "rank 1 (pid 42) WHY". */
void epoch_lose(struct member *member, const char *why);

/* listeners.c: a job that is being made gives the modules below it the tables of who hears what they report.
 */
void listeners_set(struct job *job);

#endif
