#include "offload/cuda/driver.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/cleanup.h"

/* CUDA counts 1000 a major version, and 10 a minor one. The first driver that has all calls of GPU memory
 * that processes share, on all architectures we have kernels for but the newest. */
#define OLDEST_VERSION 12000

const char *driver_text(const struct driver *driver, int error)
{
	const char *text = NULL;

	return driver->error_string(error, &text) == DRIVER_DONE && text ? text : "unknown error";
}

static bool start(const struct driver *driver, struct dynamic_library *library)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	int version = 0, error = driver->version(&version);

	if (error == DRIVER_DONE)
		snprintf(library->version, sizeof(library->version), "%d.%d", version / 1000,
			 version % 1000 / 10);
	if (error == DRIVER_DONE && version < OLDEST_VERSION)
		return dynamic_library_refuse(
			library, "it is for CUDA %s, and tierd needs one for CUDA %d.%d or newer",
			library->version, OLDEST_VERSION / 1000, OLDEST_VERSION % 1000 / 10);
	if (error == DRIVER_DONE)
		error = driver->init(0);
	if (error == DRIVER_NO_DEVICE && visible)
		return dynamic_library_refuse(library, "it shows no GPU: $CUDA_VISIBLE_DEVICES is \"%s\"",
					      visible);
	if (error != DRIVER_DONE)
		return dynamic_library_refuse(library, "it does not start: %s (error %d)",
					      driver_text(driver, error), error);
	return true;
}

bool driver_open(struct driver *ret_driver, struct dynamic_library *library)
{
	/* "_v2" is what the reference's name means since long. */
	const struct dynamic_symbol symbols[] = {
		{ "cuInit", &ret_driver->init },
		{ "cuDriverGetVersion", &ret_driver->version },
		{ "cuGetErrorString", &ret_driver->error_string },
		{ "cuDeviceGetCount", &ret_driver->device_count },
		{ "cuDeviceGet", &ret_driver->device },
		{ "cuDeviceGetName", &ret_driver->device_name },
		{ "cuDeviceTotalMem_v2", &ret_driver->device_bytes },
		{ "cuDeviceGetUuid_v2", &ret_driver->device_uuid },
		{ "cuDeviceGetAttribute", &ret_driver->device_attribute },
		{ "cuDeviceCanAccessPeer", &ret_driver->device_reaches },
		{ "cuDevicePrimaryCtxSetFlags_v2", &ret_driver->context_flags },
		{ "cuDevicePrimaryCtxRetain", &ret_driver->context_retain },
		{ "cuDevicePrimaryCtxRelease_v2", &ret_driver->context_release },
		{ "cuDevicePrimaryCtxGetState", &ret_driver->context_state },
		{ "cuCtxSetCurrent", &ret_driver->context_enter },
		{ "cuCtxGetCurrent", &ret_driver->context_current },
		{ "cuCtxSynchronize", &ret_driver->context_synchronize },
		{ "cuMemGetInfo_v2", &ret_driver->memory_info },
		{ "cuMemGetAllocationGranularity", &ret_driver->memory_granularity },
		{ "cuMemCreate", &ret_driver->memory_create },
		{ "cuMemRelease", &ret_driver->memory_release },
		{ "cuMemExportToShareableHandle", &ret_driver->memory_export },
		{ "cuMemImportFromShareableHandle", &ret_driver->memory_import },
		{ "cuMemAddressReserve", &ret_driver->address_reserve },
		{ "cuMemAddressFree", &ret_driver->address_free },
		{ "cuMemMap", &ret_driver->memory_map },
		{ "cuMemUnmap", &ret_driver->memory_unmap },
		{ "cuMemSetAccess", &ret_driver->memory_allow },
		{ "cuMemHostRegister_v2", &ret_driver->host_register },
		{ "cuMemHostUnregister", &ret_driver->host_unregister },
		{ "cuStreamCreate", &ret_driver->stream_create },
		{ "cuStreamDestroy_v2", &ret_driver->stream_destroy },
		{ "cuStreamSynchronize", &ret_driver->stream_synchronize },
		{ "cuStreamGetCtx", &ret_driver->stream_context },
		{ "cuStreamWaitEvent", &ret_driver->stream_wait },
		{ "cuMemcpyAsync", &ret_driver->copy },
		{ "cuMemsetD8Async", &ret_driver->fill },
		{ "cuModuleLoadData", &ret_driver->module_load },
		{ "cuModuleUnload", &ret_driver->module_unload },
		{ "cuModuleGetFunction", &ret_driver->module_function },
		{ "cuLaunchKernel", &ret_driver->launch },
		{ "cuEventCreate", &ret_driver->event_create },
		{ "cuEventDestroy_v2", &ret_driver->event_destroy },
		{ "cuEventRecord", &ret_driver->event_record },
		{ "cuEventQuery", &ret_driver->event_query },
		{ "cuIpcGetEventHandle", &ret_driver->event_export },
		{ "cuIpcOpenEventHandle", &ret_driver->event_import },
	};

	return dynamic_library_open(library, "libcuda.so.1", symbols, ARRAY_LENGTH(symbols)) &&
	       start(ret_driver, library);
}
