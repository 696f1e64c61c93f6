/* Kernels of the stand-in for the GPU driver, which are a test's functions (image.h). In $STANDIN_FAILURES
 * "kernel" is a call, too, which fails when a stream comes to one, and loses the GPU. */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/gpu/image.h"
#include "tests/lib/gpu/standin.h"

struct driver_function {
	struct driver_module *module;
	const struct standin_kernel *kernel;
};

struct driver_module {
	const struct driver_context *context;
	const struct standin_image *image;
	unsigned launched; /* that have not ended */
	struct queue link;
	struct driver_function functions[];
};

static struct queue modules = { &modules, &modules };

static struct driver_module *module_new(const struct driver_context *context,
					const struct standin_image *image)
{
	struct driver_module *module =
		calloc(1, sizeof(*module) + image->count * sizeof(module->functions[0]));

	if (!module)
		standin_abort("out of memory");
	module->context = context;
	module->image = image;
	for (unsigned i = 0; i < image->count; i++)
		module->functions[i] = (struct driver_function){ module, &image->kernels[i] };
	return module;
}

int cuModuleLoadData(struct driver_module **ret_module, const void *image)
{
	struct driver_context *context;
	int error = standin_enter_context(__func__, &context);
	uint64_t magic;

	if (error != DRIVER_DONE)
		return error;
	memcpy(&magic, image, sizeof(magic));
	if (magic != STANDIN_IMAGE)
		return DRIVER_INVALID_IMAGE;
	*ret_module = module_new(context, image);
	pthread_mutex_lock(&standin_lock);
	queue_push(&modules, &(*ret_module)->link);
	pthread_mutex_unlock(&standin_lock);
	return DRIVER_DONE;
}

/* With the lock held. */
static bool is_loaded(const struct driver_module *module, const struct driver_context *context)
{
	QUEUE_FOREACH (link, &modules)
		if (queue_entry(link, struct driver_module, link) == module)
			return module->context == context;
	return false;
}

static int enter(const char *call, const struct driver_module *module)
{
	struct driver_context *context = NULL;
	int error = standin_enter_context(call, &context);
	bool is_ours;

	pthread_mutex_lock(&standin_lock);
	is_ours = is_loaded(module, context);
	pthread_mutex_unlock(&standin_lock);
	return error == DRIVER_DONE && !is_ours ? DRIVER_INVALID_HANDLE : error;
}

/* A stream that has not come to a kernel of it yet would run what is not there. */
int cuModuleUnload(struct driver_module *module)
{
	int error = enter(__func__, module);

	if (error != DRIVER_DONE)
		return error;
	pthread_mutex_lock(&standin_lock);
	if (module->launched > 0)
		standin_abort("a module is unloaded while a stream may still run its kernels");
	queue_remove(&module->link);
	pthread_mutex_unlock(&standin_lock);
	free(module);
	return DRIVER_DONE;
}

void modules_end(const struct driver_context *context)
{
	pthread_mutex_lock(&standin_lock);
	QUEUE_FOREACH (link, &modules) {
		struct driver_module *module = queue_entry(link, struct driver_module, link);

		if (module->context != context)
			continue;
		queue_remove(&module->link);
		free(module);
	}
	pthread_mutex_unlock(&standin_lock);
}

int cuModuleGetFunction(struct driver_function **ret_function, struct driver_module *module, const char *name)
{
	int error = enter(__func__, module);

	if (error != DRIVER_DONE)
		return error;
	for (unsigned i = 0; i < module->image->count; i++)
		if (strcmp(module->image->kernels[i].name, name) == 0) {
			*ret_function = &module->functions[i];
			return DRIVER_DONE;
		}
	return DRIVER_NOT_FOUND;
}

static void touch(struct driver_stream *stream, const struct standin_range *range, bool is_write)
{
	int device = standin_device(stream->context);

	if (memory_find(range->address, range->bytes, device, "kernel").kind == PLACE_PAGEABLE)
		standin_abort("a kernel uses host memory that is not pinned");
	stream_touch(stream, range->address, range->bytes, is_write, "kernel");
}

static void begin_kernel(struct driver_stream *stream, struct task *task)
{
	const struct standin_kernel *kernel = task->kernel;
	struct standin_range ranges[STANDIN_RANGES];
	unsigned count = kernel->find_ranges(kernel, task->argument, ranges);

	(*task->launched)++;
	for (unsigned i = 0; i < count; i++) {
		if (ranges[i].is_read)
			touch(stream, &ranges[i], false);
		if (ranges[i].is_written)
			touch(stream, &ranges[i], true);
	}
}

static int run_kernel(struct driver_stream *stream, struct task *task)
{
	int error = script_error("kernel");

	if (error == DRIVER_DONE)
		task->kernel->run(task->kernel, task->argument, task->blocks, task->kernel->threads);
	return error;
}

static void *copy_of(const void *arguments, size_t bytes)
{
	void *copy = malloc(bytes);

	if (!copy)
		standin_abort("out of memory");
	return memcpy(copy, arguments, bytes);
}

/* The call itself is that of stream_submit(). */
static int look(const struct driver_module *module)
{
	struct driver_context *context;
	int error = cuCtxGetCurrent(&context);
	bool is_ours;

	pthread_mutex_lock(&standin_lock);
	is_ours = is_loaded(module, context);
	pthread_mutex_unlock(&standin_lock);
	return error == DRIVER_DONE && !is_ours ? DRIVER_INVALID_HANDLE : error;
}

/* A kernel that is written for blocks of another size would leave elements out. */
int cuLaunchKernel(struct driver_function *function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
		   unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
		   struct driver_stream *stream, void **parameters, void **extra)
{
	struct task task = { .begin = begin_kernel, .run = run_kernel, .blocks = blocks_x };
	int error = look(function->module);

	if (error != DRIVER_DONE)
		return error;
	if (blocks_x == 0 || blocks_x > INT32_MAX || blocks_y != 1 || blocks_z != 1 || threads_y != 1 ||
	    threads_z != 1 || shared_bytes != 0 || extra)
		return DRIVER_INVALID_VALUE;
	task.kernel = function->kernel;
	task.launched = &function->module->launched;
	if (threads_x != task.kernel->threads)
		standin_abort("kernel %s of %u threads is launched with %u", task.kernel->name,
			      task.kernel->threads, threads_x);
	task.argument = task.copied = copy_of(parameters[0], task.kernel->argument_bytes);
	error = stream_submit(__func__, stream, &task, false);
	if (error != DRIVER_DONE)
		free(task.copied);
	return error;
}
