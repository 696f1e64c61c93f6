/* Training through tierd: the backend that a trainer of one's own would start from. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backend.h"
#include "optimizer.h"
#include "options.h"

#include "client/tierd.h"

/* Of each rank, beside the state. */
#define POSITION_KEY "position"
/* Whatever the number of ranks, which may change from run to run. */
#define POSITIONS_BYTES (sizeof(struct backend_position) * 1024)

struct tierd {
	struct backend backend;
	const struct model *model;
	struct tierd_node *node;
	struct tierd_job *job;
	struct tierd_ticket *ticket; /* of the step under way, or NULL */
	uint32_t *units;	     /* their indices in the job */
	const uint32_t *held;	     /* the unit of which gradients are written on the GPU, or NULL */
};

static struct tierd *tierd_of(struct backend *backend)
{
	return container_of(backend, struct tierd, backend);
}

static int is_new(struct backend *backend, bool *ret_is_new)
{
	struct tierd_job_state state;
	int r = tierd_job_state(tierd_of(backend)->job, &state);

	if (r < 0)
		return r;
	/* With a source the daemon has the values. */
	*ret_is_new = state.status == TIERD_NEW && !backend->options->source;
	return 0;
}

static int write_values(struct backend *backend, unsigned unit, unsigned tensor, uint64_t first,
			uint64_t count, const float *values)
{
	struct tierd *tierd = tierd_of(backend);

	return tierd_tensor_write(tierd->job, tierd->units[unit], tensor, first, count, values, true);
}

static int ready(struct backend *backend, uint64_t *ret_step)
{
	struct tierd_job_state state;
	int r = tierd_job_ready(tierd_of(backend)->job, (int)(backend->options->timeout * 1000), &state);

	if (r < 0)
		return r;
	backend->loss_scale = state.loss_scale;
	*ret_step = state.step;
	return 0;
}

static void abandon(struct backend *backend)
{
	struct tierd *tierd = tierd_of(backend);

	tierd->ticket = tierd_ticket_free(tierd->ticket);
	if (tierd->held)
		tierd_discard(tierd->job, *tierd->held);
	tierd->held = NULL;
	tierd_release_all(tierd->job);
}

static int outlive(struct backend *backend, struct backend **ret_backend)
{
	return finished_backend_new(backend->options, tierd_of(backend)->model, ret_backend);
}

static int phase(struct backend *backend, const char *name)
{
	return tierd_phase(tierd_of(backend)->job, name);
}

static struct unit_view view_of(const struct unit *unit, const struct tierd_view *view)
{
	struct unit_view result = { { NULL } };

	for (unsigned i = 0; i < unit->tensor_count; i++)
		result.tensor[i] = tierd_at(view, i);
	return result;
}

static int gather(struct backend *backend, unsigned unit, struct unit_view *ret_parameters)
{
	struct tierd *tierd = tierd_of(backend);
	struct tierd_view view;
	int r = tierd_gather(tierd->job, tierd->units[unit], &view);

	if (r < 0)
		return r;
	*ret_parameters = view_of(&tierd->model->units[unit], &view);
	return 0;
}

static int release(struct backend *backend, unsigned unit)
{
	struct tierd *tierd = tierd_of(backend);

	return tierd_release(tierd->job, tierd->units[unit]);
}

static int gather_on(struct backend *backend, unsigned unit, void *stream, struct unit_view *ret_parameters)
{
	struct tierd *tierd = tierd_of(backend);
	struct tierd_view view;
	int r = tierd_gather_on(tierd->job, tierd->units[unit], stream, &view);

	if (r < 0)
		return r;
	*ret_parameters = view_of(&tierd->model->units[unit], &view);
	return 0;
}

static int release_on(struct backend *backend, unsigned unit, void *stream)
{
	struct tierd *tierd = tierd_of(backend);

	return tierd_release_on(tierd->job, tierd->units[unit], stream);
}

static int gradients(struct backend *backend, unsigned unit, struct unit_view *ret_gradients)
{
	struct tierd *tierd = tierd_of(backend);
	struct tierd_view view;
	int r = tierd_gradients_with(tierd->job, tierd->units[unit], TIERD_GRADIENTS_OVERWRITE, &view);

	if (r < 0)
		return r;
	*ret_gradients = view_of(&tierd->model->units[unit], &view);
	return 0;
}

static int push(struct backend *backend, unsigned unit)
{
	struct tierd *tierd = tierd_of(backend);

	return tierd_push(tierd->job, tierd->units[unit]);
}

static int gradients_on(struct backend *backend, unsigned unit, void *stream, struct unit_view *ret_gradients)
{
	struct tierd *tierd = tierd_of(backend);
	struct tierd_view view;
	int r = tierd_gradients_on(tierd->job, tierd->units[unit], TIERD_GRADIENTS_OVERWRITE, stream, &view);

	if (r < 0)
		return r;
	tierd->held = &tierd->units[unit];
	*ret_gradients = view_of(&tierd->model->units[unit], &view);
	return 0;
}

/* All tensors have gradients; and nobody asks how the push has gone, because the step does. */
static int push_on(struct backend *backend, unsigned unit, void *stream)
{
	struct tierd *tierd = tierd_of(backend);
	int r = tierd_push_on(tierd->job, tierd->units[unit], NULL, 0, stream, NULL);

	if (r == 0)
		tierd->held = NULL;
	return r;
}

static int keep(struct backend *backend, const struct backend_position *position)
{
	return tierd_blob_set(tierd_of(backend)->job, POSITION_KEY, position, sizeof(*position), 0);
}

static int kept(struct backend *backend, struct backend_position *ret_position)
{
	struct backend_position position;
	size_t size;
	int r = tierd_blob_get(tierd_of(backend)->job, POSITION_KEY, &position, sizeof(position), &size, 0);

	if (r < 0 || size != sizeof(position))
		return r < 0 ? r : -EBADMSG;
	*ret_position = position;
	return 0;
}

static struct tierd_rates rates_of(const struct backend_rates *rates)
{
	struct tierd_rates tierd_rates = TIERD_RATES_INIT;

	tierd_rates.learning_rate = rates->learning_rate;
	tierd_rates.gradient_scale = rates->gradient_scale;
	tierd_rates.loss_scale = rates->loss_scale;
	return tierd_rates;
}

/* So the layers whose backward pass comes first can be updated beside that of the others. */
static int announce(struct backend *backend, const struct backend_rates *rates, uint64_t micro_batches)
{
	struct tierd_rates tierd_rates = rates_of(rates);

	return tierd_step_begin(tierd_of(backend)->job, &tierd_rates, (uint32_t)micro_batches);
}

/* Does not wait: the next forward pass begins while the later layers are still updated. */
static int step(struct backend *backend, const struct backend_rates *rates)
{
	struct tierd_rates tierd_rates = rates_of(rates);

	return tierd_step(tierd_of(backend)->job, &tierd_rates, &tierd_of(backend)->ticket);
}

/* After the last step this rank leaves: none would be left to take it again. */
static int wait_until_durable(struct tierd *tierd)
{
	int r = tierd_ticket_wait(tierd->ticket, TIERD_DURABLE, -1);

	/* A daemon that was restarted says at which step it stands, to the next call. */
	if (r == -ECONNRESET)
		r = tierd_phase(tierd->job, "train");
	return r == -EOPNOTSUPP ? 0 : r;
}

static int wait_for_step(struct backend *backend, struct backend_result *ret_result)
{
	struct tierd *tierd = tierd_of(backend);
	struct tierd_step_result result;
	int r = tierd_ticket_wait(tierd->ticket, TIERD_DONE, -1);

	if (r == 0)
		r = tierd_ticket_step_result(tierd->ticket, &result);
	if (r == 0 && result.step == backend->options->steps)
		r = wait_until_durable(tierd);
	/* A failed ticket waits for abandon: its message is still wanted. */
	if (r < 0)
		return r;
	tierd->ticket = tierd_ticket_free(tierd->ticket);
	*ret_result = (struct backend_result){ result.step, result.gradient_norm, result.is_skipped,
					       result.next_loss_scale };
	return 0;
}

static int read_values(struct backend *backend, unsigned unit, unsigned tensor, enum backend_state state,
		       uint64_t first, uint64_t count, void *ret_data)
{
	const char *names[STATE_COUNT] = { "parameter", "master" };
	struct tierd *tierd = tierd_of(backend);

	optimizer_slots(backend->options, &names[STATE_SLOT_0]);
	return tierd_tensor_read(tierd->job, tierd->units[unit], tensor, names[state], first, count,
				 ret_data);
}

static int statistics(struct backend *backend, struct tierd_statistics *ret_statistics)
{
	*ret_statistics = (struct tierd_statistics)TIERD_STATISTICS_INIT;
	return tierd_statistics(tierd_of(backend)->job, ret_statistics);
}

static const char *message(struct backend *backend)
{
	return tierd_message();
}

static void free_tierd(struct backend *backend)
{
	struct tierd *tierd = tierd_of(backend);

	tierd_ticket_free(tierd->ticket);
	if (tierd->job)
		tierd_job_detach(tierd->job);
	tierd_disconnect(tierd->node);
	free(tierd->units);
	free(tierd);
}

static int close_tierd(struct backend *backend)
{
	struct tierd *tierd = tierd_of(backend);
	int r = tierd_job_close(TAKE_PTR(tierd->job));

	if (r < 0)
		fprintf(stderr, "gpt: cannot leave the job: %s\n", tierd_message());
	free_tierd(backend);
	return r;
}

static const struct backend_ops tierd_ops = {
	.is_new = is_new,
	.write = write_values,
	.ready = ready,
	.abandon = abandon,
	.outlive = outlive,
	.phase = phase,
	.gather = gather,
	.release = release,
	.gather_on = gather_on,
	.release_on = release_on,
	.gradients = gradients,
	.push = push,
	.gradients_on = gradients_on,
	.push_on = push_on,
	.keep = keep,
	.kept = kept,
	.announce = announce,
	.step = step,
	.wait = wait_for_step,
	.read = read_values,
	.statistics = statistics,
	.message = message,
	.close = close_tierd,
	.free = free_tierd,
};

/* ---- Joining ---- */

static void describe_groups(const struct options *options, struct tierd_group groups[GROUP_COUNT])
{
	for (unsigned i = 0; i < GROUP_COUNT; i++) {
		groups[i] = (struct tierd_group)TIERD_GROUP_INIT;
		groups[i].beta1 = (float)options->beta1;
		groups[i].beta2 = (float)options->beta2;
		groups[i].epsilon = OPTIMIZER_EPSILON;
		groups[i].momentum = (float)options->momentum;
		groups[i].moments = (uint32_t)options->moments;
		groups[i].weight_decay = i == GROUP_DECAYS ? (float)options->weight_decay : 0.0f;
	}
}

static int open_job(struct tierd *tierd, const struct options *options)
{
	struct tierd_job_options job = TIERD_JOB_OPTIONS_INIT;
	struct tierd_group groups[GROUP_COUNT];

	describe_groups(options, groups);
	job.name = options->job;
	job.rank = (uint32_t)options->rank;
	job.world_size = (uint32_t)options->world_size;
	job.stage = (uint32_t)options->stage;
	job.mode = (uint32_t)options->mode;
	job.optimizer = (uint32_t)options->optimizer;
	job.loss_scale = (float)options->loss_scale;
	job.loss_scale_interval = options->is_scale_dynamic ? SCALE_INTERVAL : 0;
	job.loss_scale_growth = SCALE_GROWTH;
	job.loss_scale_backoff = SCALE_BACKOFF;
	job.loss_scale_minimum = SCALE_MINIMUM;
	job.clip_norm = (float)options->clip;
	job.parameter_placement = (uint32_t)options->parameters_on;
	job.optimizer_placement = (uint32_t)options->optimizer_on;
	job.gradient_placement = (uint32_t)options->gradients_on;
	job.host_budget = options->host_budget;
	job.gradient_bytes = options->gradient_bytes;
	job.gpu = options->gpu;
	job.gpu_budget = options->gpu_budget;
	job.gpu_gradients = options->gpu >= 0;
	job.durability = (uint32_t)options->durability;
	job.snapshots = (uint32_t)options->snapshots;
	job.source = options->source;
	job.with_optimizer = options->with_optimizer;
	job.seed = options->seed;
	job.blob_bytes = POSITIONS_BYTES;
	/* That of the embedding is summed before, of both of its uses. */
	job.pushed_once = options->micro_batches == 1;
	job.group_count = GROUP_COUNT;
	job.groups = groups;
	return tierd_job_open(tierd->node, &job, &tierd->job);
}

static uint32_t format_of(enum number_format format)
{
	static const uint32_t formats[] = {
		[NUMBER_FP32] = TIERD_FP32,
		[NUMBER_BF16] = TIERD_BF16,
		[NUMBER_FP16] = TIERD_FP16,
	};

	return formats[format];
}

static int define_unit(struct tierd *tierd, unsigned index)
{
	const struct unit *unit = &tierd->model->units[index];
	struct tierd_tensor tensors[MODEL_MAX_TENSORS];

	for (unsigned i = 0; i < unit->tensor_count; i++) {
		const struct tensor *tensor = &unit->tensors[i];

		tensors[i] = (struct tierd_tensor)TIERD_TENSOR_INIT;
		tensors[i].name = tensor->name;
		tensors[i].format = format_of(tensor->format);
		tensors[i].dimensions = tensor->dimensions;
		tensors[i].shape[0] = tensor->shape[0];
		tensors[i].shape[1] = tensor->shape[1];
		tensors[i].group = tensor->group;
	}
	return tierd_unit_define(tierd->job, unit->name, tensors, unit->tensor_count, &tierd->units[index]);
}

static int join(struct tierd *tierd, const struct options *options)
{
	int r = tierd_connect(options->socket, &tierd->node);

	if (r < 0) {
		fprintf(stderr, "gpt: rank %llu: %s%s\n", (unsigned long long)options->rank, tierd_message(),
			r == -ENOENT || r == -ECONNREFUSED ? "; or give --socket, or train with --no-tierd"
							   : "");
		return r;
	}
	r = open_job(tierd, options);
	for (unsigned unit = 0; r == 0 && unit < tierd->model->unit_count; unit++)
		r = define_unit(tierd, unit);
	if (r < 0)
		fprintf(stderr, "gpt: rank %llu: cannot join job '%s': %s\n",
			(unsigned long long)options->rank, options->job, tierd_message());
	return r;
}

int tierd_backend_new(const struct options *options, const struct model *model, struct backend **ret_backend)
{
	_cleanup_(backend_freep) struct backend *backend = NULL;
	struct tierd *tierd = calloc(1, sizeof(*tierd));
	int r;

	if (!tierd)
		return -ENOMEM;
	backend = &tierd->backend;
	tierd->backend =
		(struct backend){ .ops = &tierd_ops, .name = "tierd", .ranks = 1, .options = options };
	tierd->model = model;
	tierd->units = calloc(model->unit_count, sizeof(tierd->units[0]));
	if (!tierd->units)
		return -ENOMEM;
	r = join(tierd, options);
	if (r < 0)
		return r;
	*ret_backend = TAKE_PTR(backend);
	return 0;
}
