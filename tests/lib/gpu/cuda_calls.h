/* The calls of the GPU driver that the stand-in has, for it and for other stand-ins. Those that tierd makes
 * are described by offload/cuda/driver.h. */
#ifndef TIERD_TESTS_LIB_GPU_CUDA_CALLS_H
#define TIERD_TESTS_LIB_GPU_CUDA_CALLS_H

#include "offload/cuda/driver.h"
#include "tests/lib/gpu/script.h"

API int cuInit(unsigned flags);
API int cuDriverGetVersion(int *ret_version);
API int cuGetErrorString(int error, const char **ret_text);
API int cuDeviceGetCount(int *ret_count);
API int cuDeviceGet(int *ret_device, int ordinal);
API int cuDeviceGetName(char *name, int size, int device);
API int cuDeviceTotalMem_v2(size_t *ret_bytes, int device);
API int cuDeviceGetUuid_v2(struct driver_uuid *ret_uuid, int device);
API int cuDeviceGetAttribute(int *ret_value, int attribute, int device);
API int cuDeviceCanAccessPeer(int *ret_reaches, int device, int peer);

API int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags);
API int cuDevicePrimaryCtxRetain(struct driver_context **ret_context, int device);
API int cuDevicePrimaryCtxRelease_v2(int device);
API int cuDevicePrimaryCtxGetState(int device, unsigned *ret_flags, int *ret_is_there);
API int cuCtxSetCurrent(struct driver_context *context);
API int cuCtxGetCurrent(struct driver_context **ret_context);
API int cuCtxSynchronize(void);
API int cuCtxGetDevice(int *ret_device);
API int cuCtxGetStreamPriorityRange(int *ret_least, int *ret_greatest);

API int cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total);
API int cuMemGetAllocationGranularity(size_t *ret_bytes, const struct driver_memory_kind *kind, int which);
API int cuMemCreate(driver_allocation *ret_allocation, size_t bytes, const struct driver_memory_kind *kind,
		    unsigned long long flags);
API int cuMemRelease(driver_allocation allocation);
API int cuMemExportToShareableHandle(void *ret_fd, driver_allocation allocation, int type,
				     unsigned long long flags);
API int cuMemImportFromShareableHandle(driver_allocation *ret_allocation, void *fd, int type);
API int cuMemAddressReserve(driver_address *ret_address, size_t bytes, size_t alignment, driver_address wish,
			    unsigned long long flags);
API int cuMemAddressFree(driver_address address, size_t bytes);
API int cuMemMap(driver_address address, size_t bytes, size_t offset, driver_allocation allocation,
		 unsigned long long flags);
API int cuMemUnmap(driver_address address, size_t bytes);
API int cuMemSetAccess(driver_address address, size_t bytes, const struct driver_access *accesses,
		       size_t count);
API int cuMemAlloc_v2(driver_address *ret_address, size_t bytes);
API int cuMemFree_v2(driver_address address);
API int cuMemHostRegister_v2(void *base, size_t bytes, unsigned flags);
API int cuMemHostUnregister(void *base);
API int cuMemHostGetDevicePointer_v2(driver_address *ret_address, void *base, unsigned flags);

API int cuStreamCreate(struct driver_stream **ret_stream, unsigned flags);
API int cuStreamCreateWithPriority(struct driver_stream **ret_stream, unsigned flags, int priority);
API int cuStreamDestroy_v2(struct driver_stream *stream);
API int cuStreamSynchronize(struct driver_stream *stream);
API int cuStreamGetCtx(struct driver_stream *stream, struct driver_context **ret_context);
API int cuStreamQuery(struct driver_stream *stream);
API int cuStreamWaitEvent(struct driver_stream *stream, struct driver_event *event, unsigned flags);
API int cuMemcpyAsync(driver_address to, driver_address from, size_t bytes, struct driver_stream *stream);
API int cuMemsetD8Async(driver_address to, unsigned char value, size_t bytes, struct driver_stream *stream);
API int cuLaunchHostFunc(struct driver_stream *stream, void (*function)(void *argument), void *argument);

API int cuModuleLoadData(struct driver_module **ret_module, const void *image);
API int cuModuleUnload(struct driver_module *module);
API int cuModuleGetFunction(struct driver_function **ret_function, struct driver_module *module,
			    const char *name);
API int cuLaunchKernel(struct driver_function *function, unsigned blocks_x, unsigned blocks_y,
		       unsigned blocks_z, unsigned threads_x, unsigned threads_y, unsigned threads_z,
		       unsigned shared_bytes, struct driver_stream *stream, void **parameters, void **extra);

API int cuEventCreate(struct driver_event **ret_event, unsigned flags);
API int cuEventDestroy_v2(struct driver_event *event);
API int cuEventRecord(struct driver_event *event, struct driver_stream *stream);
API int cuEventQuery(struct driver_event *event);
API int cuEventSynchronize(struct driver_event *event);
API int cuIpcGetEventHandle(struct driver_event_handle *ret_handle, struct driver_event *event);
API int cuIpcOpenEventHandle(struct driver_event **ret_event, struct driver_event_handle handle);

/* Not NVIDIA's. A host function that plays a kernel was just launched in the stream, by this thread: what it
 * reads and writes, of GPU memory or of host memory that is registered. The detector of races compares that
 * with what other streams do. */
API void standin_touch(struct driver_stream *stream, driver_address address, size_t bytes, bool is_write);

/* Ends the process, unless all of that is mapped for the GPU: somebody still knows it. */
API void standin_expect(int device, driver_address address, size_t bytes);

/* Waits until the stream has done what it was told, as its next task would: it makes nothing safe that the
 * process does. */
API int standin_await(struct driver_stream *stream);

/* All streams stop before their next task, until they are told otherwise. */
API void standin_hold(bool is_held);

#endif
