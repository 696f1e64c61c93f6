/* What an operation puts on the streams.
 *
 * A gather and a broadcast are one step. A sum is one step for each part of the pieces that the staging
 * memory holds: the members exchange that part of their ranks' contributions, and each sums what it has got
 * for its own ranks. An all-reduce gathers the sums in a last step. */
#include <assert.h>
#include <string.h>

#include "collectives/nccl/own.h"

bool steps_are_sums(const struct communicator_operation *operation)
{
	return operation->kind == COMMUNICATOR_REDUCE_SCATTER || operation->kind == COMMUNICATOR_ALL_REDUCE;
}

/* ---- Parts of pieces ---- */

struct part {
	uint64_t first, count; /* elements, of the whole array */
};

static uint64_t part_elements(const struct communicator *communicator,
			      const struct communicator_operation *operation)
{
	if (communicator->staged_most == 0)
		return UINT64_MAX;
	return communicator->staging_bytes / communicator->staged_most /
	       reduce_element_bytes(operation->format) / PART_ELEMENTS * PART_ELEMENTS;
}

/* At most so many elements of another part, from that one on. */
static struct part cut(struct part part, uint64_t skip, uint64_t most)
{
	uint64_t left = part.count > skip ? part.count - skip : 0;

	return (struct part){ part.first + part.count - left, left < most ? left : most };
}

/* Of a rank's piece, what the operation sums. */
static struct part summed_part(const struct communicator_operation *operation, unsigned rank)
{
	const struct part piece = { operation->bounds[rank],
				    operation->bounds[rank + 1] - operation->bounds[rank] };

	return operation->window_count == 0 ? piece
					    : cut(piece, operation->window_first, operation->window_count);
}

/* And what is summed in a step. */
static struct part part_of(const struct communicator *communicator,
			   const struct communicator_operation *operation, unsigned rank, unsigned step)
{
	uint64_t most = part_elements(communicator, operation);

	return cut(summed_part(operation, rank), step > 0 ? step * most : 0, most);
}

static unsigned count_parts(const struct communicator *communicator,
			    const struct communicator_operation *operation)
{
	uint64_t most = part_elements(communicator, operation), largest = 1;

	for (unsigned rank = 0; rank < communicator->rank_count; rank++) {
		uint64_t count = summed_part(operation, rank).count;

		largest = count > largest ? count : largest;
	}
	return (unsigned)((largest - 1) / most + 1);
}

unsigned steps_count(const struct communicator *communicator, const struct communicator_operation *operation)
{
	unsigned parts = steps_are_sums(operation) ? count_parts(communicator, operation) : 0;

	return parts + (operation->kind != COMMUNICATOR_REDUCE_SCATTER);
}

static bool is_moving(const struct communicator *communicator, const struct slot *slot)
{
	return !steps_are_sums(&slot->operation) || slot->step == count_parts(communicator, &slot->operation);
}

/* ---- What is moved whole: gathers and broadcasts ---- */

static char *moved_array(const struct slot *slot, unsigned rank)
{
	const struct communicator_request *request = slot->requests[rank];

	return slot->operation.kind == COMMUNICATOR_ALL_REDUCE ? (char *)request->sum : request->array;
}

static size_t moved_bytes(const struct slot *slot)
{
	return slot->operation.kind == COMMUNICATOR_ALL_REDUCE ? sizeof(float) : 1;
}

/* The rank of a member whose array NCCL sees. */
static unsigned leader(const struct communicator *communicator, const struct slot *slot,
		       const struct member *member)
{
	const struct communicator_operation *operation = &slot->operation;
	unsigned rank = 0;

	if (operation->kind == COMMUNICATOR_BROADCAST &&
	    communicator->member_of_rank[operation->root] == member->number)
		return operation->root;
	while (communicator->member_of_rank[rank] != member->number)
		rank++;
	return rank;
}

/* NCCL gathers a piece of each member, all of one size. What is otherwise is broadcast, piece by piece. */
static bool is_gathered(const struct communicator *communicator,
			const struct communicator_operation *operation)
{
	uint64_t each = operation->bounds[1];

	if (operation->kind == COMMUNICATOR_BROADCAST)
		return false;
	for (unsigned rank = 0; rank < communicator->rank_count; rank++)
		if (communicator->member_of_rank[rank] != rank ||
		    operation->bounds[rank + 1] - operation->bounds[rank] != each)
			return false;
	return true;
}

static int broadcast(struct communicator *communicator, struct member *member, char *array, size_t bytes,
		     unsigned root)
{
	if (bytes == 0)
		return NCCL_DONE;
	return communicator->nccl->broadcast(array, array, bytes, NCCL_BYTE,
					     (int)communicator->member_of_rank[root], member->comm,
					     member->stream);
}

static int put_moves(struct communicator *communicator, struct member *member, void *argument)
{
	const struct slot *slot = argument;
	const uint64_t *bounds = slot->operation.bounds;
	char *array = moved_array(slot, leader(communicator, slot, member));
	size_t each = moved_bytes(slot);
	int error = NCCL_DONE;

	if (slot->operation.kind == COMMUNICATOR_BROADCAST)
		return broadcast(communicator, member, array, bounds[communicator->rank_count],
				 slot->operation.root);
	if (is_gathered(communicator, &slot->operation))
		return communicator->nccl->all_gather(array + member->number * bounds[1] * each, array,
						      bounds[1] * each, NCCL_BYTE, member->comm,
						      member->stream);
	for (unsigned rank = 0; rank < communicator->rank_count; rank++) {
		error = broadcast(communicator, member, array + bounds[rank] * each,
				  (bounds[rank + 1] - bounds[rank]) * each, rank);
		if (nccl_has_failed(error))
			break;
	}
	return error;
}

static int refuse_gpu(struct communicator *communicator, const struct slot *slot, const struct member *member,
		      const char *what, int status)
{
	return communicator_refuse_operation(
		communicator, &slot->operation, status,
		"GPU %d cannot %s: %s; the kernel's log may say why (journalctl -k)", member->gpu, what,
		strerror(-status));
}

/* Between arrays of ranks that share a GPU: their pieces to the leader, or all of the leader's to them. */
static int share(struct communicator *communicator, const struct slot *slot, struct member *member,
		 bool is_to_leader)
{
	unsigned first = leader(communicator, slot, member);
	const uint64_t *bounds = slot->operation.bounds;
	char *common = moved_array(slot, first);
	size_t each = moved_bytes(slot);
	int r = 0;

	for (unsigned rank = 0; rank < communicator->rank_count && r == 0; rank++) {
		uint64_t from = is_to_leader ? bounds[rank] * each : 0;
		uint64_t end = bounds[is_to_leader ? rank + 1 : communicator->rank_count] * each;
		char *own;

		if (communicator->member_of_rank[rank] != member->number || rank == first)
			continue;
		own = moved_array(slot, rank);
		if (own == common || from == end)
			continue;
		r = communicator->ops->copy(communicator->owner, member->gpu, member->stream,
					    is_to_leader ? common + from : own,
					    is_to_leader ? own + from : common, end - from);
	}
	return r < 0 ? refuse_gpu(communicator, slot, member, "copy", r) : 0;
}

/* ---- Sums ---- */

static bool is_absent(const struct communicator_operation *operation, unsigned rank)
{
	return operation->is_absent && operation->is_absent[rank];
}

static const char *contribution(const struct slot *slot, unsigned rank, uint64_t first)
{
	const char *array = slot->requests[rank]->contribution;

	assert(array);
	return array + first * reduce_element_bytes(slot->operation.format);
}

/* Where the staging memory has what the n-th rank of another member contributes to the n-th own one. */
static char *staged(const struct communicator *communicator, const struct slot *slot,
		    const struct member *member, unsigned other, unsigned own)
{
	return member->staging + (other * member->rank_count + own) *
					 part_elements(communicator, &slot->operation) *
					 reduce_element_bytes(slot->operation.format);
}

/* NCCL pairs what two members send and receive by their order: by contributor, then by whose piece it is. */
static int put_exchange(struct communicator *communicator, struct member *member, void *argument)
{
	const struct slot *slot = argument;
	const struct communicator_operation *operation = &slot->operation;
	const unsigned *member_of_rank = communicator->member_of_rank;
	size_t each = reduce_element_bytes(operation->format);
	unsigned other = 0;
	int error = NCCL_DONE;

	for (unsigned from = 0; from < communicator->rank_count; from++) {
		bool is_own = member_of_rank[from] == member->number;
		unsigned own = 0;

		for (unsigned to = 0; to < communicator->rank_count && !is_absent(operation, from); to++) {
			struct part part = part_of(communicator, operation, to, slot->step);
			bool is_to_own = member_of_rank[to] == member->number;

			if (is_own && !is_to_own && part.count > 0)
				error = communicator->nccl->send(
					contribution(slot, from, part.first), part.count * each, NCCL_BYTE,
					(int)member_of_rank[to], member->comm, member->stream);
			else if (!is_own && is_to_own && part.count > 0)
				error = communicator->nccl->receive(
					staged(communicator, slot, member, other, own), part.count * each,
					NCCL_BYTE, (int)member_of_rank[from], member->comm, member->stream);
			if (nccl_has_failed(error))
				return error;
			own += is_to_own;
		}
		other += !is_own;
	}
	return error;
}

/* The sum of the part of one rank, its n-th of the member. */
static int put_sum(struct communicator *communicator, const struct slot *slot, struct member *member,
		   unsigned rank, unsigned own)
{
	const struct communicator_operation *operation = &slot->operation;
	struct part part = part_of(communicator, operation, rank, slot->step);
	const struct communicator_request *request = slot->requests[rank];
	uint64_t start = operation->kind == COMMUNICATOR_ALL_REDUCE ? 0 : summed_part(operation, rank).first;
	const void *contributions[REDUCE_MAX_RANKS] = { NULL };
	unsigned other = 0;

	if (part.count == 0)
		return 0;
	for (unsigned from = 0; from < communicator->rank_count; from++) {
		bool is_own = communicator->member_of_rank[from] == member->number;

		if (!is_absent(operation, from))
			contributions[from] = is_own ? contribution(slot, from, part.first)
						     : staged(communicator, slot, member, other, own);
		other += !is_own;
	}
	return communicator->ops->sum(communicator->owner, member->gpu, member->stream,
				      &(struct communicator_sum){ .format = operation->format,
								  .sum = request->sum + (part.first - start),
								  .is_added = request->is_added,
								  .contributions = contributions,
								  .rank_count = communicator->rank_count,
								  .count = part.count });
}

static int put_sums(struct communicator *communicator, const struct slot *slot, struct member *member)
{
	unsigned own = 0;

	for (unsigned rank = 0; rank < communicator->rank_count; rank++) {
		int r;

		if (communicator->member_of_rank[rank] != member->number)
			continue;
		r = put_sum(communicator, slot, member, rank, own++);
		if (r < 0)
			return refuse_gpu(communicator, slot, member, "sum", r);
	}
	return 0;
}

/* ---- Steps ---- */

int steps_put(struct communicator *communicator, struct slot *slot)
{
	int r = 0;

	if (!is_moving(communicator, slot))
		return members_group(communicator, "ncclSend and ncclRecv", put_exchange, slot);
	for (unsigned i = 0; i < communicator->local_count && r == 0; i++)
		if (slot->operation.kind != COMMUNICATOR_BROADCAST)
			r = share(communicator, slot, &communicator->members[i], true);
	if (r < 0)
		return r;
	return members_group(communicator,
			     is_gathered(communicator, &slot->operation) ? "ncclAllGather" : "ncclBroadcast",
			     put_moves, slot);
}

int steps_finish(struct communicator *communicator, struct slot *slot)
{
	int r = 0;

	for (unsigned i = 0; i < communicator->local_count && r == 0; i++) {
		struct member *member = &communicator->members[i];

		r = is_moving(communicator, slot) ? share(communicator, slot, member, false)
						  : put_sums(communicator, slot, member);
	}
	return r;
}
