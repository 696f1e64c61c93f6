/* How the operations of a communicator come onto the streams, in their order, and are done. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collectives/nccl/own.h"

/* ---- Onto the streams ---- */

/* Calls before() or after() of each request. */
static int tell_owner(struct communicator *communicator, const struct slot *slot, bool is_before)
{
	for (unsigned rank = 0; rank < communicator->rank_count; rank++) {
		struct communicator_request *request = slot->requests[rank];
		int (*tell)(struct communicator_request *, void *);
		int r;

		if (!request)
			continue;
		tell = is_before ? request->before : request->after;
		r = tell ? tell(request,
				communicator_local(communicator, communicator->member_of_rank[rank])->stream)
			 : 0;
		if (r < 0)
			return communicator_refuse_operation(communicator, &slot->operation, r,
							     "what the memory of rank %u waits for, or what "
							     "waits for it, cannot be put on the "
							     "stream: %s",
							     rank, strerror(-r));
	}
	return 0;
}

static int mark(struct communicator *communicator, struct slot *slot)
{
	for (unsigned i = 0; i < communicator->local_count; i++) {
		const struct member *member = &communicator->members[i];
		int r = communicator->ops->mark(communicator->owner, member->gpu, member->stream,
						&slot->marks[i]);

		if (r < 0)
			return communicator_refuse_operation(
				communicator, &slot->operation, r,
				"GPU %d cannot say when it is past it: %s; the kernel's log may say why "
				"(journalctl -k)",
				member->gpu, strerror(-r));
	}
	return 0;
}

static int start(struct communicator *communicator, struct slot *slot, uint64_t now_ns)
{
	slot->phase = OPERATION_STARTING;
	slot->step = 0;
	if (communicator->oldest == communicator->next)
		communicator->progress_ns = now_ns;
	return tell_owner(communicator, slot, true);
}

static int end(struct communicator *communicator, struct slot *slot)
{
	int r = tell_owner(communicator, slot, false);

	if (r == 0)
		r = mark(communicator, slot);
	if (r < 0)
		return r;
	slot->phase = OPERATION_RUNNING;
	communicator->next++;
	return 0;
}

/* What NCCL was called for last is on the streams; goes on until it has been called for more. */
static int advance(struct communicator *communicator, uint64_t now_ns)
{
	for (;;) {
		struct slot *slot = communicator_slot(communicator, communicator->next);
		int r = 0;

		if (communicator->next - communicator->oldest == COMMUNICATOR_QUEUE)
			return 0;
		if (slot->phase == OPERATION_WAITING &&
		    !(slot->is_announced && slot->asked == communicator->local_ranks))
			return 0;
		if (slot->phase == OPERATION_WAITING) {
			r = start(communicator, slot, now_ns);
		} else {
			r = steps_finish(communicator, slot);
			slot->step++;
		}
		if (r == 0)
			r = slot->step < steps_count(communicator, &slot->operation)
				    ? steps_put(communicator, slot)
				    : end(communicator, slot);
		if (r == 0)
			r = members_settled(communicator);
		if (r <= 0)
			return r;
	}
}

/* ---- Done ---- */

/* 1: all GPUs are past the operation; 0: not yet. One that does not answer any more counts as past it where
 * nothing is to be saved. */
static int is_past(struct communicator *communicator, const struct slot *slot, bool is_given_up)
{
	for (unsigned i = 0; i < communicator->local_count; i++) {
		int gpu = communicator->members[i].gpu;
		int r = slot->marks[i] == NO_MARK
				? 1
				: communicator->ops->is_past(communicator->owner, gpu, slot->marks[i]);

		if (r < 0 && !is_given_up)
			return communicator_refuse_operation(communicator, &slot->operation, r,
							     "GPU %d does not answer any more: %s; the "
							     "kernel's log may say why (journalctl -k)",
							     gpu, strerror(-r));
		if (r == 0)
			return 0;
	}
	return 1;
}

/* The slot is another operation's before done() is called, which may ask for that. */
static void retire(struct communicator *communicator, int status)
{
	struct slot *slot = communicator_slot(communicator, communicator->oldest++);
	struct communicator_request **requests = slot->requests;

	slot->requests = communicator->retiring;
	communicator->retiring = requests;
	slot->is_announced = false;
	slot->phase = OPERATION_WAITING;
	slot->asked = 0;
	if (communicator->next < communicator->oldest)
		communicator->next = communicator->oldest;
	for (unsigned rank = 0; rank < communicator->rank_count; rank++) {
		struct communicator_request *request = TAKE_PTR(requests[rank]);

		if (request)
			request->done(request, status);
	}
}

static int finish(struct communicator *communicator, uint64_t now_ns)
{
	/* done() may abort it. */
	while (communicator->oldest < communicator->next && communicator->state == COMMUNICATOR_READY) {
		int r = is_past(communicator, communicator_slot(communicator, communicator->oldest), false);

		if (r <= 0)
			return r;
		communicator->progress_ns = now_ns;
		retire(communicator, 0);
	}
	return 0;
}

/* ---- Too late ---- */

/* "GPU 0 (rank 0), GPU 1 (rank 1)": those that are not past it. */
static void write_late(struct communicator *communicator, const struct slot *slot, char *text, size_t size)
{
	size_t length = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < communicator->local_count && length < size; i++) {
		const struct member *member = &communicator->members[i];
		char name[64];

		if (slot->phase == OPERATION_RUNNING &&
		    communicator->ops->is_past(communicator->owner, member->gpu, slot->marks[i]) != 0)
			continue;
		communicator_write_member(communicator, member, name, sizeof(name));
		length += (size_t)snprintf(text + length, size - length, "%s%s", length ? ", " : "", name);
	}
}

static int check_deadline(struct communicator *communicator, uint64_t now_ns)
{
	struct slot *slot = communicator_slot(communicator, communicator->oldest);
	char late[256];

	if (slot->phase == OPERATION_WAITING ||
	    now_ns - communicator->progress_ns <= communicator->operation_timeout_ns)
		return 0;
	write_late(communicator, slot, late, sizeof(late));
	return communicator_refuse_operation(
		communicator, &slot->operation, -ETIMEDOUT,
		"not done after %" PRIu64
		" s on %s: another member has ended, or does something else. The log of "
		"its node says more, and NCCL_DEBUG=INFO in tierd's environment",
		communicator->operation_timeout_ns / 1000000000, late);
}

int operations_poll(struct communicator *communicator, uint64_t now_ns)
{
	int r = members_settled(communicator);

	if (r > 0)
		r = advance(communicator, now_ns);
	if (r == 0)
		r = finish(communicator, now_ns);
	return r < 0 || communicator->state != COMMUNICATOR_READY ? r : check_deadline(communicator, now_ns);
}

/* ---- Given up ---- */

void operations_give_up(struct communicator *communicator)
{
	struct slot *slot = communicator_slot(communicator, communicator->next);

	/* Some of it may be on the streams. */
	if (slot->phase != OPERATION_STARTING)
		return;
	for (unsigned i = 0; i < communicator->local_count; i++)
		if (communicator->ops->mark(communicator->owner, communicator->members[i].gpu,
					    communicator->members[i].stream, &slot->marks[i]) < 0)
			slot->marks[i] = NO_MARK;
}

bool operations_drain(struct communicator *communicator)
{
	for (uint64_t sequence = communicator->oldest; sequence <= communicator->next; sequence++) {
		struct slot *slot = communicator_slot(communicator, sequence);

		if (slot->phase != OPERATION_WAITING && is_past(communicator, slot, true) == 0)
			return false;
	}
	for (unsigned i = 0; i < COMMUNICATOR_QUEUE; i++)
		retire(communicator, communicator->status);
	return true;
}
