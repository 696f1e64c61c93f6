/* Tracing: what a job's reads, writes, workers and ranks do, for clients that follow it.
 *
 * As long as somebody traces a job it has a ring of its last events, which all who trace it read; else
 * nothing is noted, and each place where something would be costs a call that looks at a pointer. An event is
 * noted when it ends, on the loop; what workers do has their own times. */
#ifndef TIERD_DAEMON_TRACE_H
#define TIERD_DAEMON_TRACE_H

#include "common/clock.h"
#include "daemon/model/model.h"
#include "daemon/request/request.h"
#include "proto/vocabulary.h"

/* A MiB and a quarter for each job that is traced, outside of the budgets. */
#define TRACE_EVENTS 16384
#define TRACE_MAX_PER_USER 4
#define TRACE_MAX 16
#define TRACE_EVENTS_PER_REPLY 512

#define TRACE_NO_UNIT UINT32_MAX

/* How far a client has read. Embedded in its client. */
struct tracer {
	struct queue link; /* of the node's, while it is on */
	struct port *port;
	struct trace *trace; /* NULL: it traces nothing */
	uint64_t began_ns;
	uint64_t next;	  /* the event that it has not read */
	char denied[160]; /* "", or why it traces nothing any more */
};

void tracer_init(struct tracer *tracer, struct port *port);
/* Both requests are answered. A client traces one job: the one before ends, also if this is refused. */
void tracer_begin(struct tracer *tracer, struct pending *pending, const Tierd__Wire__Trace *request);
void tracer_read(struct tracer *tracer, struct pending *pending);
void tracer_end(struct tracer *tracer);

/* Ends the tracers of clients that may not see the job any more. */
void tracers_end_denied(struct job *job, const char *reason);

/* The job ends. Tracers can still read what it did. */
void trace_leave_job(struct job *job);

/* ---- Noting ---- */

bool trace_is_on(const struct job *job);
/* The time at which something begins that will be noted; 0: the job is not traced. */
uint64_t trace_now(const struct job *job);
void trace_span(struct job *job, enum wire_trace kind, uint64_t began_ns, uint64_t step);
/* A transfer has been submitted; it is done, whether it has failed or not. */
void trace_submitted(const struct job *job, enum wire_trace kind, struct store_transfer *transfer);
void trace_transferred(struct job *job, uint32_t pack, const struct store *store,
		       const struct store_transfer *transfer);
/* It was submitted as trace_is_on() said. */
void trace_worked(struct job *job, enum wire_trace kind, uint32_t unit, uint64_t elements,
		  const struct work *work);
void trace_evicted(struct job *job, uint32_t pack);
/* Between host memory and a GPU, as tierd counts them. */
void trace_copied(struct job *job, enum wire_trace kind, uint32_t pack, unsigned gpu, uint64_t bytes,
		  uint64_t began_ns);
/* The rank has closed its part of the step. */
void trace_closed(struct job *job, uint32_t rank, uint64_t step);
void trace_waited(struct job *job, enum wire_trace kind, uint32_t rank, uint32_t unit, uint64_t began_ns,
		  uint64_t ended_ns);

#endif
