#include "daemon/model/sums.h"

#include "common/size.h"
#include "daemon/model/state.h"

bool sums_are_as_pushed(const struct job *job)
{
	return job->options.is_pushed_once && job->options.world_size == 1 &&
	       !job->options.optimizer->is_by_owner;
}

uint64_t sum_bytes(const struct job *job, const struct unit *unit)
{
	return sums_are_as_pushed(job) ? unit_gradient_bytes(unit)
				       : size_product(unit->trainable, sizeof(float));
}

/* Of the part, in the sum. */
static uint64_t part_offset(const struct job *job, const struct unit *unit, const struct unit_part *part)
{
	uint64_t offset = 0;

	if (!sums_are_as_pushed(job))
		return part->first * sizeof(float);
	for (const struct unit_part *before = unit->parts; before < part; before++)
		offset += unit_part_gradient_bytes(before);
	return offset;
}

static bool is_as_parameters(const struct job *job, const struct unit_part *part)
{
	return sums_are_as_pushed(job) && !part->has_wide_gradients;
}

bool sums_are_as_parameters(const struct job *job, const struct unit *unit, enum unit_section section)
{
	return is_as_parameters(job, unit_part(unit, section));
}

static uint64_t element_bytes(const struct job *job, const struct unit_part *part)
{
	return is_as_parameters(job, part) ? section_element_bytes(part->section) : sizeof(float);
}

char *sum_element(const struct job *job, const struct unit *unit, char *base, enum unit_section section,
		  uint64_t first)
{
	const struct unit_part *part = unit_part(unit, section);

	return base + part_offset(job, unit, part) + first * element_bytes(job, part);
}

static const struct unit_part *part_of(const struct unit *unit, uint64_t element)
{
	const struct unit_part *part = unit->parts;

	while (element - part->first >= part->elements)
		part++;
	return part;
}

const float *sum_values(const struct job *job, const struct unit *unit, const char *base, uint64_t first,
			uint64_t *count, float *room)
{
	const struct unit_part *part;
	const char *values;

	if (!sums_are_as_pushed(job))
		return (const float *)base + first;
	part = part_of(unit, first);
	values = base + part_offset(job, unit, part) + (first - part->first) * element_bytes(job, part);
	if (*count > part->first + part->elements - first)
		*count = part->first + part->elements - first;
	if (section_plain(part->section) == SECTION_FP32 || part->has_wide_gradients)
		return (const float *)values;
	if (*count > SUM_TILE)
		*count = SUM_TILE;
	format_widen(state_master_kind(part->section), values, *count, room);
	return room;
}
