#include "daemon/slots.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"

/* Sizes that differ by less than an eighth share a class. */
static uint64_t class_bytes(uint64_t bytes)
{
	uint64_t unit = 4096;

	while (unit * 16 <= bytes)
		unit *= 2;
	return size_align(bytes, unit);
}

static int compare_classes(const void *a, const void *b)
{
	const struct slot_class *left = a, *right = b;

	return left->bytes < right->bytes ? -1 : left->bytes > right->bytes;
}

static uint32_t find_class(const struct slots *slots, uint64_t bytes)
{
	uint32_t i = 0;

	while (i < slots->class_count && slots->classes[i].bytes != bytes)
		i++;
	return i;
}

/* A class is as large as its largest pack, no larger. */
static int make_classes(const struct catalog *catalog, struct slots *slots)
{
	slots->classes = calloc(catalog->pack_count + 1, sizeof(*slots->classes));
	slots->class_of_pack = calloc(catalog->pack_count + 1, sizeof(*slots->class_of_pack));
	if (!slots->classes || !slots->class_of_pack)
		return -ENOMEM;
	for (uint32_t i = 0; i < catalog->pack_count; i++) {
		uint64_t bytes = class_bytes(catalog->packs[i].slot_bytes);
		uint32_t found = find_class(slots, bytes);

		if (found == slots->class_count)
			slots->classes[slots->class_count++].bytes = bytes;
		slots->classes[found].packs++;
	}
	qsort(slots->classes, slots->class_count, sizeof(*slots->classes), compare_classes);
	for (uint32_t i = 0; i < catalog->pack_count; i++)
		slots->class_of_pack[i] = find_class(slots, class_bytes(catalog->packs[i].slot_bytes));
	return 0;
}

static void tighten_classes(const struct catalog *catalog, struct slots *slots)
{
	for (uint32_t c = 0; c < slots->class_count; c++)
		slots->classes[c].bytes = 0;
	for (uint32_t i = 0; i < catalog->pack_count; i++) {
		struct slot_class *class = &slots->classes[slots->class_of_pack[i]];

		if (catalog->packs[i].slot_bytes > class->bytes)
			class->bytes = catalog->packs[i].slot_bytes;
	}
}

static void share_out(struct slots *slots, bool with_all, uint64_t budget)
{
	uint64_t all = 0, left;

	slots->bytes = 0;
	for (uint32_t c = 0; c < slots->class_count; c++) {
		struct slot_class *class = &slots->classes[c];

		class->count = with_all ? class->packs : class->packs < 2 ? class->packs : 2;
		slots->bytes += class->count * class->bytes;
		all += class->packs * class->bytes;
	}
	left = budget > slots->bytes ? budget - slots->bytes : 0;
	for (uint32_t c = 0; c < slots->class_count && !with_all; c++) {
		struct slot_class *class = &slots->classes[c];
		uint64_t part =
			(uint64_t)((double)left * (double)(class->packs * class->bytes) / (double)all);
		uint64_t more = part / class->bytes;

		if (budget >= all || more > class->packs - class->count)
			more = class->packs - class->count;
		class->count += (uint32_t)more;
		slots->bytes += more * class->bytes;
	}
}

static int place(struct slots *slots)
{
	uint64_t offset = 0;

	for (uint32_t c = 0; c < slots->class_count; c++) {
		slots->classes[c].first = slots->count;
		slots->count += slots->classes[c].count;
	}
	slots->offsets = calloc(slots->count + 1, sizeof(*slots->offsets));
	slots->owners = calloc(slots->count + 1, sizeof(*slots->owners));
	if (!slots->offsets || !slots->owners)
		return -ENOMEM;
	for (uint32_t c = 0; c < slots->class_count; c++)
		for (uint32_t i = 0; i < slots->classes[c].count; i++) {
			slots->offsets[slots->classes[c].first + i] = offset;
			slots->owners[slots->classes[c].first + i] = SLOT_NONE;
			offset += slots->classes[c].bytes;
		}
	return 0;
}

int slots_plan(const struct catalog *catalog, bool with_all, uint64_t budget, struct slots *ret_slots)
{
	struct slots slots = { 0 };
	int r = make_classes(catalog, &slots);

	if (r == 0) {
		tighten_classes(catalog, &slots);
		share_out(&slots, with_all, budget);
		r = place(&slots);
	}
	if (r < 0) {
		slots_free(&slots);
		return r;
	}
	*ret_slots = slots;
	return 0;
}

void slots_free(struct slots *slots)
{
	free(slots->classes);
	free(slots->class_of_pack);
	free(slots->offsets);
	free(slots->owners);
	*slots = (struct slots){ 0 };
}

uint32_t slots_take(struct slots *slots, uint32_t pack)
{
	const struct slot_class *class = &slots->classes[slots->class_of_pack[pack]];

	for (uint32_t slot = class->first; slot < class->first + class->count; slot++)
		if (slots->owners[slot] == SLOT_NONE) {
			slots->owners[slot] = pack;
			return slot;
		}
	return SLOT_NONE;
}

void slots_give(struct slots *slots, uint32_t slot)
{
	slots->owners[slot] = SLOT_NONE;
}
