#include "examples/gpt/cuda/device.h"

#include <errno.h>
#include <stdio.h>

static const char *const kernel_names[CUDA_KERNELS] = {
	[CUDA_NORM] = "gpt_norm",
	[CUDA_NORM_BACKWARD] = "gpt_norm_backward",
	[CUDA_COLUMN_SUMS] = "gpt_column_sums",
	[CUDA_COLUMN_TOTALS] = "gpt_column_totals",
	[CUDA_FINISH] = "gpt_finish",
	[CUDA_GELU] = "gpt_gelu",
	[CUDA_GELU_BACKWARD] = "gpt_gelu_backward",
	[CUDA_SOFTMAX] = "gpt_softmax",
	[CUDA_SOFTMAX_BACKWARD] = "gpt_softmax_backward",
	[CUDA_EMBED] = "gpt_embed",
	[CUDA_EMBED_BACKWARD] = "gpt_embed_backward",
	[CUDA_LOSS] = "gpt_loss",
};

/* ---- Failures ---- */

static int fail(struct cuda *cuda, const char *call, int error, const char *text)
{
	if (cuda->failure == 0) {
		snprintf(cuda->problem, sizeof(cuda->problem), "GPU %d%s%s: %s: %s (error %d)", cuda->device,
			 *cuda->name ? ", " : "", cuda->name, call, text, error);
		cuda->compute.message = cuda->problem;
		cuda->failure = -EIO;
	}
	return cuda->failure;
}

int cuda_check(struct cuda *cuda, const char *call, int error)
{
	const char *text = NULL;

	if (error == 0)
		return cuda->failure;
	if (cuda->calls.error_string(error, &text) != 0 || !text)
		text = "unknown error";
	return fail(cuda, call, error, text);
}

/* ---- Work ---- */

void cuda_run(struct cuda *cuda, enum cuda_kernel kernel, const void *arguments, uint64_t warps)
{
	void *parameters[] = { (void *)arguments };
	uint64_t blocks = (warps * GPT_WARP + GPT_THREADS - 1) / GPT_THREADS;

	if (cuda->failure < 0)
		return;
	if (blocks > INT32_MAX) {
		fail(cuda, kernel_names[kernel], 0, "the batch is too large: make --batch smaller");
		return;
	}
	cuda_check(cuda, kernel_names[kernel],
		   cuda->calls.launch(cuda->functions[kernel], (unsigned)blocks, 1, 1, GPT_THREADS, 1, 1, 0,
				      cuda->stream, parameters, NULL));
}

static int blas_format(enum number_format format)
{
	return format == NUMBER_FP32 ? BLAS_FP32 : format == NUMBER_BF16 ? BLAS_BF16 : BLAS_FP16;
}

/* Its matrices are of columns: to it ours are transposed, and so is their product. */
void cuda_multiply(struct cuda *cuda, const struct cuda_product *product)
{
	static const float one = 1.0f, zero = 0.0f;
	const struct cuda_matrix *a = &product->a, *b = &product->b;
	int format = blas_format(product->format), error;

	if (cuda->failure < 0)
		return;
	error = cuda->blas_calls.multiply(
		cuda->blas, b->is_transposed ? BLAS_TRANSPOSED : BLAS_PLAIN,
		a->is_transposed ? BLAS_TRANSPOSED : BLAS_PLAIN, (int)product->columns, (int)product->rows,
		(int)product->depth, &one, b->data, format, (int)b->stride, (long long)b->step, a->data,
		format, (int)a->stride, (long long)a->step, &zero, product->c, blas_format(product->c_format),
		(int)product->c_stride, (long long)product->c_step, product->count ? (int)product->count : 1,
		BLAS_IN_FP32, BLAS_DEFAULT);
	if (error != 0)
		fail(cuda, "cublasGemmStridedBatchedEx", error, "cuBLAS has failed");
}

/* ---- Memory ---- */

static int allocate(struct compute *compute, size_t bytes, void **ret_memory)
{
	struct cuda *cuda = cuda_of(compute);
	cuda_address address;
	int error = cuda->calls.allocate(&address, bytes);

	if (error != 0) {
		(void)cuda_check(cuda, "cuMemAlloc", error);
		return -ENOMEM;
	}
	*ret_memory = (void *)(uintptr_t)address;
	return 0;
}

/* What is under way may use it. */
static void free_memory(struct compute *compute, void *memory)
{
	struct cuda *cuda = cuda_of(compute);

	if (!memory)
		return;
	(void)cuda->calls.stream_synchronize(cuda->stream);
	(void)cuda->calls.free((uintptr_t)memory);
}

int cuda_copy(struct compute *compute, void *to, const void *from, size_t bytes)
{
	struct cuda *cuda = cuda_of(compute);

	if (cuda->failure < 0)
		return cuda->failure;
	cuda_check(cuda, "cuMemcpyAsync",
		   cuda->calls.copy((uintptr_t)to, (uintptr_t)from, bytes, cuda->stream));
	return cuda_check(cuda, "cuStreamSynchronize", cuda->calls.stream_synchronize(cuda->stream));
}

static void clear(struct compute *compute, void *memory, size_t bytes)
{
	struct cuda *cuda = cuda_of(compute);

	if (cuda->failure == 0)
		cuda_check(cuda, "cuMemsetD8Async",
			   cuda->calls.fill((uintptr_t)memory, 0, bytes, cuda->stream));
}

/* Counts bytes, and, once there is memory, tells where they lie. */
static void *take(char *memory, size_t *used, size_t bytes)
{
	char *taken = memory ? memory + *used : NULL;

	*used += (bytes + 255) / 256 * 256;
	return taken;
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

static size_t place_space(struct cuda_space *space, const struct layer_context *context, char *memory)
{
	const struct attention_shape *shape = &context->shape;
	size_t elements = context->rows * shape->width, size = number_size(context->format);
	size_t scores = shape->heads * shape->length * shape->length, used = 0;
	size_t chunks = (context->rows + GPT_CHUNK_ROWS - 1) / GPT_CHUNK_ROWS;

	space->sums = take(memory, &used, 4 * elements * sizeof(float));
	space->wide = take(memory, &used, 4 * elements * size);
	space->qkv_gradient = take(memory, &used, 3 * elements * size);
	space->operand = take(memory, &used, elements * size);
	space->scores = take(memory, &used, scores * sizeof(float));
	space->probabilities = take(memory, &used, scores * size);
	space->score_gradient = take(memory, &used, scores * size);
	space->chunks = take(memory, &used, 2 * chunks * 4 * shape->width * sizeof(float));
	return used;
}

static size_t largest_unit(const struct model *model)
{
	size_t largest = 0;

	for (unsigned i = 0; i < model->unit_count; i++) {
		size_t bytes = 0;

		for (unsigned j = 0; j < model->units[i].tensor_count; j++) {
			const struct tensor *tensor = &model->units[i].tensors[j];

			(void)take(NULL, &bytes, tensor_elements(tensor) * number_size(tensor->format));
		}
		largest = larger(largest, bytes);
	}
	return largest;
}

static int prepare(struct compute *compute, const struct model *model, const struct layer_context *largest)
{
	struct cuda *cuda = cuda_of(compute);
	struct cuda_space counted;
	int r = allocate(compute, place_space(&counted, largest, NULL), &cuda->memory);

	if (r < 0)
		return r;
	place_space(&cuda->space, largest, cuda->memory);
	cuda->model = model;
	cuda->unit_bytes = largest_unit(model);
	return 0;
}

/* ---- Opening ---- */

static const struct compute_ops cuda_ops = {
	.prepare = prepare,
	.allocate = allocate,
	.free = free_memory,
	.upload = cuda_copy,
	.download = cuda_copy,
	.clear = clear,
	.gather = cuda_gather,
	.release = cuda_release,
	.gradients = cuda_gradients,
	.push = cuda_push,
	.abandon = cuda_abandon,
	.embedding_forward = cuda_embedding_forward,
	.embedding_backward = cuda_embedding_backward,
	.norm = cuda_norm,
	.norm_backward = cuda_norm_backward,
	.head_forward = cuda_head_forward,
	.head_loss = cuda_head_loss,
	.head_backward = cuda_head_backward,
	.layer_forward = cuda_layer_forward,
	.layer_backward = cuda_layer_backward,
};

static bool start_driver(struct cuda_calls *calls, int *ret_count, struct dynamic_library *driver)
{
	const char *text = NULL;
	int error;

	if (!cuda_calls_open(calls, driver))
		return false;
	error = calls->init(0);
	if (error == 0)
		error = calls->device_count(ret_count);
	if (error == 0 && *ret_count > 0)
		return true;
	if (error != 0 && (calls->error_string(error, &text) != 0 || !text))
		text = "unknown error";
	return dynamic_library_refuse(driver, "it shows no GPU: %s (error %d)",
				      error ? text : "none is there", error);
}

unsigned cuda_count(void)
{
	struct dynamic_library driver = { .is_found = false };
	struct cuda_calls calls;
	int count = 0;

	if (!start_driver(&calls, &count, &driver)) {
		fprintf(stderr,
			"gpt: --device cuda: no GPU was found by NVIDIA's driver, libcuda.so.1: %s; train "
			"with "
			"--device cpu, or see tierctl doctor\n",
			driver.problem);
		return 0;
	}
	return (unsigned)count;
}

static bool find_all(struct cuda *cuda)
{
	struct dynamic_library driver = { .is_found = false }, blas = { .is_found = false };
	int count;

	if (!gpt_kernels_image()) {
		fprintf(stderr,
			"gpt: --device cuda: this gpt has no kernels for GPUs: there was no nvcc when it "
			"was built (CUDA toolkit 11.8 or newer, -Dcuda=enabled)\n");
		return false;
	}
	if (!blas_calls_open(&cuda->blas_calls, &blas)) {
		fprintf(stderr, "gpt: --device cuda: cuBLAS was not found: %s\n", blas.problem);
		return false;
	}
	return start_driver(&cuda->calls, &count, &driver);
}

static int open_kernels(struct cuda *cuda)
{
	int r = cuda_check(cuda, "cuModuleLoadData",
			   cuda->calls.module_load(&cuda->module, gpt_kernels_image()));

	for (unsigned i = 0; r == 0 && i < CUDA_KERNELS; i++)
		r = cuda_check(
			cuda, kernel_names[i],
			cuda->calls.module_function(&cuda->functions[i], cuda->module, kernel_names[i]));
	return r;
}

static int open_blas(struct cuda *cuda)
{
	int error = cuda->blas_calls.create(&cuda->blas);

	if (error != 0) {
		cuda->blas = NULL;
		return fail(cuda, "cublasCreate", error, "cuBLAS has failed");
	}
	error = cuda->blas_calls.set_stream(cuda->blas, cuda->stream);
	return error == 0 ? 0 : fail(cuda, "cublasSetStream", error, "cuBLAS has failed");
}

static int open_device(struct cuda *cuda, unsigned number)
{
	int r = cuda_check(cuda, "cuDeviceGet", cuda->calls.device(&cuda->device, (int)number));

	if (r == 0)
		r = cuda_check(cuda, "cuDeviceGetName",
			       cuda->calls.device_name(cuda->name, sizeof(cuda->name), cuda->device));
	if (r == 0)
		r = cuda_check(cuda, "cuDevicePrimaryCtxRetain",
			       cuda->calls.context_retain(&cuda->context, cuda->device));
	if (r == 0)
		r = cuda_check(cuda, "cuCtxSetCurrent", cuda->calls.context_enter(cuda->context));
	if (r == 0)
		r = cuda_check(cuda, "cuStreamCreate",
			       cuda->calls.stream_create(&cuda->stream, CUDA_NO_STREAM_0));
	if (r == 0)
		r = open_kernels(cuda);
	return r == 0 ? open_blas(cuda) : r;
}

int cuda_new(unsigned number, struct compute **ret_compute)
{
	_cleanup_(cuda_freep) struct compute *compute = NULL;
	struct cuda *cuda = calloc(1, sizeof(*cuda));
	int r;

	if (!cuda)
		return -ENOMEM;
	compute = &cuda->compute;
	cuda->compute = (struct compute){ .ops = &cuda_ops, .hidden_slices = LAYER_SLICES };
	if (!find_all(cuda))
		return -ENODEV;
	r = open_device(cuda, number);
	if (r < 0) {
		fprintf(stderr, "gpt: --device cuda: %s\n", cuda->problem);
		return r;
	}
	*ret_compute = TAKE_PTR(compute);
	return 0;
}

struct compute *cuda_free(struct compute *compute)
{
	struct cuda *cuda = compute ? cuda_of(compute) : NULL;

	if (!cuda)
		return NULL;
	if (cuda->stream) {
		free_memory(compute, cuda->memory);
		free_memory(compute, cuda->gradients);
		for (size_t i = 0; i < ARRAY_LENGTH(cuda->places); i++)
			free_memory(compute, cuda->places[i]);
	}
	if (cuda->blas)
		(void)cuda->blas_calls.destroy(cuda->blas);
	if (cuda->module)
		(void)cuda->calls.module_unload(cuda->module);
	if (cuda->stream)
		(void)cuda->calls.stream_destroy(cuda->stream);
	if (cuda->context)
		(void)cuda->calls.context_release(cuda->device);
	free(cuda);
	return NULL;
}
