#include "offload/places.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define WORD_BITS 64

static uint32_t count_words(uint32_t count)
{
	return count / WORD_BITS + (count % WORD_BITS != 0);
}

int places_init(struct places *places, uint32_t count)
{
	*places = (struct places){ .count = count };
	places->is_free = calloc(count_words(count), sizeof(uint64_t));
	if (!places->is_free)
		return -ENOMEM;
	for (uint32_t place = 0; place < count; place++)
		places_give(places, place);
	return 0;
}

void places_destroy(struct places *places)
{
	free(places->is_free);
	*places = (struct places){ 0 };
}

uint32_t places_take(struct places *places)
{
	uint32_t words = count_words(places->count);

	for (uint32_t i = 0; i < words; i++) {
		uint32_t word = (places->next_word + i) % words;
		uint32_t bit;

		if (places->is_free[word] == 0)
			continue;
		bit = (uint32_t)__builtin_ctzll(places->is_free[word]);
		places->is_free[word] &= ~(UINT64_C(1) << bit);
		places->next_word = word;
		return word * WORD_BITS + bit;
	}
	return PLACES_NONE;
}

void places_give(struct places *places, uint32_t place)
{
	uint64_t bit = UINT64_C(1) << place % WORD_BITS;

	assert(place < places->count);
	assert(!(places->is_free[place / WORD_BITS] & bit));
	places->is_free[place / WORD_BITS] |= bit;
}

uint64_t places_host_bytes(uint64_t count)
{
	return (count + WORD_BITS - 1) / WORD_BITS * sizeof(uint64_t);
}
