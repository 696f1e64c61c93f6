/* The requests of a raid. What a reader or a rank asks names its own job: the first of its connection. */
#include <stdio.h>

#include "common/size.h"
#include "tests/bench/raid.h"

#define MANY 1024
#define HINTS 65536

static uint32_t zeros[HINTS];

static char *name_of(uint32_t connection)
{
	static char name[32];

	snprintf(name, sizeof(name), RAID_JOB, connection);
	return name;
}

static Tierd__Wire__Rates *rates(bool is_dropped)
{
	static Tierd__Wire__Rates rates;

	tierd__wire__rates__init(&rates);
	rates.gradient_scale = 1;
	rates.is_dropped = is_dropped;
	return &rates;
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

/* R(name, the request before it or NULL, its body's number, field and type, and what is set in the body).
 * Each connection has a job, and readers from when it has asked for nothing else. */
#define REQUESTS(R)                                                                                          \
	R(ping, NULL, PING, ping, Ping, (void)body)                                                          \
	R(node_read, NULL, NODE_READ, node_read, NodeRead, (void)body)                                       \
	R(jobs_read, NULL, JOBS_READ, jobs_read, JobsRead, (void)body)                                       \
	R(units_read, NULL, UNITS_READ, units_read, UnitsRead, body.job = name_of(connection))               \
	R(tensors_read, NULL, TENSORS_READ, tensors_read, TensorsRead, body.job = name_of(connection))       \
	R(leases_read, NULL, LEASES_READ, leases_read, LeasesRead, body.name = name_of(connection))          \
	R(statistics_map, NULL, STATISTICS_MAP, statistics_map, StatisticsMap,                               \
	  body.job = name_of(connection))                                                                    \
	R(statistics_read, NULL, STATISTICS_READ, statistics_read, StatisticsRead, body.job = 1)             \
	R(blobs_read, NULL, BLOBS_READ, blobs_read, BlobsRead, body.job = name_of(connection))               \
	R(scrub, NULL, SCRUB, scrub, Scrub, body.job = name_of(connection))                                  \
	R(verify, NULL, VERIFY, verify, Verify, body.name = name_of(connection))                             \
	R(job_evict, NULL, JOB_EVICT, job_evict, JobEvict, body.name = name_of(connection))                  \
	R(job_release, NULL, JOB_RELEASE, job_release, JobRelease, body.name = name_of(connection))          \
	R(job_drop, NULL, JOB_DROP, job_drop, JobDrop, body.name = name_of(connection))                      \
	R(node_drain, NULL, NODE_DRAIN, node_drain, NodeDrain, (void)body)                                   \
	R(watch, NULL, WATCH, watch, Watch, body.job = name_of(connection))                                  \
	R(trace_read, trace, TRACE_READ, trace_read, TraceRead, (void)body)                                  \
	R(snapshots_read, NULL, SNAPSHOTS_READ, snapshots_read, SnapshotsRead,                               \
	  body.name = name_of(connection))                                                                   \
	R(snapshot_diff, NULL, SNAPSHOT_DIFF, snapshot_diff, SnapshotDiff, body.name = name_of(connection))  \
	R(reader_open, NULL, READER_OPEN, reader_open, ReaderOpen, body.name = name_of(connection))          \
	R(reader_units, NULL, READER_UNITS, reader_units, ReaderUnits, body.reader = 1)                      \
	R(reader_refresh, NULL, READER_REFRESH, reader_refresh, ReaderRefresh, body.reader = 1)              \
	R(reader_read, NULL, READER_READ, reader_read, ReaderRead, body.reader = 1; body.count = 16;         \
	  body.state = (char *)"parameter")                                                                  \
	R(reader_read_many, NULL, READER_READ_MANY, reader_read_many, ReaderReadMany, body.reader = 1;       \
	  body.n_pieces = MANY; body.pieces = many_pieces())                                                 \
	R(reader_memory, NULL, READER_MEMORY, reader_memory, ReaderMemory, body.reader = 1;                  \
	  body.bytes = MIB)                                                                                  \
	R(reader_close, NULL, READER_CLOSE, reader_close, ReaderClose, body.reader = 1)                      \
	R(job_ready, NULL, JOB_READY, job_ready, JobReady, body.job = 1; body.timeout_ms = 1)                \
	R(gather, NULL, GATHER, gather, Gather, body.job = 1; body.epoch = 1)                                \
	R(gather_await, NULL, GATHER_AWAIT, gather_await, GatherAwait, body.job = 1; body.request = 1)       \
	R(gather_cancel, NULL, GATHER_CANCEL, gather_cancel, GatherCancel, body.job = 1; body.request = 1)   \
	R(gpu_attach, NULL, GPU_ATTACH, gpu_attach, GpuAttach, body.job = 1; body.epoch = 1)                 \
	R(gpu_gather, NULL, GPU_GATHER, gpu_gather, GpuGather, body.job = 1; body.epoch = 1)                 \
	R(gpu_gradients, NULL, GPU_GRADIENTS, gpu_gradients, GpuGradients, body.job = 1; body.epoch = 1)     \
	R(phase, NULL, PHASE, phase, Phase, body.job = 1; body.name = name_of(connection))                   \
	R(prefetch, NULL, PREFETCH, prefetch, Prefetch, body.job = 1; body.n_units = HINTS;                  \
	  body.units = zeros)                                                                                \
	R(buffer_wait, NULL, BUFFER_WAIT, buffer_wait, BufferWait, body.job = 1; body.epoch = 1)             \
	R(push, NULL, PUSH, push, Push, body.job = 1; body.epoch = 1)                                        \
	R(groups_get, NULL, GROUPS_GET, groups_get, GroupsGet, body.job = 1; body.unit = 1)                  \
	R(groups_set, NULL, GROUPS_SET, groups_set, GroupsSet, body.job = body.epoch = body.n_groups = 1;    \
	  body.groups = zeros)                                                                               \
	R(blob_write, NULL, BLOB_WRITE, blob_write, BlobWrite, body.job = 1; body.epoch = 1;                 \
	  body.key = (char *)"position"; body.size = body.count = KIB)                                       \
	R(blob_read, NULL, BLOB_READ, blob_read, BlobRead, body.job = 1; body.key = (char *)"position";      \
	  body.count = KIB)                                                                                  \
	R(tensor_write, NULL, TENSOR_WRITE, tensor_write, TensorWrite, body.job = 1;                         \
	  body.state = (char *)"parameter"; body.count = 16)                                                 \
	R(tensor_read, NULL, TENSOR_READ, tensor_read, TensorRead, body.job = 1;                             \
	  body.state = (char *)"parameter")                                                                  \
	R(tensor_read_many, NULL, TENSOR_READ_MANY, tensor_read_many, TensorReadMany, body.job = 1;          \
	  body.n_pieces = MANY; body.pieces = many_pieces())                                                 \
	R(step_begin, NULL, STEP_BEGIN, step_begin, StepBegin, body.job = 1;                                 \
	  body.epoch = body.micro_batches = 1; body.rates = rates(true))                                     \
	R(step_finish, NULL, STEP_FINISH, step_finish, StepFinish, body.job = 1; body.epoch = 1)             \
	R(step_dropped, NULL, STEP, step, Step, body.job = body.epoch = 1; body.rates = rates(true))         \
	R(step, NULL, STEP, step, Step, body.job = 1; body.epoch = 1; body.rates = rates(false))             \
	R(write_end, NULL, WRITE_END, write_end, WriteEnd, body.job = 1; body.epoch = 1)                     \
	R(write_begin, NULL, WRITE_BEGIN, write_begin, WriteBegin, body.job = 1; body.epoch = 1)             \
	R(step_hurry, NULL, STEP_HURRY, step_hurry, StepHurry, body.job = 1; body.request = 1)               \
	R(unit_define, NULL, UNIT_DEFINE, unit_define, UnitDefine, body.job = 1;                             \
	  body.name = name_of(connection))                                                                   \
	R(job_open, NULL, JOB_OPEN, job_open, JobOpen, body.name = name_of(connection); body.world_size = 1; \
	  body.stage = 3)                                                                                    \
	R(job_reserve, NULL, JOB_RESERVE, job_reserve, JobReserve, body.name = name_of(connection);          \
	  body.snapshots = 1)                                                                                \
	R(job_retain, NULL, JOB_RETAIN, job_retain, JobRetain, body.name = name_of(connection);              \
	  body.every = body.keep = 1)                                                                        \
	R(job_share, NULL, JOB_SHARE, job_share, JobShare, body.name = name_of(connection);                  \
	  body.sharing = 1)                                                                                  \
	R(snapshot_take, NULL, SNAPSHOT_TAKE, snapshot_take, SnapshotTake, body.name = name_of(connection);  \
	  body.snapshot = (char *)"first")                                                                   \
	R(snapshot_delete, NULL, SNAPSHOT_DELETE, snapshot_delete, SnapshotDelete,                           \
	  body.name = name_of(connection);                                                                   \
	  body.snapshot = (char *)"first")                                                                   \
	R(job_fork, NULL, JOB_FORK, job_fork, JobFork, body.name = name_of(connection);                      \
	  body.fork = (char *)"branch")                                                                      \
	R(job_roll_back, NULL, JOB_ROLL_BACK, job_roll_back, JobRollBack, body.name = name_of(connection);   \
	  body.snapshot = (char *)"first"; body.force = true)                                                \
	R(job_leave, NULL, JOB_LEAVE, job_leave, JobLeave, body.job = 1; body.at_once = true)

#define DEFINE(function, begin, CASE, field, Type, FIELDS)                                                   \
	static void function(Tierd__Wire__Request *request, uint32_t connection)                             \
	{                                                                                                    \
		static Tierd__Wire__##Type body;                                                             \
		tierd__wire__##field##__init(&body);                                                         \
		FIELDS;                                                                                      \
		request->body_case = TIERD__WIRE__REQUEST__BODY_##CASE;                                      \
		request->field = &body;                                                                      \
	}
DEFINE(trace, NULL, TRACE, trace, Trace, body.name = name_of(connection))
REQUESTS(DEFINE)

#define ROW(function, begin, CASE, field, Type, FIELDS) { #function, begin, function },
const struct raid_request raid_requests[] = { REQUESTS(ROW) };
const unsigned raid_request_count = sizeof(raid_requests) / sizeof(raid_requests[0]);
