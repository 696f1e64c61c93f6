/* Places remember which extents of a device are free. */
#ifndef TIERD_OFFLOAD_PLACES_H
#define TIERD_OFFLOAD_PLACES_H

#include <stdint.h>

#define PLACES_NONE UINT32_MAX

struct places {
	uint32_t count;
	uint32_t next_word; /* where the search goes on: neighbours in time are neighbours on the device */
	uint64_t *is_free;  /* a bit per place */
};

/* All count places are free. -ENOMEM. */
int places_init(struct places *places, uint32_t count);
void places_destroy(struct places *places);

/* PLACES_NONE: nothing is free. */
uint32_t places_take(struct places *places);
void places_give(struct places *places, uint32_t place);

/* Host memory for count places. */
uint64_t places_host_bytes(uint64_t count);

#endif
