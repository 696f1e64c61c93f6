#include "daemon/telemetry/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/model/model.h"
#include "daemon/telemetry/own.h"

struct trace {
	struct job *job; /* NULL: it is gone */
	unsigned tracers;
	uint64_t count; /* ever */
	struct trace_event events[TRACE_EVENTS];
};

void tracer_init(struct tracer *tracer, struct port *port)
{
	tracer->port = port;
	queue_init(&tracer->link);
}

/* ---- Begin and end ---- */

static bool has_room(struct pending *pending, const struct node *node)
{
	unsigned all = 0, own = 0;

	QUEUE_FOREACH (link, &node->telemetry->tracers) {
		all++;
		own += queue_entry(link, struct tracer, link)->port->uid == pending_port(pending)->uid;
	}
	if (own < TRACE_MAX_PER_USER && all < TRACE_MAX)
		return true;
	pending_error(pending, -EBUSY,
		      "%u traces of user %u are under way, %u of all users, and tierd makes %d and %d at "
		      "once; wait until one of them has ended",
		      own, (unsigned)pending_port(pending)->uid, all, TRACE_MAX_PER_USER, TRACE_MAX);
	return false;
}

static struct trace *trace_of(struct job *job)
{
	struct trace *trace = job->telemetry->trace;

	if (trace)
		return trace;
	trace = calloc(1, sizeof(*trace));
	if (!trace)
		return NULL;
	trace->job = job;
	job->telemetry->trace = trace;
	return trace;
}

void tracer_begin(struct tracer *tracer, struct pending *pending, const Tierd__Wire__Trace *request)
{
	struct job *job = access_find(pending, request->name, request->has_owner, request->owner);
	Tierd__Wire__TraceReply body = TIERD__WIRE__TRACE_REPLY__INIT;
	struct trace *trace;

	tracer_end(tracer);
	tracer->denied[0] = '\0';
	if (!job || !has_room(pending, job->node))
		return;
	trace = trace_of(job);
	if (!trace) {
		pending_error(pending, -ENOMEM, "job %s: out of memory for its trace", job->name);
		return;
	}
	tracer->trace = trace;
	tracer->next = trace->count;
	tracer->began_ns = clock_now_ns();
	trace->tracers++;
	queue_push(&job->node->telemetry->tracers, &tracer->link);
	body.began_ns = tracer->began_ns;
	pending_reply(pending, WIRE_REPLY(TRACE, trace, &body));
}

void tracer_end(struct tracer *tracer)
{
	struct trace *trace = TAKE_PTR(tracer->trace);

	if (!trace)
		return;
	queue_remove(&tracer->link);
	if (--trace->tracers > 0)
		return;
	if (trace->job)
		trace->job->telemetry->trace = NULL;
	free(trace);
}

void tracers_end_denied(struct job *job, const char *reason)
{
	QUEUE_FOREACH (link, &job->node->telemetry->tracers) {
		struct tracer *tracer = queue_entry(link, struct tracer, link);

		if (tracer->trace->job != job || access_may_see(job, tracer->port))
			continue;
		snprintf(tracer->denied, sizeof(tracer->denied), "%s", reason);
		tracer_end(tracer);
	}
}

void trace_leave_job(struct job *job)
{
	struct trace *trace = TAKE_PTR(job->telemetry->trace);

	if (trace)
		trace->job = NULL;
}

/* ---- Reading ---- */

static void fill(const struct tracer *tracer, const struct trace_event *event, Tierd__Wire__TraceEvent *wire)
{
	tierd__wire__trace_event__init(wire);
	wire->kind = event->kind;
	wire->began_ns = event->began_ns - tracer->began_ns;
	wire->length_ns = event->ended_ns - event->began_ns;
	wire->has_unit = event->unit != TRACE_NO_UNIT;
	wire->unit = wire->has_unit ? event->unit : 0;
	wire->who = event->who;
	wire->amount = event->amount;
	wire->step = event->step;
	wire->stream = (char *)event->stream;
}

/* So many were overwritten before they were read. */
static uint64_t skip_lost(struct tracer *tracer)
{
	uint64_t count = tracer->trace->count;
	uint64_t oldest = count > TRACE_EVENTS ? count - TRACE_EVENTS : 0;
	uint64_t lost = oldest > tracer->next ? oldest - tracer->next : 0;

	tracer->next += lost;
	return lost;
}

void tracer_read(struct tracer *tracer, struct pending *pending)
{
	Tierd__Wire__TraceReply body = TIERD__WIRE__TRACE_REPLY__INIT;
	Tierd__Wire__TraceEvent events[TRACE_EVENTS_PER_REPLY], *pointers[TRACE_EVENTS_PER_REPLY];
	const struct trace *trace = tracer->trace;

	if (tracer->denied[0]) {
		pending_error(pending, -EPERM, "%s", tracer->denied);
		return;
	}
	if (!trace) {
		pending_error(pending, -EINVAL, "this connection traces no job; begin with Trace");
		return;
	}
	body.lost = skip_lost(tracer);
	for (; tracer->next < trace->count && body.n_events < TRACE_EVENTS_PER_REPLY; tracer->next++) {
		const struct trace_event *event = &trace->events[tracer->next % TRACE_EVENTS];

		/* It was under way when this trace was begun: another one has noted it. */
		if (event->began_ns < tracer->began_ns)
			continue;
		pointers[body.n_events] = &events[body.n_events];
		fill(tracer, event, &events[body.n_events++]);
	}
	body.events = pointers;
	body.began_ns = tracer->began_ns;
	body.has_more = tracer->next < trace->count;
	body.is_over = !trace->job && !body.has_more;
	pending_reply(pending, WIRE_REPLY(TRACE, trace, &body));
}

/* ---- Noting ---- */

bool trace_is_on(const struct job *job)
{
	return job->telemetry->trace != NULL;
}

uint64_t trace_now(const struct job *job)
{
	return trace_is_on(job) ? clock_now_ns() : 0;
}

void trace_add(struct job *job, const struct trace_event *event)
{
	struct trace *trace = job->telemetry->trace;

	/* Of what has begun before it nobody knows when. */
	if (trace && event->began_ns > 0)
		trace->events[trace->count++ % TRACE_EVENTS] = *event;
}

void trace_span(struct job *job, enum wire_trace kind, uint64_t began_ns, uint64_t step)
{
	trace_add(job, &(struct trace_event){ .began_ns = began_ns,
					      .ended_ns = trace_now(job),
					      .kind = kind,
					      .step = step,
					      .unit = TRACE_NO_UNIT });
}

void trace_submitted(const struct job *job, enum wire_trace kind, struct store_transfer *transfer)
{
	transfer->note.began_ns = trace_now(job);
	transfer->note.kind = kind;
}

void trace_transferred(struct job *job, uint32_t pack, const struct store *store,
		       const struct store_transfer *transfer)
{
	struct trace_event event = {
		.began_ns = transfer->note.began_ns,
		.ended_ns = trace_now(job),
		.amount = transfer->length,
		.kind = transfer->note.kind,
		.unit = pack == PACK_NONE ? TRACE_NO_UNIT : job->catalog.packs[pack].first_unit,
	};

	if (!trace_is_on(job))
		return;
	snprintf(event.stream, sizeof(event.stream), "%s", store_stream_name(store, transfer->stream));
	trace_add(job, &event);
}

void trace_worked(struct job *job, enum wire_trace kind, uint32_t unit, uint64_t elements,
		  const struct work *work)
{
	if (work->is_timed)
		trace_add(job, &(struct trace_event){ .began_ns = work->began_ns,
						      .ended_ns = work->ended_ns,
						      .amount = elements,
						      .kind = kind,
						      .unit = unit,
						      .who = work->worker });
}

void trace_evicted(struct job *job, uint32_t pack)
{
	uint64_t now = trace_now(job);

	trace_add(job, &(struct trace_event){ .began_ns = now,
					      .ended_ns = now,
					      .kind = TRACE_EVICT,
					      .unit = job->catalog.packs[pack].first_unit });
}

void trace_copied(struct job *job, enum wire_trace kind, uint32_t pack, unsigned gpu, uint64_t bytes,
		  uint64_t began_ns)
{
	struct trace_event event = {
		.began_ns = began_ns,
		.ended_ns = trace_now(job),
		.amount = bytes,
		.kind = kind,
		.unit = job->catalog.packs[pack].first_unit,
	};

	snprintf(event.stream, sizeof(event.stream), "GPU %u", gpu);
	trace_add(job, &event);
}

void trace_closed(struct job *job, uint32_t rank, uint64_t step)
{
	uint64_t now = trace_now(job);

	trace_add(job, &(struct trace_event){ .began_ns = now,
					      .ended_ns = now,
					      .kind = TRACE_CLOSE,
					      .unit = TRACE_NO_UNIT,
					      .who = rank,
					      .step = step });
}

void trace_waited(struct job *job, enum wire_trace kind, uint32_t rank, uint32_t unit, uint64_t began_ns,
		  uint64_t ended_ns)
{
	trace_add(job, &(struct trace_event){ .began_ns = began_ns,
					      .ended_ns = ended_ns,
					      .kind = kind,
					      .unit = unit,
					      .who = rank });
}
