/* What we declare of the GPU driver is what its header has. Where there is a toolkit. */
#include <cuda.h>

#include "offload/cuda/driver.h"
#include "tests/gpu/gpu_calls.h"
#include "tests/gpu/hardware.h"
#include "tests/unit/test.h"

/* The name that a name of the reference stands for. */
#define NAME(name) NAME_(name)
#define NAME_(name) #name

/* Fails to compile where the numbers of arguments differ, what they point to, or the size of the result. An
 * enumeration of theirs is an int of ours. */
#define EXPECT_CALL(place, call, ...)                                                                        \
	do {                                                                                                 \
		_Static_assert(sizeof(call(__VA_ARGS__)) == sizeof((place)(__VA_ARGS__)), #call);            \
	} while (0)

static void the_calls_about_gpus_take_the_same(void **state)
{
	struct driver driver;
	const char *text;
	size_t bytes;
	char name[1];
	int number;

	EXPECT_CALL(driver.init, cuInit, 0U);
	EXPECT_CALL(driver.version, cuDriverGetVersion, &number);
	EXPECT_CALL(driver.error_string, cuGetErrorString, CUDA_ERROR_UNKNOWN, &text);
	EXPECT_CALL(driver.device_count, cuDeviceGetCount, &number);
	EXPECT_CALL(driver.device, cuDeviceGet, &number, 0);
	EXPECT_CALL(driver.device_name, cuDeviceGetName, name, 1, 0);
	EXPECT_CALL(driver.device_bytes, cuDeviceTotalMem, &bytes, 0);
	EXPECT_CALL(driver.device_uuid, cuDeviceGetUuid, NULL, 0);
	EXPECT_CALL(driver.device_attribute, cuDeviceGetAttribute, &number, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
		    0);
	EXPECT_CALL(driver.device_reaches, cuDeviceCanAccessPeer, &number, 0, 1);
	EXPECT_CALL(driver.context_flags, cuDevicePrimaryCtxSetFlags, 0, 4U);
	EXPECT_CALL(driver.context_retain, cuDevicePrimaryCtxRetain, NULL, 0);
	EXPECT_CALL(driver.context_release, cuDevicePrimaryCtxRelease, 0);
	EXPECT_CALL(driver.context_state, cuDevicePrimaryCtxGetState, 0, NULL, &number);
	EXPECT_CALL(driver.context_enter, cuCtxSetCurrent, NULL);
	EXPECT_CALL(driver.context_current, cuCtxGetCurrent, NULL);
	EXPECT_CALL(driver.context_synchronize, cuCtxSynchronize);
}

static void the_calls_about_memory_take_the_same(void **state)
{
	unsigned long long address;
	struct driver driver;
	size_t bytes;
	int fd;

	EXPECT_CALL(driver.memory_info, cuMemGetInfo, &bytes, &bytes);
	EXPECT_CALL(driver.memory_granularity, cuMemGetAllocationGranularity, &bytes, NULL,
		    CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	EXPECT_CALL(driver.memory_create, cuMemCreate, &address, bytes, NULL, 0ULL);
	EXPECT_CALL(driver.memory_release, cuMemRelease, address);
	EXPECT_CALL(driver.memory_export, cuMemExportToShareableHandle, &fd, address,
		    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ULL);
	EXPECT_CALL(driver.memory_import, cuMemImportFromShareableHandle, &address, NULL,
		    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	EXPECT_CALL(driver.address_reserve, cuMemAddressReserve, &address, bytes, bytes, address, 0ULL);
	EXPECT_CALL(driver.address_free, cuMemAddressFree, address, bytes);
	EXPECT_CALL(driver.memory_map, cuMemMap, address, bytes, bytes, address, 0ULL);
	EXPECT_CALL(driver.memory_unmap, cuMemUnmap, address, bytes);
	EXPECT_CALL(driver.memory_allow, cuMemSetAccess, address, bytes, NULL, bytes);
	EXPECT_CALL(driver.host_register, cuMemHostRegister, NULL, bytes, 0U);
	EXPECT_CALL(driver.host_unregister, cuMemHostUnregister, NULL);
}

static void the_calls_about_streams_take_the_same(void **state)
{
	unsigned long long address;
	struct driver driver;
	size_t bytes;

	EXPECT_CALL(driver.stream_create, cuStreamCreate, NULL, 0U);
	EXPECT_CALL(driver.stream_destroy, cuStreamDestroy, NULL);
	EXPECT_CALL(driver.stream_synchronize, cuStreamSynchronize, NULL);
	EXPECT_CALL(driver.stream_context, cuStreamGetCtx, NULL, NULL);
	EXPECT_CALL(driver.stream_wait, cuStreamWaitEvent, NULL, NULL, 0U);
	EXPECT_CALL(driver.copy, cuMemcpyAsync, address, address, bytes, NULL);
	EXPECT_CALL(driver.event_create, cuEventCreate, NULL, 0U);
	EXPECT_CALL(driver.event_destroy, cuEventDestroy, NULL);
	EXPECT_CALL(driver.event_record, cuEventRecord, NULL, NULL);
	EXPECT_CALL(driver.event_query, cuEventQuery, NULL);
	EXPECT_CALL(driver.event_export, cuIpcGetEventHandle, NULL, NULL);
}

static void the_calls_about_kernels_take_the_same(void **state)
{
	struct driver driver;

	EXPECT_CALL(driver.module_load, cuModuleLoadData, NULL, NULL);
	EXPECT_CALL(driver.module_unload, cuModuleUnload, NULL);
	EXPECT_CALL(driver.module_function, cuModuleGetFunction, NULL, NULL, "norm_blocks");
	EXPECT_CALL(driver.launch, cuLaunchKernel, NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

/* By the reference's names, which driver.c has with what they stand for. */
static void the_names_are_the_same(void **state)
{
	assert_string_equal(NAME(cuDeviceTotalMem), "cuDeviceTotalMem_v2");
	assert_string_equal(NAME(cuDeviceGetUuid), "cuDeviceGetUuid_v2");
	assert_string_equal(NAME(cuDeviceGetAttribute), "cuDeviceGetAttribute");
	assert_string_equal(NAME(cuDevicePrimaryCtxSetFlags), "cuDevicePrimaryCtxSetFlags_v2");
	assert_string_equal(NAME(cuDevicePrimaryCtxRetain), "cuDevicePrimaryCtxRetain");
	assert_string_equal(NAME(cuDevicePrimaryCtxRelease), "cuDevicePrimaryCtxRelease_v2");
	assert_string_equal(NAME(cuCtxSetCurrent), "cuCtxSetCurrent");
	assert_string_equal(NAME(cuCtxGetCurrent), "cuCtxGetCurrent");
	assert_string_equal(NAME(cuDevicePrimaryCtxGetState), "cuDevicePrimaryCtxGetState");
	assert_string_equal(NAME(cuCtxSynchronize), "cuCtxSynchronize");
	assert_string_equal(NAME(cuMemGetInfo), "cuMemGetInfo_v2");
	assert_string_equal(NAME(cuMemHostRegister), "cuMemHostRegister_v2");
	assert_string_equal(NAME(cuMemHostUnregister), "cuMemHostUnregister");
	assert_string_equal(NAME(cuStreamCreate), "cuStreamCreate");
	assert_string_equal(NAME(cuStreamDestroy), "cuStreamDestroy_v2");
	assert_string_equal(NAME(cuStreamSynchronize), "cuStreamSynchronize");
	assert_string_equal(NAME(cuStreamGetCtx), "cuStreamGetCtx");
	assert_string_equal(NAME(cuStreamWaitEvent), "cuStreamWaitEvent");
	assert_string_equal(NAME(cuMemcpyAsync), "cuMemcpyAsync");
	assert_string_equal(NAME(cuModuleLoadData), "cuModuleLoadData");
	assert_string_equal(NAME(cuModuleUnload), "cuModuleUnload");
	assert_string_equal(NAME(cuModuleGetFunction), "cuModuleGetFunction");
	assert_string_equal(NAME(cuLaunchKernel), "cuLaunchKernel");
	assert_string_equal(NAME(cuEventCreate), "cuEventCreate");
	assert_string_equal(NAME(cuEventDestroy), "cuEventDestroy_v2");
	assert_string_equal(NAME(cuEventRecord), "cuEventRecord");
	assert_string_equal(NAME(cuEventQuery), "cuEventQuery");
	assert_string_equal(NAME(cuIpcGetEventHandle), "cuIpcGetEventHandle");
	assert_string_equal(NAME(cuIpcOpenEventHandle), "cuIpcOpenEventHandle");
}

/* One field of a struct of theirs and ours. */
#define EXPECT_FIELD(theirs, their_field, ours, our_field)                                                   \
	do {                                                                                                 \
		assert_int_equal(offsetof(theirs, their_field), offsetof(ours, our_field));                  \
		assert_int_equal(sizeof(((theirs *)0)->their_field), sizeof(((ours *)0)->our_field));        \
	} while (0)

static void the_structs_are_the_same(void **state)
{
	EXPECT_FIELD(CUmemAllocationProp, type, struct driver_memory_kind, type);
	EXPECT_FIELD(CUmemAllocationProp, requestedHandleTypes, struct driver_memory_kind, handles);
	EXPECT_FIELD(CUmemAllocationProp, location.type, struct driver_memory_kind, location.type);
	EXPECT_FIELD(CUmemAllocationProp, location.id, struct driver_memory_kind, location.id);
	EXPECT_FIELD(CUmemAllocationProp, win32HandleMetaData, struct driver_memory_kind, windows);
	EXPECT_FIELD(CUmemAllocationProp, allocFlags.usage, struct driver_memory_kind, usage);
	EXPECT_FIELD(CUmemAccessDesc, location, struct driver_access, location);
	EXPECT_FIELD(CUmemAccessDesc, flags, struct driver_access, flags);
	assert_int_equal(sizeof(CUmemAllocationProp), sizeof(struct driver_memory_kind));
	assert_int_equal(sizeof(CUmemAccessDesc), sizeof(struct driver_access));
	assert_int_equal(sizeof(CUuuid), sizeof(struct driver_uuid));
	assert_int_equal(sizeof(CUipcEventHandle), sizeof(struct driver_event_handle));
	assert_int_equal(sizeof(CUdeviceptr), sizeof(driver_address));
	assert_int_equal(sizeof(CUmemGenericAllocationHandle), sizeof(driver_allocation));
}

/* What is a handle of theirs is a pointer of ours. */
static void the_calls_of_tests_take_the_same(void **state)
{
	struct gpu_calls calls;
	unsigned long long memory = 0;

	EXPECT_CALL(calls.allocate, cuMemAlloc, &memory, sizeof(memory));
	EXPECT_CALL(calls.free, cuMemFree, memory);
	EXPECT_CALL(calls.write, cuMemcpyHtoD, memory, NULL, 1);
	EXPECT_CALL(calls.read, cuMemcpyDtoH, NULL, memory, 1);
	EXPECT_CALL(calls.copy, cuMemcpyDtoD, memory, memory, 1);
	EXPECT_CALL(calls.wait, cuCtxSynchronize);
	assert_string_equal(NAME(cuMemAlloc), "cuMemAlloc_v2");
	assert_string_equal(NAME(cuMemFree), "cuMemFree_v2");
	assert_string_equal(NAME(cuMemcpyHtoD), "cuMemcpyHtoD_v2");
	assert_string_equal(NAME(cuMemcpyDtoH), "cuMemcpyDtoH_v2");
	assert_string_equal(NAME(cuMemcpyDtoD), "cuMemcpyDtoD_v2");
}

static void the_calls_of_hardware_tests_take_the_same(void **state)
{
	struct hardware_calls calls;
	driver_address address;

	EXPECT_CALL(calls.wait, cuCtxSynchronize);
	EXPECT_CALL(calls.host_address, cuMemHostGetDevicePointer, &address, NULL, 0U);
	assert_string_equal(NAME(cuMemHostGetDevicePointer), "cuMemHostGetDevicePointer_v2");
	assert_int_equal(HARDWARE_MAPPED, CU_MEMHOSTREGISTER_DEVICEMAP);
}

static void the_numbers_are_the_same(void **state)
{
	assert_int_equal(DRIVER_DONE, CUDA_SUCCESS);
	assert_int_equal(DRIVER_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(DRIVER_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(DRIVER_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(DRIVER_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
	assert_int_equal(DRIVER_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(DRIVER_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
	assert_int_equal(DRIVER_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(DRIVER_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU);
	assert_int_equal(DRIVER_INVALID_PTX, CUDA_ERROR_INVALID_PTX);
	assert_int_equal(DRIVER_UNSUPPORTED_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
	assert_int_equal(DRIVER_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(DRIVER_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
	assert_int_equal(DRIVER_NOT_READY, CUDA_ERROR_NOT_READY);
	assert_int_equal(DRIVER_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(DRIVER_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_int_equal(DRIVER_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	assert_int_equal(DRIVER_NOT_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	assert_int_equal(DRIVER_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
	assert_int_equal(DRIVER_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED);
	assert_int_equal(DRIVER_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(DRIVER_UNKNOWN, CUDA_ERROR_UNKNOWN);
	assert_int_equal(DRIVER_SLEEP_IN_CALLS, CU_CTX_SCHED_BLOCKING_SYNC);
	assert_int_equal(DRIVER_NO_STREAM_0, CU_STREAM_NON_BLOCKING);
	assert_int_equal(DRIVER_NO_TIMES, CU_EVENT_DISABLE_TIMING);
	assert_int_equal(DRIVER_SHARED, CU_EVENT_INTERPROCESS);
	assert_int_equal(DRIVER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
	assert_int_equal(DRIVER_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
	assert_int_equal(DRIVER_DESCRIPTOR, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	assert_int_equal(DRIVER_ON_GPU, CU_MEM_LOCATION_TYPE_DEVICE);
	assert_int_equal(DRIVER_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	assert_int_equal(DRIVER_LEAST_GRANULARITY, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	assert_int_equal(DRIVER_COMPUTE_MODE, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
	assert_int_equal(DRIVER_PCI_BUS, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
	assert_int_equal(DRIVER_PCI_DEVICE, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
	assert_int_equal(DRIVER_PCI_DOMAIN, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
	assert_int_equal(DRIVER_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
	assert_int_equal(DRIVER_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
	assert_int_equal(DRIVER_HAS_VIRTUAL_MEMORY, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
	assert_int_equal(DRIVER_HAS_DESCRIPTORS,
			 CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
	assert_int_equal(DRIVER_PROHIBITED, CU_COMPUTEMODE_PROHIBITED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_calls_of_tests_take_the_same),
		cmocka_unit_test(the_calls_about_gpus_take_the_same),
		cmocka_unit_test(the_calls_about_memory_take_the_same),
		cmocka_unit_test(the_calls_about_streams_take_the_same),
		cmocka_unit_test(the_calls_about_kernels_take_the_same),
		cmocka_unit_test(the_names_are_the_same),
		cmocka_unit_test(the_structs_are_the_same),
		cmocka_unit_test(the_calls_of_hardware_tests_take_the_same),
		cmocka_unit_test(the_numbers_are_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
