/* A reader has no rank and holds no lease: it stands at an applied step of a job, and gets values of that
 * step alone. What it chose beforehand is kept for it; the rest it gets as long as the job has not changed
 * it. */
#ifndef TIERD_DAEMON_READER_H
#define TIERD_DAEMON_READER_H

#include "daemon/request/request.h"
#include "daemon/values/view.h"

/* Of one connection, and of one user. */
#define READER_MAX_PER_CLIENT 16
#define READER_MAX_PER_USER 64

struct reader;

/* ---- For its client ---- */

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
/* Gives the client a file for memory of its own, or takes that. */
void reader_memory(struct reader *reader, struct pending *pending, const Tierd__Wire__ReaderMemory *memory);
/* Nobody asks it any more: it is freed when nothing of it is in flight. */
void reader_close(struct reader *reader);
void readers_close_all(struct queue *client_readers);

/* ---- For its job ---- */

/* In the job's turn: what can go on does. */
void readers_go_on(struct job *job);
/* Some reader copies what it keeps. */
bool readers_are_copying(const struct job *job);
/* Views are watches of a sweep that begins, from before its first pack to after its last. */
void readers_enlist(struct job *job, struct queue *watches);
/* A sweep waits for the pack. */
void readers_raise(struct job *job, uint32_t pack);
/* There is nothing to read any more. */
void readers_end_job(struct job *job);
/* Those that may not read any more what they do are closed, and told why. How many that were. */
unsigned readers_end_denied(struct job *job, const char *reason);

/* ---- For budgets and reports ---- */

unsigned readers_count(const struct job *job);
/* Host memory that is theirs. */
uint64_t readers_bytes(const struct job *job);
/* They are a holder of the node. */
extern const struct holder readers_holder;

#endif
