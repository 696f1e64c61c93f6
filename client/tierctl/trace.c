/* trace: follows a job for a while, and writes what it did as a timeline. However it ends, what has come is
 * written, whole: a signal is only noted, and a daemon that is gone ends it like the time that is up. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/tierctl/choice.h"
#include "client/tierctl/listing.h"
#include "client/tierctl/output.h"
#include "client/tierctl/partial.h"
#include "client/tierctl/progress.h"
#include "client/tierctl/timeline.h"
#include "common/clock.h"
#include "common/plural.h"

#define DEFAULT_SECONDS 10
#define MOST_SECONDS 86400
#define MOST_STEPS 1000000
/* Between two looks. The daemon keeps 16384 events meanwhile. */
#define PAUSE_NS 20000000

struct trace {
	struct ask *ask;
	char *job; /* of the requests */
	uint32_t owner;
	uint64_t seconds, steps; /* 0: whatever it takes */
	bool has_ranks;
	struct output *output;
	struct timeline *timeline;
	struct progress progress;
	bool is_json, is_over;
	bool is_kept; /* nothing came, and the file that was there stays */
	uint64_t began_ns, ended_ns;
};

/* ---- Signals ---------------------------------------------------------------------------------------------
 */

static volatile sig_atomic_t is_interrupted;

/* Leaves nothing. */
static void on_deadly_signal(int number)
{
	partial_remove_all();
	signal(number, SIG_DFL);
	raise(number);
}

/* A second one ends it as ever. */
static void on_signal(int number)
{
	if (is_interrupted)
		on_deadly_signal(number);
	is_interrupted = 1;
}

static void note_signals(void)
{
	static const struct {
		int number;
		void (*handler)(int number);
	} notes[] = { { SIGINT, on_signal },	     { SIGTERM, on_signal },
		      { SIGHUP, on_signal },	     { SIGQUIT, on_deadly_signal },
		      { SIGPIPE, on_deadly_signal }, { SIGXFSZ, on_deadly_signal } };
	struct sigaction old;

	for (size_t i = 0; i < ARRAY_LENGTH(notes); i++) {
		const struct sigaction note = { .sa_handler = notes[i].handler };

		if (sigaction(notes[i].number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaction(notes[i].number, &note, NULL);
	}
}

/* ---- Flags -----------------------------------------------------------------------------------------------
 */

static int read_flags(const struct command_context *context, struct trace *trace)
{
	int code = command_flag_number(context, "seconds", 1, MOST_SECONDS, &trace->seconds);

	if (code == COMMAND_DONE)
		code = command_flag_number(context, "steps", 1, MOST_STEPS, &trace->steps);
	if (trace->seconds == 0 && trace->steps == 0)
		trace->seconds = DEFAULT_SECONDS;
	return code;
}

/* ---- What units are called -------------------------------------------------------------------------------
 */

static int take_name(void *context, const Tierd__Wire__UnitEntry *unit)
{
	return timeline_name_unit(context, unit->name) < 0 ? command_fail_memory() : COMMAND_DONE;
}

/* A job may define its units later; then they are asked for again. */
static int ask_names(struct trace *trace)
{
	if (timeline_units(trace->timeline) > 0)
		return COMMAND_DONE;
	return listing_units(trace->ask, trace->job, trace->owner, take_name, trace->timeline);
}

/* ---- Following -------------------------------------------------------------------------------------------
 */

static int begin(struct trace *trace)
{
	Tierd__Wire__Trace body = TIERD__WIRE__TRACE__INIT;
	const Tierd__Wire__Reply *reply;
	int code;

	body.name = trace->job;
	body.has_owner = true;
	body.owner = trace->owner;
	code = command_ask_for(trace->ask, WIRE_REQUEST(TRACE, trace, &body), TIERD__WIRE__REPLY__BODY_TRACE,
			       &reply);
	trace->began_ns = trace->ended_ns = clock_now_ns();
	if (code == COMMAND_DONE)
		code = ask_names(trace);
	/* Who waits for it may act now. */
	if (code == COMMAND_DONE && !trace->is_json)
		fprintf(stderr, "what job %s does is traced from now on; Ctrl-C ends it\n%s", trace->job,
			trace->has_ranks ? "" : "it has no ranks: nothing comes until one opens it\n");
	return code;
}

static int take(struct trace *trace, const Tierd__Wire__TraceReply *reply)
{
	int r = 0;

	timeline_lose(trace->timeline, reply->lost);
	for (size_t i = 0; i < reply->n_events && r == 0; i++)
		r = timeline_add(trace->timeline, reply->events[i]);
	trace->is_over = reply->is_over;
	if (r == -E2BIG)
		return command_fail_at(
			COMMAND_FAILED, -E2BIG,
			"job %s: the trace ends with %zu events, more than a viewer takes; trace "
			"fewer steps, or seconds",
			trace->job, timeline_events(trace->timeline));
	return r < 0 ? command_fail_memory() : COMMAND_DONE;
}

/* All that there is by now. */
static int look(struct trace *trace)
{
	Tierd__Wire__TraceRead body = TIERD__WIRE__TRACE_READ__INIT;
	const Tierd__Wire__Reply *reply;
	int code;

	do {
		code = command_ask_for(trace->ask, WIRE_REQUEST(TRACE_READ, trace_read, &body),
				       TIERD__WIRE__REPLY__BODY_TRACE, &reply);
		if (code == COMMAND_DONE)
			code = take(trace, reply->trace);
	} while (code == COMMAND_DONE && reply->trace->has_more);
	return code;
}

static void tell_progress(struct trace *trace)
{
	uint64_t steps = timeline_steps(trace->timeline);

	if (progress_is_due(&trace->progress))
		fprintf(stderr, "\r%.0f s, %" PRIu64 " step%s, %zu events\033[K",
			(double)(trace->ended_ns - trace->began_ns) / 1e9, steps, PLURAL(steps),
			timeline_events(trace->timeline));
}

/* Whole steps lie between two that are applied. */
static bool has_steps(const struct trace *trace)
{
	return trace->steps > 0 && timeline_steps(trace->timeline) > trace->steps;
}

static bool has_ended(const struct trace *trace)
{
	return is_interrupted || trace->is_over || has_steps(trace) ||
	       (trace->seconds > 0 && trace->ended_ns - trace->began_ns >= trace->seconds * 1000000000);
}

static int follow(struct trace *trace)
{
	static const struct timespec pause = { .tv_nsec = PAUSE_NS };
	int code;

	for (;;) {
		code = look(trace);
		trace->ended_ns = clock_now_ns();
		if (code != COMMAND_DONE || has_ended(trace))
			break;
		tell_progress(trace);
		nanosleep(&pause, NULL);
	}
	progress_end(&trace->progress);
	/* Its units may have come meanwhile. */
	if (code == COMMAND_DONE && !trace->is_over && timeline_lacks_names(trace->timeline))
		code = ask_names(trace);
	return code;
}

static int tell_end(const struct trace *trace)
{
	uint64_t steps = timeline_steps(trace->timeline);

	if (trace->is_over)
		return command_fail_at(
			COMMAND_FAILED, -ENOENT,
			"job %s is gone: it was dropped, replaced, or the daemon ends; the trace "
			"has what it did until then",
			trace->job);
	if (trace->steps > 0 && !has_steps(trace) && !is_interrupted)
		return command_fail_at(COMMAND_FAILED, -ETIMEDOUT,
				       "job %s: %" PRIu64 " of %" PRIu64 " whole steps came within %" PRIu64
				       " s; give it more --seconds",
				       trace->job, steps > 0 ? steps - 1 : 0, trace->steps, trace->seconds);
	return COMMAND_DONE;
}

/* ---- The file --------------------------------------------------------------------------------------------
 */

static int open_output(const struct command_context *context, struct trace *trace)
{
	_cleanup_free_ char *name = NULL;
	const char *path = command_flag(context, "output");

	if (asprintf(&name, "%s.trace.json", trace->job) < 0) {
		name = NULL;
		return command_fail_memory();
	}
	return output_open(path ? path : name, name, command_flag(context, "force"), &trace->output);
}

static cJSON *summary_json(const struct trace *trace)
{
	const char *path = output_path(trace->output);
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "job", trace->job);
	if (trace->is_kept)
		cJSON_AddNullToObject(json, "file");
	else
		cJSON_AddStringToObject(json, "file", path ? path : "-");
	cJSON_AddNumberToObject(json, "seconds", (double)(trace->ended_ns - trace->began_ns) / 1e9);
	cJSON_AddNumberToObject(json, "steps", (double)timeline_steps(trace->timeline));
	cJSON_AddNumberToObject(json, "events", (double)timeline_events(trace->timeline));
	cJSON_AddNumberToObject(json, "lost", (double)timeline_lost(trace->timeline));
	return json;
}

/* On the standard output that is the trace's. */
static int tell_summary(const struct trace *trace)
{
	uint64_t steps = timeline_steps(trace->timeline), lost = timeline_lost(trace->timeline);
	const char *path = output_path(trace->output);

	if (trace->is_json)
		return path ? command_print_json(summary_json(trace)) : COMMAND_DONE;
	fprintf(stderr, "%s: %.1f s, %" PRIu64 " step%s applied, %zu events%s%s\n", trace->job,
		(double)(trace->ended_ns - trace->began_ns) / 1e9, steps, PLURAL(steps),
		timeline_events(trace->timeline),
		trace->is_kept ? "; nothing is written over "
		: path	       ? ", in "
			       : "",
		path ? path : "");
	if (lost > 0)
		fprintf(stderr, "%" PRIu64 " more events were lost: they came faster than they were read\n",
			lost);
	return COMMAND_DONE;
}

static int write_output(struct trace *trace)
{
	int code = COMMAND_DONE;

	trace->is_kept = timeline_events(trace->timeline) == 0 && output_replaces(trace->output);
	if (!trace->is_kept) {
		if (timeline_write(trace->timeline, output_stream(trace->output)) < 0)
			return command_fail_memory();
		code = output_publish(trace->output);
	}
	return code == COMMAND_DONE ? tell_summary(trace) : code;
}

/* ---- The command -----------------------------------------------------------------------------------------
 */

static int find_job(const struct command_context *context, struct trace *trace)
{
	const Tierd__Wire__JobEntry *job;
	int code = choice_ask_job(context, &trace->ask, &job);

	if (code != COMMAND_DONE)
		return code;
	trace->job = context->arguments[0];
	trace->owner = job->uid;
	trace->has_ranks = job->n_members > 0;
	return COMMAND_DONE;
}

static void close_trace(struct trace *trace)
{
	output_free(trace->output);
	timeline_free(trace->timeline);
	ask_free(trace->ask);
}

int command_trace(const struct command_context *context)
{
	struct trace trace = { .is_json = context->is_json };
	int code = read_flags(context, &trace), ended, written;

	if (code == COMMAND_DONE)
		code = find_job(context, &trace);
	if (code == COMMAND_DONE && timeline_new(context->arguments[0], &trace.timeline) < 0)
		code = command_fail_memory();
	note_signals();
	if (code == COMMAND_DONE)
		code = open_output(context, &trace);
	if (code == COMMAND_DONE) {
		progress_begin(&trace.progress, false);
		code = begin(&trace);
	}
	if (code == COMMAND_DONE) {
		code = follow(&trace);
		ended = code == COMMAND_DONE ? tell_end(&trace) : code;
		written = write_output(&trace);
		code = ended != COMMAND_DONE ? ended : written;
	}
	close_trace(&trace);
	return code;
}
