#include "tests/bench/hollow.h"

static struct hollow_tier *hollow_of(struct tier *tier)
{
	return container_of(tier, struct hollow_tier, tier);
}

static bool is_nothing(const struct hollow_tier *hollow, const char *buffer)
{
	return buffer >= hollow->nothing && buffer < hollow->nothing + hollow->nothing_bytes;
}

static int hollow_submit(struct tier *tier, struct tier_io *io)
{
	struct hollow_tier *hollow = hollow_of(tier);

	if (io->direction != TIER_WRITE || !is_nothing(hollow, io->buffer))
		return tier_submit(hollow->next, io);
	hollow->dropped += io->length;
	queue_push(&hollow->ended, &io->link);
	return 0;
}

static void hollow_keep(struct tier *tier, bool is_kept)
{
	tier_keep(hollow_of(tier)->next, is_kept);
}

static void hollow_free(struct tier *tier)
{
	hollow_of(tier)->next = tier_free(hollow_of(tier)->next);
}

void hollow_init(struct hollow_tier *hollow, struct tier *next, const void *nothing, size_t bytes)
{
	hollow->ops = (struct tier_ops){ .block_size = next->ops->block_size,
					 .submit = hollow_submit,
					 .keep = hollow_keep,
					 .free = hollow_free };
	hollow->tier = (struct tier){ .ops = &hollow->ops, .capacity = next->capacity, .label = next->label };
	hollow->next = next;
	hollow->nothing = nothing;
	hollow->nothing_bytes = bytes;
	hollow->dropped = 0;
	queue_init(&hollow->ended);
}

bool hollow_tell(struct hollow_tier *hollow)
{
	struct queue ended;
	struct queue *link;

	/* What comes meanwhile is for the next time. */
	queue_init(&ended);
	while ((link = queue_pop(&hollow->ended)))
		queue_push(&ended, link);
	while ((link = queue_pop(&ended))) {
		struct tier_io *io = queue_entry(link, struct tier_io, link);

		io->done(io, 0);
	}
	return !queue_is_empty(&hollow->ended);
}
