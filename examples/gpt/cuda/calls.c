#include "examples/gpt/cuda/calls.h"

#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"

bool cuda_calls_open(struct cuda_calls *ret_calls, struct dynamic_library *library)
{
	const struct dynamic_symbol symbols[] = {
		{ "cuInit", &ret_calls->init },
		{ "cuGetErrorString", &ret_calls->error_string },
		{ "cuDeviceGetCount", &ret_calls->device_count },
		{ "cuDeviceGet", &ret_calls->device },
		{ "cuDeviceGetName", &ret_calls->device_name },
		{ "cuDevicePrimaryCtxRetain", &ret_calls->context_retain },
		{ "cuDevicePrimaryCtxRelease_v2", &ret_calls->context_release },
		{ "cuCtxSetCurrent", &ret_calls->context_enter },
		{ "cuMemAlloc_v2", &ret_calls->allocate },
		{ "cuMemFree_v2", &ret_calls->free },
		{ "cuMemcpyAsync", &ret_calls->copy },
		{ "cuMemsetD8Async", &ret_calls->fill },
		{ "cuStreamCreate", &ret_calls->stream_create },
		{ "cuStreamDestroy_v2", &ret_calls->stream_destroy },
		{ "cuStreamSynchronize", &ret_calls->stream_synchronize },
		{ "cuModuleLoadData", &ret_calls->module_load },
		{ "cuModuleUnload", &ret_calls->module_unload },
		{ "cuModuleGetFunction", &ret_calls->module_function },
		{ "cuLaunchKernel", &ret_calls->launch },
	};

	return dynamic_library_open(library, "libcuda.so.1", symbols, ARRAY_LENGTH(symbols));
}

/* One that is of the same CUDA as the kernels, or of the one before; 11 has the same calls. */
bool blas_calls_open(struct blas_calls *ret_calls, struct dynamic_library *library)
{
	static const char *const files[] = { "libcublas.so.13", "libcublas.so.12", "libcublas.so.11" };
	const struct dynamic_symbol symbols[] = {
		{ "cublasCreate_v2", &ret_calls->create },
		{ "cublasDestroy_v2", &ret_calls->destroy },
		{ "cublasSetStream_v2", &ret_calls->set_stream },
		{ "cublasGemmStridedBatchedEx", &ret_calls->multiply },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(files); i++)
		if (dynamic_library_open(library, files[i], symbols, ARRAY_LENGTH(symbols)))
			return true;
	return dynamic_library_refuse(
		library, "none of libcublas.so.13, .12 and .11 can be loaded; the CUDA toolkit has it, and "
			 "PyTorch's packages in nvidia/cublas/lib, for LD_LIBRARY_PATH");
}
