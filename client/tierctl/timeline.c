/* The format is Chrome's trace events, as JSON: a process of it is a group of tracks here, a thread is a
 * track. What overlaps is on tracks of its own, as none may hide another: a transfer takes the first that is
 * free when it begins, so that there are as many as were ever under way at once. */
#include "client/tierctl/timeline.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/tierctl/text.h"
#include "proto/vocabulary.h"

#define MAX_WORKERS 4096
#define TRACKS_OF_ONE 1000
#define NO_UNIT UINT32_MAX

enum group { NOWHERE, OF_JOB, OF_RANKS, OF_WORKERS, OF_READS, OF_WRITES, OF_GPUS, GROUPS };

static const char *const group_names[GROUPS] = { "", "job", "ranks", "workers", "reads", "writes", "GPUs" };

/* What is known of a kind: an event of it has its label and its unit or step as a name. */
struct kind {
	enum group group;
	const char *label;
	const char *amount; /* of what; NULL: it has none */
};

static const struct kind kinds[] = {
	[TRACE_STEP] = { OF_JOB, "step", NULL },
	[TRACE_SAVE] = { OF_JOB, "save", NULL },
	[TRACE_COMMIT] = { OF_JOB, "commit", NULL },
	[TRACE_EVICT] = { OF_JOB, "evict", NULL },
	[TRACE_UPDATE] = { OF_WORKERS, "update", "elements" },
	[TRACE_INITIALIZE] = { OF_WORKERS, "initialize", "elements" },
	[TRACE_REDUCE] = { OF_WORKERS, "reduce", "elements" },
	[TRACE_FOLD] = { OF_WORKERS, "fold", "elements" },
	[TRACE_MEASURE] = { OF_WORKERS, "measure", NULL },
	[TRACE_HOLD] = { OF_WORKERS, "hold", NULL },
	[TRACE_DEMAND_READ] = { OF_READS, "gather", "bytes" },
	[TRACE_PREFETCH_READ] = { OF_READS, "prefetch", "bytes" },
	[TRACE_UPDATE_READ] = { OF_READS, "update", "bytes" },
	[TRACE_SUMS_READ] = { OF_READS, "sums", "bytes" },
	[TRACE_UPDATE_WRITE] = { OF_WRITES, "update", "bytes" },
	[TRACE_WRITE_BACK] = { OF_WRITES, "write back", "bytes" },
	[TRACE_SUMS_WRITE] = { OF_WRITES, "sums", "bytes" },
	[TRACE_RECORD_WRITE] = { OF_WRITES, "record", "bytes" },
	[TRACE_WAIT_READ] = { OF_RANKS, "waits for bytes", NULL },
	[TRACE_WAIT_SLOT] = { OF_RANKS, "waits for room", NULL },
	[TRACE_WAIT_STEP] = { OF_RANKS, "waits for the update", NULL },
	[TRACE_WAIT_BUFFER] = { OF_RANKS, "waits for a gradient buffer", NULL },
	[TRACE_WAIT_APPLIED] = { OF_RANKS, "waits for its step", NULL },
	[TRACE_WAIT_READY] = { OF_RANKS, "waits for all ranks", NULL },
	[TRACE_WAIT_GPU] = { OF_RANKS, "waits for a GPU", NULL },
	[TRACE_CLOSE] = { OF_RANKS, "closes", NULL },
	[TRACE_GPU_GATHER] = { OF_GPUS, "gather", "bytes" },
	[TRACE_GPU_PREFETCH] = { OF_GPUS, "prefetch", "bytes" },
};

struct event {
	uint64_t began_ns, ended_ns, amount, step;
	uint32_t unit, who;
	uint8_t kind;
	char stream[WIRE_MAX_STREAM_NAME + 1];
};

/* Tracks beside each other: what is on each ends then. */
struct lanes {
	uint64_t *ends_ns;
	unsigned count;
};

/* A rank computes when it waits for nothing, between the first and the last that is known of it. */
struct rank {
	struct lanes lanes;
	bool is_known;
	uint64_t busy_until_ns;
};

struct timeline {
	const char *job;
	struct event *events;
	size_t count, room;
	char **units;
	uint32_t unit_count, most_unit;
	uint64_t steps, lost;

	/* While it is written. */
	FILE *stream;
	bool has_begun;
	struct lanes reads, writes, gpus;
	struct rank ranks[WIRE_MAX_WORLD_SIZE];
	bool workers[MAX_WORKERS];
};

int timeline_new(const char *job, struct timeline **ret_timeline)
{
	struct timeline *timeline = calloc(1, sizeof(*timeline));

	if (!timeline)
		return -ENOMEM;
	timeline->job = job;
	*ret_timeline = timeline;
	return 0;
}

struct timeline *timeline_free(struct timeline *timeline)
{
	if (!timeline)
		return NULL;
	for (uint32_t i = 0; i < timeline->unit_count; i++)
		free(timeline->units[i]);
	for (uint32_t i = 0; i < WIRE_MAX_WORLD_SIZE; i++)
		free(timeline->ranks[i].lanes.ends_ns);
	free(timeline->reads.ends_ns);
	free(timeline->writes.ends_ns);
	free(timeline->gpus.ends_ns);
	free(timeline->units);
	free(timeline->events);
	free(timeline);
	return NULL;
}

/* ---- Collecting ------------------------------------------------------------------------------------------
 */

static bool is_known(const Tierd__Wire__TraceEvent *event)
{
	enum group group = event->kind < ARRAY_LENGTH(kinds) ? kinds[event->kind].group : NOWHERE;

	return group != NOWHERE && (group != OF_RANKS || event->who < WIRE_MAX_WORLD_SIZE) &&
	       (group != OF_WORKERS || event->who < MAX_WORKERS);
}

static int make_room(struct timeline *timeline)
{
	size_t room = timeline->room ? 2 * timeline->room : 4096;
	struct event *events;

	if (timeline->count < timeline->room)
		return 0;
	if (timeline->count == TIMELINE_MOST_EVENTS)
		return -E2BIG;
	events = reallocarray(timeline->events, room, sizeof(*events));
	if (!events)
		return -ENOMEM;
	timeline->events = events;
	timeline->room = room;
	return 0;
}

int timeline_add(struct timeline *timeline, const Tierd__Wire__TraceEvent *wire)
{
	struct event *event;
	int r;

	if (!is_known(wire))
		return 0;
	r = make_room(timeline);
	if (r < 0)
		return r;
	event = &timeline->events[timeline->count++];
	*event = (struct event){ .began_ns = wire->began_ns,
				 .ended_ns = wire->began_ns + wire->length_ns,
				 .amount = wire->amount,
				 .step = wire->step,
				 .unit = wire->has_unit ? wire->unit : NO_UNIT,
				 .who = wire->who,
				 .kind = (uint8_t)wire->kind };
	snprintf(event->stream, sizeof(event->stream), "%s", wire->stream);
	timeline->steps += wire->kind == TRACE_STEP;
	if (wire->has_unit && wire->unit >= timeline->most_unit)
		timeline->most_unit = wire->unit + 1;
	return 0;
}

int timeline_name_unit(struct timeline *timeline, const char *name)
{
	char **units = reallocarray(timeline->units, timeline->unit_count + 1, sizeof(*units));

	if (!units)
		return -ENOMEM;
	timeline->units = units;
	units[timeline->unit_count] = strdup(name);
	if (!units[timeline->unit_count])
		return -ENOMEM;
	timeline->unit_count++;
	return 0;
}

void timeline_lose(struct timeline *timeline, uint64_t count)
{
	timeline->lost += count;
}

size_t timeline_events(const struct timeline *timeline)
{
	return timeline->count;
}

uint64_t timeline_steps(const struct timeline *timeline)
{
	return timeline->steps;
}

uint64_t timeline_lost(const struct timeline *timeline)
{
	return timeline->lost;
}

uint32_t timeline_units(const struct timeline *timeline)
{
	return timeline->unit_count;
}

bool timeline_lacks_names(const struct timeline *timeline)
{
	return timeline->most_unit > timeline->unit_count;
}

/* ---- Tracks ----------------------------------------------------------------------------------------------
 */

static int take_lane(struct lanes *lanes, const struct event *event, unsigned *ret_lane)
{
	uint64_t *ends_ns;
	unsigned lane = 0;

	while (lane < lanes->count && lanes->ends_ns[lane] > event->began_ns)
		lane++;
	if (lane == lanes->count) {
		ends_ns = reallocarray(lanes->ends_ns, lane + 1, sizeof(*ends_ns));
		if (!ends_ns)
			return -ENOMEM;
		lanes->ends_ns = ends_ns;
		lanes->count++;
	}
	lanes->ends_ns[lane] = event->ended_ns;
	*ret_lane = lane;
	return 0;
}

/* A number is of one track, whatever its group: viewers take threads for the machine's. */
static unsigned long long track_number(enum group group, uint32_t who, unsigned lane)
{
	return (group * UINT64_C(10000) + who) * TRACKS_OF_ONE + lane + 1;
}

/* The job has three lanes: steps, commits and evictions. Of a rank it is the first. */
static unsigned fixed_lane(enum wire_trace kind)
{
	if (kind == TRACE_EVICT)
		return 2;
	return kind == TRACE_SAVE || kind == TRACE_COMMIT;
}

/* It hides nothing that it lies on. */
static bool is_moment(const struct event *event)
{
	return event->kind == TRACE_EVICT || event->kind == TRACE_CLOSE;
}

static int find_lane(struct timeline *timeline, const struct event *event, unsigned *ret_lane)
{
	if (is_moment(event)) {
		*ret_lane = fixed_lane(event->kind);
		return 0;
	}
	switch (kinds[event->kind].group) {
	case OF_READS:
		return take_lane(&timeline->reads, event, ret_lane);
	case OF_WRITES:
		return take_lane(&timeline->writes, event, ret_lane);
	case OF_GPUS:
		return take_lane(&timeline->gpus, event, ret_lane);
	case OF_RANKS:
		return take_lane(&timeline->ranks[event->who].lanes, event, ret_lane);
	case OF_WORKERS:
		timeline->workers[event->who] = true;
		*ret_lane = 0;
		return 0;
	default:
		*ret_lane = fixed_lane(event->kind);
		return 0;
	}
}

/* ---- JSON ------------------------------------------------------------------------------------------------
 */

static void put_string(FILE *stream, const char *text)
{
	putc('"', stream);
	while (*text)
		if (*text == '"' || *text == '\\')
			fprintf(stream, "\\%c", *text++);
		else
			text += text_put_json(stream, text);
	putc('"', stream);
}

static void put_time(FILE *stream, const char *key, uint64_t ns)
{
	fprintf(stream, ",\"%s\":%" PRIu64 ".%03u", key, ns / 1000, (unsigned)(ns % 1000));
}

static void begin_object(struct timeline *timeline)
{
	fputs(timeline->has_begun ? ",\n" : "\n", timeline->stream);
	timeline->has_begun = true;
}

static const char *unit_name(const struct timeline *timeline, uint32_t unit, char text[32])
{
	if (unit < timeline->unit_count)
		return timeline->units[unit];
	snprintf(text, 32, "unit %" PRIu32, unit);
	return text;
}

static void put_name(const struct timeline *timeline, const struct event *event)
{
	const char *label = kinds[event->kind].label;
	char number[32], name[WIRE_MAX_NAME + 64];

	if (event->unit != NO_UNIT)
		snprintf(name, sizeof(name), "%s: %s", label, unit_name(timeline, event->unit, number));
	else if (event->step > 0)
		snprintf(name, sizeof(name), "%s %" PRIu64, label, event->step);
	else
		snprintf(name, sizeof(name), "%s", label);
	fputs("{\"name\":", timeline->stream);
	put_string(timeline->stream, name);
}

static void put_place(const struct timeline *timeline, enum group group, uint32_t who, unsigned lane)
{
	fprintf(timeline->stream, ",\"pid\":%d,\"tid\":%llu", group, track_number(group, who, lane));
}

static void put_arguments(const struct timeline *timeline, const struct event *event)
{
	const struct kind *kind = &kinds[event->kind];
	FILE *stream = timeline->stream;
	char text[32];

	fprintf(stream, ",\"args\":{\"kind\":\"%s\"", kind->label);
	if (event->unit != NO_UNIT) {
		fputs(",\"unit\":", stream);
		put_string(stream, unit_name(timeline, event->unit, text));
	}
	if (kind->amount && event->amount > 0)
		fprintf(stream, ",\"%s\":%" PRIu64, kind->amount, event->amount);
	if (*event->stream) {
		fputs(",\"stream\":", stream);
		put_string(stream, event->stream);
	}
	if (event->step > 0)
		fprintf(stream, ",\"step\":%" PRIu64, event->step);
	fputs("}}", stream);
}

static void put_event(struct timeline *timeline, const struct event *event, unsigned lane)
{
	enum group group = kinds[event->kind].group;
	bool has_tracks_of_its_own = group == OF_RANKS || group == OF_WORKERS;

	begin_object(timeline);
	put_name(timeline, event);
	fprintf(timeline->stream, ",\"cat\":\"%s\"", group_names[group]);
	fputs(is_moment(event) ? ",\"ph\":\"i\",\"s\":\"t\"" : ",\"ph\":\"X\"", timeline->stream);
	put_time(timeline->stream, "ts", event->began_ns);
	if (!is_moment(event))
		put_time(timeline->stream, "dur", event->ended_ns - event->began_ns);
	put_place(timeline, group, has_tracks_of_its_own ? event->who : 0, lane);
	put_arguments(timeline, event);
}

static void put_computing(struct timeline *timeline, const struct event *event)
{
	struct rank *rank = &timeline->ranks[event->who];

	if (rank->is_known && event->began_ns > rank->busy_until_ns) {
		begin_object(timeline);
		fputs("{\"name\":\"computes\",\"cat\":\"ranks\",\"ph\":\"X\"", timeline->stream);
		put_time(timeline->stream, "ts", rank->busy_until_ns);
		put_time(timeline->stream, "dur", event->began_ns - rank->busy_until_ns);
		put_place(timeline, OF_RANKS, event->who, 0);
		fputs(",\"args\":{\"kind\":\"computes\"}}", timeline->stream);
	}
	if (!rank->is_known || event->ended_ns > rank->busy_until_ns)
		rank->busy_until_ns = event->ended_ns;
	rank->is_known = true;
}

/* ---- What groups and tracks are called -------------------------------------------------------------------
 */

static void put_metadata(struct timeline *timeline, const char *what, enum group group,
			 unsigned long long track, const char *name)
{
	begin_object(timeline);
	fprintf(timeline->stream,
		"{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%d,\"tid\":%llu,\"args\":{\"name\":", what, group,
		track);
	put_string(timeline->stream, name);
	fputs("}}", timeline->stream);
}

static void put_sorting(struct timeline *timeline, const char *what, enum group group,
			unsigned long long track, unsigned long long index)
{
	begin_object(timeline);
	fprintf(timeline->stream,
		"{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%d,\"tid\":%llu,\"args\":{\"sort_index\":%llu}}", what,
		group, track, index);
}

static void put_track(struct timeline *timeline, enum group group, uint32_t who, unsigned lane,
		      const char *name)
{
	unsigned long long track = track_number(group, who, lane);

	put_metadata(timeline, "thread_name", group, track, name);
	put_sorting(timeline, "thread_sort_index", group, track, track);
}

static void put_groups(struct timeline *timeline)
{
	char name[WIRE_MAX_JOB_NAME + 16];

	for (enum group group = OF_JOB; group < GROUPS; group++) {
		snprintf(name, sizeof(name), "%s%s%s", group_names[group], group == OF_JOB ? " " : "",
			 group == OF_JOB ? timeline->job : "");
		put_metadata(timeline, "process_name", group, 0, name);
		put_sorting(timeline, "process_sort_index", group, 0, group);
	}
}

/* The first lane has what the rank computes, if it waits for nothing at all. */
static unsigned rank_lanes(const struct rank *rank)
{
	return rank->is_known && rank->lanes.count == 0 ? 1 : rank->lanes.count;
}

static void put_tracks(struct timeline *timeline)
{
	static const char *const of_job[] = { "steps", "commits", "evictions" };
	char name[48];

	for (unsigned lane = 0; lane < ARRAY_LENGTH(of_job); lane++)
		put_track(timeline, OF_JOB, 0, lane, of_job[lane]);
	for (uint32_t rank = 0; rank < WIRE_MAX_WORLD_SIZE; rank++)
		for (unsigned lane = 0; lane < rank_lanes(&timeline->ranks[rank]); lane++) {
			snprintf(name, sizeof(name), "rank %u%s", rank, lane == 0 ? "" : ", also");
			put_track(timeline, OF_RANKS, rank, lane, name);
		}
	for (uint32_t worker = 0; worker < MAX_WORKERS; worker++)
		if (timeline->workers[worker]) {
			snprintf(name, sizeof(name), "worker %u", worker);
			put_track(timeline, OF_WORKERS, worker, 0, name);
		}
	for (unsigned lane = 0; lane < timeline->reads.count; lane++)
		put_track(timeline, OF_READS, 0, lane, "read");
	for (unsigned lane = 0; lane < timeline->writes.count; lane++)
		put_track(timeline, OF_WRITES, 0, lane, "write");
	for (unsigned lane = 0; lane < timeline->gpus.count; lane++)
		put_track(timeline, OF_GPUS, 0, lane, "copy");
}

/* ---- The file --------------------------------------------------------------------------------------------
 */

/* If two begin together the longer one is first: so viewers nest them. */
static int compare(const void *left, const void *right)
{
	const struct event *a = left, *b = right;

	if (a->began_ns != b->began_ns)
		return a->began_ns < b->began_ns ? -1 : 1;
	return a->ended_ns > b->ended_ns ? -1 : a->ended_ns < b->ended_ns;
}

int timeline_write(struct timeline *timeline, FILE *stream)
{
	unsigned lane;

	timeline->stream = stream;
	if (timeline->count > 0)
		qsort(timeline->events, timeline->count, sizeof(timeline->events[0]), compare);
	fputs("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"job\":", stream);
	put_string(stream, timeline->job);
	fprintf(stream, ",\"lost\":\"%" PRIu64 "\"},\"traceEvents\":[", timeline->lost);
	put_groups(timeline);
	for (size_t i = 0; i < timeline->count; i++) {
		const struct event *event = &timeline->events[i];
		int r = find_lane(timeline, event, &lane);

		if (r < 0)
			return r;
		if (kinds[event->kind].group == OF_RANKS)
			put_computing(timeline, event);
		put_event(timeline, event, lane);
	}
	put_tracks(timeline);
	fputs("\n]}\n", stream);
	return 0;
}
