#include "offload/device/host.h"

#include <errno.h>
#include <string.h>

struct host_tier {
	struct tier tier;
	char *base;
	struct queue submitted;
};

static int host_submit(struct tier *tier, struct tier_io *io)
{
	struct host_tier *host = container_of(tier, struct host_tier, tier);

	queue_push(&host->submitted, &io->link);
	return 0;
}

static void host_free(struct tier *tier)
{
	free(container_of(tier, struct host_tier, tier));
}

static const struct tier_ops host_ops = {
	.block_size = 1,
	.submit = host_submit,
	.free = host_free,
};

int host_tier_new(void *base, size_t length, struct tier **ret_tier)
{
	struct host_tier *host = calloc(1, sizeof(*host));

	if (!host)
		return -ENOMEM;
	host->tier = (struct tier){ .ops = &host_ops, .capacity = length, .label = "host memory" };
	host->base = base;
	queue_init(&host->submitted);
	*ret_tier = &host->tier;
	return 0;
}

static void copy(struct host_tier *host, struct tier_io *io)
{
	if (io->direction == TIER_READ)
		memcpy(io->buffer, host->base + io->offset, io->length);
	else if (io->direction == TIER_WRITE)
		memcpy(host->base + io->offset, io->buffer, io->length);
}

void host_tier_reap(struct tier *tier)
{
	struct host_tier *host = container_of(tier, struct host_tier, tier);
	struct queue batch, *link;

	/* What done() submits waits for the next reap. */
	queue_init(&batch);
	while ((link = queue_pop(&host->submitted)))
		queue_push(&batch, link);
	while ((link = queue_pop(&batch))) {
		struct tier_io *io = queue_entry(link, struct tier_io, link);

		copy(host, io);
		io->done(io, 0);
	}
}
