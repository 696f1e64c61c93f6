#include "daemon/client.h"

#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "daemon/asker.h"
#include "daemon/blob_requests.h"
#include "daemon/drain.h"
#include "daemon/drop.h"
#include "daemon/durable.h"
#include "daemon/evict.h"
#include "daemon/fork.h"
#include "daemon/job.h"
#include "daemon/leases.h"
#include "daemon/reader.h"
#include "daemon/report.h"
#include "daemon/reserve.h"
#include "daemon/retain.h"
#include "daemon/roll_back.h"
#include "daemon/snapshot.h"
#include "daemon/snapshot_list.h"
#include "daemon/scrub.h"
#include "daemon/stall.h"
#include "daemon/statistics.h"
#include "daemon/verify.h"
#include "daemon/watch.h"

#define CLIENT_MAX_MEMBERS 64
/* For what is not a gather or a push: a client that has as many of those waiting as it may can still take
 * them back, close its step, or leave. Each membership can wait for its ready or two steps, and for a tensor;
 * each reader for one answer; the rest is answered at once. */
#define SPARE_PENDINGS (3 * CLIENT_MAX_MEMBERS + READER_MAX_PER_CLIENT + 16)

struct client {
	struct node *node;
	struct port *port;
	bool has_hung_up;
	struct queue members;
	struct queue readers, verifies;
	struct queue askers;
	uint32_t next_handle;
	struct watch watch;
	struct queue free;
	unsigned outstanding, maximum_requests;
	struct pending pendings[];
};

int client_new(struct node *node, struct port *port, unsigned maximum_requests, struct client **ret_client)
{
	unsigned pendings = maximum_requests + SPARE_PENDINGS;
	struct client *client = calloc(1, sizeof(*client) + pendings * sizeof(client->pendings[0]));

	if (!client)
		return -ENOMEM;
	client->node = node;
	client->port = port;
	client->maximum_requests = maximum_requests;
	queue_init(&client->members);
	queue_init(&client->readers);
	queue_init(&client->verifies);
	queue_init(&client->askers);
	queue_init(&client->free);
	watch_init(&client->watch, port);
	for (unsigned i = 0; i < pendings; i++)
		queue_push(&client->free, &client->pendings[i].link);
	node->clients++;
	*ret_client = client;
	return 0;
}

/* ---- Pendings ---- */

static struct pending *pending_new(struct client *client, uint32_t number)
{
	struct queue *link = queue_pop(&client->free);

	if (!link)
		return NULL;
	struct pending *pending = queue_entry(link, struct pending, link);

	*pending = (struct pending){ .client = client, .number = number };
	queue_init(&pending->link);
	queue_init(&pending->member_link);
	queue_init(&pending->waiter.link);
	client->outstanding++;
	return pending;
}

void pending_drop(struct pending *pending)
{
	struct client *client = pending->client;

	if (pending->timer)
		event_free(pending->timer);
	pending->timer = NULL;
	stall_end(pending);
	queue_remove(&pending->waiter.link);
	queue_remove(&pending->member_link);
	queue_remove(&pending->link);
	queue_push(&client->free, &pending->link);
	client->outstanding--;
}

void pending_reply_fds(struct pending *pending, Tierd__Wire__Reply *body, const int *fds, unsigned fd_count)
{
	if (!pending->client->has_hung_up)
		port_reply_fds(pending->client->port, pending->number, body, fds, fd_count);
	pending_drop(pending);
}

void pending_reply(struct pending *pending, Tierd__Wire__Reply *body)
{
	pending_reply_fds(pending, body, NULL, 0);
}

void pending_error(struct pending *pending, int r, const char *format, ...)
{
	char message[1024];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	if (!pending->client->has_hung_up)
		port_reply_error(pending->client->port, pending->number, r, "%s", message);
	pending_drop(pending);
}

struct port *pending_port(const struct pending *pending)
{
	return pending->client->port;
}

struct node *pending_node(const struct pending *pending)
{
	return pending->client->node;
}

/* ---- Requests ---- */

static struct member *find_member(struct client *client, uint32_t handle)
{
	QUEUE_FOREACH (link, &client->members) {
		struct member *member = queue_entry(link, struct member, client_link);

		if (member->handle == handle && !member->has_left)
			return member;
	}
	return NULL;
}

/* It may have been sent before the peer could know that it has no part in the job any more. After -ESTALE it
 * gets ready again: that has to end otherwise, or it would ask for ever. */
static void refuse_unknown(struct pending *pending, uint32_t handle, bool is_ready)
{
	const char *reason = port_find_farewell(pending->client->port, handle);

	if (reason && is_ready)
		pending_error(pending, -ENOENT,
			      "%s, and this rank has no part in it any more; it may open the job again",
			      reason);
	else if (reason)
		pending_error(pending, -ESTALE, "%s", reason);
	else
		pending_error(pending, -EINVAL, "this connection has no open job %u", handle);
}

/* Binds the request to the job that it names. */
static bool bind_member(struct pending *pending, const Tierd__Wire__Request *request, uint32_t handle)
{
	struct member *member = find_member(pending->client, handle);

	if (!member) {
		refuse_unknown(pending, handle, request->body_case == TIERD__WIRE__REQUEST__BODY_JOB_READY);
		return false;
	}
	pending->member = member;
	member->heard_ns = clock_now_ns();
	queue_push(&member->pendings, &pending->member_link);
	return true;
}

static struct reader *find_reader(struct pending *pending, uint32_t handle)
{
	struct reader *reader = reader_of(&pending->client->readers, handle);

	if (!reader)
		pending_error(pending, -EINVAL, "this connection has no reader %u", handle);
	return reader;
}

static void end_membership(struct pending *pending, bool at_once)
{
	struct member *member = pending->member;
	char reason[128];

	member->leaving = NULL;
	queue_remove(&pending->member_link);
	pending->member = NULL;
	/* Whatever its lease page says: it has told us that it reads no more. */
	queue_remove(&member->client_link);
	member->client = NULL;
	snprintf(reason, sizeof(reason), "rank %u (pid %d) %s the job", member->rank, (int)member->pid,
		 at_once ? "detached from" : "closed");
	job_leave(member, !at_once, reason);
}

static void leave_now(struct pending *pending, bool at_once)
{
	end_membership(pending, at_once);
	pending_reply(pending, NULL);
}

/* If the job has broken instead, it has gone, too, and is told what is lost. */
static void on_steps_over(evutil_socket_t fd, short events, void *argument)
{
	struct pending *pending = argument;
	const struct job *job = pending->member->job;
	bool is_lost = job->phase == JOB_BROKEN;
	char loss[JOB_LOSS_TEXT] = "";

	if (is_lost)
		job_describe_loss(job, loss, sizeof(loss));
	end_membership(pending, false);
	if (is_lost)
		pending_error(pending, -EIO, "%s", loss);
	else
		pending_reply(pending, NULL);
}

static void hurry_steps(struct member *member)
{
	if (member->step)
		member->step->is_hurried = true;
	if (member->next_step)
		member->next_step->is_hurried = true;
	durable_hurry(member->job);
}

/* In good order it leaves when its steps have been answered, and are durable; from a turn of the loop of its
 * own, since whoever answers them still looks at the members. */
static void leave(struct pending *pending, const Tierd__Wire__JobLeave *leave)
{
	struct member *member = pending->member;

	/* A step that it has not finished does not end any more. */
	if (leave->at_once || !member_has_steps(member) || reduced_is_owed(member)) {
		leave_now(pending, leave->at_once);
	} else if (member->leaving) {
		pending_error(pending, -EBUSY, "this rank is closing the job already");
	} else {
		pending->timer = event_new(pending->client->node->loop, -1, 0, on_steps_over, pending);
		if (!pending->timer)
			pending_error(pending, -ENOMEM, "out of memory");
		else
			member->leaving = pending;
		hurry_steps(member);
	}
}

static void cancel(struct pending *pending, const Tierd__Wire__GatherCancel *cancel)
{
	QUEUE_FOREACH (link, &pending->member->pendings) {
		struct pending *other = queue_entry(link, struct pending, member_link);

		if (other->number != cancel->request || !other->waiter.is_gather)
			continue;
		pending_error(other, -ECANCELED, "the gather was cancelled");
		break;
	}
	pending_reply(pending, NULL);
}

static void await(struct pending *pending, const Tierd__Wire__GatherAwait *await)
{
	struct member *member = pending->member;

	QUEUE_FOREACH (link, &member->pendings) {
		struct pending *other = queue_entry(link, struct pending, member_link);

		if (other->number != await->request || !other->waiter.is_gather)
			continue;
		if (gather_refuse_owed(other))
			break;
		other->waiter.blocked = member;
		residency_note_stall(member->job, member->job->catalog.units[other->unit].pack,
				     &other->waiter);
	}
	pending_reply(pending, NULL);
	if (member->job->is_live)
		residency_check_deadlock(member->job);
}

static void set_phase(struct pending *pending, const Tierd__Wire__Phase *phase)
{
	char message[640];
	uint32_t longest;
	int r;

	if (!job_check_live(pending, pending->member->epoch))
		return;
	longest = pending->member->job->catalog.name_maximum;
	if (phase->name[0] == '\0' || strlen(phase->name) > longest) {
		pending_error(pending, -EINVAL, "a phase's name has 1 to %u bytes (name_length)", longest);
		return;
	}
	r = member_set_phase(pending->member, phase->name, message, sizeof(message));
	if (r < 0) {
		pending_error(pending, r, "phase \"%s\": %s", phase->name, message);
		return;
	}
	prefetch_run(pending->member->job);
	pending_reply(pending, NULL);
}

static void read_statistics(struct pending *pending)
{
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;
	Tierd__Wire__StatisticsReply statistics = TIERD__WIRE__STATISTICS_REPLY__INIT;

	account_statistics(pending->member->job, pending->member, &statistics);
	reply.body_case = TIERD__WIRE__REPLY__BODY_STATISTICS;
	reply.statistics = &statistics;
	pending_reply(pending, &reply);
}

static void open_job(struct pending *pending, const Tierd__Wire__JobOpen *open)
{
	struct client *client = pending->client;
	unsigned count = 0;

	QUEUE_FOREACH (link, &client->members)
		count++;
	if (count >= CLIENT_MAX_MEMBERS)
		pending_error(pending, -EBUSY,
			      "this connection has %d open jobs; close one, or use another connection",
			      CLIENT_MAX_MEMBERS);
	else
		job_open(pending, open, &client->members, ++client->next_handle);
}

/* Requests about the node, which need no job. False: it is none of them. */
static bool handle_node_request(struct pending *pending, const Tierd__Wire__Request *request)
{
	switch (request->body_case) {
	case TIERD__WIRE__REQUEST__BODY_PING:
		pending_reply(pending, NULL);
		return true;
	case TIERD__WIRE__REQUEST__BODY_NODE_READ:
		report_node(pending, pending->client->node);
		return true;
	case TIERD__WIRE__REQUEST__BODY_JOBS_READ:
		report_jobs(pending, pending->client->node);
		return true;
	case TIERD__WIRE__REQUEST__BODY_UNITS_READ:
		report_units(pending, request->units_read);
		return true;
	case TIERD__WIRE__REQUEST__BODY_STATISTICS_MAP:
		statistics_map(pending, request->statistics_map);
		return true;
	case TIERD__WIRE__REQUEST__BODY_JOB_DROP:
		drop_job(pending, request->job_drop);
		return true;
	case TIERD__WIRE__REQUEST__BODY_LEASES_READ:
		leases_report(pending, request->leases_read);
		return true;
	case TIERD__WIRE__REQUEST__BODY_JOB_EVICT:
		evict_units(pending, request->job_evict);
		return true;
	case TIERD__WIRE__REQUEST__BODY_NODE_DRAIN:
		drain_node(pending, request->node_drain);
		return true;
	case TIERD__WIRE__REQUEST__BODY_VERIFY:
		verify_begin(pending, request->verify, &pending->client->verifies);
		return true;
	case TIERD__WIRE__REQUEST__BODY_SCRUB:
		scrub_request(pending, request->scrub);
		return true;
	case TIERD__WIRE__REQUEST__BODY_BLOBS_READ:
		blob_list(pending, request->blobs_read);
		return true;
	case TIERD__WIRE__REQUEST__BODY_WATCH:
		watch_begin(&pending->client->watch, pending, request->watch);
		return true;
	case TIERD__WIRE__REQUEST__BODY_JOB_OPEN:
		open_job(pending, request->job_open);
		return true;
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

/* False: it is none of them. */
static bool handle_reader_request(struct pending *pending, const Tierd__Wire__Request *request)
{
	struct client *client = pending->client;
	struct reader *reader;

	switch (request->body_case) {
	case TIERD__WIRE__REQUEST__BODY_READER_OPEN:
		reader_open(pending, request->reader_open, &client->readers, ++client->next_handle);
		return true;
		HANDLE_READER(READER_UNITS, reader_units,
			      reader_units(reader, pending, request->reader_units));
		HANDLE_READER(READER_REFRESH, reader_refresh,
			      reader_refresh(reader, pending, request->reader_refresh));
		HANDLE_READER(READER_READ, reader_read, reader_read(reader, pending, request->reader_read));
		HANDLE_READER(READER_CLOSE, reader_close, close_reader(reader, pending));
	default:
		return false;
	}
}

static void take_snapshot(struct pending *pending, const Tierd__Wire__SnapshotTake *take)
{
	struct client *client = pending->client;
	const struct member *member = take->job ? find_member(client, take->job) : NULL;

	if (take->job && !member)
		refuse_unknown(pending, take->job, false);
	else
		snapshot_take(pending, member, take, &client->askers);
}

/* False: it is none of them. */
static bool handle_snapshot_request(struct pending *pending, const Tierd__Wire__Request *request)
{
	struct client *client = pending->client;

	switch (request->body_case) {
	case TIERD__WIRE__REQUEST__BODY_SNAPSHOT_TAKE:
		take_snapshot(pending, request->snapshot_take);
		return true;
	case TIERD__WIRE__REQUEST__BODY_SNAPSHOT_DELETE:
		if (request->snapshot_delete->is_lost)
			roll_back_delete_lost(pending, request->snapshot_delete, &client->askers);
		else
			snapshot_delete(pending, request->snapshot_delete, &client->askers);
		return true;
	case TIERD__WIRE__REQUEST__BODY_SNAPSHOT_DIFF:
		snapshot_diff(pending, request->snapshot_diff, &client->askers);
		return true;
	case TIERD__WIRE__REQUEST__BODY_SNAPSHOTS_READ:
		snapshot_list(pending, request->snapshots_read, &client->askers);
		return true;
	case TIERD__WIRE__REQUEST__BODY_JOB_ROLL_BACK:
		roll_back_job(pending, request->job_roll_back, &client->askers);
		return true;
	case TIERD__WIRE__REQUEST__BODY_JOB_RETAIN:
		retain_snapshots(pending, request->job_retain, &client->askers);
		return true;
	case TIERD__WIRE__REQUEST__BODY_JOB_FORK:
		fork_job(pending, request->job_fork, &client->askers);
		return true;
	case TIERD__WIRE__REQUEST__BODY_JOB_RESERVE:
		reserve_snapshots(pending, request->job_reserve, &client->askers);
		return true;
	default:
		return false;
	}
}

#define HANDLE(NAME, field, call)                                                                            \
	case TIERD__WIRE__REQUEST__BODY_##NAME:                                                              \
		if (bind_member(pending, request, request->field->job))                                      \
			call;                                                                                \
		break

static void handle_job_request(struct pending *pending, const Tierd__Wire__Request *request)
{
	switch (request->body_case) {
		HANDLE(UNIT_DEFINE, unit_define, job_define(pending, request->unit_define));
		HANDLE(JOB_READY, job_ready, job_ready(pending, request->job_ready->timeout_ms));
		HANDLE(JOB_LEAVE, job_leave, leave(pending, request->job_leave));
		HANDLE(GATHER, gather, gather_start(pending, request->gather));
		HANDLE(GATHER_CANCEL, gather_cancel, cancel(pending, request->gather_cancel));
		HANDLE(GATHER_AWAIT, gather_await, await(pending, request->gather_await));
		HANDLE(PREFETCH, prefetch, prefetch_hint(pending, request->prefetch));
		HANDLE(PHASE, phase, set_phase(pending, request->phase));
		HANDLE(BUFFER_WAIT, buffer_wait, gradient_wait(pending, request->buffer_wait));
		HANDLE(PUSH, push, gradient_push(pending, request->push));
		HANDLE(STEP_BEGIN, step_begin, step_begin(pending, request->step_begin));
		HANDLE(STEP, step, step_close(pending, request->step));
		HANDLE(BLOB_WRITE, blob_write, blob_write(pending, request->blob_write));
		HANDLE(BLOB_READ, blob_read, blob_read(pending, request->blob_read));
		HANDLE(STEP_HURRY, step_hurry, durable_hurry_step(pending, request->step_hurry));
		HANDLE(STEP_FINISH, step_finish, reduced_finish(pending, request->step_finish));
		HANDLE(TENSOR_WRITE, tensor_write, tensor_write(pending, request->tensor_write));
		HANDLE(TENSOR_READ, tensor_read, tensor_read(pending, request->tensor_read));
		HANDLE(STATISTICS_READ, statistics_read, read_statistics(pending));
	default:
		pending_error(pending, -EOPNOTSUPP,
			      "tierd %s does not know this request; the client may be newer", TIERD_VERSION);
	}
}

bool client_holds_nothing(const Tierd__Wire__Request *request)
{
	switch (request->body_case) {
	case TIERD__WIRE__REQUEST__BODY_PING:
	case TIERD__WIRE__REQUEST__BODY_NODE_READ:
	case TIERD__WIRE__REQUEST__BODY_JOBS_READ:
	case TIERD__WIRE__REQUEST__BODY_UNITS_READ:
	case TIERD__WIRE__REQUEST__BODY_STATISTICS_MAP:
	case TIERD__WIRE__REQUEST__BODY_LEASES_READ:
	case TIERD__WIRE__REQUEST__BODY_BLOBS_READ:
	case TIERD__WIRE__REQUEST__BODY_JOB_DROP:
	case TIERD__WIRE__REQUEST__BODY_JOB_EVICT:
	case TIERD__WIRE__REQUEST__BODY_NODE_DRAIN:
	case TIERD__WIRE__REQUEST__BODY_SCRUB:
		return true;
	default:
		return false;
	}
}

static bool may_wait_for_others(const Tierd__Wire__Request *request)
{
	switch (request->body_case) {
	case TIERD__WIRE__REQUEST__BODY_GATHER:
	case TIERD__WIRE__REQUEST__BODY_BUFFER_WAIT:
	case TIERD__WIRE__REQUEST__BODY_SNAPSHOT_TAKE:
	case TIERD__WIRE__REQUEST__BODY_SNAPSHOT_DELETE:
	case TIERD__WIRE__REQUEST__BODY_SNAPSHOT_DIFF:
	case TIERD__WIRE__REQUEST__BODY_SNAPSHOTS_READ:
	case TIERD__WIRE__REQUEST__BODY_JOB_ROLL_BACK:
	case TIERD__WIRE__REQUEST__BODY_JOB_RESERVE:
	case TIERD__WIRE__REQUEST__BODY_JOB_RETAIN:
		return true;
	case TIERD__WIRE__REQUEST__BODY_PUSH:
		return !request->push->is_silent;
	default:
		return false;
	}
}

/* Refusing is better than not reading on: what the client would say next may be what the others wait for. */
void client_request(struct client *client, uint32_t number, const Tierd__Wire__Request *request)
{
	bool has_room = client->outstanding < client->maximum_requests || !may_wait_for_others(request);
	struct pending *pending = has_room ? pending_new(client, number) : NULL;

	client->node->requests++;
	if (!pending) {
		port_reply_error(
			client->port, number, -EBUSY,
			"%u requests of this connection wait for their answers, and tierd takes no more; "
			"wait for some of them, or raise requests_per_connection",
			client->outstanding);
		return;
	}
	if (!handle_node_request(pending, request) && !handle_reader_request(pending, request) &&
	    !handle_snapshot_request(pending, request))
		handle_job_request(pending, request);
}

void client_catch_up(struct client *client)
{
	watch_catch_up(&client->watch);
}

/* ---- End ---- */

static struct member *first_present(struct client *client)
{
	QUEUE_FOREACH (link, &client->members) {
		struct member *member = queue_entry(link, struct member, client_link);

		if (!member->has_left)
			return member;
	}
	return NULL;
}

void client_hang_up(struct client *client, const char *reason)
{
	char text[160];

	if (client->has_hung_up)
		return;
	client->has_hung_up = true;
	watch_end(&client->watch);
	readers_close_all(&client->readers);
	verify_forget_all(&client->verifies);
	askers_forget(&client->askers);
	/* From the start each time: a leaving member can take others with it. */
	for (struct member *member = first_present(client); member; member = first_present(client)) {
		if (reason)
			snprintf(text, sizeof(text), "rank %u (pid %d) is lost: %s", member->rank,
				 (int)member->pid, reason);
		else
			snprintf(text, sizeof(text), "the daemon ends");
		job_leave(member, false, text);
	}
}

bool client_has_jobs(const struct client *client)
{
	return !queue_is_empty(&client->members);
}

bool client_has_epochs(const struct client *client)
{
	QUEUE_FOREACH (link, &client->members) {
		const struct member *member = queue_entry(link, struct member, client_link);

		if (!member->has_left && member->job->is_live)
			return true;
	}
	return false;
}

bool client_has_leases(const struct client *client)
{
	QUEUE_FOREACH (link, &client->members)
		if (member_has_leases(queue_entry(link, struct member, client_link)))
			return true;
	return false;
}

struct client *client_free(struct client *client)
{
	if (!client)
		return NULL;
	client_hang_up(client, "its session ended");
	for (struct queue *link = queue_pop(&client->members); link; link = queue_pop(&client->members)) {
		struct member *member = queue_entry(link, struct member, client_link);

		member->client = NULL;
		member_release(member);
	}
	client->node->clients--;
	free(client);
	return NULL;
}
