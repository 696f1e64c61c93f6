/* Training without tierd: everything in plain memory, and all ranks of the world played by one process. */
#include <errno.h>
#include <math.h>

#include "backend.h"
#include "optimizer.h"
#include "options.h"
#include "plain_unit.h"

struct plain {
	struct backend backend;
	const struct model *model;
	struct team *team;
	struct plain_gradients *held; /* by the rank that acts, of unit held_unit */
	unsigned held_unit;
	uint64_t steps, good_steps; /* good: since the loss scale has changed */
	struct backend_result result;
	struct plain_unit *units;
};

static struct plain *plain_of(struct backend *backend)
{
	return container_of(backend, struct plain, backend);
}

static int plain_is_new(struct backend *backend, bool *ret_is_new)
{
	*ret_is_new = true;
	return 0;
}

static int plain_write(struct backend *backend, unsigned unit, unsigned tensor, uint64_t first,
		       uint64_t count, const float *values)
{
	plain_unit_write(&plain_of(backend)->units[unit], tensor, first, count, values);
	return 0;
}

static int plain_ready(struct backend *backend, uint64_t *ret_step)
{
	*ret_step = plain_of(backend)->steps;
	return 0;
}

static void plain_abandon(struct backend *backend)
{
	struct plain *plain = plain_of(backend);

	plain->held = plain_gradients_free(plain->held);
	for (unsigned unit = 0; unit < plain->model->unit_count; unit++)
		plain_unit_next_step(&plain->units[unit]);
}

static int plain_phase(struct backend *backend, const char *name)
{
	return 0;
}

static int plain_gather(struct backend *backend, unsigned unit, struct unit_view *ret_parameters)
{
	*ret_parameters = plain_unit_parameters(&plain_of(backend)->units[unit]);
	return 0;
}

static int plain_release(struct backend *backend, unsigned unit)
{
	return 0;
}

static int plain_gradients(struct backend *backend, unsigned unit, struct unit_view *ret_gradients)
{
	struct plain *plain = plain_of(backend);

	if (plain->held)
		return -ENOBUFS;
	plain->held = plain_gradients_new(&plain->units[unit]);
	if (!plain->held)
		return -ENOMEM;
	plain->held_unit = unit;
	*ret_gradients = plain_unit_gradients(&plain->units[unit], plain->held);
	return 0;
}

static int plain_push(struct backend *backend, unsigned unit)
{
	struct plain *plain = plain_of(backend);

	if (!plain->held || plain->held_unit != unit)
		return -EINVAL;
	return plain_unit_push(&plain->units[unit], plain->team, backend->acting_rank, TAKE_PTR(plain->held));
}

/* docs/numerics.md, "Norm, overflow, clipping": what the gradients are multiplied with; the norm goes to the
 * result. */
static int clip(struct plain *plain, const struct backend_rates *rates, double *ret_factor)
{
	double clip_norm = (float)plain->backend.options->clip;
	double scale = (double)rates->gradient_scale / (double)rates->loss_scale;
	double sum = 0.0, norm;
	int r;

	for (unsigned unit = 0; unit < plain->model->unit_count; unit++) {
		r = plain_unit_finish_sum(&plain->units[unit], plain->team, &sum);
		if (r < 0)
			return r;
	}
	norm = sqrt(sum) * fabs(scale);
	plain->result.gradient_norm = norm;
	plain->result.is_skipped = !isfinite(sum);
	*ret_factor = scale * (clip_norm > 0.0 && norm > clip_norm ? clip_norm / (norm + 1e-6) : 1.0);
	return 0;
}

static void update(struct plain *plain, struct plain_unit *unit, const struct backend_rates *rates,
		   double factor)
{
	const struct options *options = plain->backend.options;
	struct update_constants constants[GROUP_COUNT];

	if (!unit->has_sum)
		return;
	for (unsigned group = 0; group < GROUP_COUNT; group++)
		constants[group] =
			optimizer_constants(options, group, rates->learning_rate, factor, unit->updates + 1);
	plain_unit_update(unit, plain->team, options, constants);
}

/* docs/numerics.md, "Loss scale". */
static float next_loss_scale(struct plain *plain, float loss_scale)
{
	if (!plain->backend.options->is_scale_dynamic)
		return loss_scale;
	if (plain->result.is_skipped) {
		plain->good_steps = 0;
		return fmaxf(loss_scale * SCALE_BACKOFF, SCALE_MINIMUM);
	}
	if (++plain->good_steps < SCALE_INTERVAL)
		return loss_scale;
	plain->good_steps = 0;
	return isfinite(loss_scale * SCALE_GROWTH) ? loss_scale * SCALE_GROWTH : loss_scale;
}

static int plain_step(struct backend *backend, const struct backend_rates *rates)
{
	struct plain *plain = plain_of(backend);
	double factor;
	int r = clip(plain, rates, &factor);

	if (r < 0)
		return r;
	for (unsigned unit = 0; unit < plain->model->unit_count; unit++) {
		if (!plain->result.is_skipped)
			update(plain, &plain->units[unit], rates, factor);
		plain_unit_next_step(&plain->units[unit]);
	}
	plain->result.next_loss_scale = next_loss_scale(plain, rates->loss_scale);
	plain->result.step = ++plain->steps;
	return 0;
}

static int plain_wait(struct backend *backend, struct backend_result *ret_result)
{
	*ret_result = plain_of(backend)->result;
	return 0;
}

static int plain_read(struct backend *backend, unsigned unit, unsigned tensor, enum backend_state state,
		      uint64_t first, uint64_t count, void *ret_data)
{
	const struct plain_unit *source = &plain_of(backend)->units[unit];
	const float *values[STATE_COUNT] = { source->master, source->master, source->slots[0],
					     source->slots[1] };

	first += source->offset[tensor];
	if (state == STATE_PARAMETER && source->unit->tensors[tensor].format != NUMBER_FP32)
		memcpy(ret_data, source->narrow + first, count * sizeof(uint16_t));
	else
		memcpy(ret_data, values[state] + first, count * sizeof(float));
	return 0;
}

static int plain_statistics(struct backend *backend, struct tierd_statistics *ret_statistics)
{
	return -EOPNOTSUPP;
}

static const char *plain_message(struct backend *backend)
{
	return "out of memory: without tierd all of the model lies in it; make the model smaller";
}

static void plain_free(struct backend *backend)
{
	struct plain *plain = plain_of(backend);

	plain_gradients_free(plain->held);
	for (unsigned unit = 0; plain->units && unit < plain->model->unit_count; unit++)
		plain_unit_close(&plain->units[unit]);
	free(plain->units);
	free(plain);
}

static int plain_close(struct backend *backend)
{
	plain_free(backend);
	return 0;
}

static const struct backend_ops plain_ops = {
	.is_new = plain_is_new,
	.write = plain_write,
	.ready = plain_ready,
	.abandon = plain_abandon,
	.phase = plain_phase,
	.gather = plain_gather,
	.release = plain_release,
	.gradients = plain_gradients,
	.push = plain_push,
	.step = plain_step,
	.wait = plain_wait,
	.read = plain_read,
	.statistics = plain_statistics,
	.message = plain_message,
	.close = plain_close,
	.free = plain_free,
};

int plain_backend_new(const struct options *options, const struct model *model, struct team *team,
		      struct backend **ret_backend)
{
	_cleanup_(backend_freep) struct backend *backend = NULL;
	struct plain *plain = calloc(1, sizeof(*plain));

	if (!plain)
		return -ENOMEM;
	backend = &plain->backend;
	plain->backend = (struct backend){
		.ops = &plain_ops,
		.name = "plain memory",
		.ranks = (unsigned)options->world_size,
		.options = options,
		.loss_scale = (float)options->loss_scale,
	};
	plain->model = model;
	plain->team = team;
	plain->units = calloc(model->unit_count, sizeof(plain->units[0]));
	if (!plain->units)
		return -ENOMEM;
	for (unsigned unit = 0; unit < model->unit_count; unit++) {
		int r = plain_unit_open(&model->units[unit], plain->backend.ranks, (unsigned)options->stage,
					&plain->units[unit]);

		if (r < 0)
			return r;
	}
	*ret_backend = TAKE_PTR(backend);
	return 0;
}
