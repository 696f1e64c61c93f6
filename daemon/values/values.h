/* Values of tensors: how they come into a job, and how they are read.
 *
 * Ranks write first values and read values through the exchange window of their member. Each such request is
 * an operation (operation.h), which moves elements of one tensor between the window and wherever they lie; a
 * batch is many reads that one request asks for. Values that come while units are still being defined, or
 * between two steps, wait in a draft (draft.h), and are written where they belong later, in their order.
 *
 * A source (source.h) is another job, or a snapshot of one, of which a job takes its first values. The jobs
 * that take values of a job are its dependents.
 *
 * A writing replaces values between two steps. It takes the number of a step: ranks enter it as they close a
 * step, write into the draft, and leave; once all have left it is decided, and applied as a step is, whoever
 * dies.
 *
 * A reader (reader.h) has no rank and holds no lease. It stands at an applied step of a job, or at a
 * snapshot, and gets values of that step alone. What it chose beforehand is kept for it in a view (view.h),
 * which copies ahead of the next sweep, or is saved by it; the rest it gets as long as the job has not
 * changed it. Each copy (copy.h) pins its pack, reads what is on NVMe, and has a worker copy and convert.
 *
 * Sessions call the requests, the job's life all else, in the job's turn. This module reports to nobody: it
 * asks for a turn (job_settle()), breaks a job whose accepted values cannot be stored, and answers requests.
 * What sweeps, gradients and steps tell it comes by the listeners that they are given (life/listeners.c).
 *
 * Limits: one operation or batch of a member at a time, within its window; one write of optimizer state and
 * one draft of a job; READER_MAX_PER_CLIENT and _PER_USER; a reader's memory is of the node's budget. */
#ifndef TIERD_DAEMON_VALUES_FRONT_H
#define TIERD_DAEMON_VALUES_FRONT_H

#include "daemon/model/model.h"

struct reader;
struct source;

/* ---- A job's values as a whole, and a node's ---- */

int values_new(struct job *job);
/* Nothing of the job is in flight, and its stores are open. */
void values_free(struct job *job);
int node_values_new(struct node *node);
void node_values_free(struct node *node);
/* No reader is left. Readers of jobs that are gone stay until nothing of theirs is in flight. */
bool node_values_have_ended(const struct node *node);

/* For a new job. It takes source over; NULL: it has none. is_drafted: units may be defined after tensors have
 * been written. */
void values_begin(struct job *job, struct source *source, bool is_drafted);
/* For a rank that opens a job without state: 0, or -EINVAL with the difference. source may be NULL. */
int values_compare(const struct job *job, const struct source *source, bool is_drafted, char *message,
		   size_t size);
/* In the turn of a job that is laid out: writes what waits for its turn. False: nothing waits. */
bool values_write_on(struct job *job);
/* In the turn of a job that is laid out and whose ranks are all ready: takes the values of its source, and
 * fills frozen tensors that have an initializer. 1: it is not done, and job_settle() follows; 0: each tensor
 * has values or an initializer, and the job stands at its first step; or a negative errno with a message. */
int values_complete(struct job *job, char *message, size_t size);

/* In the job's turn: readers, and jobs that take its values, go on. */
void values_go_on(struct job *job);
/* State that had stayed in host memory has been written: who waits for that goes on. */
void values_flushed(struct job *job);
/* The job's values are gone: its readers and its dependents are told. */
void values_end(struct job *job);
/* Ends readers and dependents that are no longer allowed to read what they read, and tells them why. Returns
 * how many readers that were. */
unsigned values_end_denied(struct job *job, const char *reason);
/* No copy and no write that needs the job is under way. Those that have pins do not count: the pins do. */
bool values_are_quiet(const struct job *job);

/* ---- Requests of members ---- */

void tensor_write(struct pending *pending, const Tierd__Wire__TensorWrite *write);
void tensor_read(struct pending *pending, const Tierd__Wire__TensorRead *read);
void batch_read(struct pending *pending, const Tierd__Wire__TensorReadMany *many);

/* Writes that wait for the job's memory: whether there are any; takes the first one, which the caller answers
 * (NULL: none is left); begins all of them, unless there is a draft, which is written before. */
bool tensor_has_waiting(const struct job *job);
struct pending *tensor_take_waiting(struct job *job);
void tensor_fill_waiting(struct job *job);

/* A pack has been written back, or its sums are in host memory. */
void operation_resume(struct job *job);
/* The request belongs to an operation in flight, which will answer it. */
bool operation_is_under_way(struct member *member, const struct pending *pending);
/* A step of the member is refused: its operation that waits for that version fails. */
void operation_fail_refused(struct member *member);
/* The member's operation in flight, if it has one, answers nobody any more. */
void operation_forget(struct member *member);

/* ---- A draft ---- */

/* Whether there is room for a job of which this much is defined: 0, or a negative errno with a message. */
typedef int draft_check(struct job *job, char *message, size_t size);

/* In the job's turn: takes writes that wait, or, once the job is laid out, writes values where they belong.
 * False: there is nothing to do now; of a job that is laid out: all is written, and the draft has gone.
 * check: for a job whose units are being defined; NULL: it is laid out. */
bool draft_go_on(struct job *job, draft_check *check);
bool draft_exists(const struct job *job);
/* The job is dropped: an operation of the draft that only waits is given up. */
void draft_cancel(struct job *job);
/* In the turn of a broken job: frees the draft once nothing of it is in flight. */
void draft_give_up(struct job *job);

/* ---- A source ---- */

/* The source that a rank names when it opens a job; *ret_source becomes NULL if it names none. -EINVAL: that
 * is no name of a job or of a snapshot; -ENOENT: the peer sees no such job, or the job has no such snapshot;
 * other errors as snapshots are refused. With a message. */
int source_new(struct node *node, const struct port *port, const Tierd__Wire__JobOpen *open,
	       struct source **ret_source, char *message, size_t size);
/* Nothing of it is in flight. Takes NULL. */
struct source *source_free(struct source *source);
/* Units begin with as many updates as the source's have had. Takes NULL. */
bool source_has_state(const struct source *source);

/* ---- A writing ---- */

void writing_enter(struct pending *pending, const Tierd__Wire__WriteBegin *begin);
void writing_leave(struct pending *pending, const Tierd__Wire__WriteEnd *end);
/* False, and the request is answered: the rank cannot enter now. */
bool writing_check_enter(struct pending *pending);
/* All ranks have entered, and what was before is applied. */
void writing_open(struct job *job);
/* All ranks have left it, and nothing of theirs is under way. */
void writing_decide(struct job *job);
/* In the job's turn. False: there is nothing to do, and a writing that came to nothing has left nothing. */
bool writing_go_on(struct job *job);
/* The sweep is done. */
void writing_end(struct job *job);
/* The writing comes to nothing. */
void writing_forget(struct job *job);

/* ---- Readers: requests of clients ---- */

/* Readers of one connection, and of one user. */
#define READER_MAX_PER_CLIENT 16
#define READER_MAX_PER_USER 64

void reader_open(struct pending *pending, const Tierd__Wire__ReaderOpen *open, struct queue *client_readers,
		 uint32_t handle);
/* NULL: the client has none of this number. */
struct reader *reader_of(struct queue *client_readers, uint32_t handle);
void reader_units(struct reader *reader, struct pending *pending, const Tierd__Wire__ReaderUnits *units);
void reader_refresh(struct reader *reader, struct pending *pending,
		    const Tierd__Wire__ReaderRefresh *refresh);
void reader_read(struct reader *reader, struct pending *pending, const Tierd__Wire__ReaderRead *read);
void reader_read_many(struct reader *reader, struct pending *pending,
		      const Tierd__Wire__ReaderReadMany *many);
/* Gives the client a file for memory of its own, or maps that memory. */
void reader_memory(struct reader *reader, struct pending *pending, const Tierd__Wire__ReaderMemory *memory);
/* Nobody uses the reader any more. It is freed once nothing of it is in flight. */
void reader_close(struct reader *reader);
void readers_close_all(struct queue *client_readers);

/* ---- Readers: for sweeps, budgets and reports ---- */

/* A sweep begins: adds the job's views to its watches, from before its first pack to after its last. */
void readers_enlist(struct job *job, struct queue *watches);
/* A sweep waits for the pack. */
void readers_raise(struct job *job, uint32_t pack);
unsigned readers_count(const struct job *job);
/* Host memory that the job's readers hold. */
uint64_t readers_bytes(const struct job *job);
/* They are a holder of the node. */
extern const struct holder readers_holder;

#endif
