/* Pins remember which pieces of memory the kernel holds registered, and find the piece of an address. */
#ifndef TIERD_OFFLOAD_PINS_H
#define TIERD_OFFLOAD_PINS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PINS_SLOTS 1024
#define PINS_PIECE_BYTES ((size_t)1 << 30)

struct pin {
	const char *base; /* NULL: the slot is free */
	size_t length;
	bool is_ready; /* the kernel has it */
};

/* The loop looks up while another thread registers. */
struct pins {
	pthread_mutex_t lock;
	unsigned used; /* slots from here on were never taken */
	struct pin slots[PINS_SLOTS];
};

void pins_init(struct pins *pins);
void pins_destroy(struct pins *pins);

/* Takes slots for the pieces of a region, which pins_find() does not see before pins_ready(). -ENOSPC. */
int pins_take(struct pins *pins, const void *region, size_t length);
void pins_ready(struct pins *pins, const void *region, size_t length);

/* The next slot whose piece begins in the region, from slot on, with its piece; -1: no more. */
int pins_next(struct pins *pins, const void *region, size_t length, int slot, struct pin *ret_pin);

/* Forgets a piece; its slot is free. */
void pins_give(struct pins *pins, int slot);

/* Of all pieces that the kernel has. */
uint64_t pins_bytes(struct pins *pins);

/* The slot whose piece holds the whole range; -1: none. */
int pins_find(struct pins *pins, const void *address, size_t length);

#endif
