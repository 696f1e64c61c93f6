/* Durable: commits, which make a job's applied steps survive a crash. A commit also writes the job's record:
 * how far the job is, and, if that is new, what it is. See docs/store.md. */
#ifndef TIERD_DAEMON_DURABLE_H
#define TIERD_DAEMON_DURABLE_H

#include "daemon/model/model.h"

/* The record's stream comes first in the layout, so that it is found before the layout is known. */
#define RECORD_STREAM 0
#define RECORD_MAGIC "tierdjob"

/* At the start of the definition, little endian; protobuf messages follow. */
struct record_header {
	char magic[8];
	uint64_t definition_bytes; /* behind the header */
	uint64_t progress_bytes;   /* room for the progress: a section of its own, behind the definition's */
};

/* At the start of the progress. */
struct progress_header {
	uint64_t bytes; /* behind it */
};

/* The plan has the job's state on NVMe: the layout gets the record's stream, and commits. */
int durable_lay_out(struct job *job, struct store_layout *layout);
/* Of a store that was found: the record's sections, and all else as one. progress_offset: in the stream. */
int durable_find_layout(const struct record_header *header, uint64_t extents,
			struct store_layout **ret_layout, uint64_t *ret_progress_offset);

/* Where the progress lies in the record's stream; returns how long it is, in whole pages. */
uint64_t durable_progress(const struct job *job, uint64_t *ret_offset);

/* Who decides what follows from a commit. */
struct durable_listener {
	void (*committed)(struct job *job);
};

/* The stores are there. is_found: they have a commit, of job->step. listener: borrowed until durable_free().
 */
int durable_init(struct job *job, bool is_found, const struct durable_listener *listener);
void durable_free(struct job *job);
/* It has a store, and its steps are committed there. */
bool durable_has_store(const struct job *job);
/* The job began with units that had had more updates than it has had steps, or its ranks have written such
 * numbers. Its definition says so. -ENOMEM. */
int durable_note_earlier_updates(struct job *job);
/* The job has another definition, which the next commit says. -ENOMEM. */
int durable_redefine(struct job *job);
/* The same, and a commit is due for it, though there is no further step. No commit is on its way. */
int durable_redefine_now(struct job *job);

/* What counts of a job: never DURABILITY_DEFAULT. */
uint32_t pace_durability(const struct job *job);
/* Until a commit of an applied step begins; 0: at once. */
uint32_t pace_seconds(const struct job *job);

/* Begins a commit if one is due and the job stands between two steps. One is due when the pace says so, when
 * the job has no ranks, and when the daemon ends. */
void durable_advance(struct job *job);
/* What is applied is to be committed now. */
void durable_hurry(struct job *job);
/* No step may be decided now: a commit takes the state as it is, or one step is being committed and another
 * one is applied already. So a crash loses two steps at most, however slow the devices are. */
bool durable_holds(const struct job *job);
bool durable_is_quiet(const struct job *job);
/* An applied step is not durable yet, and will be. */
bool durable_is_behind(const struct job *job);

/* The member's step is applied. The request is answered again when the step is durable, or cannot become so.
 */
void durable_answer(struct member *member, struct pending *pending);
/* The client waits for that answer. */
void durable_hurry_step(struct pending *pending, const Tierd__Wire__StepHurry *hurry);

/* The job's first commit is still to come. If the daemon dies now, the job has never existed. */
bool durable_is_owed(const struct job *job);

/* The job's state is on the devices as of this step; false: nothing of it is. */
bool durable_has_step(const struct job *job, uint64_t *ret_step);
/* The same, if the files are still there. */
bool durable_survives(const struct job *job, uint64_t *ret_step);
/* How long the oldest applied step has waited that is not durable. */
uint64_t durable_lag_ns(const struct job *job);

#endif
