#include "client/library/pages/hold.h"

bool hold_give_to_oldest(const struct attachment *attachment, enum place place, uint32_t unit)
{
	return attachment &&
	       (hold_give_to_oldest(attachment->older, place, unit) || hold_give_to(attachment, place, unit));
}

void hold_take_back(struct tierd_job *job, const struct attachment *attachment, enum place place,
		    uint32_t unit)
{
	if (!lease_give(&attachment_table(attachment, place)->counters[unit]))
		hold_give(job, place, unit);
	hold_tell(job, attachment, place);
}
