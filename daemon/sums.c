#include "daemon/sums.h"

#include "daemon/state.h"

bool sums_are_as_pushed(const struct job *job)
{
	return job->options.is_pushed_once && job->options.world_size == 1 &&
	       !job->options.optimizer->is_by_owner;
}

uint64_t sum_bytes(const struct job *job, const struct unit *unit)
{
	return sums_are_as_pushed(job) ? unit_trainable_bytes(unit)
				       : size_product(unit->trainable, sizeof(float));
}

/* Of the part, in the sum. */
static uint64_t part_offset(const struct job *job, const struct unit *unit, const struct unit_part *part)
{
	uint64_t offset = 0;

	if (!sums_are_as_pushed(job))
		return part->first * sizeof(float);
	for (const struct unit_part *before = unit->parts; before < part; before++)
		offset += unit_part_bytes(before);
	return offset;
}

static uint64_t element_bytes(const struct job *job, enum unit_section section)
{
	return sums_are_as_pushed(job) ? section_element_bytes(section) : sizeof(float);
}

char *sum_element(const struct job *job, const struct unit *unit, char *base, enum unit_section section,
		  uint64_t first)
{
	return base + part_offset(job, unit, unit_part(unit, section)) + first * element_bytes(job, section);
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
	values = base + part_offset(job, unit, part) +
		 (first - part->first) * section_element_bytes(part->section);
	if (*count > part->first + part->elements - first)
		*count = part->first + part->elements - first;
	if (section_plain(part->section) == SECTION_FP32)
		return (const float *)values;
	if (*count > SUM_TILE)
		*count = SUM_TILE;
	format_widen(state_master_kind(part->section), values, *count, room);
	return room;
}
