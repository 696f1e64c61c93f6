/* Who hears what the modules of a job report: the tables that the lower ones are given. */
#ifndef TIERD_DAEMON_LISTENERS_H
#define TIERD_DAEMON_LISTENERS_H

struct job;

/* The job is being made. */
void listeners_set(struct job *job);

#endif
