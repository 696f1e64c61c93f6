#include "offload/device/pins.h"

#include <errno.h>

void pins_init(struct pins *pins)
{
	pthread_mutex_init(&pins->lock, NULL);
	pins->used = 0;
	for (unsigned slot = 0; slot < PINS_SLOTS; slot++)
		pins->slots[slot] = (struct pin){ NULL };
}

void pins_destroy(struct pins *pins)
{
	pthread_mutex_destroy(&pins->lock);
}

static unsigned count_free(const struct pins *pins)
{
	unsigned count = PINS_SLOTS - pins->used;

	for (unsigned slot = 0; slot < pins->used; slot++)
		count += !pins->slots[slot].base;
	return count;
}

static void take_pieces(struct pins *pins, const char *region, size_t length)
{
	size_t offset = 0;

	for (unsigned slot = 0; offset < length; slot++) {
		size_t rest = length - offset;

		if (pins->slots[slot].base)
			continue;
		pins->slots[slot] = (struct pin){
			.base = region + offset,
			.length = rest < PINS_PIECE_BYTES ? rest : PINS_PIECE_BYTES,
		};
		if (slot >= pins->used)
			pins->used = slot + 1;
		offset += pins->slots[slot].length;
	}
}

int pins_take(struct pins *pins, const void *region, size_t length)
{
	size_t pieces = length / PINS_PIECE_BYTES + (length % PINS_PIECE_BYTES != 0);
	int r = 0;

	pthread_mutex_lock(&pins->lock);
	if (pieces > count_free(pins))
		r = -ENOSPC;
	else
		take_pieces(pins, region, length);
	pthread_mutex_unlock(&pins->lock);
	return r;
}

static bool begins_in(const struct pin *pin, const char *region, size_t length)
{
	return pin->base && pin->base >= region && (size_t)(pin->base - region) < length;
}

void pins_ready(struct pins *pins, const void *region, size_t length)
{
	pthread_mutex_lock(&pins->lock);
	for (unsigned slot = 0; slot < pins->used; slot++)
		if (begins_in(&pins->slots[slot], region, length))
			pins->slots[slot].is_ready = true;
	pthread_mutex_unlock(&pins->lock);
}

int pins_next(struct pins *pins, const void *region, size_t length, int slot, struct pin *ret_pin)
{
	int found = -1;

	pthread_mutex_lock(&pins->lock);
	for (; found < 0 && slot < (int)pins->used; slot++) {
		if (!begins_in(&pins->slots[slot], region, length))
			continue;
		*ret_pin = pins->slots[slot];
		found = slot;
	}
	pthread_mutex_unlock(&pins->lock);
	return found;
}

void pins_give(struct pins *pins, int slot)
{
	pthread_mutex_lock(&pins->lock);
	pins->slots[slot] = (struct pin){ NULL };
	pthread_mutex_unlock(&pins->lock);
}

uint64_t pins_bytes(struct pins *pins)
{
	uint64_t bytes = 0;

	pthread_mutex_lock(&pins->lock);
	for (unsigned slot = 0; slot < pins->used; slot++)
		if (pins->slots[slot].base && pins->slots[slot].is_ready)
			bytes += pins->slots[slot].length;
	pthread_mutex_unlock(&pins->lock);
	return bytes;
}

static bool holds(const struct pin *pin, const char *address, size_t length)
{
	return pin->is_ready && address >= pin->base && length <= pin->length &&
	       (size_t)(address - pin->base) <= pin->length - length;
}

int pins_find(struct pins *pins, const void *address, size_t length)
{
	int found = -1;

	pthread_mutex_lock(&pins->lock);
	for (unsigned slot = 0; slot < pins->used && found < 0; slot++)
		if (holds(&pins->slots[slot], address, length))
			found = (int)slot;
	pthread_mutex_unlock(&pins->lock);
	return found;
}
