/* The requests of a raid. What a reader or a rank asks names its own job: the first of its connection. */
#include <stdio.h>

#include "common/size.h"
#include "tests/bench/raid.h"

#define MANY 1024
#define HINTS 65536

static char *name_of(uint32_t connection)
{
	static char name[32];

	snprintf(name, sizeof(name), RAID_JOB, connection);
	return name;
}

/* A request whose body has these FIELDS. */
#define REQUEST(function, CASE, field, Type, FIELDS)                                                         \
	static void function(Tierd__Wire__Request *request, uint32_t connection)                             \
	{                                                                                                    \
		static Tierd__Wire__##Type body;                                                             \
		tierd__wire__##field##__init(&body);                                                         \
		FIELDS;                                                                                      \
		request->body_case = TIERD__WIRE__REQUEST__BODY_##CASE;                                      \
		request->field = &body;                                                                      \
	}
#define NAMED(CASE, field, Type, member) REQUEST(field, CASE, field, Type, body.member = name_of(connection))
#define OF_JOB(CASE, field, Type, FIELDS) REQUEST(field, CASE, field, Type, body.job = 1; FIELDS)

REQUEST(ping, PING, ping, Ping, (void)body)
REQUEST(node_read, NODE_READ, node_read, NodeRead, (void)body)
REQUEST(jobs_read, JOBS_READ, jobs_read, JobsRead, (void)body)
REQUEST(node_drain, NODE_DRAIN, node_drain, NodeDrain, (void)body)
REQUEST(trace_read, TRACE_READ, trace_read, TraceRead, (void)body)
NAMED(UNITS_READ, units_read, UnitsRead, job)
NAMED(TENSORS_READ, tensors_read, TensorsRead, job)
NAMED(LEASES_READ, leases_read, LeasesRead, name)
NAMED(STATISTICS_MAP, statistics_map, StatisticsMap, job)
NAMED(BLOBS_READ, blobs_read, BlobsRead, job)
NAMED(SCRUB, scrub, Scrub, job)
NAMED(VERIFY, verify, Verify, name)
NAMED(JOB_EVICT, job_evict, JobEvict, name)
NAMED(JOB_RELEASE, job_release, JobRelease, name)
NAMED(JOB_DROP, job_drop, JobDrop, name)
NAMED(WATCH, watch, Watch, job)
NAMED(TRACE, trace, Trace, name)
NAMED(SNAPSHOTS_READ, snapshots_read, SnapshotsRead, name)
NAMED(SNAPSHOT_DIFF, snapshot_diff, SnapshotDiff, name)
NAMED(READER_OPEN, reader_open, ReaderOpen, name)
OF_JOB(STATISTICS_READ, statistics_read, StatisticsRead, (void)body)
OF_JOB(JOB_READY, job_ready, JobReady, body.timeout_ms = 1)
OF_JOB(GATHER, gather, Gather, body.epoch = 1)
OF_JOB(PHASE, phase, Phase, body.name = name_of(connection))
OF_JOB(BUFFER_WAIT, buffer_wait, BufferWait, body.epoch = 1)
OF_JOB(PUSH, push, Push, body.epoch = 1)
OF_JOB(GROUPS_GET, groups_get, GroupsGet, body.unit = 1)
OF_JOB(STEP_FINISH, step_finish, StepFinish, body.epoch = 1)
OF_JOB(WRITE_END, write_end, WriteEnd, body.epoch = 1)
OF_JOB(WRITE_BEGIN, write_begin, WriteBegin, body.epoch = 1)
OF_JOB(TENSOR_READ, tensor_read, TensorRead, body.state = (char *)"parameter")

static Tierd__Wire__Rates *rates(bool is_dropped)
{
	static Tierd__Wire__Rates rates;

	tierd__wire__rates__init(&rates);
	rates.gradient_scale = 1;
	rates.is_dropped = is_dropped;
	return &rates;
}

OF_JOB(STEP_BEGIN, step_begin, StepBegin, body.epoch = body.micro_batches = 1; body.rates = rates(true))
OF_JOB(STEP, step, Step, body.epoch = 1; body.rates = rates(false))
REQUEST(step_dropped, STEP, step, Step, body.job = body.epoch = 1; body.rates = rates(true))

static void prefetch(Tierd__Wire__Request *request, uint32_t connection)
{
	static uint32_t units[HINTS];
	static Tierd__Wire__Prefetch body;

	tierd__wire__prefetch__init(&body);
	body.job = 1;
	body.n_units = HINTS;
	body.units = units;
	request->body_case = TIERD__WIRE__REQUEST__BODY_PREFETCH;
	request->prefetch = &body;
}

static void tensor_read_many(Tierd__Wire__Request *request, uint32_t connection)
{
	static Tierd__Wire__TensorPiece pieces[MANY], *pointers[MANY];
	static Tierd__Wire__TensorReadMany body;

	tierd__wire__tensor_read_many__init(&body);
	for (unsigned i = 0; i < MANY; i++) {
		pointers[i] = &pieces[i];
		tierd__wire__tensor_piece__init(&pieces[i]);
		pieces[i].unit = i;
		pieces[i].state = (char *)"parameter";
		pieces[i].count = 16;
		pieces[i].at = 64 * i;
	}
	body.job = 1;
	body.n_pieces = MANY;
	body.pieces = pointers;
	request->body_case = TIERD__WIRE__REQUEST__BODY_TENSOR_READ_MANY;
	request->tensor_read_many = &body;
}

const struct raid_request raid_requests[] = {
	{ "ping", NULL, ping },
	{ "node_read", NULL, node_read },
	{ "jobs_read", NULL, jobs_read },
	{ "units_read", NULL, units_read },
	{ "tensors_read", NULL, tensors_read },
	{ "leases_read", NULL, leases_read },
	{ "statistics_map", NULL, statistics_map },
	{ "statistics_read", NULL, statistics_read },
	{ "blobs_read", NULL, blobs_read },
	{ "scrub", NULL, scrub },
	{ "verify", NULL, verify },
	{ "job_evict", NULL, job_evict },
	{ "job_release", NULL, job_release },
	{ "job_drop", NULL, job_drop },
	{ "node_drain", NULL, node_drain },
	{ "watch", NULL, watch },
	{ "trace_read", trace, trace_read },
	{ "snapshots_read", NULL, snapshots_read },
	{ "snapshot_diff", NULL, snapshot_diff },
	{ "reader_open", NULL, reader_open },
	{ "job_ready", NULL, job_ready },
	{ "gather", NULL, gather },
	{ "phase", NULL, phase },
	{ "prefetch", NULL, prefetch },
	{ "buffer_wait", NULL, buffer_wait },
	{ "push", NULL, push },
	{ "groups_get", NULL, groups_get },
	{ "tensor_read", NULL, tensor_read },
	{ "tensor_read_many", NULL, tensor_read_many },
	{ "step_begin", NULL, step_begin },
	{ "step_finish", NULL, step_finish },
	{ "step_dropped", NULL, step_dropped },
	{ "step", NULL, step },
	{ "write_end", NULL, write_end },
	{ "write_begin", NULL, write_begin },
};
const unsigned raid_request_count = sizeof(raid_requests) / sizeof(raid_requests[0]);
