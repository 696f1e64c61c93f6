/* Groups of calls of the stand-in for NCCL, and what they move. A group is one task of each of its streams:
 * it sends all, receives all, and waits until all it has sent is received. Members pair what they send and
 * receive by its order; where kind or size differ, both wait until they are aborted, as NCCL's kernels do. */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/gpu/nccl_own.h"

#define CALLS_MAX 8192

enum call_kind { CALL_ALL_GATHER, CALL_BROADCAST, CALL_POINT_TO_POINT };

struct transfer {
	enum call_kind kind;
	bool is_send;
	int peer;
	char *memory;
	size_t bytes;
};

struct message {
	enum call_kind kind;
	int from, to;
	const char *memory;
	size_t bytes;
	bool is_received;
	struct queue link; /* in the clique */
};

struct launch {
	struct ncclComm *comm;
	struct driver_stream *stream;
	unsigned count;
	struct transfer transfers[CALLS_MAX];
	struct launch *next; /* in the group */
};

static _Thread_local unsigned depth;
static _Thread_local struct launch *group;

/* ---- On a stream ---- */

static struct message *send(const struct launch *launch, const struct transfer *transfer)
{
	struct message *message = malloc(sizeof(*message));

	if (!message)
		abort();
	*message = (struct message){ .kind = transfer->kind,
				     .from = launch->comm->number,
				     .to = transfer->peer,
				     .memory = transfer->memory,
				     .bytes = transfer->bytes };
	queue_push(&launch->comm->clique->messages, &message->link);
	return message;
}

static struct message *find_first(const struct ncclComm *comm, int from)
{
	QUEUE_FOREACH (link, &comm->clique->messages) {
		struct message *message = queue_entry(link, struct message, link);

		if (message->from == from && message->to == comm->number && !message->is_received)
			return message;
	}
	return NULL;
}

static void receive(const struct launch *launch, const struct transfer *transfer)
{
	for (;;) {
		struct message *message = find_first(launch->comm, transfer->peer);

		if (launch->comm->is_aborted)
			return;
		if (message && message->kind == transfer->kind && message->bytes == transfer->bytes) {
			memcpy(transfer->memory, message->memory, transfer->bytes);
			message->is_received = true;
			pthread_cond_broadcast(&nccl_changed);
			return;
		}
		pthread_cond_wait(&nccl_changed, &nccl_lock);
	}
}

static void wait_until_received(const struct launch *launch, struct message *message)
{
	while (!message->is_received && !launch->comm->is_aborted)
		pthread_cond_wait(&nccl_changed, &nccl_lock);
	queue_remove(&message->link);
	free(message);
}

static void run(void *argument)
{
	struct launch *launch = argument;
	struct message **messages = calloc(launch->count + 1, sizeof(struct message *));

	if (!messages)
		abort();
	pthread_mutex_lock(&nccl_lock);
	for (unsigned i = 0; i < launch->count; i++)
		if (launch->transfers[i].is_send)
			messages[i] = send(launch, &launch->transfers[i]);
	pthread_cond_broadcast(&nccl_changed);
	for (unsigned i = 0; i < launch->count; i++)
		if (!launch->transfers[i].is_send)
			receive(launch, &launch->transfers[i]);
	for (unsigned i = 0; i < launch->count; i++)
		if (messages[i])
			wait_until_received(launch, messages[i]);
	comm_release(launch->comm);
	pthread_mutex_unlock(&nccl_lock);
	free(messages);
	free(launch);
}

int launch_submit(struct ncclComm *comm)
{
	struct launch *launch = TAKE_PTR(comm->launch);
	struct driver_context *context = NULL;
	int error;

	cuCtxGetCurrent(&context);
	error = cuCtxSetCurrent(comm->context);
	if (error == DRIVER_DONE)
		error = cuLaunchHostFunc(launch->stream, run, launch);
	/* It runs when the lock is given back. */
	for (unsigned i = 0; error == DRIVER_DONE && i < launch->count; i++)
		standin_touch(launch->stream, (uintptr_t)launch->transfers[i].memory,
			      launch->transfers[i].bytes, !launch->transfers[i].is_send);
	cuCtxSetCurrent(context);
	if (error == DRIVER_DONE)
		return NCCL_DONE;
	free(launch);
	comm_release(comm);
	return nccl_refuse(NCCL_CUDA_ERROR, "the stream takes no kernel");
}

void launch_drop(struct ncclComm *comm)
{
	free(TAKE_PTR(comm->launch));
	comm_release(comm);
}

/* ---- Calls ---- */

int ncclGroupStart(void)
{
	int error = script_error("ncclGroupStart");

	depth += error == NCCL_DONE;
	return error;
}

/* What it has of a group that fails is lost. */
int ncclGroupEnd(void)
{
	int error = script_error("ncclGroupEnd");
	bool is_under_way = false;

	if (depth == 0)
		return nccl_refuse(NCCL_INVALID_USAGE, "not in a group");
	if (--depth > 0)
		return error;
	pthread_mutex_lock(&nccl_lock);
	while (group) {
		struct launch *launch = group;

		group = launch->next;
		if (error == NCCL_DONE) {
			launch->comm->launch = launch;
			launch->comm->looks = 0;
			launch->comm->holders++;
			is_under_way = true;
		} else {
			free(launch);
		}
	}
	pthread_mutex_unlock(&nccl_lock);
	return error == NCCL_DONE && is_under_way ? NCCL_IN_PROGRESS : error;
}

static struct launch *launch_of(struct ncclComm *comm, struct driver_stream *stream)
{
	struct launch *launch = group;

	while (launch && launch->comm != comm)
		launch = launch->next;
	if (launch)
		return launch;
	launch = malloc(sizeof(*launch));
	if (!launch)
		abort();
	launch->comm = comm;
	launch->stream = stream;
	launch->count = 0;
	launch->next = group;
	group = launch;
	return launch;
}

static int enter(const char *call, struct ncclComm *comm, int type, int peer)
{
	int error = script_error(call), state;

	if (error != NCCL_DONE)
		return error;
	pthread_mutex_lock(&nccl_lock);
	state = comm_state(comm);
	pthread_mutex_unlock(&nccl_lock);
	if (depth == 0 || type != NCCL_BYTE || peer < 0 || peer >= comm->clique->count)
		return nccl_refuse(NCCL_INVALID_ARGUMENT,
				   "outside of a group, of another type, or without peer");
	if (state != NCCL_DONE)
		return nccl_refuse(NCCL_INVALID_ARGUMENT, "the previous operation is in progress");
	return NCCL_DONE;
}

static void add(struct ncclComm *comm, void *stream, const struct transfer *transfer)
{
	struct launch *launch = launch_of(comm, stream);

	if (launch->count == CALLS_MAX || launch->stream != stream)
		abort();
	launch->transfers[launch->count++] = *transfer;
}

static void add_to_others(struct ncclComm *comm, void *stream, struct transfer transfer)
{
	transfer.is_send = true;
	for (transfer.peer = 0; transfer.peer < comm->clique->count; transfer.peer++)
		if (transfer.peer != comm->number)
			add(comm, stream, &transfer);
}

int ncclAllGather(const void *from, void *to, size_t count, int type, struct ncclComm *comm, void *stream)
{
	int error = enter(__func__, comm, type, 0);

	if (error != NCCL_DONE)
		return error;
	if (from != (char *)to + (size_t)comm->number * count)
		return nccl_refuse(NCCL_INVALID_USAGE, "the stand-in gathers in place");
	add_to_others(comm, stream,
		      (struct transfer){ .kind = CALL_ALL_GATHER, .memory = (char *)from, .bytes = count });
	for (int peer = 0; peer < comm->clique->count; peer++)
		if (peer != comm->number)
			add(comm, stream,
			    &(struct transfer){ .kind = CALL_ALL_GATHER,
						.peer = peer,
						.memory = (char *)to + (size_t)peer * count,
						.bytes = count });
	return NCCL_DONE;
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, struct ncclComm *comm,
		  void *stream)
{
	int error = enter(__func__, comm, type, root);
	struct transfer transfer = { .kind = CALL_BROADCAST, .peer = root, .memory = to, .bytes = count };

	if (error != NCCL_DONE)
		return error;
	if (from != to)
		return nccl_refuse(NCCL_INVALID_USAGE, "the stand-in broadcasts in place");
	if (root == comm->number)
		add_to_others(comm, stream, transfer);
	else
		add(comm, stream, &transfer);
	return NCCL_DONE;
}

int ncclSend(const void *from, size_t count, int type, int peer, struct ncclComm *comm, void *stream)
{
	int error = enter(__func__, comm, type, peer);

	if (error == NCCL_DONE)
		add(comm, stream,
		    &(struct transfer){ .kind = CALL_POINT_TO_POINT,
					.is_send = true,
					.peer = peer,
					.memory = (char *)from,
					.bytes = count });
	return error;
}

int ncclRecv(void *to, size_t count, int type, int peer, struct ncclComm *comm, void *stream)
{
	int error = enter(__func__, comm, type, peer);

	if (error == NCCL_DONE)
		add(comm, stream,
		    &(struct transfer){
			    .kind = CALL_POINT_TO_POINT, .peer = peer, .memory = to, .bytes = count });
	return error;
}
