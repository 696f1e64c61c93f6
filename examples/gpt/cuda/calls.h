/* The calls of NVIDIA's driver and of cuBLAS that a training makes, found when it runs: the program does
 * without either where it computes on processors. */
#ifndef GPT_CUDA_CALLS_H
#define GPT_CUDA_CALLS_H

#include <stdint.h>

#include "common/dynamic_library.h"

typedef unsigned long long cuda_address;

enum {
	CUDA_NO_STREAM_0 = 1, /* of a stream: the one without a name does not delay it */
};

/* All return an error of the driver's; 0: done. */
struct cuda_calls {
	int (*init)(unsigned flags);
	int (*error_string)(int error, const char **ret_text);
	int (*device_count)(int *ret_count);
	int (*device)(int *ret_device, int number);
	int (*device_name)(char *name, int size, int device);
	int (*context_retain)(void **ret_context, int device);
	int (*context_release)(int device);
	int (*context_enter)(void *context); /* for this thread */
	int (*allocate)(cuda_address *ret_address, size_t bytes);
	int (*free)(cuda_address address);
	int (*copy)(cuda_address to, cuda_address from, size_t bytes, void *stream);
	int (*fill)(cuda_address to, unsigned char value, size_t bytes, void *stream);
	int (*stream_create)(void **ret_stream, unsigned flags);
	int (*stream_destroy)(void *stream);
	int (*stream_synchronize)(void *stream);
	int (*module_load)(void **ret_module, const void *image);
	int (*module_unload)(void *module);
	int (*module_function)(void **ret_function, void *module, const char *name);
	int (*launch)(void *function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
		      unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
		      void *stream, void **parameters, void **extra);
};

enum {
	BLAS_PLAIN = 0,
	BLAS_TRANSPOSED = 1,
	BLAS_FP32 = 0, /* formats */
	BLAS_FP16 = 2,
	BLAS_BF16 = 14,
	BLAS_IN_FP32 = 68, /* sums */
	BLAS_DEFAULT = -1, /* it chooses how */
};

/* All return an error of cuBLAS's. Matrices are of columns. */
struct blas_calls {
	int (*create)(void **ret_blas);
	int (*destroy)(void *blas);
	int (*set_stream)(void *blas, void *stream);
	/* c = alpha · a · b + beta · c, so many times, each so many elements further on. */
	int (*multiply)(void *blas, int a_kind, int b_kind, int rows, int columns, int depth,
			const void *alpha, const void *a, int a_format, int a_stride, long long a_step,
			const void *b, int b_format, int b_stride, long long b_step, const void *beta,
			void *c, int c_format, int c_stride, long long c_step, int count, int sums,
			int algorithm);
};

/* False: the library says what was looked for, and why it does not serve. */
bool cuda_calls_open(struct cuda_calls *ret_calls, struct dynamic_library *library);
bool blas_calls_open(struct blas_calls *ret_calls, struct dynamic_library *library);

#endif
