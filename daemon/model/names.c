#include "daemon/model/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#define LEAST_PLACES 4

/* Its key is this process's, and nobody else knows it: else names could be chosen that all want one place,
 * and each look at it would take as long as there are names. */
static uint64_t hash(const char *text)
{
	static uint64_t key;

	if (key == 0 && getrandom(&key, sizeof(key), 0) != sizeof(key))
		key = (uint64_t)(uintptr_t)text | 1;
	return XXH3_64bits_withSeed(text, strlen(text), key);
}

static uint32_t own_place(const struct names *names, const char *text)
{
	return (uint32_t)hash(text) & (names->places - 1);
}

static uint32_t next_place(const struct names *names, uint32_t place)
{
	return (place + 1) & (names->places - 1);
}

/* Where the name is, or the hole where it would be. */
static uint32_t find(const struct names *names, const char *text)
{
	uint32_t place = own_place(names, text);

	while (names->texts[place] && strcmp(names->texts[place], text) != 0)
		place = next_place(names, place);
	return place;
}

bool names_have(const struct names *names, const char *text)
{
	return names->count > 0 && names->texts[find(names, text)];
}

static int grow(struct names *names)
{
	struct names larger = { .count = names->count,
				.places = names->places ? 2 * names->places : LEAST_PLACES };

	larger.texts = calloc(larger.places, sizeof(*larger.texts));
	if (!larger.texts)
		return -ENOMEM;
	for (uint32_t place = 0; place < names->places; place++)
		if (names->texts[place])
			larger.texts[find(&larger, names->texts[place])] = names->texts[place];
	free(names->texts);
	*names = larger;
	return 0;
}

int names_add(struct names *names, const char *text)
{
	int r = names->count >= names->places / 4 * 3 ? grow(names) : 0;

	if (r < 0)
		return r;
	names->texts[find(names, text)] = text;
	names->count++;
	return 0;
}

/* Those behind a hole that want a place before it, or that one, move into it, up to the next hole. */
static void close_hole(struct names *names, uint32_t hole)
{
	uint32_t mask = names->places - 1;

	for (uint32_t at = next_place(names, hole); names->texts[at]; at = next_place(names, at)) {
		uint32_t own = own_place(names, names->texts[at]);

		if (((at - own) & mask) < ((at - hole) & mask))
			continue;
		names->texts[hole] = names->texts[at];
		hole = at;
	}
	names->texts[hole] = NULL;
}

void names_remove(struct names *names, const char *text)
{
	uint32_t place = text && names->count > 0 ? find(names, text) : 0;

	if (!text || names->count == 0 || names->texts[place] != text)
		return;
	close_hole(names, place);
	names->count--;
}

void names_clear(struct names *names)
{
	free(names->texts);
	*names = (struct names){ NULL };
}
