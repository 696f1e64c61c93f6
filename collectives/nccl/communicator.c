#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "collectives/nccl/own.h"
#include "common/log.h"

/* While GPUs work, while members wait for others, and while there is nothing to do but to hear of a failure.
 */
#define BUSY_NS UINT64_C(20000)
#define WAITING_NS UINT64_C(1000000)
#define IDLE_NS UINT64_C(100000000)

static void step(struct communicator *communicator, enum communicator_event event)
{
	enum communicator_state before = communicator->state;

	communicator->state = transition_take(&communicator_table, before, event);
	if (communicator->state != before)
		log_debug("communicator of job %s, epoch %" PRIu64 ": %s: it was %s, and is %s",
			  communicator->job, communicator->epoch, communicator_table.events[event],
			  communicator_table.states[before], communicator_table.states[communicator->state]);
}

unsigned communicator_map(const unsigned *gpu_of_rank, unsigned rank_count, unsigned *ret_member_of_rank)
{
	unsigned members = 0;

	for (unsigned rank = 0; rank < rank_count; rank++) {
		unsigned first = 0;

		while (gpu_of_rank[first] != gpu_of_rank[rank])
			first++;
		ret_member_of_rank[rank] = first < rank ? ret_member_of_rank[first] : members++;
	}
	return members;
}

static int copy_members(struct communicator *communicator, const struct communicator_options *options)
{
	communicator->members = calloc(options->local_count, sizeof(*communicator->members));
	communicator->member_of_rank = calloc(options->rank_count, sizeof(*communicator->member_of_rank));
	if (!communicator->members || !communicator->member_of_rank)
		return -ENOMEM;
	for (unsigned i = 0; i < options->local_count; i++)
		communicator->members[i] = (struct member){
			.gpu = options->members[i].gpu,
			.number = options->first_member + i,
			.stream = options->members[i].stream,
			.staging = options->members[i].staging,
		};
	for (unsigned rank = 0; rank < options->rank_count; rank++) {
		struct member *member;

		communicator->member_of_rank[rank] = options->member_of_rank[rank];
		member = communicator_local(communicator, options->member_of_rank[rank]);
		if (member) {
			member->rank_count++;
			communicator->local_ranks++;
		}
	}
	return 0;
}

static int make_slots(struct communicator *communicator)
{
	communicator->retiring = calloc(communicator->rank_count, sizeof(*communicator->retiring));
	for (unsigned i = 0; i < COMMUNICATOR_QUEUE; i++) {
		struct slot *slot = &communicator->slots[i];

		slot->requests = calloc(communicator->rank_count, sizeof(*slot->requests));
		slot->marks = calloc(communicator->local_count, sizeof(*slot->marks));
		if (!slot->requests || !slot->marks)
			return -ENOMEM;
	}
	return communicator->retiring ? 0 : -ENOMEM;
}

/* A member gets of each rank elsewhere a part for each of its own ranks. */
static unsigned count_staged(const struct communicator *communicator)
{
	unsigned most = 0;

	for (unsigned member = 0; member < communicator->member_count; member++) {
		unsigned own = 0;

		for (unsigned rank = 0; rank < communicator->rank_count; rank++)
			own += communicator->member_of_rank[rank] == member;
		if (own * (communicator->rank_count - own) > most)
			most = own * (communicator->rank_count - own);
	}
	return most;
}

/* Whatever state it is in. */
static struct communicator *discard(struct communicator *communicator)
{
	if (!communicator)
		return NULL;
	for (unsigned i = 0; i < COMMUNICATOR_QUEUE; i++) {
		free(communicator->slots[i].requests);
		free(communicator->slots[i].marks);
	}
	free(communicator->retiring);
	free(communicator->members);
	free(communicator->member_of_rank);
	free(communicator->job);
	free(communicator);
	return NULL;
}
DEFINE_FREEP(struct communicator *, discard)

static int fill(struct communicator *communicator, const struct communicator_options *options)
{
	int r;

	communicator->nccl = options->nccl;
	communicator->ops = options->ops;
	communicator->owner = options->owner;
	communicator->job = strdup(options->job);
	communicator->epoch = options->epoch;
	communicator->id = options->id;
	communicator->rank_count = options->rank_count;
	communicator->member_count = options->member_count;
	communicator->local_count = options->local_count;
	communicator->staging_bytes = options->staging_bytes;
	communicator->creation_timeout_ns = options->creation_timeout_ns;
	communicator->operation_timeout_ns = options->operation_timeout_ns;
	if (!communicator->job)
		return -ENOMEM;
	r = copy_members(communicator, options);
	return r < 0 ? r : make_slots(communicator);
}

/* It has members that NCCL knows. */
static bool is_alive(const struct communicator *communicator)
{
	return communicator->state == COMMUNICATOR_CREATING || communicator->state == COMMUNICATOR_READY ||
	       communicator->state == COMMUNICATOR_CLOSING;
}

static void give_up(struct communicator *communicator, int status)
{
	step(communicator, COMMUNICATOR_GIVE_UP);
	communicator->status = status;
	log_debug("%s", communicator->problem);
	members_abort(communicator);
	operations_give_up(communicator);
}

int communicator_new(const struct communicator_options *options, uint64_t now_ns,
		     struct communicator **ret_communicator)
{
	_cleanup_(discardp) struct communicator *communicator = calloc(1, sizeof(*communicator));
	int r;

	assert(options->local_count > 0 && options->rank_count <= REDUCE_MAX_RANKS);
	assert(options->nccl || options->member_count == 1);
	r = communicator ? fill(communicator, options) : -ENOMEM;
	if (r < 0)
		return r;
	communicator->staged_most = count_staged(communicator);
	if (communicator->staging_bytes > 0 &&
	    communicator->staging_bytes < communicator->staged_most * PART_ELEMENTS * sizeof(float))
		return -EINVAL;

	communicator->began_ns = now_ns;
	r = members_create(communicator);
	if (r < 0)
		give_up(communicator, r);
	*ret_communicator = TAKE_PTR(communicator);
	return 0;
}

struct communicator *communicator_free(struct communicator *communicator)
{
	assert(!communicator || communicator->state == COMMUNICATOR_CLOSED ||
	       communicator->state == COMMUNICATOR_ABORTED);
	return discard(communicator);
}

enum communicator_state communicator_state(const struct communicator *communicator)
{
	return communicator->state;
}

const char *communicator_problem(const struct communicator *communicator)
{
	return communicator->problem;
}

int communicator_register(struct communicator *communicator, unsigned local, void *memory, size_t bytes)
{
	assert(communicator->state == COMMUNICATOR_READY && local < communicator->local_count);
	return members_register(communicator, &communicator->members[local], memory, bytes);
}

/* ---- What goes on ---- */

static bool is_late(const struct communicator *communicator, uint64_t now_ns)
{
	return now_ns - communicator->began_ns > communicator->creation_timeout_ns;
}

static int refuse_late(struct communicator *communicator, const char *call, const char *what)
{
	return communicator_refuse(communicator, -ETIMEDOUT,
				   "%s: its %u members have not %s within %" PRIu64
				   " s; %u of them are here. A daemon or a GPU of "
				   "another node does not answer, or this node looks for it in another "
				   "network: see its log, and "
				   "NCCL_SOCKET_IFNAME",
				   call, communicator->member_count, what,
				   communicator->creation_timeout_ns / 1000000000, communicator->local_count);
}

static int poll_creating(struct communicator *communicator, uint64_t now_ns)
{
	int r = members_settled(communicator);

	if (r == 0 && is_late(communicator, now_ns))
		return refuse_late(communicator, "ncclCommInitRankConfig", "found one another");
	if (r <= 0)
		return r;
	step(communicator, COMMUNICATOR_CREATED);
	/* It works without that, too. */
	for (unsigned i = 0; i < communicator->local_count; i++)
		if (communicator->members[i].staging &&
		    communicator_register(communicator, i, communicator->members[i].staging,
					  communicator->staging_bytes) < 0)
			log_debug("%s", communicator->problem);
	return operations_poll(communicator, now_ns);
}

static int poll_closing(struct communicator *communicator, uint64_t now_ns)
{
	int r = members_settled(communicator);

	if (r == 0 && is_late(communicator, now_ns))
		return refuse_late(communicator, "ncclCommFinalize", "taken leave of one another");
	if (r <= 0)
		return r;
	r = members_destroy(communicator);
	if (r == 0)
		step(communicator, COMMUNICATOR_FINALIZED);
	return r;
}

static uint64_t pause_of(const struct communicator *communicator)
{
	switch (communicator->state) {
	case COMMUNICATOR_CREATING:
	case COMMUNICATOR_CLOSING:
	case COMMUNICATOR_ABORTING:
		return WAITING_NS;
	case COMMUNICATOR_READY:
		return operations_are_under_way(communicator) ? BUSY_NS : IDLE_NS;
	default:
		return UINT64_MAX;
	}
}

uint64_t communicator_poll(struct communicator *communicator, uint64_t now_ns)
{
	static int (*const polls[COMMUNICATOR_STATES])(struct communicator *, uint64_t) = {
		[COMMUNICATOR_CREATING] = poll_creating,
		[COMMUNICATOR_READY] = operations_poll,
		[COMMUNICATOR_CLOSING] = poll_closing,
	};
	int r = 0;

	if (polls[communicator->state])
		r = polls[communicator->state](communicator, now_ns);
	if (r < 0)
		give_up(communicator, r);
	if (communicator->state == COMMUNICATOR_ABORTING && operations_drain(communicator))
		step(communicator, COMMUNICATOR_DRAINED);
	return pause_of(communicator);
}

int communicator_close(struct communicator *communicator, uint64_t now_ns)
{
	int r;

	if (communicator->state != COMMUNICATOR_READY || operations_are_wanted(communicator))
		return communicator_refuse(
			communicator, -EBUSY, "the communicator is %s, and has operations %s",
			communicator_table.states[communicator->state],
			operations_are_wanted(communicator) ? "that are not done" : "no more");
	communicator->began_ns = now_ns;
	step(communicator, COMMUNICATOR_CLOSE);
	r = members_finalize(communicator);
	if (r < 0)
		give_up(communicator, r);
	return 0;
}

void communicator_abort(struct communicator *communicator, const char *reason)
{
	if (!is_alive(communicator))
		return;
	give_up(communicator, communicator_refuse(communicator, -ECANCELED, "aborted: %s", reason));
}
