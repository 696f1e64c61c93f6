/* A stand-in for cuBLAS, libcublas.so.13: the calls that examples/gpt makes. Its one kernel is a plain loop
 * on a stream of the driver's stand-in: each element is a chain of fma in the order of the depth. */
#include <math.h>
#include <stdlib.h>

#include "examples/gpt/number.h"
#include "tests/lib/gpu/cuda_calls.h"
#include "tests/lib/gpu/image.h"

API int cublasCreate_v2(void **ret_blas);
API int cublasDestroy_v2(void *blas);
API int cublasSetStream_v2(void *blas, void *stream);
API int cublasGemmStridedBatchedEx(void *handle, int a_kind, int b_kind, int rows, int columns, int depth,
				   const void *alpha, const void *a, int a_format, int a_stride,
				   long long a_step, const void *b, int b_format, int b_stride,
				   long long b_step, const void *beta, void *c, int c_format, int c_stride,
				   long long c_step, int count, int sums, int algorithm);

enum { DONE = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15, EXECUTION_FAILED = 13 };
enum { FP32 = 0, FP16 = 2, BF16 = 14, IN_FP32 = 68 };

struct blas {
	struct driver_module *module;
	struct driver_function *function;
	struct driver_stream *stream;
};

/* Of columns: element (i, j) lies at i + j · stride. */
struct matrix {
	const void *data;
	enum number_format format;
	bool is_transposed;
	long long stride, step; /* step: from one of several to the next */
};

struct products {
	struct matrix a, b;
	void *c;
	enum number_format c_format;
	long long c_stride, c_step;
	int rows, columns, depth, count;
	float alpha, beta;
};

/* ---- The kernel ---- */

static float element(const struct matrix *matrix, int which, int i, int j)
{
	long long at = matrix->is_transposed ? j + i * matrix->stride : i + j * matrix->stride;

	return number_load(matrix->data, matrix->format, (size_t)(which * matrix->step + at));
}

static void run(const struct standin_kernel *kernel, const void *arguments, unsigned blocks, unsigned threads)
{
	const struct products *with = arguments;

	for (int n = 0; n < with->count; n++)
		for (int j = 0; j < with->columns; j++)
			for (int i = 0; i < with->rows; i++) {
				size_t at = (size_t)(n * with->c_step + i + j * with->c_stride);
				float sum = 0.0f;

				for (int k = 0; k < with->depth; k++)
					sum = fmaf(element(&with->a, n, i, k), element(&with->b, n, k, j),
						   sum);
				sum *= with->alpha;
				if (with->beta != 0.0f)
					sum += with->beta * number_load(with->c, with->c_format, at);
				number_store(with->c, with->c_format, at, sum);
			}
}

static struct standin_range range_of(const struct matrix *matrix, int rows, int columns, int count)
{
	int vectors = matrix->is_transposed ? rows : columns, length = matrix->is_transposed ? columns : rows;
	long long elements = (count - 1) * matrix->step + (vectors - 1) * matrix->stride + length;

	return (struct standin_range){ (uintptr_t)matrix->data,
				       (size_t)elements * number_size(matrix->format), .is_read = true };
}

static unsigned find_ranges(const struct standin_kernel *kernel, const void *arguments,
			    struct standin_range *ret_ranges)
{
	const struct products *with = arguments;
	const struct matrix c = { with->c, with->c_format, false, with->c_stride, with->c_step };

	ret_ranges[0] = range_of(&with->a, with->rows, with->depth, with->count);
	ret_ranges[1] = range_of(&with->b, with->depth, with->columns, with->count);
	ret_ranges[2] = range_of(&c, with->rows, with->columns, with->count);
	ret_ranges[2].is_read = with->beta != 0.0f;
	ret_ranges[2].is_written = true;
	return 3;
}

static const struct standin_kernel kernels[] = { { "multiply", sizeof(struct products), 1, find_ranges,
						   run } };
static const struct standin_image image = { STANDIN_IMAGE, 1, kernels };

/* ---- The calls ---- */

int cublasCreate_v2(void **ret_blas)
{
	struct blas *blas = calloc(1, sizeof(*blas));
	int error = script_error(__func__);

	if (!blas || error != 0 || cuModuleLoadData(&blas->module, &image) != DRIVER_DONE ||
	    cuModuleGetFunction(&blas->function, blas->module, "multiply") != DRIVER_DONE) {
		free(blas);
		return error != 0 ? error : NOT_INITIALIZED;
	}
	*ret_blas = blas;
	return DONE;
}

int cublasDestroy_v2(void *blas)
{
	(void)cuModuleUnload(((struct blas *)blas)->module);
	free(blas);
	return DONE;
}

int cublasSetStream_v2(void *blas, void *stream)
{
	((struct blas *)blas)->stream = stream;
	return script_error(__func__);
}

static bool read_format(int format, enum number_format *ret_format)
{
	*ret_format = format == BF16 ? NUMBER_BF16 : format == FP16 ? NUMBER_FP16 : NUMBER_FP32;
	return format == FP32 || format == BF16 || format == FP16;
}

/* What cuBLAS refuses: strides that are shorter than a column, and pairs of formats that it has not. */
static int check(const struct products *with)
{
	if (with->rows < 1 || with->columns < 1 || with->depth < 1 || with->count < 1 ||
	    with->a.stride < (with->a.is_transposed ? with->depth : with->rows) ||
	    with->b.stride < (with->b.is_transposed ? with->columns : with->depth) ||
	    with->c_stride < with->rows)
		return INVALID_VALUE;
	if (with->a.format != with->b.format ||
	    (with->c_format != with->a.format && with->c_format != NUMBER_FP32))
		return NOT_SUPPORTED;
	return DONE;
}

int cublasGemmStridedBatchedEx(void *handle, int a_kind, int b_kind, int rows, int columns, int depth,
			       const void *alpha, const void *a, int a_format, int a_stride, long long a_step,
			       const void *b, int b_format, int b_stride, long long b_step, const void *beta,
			       void *c, int c_format, int c_stride, long long c_step, int count, int sums,
			       int algorithm)
{
	struct blas *blas = handle;
	struct products with = { .a = { a, .is_transposed = a_kind == 1, .stride = a_stride, .step = a_step },
				 .b = { b, .is_transposed = b_kind == 1, .stride = b_stride, .step = b_step },
				 .c = c,
				 .c_stride = c_stride,
				 .c_step = c_step,
				 .rows = rows,
				 .columns = columns,
				 .depth = depth,
				 .count = count,
				 .alpha = *(const float *)alpha,
				 .beta = *(const float *)beta };
	void *parameters[] = { &with };
	int error = script_error(__func__);

	if (error != 0)
		return error;
	if (!read_format(a_format, &with.a.format) || !read_format(b_format, &with.b.format) ||
	    !read_format(c_format, &with.c_format) || sums != IN_FP32)
		return NOT_SUPPORTED;
	error = check(&with);
	if (error != DONE)
		return error;
	return cuLaunchKernel(blas->function, 1, 1, 1, 1, 1, 1, 0, blas->stream, parameters, NULL) ==
			       DRIVER_DONE
		       ? DONE
		       : EXECUTION_FAILED;
}
