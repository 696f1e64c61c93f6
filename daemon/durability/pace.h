/* Pace: when a commit of a job's applied steps is due. Each step is, where a commit costs no more than the
 * step itself has written; else those of some seconds together, unless somebody waits for one. */
#ifndef TIERD_DAEMON_PACE_H
#define TIERD_DAEMON_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct event;
struct job;

struct pace {
	struct job *job;
	struct event *timer;
	uint64_t applied_ns; /* the first step that no commit has taken; 0: there is none */
	uint64_t taken_ns;   /* the same, of what the commit that is under way has taken */
	bool is_due;
};

/* What counts of a job, never DURABILITY_DEFAULT; and until a commit of an applied step begins: 0 at once. */
uint32_t pace_durability(const struct job *job);
uint32_t pace_seconds(const struct job *job);

/* -ENOMEM. */
int pace_init(struct pace *pace, struct job *job);
void pace_end(struct pace *pace);

/* There is an applied step that no commit has taken; again and again, as one likes. When it has waited for
 * long enough, durable_advance() is called. */
void pace_note_step(struct pace *pace);
/* A commit takes all that is applied; it is durable. */
void pace_take(struct pace *pace);
void pace_end_commit(struct pace *pace);

/* Since the oldest applied step that is not durable. */
uint64_t pace_lag_ns(const struct pace *pace);

#endif
