/* Worker threads: run CPU work over lent buffers, and hand it back to the loop through a descriptor. */
#ifndef TIERD_COMMON_WORKERS_H
#define TIERD_COMMON_WORKERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/queue.h"

struct workers;

/* Work of a higher urgency starts first: somebody waits for a demand read, soon for a prefetch, nobody for an
 * update of a late layer. */
enum work_urgency { WORK_URGENT, WORK_SOON, WORK_NORMAL, WORK_URGENCIES };

/* One piece of work. The caller owns it and leaves it alone from workers_submit() until done() runs,
 * once, on the thread that calls workers_reap(). */
struct work {
	void (*run)(struct work *work);	 /* on a worker, if it is not brief; sees only what was lent to it */
	void (*done)(struct work *work); /* on the reaping thread; may submit and free */
	enum work_urgency urgency;
	bool is_brief;	 /* handing it over would take longer than it does: who submits it runs it */
	bool is_timed;	 /* the following is wanted; where it is not it means nothing */
	unsigned worker; /* that has run it, from 0; behind the last one: none */
	uint64_t began_ns, ended_ns; /* when, by clock_now_ns() */
	struct queue link;	     /* private */
};

/* Starts count threads, named for tools such as top. -EINVAL if count is 0, -EAGAIN if the kernel
 * refuses a thread. Signals stay blocked in the threads. */
int workers_new(unsigned count, const char *name, struct workers **ret_workers);

/* Finishes what runs and what is queued, without calling done(), and joins the threads. */
struct workers *workers_free(struct workers *workers);
DEFINE_FREEP(struct workers *, workers_free)

unsigned workers_count(const struct workers *workers);

/* How long its threads have had work, all together, up to now; also while a thread that has some gets no
 * processor, whoever else has it. */
uint64_t workers_busy_ns(struct workers *workers);

/* Has run() called by a worker; if the work is brief, by the caller, before this returns. done() waits for
 * workers_reap() all the same, and never runs in here. */
void workers_submit(struct workers *workers, struct work *work);

/* Readable (an eventfd) while finished work waits for workers_reap(). */
int workers_fd(const struct workers *workers);

/* Runs done() of everything finished so far. */
void workers_reap(struct workers *workers);

#endif
