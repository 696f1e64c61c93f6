#include <errno.h>
#include <stdio.h>

#include "common/clock.h"
#include "offload/cuda/gpu_private.h"

int gpu_errno(int error)
{
	switch (error) {
	case DRIVER_OUT_OF_MEMORY:
		return -ENOMEM;
	case DRIVER_INVALID_VALUE:
	case DRIVER_INVALID_HANDLE:
	case DRIVER_INVALID_CONTEXT:
	case DRIVER_NOT_REGISTERED:
		return -EINVAL;
	case DRIVER_INVALID_IMAGE:
	case DRIVER_NO_BINARY:
	case DRIVER_INVALID_PTX:
	case DRIVER_UNSUPPORTED_PTX:
		return -ENOEXEC;
	case DRIVER_NOT_FOUND:
		return -ENOENT;
	case DRIVER_ALREADY_REGISTERED:
		return -EEXIST;
	case DRIVER_NOT_PERMITTED:
		return -EPERM;
	case DRIVER_NOT_SUPPORTED:
		return -EOPNOTSUPP;
	default:
		return -EIO;
	}
}

/* An error of a GPU that is lost is that of every call from then on. */
static bool is_lasting(const struct gpu_engine *engine)
{
	size_t unused;

	return engine->has_entered && engine->driver.memory_info(&unused, &unused) != DRIVER_DONE;
}

static void lose(struct gpu_engine *engine)
{
	engine->is_lost = true;
	pthread_mutex_lock(&engine->lock);
	engine->is_failure_new = true;
	pthread_mutex_unlock(&engine->lock);
}

void gpu_give_up(struct gpu_engine *engine, const char *call, int error)
{
	if (engine->is_lost)
		return;
	snprintf(engine->loss.text, sizeof(engine->loss.text), "%s is lost: %s: %s (error %d)", engine->name,
		 call, driver_text(&engine->driver, error), error);
	lose(engine);
}

void gpu_check_patience(struct gpu_engine *engine, uint64_t since_ns, const char *what)
{
	if (engine->is_lost || !clock_is_late(since_ns, engine->patience_ns))
		return;
	snprintf(engine->loss.text, sizeof(engine->loss.text), "%s is lost: %s has not ended for %.3g s",
		 engine->name, what, (double)engine->patience_ns / 1e9);
	lose(engine);
}

void gpu_engine_hurry(struct gpu_engine *engine, unsigned patience_ms)
{
	engine->patience_ns = (uint64_t)patience_ms * 1000000;
}

uint64_t gpu_engine_at_work_since(const struct gpu_engine *engine)
{
	return atomic_load(&engine->at_work_since_ns);
}

bool gpu_engine_hangs(struct gpu_engine *engine, struct gpu_problem *ret_problem)
{
	if (!clock_is_late(gpu_engine_at_work_since(engine), engine->patience_ns))
		return false;
	snprintf(ret_problem->text, sizeof(ret_problem->text),
		 "%s is lost: its driver has not come back from a call for %.3g s", engine->name,
		 (double)engine->patience_ns / 1e9);
	return true;
}

int gpu_refuse(const struct gpu_engine *engine, struct gpu_problem *problem)
{
	*problem = engine->loss;
	return -ENODEV;
}

int gpu_check(struct gpu_engine *engine, const char *call, int error, struct gpu_problem *problem)
{
	if (error == DRIVER_DONE)
		return 0;
	snprintf(problem->text, sizeof(problem->text), "%s: %s: %s (error %d)", engine->name, call,
		 driver_text(&engine->driver, error), error);
	if (!is_lasting(engine))
		return gpu_errno(error);
	gpu_give_up(engine, call, error);
	return gpu_refuse(engine, problem);
}

void gpu_drain(struct gpu_engine *engine, struct driver_stream *stream)
{
	int error = engine->driver.stream_synchronize(stream);

	if (error != DRIVER_DONE)
		gpu_give_up(engine, "cuStreamSynchronize", error);
}
