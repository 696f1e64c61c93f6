/* A job that has taken its last step, by a reader: what is left to do (to sample, to dump) needs no other
 * rank, and they may have gone. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backend.h"
#include "optimizer.h"
#include "options.h"

#include "client/tierd.h"

/* As kernels like it, and as tierd's own views have it. */
#define ALIGN_BYTES 256

/* Copies of a unit's parameters, as long as somebody has gathered it. */
struct gathered {
	unsigned leases;
	char *data;
	struct unit_view view;
};

/* Where the job has a tensor. */
struct place {
	uint32_t unit, tensor;
};

struct finished {
	struct backend backend;
	const struct model *model;
	struct tierd_node *node;
	struct tierd_reader *reader;
	uint64_t step;
	struct place (*places)[MODEL_MAX_TENSORS];
	struct gathered *units;
};

static struct finished *finished_of(struct backend *backend)
{
	return container_of(backend, struct finished, backend);
}

static int is_new(struct backend *backend, bool *ret_is_new)
{
	*ret_is_new = false;
	return 0;
}

static int ready(struct backend *backend, uint64_t *ret_step)
{
	*ret_step = finished_of(backend)->step;
	return 0;
}

static void abandon(struct backend *backend)
{
}

/* A reader ends with its connection; another one reads the same. */
static int outlive(struct backend *backend, struct backend **ret_backend)
{
	return finished_backend_new(backend->options, finished_of(backend)->model, ret_backend);
}

static int phase(struct backend *backend, const char *name)
{
	return 0;
}

static int read_values(struct backend *backend, unsigned unit, unsigned tensor, enum backend_state state,
		       uint64_t first, uint64_t count, void *ret_data)
{
	const char *names[STATE_COUNT] = { "parameter", "master" };
	const struct finished *finished = finished_of(backend);
	const struct place *place = &finished->places[unit][tensor];

	optimizer_slots(backend->options, &names[STATE_SLOT_0]);
	return tierd_reader_read(finished->reader, place->unit, place->tensor, names[state], first, count,
				 ret_data);
}

static uint64_t tensor_bytes(const struct tensor *tensor)
{
	uint64_t bytes = tensor_elements(tensor) * number_size(tensor->format);

	return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static int read_unit(struct backend *backend, unsigned index, struct gathered *gathered)
{
	const struct unit *unit = &finished_of(backend)->model->units[index];
	uint64_t bytes = 0;
	int r = 0;

	for (unsigned i = 0; i < unit->tensor_count; i++)
		bytes += tensor_bytes(&unit->tensors[i]);
	gathered->data = aligned_alloc(ALIGN_BYTES, bytes);
	if (!gathered->data)
		return -ENOMEM;
	bytes = 0;
	for (unsigned i = 0; i < unit->tensor_count && r == 0; i++) {
		gathered->view.tensor[i] = gathered->data + bytes;
		bytes += tensor_bytes(&unit->tensors[i]);
		r = read_values(backend, index, i, STATE_PARAMETER, 0, tensor_elements(&unit->tensors[i]),
				gathered->view.tensor[i]);
	}
	return r;
}

static int gather(struct backend *backend, unsigned unit, struct unit_view *ret_parameters)
{
	struct gathered *gathered = &finished_of(backend)->units[unit];
	int r = gathered->leases == 0 ? read_unit(backend, unit, gathered) : 0;

	if (r < 0) {
		free(TAKE_PTR(gathered->data));
		return r;
	}
	gathered->leases++;
	*ret_parameters = gathered->view;
	return 0;
}

static int release(struct backend *backend, unsigned unit)
{
	struct gathered *gathered = &finished_of(backend)->units[unit];

	if (--gathered->leases == 0)
		free(TAKE_PTR(gathered->data));
	return 0;
}

static int statistics(struct backend *backend, struct tierd_statistics *ret_statistics)
{
	return -EOPNOTSUPP;
}

static const char *message(struct backend *backend)
{
	return tierd_message();
}

static void free_finished(struct backend *backend)
{
	struct finished *finished = finished_of(backend);

	for (unsigned unit = 0; finished->units && unit < finished->model->unit_count; unit++)
		free(finished->units[unit].data);
	if (finished->reader)
		tierd_reader_close(finished->reader);
	tierd_disconnect(finished->node);
	free(finished->units);
	free(finished->places);
	free(finished);
}

static int close_finished(struct backend *backend)
{
	free_finished(backend);
	return 0;
}

/* Nobody trains what is finished: the rest is never called. */
static const struct backend_ops finished_ops = {
	.is_new = is_new,
	.ready = ready,
	.abandon = abandon,
	.outlive = outlive,
	.phase = phase,
	.gather = gather,
	.release = release,
	.read = read_values,
	.statistics = statistics,
	.message = message,
	.close = close_finished,
	.free = free_finished,
};

/* ---- Opening ---- */

/* The job may be another model's. */
static bool find_tensor(struct finished *finished, const struct tensor *tensor, struct place *ret_place)
{
	struct tierd_tensor found = TIERD_TENSOR_INIT;

	if (tierd_reader_find(finished->reader, tensor->name, &ret_place->unit, &ret_place->tensor) < 0 ||
	    tierd_reader_tensor(finished->reader, ret_place->unit, ret_place->tensor, &found) < 0)
		return false;
	return found.dimensions == tensor->dimensions && found.shape[0] == tensor->shape[0] &&
	       (found.dimensions < 2 || found.shape[1] == tensor->shape[1]) &&
	       (found.format == TIERD_FP32 ? sizeof(float) : sizeof(uint16_t)) == number_size(tensor->format);
}

static bool has_all_tensors(struct finished *finished)
{
	for (unsigned unit = 0; unit < finished->model->unit_count; unit++)
		for (unsigned i = 0; i < finished->model->units[unit].tensor_count; i++)
			if (!find_tensor(finished, &finished->model->units[unit].tensors[i],
					 &finished->places[unit][i]))
				return false;
	return true;
}

static int look(struct finished *finished, const struct options *options)
{
	struct tierd_reader_options reader = TIERD_READER_OPTIONS_INIT;
	struct tierd_reader_state state = TIERD_READER_STATE_INIT;
	int r = tierd_connect(options->socket, &finished->node);

	reader.name = options->job;
	if (r == 0)
		r = tierd_reader_open(finished->node, &reader, &finished->reader);
	if (r == 0)
		r = tierd_reader_state(finished->reader, &state);
	if (r < 0)
		return r;
	finished->step = state.step;
	return state.step >= options->steps && has_all_tensors(finished) ? 0 : -EAGAIN;
}

int finished_backend_new(const struct options *options, const struct model *model,
			 struct backend **ret_backend)
{
	_cleanup_(backend_freep) struct backend *backend = NULL;
	struct finished *finished = calloc(1, sizeof(*finished));
	int r;

	if (!finished)
		return -ENOMEM;
	backend = &finished->backend;
	finished->backend =
		(struct backend){ .ops = &finished_ops, .name = "tierd", .ranks = 1, .options = options };
	finished->model = model;
	finished->places = calloc(model->unit_count, sizeof(finished->places[0]));
	finished->units = calloc(model->unit_count, sizeof(finished->units[0]));
	if (!finished->places || !finished->units)
		return -ENOMEM;
	r = look(finished, options);
	if (r < 0)
		return r;
	*ret_backend = TAKE_PTR(backend);
	return 0;
}
