#include "client/library/joining/reopen.h"
#include "client/library/pages/buffers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/library/pages/window.h"
#include "common/clock.h"
#include "proto/vocabulary.h"

/* A daemon opens jobs and defines units at once, unless it hangs. */
#define ANSWER_NS UINT64_C(10000000000)
/* Between two attempts to open a job that is not there yet. */
#define NAP_NS UINT64_C(10000000)

int reopen_remember(const struct tierd_node *node, const ProtobufCMessage *message,
		    struct remembered *ret_message)
{
	size_t length = protobuf_c_message_get_packed_size(message);

	if (node->reconnect_ms == 0)
		return 0;
	ret_message->bytes = malloc(length + 1);
	if (!ret_message->bytes)
		return message_fail_memory();
	ret_message->length = protobuf_c_message_pack(message, ret_message->bytes);
	return 0;
}

/* ---- The loss ---- */

/* What this rank loses with the connection; NULL: nothing. */
static const char *find_lost_work(const struct tierd_job *job)
{
	if (job->ready_units == 0)
		return job->has_written ? "the values that it has written" : NULL;
	if (job->awaited != job->state.step)
		return "the answer to its last step";
	if (job->has_undecided)
		return "the part of the next step that it has handed in";
	return gradients_held(job, &(uint32_t){ 0 }) ? "the gradients in a buffer that it holds" : NULL;
}

void job_lose(struct tierd_job *job)
{
	ticket_lose_job(job);
	if (job->membership != MEMBER_LOST && !job->is_stale) {
		job->lost_work = find_lost_work(job);
		job->is_stale = job->lost_work != NULL;
		if (job->is_stale)
			snprintf(job->stale_text, sizeof(job->stale_text),
				 "job \"%s\": the connection to tierd was lost, and with it %s; call "
				 "tierd_job_ready",
				 job->name, job->lost_work);
	}
	job->membership = MEMBER_LOST;
	job->is_getting_ready = false;
	job->has_abandoned_ready = false;
	job_poison(job);
}

/* ---- Opening ---- */

/* A new connection may lead to a daemon that hangs, and is tried again; one that has sent a rank away runs.
 */
static uint64_t answer_deadline(const struct tierd_job *job, bool is_reconnect)
{
	return is_reconnect ? clock_now_ns() + ANSWER_NS : connection_deadline(job->node, -1);
}

static int send_opening(struct tierd_job *job, uint32_t mode, bool is_reconnect)
{
	Tierd__Wire__JobOpen *open =
		tierd__wire__job_open__unpack(NULL, job->opening.length, job->opening.bytes);
	int r;

	if (!open)
		return message_fail_memory();
	open->mode = open->mode == MODE_RESUME ? MODE_RESUME : mode;
	open->is_reconnect = is_reconnect;
	open->takeover = false;
	r = job_open_call(job, WIRE_REQUEST(JOB_OPEN, job_open, open), answer_deadline(job, is_reconnect));
	tierd__wire__job_open__free_unpacked(open, NULL);
	return r;
}

static int send_definition(struct tierd_job *job, const struct unit *unit, bool is_reconnect)
{
	Tierd__Wire__UnitDefine *define =
		tierd__wire__unit_define__unpack(NULL, unit->definition.length, unit->definition.bytes);
	int r;

	if (!define)
		return message_fail_memory();
	define->job = job->number;
	r = ticket_call_until(job, WIRE_REQUEST(UNIT_DEFINE, unit_define, define),
			      answer_deadline(job, is_reconnect));
	tierd__wire__unit_define__free_unpacked(define, NULL);
	return r;
}

static int open_and_define(struct tierd_job *job, uint32_t mode, bool is_reconnect)
{
	int r = send_opening(job, mode, is_reconnect);

	for (uint32_t unit = 0; r == 0 && unit < job->unit_count; unit++)
		r = send_definition(job, job->units[unit], is_reconnect);
	return r;
}

/* ---- The step at which the job stands ---- */

/* If the rank has written no values, a new job is like the one before: the initializers give the same values.
 */
static bool stands_where_rank_does(const struct tierd_job *job)
{
	if (job->state.status == JOB_RESUMED)
		return job->ready_units == 0 || job->state.step == job->awaited;
	return job->awaited == 0 && !job->has_written;
}

static void describe_loss(struct tierd_job *job, bool is_restarted)
{
	char work[96] = "";

	if (job->lost_work)
		snprintf(work, sizeof(work), is_restarted ? ", and has lost %s" : ", and with it %s",
			 job->lost_work);
	snprintf(job->stale_text, sizeof(job->stale_text),
		 "%s%s: job \"%s\" stands at step %lu%s, this rank was at step %lu; call tierd_job_ready",
		 is_restarted ? "tierd was restarted" : "the connection to tierd was lost", work, job->name,
		 job->state.step, job->state.status == JOB_RESUMED ? "" : " (it is new: its state is lost)",
		 (uint64_t)job->awaited);
}

static void judge(struct tierd_job *job, bool is_restarted)
{
	bool stands = stands_where_rank_does(job);

	/* A job whose epoch had ended before keeps its own stale_text. */
	if (job->lost_work || !(stands || job->is_stale)) {
		job->is_stale = true;
		describe_loss(job, is_restarted);
	}
	if (!job->is_stale && job->ready_units > 0)
		job->membership = MEMBER_REOPENED;
}

/* Errors after which opening is tried again: the connection was lost again, the daemon lacks memory or
 * drains, or the job is being restored. */
static bool is_of_the_moment(const struct tierd_node *node, int r)
{
	return node->error || r == -ESHUTDOWN || r == -ETIMEDOUT || r == -ENOMEM || r == -EAGAIN;
}

int job_reopen(struct tierd_job *job)
{
	uint64_t incarnation = job->incarnation;
	int r;

	/* is_reconnect: this membership replaces that of the lost connection. MODE_EITHER: the job is there,
	 * or it was lost and is created anew. Who is sent away meanwhile is told when it is opened once more
	 * that the job is not back yet. */
	do
		r = open_and_define(job, MODE_EITHER, true);
	while (r == -ESTALE);
	if (is_of_the_moment(job->node, r))
		return job->node->error ? connection_check(job->node) : r;
	job->membership = MEMBER;
	job->refusal = r;
	if (r == 0)
		judge(job, job->incarnation != incarnation);
	else
		snprintf(job->stale_text, sizeof(job->stale_text),
			 "the connection to tierd was lost, and job \"%s\" cannot be opened again: %.300s; "
			 "close it",
			 job->name, tierd_message());
	return 0;
}

/* ---- Sent away ---- */

/* This rank is no member of the job any more, and may open it again. */
static void send_away(struct tierd_job *job)
{
	/* Without reconnecting, the request that opened it was not kept. A job that is being opened again
	 * gets another membership anyway. */
	if (job->node->reconnect_ms == 0 || job->membership == MEMBER_LOST)
		return;
	job->membership = MEMBER_SENT_AWAY;
	/* The mappings stay until the next ready brings others. */
	if (job->attachment)
		job->attachment->connection = ATTACHMENT_NO_CONNECTION;
}

/* Epoch 0 ends for who was in none, because he has no part in the job any more. */
static bool has_lost_part(const Tierd__Wire__Event__EpochEnded *event)
{
	return event->may_return || event->epoch == 0;
}

/* Without reconnecting, nothing is opened again by itself. */
static const char *find_advice(const struct tierd_job *job, const Tierd__Wire__Event__EpochEnded *event)
{
	bool can_return = event->may_return ? job->node->reconnect_ms > 0 : !has_lost_part(event);

	return can_return ? "call tierd_job_ready" : "close the job, and open it again";
}

static void describe_end(struct tierd_job *job, const Tierd__Wire__Event__EpochEnded *event)
{
	const char *reason = event->reason ? event->reason->message : "";
	char what[64] = "the part of this rank in";

	if (event->epoch > 0)
		snprintf(what, sizeof(what), "epoch %u of", event->epoch);
	snprintf(job->stale_text, sizeof(job->stale_text), "%s job \"%s\" has ended: %s; %s", what, job->name,
		 *reason ? reason : "tierd gave no reason", find_advice(job, event));
}

void job_epoch_ended(struct tierd_job *job, const Tierd__Wire__Event__EpochEnded *event)
{
	if (event->may_return)
		send_away(job);
	/* An epoch without this rank, or before the current one. */
	if (!has_lost_part(event) && (job->ready_units == 0 || (int32_t)(event->epoch - job->epoch) < 0))
		return;
	job->is_stale = true;
	job_poison(job);
	describe_end(job, event);
	ticket_settle_silent(job, job->node->last_request);
}

/* It was in no epoch yet, so nothing else is to be said of the one that it has missed. */
static void begin_anew(struct tierd_job *job)
{
	job->is_stale = false;
	job->awaited = job->state.step;
}

/* Takes the window, because another thread may be in the middle of a call. MODE_RESUME: the job has a state;
 * one that is gone must not be created anew. */
static int return_once(struct tierd_job *job)
{
	int r = window_take(job, connection_deadline(job->node, -1));

	if (r < 0)
		return r;
	if (job->membership == MEMBER_SENT_AWAY) {
		job->membership = MEMBER_RETURNING;
		r = open_and_define(job, MODE_RESUME, false);
		if (r == 0 && job->ready_units == 0)
			begin_anew(job);
		if (job->membership == MEMBER_RETURNING)
			job->membership = r == 0 ? MEMBER : MEMBER_SENT_AWAY;
		else if (job->membership == MEMBER_SENT_AWAY && r == -ESTALE)
			r = 0;
	}
	window_give(job);
	return r;
}

static int nap(struct tierd_node *node)
{
	uint32_t connection = node->connections;

	connection_exit(node);
	clock_sleep_ns(NAP_NS);
	pthread_mutex_lock(&node->lock);
	if (node->connections != connection)
		return message_fail(-ECONNRESET, "the connection to tierd was opened again");
	return connection_check(node);
}

int job_return(struct tierd_job *job)
{
	uint64_t deadline = clock_now_ns() + (uint64_t)job->node->reconnect_ms * 1000000;
	int r = 0;

	/* Keeps other calls of tierd_job_ready out. */
	job->is_getting_ready = true;
	while (r == 0 && job->membership == MEMBER_SENT_AWAY) {
		r = return_once(job);
		if ((r == -EAGAIN || r == -ESHUTDOWN) && clock_now_ns() < deadline)
			r = nap(job->node);
	}
	/* If the connection was lost, job_lose() has cleared it. */
	if (r != -ECONNRESET)
		job->is_getting_ready = false;
	return r;
}
