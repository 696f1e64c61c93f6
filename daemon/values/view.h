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
	struct sweep_watch watch; /* by which a sweep saves what is missing */
	struct job *job;
	uint64_t version;
	struct selection selection;
	struct memory memory;
	char *buffer;	  /* for its copies */
	uint32_t missing; /* pieces */
	uint32_t next;	  /* piece to look at */
	bool is_begun;	  /* it is neither complete nor has it failed */
	bool is_copying;
	struct copy copy;
	/* All pieces are here, or why not. Runs on the loop, once for each view_begin(), not inside it. */
	void (*done)(struct view *view, int status);
	/* After done() or view_cancel(): something that was in flight has ended. */
	void (*rest)(struct view *view);
};

/* Keeps nothing yet. The job outlives what is in flight. The caller sets buffer and callbacks. */
void view_init(struct view *view, struct job *job);

/* Takes the selection over. The view is not in use. */
int view_choose(struct view *view, struct selection *selection);

/* Begins to copy its pieces, of which there are some, at this version: that of the last sweep. No sweep is
 * running. */
void view_begin(struct view *view, uint64_t version);

/* In the job's turn. */
void view_go_on(struct view *view);

/* Gives up what is not complete: done() does not run. */
void view_cancel(struct view *view);

/* A sweep or a worker is still at it. */
bool view_is_in_use(const struct view *view);

/* The view is not in use. */
void view_clear(struct view *view, struct node *node);

/* Where a complete view has the elements; NULL: it does not have them. */
const char *view_find(const struct view *view, const struct copy_range *range);

#endif
