#include "offload/store/places.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define WORD_BITS 64

static uint32_t count_words(uint32_t count)
{
	return count / WORD_BITS + (count % WORD_BITS != 0);
}

static uint64_t bit_of(uint32_t place)
{
	return UINT64_C(1) << place % WORD_BITS;
}

int places_init(struct places *places, uint32_t count)
{
	*places =
		(struct places){ .count = count, .free_count = count, .next_second = count_words(count) / 2 };
	places->is_free = calloc(count_words(count) + 1, sizeof(uint64_t));
	places->names = calloc((size_t)count + 1, sizeof(uint16_t));
	if (!places->is_free || !places->names) {
		places_destroy(places);
		return -ENOMEM;
	}
	places_clear(places);
	return 0;
}

void places_clear(struct places *places)
{
	for (uint32_t place = 0; place < places->count; place++) {
		places->is_free[place / WORD_BITS] |= bit_of(place);
		places->names[place] = 0;
	}
	places->free_count = places->count;
}

void places_destroy(struct places *places)
{
	free(places->is_free);
	free(places->names);
	*places = (struct places){ 0 };
}

int places_prepare(struct places *places, uint32_t count)
{
	uint64_t *is_free;
	uint16_t *names;

	assert(count >= places->count);
	is_free = realloc(places->is_free, (count_words(count) + 1) * sizeof(*is_free));
	names = realloc(places->names, ((size_t)count + 1) * sizeof(*names));
	places->is_free = is_free ? is_free : places->is_free;
	places->names = names ? names : places->names;
	return is_free && names ? 0 : -ENOMEM;
}

void places_grow(struct places *places, uint32_t count)
{
	for (uint32_t word = count_words(places->count); word < count_words(count); word++)
		places->is_free[word] = 0;
	for (uint32_t place = places->count; place < count; place++) {
		places->names[place] = 0;
		places->is_free[place / WORD_BITS] |= bit_of(place);
	}
	places->free_count += count - places->count;
	places->count = count;
}

/* Begins at the last one, so that neighbours in time are neighbours on the device. */
static uint32_t find_free(const struct places *places, uint32_t *next_word)
{
	uint32_t words = count_words(places->count);

	for (uint32_t i = 0; i < words; i++) {
		uint32_t word = (*next_word + i) % words;

		if (places->is_free[word] == 0)
			continue;
		*next_word = word;
		return word * WORD_BITS + (uint32_t)__builtin_ctzll(places->is_free[word]);
	}
	return PLACES_NONE;
}

static uint32_t take(struct places *places, uint32_t *next_word)
{
	uint32_t place = places->is_locked ? PLACES_NONE : find_free(places, next_word);

	if (place != PLACES_NONE)
		(void)places_name(places, place);
	return place;
}

uint32_t places_take(struct places *places)
{
	return take(places, &places->next_word);
}

uint32_t places_take_second(struct places *places)
{
	return take(places, &places->next_second);
}

int places_name(struct places *places, uint32_t place)
{
	assert(place < places->count);
	if (places->names[place] == PLACES_MAX_NAMES)
		return -EMFILE;
	if (places->names[place]++ == 0) {
		places->is_free[place / WORD_BITS] &= ~bit_of(place);
		places->free_count--;
	}
	return 0;
}

void places_give(struct places *places, uint32_t place)
{
	assert(place < places->count && places->names[place] > 0);
	if (--places->names[place] > 0)
		return;
	places->is_free[place / WORD_BITS] |= bit_of(place);
	places->free_count++;
}

uint64_t places_host_bytes(uint64_t count)
{
	return ((count + WORD_BITS - 1) / WORD_BITS + 1) * sizeof(uint64_t) + (count + 1) * sizeof(uint16_t);
}
