/* What spilled sums need: host memory for buffers, and places on NVMe. */
#include <string.h>

#include "common/size.h"
#include "daemon/gradients/spill.h"
#include "daemon/gradients/spilled.h"
#include "daemon/model/model.h"

uint64_t spill_pack_bytes(const struct job *job, uint32_t pack)
{
	const struct pack *units = &job->catalog.packs[pack];
	uint64_t bytes = 0;

	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++)
		bytes = size_sum(bytes, sum_bytes(job, &job->catalog.units[u]));
	return bytes;
}

struct spill_plan spill_plan(const struct job *job)
{
	struct spill_plan plan = { .metadata_bytes = sizeof(struct spill) +
						     job->catalog.pack_count * sizeof(struct spilled) +
						     norm_sums_bytes(job) };

	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++) {
		uint64_t bytes = spill_pack_bytes(job, pack);

		plan.most += bytes > 0;
		if (bytes > plan.buffer_bytes)
			plan.buffer_bytes = bytes;
	}
	plan.metadata_bytes += plan.most * sizeof(struct spilled *);
	plan.buffer_bytes = size_align(plan.buffer_bytes, STORE_PAGE_BYTES);
	return plan;
}

/* A store for them alone has a fixed part, too. */
bool spill_is_worth_it(struct job *job, uint64_t sums_bytes)
{
	_cleanup_(store_layout_freep) struct store_layout *layout = NULL;
	struct spill_plan plan = spill_plan(job);

	return store_layout_new(&layout) == 0 && spill_lay_out(job, layout) == 0 &&
	       size_sum(size_sum(plan.buffer_bytes, plan.metadata_bytes),
			store_layout_metadata_bytes(layout)) < sums_bytes;
}

int spill_lay_out(struct job *job, struct store_layout *layout)
{
	int r = store_layout_add_scratch_stream(layout, "accumulator");

	if (r >= 0)
		job->location.streams.accumulator = (uint32_t)r;
	for (uint32_t i = 0; i < job->catalog.pack_count && r >= 0; i++)
		if (spill_pack_bytes(job, i) > 0)
			r = store_layout_add_section(layout, job->location.streams.accumulator,
						     spill_pack_bytes(job, i),
						     &job->location.places[i].accumulator);
	return r < 0 ? r : 0;
}

void spill_take_plan(struct job *job, const struct spill_plan *plan)
{
	job->gradients->sum_buffer_bytes = plan->buffer_bytes;
	for (uint32_t i = 0; i < job->catalog.pack_count; i++) {
		const struct pack *pack = &job->catalog.packs[i];
		uint64_t first = job->gradients->sum_offsets[pack->first_unit];

		for (uint32_t u = pack->first_unit; u < pack->first_unit + pack->unit_count; u++)
			job->gradients->sum_offsets[u] -= first;
	}
}

uint64_t spill_more_bytes(const struct spill_plan *plan, uint64_t spare, uint64_t arena)
{
	uint64_t rest = spare > arena ? spare - arena : 0;
	uint64_t buffers = (rest > spare / 2 ? rest : spare / 2) / plan->buffer_bytes;

	return (buffers < plan->most - 1 ? buffers : plan->most - 1) * plan->buffer_bytes;
}
