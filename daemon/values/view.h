/* A view: pieces of a job's state as they are at one step, kept in memory of the daemon while the job goes
 * on.
 *
 * Pieces are copied one after the other; those that a sweep comes to first are saved by it, before it updates
 * them, from where it has them anyway. So a view is complete when the next sweep is, at the latest. */
#ifndef TIERD_DAEMON_VIEW_H
#define TIERD_DAEMON_VIEW_H

#include "daemon/update/update.h"
#include "daemon/values/selection.h"
#include "offload/device/memory.h"

struct node;

struct view {
	struct sweep_watch watch; /* of the sweep that looks after it */
	struct job *job;
	uint64_t version;
	struct selection selection;
	struct memory memory;
	char *buffer;	  /* for its copies */
	uint32_t missing; /* pieces */
	uint32_t next;	  /* the one to look at */
	bool is_begun;	  /* and not complete, nor failed */
	bool is_copying;
	struct copy copy;
	/* On the loop, once for each view_begin(), not inside it: all pieces are here, or why not. */
	void (*done)(struct view *view, int status);
	/* After that, or view_cancel(): something that was in flight has come home. */
	void (*rest)(struct view *view);
};

/* Nothing is kept. The job outlives what is in flight; buffer and callbacks are the caller's to set. */
void view_init(struct view *view, struct job *job);

/* Takes the selection over. It is not in use. */
int view_choose(struct view *view, struct selection *selection);

/* Pieces from now on are of this version: that of the last sweep; none is running. There are some. */
void view_begin(struct view *view, uint64_t version);

/* In the job's turn. */
void view_go_on(struct view *view);

/* Gives up what is not complete: done() does not run. */
void view_cancel(struct view *view);

/* A sweep or a worker is still at it. */
bool view_is_in_use(const struct view *view);

/* It is not in use. */
void view_clear(struct view *view, struct node *node);

/* Where a complete view has the elements; NULL: not among its pieces. */
const char *view_find(const struct view *view, const struct copy_range *range);

#endif
