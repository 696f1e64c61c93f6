/* Which ranges can be warm, and where in which segment they lie. */
#include "common/size.h"
#include "daemon/residency/residency.h"
#include "daemon/update/warm_inside.h"
#include "daemon/resources/resources.h"

/* ---- Ranges in the order of a sweep ---- */

/* As they lie in a segment. */
static uint64_t range_bytes(const struct job *job, enum unit_section section, uint64_t count)
{
	uint64_t bytes = 0;

	for (unsigned state = 0; state < state_count(&job->options); state++)
		if (state_exists(section, state))
			bytes += size_align(state_bytes(section, state, count), STORE_PAGE_BYTES);
	return bytes;
}

/* To the next section; false: there is none. */
static bool walk_on_section(const struct job *job, struct walk *walk)
{
	walk->first = walk->count = 0;
	if (++walk->section == UNIT_TRAINABLE_SECTIONS) {
		walk->section = 0;
		walk->pack++;
	}
	return walk->pack < job->catalog.pack_count;
}

bool walk_on(const struct job *job, struct walk *walk)
{
	uint64_t left;

	walk->first += walk->count;
	while (walk->first == job->catalog.packs[walk->pack].elements[walk->section])
		if (!walk_on_section(job, walk))
			return false;
	left = job->catalog.packs[walk->pack].elements[walk->section] - walk->first;
	walk->count = left < RANGE_ELEMENTS ? left : RANGE_ELEMENTS;
	walk->bytes = range_bytes(job, (enum unit_section)walk->section, walk->count);
	walk->index++;
	return true;
}

struct warm_size warm_measure(const struct job *job)
{
	struct walk walk = WALK_INIT;
	struct warm_size size = { 0 };

	while (walk_on(job, &walk)) {
		size.ranges++;
		size.bytes += walk.bytes;
	}
	return size;
}

uint64_t warm_bytes_most(const struct job *job)
{
	return job->location.has_nvme_optimizer ? warm_measure(job).bytes : 0;
}

uint64_t warm_metadata_bytes(const struct job *job)
{
	if (!job->location.has_nvme_optimizer)
		return 0;
	return sizeof(struct warm) + (job->catalog.pack_count + 1) * sizeof(uint32_t) +
	       warm_measure(job).ranges * sizeof(struct warm_range);
}

/* ---- Which are warm ---- */

/* Of all that the job may ever have, whoever else there is. */
static uint64_t segment_target(const struct job *job, uint64_t bytes)
{
	uint64_t most = job->node->settings.host_budget, own = budget_limits(job)->host_budget;

	if (own && own < most)
		most = own;
	if (bytes < most)
		most = bytes;
	return most / SEGMENTS_USUAL > SEGMENT_LEAST ? most / SEGMENTS_USUAL : SEGMENT_LEAST;
}

/* Parts of the sweep that could be a segment each; a power of two. */
static unsigned find_bits(const struct job *job, struct warm_size size)
{
	uint64_t target = segment_target(job, size.bytes);
	unsigned bits = 0;

	while (bits < 31 && size.bytes >> bits > target && size.ranges >> (bits + 1) > 0)
		bits++;
	return bits;
}

static uint32_t reverse(uint32_t number, unsigned bits)
{
	uint32_t reversed = 0;

	for (unsigned i = 0; i < bits; i++)
		reversed |= (number >> i & 1) << (bits - 1 - i);
	return reversed;
}

/* Ranges belong to 2^bits parts by turns, as far as they take as many bytes, and the first segments are
 * those parts whose numbers are farthest from each other: with half of them every second range is warm,
 * with three quarters three of four. */
void warm_plan(struct warm *warm, struct warm_size size)
{
	uint64_t step = size_divide_up(size.bytes, size.ranges), before = 0;
	unsigned bits = find_bits(warm->job, size);
	struct walk walk = WALK_INIT;
	uint32_t pack = 0;

	for (; walk_on(warm->job, &walk); before += walk.bytes) {
		struct warm_range *range = &warm->ranges[walk.index];
		uint32_t part = (uint32_t)(before / step & ((UINT64_C(1) << bits) - 1));
		uint32_t segment = reverse(part, bits);

		while (pack <= walk.pack)
			warm->first_range[pack++] = walk.index;
		*range = (struct warm_range){ .segment = segment < SEGMENTS_MOST ? segment : SLOT_NONE };
		if (range->segment == SLOT_NONE)
			continue;
		range->offset = warm->segments[segment].bytes;
		warm->segments[segment].bytes += walk.bytes;
	}
	while (pack <= warm->job->catalog.pack_count)
		warm->first_range[pack++] = size.ranges;
}
