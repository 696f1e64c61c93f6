#include "daemon/scrub/damaged.h"

#include <stdlib.h>
#include <string.h>

/* The first that is not before it. */
static size_t find(const struct damaged *damaged, uint64_t place)
{
	size_t first = 0, end = damaged->count;

	while (first < end) {
		size_t middle = first + (end - first) / 2;

		if (damaged->places[middle].place < place)
			first = middle + 1;
		else
			end = middle;
	}
	return first;
}

static int grow(struct damaged *damaged)
{
	size_t capacity = damaged->capacity ? 2 * damaged->capacity : 16;
	struct damaged_place *places;

	if (damaged->count < damaged->capacity)
		return 0;
	if (damaged->count == DAMAGED_MAX_PLACES)
		return -1;
	places = realloc(damaged->places, capacity * sizeof(*places));
	if (!places)
		return -1;
	damaged->places = places;
	damaged->capacity = capacity;
	return 0;
}

static void insert(struct damaged *damaged, size_t at, uint64_t place, uint64_t blocks)
{
	if (grow(damaged) < 0)
		return;
	memmove(&damaged->places[at + 1], &damaged->places[at],
		(damaged->count - at) * sizeof(*damaged->places));
	damaged->places[at] = (struct damaged_place){ place, blocks };
	damaged->count++;
}

static void take_out(struct damaged *damaged, size_t at)
{
	damaged->count--;
	memmove(&damaged->places[at], &damaged->places[at + 1],
		(damaged->count - at) * sizeof(*damaged->places));
	if (damaged->count == 0)
		damaged_clear(damaged);
}

void damaged_set(struct damaged *damaged, uint64_t place, uint64_t blocks)
{
	size_t at = find(damaged, place);

	if (at == damaged->count || damaged->places[at].place != place) {
		if (blocks > 0)
			insert(damaged, at, place, blocks);
	} else if (blocks > 0) {
		damaged->places[at].blocks = blocks;
	} else {
		take_out(damaged, at);
	}
}

void damaged_raise(struct damaged *damaged, uint64_t place, uint64_t blocks)
{
	size_t at = find(damaged, place);

	if (at == damaged->count || damaged->places[at].place != place || damaged->places[at].blocks < blocks)
		damaged_set(damaged, place, blocks);
}

uint32_t damaged_blocks(const struct damaged *damaged)
{
	uint64_t blocks = 0;

	for (size_t i = 0; i < damaged->count; i++)
		blocks += damaged->places[i].blocks;
	return blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX;
}

void damaged_clear(struct damaged *damaged)
{
	free(damaged->places);
	*damaged = (struct damaged){ NULL };
}
