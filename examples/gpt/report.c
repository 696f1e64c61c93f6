#include "report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* The first and the last loss are means over this many steps at most, and half of all: single ones are noisy.
 */
#define LOSS_STEPS 10

int report_new(const struct options *options, const struct model *model, struct report **ret_report)
{
	_cleanup_(report_freep) struct report *report = calloc(1, sizeof(*report));

	if (!report)
		return -ENOMEM;
	report->options = options;
	report->model = model;
	report->evaluation_loss = NAN;
	report->losses = calloc(options->steps + 1, sizeof(report->losses[0]));
	if (!report->losses)
		return -ENOMEM;
	for (uint64_t i = 0; i < options->steps; i++)
		report->losses[i] = NAN;
	report->sampling = (struct sampling){
		.prompt = options->prompt,
		.bytes = options->sample_bytes,
		.temperature = options->temperature,
		.seed = options->seed,
	};
	report->sample_buffer = malloc(sample_size(&report->sampling));
	if (!report->sample_buffer)
		return -ENOMEM;
	*ret_report = TAKE_PTR(report);
	return 0;
}

struct report *report_free(struct report *report)
{
	if (report) {
		free(report->sample_buffer);
		free(report->losses);
	}
	free(report);
	return NULL;
}

static double seconds(uint64_t ns)
{
	return (double)ns * 1e-9;
}

/* Of ns, for each step. */
static double step_seconds(const struct progress *progress, uint64_t ns)
{
	return progress->steps > 0 ? seconds(ns) / (double)progress->steps : 0.0;
}

static uint64_t compute_ns(const struct progress *progress)
{
	return progress->training_ns - progress->times.gather - progress->times.push - progress->times.step;
}

static double tokens_per_second(const struct progress *progress)
{
	return progress->training_ns > 0 ? (double)progress->tokens / seconds(progress->training_ns) : 0.0;
}

static struct progress progress_since(const struct progress *now, const struct progress *before)
{
	return (struct progress){
		.steps = now->steps - before->steps,
		.tokens = now->tokens - before->tokens,
		.training_ns = now->training_ns - before->training_ns,
		.times = { .gather = now->times.gather - before->times.gather,
			   .push = now->times.push - before->times.push,
			   .step = now->times.step - before->times.step },
	};
}

void report_start(const struct report *report)
{
	const struct options *options = report->options;

	if (options->rank != 0 || report->first_step == 0)
		return;
	if (report->first_step < options->steps)
		printf("job %s stands at step %llu of %llu: going on from there\n", options->job,
		       (unsigned long long)report->first_step, (unsigned long long)options->steps);
	else
		printf("job %s stands at step %llu of %llu: nothing to do; give a larger --steps, --mode "
		       "replace or another --job\n",
		       options->job, (unsigned long long)report->first_step,
		       (unsigned long long)options->steps);
	fflush(stdout);
}

/* ---- Lines of progress ---- */

static void print_times(const struct progress *progress)
{
	printf("  %6.0f tokens/s  per step: %.3f s = gather %.3f + compute %.3f + push %.3f + step %.3f",
	       tokens_per_second(progress), step_seconds(progress, progress->training_ns),
	       step_seconds(progress, progress->times.gather), step_seconds(progress, compute_ns(progress)),
	       step_seconds(progress, progress->times.push), step_seconds(progress, progress->times.step));
}

static void print_left(const struct progress *progress, uint64_t steps)
{
	uint64_t left = (uint64_t)((double)steps * step_seconds(progress, progress->training_ns) + 0.5);

	if (steps > 0)
		printf("  %llu:%02llu:%02llu left", (unsigned long long)left / 3600,
		       (unsigned long long)left / 60 % 60, (unsigned long long)left % 60);
}

void report_step(struct report *report, uint64_t step, float learning_rate,
		 const struct backend_result *result)
{
	const struct options *options = report->options;
	struct progress progress;

	report->gradient_norm = result->gradient_norm;
	report->skipped_steps += result->is_skipped;
	report->loss_scale = result->next_loss_scale;
	if (options->rank != 0 || options->log_every == 0 ||
	    ((step + 1) % options->log_every != 0 && step + 1 != options->steps))
		return;
	progress = progress_since(&report->done, &report->shown);
	report->shown = report->done;
	printf("step %5llu/%llu  loss %.4f  norm %8.4f  rate %.2e", (unsigned long long)step + 1,
	       (unsigned long long)options->steps, report->losses[step], result->gradient_norm,
	       (double)learning_rate);
	print_times(&progress);
	print_left(&progress, options->steps - step - 1);
	printf("%s\n", result->is_skipped ? "  skipped: gradients not finite" : "");
	fflush(stdout);
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The mean loss of the first steps of this process, or of the last; NaN if it ran none. */
static double mean_loss(const struct report *report, bool is_last)
{
	uint64_t end = report->options->steps, count, first;
	double sum = 0.0;

	if (report->first_step >= end)
		return NAN;
	count = smaller(LOSS_STEPS, (end - report->first_step + 1) / 2);
	first = is_last ? end - count : report->first_step;
	for (uint64_t i = 0; i < count; i++)
		sum += report->losses[first + i];
	return sum / (double)count;
}

/* A young model does not know UTF-8 well enough for a terminal. */
static void print_text(const char *text)
{
	for (; *text; text++)
		putchar(*text == '\n' || *text == '\t' || (*text >= ' ' && *text <= '~') ? *text : '?');
}

static void print_training(const struct report *report)
{
	const struct tierd_statistics *statistics = &report->statistics;

	printf("%llu parameters in %s, rank %llu of %llu: loss (of this rank) %.4f to %.4f",
	       (unsigned long long)model_parameters(report->model), report->backend,
	       (unsigned long long)report->options->rank, (unsigned long long)report->options->world_size,
	       mean_loss(report, false), mean_loss(report, true));
	if (!isnan(report->evaluation_loss))
		printf(", on held-out text %.4f", report->evaluation_loss);
	printf("; %.0f tokens/s, %.3f s per step", tokens_per_second(&report->done),
	       step_seconds(&report->done, report->done.training_ns));
	/* Of it, gathers wait for what has not been updated yet. */
	if (report->has_statistics && statistics->job_steps > 0)
		printf(", %.3f s of update in the daemon",
		       seconds(statistics->job_step_ns) / (double)statistics->job_steps);
	printf("\n");
}

void report_summary(const struct report *report)
{
	if (report->done.steps > 0)
		print_training(report);
	if (report->sample) {
		printf("---- sample ----\n%s", report->options->prompt);
		print_text(report->sample);
		printf("\n----------------\n");
	}
	fflush(stdout);
}

/* ---- The file ---- */

static void write_string(FILE *file, const char *name, const char *text)
{
	fprintf(file, "  \"%s\": \"", name);
	for (; *text; text++) {
		unsigned char byte = (unsigned char)*text;

		if (byte == '"' || byte == '\\')
			fprintf(file, "\\%c", byte);
		else if (byte < ' ' || byte > '~')
			fprintf(file, "\\u%04x", byte);
		else
			fputc(byte, file);
	}
	fprintf(file, "\",\n");
}

static void write_count(FILE *file, const char *name, uint64_t value)
{
	fprintf(file, "  \"%s\": %llu,\n", name, (unsigned long long)value);
}

static void write_value(FILE *file, double value)
{
	if (isfinite(value))
		fprintf(file, "%.9g", value);
	else
		fprintf(file, "null");
}

static void write_real(FILE *file, const char *name, double value)
{
	fprintf(file, "  \"%s\": ", name);
	write_value(file, value);
	fprintf(file, ",\n");
}

static void write_tensors(FILE *file, const struct model *model)
{
	const char *separator = "";

	fprintf(file, "  \"tensors\": [");
	for (unsigned unit = 0; unit < model->unit_count; unit++) {
		for (unsigned i = 0; i < model->units[unit].tensor_count; i++, separator = ",") {
			const struct tensor *tensor = &model->units[unit].tensors[i];

			fprintf(file,
				"%s\n    {\"name\": \"%s\", \"unit\": \"%s\", \"format\": \"%s\", "
				"\"elements\": %llu}",
				separator, tensor->name, model->units[unit].name, number_name(tensor->format),
				(unsigned long long)tensor_elements(tensor));
		}
	}
	fprintf(file, "\n  ],\n");
}

static void write_losses(FILE *file, const struct report *report)
{
	fprintf(file, "  \"losses\": [");
	for (uint64_t i = 0; i < report->options->steps; i++) {
		fprintf(file, i > 0 ? ", " : "");
		write_value(file, report->losses[i]);
	}
	fprintf(file, "],\n");
}

static void write_run(FILE *file, const struct report *report)
{
	const struct options *options = report->options;

	write_string(file, "backend", report->backend);
	write_string(file, "device", report->options->device == DEVICE_CUDA ? "cuda" : "cpu");
	write_string(file, "format", number_name((enum number_format)options->format));
	write_count(file, "parameters", model_parameters(report->model));
	write_count(file, "rank", options->rank);
	write_count(file, "world_size", options->world_size);
	write_count(file, "stage", options->stage);
	write_count(file, "batch", options->batch);
	write_count(file, "micro_batches", options->micro_batches);
	write_count(file, "context", options->context);
	write_count(file, "threads", report->threads);
	write_count(file, "work_bytes", report->work_bytes);
	write_count(file, "data_bytes", report->data_bytes);
	write_count(file, "steps", options->steps);
	write_count(file, "first_step", report->first_step);
	write_real(file, "loss_scale", (double)report->loss_scale);
	write_count(file, "skipped_steps", report->skipped_steps);
	write_count(file, "recoveries", report->recoveries);
}

static void write_results(FILE *file, const struct report *report)
{
	const struct progress *done = &report->done;

	write_real(file, "loss_first", mean_loss(report, false));
	write_real(file, "loss_last", mean_loss(report, true));
	write_real(file, "loss_held_out", report->evaluation_loss);
	write_real(file, "gradient_norm", report->gradient_norm);
	write_real(file, "tokens_per_second", tokens_per_second(done));
	write_real(file, "step_seconds", step_seconds(done, done->training_ns));
	write_real(file, "gather_seconds", step_seconds(done, done->times.gather));
	write_real(file, "compute_seconds", step_seconds(done, compute_ns(done)));
	write_real(file, "push_seconds", step_seconds(done, done->times.push));
	write_real(file, "update_seconds", step_seconds(done, done->times.step));
	if (report->sample)
		write_string(file, "sample", report->sample);
}

static void write_statistics(FILE *file, const struct tierd_statistics *statistics)
{
	const struct {
		const char *name;
		uint64_t value;
	} values[] = {
#define VALUE(member) { #member, statistics->member }
		VALUE(gathers),
		VALUE(gather_misses),
		VALUE(gather_wait_ns),
		VALUE(pushes),
		VALUE(gradient_wait_ns),
		VALUE(step_wait_ns),
		VALUE(communicated_elements),
		VALUE(logical_parameter_bytes),
		VALUE(logical_gradient_bytes),
		VALUE(logical_optimizer_bytes),
		VALUE(job_parameters),
		VALUE(job_host_bytes),
		VALUE(job_host_budget),
		VALUE(job_nvme_bytes),
		VALUE(job_gather_read_bytes),
		VALUE(job_update_read_bytes),
		VALUE(job_update_written_bytes),
		VALUE(job_initialize_written_bytes),
		VALUE(job_steps),
		VALUE(job_step_ns),
#undef VALUE
	};

	fprintf(file, "  \"statistics\": {");
	for (size_t i = 0; i < ARRAY_LENGTH(values); i++)
		fprintf(file, "%s\n    \"%s\": %llu", i > 0 ? "," : "", values[i].name,
			(unsigned long long)values[i].value);
	fprintf(file, "\n  },\n");
}

int report_write(const struct report *report, FILE *file)
{
	fprintf(file, "{\n");
	write_run(file, report);
	write_results(file, report);
	if (report->has_statistics)
		write_statistics(file, &report->statistics);
	write_tensors(file, report->model);
	write_losses(file, report);
	fprintf(file, "  \"version\": \"%s\"\n}\n", TIERD_VERSION);
	if (fflush(file) != 0)
		return -errno;
	return ferror(file) ? -EIO : 0;
}
