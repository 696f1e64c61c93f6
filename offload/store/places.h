/* Places: a device in places of one size. Each has a count of names (references), and is free without any. */
#ifndef TIERD_OFFLOAD_PLACES_H
#define TIERD_OFFLOAD_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#define PLACES_NONE UINT32_MAX

#define PLACES_MAX_NAMES UINT16_MAX

struct places {
	uint32_t count, free_count;
	uint32_t next_word;   /* of the next search: neighbours in time are neighbours on the device */
	uint32_t next_second; /* the same for second copies */
	uint64_t *is_free;    /* a bit per place */
	uint16_t *names;      /* of each place */
	bool is_locked;	      /* none is taken, as if none were free */
};

/* All count places are free. -ENOMEM. */
int places_init(struct places *places, uint32_t count);
void places_destroy(struct places *places);
/* Frees all of them. */
void places_clear(struct places *places);

/* Allocates memory for count places, no fewer than there are; changes nothing else. -ENOMEM. */
int places_prepare(struct places *places, uint32_t count);
/* After places_prepare(): the new places are free. */
void places_grow(struct places *places, uint32_t count);

/* A free place, which gets its first name. PLACES_NONE: nothing is free. */
uint32_t places_take(struct places *places);
/* The same for a second copy: it lies in the other half of the device while there is space, so that one
 * damage hardly meets both. */
uint32_t places_take_second(struct places *places);

/* Adds a name. -EMFILE: the count is full. */
int places_name(struct places *places, uint32_t place);

/* Removes a name; without any the place is free. */
void places_give(struct places *places, uint32_t place);

static inline bool places_is_free(const struct places *places, uint32_t place)
{
	return places->names[place] == 0;
}

/* Host memory for count places. */
uint64_t places_host_bytes(uint64_t count);

#endif
