/* The parts of a unit: what it has of each section. */
#include <errno.h>

#include "daemon/model/catalog.h"

struct unit_part *unit_part(const struct unit *unit, enum unit_section section)
{
	for (uint32_t i = 0; i < unit->part_count; i++)
		if (unit->parts[i].section == section)
			return &unit->parts[i];
	return NULL;
}

bool unit_is_present(const struct unit *unit)
{
	for (uint32_t i = 0; i < unit->tensor_count; i++)
		if (unit->tensors[i].is_present)
			return true;
	return false;
}

uint64_t unit_elements(const struct unit *unit)
{
	uint64_t elements = 0;

	for (uint32_t i = 0; i < unit->part_count; i++)
		elements += unit->parts[i].elements;
	return elements;
}

uint64_t unit_parameter_bytes(const struct unit *unit)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < unit->part_count; i++)
		bytes += unit_part_bytes(&unit->parts[i]);
	return bytes;
}

uint64_t unit_trainable_bytes(const struct unit *unit)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < unit->part_count; i++)
		if (section_is_trainable(unit->parts[i].section))
			bytes += unit_part_bytes(&unit->parts[i]);
	return bytes;
}

uint64_t unit_gradient_bytes(const struct unit *unit)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < unit->part_count; i++)
		if (section_is_trainable(unit->parts[i].section))
			bytes += unit_part_gradient_bytes(&unit->parts[i]);
	return bytes;
}

/* A bit for each section that a tensor lies in, an empty one too. */
static uint32_t sections_of(const struct unit *unit)
{
	uint32_t sections = 0;

	for (uint32_t i = 0; i < unit->tensor_count; i++)
		sections |= UINT32_C(1) << unit->tensors[i].layout.section;
	return sections;
}

int unit_set_parts(struct unit *unit, struct region *region, const struct unit_layout *layout)
{
	uint32_t sections = sections_of(unit);

	unit->parts = region_alloc(region, (size_t)__builtin_popcount(sections) * sizeof(*unit->parts));
	if (!unit->parts)
		return -ENOMEM;
	for (int section = 0; section < UNIT_SECTIONS; section++)
		if (sections & UINT32_C(1) << section)
			unit->parts[unit->part_count++] =
				(struct unit_part){ .section = (enum unit_section)section,
						    .has_wide_gradients = unit_layout_has_wide(
							    layout, (enum unit_section)section),
						    .elements = layout->elements[section],
						    .first = unit_layout_section_first(layout, section) };
	unit->trainable = unit_layout_trainable(layout);
	return 0;
}
