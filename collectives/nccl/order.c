/* Which operations a communicator has: announced by their numbers, and asked for by them. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>

#include "collectives/nccl/own.h"

/* Whether that number may still be announced and asked for. */
static int check_number(struct communicator *communicator, uint64_t sequence)
{
	if (communicator->state != COMMUNICATOR_CREATING && communicator->state != COMMUNICATOR_READY)
		return -ECANCELED;
	if (sequence < communicator->next)
		return communicator_refuse(communicator, -ESTALE,
					   "operation number %" PRIu64
					   " has begun; the next is number %" PRIu64,
					   sequence, communicator->next);
	if (sequence - communicator->oldest >= COMMUNICATOR_QUEUE)
		return communicator_refuse(communicator, -ENOBUFS,
					   "operation number %" PRIu64
					   " is more than %d after number %" PRIu64 ", which is not done",
					   sequence, COMMUNICATOR_QUEUE - 1, communicator->oldest);
	return 0;
}

/* NCCL would wait for what never comes. */
static int check_same(struct communicator *communicator, const struct communicator_operation *operation,
		      const struct communicator_request *request)
{
	uint64_t count = operation->bounds[communicator->rank_count];

	if (request->kind == operation->kind && request->count == count)
		return 0;
	return communicator_refuse_operation(
		communicator, operation, -EPROTO,
		"rank %u asks for %s of %" PRIu64 " elements, and rank 0 has announced %" PRIu64
		" elements: all ranks must run the same program in the same order",
		request->rank, communicator_kind_name(request->kind), request->count, count);
}

int communicator_announce(struct communicator *communicator, const struct communicator_operation *operation)
{
	struct slot *slot = communicator_slot(communicator, operation->sequence);
	int r = check_number(communicator, operation->sequence);

	assert(operation->name && operation->bounds[0] == 0 && operation->root < communicator->rank_count);
	assert(operation->window_count == 0 || operation->kind == COMMUNICATOR_REDUCE_SCATTER);
	if (r < 0)
		return r;
	if (slot->is_announced)
		return communicator_refuse_operation(communicator, operation, -EEXIST,
						     "that number was announced before");
	if (steps_are_sums(operation) && communicator->staged_most > 0 && communicator->staging_bytes == 0)
		return communicator_refuse_operation(communicator, operation, -EOPNOTSUPP,
						     "the communicator has no memory for sums");
	for (unsigned rank = 0; rank < communicator->rank_count && r == 0; rank++)
		if (slot->requests[rank])
			r = check_same(communicator, operation, slot->requests[rank]);
	if (r < 0)
		return r;
	slot->operation = *operation;
	slot->is_announced = true;
	return 0;
}

int communicator_ask(struct communicator *communicator, struct communicator_request *request)
{
	struct slot *slot = communicator_slot(communicator, request->sequence);
	int r = check_number(communicator, request->sequence);

	assert(request->done && request->rank < communicator->rank_count &&
	       communicator_local(communicator, communicator->member_of_rank[request->rank]));
	if (r < 0)
		return r;
	if (slot->requests[request->rank])
		return communicator_refuse(communicator, -EEXIST,
					   "rank %u asks twice for operation number %" PRIu64, request->rank,
					   request->sequence);
	if (slot->is_announced)
		r = check_same(communicator, &slot->operation, request);
	if (r < 0)
		return r;
	slot->requests[request->rank] = request;
	slot->asked++;
	return 0;
}

bool operations_are_under_way(const struct communicator *communicator)
{
	return communicator->oldest < communicator->next ||
	       communicator->slots[communicator->next % COMMUNICATOR_QUEUE].phase != OPERATION_WAITING;
}

bool operations_are_wanted(const struct communicator *communicator)
{
	for (unsigned i = 0; i < COMMUNICATOR_QUEUE; i++)
		if (communicator->slots[i].is_announced || communicator->slots[i].asked > 0)
			return true;
	return false;
}
