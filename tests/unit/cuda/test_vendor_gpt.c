/* What examples/gpt declares of the driver and of cuBLAS is what their headers have. Where there are those
 * headers. */
#include <cublas_v2.h>
#include <cuda.h>

#include "examples/gpt/cuda/calls.h"
#include "tests/unit/test.h"

/* The name that a name of the reference stands for. */
#define NAME(name) NAME_(name)
#define NAME_(name) #name

/* Fails to compile where the numbers of arguments differ, or the size of the result. */
#define EXPECT_CALL(place, call, ...)                                                                        \
	_Static_assert(sizeof(call(__VA_ARGS__)) == sizeof((place)(__VA_ARGS__)), #call)

static void the_calls_of_the_driver_take_the_same(void **state)
{
	struct cuda_calls calls;
	char name[1];
	int number;

	EXPECT_CALL(calls.init, cuInit, 0);
	EXPECT_CALL(calls.error_string, cuGetErrorString, 0, NULL);
	EXPECT_CALL(calls.device_count, cuDeviceGetCount, &number);
	EXPECT_CALL(calls.device, cuDeviceGet, &number, 0);
	EXPECT_CALL(calls.device_name, cuDeviceGetName, name, 1, 0);
	EXPECT_CALL(calls.context_retain, cuDevicePrimaryCtxRetain, NULL, 0);
	EXPECT_CALL(calls.context_release, cuDevicePrimaryCtxRelease, 0);
	EXPECT_CALL(calls.context_enter, cuCtxSetCurrent, NULL);
	EXPECT_CALL(calls.allocate, cuMemAlloc, NULL, 0);
	EXPECT_CALL(calls.free, cuMemFree, 0);
	EXPECT_CALL(calls.copy, cuMemcpyAsync, 0, 0, 0, NULL);
	EXPECT_CALL(calls.fill, cuMemsetD8Async, 0, 0, 0, NULL);
	EXPECT_CALL(calls.stream_create, cuStreamCreate, NULL, 0);
	EXPECT_CALL(calls.stream_destroy, cuStreamDestroy, NULL);
	EXPECT_CALL(calls.stream_synchronize, cuStreamSynchronize, NULL);
	EXPECT_CALL(calls.module_load, cuModuleLoadData, NULL, NULL);
	EXPECT_CALL(calls.module_unload, cuModuleUnload, NULL);
	EXPECT_CALL(calls.module_function, cuModuleGetFunction, NULL, NULL, NULL);
	EXPECT_CALL(calls.launch, cuLaunchKernel, NULL, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL);
	assert_int_equal(sizeof(cuda_address), sizeof(CUdeviceptr));
	assert_int_equal(CUDA_NO_STREAM_0, CU_STREAM_NON_BLOCKING);
	assert_string_equal(NAME(cuDevicePrimaryCtxRelease), "cuDevicePrimaryCtxRelease_v2");
	assert_string_equal(NAME(cuMemAlloc), "cuMemAlloc_v2");
	assert_string_equal(NAME(cuMemFree), "cuMemFree_v2");
	assert_string_equal(NAME(cuMemsetD8Async), "cuMemsetD8Async");
	assert_string_equal(NAME(cuStreamDestroy), "cuStreamDestroy_v2");
}

/* Formats are an enum of CUDA's. */
static void the_calls_of_cublas_take_the_same(void **state)
{
	struct blas_calls calls;

	EXPECT_CALL(calls.create, cublasCreate, NULL);
	EXPECT_CALL(calls.destroy, cublasDestroy, NULL);
	EXPECT_CALL(calls.set_stream, cublasSetStream, NULL, NULL);
	EXPECT_CALL(calls.multiply, cublasGemmStridedBatchedEx, NULL, 0, 0, 0, 0, 0, NULL, NULL, 0, 0, 0,
		    NULL, 0, 0, 0, NULL, NULL, 0, 0, 0, 0, 0, 0);
	assert_string_equal(NAME(cublasCreate), "cublasCreate_v2");
	assert_string_equal(NAME(cublasDestroy), "cublasDestroy_v2");
	assert_string_equal(NAME(cublasSetStream), "cublasSetStream_v2");
	assert_string_equal(NAME(cublasGemmStridedBatchedEx), "cublasGemmStridedBatchedEx");
	assert_int_equal(BLAS_PLAIN, CUBLAS_OP_N);
	assert_int_equal(BLAS_TRANSPOSED, CUBLAS_OP_T);
	assert_int_equal(BLAS_FP32, CUDA_R_32F);
	assert_int_equal(BLAS_FP16, CUDA_R_16F);
	assert_int_equal(BLAS_BF16, CUDA_R_16BF);
	assert_int_equal(BLAS_IN_FP32, CUBLAS_COMPUTE_32F);
	assert_int_equal(BLAS_DEFAULT, CUBLAS_GEMM_DEFAULT);
	assert_int_equal(CUBLAS_STATUS_SUCCESS, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_calls_of_the_driver_take_the_same),
		cmocka_unit_test(the_calls_of_cublas_take_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
