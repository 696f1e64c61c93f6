/* What a job's steps report, and ask before they go on: of what becomes durable, of values that are read and
 * written between them, and of the job's life. Set when the job is made. */
#ifndef TIERD_DAEMON_STEP_LISTENERS_H
#define TIERD_DAEMON_STEP_LISTENERS_H

#include <stdbool.h>
#include <stdint.h>

struct job;
struct member;
struct pending;
struct queue;

/* What becomes durable. */
struct commit_listener {
	/* The open step may not be decided yet: its commit would have to wait. */
	bool (*holds)(const struct job *job);
	/* No commit is under way. */
	bool (*is_quiet)(const struct job *job);
	/* The last applied step is not durable. */
	bool (*is_behind)(const struct job *job);
	/* How long state may stay unwritten after a step; 0: each step is written. */
	uint32_t (*seconds)(const struct job *job);
	/* False: a commit that is under way has to write the pack before it is updated. */
	bool (*lets_update)(struct job *job, uint32_t pack);
	/* The open step has failed. */
	void (*failed)(struct job *job);
	/* It is applied, before its ranks hear of it. */
	void (*applied)(struct job *job);
	/* The member has been answered that it is; it is answered again when it is durable. */
	void (*answered)(struct member *member, struct pending *pending);
	/* A commit may begin. */
	void (*may_begin)(struct job *job);
};

/* A step of values that ranks write, instead of gradients. */
struct writing_listener {
	/* False, and the request is answered: the rank cannot enter now. */
	bool (*check_enter)(struct pending *pending);
	/* All ranks have entered, and what was before is applied. */
	void (*open)(struct job *job);
	/* All ranks have ended their part, and nothing of theirs is under way. */
	void (*decide)(struct job *job);
	/* The sweep is done. */
	void (*end)(struct job *job);
	/* It comes to nothing: the epoch has ended before it was decided, or the job is broken or dropped. */
	void (*forget)(struct job *job);
};

/* What reads and writes values while steps are taken. */
struct sweep_listener {
	/* A sweep begins: who has to watch it (daemon/update/sweep_watch.h) joins the queue. */
	void (*began)(struct job *job, struct queue *watches);
	/* It has come to a pack that somebody pins. */
	void (*came_to)(struct job *job, uint32_t pack);
	/* A pack that was updated has been written. */
	void (*written)(struct job *job);
	/* What had stayed in host memory has been written. */
	void (*flushed)(struct job *job);
	/* A step of the member is refused: what waits for its version will not see it. */
	void (*refused)(struct member *member);
	/* The job has a state now. */
	void (*initialized)(struct job *job);
};

#endif
