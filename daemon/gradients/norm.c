#include "daemon/gradients/norm.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gradients/gradient_listener.h"
#include "daemon/gradients/gradients.h"
#include "daemon/gradients/own.h"
#include "daemon/telemetry/telemetry.h"

struct norm {
	struct job *job;
	norm_done *done;
	_Atomic uint32_t next_unit;
	bool *is_pushed;   /* by unit: the gradients' own mark may go while this is measured */
	const char **sums; /* by unit; NULL: not pushed, or measured before */
	unsigned left;
	bool is_void; /* it was given up */
	unsigned work_count;
	struct norm_task {
		struct work work;
		struct norm *norm;
	} tasks[];
};

static void run_norm(struct work *work)
{
	struct norm *norm = container_of(work, struct norm_task, work)->norm;

	for (;;) {
		uint32_t unit = atomic_fetch_add(&norm->next_unit, 1);

		if (unit >= norm->job->catalog.unit_count)
			return;
		if (norm->sums[unit])
			norm_measure(norm->job, &norm->job->gradients->measured, unit, norm->sums[unit]);
	}
}

static struct norm *norm_free(struct norm *norm)
{
	if (!norm)
		return NULL;
	free(norm->is_pushed);
	free(norm->sums);
	free(norm);
	return NULL;
}

static void on_norm_done(struct work *work)
{
	struct norm *norm = container_of(work, struct norm_task, work)->norm;
	struct job *job = norm->job;

	trace_worked(job, TRACE_MEASURE, TRACE_NO_UNIT, 0, work);
	if (--norm->left > 0)
		return;
	job->gradients->norm = NULL;
	if (!norm->is_void)
		norm->done(job, norm);
	norm_free(norm);
	/* It waits for steps that are being measured; this one may have come to nothing. */
	job->gradients->listener->measured(job);
	job_settle(job);
}

const double *norm_find(const struct job *job, uint32_t unit)
{
	const struct sum *sum = gradient_sum_of(job, unit, 0);

	if (job->gradients->spill && !spill_address(job, job->catalog.units[unit].pack))
		return spill_norm(job, unit);
	return sum->measured > 0 && sum->measured == sum->next ? norm_sums_of(&job->gradients->measured, unit)
							       : NULL;
}

static void take_sums(struct norm *norm)
{
	struct job *job = norm->job;

	for (uint32_t unit = 0; unit < job->catalog.unit_count; unit++) {
		const double *early = job->gradients->listener->find_norm(job, unit);
		const double *measured = early ? early : norm_find(job, unit);
		double *blocks = norm_sums_of(&job->gradients->measured, unit);

		if (!norm->is_pushed[unit])
			continue;
		gradient_sum_of(job, unit, 0)->usual = gradient_sum_of(job, unit, 0)->next;
		if (!measured)
			norm->sums[unit] = gradient_sum(job, unit);
		else if (measured != blocks)
			memcpy(blocks, measured,
			       norm_sums_count(&job->gradients->measured, unit) * sizeof(*measured));
	}
}

static int norm_new(struct job *job, struct norm **ret_norm)
{
	unsigned count = workers_count(job->node->workers);
	struct norm *norm = calloc(1, sizeof(*norm) + count * sizeof(norm->tasks[0]));

	if (!norm)
		return -ENOMEM;
	norm->job = job;
	norm->work_count = count;
	norm->is_pushed = calloc(job->catalog.unit_count, sizeof(*norm->is_pushed));
	norm->sums = calloc(job->catalog.unit_count, sizeof(*norm->sums));
	if (!norm->is_pushed || !norm->sums) {
		norm_free(norm);
		return -ENOMEM;
	}
	for (uint32_t unit = 0; unit < job->catalog.unit_count; unit++)
		norm->is_pushed[unit] = gradient_has_content(job, unit);
	take_sums(norm);
	*ret_norm = norm;
	return 0;
}

int norm_start(struct job *job, norm_done *done)
{
	int r = norm_new(job, &job->gradients->norm);

	if (r < 0)
		return r;
	job->gradients->norm->done = done;
	job->gradients->norm->left = job->gradients->norm->work_count;
	for (unsigned i = 0; i < job->gradients->norm->work_count; i++) {
		struct norm_task *task = &job->gradients->norm->tasks[i];

		task->norm = job->gradients->norm;
		task->work = (struct work){ .run = run_norm, .done = on_norm_done, .urgency = WORK_NORMAL };
		task->work.is_timed = trace_is_on(job);
		workers_submit(job->node->workers, &task->work);
	}
	return 0;
}

bool norm_is_running(const struct job *job)
{
	return job->gradients->norm;
}

void norm_give_up(struct job *job)
{
	if (job->gradients->norm)
		job->gradients->norm->is_void = true;
}

double norm_sum(const struct norm *norm)
{
	const struct job *job = norm->job;
	const struct norm_sums *measured = &job->gradients->measured;
	double sum = 0.0;

	for (uint32_t unit = 0; unit < job->catalog.unit_count; unit++) {
		const double *blocks = norm_sums_of(measured, unit);

		for (uint64_t i = 0; norm->is_pushed[unit] && i < norm_sums_count(measured, unit); i++)
			sum += blocks[i];
	}
	return sum;
}

const char *norm_find_nonfinite(const struct norm *norm)
{
	const struct job *job = norm->job;

	for (uint32_t unit = 0; unit < job->catalog.unit_count; unit++)
		if (norm->is_pushed[unit] && !norm_sums_are_finite(&job->gradients->measured, unit))
			return job->catalog.units[unit].name;
	return "?";
}
