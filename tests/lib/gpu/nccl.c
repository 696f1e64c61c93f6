/* A stand-in for NCCL, libnccl.so.2: of version $STANDIN_NCCL, as NCCL counts. */
#include "tests/lib/gpu/script.h"

API int ncclGetVersion(int *ret_version);
API const char *ncclGetErrorString(int error);

int ncclGetVersion(int *ret_version)
{
	*ret_version = (int)script_number("STANDIN_NCCL", 22803);
	return script_error("ncclGetVersion");
}

const char *ncclGetErrorString(int error)
{
	return "the stand-in's error";
}
