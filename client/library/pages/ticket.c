#include "client/library/pages/ticket.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "client/library/pages/job.h"
#include "proto/status.h"

static void ticket_free(struct tierd_ticket *ticket);

int ticket_new(struct tierd_node *node, struct tierd_job *job, const struct ticket_kind *kind,
	       struct tierd_ticket **ret_ticket)
{
	struct tierd_ticket *ticket = calloc(1, sizeof(*ticket));

	if (!ticket)
		return message_fail_memory();
	ticket->kind = kind;
	ticket->fd = -1;
	ticket->fd_count = kind->fd_count;
	ticket->node = node;
	ticket->generation = node->generation;
	ticket->job = job;
	ticket->epoch = job ? job->epoch : 0;
	queue_init(&ticket->pending);
	queue_push(&node->tickets, &ticket->all);
	*ret_ticket = ticket;
	return 0;
}

/* ---- What has been seen ---- */

/* A program that has seen one event of a ticket may still poll for another. */
static void mark_seen(struct tierd_ticket *ticket, enum tierd_event event)
{
	struct tierd_node *node = ticket->node;
	uint64_t count;

	if (!ticket->events[event].is_unseen)
		return;
	ticket->events[event].is_unseen = false;
	if (--node->unseen == 0 && node->done_fd >= 0)
		(void)!read(node->done_fd, &count, sizeof(count));
}

static void mark_all_seen(struct tierd_ticket *ticket)
{
	for (unsigned event = 0; event < TICKET_EVENTS; event++)
		mark_seen(ticket, (enum tierd_event)event);
}

static void mark_unseen(struct tierd_ticket *ticket, enum tierd_event event)
{
	struct tierd_node *node = ticket->node;

	ticket->events[event].is_unseen = true;
	if (node->unseen++ == 0 && node->done_fd >= 0)
		(void)!write(node->done_fd, &(uint64_t){ 1 }, sizeof(uint64_t));
}

/* ---- From request to reply ---- */

static void register_number(struct tierd_ticket *ticket)
{
	struct tierd_node *node = ticket->node;

	ticket->request = connection_number(node);
	queue_remove(&ticket->pending);
	queue_push(&node->pending[ticket->request % CONNECTION_BUCKETS], &ticket->pending);
}

int ticket_send(struct tierd_ticket *ticket, const Tierd__Wire__Request *request)
{
	int r;

	register_number(ticket);
	r = connection_send(ticket->node, ticket->request, request);
	if (r < 0)
		ticket_free(ticket);
	return r;
}

int ticket_send_again(struct tierd_ticket *ticket, const Tierd__Wire__Request *request)
{
	register_number(ticket);
	connection_post(ticket->node, ticket->request, request);
	return 0;
}

static bool has_all_events(const struct tierd_ticket *ticket)
{
	return ticket->events[TIERD_DONE].is_here &&
	       (!ticket->kind->has_durable || ticket->events[TIERD_DURABLE].is_here);
}

static void note_event(struct tierd_ticket *ticket, enum tierd_event event, int status, const char *text)
{
	if (ticket->events[event].is_here)
		return;
	ticket->events[event].is_here = true;
	ticket->events[event].status = status;
	/* Without memory for the text there is only the status. */
	ticket->events[event].text = status < 0 && text ? strdup(text) : NULL;
	if (!ticket->is_orphan)
		mark_unseen(ticket, event);
}

/* A step that has failed will not become durable; and one that is done, or has failed, will not be reduced.
 */
static void note_others(struct tierd_ticket *ticket, int status, const char *text)
{
	if (status < 0 && ticket->kind->has_durable)
		note_event(ticket, TIERD_DURABLE, status, text);
	if (ticket->is_reducing)
		note_event(ticket, TIERD_REDUCED, status, text);
}

void ticket_complete(struct tierd_ticket *ticket, enum tierd_event event, int status, const char *text)
{
	note_event(ticket, event, status, text);
	if (event == TIERD_DONE)
		note_others(ticket, status, text);
	if (!has_all_events(ticket))
		return;
	queue_remove(&ticket->pending);
	if (ticket->is_orphan)
		ticket_free(ticket);
}

void ticket_violation(struct tierd_ticket *ticket, const char *what)
{
	connection_fail(ticket->node, -EPROTO, "tierd answered %s with %s", ticket->kind->name, what);
}

static struct tierd_ticket *find(struct tierd_node *node, uint32_t request)
{
	QUEUE_FOREACH (link, &node->pending[request % CONNECTION_BUCKETS]) {
		struct tierd_ticket *ticket = queue_entry(link, struct tierd_ticket, pending);

		if (ticket->request == request)
			return ticket;
	}
	return NULL;
}

static unsigned count_fds(const struct tierd_ticket *ticket, const Tierd__Wire__Reply *reply)
{
	bool has_cache = reply->body_case == TIERD__WIRE__REPLY__BODY_JOB_READY && ticket->fd_count > 0 &&
			 reply->job_ready->cache_bytes > 0;
	unsigned count = ticket->fd_count + has_cache;

	return count < TICKET_MAX_FDS ? count : TICKET_MAX_FDS;
}

void ticket_answer(struct tierd_node *node, uint32_t request, const Tierd__Wire__Reply *reply)
{
	struct tierd_ticket *ticket = find(node, request);
	struct answer answer = { .reply = reply, .text = reply->status->message };

	if (!ticket)
		return;
	unsigned fd_count = count_fds(ticket, reply);

	answer.status = status_to_errno(reply->status->code);
	if (answer.status == -EPROTO && answer.text[0] == '\0')
		answer.text = "tierd answered with a status that this library does not know";
	for (unsigned i = 0; i < TICKET_MAX_FDS; i++)
		answer.fds[i] = -1;
	for (unsigned i = 0; answer.status == 0 && i < fd_count; i++)
		answer.fds[i] = stream_take_fd(node->stream);
	if (answer.status == 0 && fd_count > 0 && answer.fds[fd_count - 1] < 0)
		ticket_violation(ticket, "too few descriptors");
	else if (!ticket->job && !ticket->kind->is_jobless)
		ticket_complete(ticket, ticket->events[TIERD_DONE].is_here ? TIERD_DURABLE : TIERD_DONE,
				-ECANCELED, "the job was left");
	else if (answer.status == 0 && ticket->kind->body && ticket->kind->body != (int)reply->body_case)
		ticket_violation(ticket, "another reply");
	else if (ticket->kind->answer)
		ticket->kind->answer(ticket, &answer);
	else
		ticket_complete_answer(ticket, &answer);
	for (unsigned i = 0; i < TICKET_MAX_FDS; i++)
		fd_close(answer.fds[i]);
}

bool ticket_is_refused(struct tierd_ticket *ticket, const struct answer *answer)
{
	if (answer->status < 0)
		ticket_complete(ticket, TIERD_DONE, answer->status, answer->text);
	return answer->status < 0;
}

void ticket_complete_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	int r = answer->status;

	if (r == 0 && answer->fds[0] >= 0) {
		ticket->fd = fcntl(answer->fds[0], F_DUPFD_CLOEXEC, 0);
		r = ticket->fd < 0 ? -errno : 0;
	}
	ticket_complete(ticket, TIERD_DONE, r, answer->text);
}

/* ---- Waiting and giving up ---- */

struct awaited_event {
	const struct tierd_ticket *ticket;
	enum tierd_event event;
};

static bool event_is_here(const void *argument)
{
	const struct awaited_event *awaited = argument;

	return awaited->ticket->events[awaited->event].is_here;
}

int ticket_await(struct tierd_ticket *ticket, enum tierd_event event, uint64_t deadline)
{
	struct awaited_event awaited = { ticket, event };
	int r = 0;

	if (ticket->node) {
		/* Handles other messages that have come: they would keep the descriptor readable. */
		if (ticket->node->poll_fd >= 0 && event_is_here(&awaited))
			connection_look(ticket->node);
		r = connection_wait(ticket->node, event_is_here, &awaited, deadline);
		if (event_is_here(&awaited)) {
			/* A durable step was done before, and a step that is done was reduced before. */
			if (event != TIERD_REDUCED)
				mark_seen(ticket, TIERD_DONE);
			mark_seen(ticket, TIERD_REDUCED);
			mark_seen(ticket, event);
		}
	}
	if (r == -ETIMEDOUT)
		return message_fail(r, "%s: not done within the time given; tierd goes on with it",
				    ticket->kind->name);
	if (r < 0)
		return r;
	r = ticket->events[event].status;
	return r < 0 ? message_fail_text(r, ticket->events[event].text) : 0;
}

static void ticket_free(struct tierd_ticket *ticket)
{
	if (ticket->node) {
		mark_all_seen(ticket);
		queue_remove(&ticket->pending);
		queue_remove(&ticket->all);
	}
	if (ticket->kind->dispose)
		ticket->kind->dispose(ticket);
	for (unsigned event = 0; event < TICKET_EVENTS; event++)
		free(ticket->events[event].text);
	fd_close(ticket->fd);
	free(ticket);
}

void ticket_abandon(struct tierd_ticket *ticket)
{
	if (ticket->kind->abandon && ticket->node)
		ticket->kind->abandon(ticket);
	if (!ticket->node || queue_is_empty(&ticket->pending)) {
		ticket_free(ticket);
		return;
	}
	mark_all_seen(ticket);
	ticket->is_orphan = true;
}

bool ticket_is_given_up(const struct tierd_job *job, const struct ticket_kind *kind)
{
	QUEUE_FOREACH (link, &job->node->tickets) {
		const struct tierd_ticket *ticket = queue_entry(link, struct tierd_ticket, all);

		if (ticket->job == job && ticket->kind == kind && ticket->is_orphan)
			return true;
	}
	return false;
}

int ticket_call(struct tierd_job *job, const Tierd__Wire__Request *request)
{
	return ticket_call_until(job, request, connection_deadline(job->node, -1));
}

int ticket_call_until(struct tierd_job *job, const Tierd__Wire__Request *request, uint64_t deadline)
{
	struct tierd_ticket *ticket = NULL;
	int r = ticket_new(job->node, job, &ticket_plain, &ticket);

	return r < 0 ? r : ticket_run(ticket, request, deadline);
}

int ticket_run(struct tierd_ticket *ticket, const Tierd__Wire__Request *request, uint64_t deadline)
{
	int r = ticket_ask(ticket, request, deadline);

	if (r == 0)
		ticket_abandon(ticket);
	return r;
}

int ticket_ask(struct tierd_ticket *ticket, const Tierd__Wire__Request *request, uint64_t deadline)
{
	int r = ticket_send(ticket, request);

	if (r < 0)
		return r;
	r = ticket_await(ticket, TIERD_DONE, deadline);
	if (r < 0)
		ticket_abandon(ticket);
	return r;
}

/* ---- The end of a connection or a job ---- */

static void fail(struct tierd_ticket *ticket, int status, const char *text)
{
	if (has_all_events(ticket))
		return;
	note_event(ticket, TIERD_DONE, status, text);
	note_others(ticket, status, text);
}

void ticket_fail_all(struct tierd_node *node, int status, const char *text)
{
	QUEUE_FOREACH (link, &node->tickets) {
		struct tierd_ticket *ticket = queue_entry(link, struct tierd_ticket, all);

		/* A caller may be in the middle of sending or answering it. */
		queue_remove(&ticket->pending);
		if (ticket->is_orphan)
			ticket_free(ticket);
		else if (ticket->job && ticket->job->is_stale && !ticket->kind->begins_epoch)
			fail(ticket, -ESTALE, ticket->job->stale_text);
		else
			fail(ticket, status, text);
	}
}

void ticket_settle_silent(const struct tierd_job *job, uint32_t request)
{
	QUEUE_FOREACH (link, &job->node->tickets) {
		struct tierd_ticket *ticket = queue_entry(link, struct tierd_ticket, all);

		if (ticket->job == job && ticket->is_silent && ticket->is_orphan &&
		    (int32_t)(ticket->request - request) <= 0)
			ticket_complete(ticket, TIERD_DONE, 0, NULL);
	}
}

void ticket_lose_job(const struct tierd_job *job)
{
	QUEUE_FOREACH (link, &job->node->tickets) {
		struct tierd_ticket *ticket = queue_entry(link, struct tierd_ticket, all);

		if (ticket->job == job && ticket->kind->lose && !queue_is_empty(&ticket->pending))
			ticket->kind->lose(ticket);
	}
}

void ticket_leave_job(struct tierd_node *node, const struct tierd_job *job)
{
	QUEUE_FOREACH (link, &node->tickets) {
		struct tierd_ticket *ticket = queue_entry(link, struct tierd_ticket, all);

		/* Tickets that wait for a reply stay registered, because it may bring descriptors. */
		if (ticket->job != job)
			continue;
		ticket->job = NULL;
		fail(ticket, -ECANCELED, "the job was left");
	}
}

void ticket_leave_node(struct tierd_node *node)
{
	QUEUE_FOREACH (link, &node->tickets) {
		struct tierd_ticket *ticket = queue_entry(link, struct tierd_ticket, all);

		mark_all_seen(ticket);
		queue_remove(&ticket->pending);
		queue_remove(&ticket->all);
		ticket->node = NULL;
		ticket->job = NULL;
		if (ticket->is_orphan)
			ticket_free(ticket);
	}
}

/* ---- Public calls ---- */

/* A ticket that outlived its node has no lock. In a forked child the node may have been freed, although its
 * tickets name it. */
static int ticket_enter(const struct tierd_ticket *ticket)
{
	if (ticket->generation != connection_generation)
		return message_fail_child();
	return ticket->node ? connection_enter(ticket->node) : 0;
}

void ticket_exit(struct tierd_node *node)
{
	if (node)
		connection_exit(node);
}

static bool has_event(const struct tierd_ticket *ticket, enum tierd_event event)
{
	return event == TIERD_DONE || (event == TIERD_DURABLE && ticket->kind->has_durable) ||
	       (event == TIERD_REDUCED && ticket->is_reducing);
}

static void hurry(struct tierd_ticket *ticket)
{
	if (ticket->kind->hurry && ticket->job)
		ticket->kind->hurry(ticket);
}

int tierd_ticket_wait(struct tierd_ticket *ticket, enum tierd_event event, int timeout_ms)
{
	struct tierd_node *node;
	int r = CHECK_GIVEN(ticket);

	if (r == 0)
		r = ticket_enter(ticket);
	if (r < 0)
		return r;
	node = ticket->node;
	if (event == TIERD_DURABLE && timeout_ms != 0)
		hurry(ticket);
	if (has_event(ticket, event))
		r = ticket_await(ticket, event, node ? connection_deadline(node, timeout_ms) : 0);
	else
		r = message_fail(-EINVAL,
				 "%s has no event %d: only a step becomes durable, and only one with the "
				 "optimizer none is reduced",
				 ticket->kind->name, (int)event);
	ticket_exit(node);
	return r;
}

static int open_poll_fd(struct tierd_node *node)
{
	_cleanup_close_ int done_fd = eventfd(node->unseen > 0, EFD_CLOEXEC | EFD_NONBLOCK);
	_cleanup_close_ int poll_fd = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = { .events = EPOLLIN };

	if (done_fd < 0 || poll_fd < 0 || epoll_ctl(poll_fd, EPOLL_CTL_ADD, done_fd, &event) < 0 ||
	    epoll_ctl(poll_fd, EPOLL_CTL_ADD, stream_fd(node->stream), &event) < 0)
		return -errno;
	node->done_fd = TAKE_FD(done_fd);
	node->poll_fd = TAKE_FD(poll_fd);
	return 0;
}

int tierd_ticket_descriptor(const struct tierd_ticket *ticket)
{
	struct tierd_node *node;
	int r = CHECK_GIVEN(ticket);

	if (r == 0)
		r = ticket_enter(ticket);
	if (r < 0)
		return r;
	node = ticket->node;
	if (!node)
		return message_fail(-ENOTCONN, "the ticket's node was disconnected");
	if (node->poll_fd < 0)
		r = open_poll_fd(node);
	if (r == 0)
		r = node->poll_fd;
	else
		message_fail(r, "no descriptor to poll: %s", strerror(-r));
	connection_exit(node);
	return r;
}

static int result_is_here(const struct tierd_ticket *ticket, const struct ticket_kind *kind)
{
	if (ticket->kind != kind)
		return message_fail(-EINVAL, "the ticket is of %s, not of %s", ticket->kind->name,
				    kind->name);
	if (!ticket->events[TIERD_DONE].is_here && ticket->events[TIERD_REDUCED].is_here)
		return 0;
	if (!ticket->events[TIERD_DONE].is_here)
		return message_fail(-EAGAIN, "%s is not done yet; wait for its ticket first", kind->name);
	if (ticket->events[TIERD_DONE].status < 0)
		return message_fail_text(ticket->events[TIERD_DONE].status, ticket->events[TIERD_DONE].text);
	return 0;
}

int ticket_enter_result(const struct tierd_ticket *ticket, const struct ticket_kind *kind)
{
	int r = ticket_enter(ticket);

	if (r < 0)
		return r;
	r = result_is_here(ticket, kind);
	if (r < 0)
		ticket_exit(ticket->node);
	return r;
}

struct tierd_ticket *tierd_ticket_free(struct tierd_ticket *ticket)
{
	struct tierd_node *node;

	if (!ticket)
		return NULL;
	node = ticket->node;
	/* In a forked child the lock may be locked for ever: the ticket is leaked there. */
	if (ticket_enter(ticket) < 0)
		return NULL;
	ticket_abandon(ticket);
	ticket_exit(node);
	return NULL;
}

const struct ticket_kind ticket_plain = { .name = "a request", .is_jobless = true };
