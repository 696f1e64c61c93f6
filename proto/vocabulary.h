/* Limits and enumerations that the wire shares with tierd.h (client/ asserts that they are equal). */
#ifndef TIERD_PROTO_VOCABULARY_H
#define TIERD_PROTO_VOCABULARY_H

#include <stdint.h>

#define WIRE_MAX_DIMENSIONS 8
#define WIRE_MAX_NAME 128
#define WIRE_MAX_JOB_NAME 63
#define WIRE_MAX_GROUPS 1024
#define WIRE_MAX_WORLD_SIZE 1024
#define WIRE_MAX_GRADIENT_BUFFERS 64
#define WIRE_MAX_GRADIENT_BYTES (UINT64_C(1) << 50) /* of a rank's room */
#define WIRE_MAX_BLOB_KEY 64
#define WIRE_MAX_BLOB_BYTES (UINT64_C(64) << 20)
#define WIRE_BLOB_PIECE 262144
#define WIRE_MAX_SNAPSHOTS 14
#define WIRE_NO_SNAPSHOTS UINT32_MAX /* room for none; 0: for as many as the daemon's configuration says */
#define WIRE_MAX_SNAPSHOT_NAME 63
#define WIRE_MAX_STREAM_NAME 31 /* of a job's state: "parameter.bf16.moments-int8" has 27 */
#define WIRE_MAX_READER_MEMORY (UINT64_C(1) << 40)
#define WIRE_MAX_PIECES 1024	/* that one request reads */
#define WIRE_MAX_PREFETCH 65536 /* no arena holds more units at once */

/* Durability is one of these, or a number of seconds. */
#define DURABILITY_DEFAULT 0
#define DURABILITY_MOST_SECONDS 86400
#define DURABILITY_NONE (UINT32_MAX - 1)
#define DURABILITY_STEP UINT32_MAX

enum wire_mode { MODE_EITHER, MODE_CREATE, MODE_RESUME, MODE_REPLACE };
enum wire_optimizer { OPTIMIZER_ADAMW, OPTIMIZER_ADAM, OPTIMIZER_SGD, OPTIMIZER_LION, OPTIMIZER_NONE };
enum wire_placement { PLACEMENT_DEFAULT, PLACEMENT_HOST, PLACEMENT_NVME, PLACEMENT_AUTO };
enum wire_moments { MOMENTS_IN_FP32, MOMENTS_IN_BF16, MOMENTS_IN_INT8, WIRE_MOMENTS };
enum wire_nonfinite { NONFINITE_SKIP, NONFINITE_REPORT };
enum wire_sharing { SHARING_NONE, SHARING_READ, SHARING_TRAIN };
enum wire_job_status { JOB_NEW = 1, JOB_RESUMED };
enum wire_format { FORMAT_FP32 = 1, FORMAT_BF16, FORMAT_FP16, FORMAT_BYTES };
/* What a trace tells of: TraceEvent's kind. Numbers never change their meaning. */
enum wire_trace {
	TRACE_NOTHING,
	/* Of the job. */
	TRACE_STEP = 1, /* from its decision until it is applied */
	TRACE_SAVE,	/* what a commit writes beside the state */
	TRACE_COMMIT,	/* from then until it is durable */
	TRACE_EVICT,	/* a moment */
	/* Of a worker. */
	TRACE_UPDATE = 16,
	TRACE_INITIALIZE,
	TRACE_REDUCE,  /* what ranks have pushed */
	TRACE_FOLD,    /* the sums of ranks into one */
	TRACE_MEASURE, /* the norm */
	TRACE_HOLD,    /* a push is put aside */
	/* Between the devices and host memory. */
	TRACE_DEMAND_READ = 32,
	TRACE_PREFETCH_READ,
	TRACE_UPDATE_READ,
	TRACE_SUMS_READ,
	TRACE_UPDATE_WRITE = 48,
	TRACE_WRITE_BACK,
	TRACE_SUMS_WRITE,
	TRACE_RECORD_WRITE,
	/* Of a rank: what it waits for; and the moment in which it closes its step. */
	TRACE_WAIT_READ = 64,
	TRACE_WAIT_SLOT,
	TRACE_WAIT_STEP,   /* the version of a unit */
	TRACE_WAIT_BUFFER, /* for gradients */
	TRACE_WAIT_APPLIED,
	TRACE_WAIT_READY,
	TRACE_CLOSE,
	TRACE_WAIT_GPU,
	/* From host memory to a GPU. */
	TRACE_GPU_GATHER = 80,
	TRACE_GPU_PREFETCH,
};

enum wire_initializer {
	INITIALIZE_NONE,
	INITIALIZE_ZEROS,
	INITIALIZE_ONES,
	INITIALIZE_NORMAL,
	INITIALIZE_UNIFORM
};

#endif
