#include "daemon/gpu/figures.h"

#include "daemon/gpu/exchange.h"

/* For who has imported it memory is there longer; the daemon's part ends with the tier. */
static uint64_t tier_bytes(const struct gpu_tier *tier)
{
	return tier->has_memory ? tier->memory.bytes : 0;
}

static uint64_t ranks_bytes(const struct gpu_tier *tier)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < GPU_RANKS; i++)
		/* Else the engine's thread may write what says how much it is. */
		if (tier->ranks[i] && tier->ranks[i]->gradients.state >= GRADIENTS_PINNING &&
		    tier->ranks[i]->gradients.state <= GRADIENTS_CLOSED)
			bytes += tier->ranks[i]->gradients.memory.bytes;
	return bytes;
}

static struct gpu_job_figures figures_of(const struct job *job, const struct gpu_in_use *gpu)
{
	struct gpu_job_figures figures = { .gpu = &job->node->gpu->gpus.gpus[gpu->number],
					   .number = gpu->number };

	QUEUE_FOREACH (link, &job->gpu->tiers) {
		const struct gpu_tier *tier = queue_entry(link, struct gpu_tier, link);

		if (tier->gpu != gpu)
			continue;
		figures.parameter_bytes += tier_bytes(tier);
		figures.gradient_bytes += ranks_bytes(tier);
		figures.update_bytes += gpu_passes_held_bytes(tier);
		figures.state_bytes += gpu_mirrors_bytes(tier);
	}
	return figures;
}

static uint64_t jobs_bytes(const struct queue *jobs, const struct gpu_in_use *gpu)
{
	uint64_t bytes = 0;

	QUEUE_FOREACH (link, jobs)
		bytes += gpu_job_bytes(figures_of(queue_entry(link, struct job, link), gpu));
	return bytes;
}

/* Without tiers a worker may be closing it. */
static bool is_in_use(const struct gpu_in_use *gpu)
{
	return gpu->tiers > 0 && gpu->engine;
}

unsigned gpu_figures_of_node(const struct node *node, struct gpu_figures ret_figures[GPUS_MAX])
{
	const struct node_gpu *own = node->gpu;
	unsigned count = 0;

	for (unsigned i = 0; own && i < GPUS_MAX; i++) {
		const struct gpu_in_use *gpu = &own->in_use[i];
		struct gpu_figures *figures = &ret_figures[count];

		if (!is_in_use(gpu))
			continue;
		*figures = (struct gpu_figures){
			.gpu = &own->gpus.gpus[i],
			.number = i,
			.is_lost = gpu->is_lost,
			.held_bytes = jobs_bytes(&node->jobs.live, gpu) + jobs_bytes(&node->jobs.dying, gpu),
			.sensors = gpu->sensors,
		};
		for (unsigned direction = 0; direction < GPU_DIRECTIONS; direction++)
			figures->traffic[direction] = gpu_engine_traffic(gpu->engine, direction);
		count++;
	}
	return count;
}

unsigned gpu_figures_of_job(const struct job *job, struct gpu_job_figures ret_figures[GPUS_MAX])
{
	const struct node_gpu *own = job->node->gpu;
	unsigned count = 0;

	for (unsigned i = 0; own && !queue_is_empty(&job->gpu->tiers) && i < GPUS_MAX; i++) {
		if (!is_in_use(&own->in_use[i]))
			continue;
		ret_figures[count] = figures_of(job, &own->in_use[i]);
		count += gpu_job_bytes(ret_figures[count]) > 0;
	}
	return count;
}

struct gpu_energy gpu_energy_of_job(const struct job *job)
{
	return job->gpu->energy;
}

struct gpu_exchange_figures gpu_exchange_of_job(const struct job *job)
{
	const struct gpu_exchange *exchange = job->gpu->exchange;

	return (struct gpu_exchange_figures){ exchange ? exchange->bytes : 0,
					      exchange ? exchange->problem : "" };
}
