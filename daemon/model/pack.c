/* Packs: small neighbouring units of a catalog, put together. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "daemon/model/catalog.h"

static void pack_append(struct pack *pack, uint32_t index, struct unit *unit)
{
	unit->pack = index;
	for (uint32_t i = 0; i < unit->part_count; i++) {
		struct unit_part *part = &unit->parts[i];

		part->pack_first = pack->elements[part->section];
		pack->elements[part->section] += part->elements;
	}
	pack->unit_count++;
}

/* Sections of a slot begin at pages, so that reads can land there. */
#define SLOT_ALIGN_BYTES 4096

static void pack_finish(struct pack *pack)
{
	for (int section = 0; section < UNIT_SECTIONS; section++) {
		pack->slot_offset[section] = pack->slot_bytes;
		pack->slot_bytes += size_align(pack->elements[section] *
						       section_element_bytes((enum unit_section)section),
					       SLOT_ALIGN_BYTES);
	}
	/* A unit of empty tensors has an address too. */
	if (pack->slot_bytes == 0)
		pack->slot_bytes = SLOT_ALIGN_BYTES;
}

int catalog_pack(struct catalog *catalog)
{
	uint64_t elements = 0;

	catalog->packs = calloc(catalog->unit_count ? catalog->unit_count : 1, sizeof(*catalog->packs));
	if (!catalog->packs)
		return -ENOMEM;
	for (uint32_t i = 0; i < catalog->unit_count; i++) {
		uint64_t more = unit_elements(&catalog->units[i]);

		if (i == 0 || elements + more > PACK_ELEMENTS) {
			catalog->packs[catalog->pack_count++].first_unit = i;
			elements = 0;
		}
		elements += more;
		pack_append(&catalog->packs[catalog->pack_count - 1], catalog->pack_count - 1,
			    &catalog->units[i]);
	}
	for (uint32_t i = 0; i < catalog->pack_count; i++)
		pack_finish(&catalog->packs[i]);
	return 0;
}

void catalog_unpack(struct catalog *catalog)
{
	free(catalog->packs);
	catalog->packs = NULL;
	catalog->pack_count = 0;
}

bool pack_is_frozen(const struct pack *pack)
{
	for (int section = 0; section < UNIT_TRAINABLE_SECTIONS; section++)
		if (pack->elements[section] > 0)
			return false;
	return true;
}

static void clear_up_to(char *section, uint64_t *at, uint64_t end)
{
	memset(section + *at, 0, end - *at);
	*at = end;
}

static void clear_section_padding(const struct catalog *catalog, const struct pack *pack, int section,
				  char *base)
{
	uint64_t bytes = section_element_bytes((enum unit_section)section), at = 0;

	for (uint32_t u = pack->first_unit; u < pack->first_unit + pack->unit_count; u++) {
		const struct unit *unit = &catalog->units[u];
		const struct unit_part *part = unit_part(unit, (enum unit_section)section);

		for (uint32_t i = 0; part && i < unit->tensor_count; i++) {
			const struct tensor_layout *tensor = &unit->tensors[i].layout;

			if (tensor->section != part->section)
				continue;
			clear_up_to(base, &at, (part->pack_first + tensor->first) * bytes);
			at += tensor->elements * bytes;
		}
	}
	clear_up_to(base, &at, size_align(pack->elements[section] * bytes, SLOT_ALIGN_BYTES));
}

void catalog_clear_padding(const struct catalog *catalog, uint32_t index, char *slot)
{
	const struct pack *pack = &catalog->packs[index];

	for (int section = UNIT_TRAINABLE_SECTIONS; section < UNIT_SECTIONS; section++)
		if (pack->elements[section] > 0)
			clear_section_padding(catalog, pack, section, slot + pack->slot_offset[section]);
}
