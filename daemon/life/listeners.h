/* Who hears what the rooms of a job report: the tables that its lower rooms are given. */
#ifndef TIERD_DAEMON_LISTENERS_H
#define TIERD_DAEMON_LISTENERS_H

struct job;

/* The job is being made. */
void listeners_set(struct job *job);

#endif
