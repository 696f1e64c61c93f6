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
OF_JOB(TENSOR_WRITE, tensor_write, TensorWrite, body.state = (char *)"parameter"; body.count = 16)
OF_JOB(GATHER_CANCEL, gather_cancel, GatherCancel, body.request = 1)
OF_JOB(GATHER_AWAIT, gather_await, GatherAwait, body.request = 1)
OF_JOB(STEP_HURRY, step_hurry, StepHurry, body.request = 1)
OF_JOB(BLOB_WRITE, blob_write, BlobWrite, body.epoch = 1; body.key = (char *)"position";
       body.size = body.count = KIB)
OF_JOB(BLOB_READ, blob_read, BlobRead, body.key = (char *)"position"; body.count = KIB)
OF_JOB(UNIT_DEFINE, unit_define, UnitDefine, body.name = name_of(connection))
OF_JOB(JOB_LEAVE, job_leave, JobLeave, body.at_once = true)
REQUEST(job_open, JOB_OPEN, job_open, JobOpen, body.name = name_of(connection); body.world_size = 1;
	body.stage = 3)
/* Each connection has readers, from when it has asked for nothing else. */
REQUEST(reader_units, READER_UNITS, reader_units, ReaderUnits, body.reader = 1)
REQUEST(reader_refresh, READER_REFRESH, reader_refresh, ReaderRefresh, body.reader = 1)
REQUEST(reader_read, READER_READ, reader_read, ReaderRead, body.reader = 1; body.count = 16;
	body.state = (char *)"parameter")
REQUEST(reader_memory, READER_MEMORY, reader_memory, ReaderMemory, body.reader = 1; body.bytes = MIB)
REQUEST(reader_close, READER_CLOSE, reader_close, ReaderClose, body.reader = 1)
#define CHANGED(CASE, field, Type, FIELDS)                                                                   \
	REQUEST(field, CASE, field, Type, body.name = name_of(connection); FIELDS)
CHANGED(SNAPSHOT_TAKE, snapshot_take, SnapshotTake, body.snapshot = (char *)"first")
CHANGED(SNAPSHOT_DELETE, snapshot_delete, SnapshotDelete, body.snapshot = (char *)"first")
CHANGED(JOB_ROLL_BACK, job_roll_back, JobRollBack, body.snapshot = (char *)"first"; body.force = true)
CHANGED(JOB_RESERVE, job_reserve, JobReserve, body.snapshots = 1)
CHANGED(JOB_RETAIN, job_retain, JobRetain, body.every = body.keep = 1)
CHANGED(JOB_FORK, job_fork, JobFork, body.fork = (char *)"branch")
CHANGED(JOB_SHARE, job_share, JobShare, body.sharing = 1)

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

static void groups_set(Tierd__Wire__Request *request, uint32_t connection)
{
	static uint32_t groups[1];
	static Tierd__Wire__GroupsSet body;

	tierd__wire__groups_set__init(&body);
	body.job = body.epoch = 1;
	body.n_groups = 1;
	body.groups = groups;
	request->body_case = TIERD__WIRE__REQUEST__BODY_GROUPS_SET;
	request->groups_set = &body;
}

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

/* As many as one request may have. */
static Tierd__Wire__TensorPiece **many_pieces(void)
{
	static Tierd__Wire__TensorPiece pieces[MANY], *pointers[MANY];

	for (unsigned i = 0; i < MANY; i++) {
		pointers[i] = &pieces[i];
		tierd__wire__tensor_piece__init(&pieces[i]);
		pieces[i].unit = i;
		pieces[i].state = (char *)"parameter";
		pieces[i].count = 16;
		pieces[i].at = 64 * i;
	}
	return pointers;
}

OF_JOB(TENSOR_READ_MANY, tensor_read_many, TensorReadMany, body.n_pieces = MANY; body.pieces = many_pieces())
REQUEST(reader_read_many, READER_READ_MANY, reader_read_many, ReaderReadMany, body.reader = 1;
	body.n_pieces = MANY; body.pieces = many_pieces())

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
	{ "reader_units", NULL, reader_units },
	{ "reader_refresh", NULL, reader_refresh },
	{ "reader_read", NULL, reader_read },
	{ "reader_read_many", NULL, reader_read_many },
	{ "reader_memory", NULL, reader_memory },
	{ "reader_close", NULL, reader_close },
	{ "job_ready", NULL, job_ready },
	{ "gather", NULL, gather },
	{ "gather_await", NULL, gather_await },
	{ "gather_cancel", NULL, gather_cancel },
	{ "phase", NULL, phase },
	{ "prefetch", NULL, prefetch },
	{ "buffer_wait", NULL, buffer_wait },
	{ "push", NULL, push },
	{ "groups_get", NULL, groups_get },
	{ "groups_set", NULL, groups_set },
	{ "blob_write", NULL, blob_write },
	{ "blob_read", NULL, blob_read },
	{ "tensor_write", NULL, tensor_write },
	{ "tensor_read", NULL, tensor_read },
	{ "tensor_read_many", NULL, tensor_read_many },
	{ "step_begin", NULL, step_begin },
	{ "step_finish", NULL, step_finish },
	{ "step_dropped", NULL, step_dropped },
	{ "step", NULL, step },
	{ "write_end", NULL, write_end },
	{ "write_begin", NULL, write_begin },
	{ "step_hurry", NULL, step_hurry },
	{ "unit_define", NULL, unit_define },
	{ "job_open", NULL, job_open },
	{ "job_reserve", NULL, job_reserve },
	{ "job_retain", NULL, job_retain },
	{ "job_share", NULL, job_share },
	{ "snapshot_take", NULL, snapshot_take },
	{ "snapshot_delete", NULL, snapshot_delete },
	{ "job_fork", NULL, job_fork },
	{ "job_roll_back", NULL, job_roll_back },
	{ "job_leave", NULL, job_leave },
};
const unsigned raid_request_count = sizeof(raid_requests) / sizeof(raid_requests[0]);
