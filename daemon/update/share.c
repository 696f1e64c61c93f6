#include "daemon/update/share.h"

/* What lies farther back counts half as much. */
#define PACE_NS 2.5e8

void share_begin_step(struct share *share)
{
	share->has_tried = false;
}

/* What is owed stays within half of the largest piece. What is there is taken before it is owed, within that
 * once more: else each step could find other pieces than the one before. */
static enum share_side choose_by_fraction(struct share *share, float fraction,
					  const struct share_piece *piece)
{
	double elements = (double)piece->elements, least = piece->is_there ? -elements : elements;
	enum share_side side;

	share->owed += (double)fraction * elements;
	side = fraction > 0 && share->owed * 2 >= least ? SHARE_GPUS : SHARE_PROCESSORS;
	if (side == SHARE_GPUS)
		share->owed -= elements;
	return side;
}

static bool is_measured(const struct share_pace *pace)
{
	return pace->busy_ns > 0;
}

static uint64_t work_of(const struct share_piece *piece, enum share_side side)
{
	return side == SHARE_GPUS ? piece->bus_bytes : piece->elements;
}

/* Until the piece is done, too. */
static double time_ns(const struct share *share, enum share_side side, const struct share_piece *piece)
{
	const struct share_pace *pace = &share->sides[side];

	return (double)(pace->waiting + work_of(piece, side)) * pace->busy_ns / pace->done;
}

enum share_side share_choose(struct share *share, float fraction, const struct share_piece *piece)
{
	const struct share_pace *processors = &share->sides[SHARE_PROCESSORS],
				*gpus = &share->sides[SHARE_GPUS];

	if (fraction >= 0)
		return choose_by_fraction(share, fraction, piece);
	if (!share->has_tried) {
		share->has_tried = true;
		return SHARE_GPUS;
	}
	if (!is_measured(gpus) || !is_measured(processors))
		return SHARE_PROCESSORS;
	return time_ns(share, SHARE_GPUS, piece) < time_ns(share, SHARE_PROCESSORS, piece) ? SHARE_GPUS
											   : SHARE_PROCESSORS;
}

void share_begin(struct share *share, enum share_side side, const struct share_piece *piece, uint64_t now_ns)
{
	struct share_pace *pace = &share->sides[side];

	if (pace->waiting == 0)
		pace->since_ns = now_ns;
	pace->waiting += work_of(piece, side);
}

void share_end(struct share *share, enum share_side side, const struct share_piece *piece, uint64_t now_ns)
{
	struct share_pace *pace = &share->sides[side];

	pace->waiting -= work_of(piece, side);
	/* A clock may stand still. */
	pace->busy_ns += now_ns > pace->since_ns ? (double)(now_ns - pace->since_ns) : 1;
	pace->since_ns = now_ns;
	pace->done += (double)work_of(piece, side);
	pace->all += piece->elements;
	if (pace->busy_ns > 2 * PACE_NS) {
		pace->busy_ns /= 2;
		pace->done /= 2;
	}
}
