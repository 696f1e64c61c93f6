#include "daemon/resources/staging.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

static void unpin(struct staging *staging, struct engine *engine)
{
	engine_buffer_remove(engine, staging->memory.base, staging->memory.length);
	/* In this order: pages that are registered would stay, and others be read and written. */
	(void)madvise(staging->memory.base, staging->memory.length, MADV_DONTNEED);
}

int staging_init(struct staging *staging, unsigned count, struct engine *engine)
{
	int r;

	*staging = (struct staging){ .memory = MEMORY_INIT, .count = count };
	queue_init(&staging->free);
	queue_init(&staging->wanted);
	queue_init(&staging->loans);
	staging->all = calloc(count, sizeof(*staging->all));
	if (!staging->all)
		return -ENOMEM;
	r = memory_new_private(staging_bytes(count), &staging->memory);
	if (r < 0)
		return r;
	memory_make_huge(&staging->memory, false);
	staging->pinning = engine_buffer_add(engine, staging->memory.base, staging->memory.length);
	unpin(staging, engine);
	for (unsigned i = 0; i < count; i++) {
		staging->all[i] = (struct staging_buffer){ .data = staging->memory.base + i * STAGING_BYTES };
		queue_push(&staging->free, &staging->all[i].link);
	}
	return 0;
}

void staging_clear(struct staging *staging, struct engine *engine)
{
	if (staging->users > 0)
		engine_buffer_remove(engine, staging->memory.base, staging->memory.length);
	memory_free(&staging->memory);
	free(staging->all);
	staging->all = NULL;
}

void staging_use(struct staging *staging, struct engine *engine)
{
	if (staging->users++ == 0)
		(void)engine_buffer_add(engine, staging->memory.base, staging->memory.length);
}

void staging_leave(struct staging *staging, struct engine *engine)
{
	if (--staging->users == 0)
		unpin(staging, engine);
}

static void recall_last(struct staging *staging)
{
	struct queue *link = queue_pop(&staging->loans);
	struct staging_loan *loan = link ? queue_entry(link, struct staging_loan, link) : NULL;

	if (loan)
		loan->recalled(loan);
}

static struct staging_buffer *take_for(struct queue *link, const struct tier_share *share)
{
	struct staging_buffer *buffer = queue_entry(link, struct staging_buffer, link);

	buffer->is_taken = true;
	buffer->user = share->user;
	return buffer;
}

static unsigned count_taken(const struct staging *staging, uint32_t user)
{
	unsigned taken = 0;

	for (unsigned i = 0; i < staging->count; i++)
		taken += staging->all[i].is_taken && staging->all[i].user == user;
	return taken;
}

/* What a device gives to each user is of no use to him without buffers. */
static struct staging_wish *next_wish(const struct staging *staging)
{
	struct staging_wish *best = NULL;
	unsigned least = 0;

	QUEUE_FOREACH (link, &staging->wanted) {
		struct staging_wish *wish = queue_entry(link, struct staging_wish, link);
		unsigned taken;

		if (best && wish->share.user == best->share.user)
			continue;
		taken = count_taken(staging, wish->share.user);
		if (best && taken * best->share.user_share >= least * wish->share.user_share)
			continue;
		best = wish;
		least = taken;
	}
	return best;
}

struct staging_buffer *staging_take(struct staging *staging, struct staging_wish *wish)
{
	struct queue *link = queue_is_empty(&staging->wanted) ? queue_pop(&staging->free) : NULL;

	if (link)
		return take_for(link, &wish->share);
	queue_push(&staging->wanted, &wish->link);
	if (!wish->is_patient)
		recall_last(staging);
	return NULL;
}

void staging_give(struct staging *staging, struct staging_buffer *buffer)
{
	struct staging_wish *wish;

	buffer->is_taken = false;
	wish = next_wish(staging);
	if (!wish) {
		queue_push_front(&staging->free, &buffer->link);
		return;
	}
	queue_remove(&wish->link);
	wish->granted(wish, take_for(&buffer->link, &wish->share));
}

bool staging_lend(struct staging *staging, struct staging_loan *loan)
{
	struct queue *link =
		staging->lent + STAGING_LEAST < staging->count ? queue_pop(&staging->free) : NULL;

	if (!link)
		return false;
	loan->buffer = take_for(link, &loan->share);
	queue_push_front(&staging->loans, &loan->link);
	staging->lent++;
	return true;
}

struct staging_buffer *staging_end_loan(struct staging *staging, struct staging_loan *loan)
{
	queue_remove(&loan->link);
	staging->lent--;
	return TAKE_PTR(loan->buffer);
}

bool staging_may_go_to_gpu(const struct staging *staging)
{
	return staging->at_gpus + STAGING_LEAST < staging->count;
}

void staging_go_to_gpu(struct staging *staging)
{
	staging->at_gpus++;
}

void staging_come_from_gpu(struct staging *staging)
{
	assert(staging->at_gpus > 0);
	staging->at_gpus--;
}
