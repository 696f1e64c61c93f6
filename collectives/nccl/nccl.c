#include "collectives/nccl/nccl.h"

#include <errno.h>
#include <stdio.h>

#include "common/cleanup.h"

/* NCCL counts 10000 a major version, 100 a minor one and 1 a patch. The first that registers buffers of its
 * callers (ncclCommRegister). */
#define OLDEST_VERSION 21900

static void write_version(int version, char *text, size_t size)
{
	snprintf(text, size, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

static bool check_version(const struct nccl *nccl, struct dynamic_library *library)
{
	char oldest[32];
	int version = 0, error = nccl->version(&version);

	if (error != NCCL_DONE)
		return dynamic_library_refuse(library, "it does not start: %s (error %d)",
					      nccl->error_string(error), error);
	write_version(version, library->version, sizeof(library->version));
	write_version(OLDEST_VERSION, oldest, sizeof(oldest));
	if (version < OLDEST_VERSION)
		return dynamic_library_refuse(library, "it is version %s, and tierd needs %s or newer",
					      library->version, oldest);
	return true;
}

bool nccl_open(struct nccl *ret_nccl, struct dynamic_library *library)
{
	const struct dynamic_symbol symbols[] = {
		{ "ncclGetVersion", &ret_nccl->version },
		{ "ncclGetErrorString", &ret_nccl->error_string },
		{ "ncclGetLastError", &ret_nccl->last_error },
		{ "ncclGetUniqueId", &ret_nccl->make_id },
		{ "ncclCommInitRankConfig", &ret_nccl->create },
		{ "ncclCommGetAsyncError", &ret_nccl->state },
		{ "ncclCommFinalize", &ret_nccl->finalize },
		{ "ncclCommDestroy", &ret_nccl->destroy },
		{ "ncclCommAbort", &ret_nccl->abort },
		{ "ncclCommRegister", &ret_nccl->enroll },
		{ "ncclCommDeregister", &ret_nccl->withdraw },
		{ "ncclGroupStart", &ret_nccl->group_start },
		{ "ncclGroupEnd", &ret_nccl->group_end },
		{ "ncclAllGather", &ret_nccl->all_gather },
		{ "ncclBroadcast", &ret_nccl->broadcast },
		{ "ncclSend", &ret_nccl->send },
		{ "ncclRecv", &ret_nccl->receive },
	};

	return dynamic_library_open(library, "libnccl.so.2", symbols, ARRAY_LENGTH(symbols)) &&
	       check_version(ret_nccl, library);
}

struct meaning {
	int error; /* of ours */
	const char *remedy;
};

static struct meaning find_meaning(int error)
{
	static const struct meaning meanings[] = {
		[NCCL_CUDA_ERROR] = { -EIO, "the kernel's log may have an Xid error of the GPU "
					    "(journalctl -k)" },
		[NCCL_SYSTEM_ERROR] = { -EIO, "/dev/shm or a limit (ulimit -a) may be too small; "
					      "NCCL_DEBUG=INFO in tierd's environment says what failed" },
		[NCCL_INTERNAL_ERROR] = { -EIO, "NCCL_DEBUG=INFO in tierd's environment says what failed" },
		[NCCL_INVALID_ARGUMENT] = { -EINVAL, "NCCL_DEBUG=WARN in tierd's environment says which "
						     "argument" },
		[NCCL_INVALID_USAGE] = { -EINVAL, "NCCL_DEBUG=WARN in tierd's environment says why" },
		[NCCL_REMOTE_ERROR] = { -ECONNRESET,
					"another member has ended, or its network has failed: the "
					"log of its node says more" },
	};
	bool is_known = error > 0 && (size_t)error < ARRAY_LENGTH(meanings);

	return meanings[is_known ? error : NCCL_INTERNAL_ERROR];
}

int nccl_errno(int error)
{
	return find_meaning(error).error;
}

const char *nccl_remedy(int error)
{
	return find_meaning(error).remedy;
}
