#include "client/library/job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "client/library/left.h"
#include "client/library/reconnect.h"
#include "client/library/structure.h"
#include "client/library/ticket.h"
#include "common/cleanup.h"
#include "common/clock.h"

/* The event follows the word in the directory at once; only a daemon that hangs needs as long as this. */
#define EVENT_DELAY_NS UINT64_C(1000000000)
#define COMING_BACK_NS UINT64_C(10000000000)
#define OPENING_PAUSE_NS UINT64_C(10000000)

/* ---- What a call needs ---- */

void job_poison(struct tierd_job *job)
{
	if (job->attachment)
		job->attachment->live_epoch = ATTACHMENT_NO_EPOCH;
}

void job_epoch_ended(struct tierd_job *job, const Tierd__Wire__Event__EpochEnded *event)
{
	if (event->may_return)
		job_send_away(job);
	/* One of which this rank was not a part, or that a new ready has overtaken. */
	if (job->ready_units == 0 || (int32_t)(event->epoch - job->epoch) < 0)
		return;
	job->is_stale = true;
	job_poison(job);
	snprintf(job->stale_text, sizeof(job->stale_text),
		 "epoch %u of job \"%s\" has ended: %s; call tierd_job_ready", event->epoch, job->name,
		 event->reason && *event->reason->message ? event->reason->message : "tierd gave no reason");
	ticket_settle_silent(job, job->node->last_request);
}

bool job_is_attached(const struct tierd_job *job)
{
	return job->attachment && job->attachment->connection == job->node->connections;
}

/* The directory may say before the socket does that the epoch has ended. */
static bool awaits_end(const struct tierd_job *job)
{
	return !job->is_stale && job_is_attached(job) && job->attachment->directory->epoch != job->epoch;
}

static bool knows_end(const void *argument)
{
	return !awaits_end(argument);
}

/* JOB_AGAIN: what ended was the connection, and another thread has opened the next one. */
static int check_epoch(struct tierd_job *job)
{
	bool had_to_wait = awaits_end(job);
	int r = 0;

	if (had_to_wait)
		r = connection_wait(job->node, knows_end, job, clock_now_ns() + EVENT_DELAY_NS);
	if (r == -ETIMEDOUT)
		return message_fail(-ESTALE, "epoch %u of job \"%s\" has ended; call tierd_job_ready",
				    job->epoch, job->name);
	if (r < 0)
		return r;
	if (job->is_stale)
		return message_fail_text(-ESTALE, job->stale_text);
	return had_to_wait ? JOB_AGAIN : 0;
}

static int check_once(struct tierd_job *job, enum job_need need)
{
	int r = reconnect(job->node);

	if (r == 0 && job->refusal < 0)
		r = message_fail_text(job->refusal, job->stale_text);
	if (r == 0 && need == JOB_READY)
		r = job_rejoin(job);
	if (r == 0 && need >= JOB_LIVE)
		r = check_epoch(job);
	if (r == 0 && need >= JOB_STATE && job->ready_units == 0)
		r = message_fail(-EINVAL, "job \"%s\" is not ready; call tierd_job_ready first", job->name);
	return r;
}

int job_check(struct tierd_job *job, enum job_need need)
{
	return JOB_REPEAT(check_once(job, need));
}

/* A daemon that hangs up at this very request, again and again, is not asked for ever. */
#define MAX_INTERRUPTIONS 32

static bool can_repeat(struct tierd_job *job, int r)
{
	const struct tierd_node *node = job->node;

	if (r != -ECONNRESET || node->reconnect_ms == 0 || (node->error && !node->is_lost))
		return false;
	return ++job->interruptions <= MAX_INTERRUPTIONS;
}

int job_enter(struct tierd_job *job, enum job_need need)
{
	int r = left_lock_node(job);

	if (r < 0)
		return r;
	/* Better before than in the middle of the call. */
	if (job->node->reconnect_ms > 0)
		connection_look(job->node);
	do
		r = job_check(job, need);
	while (can_repeat(job, r));
	if (r < 0)
		connection_exit(job->node);
	return r;
}

void job_exit(struct tierd_job *job)
{
	connection_exit(job->node);
}

int job_finish(struct tierd_job *job, int r)
{
	/* Where it stands now is worth knowing. */
	if (r == -ESTALE && job->node->is_lost) {
		int checked = job_check(job, JOB_LIVE);

		r = checked < 0 ? checked : r;
	}
	if (r != -ECONNRESET)
		job->interruptions = 0;
	else if (can_repeat(job, r))
		r = JOB_AGAIN;
	job_exit(job);
	return r;
}

int job_check_unit(const struct tierd_job *job, uint32_t unit)
{
	if (unit < job->unit_count)
		return 0;
	return message_fail(-EINVAL, "job \"%s\" has no unit %u: it has %u", job->name, unit,
			    job->unit_count);
}

const char *job_unit_name(const struct tierd_job *job, uint32_t unit)
{
	return unit < job->unit_count ? job->units[unit]->name : "?";
}

/* ---- Open ---- */

/* Room for an element is what it takes; less than a page makes no sense. */
#define WINDOW_BYTES_MINIMUM 4096

static void post_leave(struct tierd_node *node, uint32_t number)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobLeave leave = TIERD__WIRE__JOB_LEAVE__INIT;

	leave.job = number;
	leave.at_once = true;
	request.body_case = TIERD__WIRE__REQUEST__BODY_JOB_LEAVE;
	request.job_leave = &leave;
	connection_post(node, connection_number(node), &request);
}

static void open_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	if (answer->status < 0) {
		ticket_complete(ticket, TIERD_DONE, answer->status, answer->text);
		return;
	}
	if (answer->reply->body_case != TIERD__WIRE__REPLY__BODY_JOB_OPEN) {
		ticket_violation(ticket, "another reply");
		return;
	}
	/* Nobody waits any more: the membership must not stay behind. */
	if (ticket->is_orphan) {
		struct tierd_node *node = ticket->node;

		ticket_complete(ticket, TIERD_DONE, 0, NULL);
		post_leave(node, answer->reply->job_open->job);
		return;
	}
	ticket->open.reply = *answer->reply->job_open;
	ticket->open.fd = fcntl(answer->fds[0], F_DUPFD_CLOEXEC, 0);
	ticket_complete(ticket, TIERD_DONE, ticket->open.fd < 0 ? -errno : 0, NULL);
}

static void open_dispose(struct tierd_ticket *ticket)
{
	fd_close(ticket->open.fd);
}

static const struct ticket_kind open_kind = { .name = "tierd_job_open",
					      .replies = 1,
					      .answer = open_answer,
					      .dispose = open_dispose,
					      .is_jobless = true };

struct tierd_job *job_free(struct tierd_job *job)
{
	if (!job)
		return NULL;
	/* A child has no mapping there, but may have put something else. */
	bool is_child = job->generation != connection_generation;

	attachment_free(job->attachment, is_child);
	if (!is_child)
		mapping_free(&job->window_mapping);
	fd_close(job->doorbell_fd);
	free(job->hot);
	for (uint32_t i = 0; i < job->unit_count; i++)
		unit_free(job->units[i]);
	free(job->units);
	free(job->opening.bytes);
	free(job);
	return NULL;
}
DEFINE_FREEP(struct tierd_job *, job_free)

static int job_new(struct tierd_node *node, const struct tierd_job_options *options,
		   const struct wire_groups *groups, struct tierd_job **ret_job)
{
	struct tierd_job *job = calloc(1, sizeof(*job));

	if (!job)
		return message_fail_memory();
	job->generation = node->generation;
	job->doorbell_fd = -1;
	job->node = node;
	queue_init(&job->link);
	memcpy(job->name, options->name, strlen(options->name) + 1);
	job->rank = options->rank;
	job->world_size = options->world_size;
	job->stage = options->stage;
	job->is_by_owner = options->optimizer == TIERD_NONE;
	job->group_count = options->group_count;
	for (uint32_t i = 0; i < options->group_count; i++)
		job->moments[i] = groups->values[i].moments;
	*ret_job = job;
	return 0;
}

static int adopt(struct tierd_job *job, struct tierd_ticket *ticket)
{
	const Tierd__Wire__JobOpenReply *reply = &ticket->open.reply;
	int r = -EPROTO;

	mapping_free(&job->window_mapping);
	if (reply->window_bytes >= WINDOW_BYTES_MINIMUM)
		r = mapping_new(ticket->open.fd, reply->window_bytes, PROT_READ | PROT_WRITE,
				&job->window_mapping);
	if (r < 0) {
		post_leave(job->node, reply->job);
		return message_fail(r, "mapping the exchange window of job \"%s\": %s", job->name,
				    strerror(-r));
	}
	job->number = reply->job;
	job->state = (struct tierd_job_state){ reply->status, reply->epoch, reply->step, reply->loss_scale };
	job->epoch = reply->epoch;
	job->incarnation = job->node->incarnation;
	return 0;
}

int job_open_call(struct tierd_job *job, const Tierd__Wire__Request *request, uint64_t deadline)
{
	struct tierd_ticket *ticket = NULL;
	int r = ticket_new(job->node, NULL, &open_kind, &ticket);

	if (r < 0)
		return r;
	ticket->fd_count = 1;
	ticket->open.fd = -1;
	r = ticket_send(ticket, request);
	if (r < 0)
		return r;
	r = ticket_await(ticket, TIERD_DONE, deadline);
	if (r == 0)
		r = adopt(job, ticket);
	ticket_abandon(ticket);
	return r;
}

static int open_first(struct tierd_job *job, const Tierd__Wire__Request *request)
{
	struct tierd_node *node = job->node;
	int r = connection_enter(node);

	if (r < 0)
		return r;
	if (node->reconnect_ms > 0)
		connection_look(node);
	r = reconnect(node);
	if (r == 0)
		r = job_open_call(job, request, connection_deadline(node, -1));
	/* What was opened may have gone with the connection, in the same breath. */
	if (r == 0)
		r = connection_check(node);
	if (r == 0) {
		job->awaited = job->state.step;
		queue_push(&node->jobs, &job->link);
	}
	if (can_repeat(job, r)) {
		/* It may have been opened, by a connection of which tierd has not seen the end yet. */
		request->job_open->is_reconnect = true;
		r = JOB_AGAIN;
	}
	connection_exit(node);
	return r;
}

/* A job that broke comes back from its store, and one that gets another world size comes to rest: that takes
 * a moment. A daemon that drains is about to be started again. */
static uint64_t patience_ns(const struct tierd_job *job, int r)
{
	if (r == -EAGAIN)
		return COMING_BACK_NS;
	return r == -ESHUTDOWN ? (uint64_t)job->node->reconnect_ms * 1000000 : 0;
}

static int open_patiently(struct tierd_job *job, const Tierd__Wire__Request *request)
{
	uint64_t start = clock_now_ns();
	int r;

	for (;;) {
		r = JOB_REPEAT(open_first(job, request));
		if (clock_now_ns() - start >= patience_ns(job, r) || connection_is_interrupted(job->node))
			return r;
		clock_sleep_ns(OPENING_PAUSE_NS);
	}
}

int tierd_job_open(struct tierd_node *node, const struct tierd_job_options *options,
		   struct tierd_job **ret_job)
{
	static const struct tierd_group default_group = TIERD_GROUP_INIT;
	struct tierd_job_options own = TIERD_JOB_OPTIONS_INIT;
	_cleanup_(job_freep) struct tierd_job *job = NULL;
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobOpen open = TIERD__WIRE__JOB_OPEN__INIT;
	_cleanup_(wire_groups_free) struct wire_groups groups = { NULL, NULL };
	int r = CHECK_GIVEN(node, options, ret_job);

	if (r < 0)
		return r;
	r = structure_take(&own, sizeof(own), sizeof(own), options);
	if (r < 0)
		return message_fail(r,
				    "the job options have a wrong size; start from TIERD_JOB_OPTIONS_INIT");
	r = job_options_check(&own);
	if (r < 0)
		return r;
	if (own.group_count == 0) {
		own.group_count = 1;
		own.groups = &default_group;
	}
	r = job_encode_groups(own.groups, own.group_count, &groups);
	if (r == 0)
		r = job_new(node, &own, &groups, &job);
	if (r < 0)
		return r;
	job_options_encode(&own, &groups, &open);
	request.body_case = TIERD__WIRE__REQUEST__BODY_JOB_OPEN;
	request.job_open = &open;
	r = reopen_remember(node, &open.base, &job->opening);
	if (r == 0)
		r = open_patiently(job, &request);
	if (r == 0)
		*ret_job = TAKE_PTR(job);
	return r;
}

int tierd_job_state(struct tierd_job *job, struct tierd_job_state *ret_state)
{
	int r = CHECK_GIVEN(job, ret_state);

	if (r == 0)
		r = job_enter(job, JOB_LIVE);
	if (r < 0)
		return r;
	*ret_state = job->state;
	job_exit(job);
	return 0;
}

/* ---- Leave ---- */

void job_drop(struct tierd_job *job)
{
	/* In a child too: tierd_disconnect frees the jobs that are left. */
	queue_remove(&job->link);
	if (job->generation != connection_generation) {
		/* It cannot see how many leases there were, and whoever has one may still name the handle. */
		job->has_left = true;
		if (!job->attachment)
			job_free(job);
		return;
	}
	left_keep(job);
	gathers_leave(job);
	writing_forget(job);
	ticket_leave_job(job->node, job);
	if (!left_begin(job))
		job_free(job);
}

/* With the connection, tierd has ended the membership. */
static bool has_been_left(const struct tierd_job *job)
{
	const struct tierd_node *node = job->node;

	return node->is_lost || node->is_reconnecting || (job->must_reopen && !node->error) ||
	       job->refusal < 0;
}

static int leave(struct tierd_job *job, bool at_once)
{
	struct tierd_node *node = job->node;
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobLeave body = TIERD__WIRE__JOB_LEAVE__INIT;
	int r;

	if (job->has_left)
		return left_fail(job);
	r = connection_enter(node);
	if (r < 0) {
		job_drop(job);
		return r;
	}
	left_keep(job);
	if (node->reconnect_ms > 0)
		connection_look(node);
	body.job = job->number;
	body.at_once = at_once;
	request.body_case = TIERD__WIRE__REQUEST__BODY_JOB_LEAVE;
	request.job_leave = &body;
	if (!has_been_left(job))
		r = ticket_call(job, &request);
	/* Also in the middle of the call. */
	if (has_been_left(job))
		r = job->lost_work && !at_once ? message_fail_text(-ESTALE, job->stale_text) : 0;
	reconnect_settle(node);
	job_drop(job);
	connection_exit(node);
	return r;
}

int tierd_job_close(struct tierd_job *job)
{
	int r = CHECK_GIVEN(job);

	return r < 0 ? r : leave(job, false);
}

int tierd_job_detach(struct tierd_job *job)
{
	int r = CHECK_GIVEN(job);

	return r < 0 ? r : leave(job, true);
}
