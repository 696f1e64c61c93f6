#include "daemon/session/request.h"

#include <errno.h>

#include "common/clock.h"
#include "daemon/durability/durability.h"
#include "daemon/gpu/gpu.h"
#include "daemon/gradients/gradients.h"
#include "daemon/life/life.h"
#include "daemon/model/model.h"
#include "daemon/observe/observe.h"
#include "daemon/recovery/recovery.h"
#include "daemon/residency/residency.h"
#include "daemon/scrub/scrub.h"
#include "daemon/session/client_inside.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/update.h"
#include "daemon/values/values.h"

static struct client *client_of(const struct pending *pending)
{
	return container_of(pending->pool, struct client, pool);
}

/* A request may have been sent before the peer could know that it has no part in the job any more. After
 * -ESTALE it gets ready again: that has to end otherwise, or it would ask for ever. */
static void refuse_unknown(struct pending *pending, uint32_t handle, bool is_ready)
{
	const char *reason = port_find_farewell(pending_port(pending), handle);

	if (reason && is_ready)
		pending_error(pending, -ENOENT,
			      "%s, and this rank has no part in it any more; it may open the job again",
			      reason);
	else if (reason)
		pending_error(pending, -ESTALE, "%s", reason);
	else
		pending_error(pending, -EINVAL, "this connection has no open job %u", handle);
}

/* NULL: it has none, and the request is answered; so with find_reader(). */
static struct member *find_member(struct pending *pending, uint32_t handle, bool is_ready)
{
	QUEUE_FOREACH (link, &client_of(pending)->jobs.members) {
		struct member *member = queue_entry(link, struct member, client_link);

		if (member->handle == handle && !member->has_left)
			return member;
	}
	refuse_unknown(pending, handle, is_ready);
	return NULL;
}

/* What a rank waits for that sends it, if it does nothing else meanwhile. */
static enum wire_trace find_wait(const Tierd__Wire__Request *request)
{
	switch (request->body_case) {
	case TIERD__WIRE__REQUEST__BODY_JOB_READY:
		return TRACE_WAIT_READY;
	case TIERD__WIRE__REQUEST__BODY_STEP:
		return request->step->is_awaited ? TRACE_WAIT_APPLIED : TRACE_NOTHING;
	default:
		return TRACE_NOTHING;
	}
}

/* Binds the request to the job that it names. */
static bool bind_member(struct pending *pending, const Tierd__Wire__Request *request, uint32_t handle)
{
	struct member *member =
		find_member(pending, handle, request->body_case == TIERD__WIRE__REQUEST__BODY_JOB_READY);

	if (!member)
		return false;
	pending->member = member;
	member->heard_ns = clock_now_ns();
	pending->asked_ns = member->heard_ns;
	pending->waited_for = find_wait(request);
	queue_push(&member->pendings, &pending->member_link);
	return true;
}

static struct reader *find_reader(struct pending *pending, uint32_t handle)
{
	struct reader *reader = reader_of(&client_of(pending)->readers, handle);
	const char *reason = reader ? NULL : port_find_farewell(pending_port(pending), handle);

	if (reason)
		pending_error(pending, -EPERM, "%s", reason);
	else if (!reader)
		pending_error(pending, -EINVAL, "this connection has no reader %u", handle);
	return reader;
}

static void open_job(struct pending *pending, const Tierd__Wire__JobOpen *open)
{
	struct client *client = client_of(pending);
	unsigned count = 0;

	QUEUE_FOREACH (link, &client->jobs.members)
		count++;
	if (count >= CLIENT_MAX_MEMBERS)
		pending_error(pending, -EBUSY,
			      "this connection has %d open jobs; close one, or use another connection",
			      CLIENT_MAX_MEMBERS);
	else
		job_open(pending, open, &client->jobs, ++client->next_handle);
}

#define HANDLE(NAME, call)                                                                                   \
	case TIERD__WIRE__REQUEST__BODY_##NAME:                                                              \
		call;                                                                                        \
		return true

/* Requests about the node, which need no job. False: it is none of them; so with those below. */
static bool handle_node_request(struct pending *pending, const Tierd__Wire__Request *request)
{
	switch (request->body_case) {
		HANDLE(PING, pending_reply(pending, NULL));
		HANDLE(NODE_READ, report_node(pending, pending_node(pending)));
		HANDLE(JOBS_READ, report_jobs(pending, pending_node(pending)));
		HANDLE(UNITS_READ, report_units(pending, request->units_read));
		HANDLE(TENSORS_READ, report_tensors(pending, request->tensors_read));
		HANDLE(STATISTICS_MAP, statistics_map(pending, request->statistics_map));
		HANDLE(JOB_DROP, drop_job(pending, request->job_drop));
		HANDLE(LEASES_READ, leases_report(pending, request->leases_read));
		HANDLE(JOB_EVICT, evict_units(pending, request->job_evict));
		HANDLE(JOB_RELEASE, release_job(pending, request->job_release));
		HANDLE(NODE_DRAIN, drain_node(pending, request->node_drain));
		HANDLE(VERIFY, verify_begin(pending, request->verify, &client_of(pending)->verifies));
		HANDLE(SCRUB, scrub_request(pending, request->scrub));
		HANDLE(BLOBS_READ, blob_list(pending, request->blobs_read));
		HANDLE(WATCH, watch_begin(&client_of(pending)->watch, pending, request->watch));
		HANDLE(TRACE, tracer_begin(&client_of(pending)->tracer, pending, request->trace));
		HANDLE(TRACE_READ, tracer_read(&client_of(pending)->tracer, pending));
		HANDLE(JOB_OPEN, open_job(pending, request->job_open));
	default:
		return false;
	}
}

static void close_reader(struct reader *reader, struct pending *pending)
{
	reader_close(reader);
	pending_reply(pending, NULL);
}

#define HANDLE_READER(NAME, field, call)                                                                     \
	case TIERD__WIRE__REQUEST__BODY_##NAME:                                                              \
		reader = find_reader(pending, request->field->reader);                                       \
		if (reader)                                                                                  \
			call;                                                                                \
		return true

static bool handle_reader_request(struct pending *pending, const Tierd__Wire__Request *request)
{
	struct client *client = client_of(pending);
	struct reader *reader;

	switch (request->body_case) {
		HANDLE(READER_OPEN,
		       reader_open(pending, request->reader_open, &client->readers, ++client->next_handle));
		HANDLE_READER(READER_UNITS, reader_units,
			      reader_units(reader, pending, request->reader_units));
		HANDLE_READER(READER_REFRESH, reader_refresh,
			      reader_refresh(reader, pending, request->reader_refresh));
		HANDLE_READER(READER_READ, reader_read, reader_read(reader, pending, request->reader_read));
		HANDLE_READER(READER_READ_MANY, reader_read_many,
			      reader_read_many(reader, pending, request->reader_read_many));
		HANDLE_READER(READER_MEMORY, reader_memory,
			      reader_memory(reader, pending, request->reader_memory));
		HANDLE_READER(READER_CLOSE, reader_close, close_reader(reader, pending));
	default:
		return false;
	}
}

static void take_snapshot(struct pending *pending, const Tierd__Wire__SnapshotTake *take)
{
	const struct member *member = take->job ? find_member(pending, take->job, false) : NULL;

	if (member || !take->job)
		snapshot_take(pending, member, take, &client_of(pending)->requesters);
}

static void delete_snapshot(struct pending *pending, const Tierd__Wire__SnapshotDelete *delete)
{
	struct queue *requesters = &client_of(pending)->requesters;

	if (delete->is_lost)
		roll_back_delete_lost(pending, delete, requesters);
	else
		snapshot_delete(pending, delete, requesters);
}

static bool handle_snapshot_request(struct pending *pending, const Tierd__Wire__Request *request)
{
	struct queue *requesters = &client_of(pending)->requesters;

	switch (request->body_case) {
		HANDLE(SNAPSHOT_TAKE, take_snapshot(pending, request->snapshot_take));
		HANDLE(SNAPSHOT_DELETE, delete_snapshot(pending, request->snapshot_delete));
		HANDLE(SNAPSHOT_DIFF, snapshot_diff(pending, request->snapshot_diff, requesters));
		HANDLE(SNAPSHOTS_READ, snapshot_list(pending, request->snapshots_read, requesters));
		HANDLE(JOB_ROLL_BACK, roll_back_job(pending, request->job_roll_back, requesters));
		HANDLE(JOB_RETAIN, retain_snapshots(pending, request->job_retain, requesters));
		HANDLE(JOB_FORK, fork_job(pending, request->job_fork, requesters));
		HANDLE(JOB_SHARE, share_job(pending, request->job_share, requesters));
		HANDLE(JOB_RESERVE, reserve_snapshots(pending, request->job_reserve, requesters));
	default:
		return false;
	}
}

#define HANDLE_JOB(NAME, field, call)                                                                        \
	case TIERD__WIRE__REQUEST__BODY_##NAME:                                                              \
		if (bind_member(pending, request, request->field->job))                                      \
			call;                                                                                \
		return true

static bool handle_job_request(struct pending *pending, const Tierd__Wire__Request *request)
{
	switch (request->body_case) {
		HANDLE_JOB(UNIT_DEFINE, unit_define, job_define(pending, request->unit_define));
		HANDLE_JOB(JOB_READY, job_ready, job_ready(pending, request->job_ready->timeout_ms));
		HANDLE_JOB(JOB_LEAVE, job_leave, leave_job(pending, request->job_leave));
		HANDLE_JOB(GATHER, gather, gather_start(pending, request->gather));
		HANDLE_JOB(GATHER_CANCEL, gather_cancel, gather_cancel(pending, request->gather_cancel));
		HANDLE_JOB(GATHER_AWAIT, gather_await, gather_await(pending, request->gather_await));
		HANDLE_JOB(GPU_ATTACH, gpu_attach, gpu_attach(pending, request->gpu_attach));
		HANDLE_JOB(GPU_GATHER, gpu_gather, gpu_gather(pending, request->gpu_gather));
		HANDLE_JOB(GPU_GRADIENTS, gpu_gradients, gpu_gradients(pending, request->gpu_gradients));
		HANDLE_JOB(PREFETCH, prefetch, prefetch_hint(pending, request->prefetch));
		HANDLE_JOB(PHASE, phase, prefetch_enter_phase(pending, request->phase));
		HANDLE_JOB(BUFFER_WAIT, buffer_wait, gradient_wait(pending, request->buffer_wait));
		HANDLE_JOB(PUSH, push, gradient_push(pending, request->push));
		HANDLE_JOB(STEP_BEGIN, step_begin, step_begin(pending, request->step_begin));
		HANDLE_JOB(STEP, step, step_close(pending, request->step));
		HANDLE_JOB(BLOB_WRITE, blob_write, blob_write(pending, request->blob_write));
		HANDLE_JOB(BLOB_READ, blob_read, blob_read(pending, request->blob_read));
		HANDLE_JOB(STEP_HURRY, step_hurry, durable_hurry_step(pending, request->step_hurry));
		HANDLE_JOB(STEP_FINISH, step_finish, reduced_finish(pending, request->step_finish));
		HANDLE_JOB(WRITE_BEGIN, write_begin, writing_enter(pending, request->write_begin));
		HANDLE_JOB(WRITE_END, write_end, writing_leave(pending, request->write_end));
		HANDLE_JOB(GROUPS_SET, groups_set, groups_set(pending, request->groups_set));
		HANDLE_JOB(GROUPS_GET, groups_get, groups_get(pending, request->groups_get));
		HANDLE_JOB(TENSOR_WRITE, tensor_write, tensor_write(pending, request->tensor_write));
		HANDLE_JOB(TENSOR_READ, tensor_read, tensor_read(pending, request->tensor_read));
		HANDLE_JOB(TENSOR_READ_MANY, tensor_read_many,
			   batch_read(pending, request->tensor_read_many));
		HANDLE_JOB(STATISTICS_READ, statistics_read, report_statistics(pending));
	default:
		return false;
	}
}

void request_handle(struct pending *pending, const Tierd__Wire__Request *request)
{
	if (!handle_node_request(pending, request) && !handle_reader_request(pending, request) &&
	    !handle_snapshot_request(pending, request) && !handle_job_request(pending, request))
		pending_error(pending, -EOPNOTSUPP,
			      "tierd %s does not know this request; the client may be newer", TIERD_VERSION);
}

bool request_holds_nothing(const Tierd__Wire__Request *request)
{
	switch (request->body_case) {
	case TIERD__WIRE__REQUEST__BODY_PING:
	case TIERD__WIRE__REQUEST__BODY_NODE_READ:
	case TIERD__WIRE__REQUEST__BODY_JOBS_READ:
	case TIERD__WIRE__REQUEST__BODY_UNITS_READ:
	case TIERD__WIRE__REQUEST__BODY_TENSORS_READ:
	case TIERD__WIRE__REQUEST__BODY_STATISTICS_MAP:
	case TIERD__WIRE__REQUEST__BODY_LEASES_READ:
	case TIERD__WIRE__REQUEST__BODY_BLOBS_READ:
	case TIERD__WIRE__REQUEST__BODY_JOB_DROP:
	case TIERD__WIRE__REQUEST__BODY_JOB_EVICT:
	case TIERD__WIRE__REQUEST__BODY_JOB_RELEASE:
	case TIERD__WIRE__REQUEST__BODY_NODE_DRAIN:
	case TIERD__WIRE__REQUEST__BODY_SCRUB:
		return true;
	default:
		return false;
	}
}

bool request_may_wait(const Tierd__Wire__Request *request)
{
	switch (request->body_case) {
	case TIERD__WIRE__REQUEST__BODY_GATHER:
	case TIERD__WIRE__REQUEST__BODY_GPU_ATTACH:
	case TIERD__WIRE__REQUEST__BODY_GPU_GATHER:
	case TIERD__WIRE__REQUEST__BODY_GPU_GRADIENTS:
	case TIERD__WIRE__REQUEST__BODY_BUFFER_WAIT:
	case TIERD__WIRE__REQUEST__BODY_SNAPSHOT_TAKE:
	case TIERD__WIRE__REQUEST__BODY_SNAPSHOT_DELETE:
	case TIERD__WIRE__REQUEST__BODY_SNAPSHOT_DIFF:
	case TIERD__WIRE__REQUEST__BODY_SNAPSHOTS_READ:
	case TIERD__WIRE__REQUEST__BODY_JOB_ROLL_BACK:
	case TIERD__WIRE__REQUEST__BODY_JOB_RESERVE:
	case TIERD__WIRE__REQUEST__BODY_JOB_RETAIN:
	case TIERD__WIRE__REQUEST__BODY_JOB_FORK:
	case TIERD__WIRE__REQUEST__BODY_JOB_SHARE:
		return true;
	case TIERD__WIRE__REQUEST__BODY_PUSH:
		return !request->push->is_silent;
	default:
		return false;
	}
}
