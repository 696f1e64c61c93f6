/* What a job's gradients have: their plan, their memory, and whether anything of it is in use. */
#include <errno.h>
#include <stdlib.h>

#include "common/size.h"
#include "daemon/gradients/own.h"
#include "daemon/gradients/spilled.h"

int gradients_new(struct job *job)
{
	struct job_gradients *gradients = calloc(1, sizeof(*gradients));

	if (!gradients)
		return -ENOMEM;
	gradients->sums_memory = (struct memory)MEMORY_INIT;
	queue_init(&gradients->free_reductions);
	queue_init(&gradients->sums_waiting);
	queue_init(&gradients->free_spares);
	queue_init(&gradients->all_spares);
	job->gradients = gradients;
	return 0;
}

void gradients_free(struct job *job)
{
	free(job->gradients);
	job->gradients = NULL;
}

void gradients_listen(struct job *job, const struct gradient_listener *listener)
{
	job->gradients->listener = listener;
}

/* ---- The plan ---- */

uint64_t gradients_bytes(const struct job *job)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < job->catalog.unit_count; i++)
		bytes = size_sum(bytes, sum_bytes(job, &job->catalog.units[i]));
	return size_product(bytes, gradient_sums_per_unit(job));
}

int gradients_plan(struct job *job, uint64_t *ret_bytes)
{
	const struct catalog *catalog = &job->catalog;
	uint64_t *offsets = calloc(catalog->unit_count, sizeof(*offsets));
	uint64_t bytes = gradients_bytes(job), offset = 0;

	if (!offsets)
		return -ENOMEM;
	job->gradients->sum_offsets = offsets;
	job->gradients->sum_buffer_bytes = 0;
	if (bytes > UINT64_MAX - 4096)
		return -EOVERFLOW;
	for (uint32_t i = 0; i < catalog->unit_count; i++) {
		offsets[i] = offset;
		offset += sum_bytes(job, &catalog->units[i]);
	}
	*ret_bytes = size_align(bytes, 4096);
	return 0;
}

void gradients_forget_plan(struct job *job)
{
	free(job->gradients->sum_offsets);
	job->gradients->sum_offsets = NULL;
}

uint64_t gradients_metadata_bytes(const struct job *job)
{
	uint64_t units = job->catalog.unit_count;

	return units * sizeof(struct sum) * gradient_sums_per_unit(job) + norm_sums_bytes(job) +
	       job->options.world_size * (units * 2 * sizeof(uint32_t) +
					  (job->options.gradient_buffers + 1) * gradient_absent_bytes(job));
}

/* ---- The memory ---- */

static int make_sums(struct job *job)
{
	uint32_t per_unit = gradient_sums_per_unit(job);
	uint64_t count = (uint64_t)job->catalog.unit_count * per_unit;
	struct sum *sums = job->gradients->sums = calloc(count, sizeof(*sums));

	if (!sums)
		return -ENOMEM;
	for (uint64_t i = 0; i < count; i++) {
		sums[i].unit = (uint32_t)(i / per_unit);
		sums[i].rank = (uint32_t)(i % per_unit);
		queue_init(&sums[i].waiting);
		queue_init(&sums[i].link);
	}
	return 0;
}

int gradients_start(struct job *job, struct memory sums)
{
	job->gradients->sums_memory = sums;
	job->gradient_buffers = gradient_buffers_plan(&job->catalog, job->options.gradient_buffers,
						      job->options.gradient_bytes);
	if (make_sums(job) < 0 || norm_sums_init(job, &job->gradients->measured) < 0 ||
	    reduction_init(job) < 0 || spares_init(job) < 0)
		return -ENOMEM;
	return spill_new(job);
}

struct memory gradients_clear(struct job *job)
{
	struct memory sums = job->gradients->sums_memory;

	reduction_clear(job);
	spares_clear(job);
	spill_free(job);
	norm_sums_free(&job->gradients->measured);
	free(job->gradients->sums);
	job->gradients->sums = NULL;
	queue_init(&job->gradients->sums_waiting);
	gradients_forget_plan(job);
	job->gradients->sums_memory = (struct memory)MEMORY_INIT;
	return sums;
}

/* ---- Questions ---- */

const struct memory *gradients_memory(const struct job *job)
{
	return &job->gradients->sums_memory;
}

bool gradients_are_quiet(const struct job *job)
{
	return job->gradients->reductions_running == 0 && job->gradients->arriving == 0 &&
	       !job->gradients->norm;
}

uint64_t gradients_spill_bytes(const struct job *job)
{
	return job->gradients->spill ? job->gradients->sums_memory.length : 0;
}
