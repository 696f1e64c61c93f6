#include "train.h"

#include <errno.h>
#include <stdio.h>

#include "common/clock.h"
#include "schedule.h"

#define INITIAL_PIECE 16384 /* elements */
#define EVALUATION_BATCHES 8

/* ---- Values ---- */

static int write_tensor(struct training *training, unsigned unit, unsigned tensor)
{
	uint64_t elements = tensor_elements(&training->model->units[unit].tensors[tensor]);
	float values[INITIAL_PIECE];
	int r = 0;

	for (uint64_t first = 0; r == 0 && first < elements; first += INITIAL_PIECE) {
		uint64_t count = elements - first < INITIAL_PIECE ? elements - first : INITIAL_PIECE;

		model_initial_values(training->model, unit, tensor, first, count, values);
		r = training->backend->ops->write(training->backend, unit, tensor, first, count, values);
	}
	return r;
}

/* Ranks take turns at the units, so nobody ever holds the model. */
static int write_initial_values(struct training *training)
{
	const struct options *options = training->options;
	int r = 0;

	for (unsigned unit = 0; unit < training->model->unit_count; unit++) {
		if (!options->is_plain && unit % options->world_size != options->rank)
			continue;
		for (unsigned i = 0; r == 0 && i < training->model->units[unit].tensor_count; i++)
			r = write_tensor(training, unit, i);
	}
	return r;
}

/* ---- Position ---- */

/* Whatever has become of steps that were lost: the next batches are those that follow the state. */
static int find_position(struct training *training)
{
	struct backend *backend = training->backend;
	int r;

	training->position = (struct backend_position){ training->options->seed, training->step };
	if (!backend->ops->kept)
		return 0;
	r = backend->ops->kept(backend, &training->position);
	return r == -ENOENT ? 0 : r;
}

static int keep_position(struct training *training)
{
	struct backend *backend = training->backend;

	training->position.draw++;
	return backend->ops->keep ? backend->ops->keep(backend, &training->position) : 0;
}

/* ---- Recovery ---- */

int train_outlive(struct training *training)
{
	struct backend *backend = training->backend, *reader;
	int r = -EAGAIN;

	/* The connection for it may be lost as another was; a daemon that is gone says something else. */
	do {
		if (backend->ops->outlive)
			r = backend->ops->outlive(backend, &reader);
	} while (r == -ECONNRESET);
	if (r < 0)
		return r;
	fprintf(stderr, "gpt: rank %llu: the job has taken its last step; going on without the other ranks\n",
		(unsigned long long)training->options->rank);
	network_abandon(training->network, backend);
	backend->ops->abandon(backend);
	backend_free(backend);
	training->backend = reader;
	return backend_recover(reader, &training->step);
}

/* A daemon that was restarted without its jobs has a new one, and all its ranks come here. The same inputs
 * make the same bits again. -ESTALE, too, when all is written: the ranks have to meet once more. Values that
 * a source was to give are not made up instead. */
static int begin_again(struct training *training)
{
	int r;

	if (training->options->source)
		return -ENODATA;
	fprintf(stderr,
		"gpt: rank %llu: the daemon has lost the state of job %s; beginning again at step 0\n",
		(unsigned long long)training->options->rank, training->options->job);
	training->report->first_step = 0;
	training->report->skipped_steps = 0;
	r = write_initial_values(training);
	return r < 0 ? r : -ESTALE;
}

static int recover(struct training *training)
{
	struct backend *backend = training->backend;
	char why[512];
	int r;

	snprintf(why, sizeof(why), "%s", backend->ops->message(backend));
	network_abandon(training->network, backend);
	/* What keeps it from that, the other ranks will see, too. */
	if (train_outlive(training) == 0)
		return 0;
	fprintf(stderr, "gpt: rank %llu: %s; waiting for all ranks\n",
		(unsigned long long)training->options->rank, why);
	/* Another rank may be lost before the first call of the new epoch. */
	do {
		r = backend_recover(backend, &training->step);
		if (r == 0)
			r = backend->ops->phase(backend, "train");
		else if (r == -ENODATA)
			r = begin_again(training);
		if (r == 0)
			r = find_position(training);
	} while (r == -ESTALE);
	if (r < 0)
		return r;
	training->report->recoveries++;
	fprintf(stderr, "gpt: rank %llu: all ranks are here, going on after step %llu\n",
		(unsigned long long)training->options->rank, (unsigned long long)training->step);
	return 0;
}

/* ---- Start ---- */

static int begin(struct training *training)
{
	struct backend *backend = training->backend;
	bool is_new;
	int r = backend->ops->is_new(backend, &is_new);

	if (r == 0 && is_new)
		r = write_initial_values(training);
	if (r == 0)
		r = backend->ops->ready(backend, &training->step);
	if (r == 0)
		r = find_position(training);
	return r == 0 ? backend->ops->phase(backend, "train") : r;
}

int train_start(struct training *training)
{
	int r = begin(training);

	/* -ENODATA: the other ranks have met a new daemon, and still have to write what they had written.
	 * With a source it is that one which lacks values. */
	if (r == -ESTALE || (r == -ENODATA && !training->options->source))
		r = recover(training);
	if (r < 0)
		return r;
	training->report->first_step = training->step;
	report_start(training->report);
	return 0;
}

/* ---- Steps ---- */

/* The ranks that this process plays take turns within a micro-batch. The loss is that of the first. */
static int train_micro_batches(struct training *training, double *ret_loss)
{
	const struct options *options = training->options;
	struct backend *backend = training->backend;
	double loss, sum = 0.0;

	for (uint64_t i = 0; i < options->micro_batches * backend->ranks; i++) {
		struct data_key key = {
			.seed = training->position.seed,
			.step = training->position.draw,
			.rank = options->rank + i % backend->ranks,
			.micro_batch = i / backend->ranks,
		};
		int r;

		backend->acting_rank = (unsigned)key.rank;
		data_train(training->data, &key, options->batch, training->bytes);
		r = network_train(training->network, backend, training->bytes, &loss);
		if (r < 0)
			return r;
		if (key.rank == options->rank)
			sum += loss;
	}
	*ret_loss = sum / (double)options->micro_batches;
	return 0;
}

/* The step before this one was applied while this one computed. */
static int finish_step(struct training *training)
{
	struct backend_result result;
	int r = backend_wait(training->backend, &result);

	if (r == -ENODATA)
		return 0;
	if (r < 0)
		return r;
	report_step(training->report, result.step - 1, training->learning_rate, &result);
	return 0;
}

static struct backend_rates rates_of(const struct training *training)
{
	const struct options *options = training->options;
	struct schedule schedule = {
		.peak = options->learning_rate,
		.warmup = options->warmup,
		.steps = options->steps,
	};

	return (struct backend_rates){
		.learning_rate = schedule_learning_rate(&schedule, training->step),
		.gradient_scale = 1.0f / (float)(options->world_size * options->micro_batches),
		.loss_scale = training->backend->loss_scale,
	};
}

static int announce_step(struct training *training)
{
	struct backend *backend = training->backend;
	struct backend_rates rates = rates_of(training);

	if (!backend->ops->announce || training->options->is_unannounced)
		return 0;
	return backend->ops->announce(backend, &rates, training->options->micro_batches);
}

static int begin_step(struct training *training)
{
	struct backend_rates rates = rates_of(training);
	int r = keep_position(training);

	if (r < 0)
		return r;
	training->learning_rate = rates.learning_rate;
	return backend_step(training->backend, &rates);
}

static void count_step(struct training *training, uint64_t start, const struct backend_times *before)
{
	const struct options *options = training->options;
	const struct backend_times *now = &training->backend->times;
	struct progress *done = &training->report->done;

	done->training_ns += clock_now_ns() - start;
	done->times.gather += now->gather - before->gather;
	done->times.push += now->push - before->push;
	done->times.step += now->step - before->step;
	done->tokens += options->batch * options->context * options->micro_batches * training->backend->ranks;
	done->steps++;
}

static int train_step(struct training *training)
{
	struct backend_times before = training->backend->times;
	uint64_t start = clock_now_ns();
	double loss;
	int r;

	training->backend->step = training->step;
	/* A dynamic scale depends on how the last step has gone; else that may still be under way. */
	r = training->options->is_scale_dynamic ? finish_step(training) : 0;
	if (r == 0)
		r = announce_step(training);
	if (r < 0)
		return r;
	r = train_micro_batches(training, &loss);
	if (r < 0)
		return r;
	r = finish_step(training);
	if (r < 0)
		return r;
	r = begin_step(training);
	if (r < 0)
		return r;
	training->report->losses[training->step] = loss;
	training->step++;
	count_step(training, start, &before);
	return 0;
}

/* ---- Evaluation ---- */

static int evaluate_batches(struct training *training, double *ret_loss)
{
	double loss, sum = 0.0;

	for (size_t i = 0; i < EVALUATION_BATCHES; i++) {
		int r;

		data_evaluate(training->data, i, EVALUATION_BATCHES, training->options->batch,
			      training->bytes);
		r = network_evaluate(training->network, training->backend, training->bytes, &loss);
		if (r < 0)
			return r;
		sum += loss;
	}
	*ret_loss = sum / EVALUATION_BATCHES;
	return 0;
}

/* Gathers of another phase have an order of their own, which must not spoil what is known of the training's.
 */
static int evaluate(struct training *training)
{
	const struct backend_ops *ops = training->backend->ops;
	int r = ops->phase(training->backend, "eval");

	if (r < 0)
		return r;
	r = evaluate_batches(training, &training->report->evaluation_loss);
	if (r < 0)
		return r;
	printf("step %5llu/%llu  loss on held-out text %.4f\n", (unsigned long long)training->step,
	       (unsigned long long)training->options->steps, training->report->evaluation_loss);
	return ops->phase(training->backend, "train");
}

static bool is_evaluation_due(const struct training *training)
{
	uint64_t every = training->options->evaluate_every;

	return training->options->rank == 0 && every > 0 &&
	       (training->step % every == 0 || training->step == training->options->steps);
}

/* One step, or, after the last, its result. */
static int train_next(struct training *training)
{
	int r;

	if (training->step >= training->options->steps)
		return finish_step(training);
	r = train_step(training);
	if (r < 0)
		return r;
	return is_evaluation_due(training) ? evaluate(training) : 0;
}

int train_steps(struct training *training)
{
	bool is_last;
	int r;

	do {
		is_last = training->step >= training->options->steps;
		r = train_next(training);
		if (r == -ESTALE) {
			is_last = false;
			r = recover(training);
		}
	} while (r == 0 && !is_last);
	return r;
}
