#include "client/library/pages/hold.h"

bool hold_give_to_oldest(const struct attachment *attachment, uint32_t unit)
{
	return attachment && (hold_give_to_oldest(attachment->older, unit) || hold_give_to(attachment, unit));
}

void hold_take_back(struct tierd_job *job, const struct attachment *attachment, uint32_t unit)
{
	if (!lease_give(&attachment->counters[unit]))
		hold_give(job, unit);
	hold_tell(job, attachment);
}
