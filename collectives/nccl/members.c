/* The members that this process has of a communicator: NCCL's calls for them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "collectives/nccl/own.h"
#include "common/log.h"

/* What NCCL says of an error. The text that it has last may be another thread's or an older one; it is the
 * best there is. */
static void write_error(const struct nccl *nccl, struct ncclComm *comm, int error, char *text, size_t size)
{
	const char *last = nccl->last_error(comm);

	snprintf(text, size, "%s (error %d)%s%s; %s", nccl->error_string(error), error,
		 last && last[0] ? ": " : "", last ? last : "", nccl_remedy(error));
}

int communicator_make_id(const struct nccl *nccl, struct nccl_id *ret_id, char *problem, size_t size)
{
	struct nccl_id id;
	int error = nccl->make_id(&id);
	char text[256];

	if (nccl_has_failed(error)) {
		write_error(nccl, NULL, error, text, sizeof(text));
		snprintf(problem, size, "ncclGetUniqueId: %s", text);
		return nccl_errno(error);
	}
	*ret_id = id;
	return 0;
}

static int refuse(struct communicator *communicator, const char *call, const struct member *member, int error)
{
	char text[384], place[128] = "";

	if (member)
		communicator_write_member(communicator, member, place, sizeof(place));
	write_error(communicator->nccl, member ? member->comm : NULL, error, text, sizeof(text));
	return communicator_refuse(communicator, nccl_errno(error), "%s%s%s: %s", call, member ? " on " : "",
				   place, text);
}

int members_group(struct communicator *communicator, const char *call,
		  int (*put)(struct communicator *communicator, struct member *member, void *argument),
		  void *argument)
{
	const struct nccl *nccl = communicator->nccl;
	int error = NCCL_DONE, r = 0;

	if (!nccl)
		return 0;
	error = nccl->group_start();
	if (nccl_has_failed(error))
		return refuse(communicator, "ncclGroupStart", NULL, error);
	for (unsigned i = 0; i < communicator->local_count && r == 0; i++) {
		error = put(communicator, &communicator->members[i], argument);
		if (error < 0)
			r = error;
		else if (nccl_has_failed(error))
			r = refuse(communicator, call, &communicator->members[i], error);
	}
	/* Also after a failure: the thread would stay in the group. */
	error = nccl->group_end();
	if (r == 0 && nccl_has_failed(error)) {
		char calls[64];

		snprintf(calls, sizeof(calls), "ncclGroupEnd after %s", call);
		r = refuse(communicator, calls, NULL, error);
	}
	return r;
}

/* ---- Creation ---- */

static int create(struct communicator *communicator, struct member *member, void *argument)
{
	struct nccl_config config = {
		.size = sizeof(config),
		.magic = NCCL_CONFIG_MAGIC,
		.version = NCCL_CONFIG_VERSION,
		.is_blocking = 0,
		.cluster_size = NCCL_UNDEFINED,
		.least_blocks = NCCL_UNDEFINED,
		.most_blocks = NCCL_UNDEFINED,
		.is_shared_by_split = NCCL_UNDEFINED,
	};
	int r = communicator->ops->use(communicator->owner, member->gpu);

	if (r < 0)
		return communicator_refuse(
			communicator, r,
			"GPU %d cannot be used: %s; the kernel's log may say why (journalctl -k)",
			member->gpu, strerror(-r));
	return communicator->nccl->create(&member->comm, (int)communicator->member_count, communicator->id,
					  (int)member->number, &config);
}

int members_create(struct communicator *communicator)
{
	return members_group(communicator, "ncclCommInitRankConfig", create, NULL);
}

int members_settled(struct communicator *communicator)
{
	int is_settled = 1;

	for (unsigned i = 0; communicator->nccl && i < communicator->local_count; i++) {
		struct member *member = &communicator->members[i];
		int state = NCCL_DONE, error = communicator->nccl->state(member->comm, &state);

		if (nccl_has_failed(error))
			return refuse(communicator, "ncclCommGetAsyncError", member, error);
		if (nccl_has_failed(state))
			return refuse(communicator, "NCCL has failed", member, state);
		if (state == NCCL_IN_PROGRESS)
			is_settled = 0;
	}
	return is_settled;
}

/* ---- Memory that NCCL knows ---- */

int members_register(struct communicator *communicator, struct member *member, void *memory, size_t bytes)
{
	void *handle = NULL;
	int error;

	if (!communicator->nccl)
		return 0;
	if (member->handle_count == COMMUNICATOR_RANGES)
		return communicator_refuse(communicator, -ENOBUFS,
					   "GPU %d has %d registered ranges, and no more", member->gpu,
					   COMMUNICATOR_RANGES);
	error = communicator->nccl->enroll(member->comm, memory, bytes, &handle);
	if (nccl_has_failed(error))
		return refuse(communicator, "ncclCommRegister", member, error);
	/* NULL: it does not support that here. */
	if (handle)
		member->handles[member->handle_count++] = handle;
	return 0;
}

static int withdraw(struct communicator *communicator, struct member *member)
{
	while (member->handle_count > 0) {
		void *handle = member->handles[--member->handle_count];
		int error = communicator->nccl->withdraw(member->comm, handle);

		if (nccl_has_failed(error))
			return refuse(communicator, "ncclCommDeregister", member, error);
	}
	return 0;
}

/* ---- The end ---- */

static int finalize(struct communicator *communicator, struct member *member, void *argument)
{
	return communicator->nccl->finalize(member->comm);
}

int members_finalize(struct communicator *communicator)
{
	int r = 0;

	for (unsigned i = 0; i < communicator->local_count && r == 0; i++)
		r = withdraw(communicator, &communicator->members[i]);
	return r < 0 ? r : members_group(communicator, "ncclCommFinalize", finalize, NULL);
}

static int destroy(struct communicator *communicator, struct member *member, void *argument)
{
	struct ncclComm *comm = TAKE_PTR(member->comm);

	return communicator->nccl->destroy(comm);
}

int members_destroy(struct communicator *communicator)
{
	return members_group(communicator, "ncclCommDestroy", destroy, NULL);
}

/* One that fails is gone all the same: NCCL says nothing of a second try. */
void members_abort(struct communicator *communicator)
{
	const struct nccl *nccl = communicator->nccl;
	bool is_group = nccl && nccl->group_start() == NCCL_DONE;

	for (unsigned i = 0; nccl && i < communicator->local_count; i++) {
		struct ncclComm *comm = TAKE_PTR(communicator->members[i].comm);
		int error = comm ? nccl->abort(comm) : NCCL_DONE;

		if (nccl_has_failed(error))
			log_debug("ncclCommAbort on GPU %d: error %d", communicator->members[i].gpu, error);
	}
	if (is_group)
		(void)nccl->group_end();
}
