/* How a rank becomes a member of a job, and leaves it. */
#include <errno.h>
#include <string.h>

#include "client/library/calls/calls.h"
#include "client/library/connection/structure.h"
#include "client/library/pages/left.h"
#include "common/cleanup.h"
#include "common/clock.h"

#define COMING_BACK_NS UINT64_C(10000000000)
#define OPENING_PAUSE_NS UINT64_C(10000000)

/* ---- Open ---- */

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
	/* The connection may have ended right after the reply, and the membership with it. */
	if (r == 0)
		r = connection_check(node);
	if (r == 0) {
		job->awaited = job->state.step;
		queue_push(&node->jobs, &job->link);
	}
	if (job_can_repeat(job, r)) {
		/* The job may have been opened over a lost connection whose end tierd has not seen yet. */
		request->job_open->is_reconnect = true;
		r = JOB_AGAIN;
	}
	connection_exit(node);
	return r;
}

/* How long opening is tried again. A broken job is restored from its store, and one that gets another world
 * size waits for its last step: both take a moment. A daemon that drains will be started again. */
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
	Tierd__Wire__JobOpen open = TIERD__WIRE__JOB_OPEN__INIT;
	_cleanup_(wire_groups_free) struct wire_groups groups = { NULL, NULL };
	int r = CHECK_GIVEN(node, options, ret_job);

	if (r < 0)
		return r;
	r = STRUCTURE_TAKE(&own, options, "the job options have", TIERD_JOB_OPTIONS_INIT);
	if (r == 0)
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
	if (own.gpu >= 0)
		r = gpu_new(own.gpu, &job->gpu);
	if (r < 0)
		return r;
	job->gpu_budget = own.gpu_budget;
	job->has_gpu_gradients = own.gpu_gradients;
	job->gpu_update = own.gpu_update;
	job_options_encode(&own, &groups, &open);
	r = reopen_remember(node, &open.base, &job->opening);
	if (r == 0)
		r = open_patiently(job, WIRE_REQUEST(JOB_OPEN, job_open, &open));
	if (r == 0)
		*ret_job = TAKE_PTR(job);
	return r;
}

/* ---- Ready ---- */

int tierd_job_ready(struct tierd_job *job, int timeout_ms, struct tierd_job_state *ret_state)
{
	struct tierd_job_state state;
	int r = CHECK_GIVEN(job);

	if (r == 0)
		r = JOB_CALL(job, JOB_OPEN, job_ready_locked(job, timeout_ms, &state));
	if (r == 0 && ret_state)
		*ret_state = state;
	return r;
}

int tierd_job_ready_begin(struct tierd_job *job, int timeout_ms, struct tierd_ticket **ret_ticket)
{
	int r = CHECK_GIVEN(job, ret_ticket);

	return r < 0 ? r : JOB_CALL(job, JOB_OPEN, job_ready_begin_locked(job, timeout_ms, ret_ticket));
}

int tierd_ticket_job_state(struct tierd_ticket *ticket, struct tierd_job_state *ret_state)
{
	int r = CHECK_GIVEN(ticket, ret_state);

	if (r == 0)
		r = ticket_enter_result(ticket, &ready_kind);
	if (r < 0)
		return r;
	*ret_state = ticket->state;
	ticket_exit(ticket->node);
	return 0;
}

int tierd_job_state(struct tierd_job *job, struct tierd_job_state *ret_state)
{
	int r = CHECK_GIVEN(job, ret_state);

	if (r == 0)
		r = job_enter(job, JOB_LIVE);
	if (r < 0)
		return r;
	*ret_state = job->state;
	connection_exit(job->node);
	return 0;
}

/* ---- Leave ---- */

void job_drop(struct tierd_job *job)
{
	/* In a child, too: tierd_disconnect frees the jobs that are in the list. */
	queue_remove(&job->link);
	if (job->generation != connection_generation) {
		/* A child cannot see how many leases there were, and their holders may still use the handle.
		 */
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

/* Whether the membership has ended with the connection. */
static bool has_been_left(const struct tierd_job *job)
{
	const struct tierd_node *node = job->node;

	return node->is_lost || node->is_reconnecting || (job->membership == MEMBER_LOST && !node->error) ||
	       job->refusal < 0;
}

static int leave(struct tierd_job *job, bool at_once)
{
	struct tierd_node *node = job->node;
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
	if (!has_been_left(job))
		r = ticket_call(job, WIRE_REQUEST(JOB_LEAVE, job_leave, &body));
	/* The connection may have been lost in the middle of the call. */
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
