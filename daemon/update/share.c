#include "daemon/update/share.h"

/* What lies farther back counts half as much. */
#define PACE_NS 2.5e8

void share_begin_step(struct share *share)
{
	share->has_tried = false;
}

/* What is owed stays within half of the largest piece. */
static enum share_side choose_by_fraction(struct share *share, float fraction, uint64_t elements)
{
	enum share_side side;

	share->owed += (double)fraction * (double)elements;
	side = fraction > 0 && share->owed * 2 >= (double)elements ? SHARE_GPUS : SHARE_PROCESSORS;
	if (side == SHARE_GPUS)
		share->owed -= (double)elements;
	return side;
}

static bool is_measured(const struct share_pace *pace)
{
	return pace->busy_ns > 0;
}

/* Until these elements are done, too. */
static double time_ns(const struct share_pace *pace, uint64_t elements)
{
	return (double)(pace->waiting + elements) * pace->busy_ns / pace->elements;
}

enum share_side share_choose(struct share *share, float fraction, uint64_t elements)
{
	const struct share_pace *processors = &share->sides[SHARE_PROCESSORS],
				*gpus = &share->sides[SHARE_GPUS];

	if (fraction >= 0)
		return choose_by_fraction(share, fraction, elements);
	if (!share->has_tried) {
		share->has_tried = true;
		return SHARE_GPUS;
	}
	if (!is_measured(gpus) || !is_measured(processors))
		return SHARE_PROCESSORS;
	return time_ns(gpus, elements) < time_ns(processors, elements) ? SHARE_GPUS : SHARE_PROCESSORS;
}

void share_begin(struct share *share, enum share_side side, uint64_t elements, uint64_t now_ns)
{
	struct share_pace *pace = &share->sides[side];

	if (pace->waiting == 0)
		pace->since_ns = now_ns;
	pace->waiting += elements;
}

void share_end(struct share *share, enum share_side side, uint64_t elements, uint64_t now_ns)
{
	struct share_pace *pace = &share->sides[side];

	pace->waiting -= elements;
	/* A clock may stand still. */
	pace->busy_ns += now_ns > pace->since_ns ? (double)(now_ns - pace->since_ns) : 1;
	pace->since_ns = now_ns;
	pace->elements += (double)elements;
	pace->all += elements;
	if (pace->busy_ns > 2 * PACE_NS) {
		pace->busy_ns /= 2;
		pace->elements /= 2;
	}
}
