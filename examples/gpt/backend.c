#include "backend.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "options.h"

void backend_crash_point(const struct backend *backend, const char *point)
{
	const struct options *options = backend->options;

	if (strcmp(options->crash_point, point) == 0 && options->crash_step == backend->step &&
	    options->crash_rank == options->rank)
		kill(getpid(), SIGKILL);
}

int backend_gather(struct backend *backend, unsigned unit, struct unit_view *ret_parameters)
{
	uint64_t start = clock_now_ns();
	int r = backend->ops->gather(backend, unit, ret_parameters);

	backend->times.gather += clock_now_ns() - start;
	backend_crash_point(backend, "gather");
	return r;
}

int backend_gather_on(struct backend *backend, unsigned unit, void *stream, struct unit_view *ret_parameters)
{
	uint64_t start = clock_now_ns();
	int r = backend->ops->gather_on ? backend->ops->gather_on(backend, unit, stream, ret_parameters)
					: -EOPNOTSUPP;

	backend->times.gather += clock_now_ns() - start;
	backend_crash_point(backend, "gather");
	return r;
}

int backend_release(struct backend *backend, unsigned unit)
{
	return backend->ops->release(backend, unit);
}

int backend_gradients(struct backend *backend, unsigned unit, struct unit_view *ret_gradients)
{
	uint64_t start = clock_now_ns();
	int r = backend->ops->gradients(backend, unit, ret_gradients);

	backend->times.push += clock_now_ns() - start;
	return r;
}

int backend_gradients_on(struct backend *backend, unsigned unit, void *stream,
			 struct unit_view *ret_gradients)
{
	uint64_t start = clock_now_ns();
	int r = backend->ops->gradients_on ? backend->ops->gradients_on(backend, unit, stream, ret_gradients)
					   : -EOPNOTSUPP;

	backend->times.push += clock_now_ns() - start;
	return r;
}

int backend_push(struct backend *backend, unsigned unit)
{
	uint64_t start = clock_now_ns();
	int r = backend->ops->push(backend, unit);

	backend->times.push += clock_now_ns() - start;
	backend_crash_point(backend, "push");
	return r;
}

int backend_push_on(struct backend *backend, unsigned unit, void *stream)
{
	uint64_t start = clock_now_ns();
	int r = backend->ops->push_on(backend, unit, stream);

	backend->times.push += clock_now_ns() - start;
	backend_crash_point(backend, "push");
	return r;
}

int backend_step(struct backend *backend, const struct backend_rates *rates)
{
	uint64_t start = clock_now_ns();
	int r;

	backend_crash_point(backend, "step");
	r = backend->ops->step(backend, rates);
	backend->times.step += clock_now_ns() - start;
	if (r == 0)
		backend->is_stepping = true;
	backend_crash_point(backend, "stepped");
	return r;
}

int backend_wait(struct backend *backend, struct backend_result *ret_result)
{
	uint64_t start = clock_now_ns();
	int r;

	if (!backend->is_stepping)
		return -ENODATA;
	backend->is_stepping = false;
	r = backend->ops->wait(backend, ret_result);
	if (r == 0)
		backend->loss_scale = ret_result->next_loss_scale;
	backend->times.step += clock_now_ns() - start;
	return r;
}

int backend_recover(struct backend *backend, uint64_t *ret_step)
{
	backend->is_stepping = false;
	backend->ops->abandon(backend);
	return backend->ops->ready(backend, ret_step);
}

struct backend *backend_free(struct backend *backend)
{
	if (backend)
		backend->ops->free(backend);
	return NULL;
}
