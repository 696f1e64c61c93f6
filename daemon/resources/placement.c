#include "daemon/resources/placement.h"

#include "common/size.h"
#include "daemon/model/model.h"

bool placement_is_chosen(const struct job *job)
{
	return job->options.parameter_placement == PLACEMENT_AUTO ||
	       job->options.optimizer_placement == PLACEMENT_AUTO;
}

bool placement_may_release(const struct job *job)
{
	return job->location.is_durable ||
	       (job->location.has_nvme_parameters && job->location.has_nvme_optimizer);
}

static bool may_spill(const struct job *job)
{
	return placement_is_chosen(job) && job->options.gradient_placement == PLACEMENT_DEFAULT &&
	       job->options.stage >= 2 && job->node->path_count > 0;
}

struct placement_job placement_describe(const struct job *job)
{
	struct placement_job description = { .parameters = job->options.parameter_placement,
					     .optimizer = job->options.optimizer_placement,
					     .stage = job->options.stage,
					     .has_paths = job->node->path_count > 0,
					     .is_durable = job->location.durability != DURABILITY_NONE,
					     .may_spill = may_spill(job) };

	for (uint32_t i = 0; i < job->catalog.pack_count; i++)
		for (int section = 0; section < UNIT_SECTIONS; section++) {
			enum unit_section kind = (enum unit_section)section;
			uint64_t elements = job->catalog.packs[i].elements[section];
			uint64_t bytes = elements * section_element_bytes(kind);

			if (section < UNIT_TRAINABLE_SECTIONS) {
				description.trainable_bytes += bytes;
				description.state_bytes += state_all_bytes(&job->options, kind, elements);
			} else {
				description.frozen_bytes += bytes;
			}
		}
	for (uint32_t unit = 0; unit < job->catalog.unit_count; unit++)
		description.sums_bytes += sum_bytes(job, &job->catalog.units[unit]);
	return description;
}

/* Parameters in host memory whose state is on NVMe are written there, too: the job is durable. */
static bool has_copies(const struct placement_job *job, struct placement placement)
{
	return job->is_durable && placement.has_nvme_optimizer && !placement.has_nvme_parameters;
}

/* An update reads and writes what is trained; a forward and a backward pass gather all parameters; sums that
 * are spilled are written and read. */
uint64_t placement_traffic(const struct placement_job *job, struct placement placement)
{
	uint64_t trainable = placement.has_nvme_parameters ? job->trainable_bytes : 0;
	uint64_t frozen = placement.has_nvme_parameters ? job->frozen_bytes : 0;
	uint64_t state = placement.has_nvme_optimizer ? job->state_bytes : 0;
	uint64_t copied = has_copies(job, placement) ? job->trainable_bytes : 0;

	uint64_t sums = placement.has_nvme_sums ? job->sums_bytes : 0;

	return size_sum(size_sum(size_sum(size_product(4, trainable), copied), size_product(2, frozen)),
			size_product(2, size_sum(state, sums)));
}

static bool is_allowed(uint32_t asked, bool is_nvme, bool may_be_nvme)
{
	if (asked == PLACEMENT_AUTO)
		return !is_nvme || may_be_nvme;
	return is_nvme == (asked == PLACEMENT_NVME);
}

/* Behind all that move no more: of equals, what has more in host memory stays first. */
static void insert(const struct placement_job *job, struct placement *choices, unsigned count,
		   struct placement placement)
{
	uint64_t traffic = placement_traffic(job, placement);

	for (; count > 0 && placement_traffic(job, choices[count - 1]) > traffic; count--)
		choices[count] = choices[count - 1];
	choices[count] = placement;
}

unsigned placement_choices(const struct placement_job *job, struct placement choices[PLACEMENT_CHOICES])
{
	bool may_leave = job->has_paths && job->stage == 3;
	unsigned count = 0;

	for (unsigned bits = 0; bits < PLACEMENT_CHOICES; bits++) {
		struct placement placement = { bits & 2, bits & 1, bits & 4 };

		if ((job->may_spill || !placement.has_nvme_sums) &&
		    is_allowed(job->parameters, placement.has_nvme_parameters, may_leave) &&
		    is_allowed(job->optimizer, placement.has_nvme_optimizer, job->has_paths))
			insert(job, choices, count++, placement);
	}
	return count;
}
