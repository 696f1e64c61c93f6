/* A stand-in for NCCL, libnccl.so.2: of version $STANDIN_NCCL, as NCCL counts. Members are of one process.
 * What they move, nccl_group.c has. $STANDIN_FAILURES may also have "asynchronous", which members find in
 * their state. */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/gpu/nccl_own.h"

pthread_mutex_t nccl_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t nccl_changed = PTHREAD_COND_INITIALIZER;

static struct queue cliques = { &cliques, &cliques };
static const char *last_error = "";
static int members, ranges;

int ncclGetVersion(int *ret_version)
{
	*ret_version = (int)script_number("STANDIN_NCCL", 22803);
	return script_error("ncclGetVersion");
}

const char *ncclGetErrorString(int error)
{
	return "the stand-in's error";
}

const char *ncclGetLastError(struct ncclComm *comm)
{
	return last_error;
}

int nccl_refuse(int error, const char *text)
{
	last_error = text;
	return error;
}

/* ---- Members that find one another ---- */

int ncclGetUniqueId(struct nccl_id *ret_id)
{
	static unsigned count;
	struct nccl_id id = { "" };

	pthread_mutex_lock(&nccl_lock);
	count++;
	memcpy(id.bytes, &count, sizeof(count));
	pthread_mutex_unlock(&nccl_lock);
	*ret_id = id;
	return script_error("ncclGetUniqueId");
}

static struct clique *find_clique(const struct nccl_id *id, int count)
{
	struct clique *clique;

	QUEUE_FOREACH (link, &cliques) {
		clique = queue_entry(link, struct clique, link);
		if (memcmp(&clique->id, id, sizeof(*id)) == 0)
			return clique;
	}
	clique = calloc(1, sizeof(*clique));
	if (!clique)
		abort();
	clique->id = *id;
	clique->count = count;
	queue_init(&clique->messages);
	queue_push(&cliques, &clique->link);
	return clique;
}

static int check_place(const struct clique *clique, int count, int number, int device)
{
	if (clique->count != count)
		return nccl_refuse(NCCL_INVALID_USAGE, "members disagree how many they are");
	if (number < 0 || number >= count || count > CLIQUE_MAX || clique->is_member[number])
		return nccl_refuse(NCCL_INVALID_ARGUMENT, "no such member, or it is there already");
	for (int i = 0; i < count; i++)
		if (clique->is_member[i] && clique->devices[i] == device)
			return nccl_refuse(NCCL_INVALID_USAGE, "Duplicate GPU detected");
	return NCCL_DONE;
}

static int join(struct ncclComm *comm, int count, const struct nccl_id *id, int number)
{
	struct clique *clique = find_clique(id, count);
	int device, error;

	if (cuCtxGetCurrent(&comm->context) != DRIVER_DONE || !comm->context ||
	    cuCtxGetDevice(&device) != DRIVER_DONE)
		return nccl_refuse(NCCL_CUDA_ERROR, "no GPU is current");
	error = check_place(clique, count, number, device);
	if (error != NCCL_DONE)
		return error;
	comm->clique = clique;
	comm->number = number;
	comm->holders = 1;
	clique->is_member[number] = true;
	clique->devices[number] = device;
	clique->joined++;
	clique->holders++;
	members++;
	return NCCL_DONE;
}

int ncclCommInitRankConfig(struct ncclComm **ret_comm, int count, struct nccl_id id, int number,
			   struct nccl_config *config)
{
	int error = script_error("ncclCommInitRankConfig");
	struct ncclComm *comm;

	*ret_comm = NULL;
	if (error != NCCL_DONE)
		return error;
	if (config->magic != NCCL_CONFIG_MAGIC || config->size != sizeof(*config) || config->is_blocking != 0)
		return nccl_refuse(NCCL_INVALID_ARGUMENT, "the stand-in only has members that do not block");
	comm = calloc(1, sizeof(*comm));
	if (!comm)
		abort();
	queue_init(&comm->registered);
	pthread_mutex_lock(&nccl_lock);
	error = join(comm, count, &id, number);
	pthread_mutex_unlock(&nccl_lock);
	if (error != NCCL_DONE) {
		free(comm);
		return error;
	}
	*ret_comm = comm;
	return NCCL_IN_PROGRESS;
}

/* ---- State ---- */

int comm_state(struct ncclComm *comm)
{
	const struct clique *clique = comm->clique;

	if (clique->joined < clique->count || (comm->is_finalizing && clique->finalized < clique->count))
		return NCCL_IN_PROGRESS;
	return comm->launch ? NCCL_IN_PROGRESS : NCCL_DONE;
}

int ncclCommGetAsyncError(struct ncclComm *comm, int *ret_error)
{
	int error = script_error("ncclCommGetAsyncError");

	if (error != NCCL_DONE)
		return error;
	pthread_mutex_lock(&nccl_lock);
	if (comm->launch && comm->looks++ > 0)
		error = launch_submit(comm);
	if (error == NCCL_DONE)
		error = script_error("asynchronous");
	*ret_error = error == NCCL_DONE ? comm_state(comm) : error;
	pthread_mutex_unlock(&nccl_lock);
	return NCCL_DONE;
}

static int read_count(const int *place)
{
	int count;

	pthread_mutex_lock(&nccl_lock);
	count = *place;
	pthread_mutex_unlock(&nccl_lock);
	return count;
}

int standin_members(void)
{
	return read_count(&members);
}

/* ---- Memory that members know: it must be there as long ---- */

struct range {
	void *memory;
	size_t bytes;
	struct queue link;
};

static struct range *add_range(struct ncclComm *comm, void *memory, size_t bytes)
{
	struct range *range = malloc(sizeof(*range));

	if (!range)
		abort();
	*range = (struct range){ .memory = memory, .bytes = bytes };
	queue_push(&comm->registered, &range->link);
	ranges++;
	return range;
}

static bool has_range(struct ncclComm *comm, const void *handle)
{
	QUEUE_FOREACH (link, &comm->registered)
		if (queue_entry(link, struct range, link) == handle)
			return true;
	return false;
}

static void remove_range(struct ncclComm *comm, struct range *range)
{
	standin_expect(comm->clique->devices[comm->number], (uintptr_t)range->memory, range->bytes);
	queue_remove(&range->link);
	free(range);
	ranges--;
}

int standin_ranges(void)
{
	return read_count(&ranges);
}

/* ---- Leaving ---- */

static void leave(struct ncclComm *comm)
{
	members--;
	comm_release(comm);
}

void comm_release(struct ncclComm *comm)
{
	struct clique *clique = comm->clique;

	if (--comm->holders > 0)
		return;
	free(comm);
	if (--clique->holders > 0)
		return;
	queue_remove(&clique->link);
	free(clique);
}

static int enter(const char *call, struct ncclComm *comm, bool is_without_memory)
{
	int error = script_error(call);

	if (error != NCCL_DONE)
		return error;
	if (comm_state(comm) != NCCL_DONE)
		return nccl_refuse(NCCL_INVALID_ARGUMENT, "the previous operation is in progress");
	if (is_without_memory && !queue_is_empty(&comm->registered))
		return nccl_refuse(NCCL_INVALID_USAGE, "memory is registered");
	return NCCL_DONE;
}

int ncclCommFinalize(struct ncclComm *comm)
{
	int error;

	pthread_mutex_lock(&nccl_lock);
	error = enter(__func__, comm, true);
	if (error == NCCL_DONE) {
		comm->is_finalizing = true;
		comm->clique->finalized++;
		error = NCCL_IN_PROGRESS;
	}
	pthread_mutex_unlock(&nccl_lock);
	return error;
}

/* Where it fails by script the member is gone all the same. */
int ncclCommDestroy(struct ncclComm *comm)
{
	int error = script_error(__func__);

	pthread_mutex_lock(&nccl_lock);
	if (comm_state(comm) != NCCL_DONE || !queue_is_empty(&comm->registered))
		error = nccl_refuse(NCCL_INVALID_USAGE,
				    "an operation is in progress, or memory is registered");
	else
		leave(comm);
	pthread_mutex_unlock(&nccl_lock);
	return error;
}

/* As above. */
int ncclCommAbort(struct ncclComm *comm)
{
	pthread_mutex_lock(&nccl_lock);
	comm->is_aborted = true;
	while (!queue_is_empty(&comm->registered))
		remove_range(comm, queue_entry(queue_first(&comm->registered), struct range, link));
	if (comm->launch)
		launch_drop(comm);
	leave(comm);
	pthread_cond_broadcast(&nccl_changed);
	pthread_mutex_unlock(&nccl_lock);
	return script_error("ncclCommAbort");
}

int ncclCommRegister(struct ncclComm *comm, void *memory, size_t bytes, void **ret_handle)
{
	int error;

	pthread_mutex_lock(&nccl_lock);
	error = enter(__func__, comm, false);
	if (error == NCCL_DONE)
		*ret_handle = add_range(comm, memory, bytes);
	pthread_mutex_unlock(&nccl_lock);
	return error;
}

int ncclCommDeregister(struct ncclComm *comm, void *handle)
{
	int error;

	pthread_mutex_lock(&nccl_lock);
	error = enter(__func__, comm, false);
	if (error == NCCL_DONE && !has_range(comm, handle))
		error = nccl_refuse(NCCL_INVALID_ARGUMENT, "that memory is not registered");
	if (error == NCCL_DONE)
		remove_range(comm, handle);
	pthread_mutex_unlock(&nccl_lock);
	return error;
}
