#include "offload/device/tier.h"

#include <assert.h>
#include <errno.h>

int tier_submit(struct tier *tier, struct tier_io *io)
{
	size_t block_size = tier->ops->block_size;
	int r;

	assert(io->done);
	assert((io->length > 0) == (io->direction != TIER_FLUSH));
	assert((unsigned)io->priority < TIER_PRIORITIES);
	assert(io->offset % block_size == 0);
	assert(io->length % block_size == 0);
	assert((uintptr_t)io->buffer % block_size == 0);

	if (io->offset > tier->capacity || io->length > tier->capacity - io->offset)
		return -ERANGE;
	queue_init(&io->link);
	r = tier->ops->submit(tier, io);
	if (r < 0)
		return r;
	tier->submitted[io->direction].requests++;
	tier->submitted[io->direction].bytes += io->length;
	return 0;
}

void tier_raise(struct tier *tier, struct tier_io *io, enum tier_priority priority)
{
	assert((unsigned)priority < TIER_PRIORITIES);
	if (tier->ops->raise)
		tier->ops->raise(tier, io, priority);
}

void tier_weigh(struct tier *tier, const struct tier_share *share)
{
	if (tier->ops->weigh)
		tier->ops->weigh(tier, share);
}

int tier_grow(struct tier *tier, uint64_t capacity)
{
	int r;

	assert(capacity >= tier->capacity);
	r = tier->ops->grow ? tier->ops->grow(tier, capacity) : -EOPNOTSUPP;
	if (r == 0)
		tier->capacity = capacity;
	return r;
}

void tier_keep(struct tier *tier, bool is_kept)
{
	if (tier->ops->keep)
		tier->ops->keep(tier, is_kept);
}

struct tier *tier_free(struct tier *tier)
{
	if (tier)
		tier->ops->free(tier);
	return NULL;
}
