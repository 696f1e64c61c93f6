/* What we declare of the GPU driver, and how NCCL counts its versions, is what their headers have. Where
 * there is a toolkit. */
#include <cuda.h>
#include <nccl.h>

#include "offload/cuda/driver.h"
#include "tests/gpu/gpu_calls.h"
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

static void the_calls_take_the_same(void **state)
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
	EXPECT_CALL(driver.device_attribute, cuDeviceGetAttribute, &number, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
		    0);
	assert_string_equal(NAME(cuDeviceTotalMem), "cuDeviceTotalMem_v2");
	assert_string_equal(NAME(cuDeviceGetAttribute), "cuDeviceGetAttribute");
}

/* What is a handle of theirs is a pointer of ours. */
static void the_calls_of_tests_take_the_same(void **state)
{
	struct gpu_calls calls;
	unsigned long long memory = 0;

	EXPECT_CALL(calls.retain_context, cuDevicePrimaryCtxRetain, NULL, 0);
	EXPECT_CALL(calls.set_context, cuCtxSetCurrent, NULL);
	EXPECT_CALL(calls.load, cuModuleLoadData, NULL, NULL);
	EXPECT_CALL(calls.find, cuModuleGetFunction, NULL, NULL, "norm_blocks");
	EXPECT_CALL(calls.allocate, cuMemAlloc, &memory, sizeof(memory));
	EXPECT_CALL(calls.free, cuMemFree, memory);
	EXPECT_CALL(calls.write, cuMemcpyHtoD, memory, NULL, 1);
	EXPECT_CALL(calls.read, cuMemcpyDtoH, NULL, memory, 1);
	EXPECT_CALL(calls.copy, cuMemcpyDtoD, memory, memory, 1);
	EXPECT_CALL(calls.launch, cuLaunchKernel, NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	EXPECT_CALL(calls.wait, cuCtxSynchronize);
	assert_string_equal(NAME(cuMemAlloc), "cuMemAlloc_v2");
	assert_string_equal(NAME(cuMemFree), "cuMemFree_v2");
	assert_string_equal(NAME(cuMemcpyHtoD), "cuMemcpyHtoD_v2");
	assert_string_equal(NAME(cuMemcpyDtoH), "cuMemcpyDtoH_v2");
	assert_string_equal(NAME(cuMemcpyDtoD), "cuMemcpyDtoD_v2");
}

static void the_numbers_are_the_same(void **state)
{
	assert_int_equal(DRIVER_DONE, CUDA_SUCCESS);
	assert_int_equal(DRIVER_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
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
	assert_int_equal(NCCL_VERSION(2, 19, 0), 21900);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_calls_take_the_same),
		cmocka_unit_test(the_calls_of_tests_take_the_same),
		cmocka_unit_test(the_numbers_are_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
