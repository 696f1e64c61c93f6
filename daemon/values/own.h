/* What the files of this module share: the values of a job, and the readers of a node. */
#ifndef TIERD_DAEMON_VALUES_OWN_H
#define TIERD_DAEMON_VALUES_OWN_H

#include "daemon/values/values.h"

/* What this module keeps of a job. */
struct job_values {
	struct queue readers;	   /* daemon/values/reader.h */
	struct source *source;	   /* where its first values come from; NULL: nowhere, or it has them */
	struct queue dependents;   /* sources of other jobs, which take its values: daemon/values/source.h */
	struct queue blocked;	   /* operations that wait for a pack to be written back */
	struct queue early_writes; /* pendings of tensor writes that wait for the plan */
	bool is_drafted;	   /* units may be defined when tensors have been written */
	struct draft *draft;	   /* NULL: it has none, or all of it is where it belongs */
	struct queue state_writes; /* operations that wait for their turn to write what the optimizer keeps */
	bool is_writing_state;	   /* one of them writes */
	bool has_first_step;	   /* the optimizer kept that after first_step, at which the job begins */
	uint64_t first_step;
	bool has_values; /* every tensor has been written, or has an initializer */
	/* Frozen tensors are filled up to this unit, and in it up to this tensor. */
	uint32_t initialized_units, initialized_tensors;
	bool is_filling_tensor;	     /* an initializer fills a frozen tensor: one at a time */
	int writing_error;	     /* why the writing will come to nothing, */
	uint32_t writing_culprit;    /* and the rank because of which */
	unsigned snapshot_copies;    /* copies that read a snapshot */
	struct queue copies_waiting; /* copies that wait until warm state is written */
};

/* Who reads values. */
struct node_values {
	struct queue readers; /* of all jobs, and those whose job is gone */
};

/* ---- tensor.c ---- */

/* Fills frozen tensors that have an initializer, one at a time, and writes them back. 0: all is done; 1:
 * something is under way, and job_settle() follows; or -errno. */
int tensor_initialize(struct job *job);

/* ---- draft.c ---- */

/* Nothing of it is in flight. */
bool draft_is_quiet(const struct job *job);
/* With its files. It is quiet, or there is none. */
void draft_free(struct job *job);

/* ---- writing.c ---- */

/* False, and the request is answered, if the rank may not write that now; else pending->state is set. The
 * range is the caller's to check. */
bool writing_check(struct pending *pending, const Tierd__Wire__TensorWrite *write);
/* A write has failed that was not wrong: the writing comes to nothing. */
void writing_note_failure(struct job *job, const struct member *member, int status);
/* How often a tensor of the unit was updated, by the version that its pack has. */
uint64_t writing_updates(const struct job *job, uint32_t unit, const struct tensor *tensor);

/* ---- state_write.c ---- */

/* In the job's turn: starts the next one. False: there is none, and none is under way. */
bool state_write_go_on(struct job *job);
/* In the job's turn, once all is written: it begins at the step that was said. */
void state_write_begin_job(struct job *job);

/* ---- copy.c ---- */

/* What waits for warm state to be written looks again. */
void copies_resume(struct job *job);

/* ---- source.c, source_name.c ---- */

/* Of two ranks of a job: -EINVAL with the difference. Either may be NULL. */
int source_compare(const struct source *here, const struct source *job, char *message, size_t size);
/* In the turn of the job, all ranks of which are ready: takes what can be taken. 1: it is not done yet; 0: it
 * is; or a negative errno with a message: nothing of it is left, and the next call begins anew. */
int source_go_on(struct job *job, char *message, size_t size);
/* Neither a copy nor a write is under way. */
bool source_is_quiet(const struct job *job);

/* For the job whose values are taken: in its turn; when it ends; and when some may not see them any more. */
void sources_go_on(struct job *from);
void sources_end_job(struct job *from);
void sources_end_denied(struct job *from, const char *reason);

/* ---- reader.c ---- */

/* In the job's turn: what can go on does. */
void readers_go_on(struct job *job);
/* Some reader copies what it keeps. */
bool readers_are_copying(const struct job *job);
/* There is nothing to read any more. */
void readers_end_job(struct job *job);
/* Those that may not read any more what they do are closed, and told why. How many that were. */
unsigned readers_end_denied(struct job *job, const char *reason);

#endif
