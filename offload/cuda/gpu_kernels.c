#include <errno.h>
#include <stdio.h>

#include "offload/cuda/gpu_private.h"

/* The kernels' instructions are for GPUs from this one on. */
#define OLDEST_CAPABILITY 8

static struct gpu_kernels *kernels_of(struct gpu_request *request)
{
	return container_of(request, struct gpu_kernels, request);
}

/* A driver takes what nvcc of its own CUDA has made, or of an older one. */
static int say_what_it_takes(struct gpu_engine *engine, int error, struct gpu_problem *problem)
{
	const struct driver *driver = &engine->driver;
	int version = 0, major = OLDEST_CAPABILITY, minor = 0;

	(void)driver->version(&version);
	(void)driver->device_attribute(&major, DRIVER_CAPABILITY_MAJOR, engine->device);
	(void)driver->device_attribute(&minor, DRIVER_CAPABILITY_MINOR, engine->device);
	if (major < OLDEST_CAPABILITY)
		snprintf(problem->text, sizeof(problem->text),
			 "%s: tierd has no kernels for it: they need compute capability %d.0, and it has "
			 "%d.%d",
			 engine->name, OLDEST_CAPABILITY, major, minor);
	else
		snprintf(problem->text, sizeof(problem->text),
			 "%s: its driver, for CUDA %d.%d, does not take tierd's kernels: %.64s (error %d); "
			 "update it, or build tierd with nvcc of that CUDA",
			 engine->name, version / 1000, version % 1000 / 10, driver_text(driver, error),
			 error);
	return -ENOEXEC;
}

static int load_image(struct gpu_engine *engine, struct gpu_kernels *kernels)
{
	struct gpu_problem *problem = &kernels->request.problem;
	int error, r;

	if (!kernels->image) {
		snprintf(problem->text, sizeof(problem->text),
			 "%s: tierd was built without kernels for GPUs: build it where nvcc is, with "
			 "-Dcuda=enabled",
			 engine->name);
		return -ENOEXEC;
	}
	error = engine->driver.module_load(&kernels->module, kernels->image);
	r = gpu_check(engine, "cuModuleLoadData", error, problem);
	if (r == 0)
		return 0;
	kernels->module = NULL;
	return r == -ENOEXEC ? say_what_it_takes(engine, error, problem) : r;
}

/* Of what is not there any more. */
static int unload(struct gpu_engine *engine, struct gpu_request *request)
{
	struct driver_module *module = kernels_of(request)->module;
	int r;

	kernels_of(request)->module = NULL;
	if (!module || engine->is_lost)
		return 0;
	r = gpu_check(engine, "cuModuleUnload", engine->driver.module_unload(module), &request->problem);
	return engine->is_lost ? 0 : r;
}

/* All at once, so that none is missing later. */
static int load(struct gpu_engine *engine, struct gpu_request *request)
{
	struct gpu_kernels *kernels = kernels_of(request);
	struct gpu_problem problem;
	int r;

	if (engine->is_lost)
		return gpu_refuse(engine, &request->problem);
	r = load_image(engine, kernels);
	for (unsigned i = 0; r == 0 && i < kernels->count; i++)
		r = gpu_check(engine, "cuModuleGetFunction",
			      engine->driver.module_function(&kernels->functions[i], kernels->module,
							     kernels->names[i]),
			      &request->problem);
	if (r < 0) {
		problem = request->problem;
		(void)unload(engine, request);
		request->problem = problem;
	}
	return r;
}

void gpu_kernels_load(struct gpu_engine *engine, struct gpu_kernels *kernels)
{
	kernels->module = NULL;
	gpu_submit(engine, &kernels->request, load);
}

void gpu_kernels_unload(struct gpu_engine *engine, struct gpu_kernels *kernels)
{
	gpu_submit(engine, &kernels->request, unload);
}
