/* Durable: how a job's applied steps come to survive a crash. Its store keeps, beside the state, the job's
 * record: what it is, written when that is new, and how far it is, written by each commit. See
 * docs/store.md. */
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

/* Once the stores are there; is_found: with a commit, of job->step. listener: borrowed until
 * durable_free(). */
int durable_init(struct job *job, bool is_found, const struct durable_listener *listener);
void durable_free(struct job *job);
/* It has a store, and its steps are committed there. */
bool durable_has_store(const struct job *job);
/* Units of it have had more updates than it has had steps, in what it began with, or as its ranks have
 * written: its definition says so. -ENOMEM. */
int durable_note_earlier_updates(struct job *job);
/* The job has another definition, which the next commit says. -ENOMEM. */
int durable_redefine(struct job *job);
/* The same, and a commit is due for it, though there is no further step. No commit is on its way. */
int durable_redefine_now(struct job *job);

/* Begins a commit if one is due and can be: the job stands between two steps. It is when the pace says so,
 * and when the job has no ranks, or the daemon ends. */
void durable_advance(struct job *job);
/* What is applied is to be committed now. */
void durable_hurry(struct job *job);
/* No step may be decided now: a commit takes the state as it is, or one step is being committed and another
 * one is applied. So of a job whose devices are slow a step is lost, or two, not as many as it has taken
 * meanwhile. */
bool durable_holds(const struct job *job);
bool durable_is_quiet(const struct job *job);
/* An applied step is not durable yet, and will be. */
bool durable_is_behind(const struct job *job);

/* The member's step is applied: the request is answered again when that is durable, or will not be. */
void durable_answer(struct member *member, struct pending *pending);
/* Somebody waits for that. */
void durable_hurry_step(struct pending *pending, const Tierd__Wire__StepHurry *hurry);

/* Nothing of the job is on the devices yet, and will be: a daemon that dies now has never had it. */
bool durable_is_owed(const struct job *job);

/* The job's state is on the devices as of this step; false: nothing of it is. */
bool durable_has_step(const struct job *job, uint64_t *ret_step);
/* And will be when tierd has ended: not of files that have been removed meanwhile. */
bool durable_survives(const struct job *job, uint64_t *ret_step);
/* How long the oldest applied step that it is not has waited. */
uint64_t durable_lag_ns(const struct job *job);

#endif
