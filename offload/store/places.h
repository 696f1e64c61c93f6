/* Places remember which pieces of a device are free, and how many name each of the others. */
#ifndef TIERD_OFFLOAD_PLACES_H
#define TIERD_OFFLOAD_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#define PLACES_NONE UINT32_MAX

#define PLACES_MAX_NAMES UINT16_MAX

struct places {
	uint32_t count, free_count;
	uint32_t next_word;   /* where the search goes on: neighbours in time are neighbours on the device */
	uint32_t next_second; /* the same, of second copies */
	uint64_t *is_free;    /* a bit per place */
	uint16_t *names;      /* of each place: maps that name it, and whoever has taken it */
	bool is_withheld;     /* none is taken, as if none were free */
};

/* All count places are free. -ENOMEM. */
int places_init(struct places *places, uint32_t count);
void places_destroy(struct places *places);
/* All of them are free again. */
void places_clear(struct places *places);

/* Memory for count places, no fewer than there are; nothing else changes. -ENOMEM. */
int places_prepare(struct places *places, uint32_t count);
/* So many have been prepared for: those that are new are free. */
void places_grow(struct places *places, uint32_t count);

/* A free place, which has one name then. PLACES_NONE: nothing is free. */
uint32_t places_take(struct places *places);
/* The same, for a copy of what lies in a place of the former kind: as long as there is room they lie in the
 * other half, so that both are neighbours of their own, and one damage hardly meets both. */
uint32_t places_take_second(struct places *places);

/* It has one name more, or its first. -EMFILE: it has as many as can be counted. */
int places_name(struct places *places, uint32_t place);

/* It has one name less; without any it is free. */
void places_give(struct places *places, uint32_t place);

static inline bool places_is_free(const struct places *places, uint32_t place)
{
	return places->names[place] == 0;
}

/* Host memory for count places. */
uint64_t places_host_bytes(uint64_t count);

#endif
