#include "collectives/collective.h"

#include <assert.h>
#include <errno.h>

static bool is_contributed(const struct collective_push *push)
{
	for (unsigned rank = 0; rank < push->rank_count; rank++)
		if (push->contributions[rank])
			return true;
	return false;
}

uint64_t collective_push_elements(const struct collective_push *push)
{
	uint64_t elements = 0;

	for (unsigned i = 0; i < push->segment_count; i++)
		elements += push->segments[i].count;
	return elements;
}

const struct work *collective_push_work(const struct collective_push *push, unsigned n)
{
	return n < push->piece_count ? &push->pieces[n].work : NULL;
}

int collective_pull(struct collective *collective, struct collective_pull *pull)
{
	int r;

	assert(pull->op.done);

	r = collective->ops->pull(collective, pull);
	if (r < 0)
		return r;
	collective->pulls++;
	return 0;
}

int collective_push(struct collective *collective, struct collective_push *push)
{
	int r;

	assert(push->op.done);

	if (push->rank_count > REDUCE_MAX_RANKS || !is_contributed(push))
		return -EINVAL;
	r = collective->ops->push(collective, push);
	if (r < 0)
		return r;
	collective->pushes++;
	collective->pushed_elements += collective_push_elements(push);
	return 0;
}

void collective_abort(struct collective *collective, uint64_t job, uint32_t epoch)
{
	if (collective->ops->abort)
		collective->ops->abort(collective, job, epoch);
}

struct collective *collective_free(struct collective *collective)
{
	if (collective)
		collective->ops->free(collective);
	return NULL;
}
