/* NCCL's calls that the stand-in has. collectives/nccl/nccl.h describes them. */
#ifndef TIERD_TESTS_LIB_GPU_NCCL_CALLS_H
#define TIERD_TESTS_LIB_GPU_NCCL_CALLS_H

#include "collectives/nccl/nccl.h"
#include "tests/lib/gpu/script.h"

API int ncclGetVersion(int *ret_version);
API const char *ncclGetErrorString(int error);
API const char *ncclGetLastError(struct ncclComm *comm);

API int ncclGetUniqueId(struct nccl_id *ret_id);
API int ncclCommInitRankConfig(struct ncclComm **ret_comm, int count, struct nccl_id id, int number,
			       struct nccl_config *config);
API int ncclCommGetAsyncError(struct ncclComm *comm, int *ret_error);
API int ncclCommFinalize(struct ncclComm *comm);
API int ncclCommDestroy(struct ncclComm *comm);
API int ncclCommAbort(struct ncclComm *comm);
API int ncclCommRegister(struct ncclComm *comm, void *memory, size_t bytes, void **ret_handle);
API int ncclCommDeregister(struct ncclComm *comm, void *handle);

API int ncclGroupStart(void);
API int ncclGroupEnd(void);
API int ncclAllGather(const void *from, void *to, size_t count, int type, struct ncclComm *comm,
		      void *stream);
API int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, struct ncclComm *comm,
		      void *stream);
API int ncclSend(const void *from, size_t count, int type, int peer, struct ncclComm *comm, void *stream);
API int ncclRecv(void *to, size_t count, int type, int peer, struct ncclComm *comm, void *stream);

/* Not NCCL's. How many members there are that were neither destroyed nor aborted. */
API int standin_members(void);
/* How many ranges of memory they know. */
API int standin_ranges(void);

#endif
