#include "rank.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dump.h"
#include "examples/gpt/cuda/device.h"
#include "kernels.h"
#include "outputs.h"
#include "sample.h"
#include "train.h"

static int draw_sample(struct training *training)
{
	struct report *report = training->report;
	int r = training->backend->ops->phase(training->backend, "sample");

	if (r < 0)
		return r;
	return sample(training->network, training->backend, training->model, &report->sampling,
		      report->sample_buffer, &report->sample);
}

static int finish(struct training *training, const struct outputs *outputs)
{
	const struct options *options = training->options;
	struct report *report = training->report;
	int r;

	if (options->rank != 0)
		return 0;
	/* Of the training alone: sampling and dumping read too. */
	r = training->backend->ops->statistics(training->backend, &report->statistics);
	report->has_statistics = r == 0;
	if (r < 0 && r != -EOPNOTSUPP)
		return r;
	r = 0;
	if (options->sample_bytes > 0)
		r = draw_sample(training);
	if (r == 0 && outputs->dump.file)
		rewind(outputs->dump.file);
	if (r == 0 && outputs->dump.file)
		r = dump_write(outputs->dump.file, training->backend, training->model);
	if (r < 0)
		return r;
	report_summary(report);
	return outputs->json.file ? report_write(report, outputs->json.file) : 0;
}

static int run(struct training *training, const struct outputs *outputs)
{
	int r = train_start(training);

	if (r < 0)
		return r;
	r = train_steps(training);
	if (r < 0)
		return r;
	backend_crash_point(training->backend, "end");
	r = finish(training, outputs);
	/* A rank has died that none of this needs, or a connection was lost. */
	while ((r == -ESTALE || r == -ECONNRESET) && train_outlive(training) == 0)
		r = finish(training, outputs);
	return r;
}

static unsigned thread_count(const struct options *options)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);

	if (options->threads > 0)
		return (unsigned)options->threads;
	return options->is_rank || processors < 1 ? 1 : (unsigned)processors;
}

static int open_backend(const struct options *options, const struct model *model, struct team *team,
			struct backend **ret_backend)
{
	if (options->is_plain)
		return plain_backend_new(options, model, team, ret_backend);
	/* If the others have finished meanwhile, they do not come back. */
	if (options->is_restarted && finished_backend_new(options, model, ret_backend) == 0)
		return 0;
	return tierd_backend_new(options, model, ret_backend);
}

/* Of what only the user can mend. */
static const char *remedy(const struct options *options, int r)
{
	if (r == -ENOENT && options->mode == TIERD_RESUME)
		return "\ngpt: it was dropped, or ended with its tierd, because it was not "
		       "durable; --mode either trains the job from step 0";
	return "";
}

static void report_failure(const struct options *options, const struct outputs *outputs,
			   struct backend *backend, const char *computing, int r)
{
	const char *path = outputs_failed(outputs);

	if (path)
		fprintf(stderr, "gpt: %s: %s\n", path, strerror(-r));
	else if (computing)
		fprintf(stderr, "gpt: rank %llu: %s\n", (unsigned long long)options->rank, computing);
	else
		fprintf(stderr, "gpt: rank %llu: %s%s\n", (unsigned long long)options->rank,
			backend->ops->message(backend), remedy(options, r));
}

/* Runs with the backend, and leaves it in good order if all went well. */
static int run_with_backend(struct training *training, struct outputs *outputs)
{
	int r = run(training, outputs), kept;

	if (r == 0) {
		kept = outputs_keep(outputs);
		r = training->backend->ops->close(training->backend);
		return kept < 0 ? kept : r;
	}
	report_failure(training->options, outputs, training->backend, training->compute->message, r);
	backend_free(training->backend);
	return r;
}

/* Of several ranks each has a GPU, in turn. */
static int open_device(struct options *options, struct compute **ret_compute)
{
	unsigned count = cuda_count();

	if (count == 0)
		return -ENODEV;
	options->gpu = (int32_t)(options->rank % count);
	return cuda_new((unsigned)options->gpu, ret_compute);
}

int rank_train(struct options *options)
{
	struct model_shape shape = { options->layers, options->width, options->heads, options->context,
				     (enum number_format)options->format };
	struct compute compute; /* outlives the network */
	_cleanup_(model_freep) struct model *model = NULL;
	_cleanup_(team_freep) struct team *team = NULL;
	_cleanup_(cuda_freep) struct compute *device = NULL;
	_cleanup_(network_freep) struct network *network = NULL;
	_cleanup_(data_closep) struct data *data = NULL;
	_cleanup_(report_freep) struct report *report = NULL;
	_cleanup_free_ uint8_t *bytes = malloc(options->batch * (options->context + 1));
	_cleanup_(outputs_close) struct outputs outputs = { .json = { NULL } };
	struct backend *backend = NULL;
	int r = options->device == DEVICE_CUDA ? open_device(options, &device) : 0;

	if (r < 0)
		return r;
	kernels_choose();
	r = bytes ? model_new(&shape, options->seed, &model) : -ENOMEM;
	if (r == 0)
		r = team_new(thread_count(options), network_scratch_bytes(&shape), &team);
	compute = processors(team);
	if (r == 0)
		r = network_new(model, options->batch, options->keep_activations, device ? device : &compute,
				&network);
	if (r == 0)
		r = report_new(options, model, &report);
	if (r < 0) {
		fprintf(stderr, "gpt: cannot set up the model: %s; make it or --batch smaller\n",
			device && device->message ? device->message : strerror(-r));
		return r;
	}
	r = data_open(options->data, options->context, &data);
	if (r == 0)
		r = outputs_open(options, &outputs);
	if (r < 0)
		return r;
	report->threads = thread_count(options);
	report->work_bytes = network_bytes(network) + report->threads * network_scratch_bytes(&shape);
	report->data_bytes = data_size(data);
	r = open_backend(options, model, team, &backend);
	if (r < 0)
		return r;
	report->backend = backend->name;
	struct training training = { .options = options,
				     .model = model,
				     .network = network,
				     .compute = device ? device : &compute,
				     .data = data,
				     .backend = backend,
				     .report = report,
				     .bytes = bytes };

	return run_with_backend(&training, &outputs);
}
