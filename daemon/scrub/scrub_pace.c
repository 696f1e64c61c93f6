#include "daemon/scrub/scrub_pace.h"

uint64_t scrub_pace_due(const struct scrub_pace *pace, uint64_t extents, uint64_t period_ns, uint64_t now_ns)
{
	uint64_t elapsed = now_ns - pace->began_ns, wanted;

	if (pace->is_hurried)
		return extents - pace->done;
	if (period_ns == 0)
		return 0;
	/* 2^30 extents and 2^63 ns: an fp64 is exact enough for a pace. */
	wanted = elapsed >= period_ns ? extents
				      : (uint64_t)((double)elapsed / (double)period_ns * (double)extents);
	return wanted > pace->done ? wanted - pace->done : 0;
}

uint64_t scrub_pace_next_ns(const struct scrub_pace *pace, uint64_t extents, uint64_t period_ns,
			    uint64_t now_ns)
{
	if (scrub_pace_due(pace, extents, period_ns, now_ns) > 0)
		return now_ns;
	if (period_ns == 0 || extents == 0)
		return UINT64_MAX;
	return pace->began_ns + (uint64_t)((double)(pace->done + 1) / (double)extents * (double)period_ns);
}

bool scrub_pace_advance(struct scrub_pace *pace, uint64_t count, uint64_t extents, uint64_t now_ns)
{
	pace->done += count;
	if (pace->done < extents)
		return false;
	*pace = (struct scrub_pace){ .began_ns = now_ns };
	return true;
}
