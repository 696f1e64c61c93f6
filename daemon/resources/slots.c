#include "daemon/resources/slots.h"

#include <errno.h>
#include <stdlib.h>

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

		class->reserved = with_all ? class->packs : class->packs < 2 ? class->packs : 2;
		class->count = class->reserved;
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

static int allocate(struct slots *slots)
{
	for (uint32_t c = 0; c < slots->class_count; c++) {
		slots->classes[c].first = slots->count;
		slots->count += slots->classes[c].count;
	}
	slots->offsets = calloc(slots->count + 1, sizeof(*slots->offsets));
	slots->owners = calloc(slots->count + 1, sizeof(*slots->owners));
	slots->segment_of = calloc(slots->count + 1, sizeof(*slots->segment_of));
	slots->in_segments = calloc(slots->count + 1, sizeof(*slots->in_segments));
	slots->segments = calloc(slots->count + 1, sizeof(*slots->segments));
	return slots->offsets && slots->owners && slots->segment_of && slots->in_segments && slots->segments
		       ? 0
		       : -ENOMEM;
}

static void place_next(struct slots *slots, uint32_t slot, uint64_t bytes)
{
	slots->offsets[slot] = slots->reserved;
	slots->owners[slot] = slots->segment_of[slot] = SLOT_NONE;
	slots->reserved += bytes;
	slots->here++;
}

static void place_reserved(struct slots *slots)
{
	for (uint32_t c = 0; c < slots->class_count; c++)
		for (uint32_t i = 0; i < slots->classes[c].reserved; i++)
			place_next(slots, slots->classes[c].first + i, slots->classes[c].bytes);
}

/* In the order of packs, which sweeps of new jobs and loads of jobs that return follow, while the pages of
 * the region still come. */
static int place_all(const struct catalog *catalog, struct slots *slots)
{
	uint32_t *placed = calloc(slots->class_count + 1, sizeof(*placed));

	if (!placed)
		return -ENOMEM;
	for (uint32_t pack = 0; pack < catalog->pack_count; pack++) {
		uint32_t c = slots->class_of_pack[pack];

		place_next(slots, slots->classes[c].first + placed[c]++, slots->classes[c].bytes);
	}
	free(placed);
	return 0;
}

/* ---- Segments ---- */

/* The class that is the farthest behind: so each segment has about the same share of every class. placed: by
 * class. */
static uint32_t next_class(const struct slots *slots, const uint32_t *placed)
{
	uint32_t next = SLOT_NONE;
	double least = 1;

	for (uint32_t c = 0; c < slots->class_count; c++) {
		uint32_t all = slots->classes[c].count - slots->classes[c].reserved;
		double share = all > placed[c] ? (placed[c] + 0.5) / all : 1;

		if (share < least) {
			least = share;
			next = c;
		}
	}
	return next;
}

static void add_to_segment(struct slots *slots, uint32_t slot, uint64_t bytes, uint64_t target)
{
	struct slot_segment *segment =
		slots->segment_count > 0 ? &slots->segments[slots->segment_count - 1] : NULL;

	if (!segment || segment->bytes + bytes > target) {
		segment = &slots->segments[slots->segment_count++];
		segment->offset = slots->cache;
		segment->first = segment == slots->segments ? 0 : segment[-1].first + segment[-1].count;
	}
	slots->in_segments[segment->first + segment->count++] = slot;
	slots->offsets[slot] = slots_cache_offset(slots) + slots->cache;
	slots->owners[slot] = SLOT_AWAY;
	slots->segment_of[slot] = slots->segment_count - 1;
	segment->bytes += bytes;
	slots->cache += bytes;
}

/* Small enough that little more goes than is needed, and few enough for the kernel's table of buffers. */
#define SEGMENTS_USUAL 16
#define SEGMENTS_MOST 32

static uint64_t segment_target(const struct slots *slots, uint64_t usual_cache)
{
	uint64_t all = slots->bytes - slots->reserved;
	uint64_t usual = (usual_cache < all ? usual_cache : all) / SEGMENTS_USUAL;

	return usual > all / SEGMENTS_MOST ? usual : all / SEGMENTS_MOST;
}

static int place_segments(struct slots *slots, uint64_t usual_cache)
{
	uint64_t target = segment_target(slots, usual_cache);
	uint32_t *placed = calloc(slots->class_count + 1, sizeof(*placed));

	if (!placed)
		return -ENOMEM;
	for (uint32_t c = next_class(slots, placed); c != SLOT_NONE; c = next_class(slots, placed)) {
		const struct slot_class *class = &slots->classes[c];

		add_to_segment(slots, class->first + class->reserved + placed[c]++, class->bytes, target);
	}
	free(placed);
	return 0;
}

void slots_open_segment(struct slots *slots, uint32_t index)
{
	const struct slot_segment *segment = &slots->segments[index];

	for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
		uint32_t *owner = &slots->owners[slots->in_segments[i]];

		if (*owner == SLOT_AWAY) {
			*owner = SLOT_NONE;
			slots->here++;
		}
	}
	slots->segments[index].state = SEGMENT_HERE;
}

void slots_close_segment(struct slots *slots, uint32_t index)
{
	const struct slot_segment *segment = &slots->segments[index];

	for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
		uint32_t *owner = &slots->owners[slots->in_segments[i]];

		if (*owner == SLOT_NONE) {
			*owner = SLOT_AWAY;
			slots->here--;
		}
	}
	slots->segments[index].state = SEGMENT_DRAINING;
}

bool slots_is_empty(const struct slots *slots, uint32_t index)
{
	const struct slot_segment *segment = &slots->segments[index];

	for (uint32_t i = segment->first; i < segment->first + segment->count; i++)
		if (slots->owners[slots->in_segments[i]] != SLOT_AWAY)
			return false;
	return true;
}

/* ---- Plan ---- */

int slots_plan(const struct catalog *catalog, bool with_all, uint64_t budget, uint64_t usual_cache,
	       struct slots *ret_slots)
{
	struct slots slots = { 0 };
	int r = make_classes(catalog, &slots);

	if (r == 0) {
		tighten_classes(catalog, &slots);
		share_out(&slots, with_all, budget);
		r = allocate(&slots);
	}
	if (r == 0 && with_all)
		r = place_all(catalog, &slots);
	else if (r == 0)
		place_reserved(&slots);
	if (r == 0)
		r = place_segments(&slots, usual_cache);
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
	free(slots->segment_of);
	free(slots->in_segments);
	free(slots->segments);
	*slots = (struct slots){ 0 };
}

uint32_t slots_find_free(const struct slots *slots, uint32_t pack)
{
	const struct slot_class *class = &slots->classes[slots->class_of_pack[pack]];

	for (uint32_t slot = class->first; slot < class->first + class->count; slot++)
		if (slots->owners[slot] == SLOT_NONE)
			return slot;
	return SLOT_NONE;
}

uint32_t slots_take(struct slots *slots, uint32_t pack)
{
	uint32_t slot = slots_find_free(slots, pack);

	if (slot != SLOT_NONE)
		slots->owners[slot] = pack;
	return slot;
}

void slots_give(struct slots *slots, uint32_t slot)
{
	uint32_t segment = slots->segment_of[slot];
	bool goes = segment != SLOT_NONE && slots->segments[segment].state == SEGMENT_DRAINING;

	slots->owners[slot] = goes ? SLOT_AWAY : SLOT_NONE;
	slots->here -= goes;
}

static bool has_room_for(const struct slots *slots, const struct slot_class *class, uint32_t packs)
{
	uint32_t here = 0, wanted = packs < class->packs ? packs : class->packs;

	for (uint32_t i = 0; i < class->count && here < wanted; i++)
		here += slots->owners[class->first + i] != SLOT_AWAY;
	return here == wanted;
}

bool slots_have_room_for(const struct slots *slots, uint32_t packs)
{
	for (uint32_t i = 0; i < slots->class_count; i++)
		if (!has_room_for(slots, &slots->classes[i], packs))
			return false;
	return true;
}
