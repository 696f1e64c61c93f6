#include "daemon/model/member.h"

#include <event2/event.h>
#include <stdio.h>

#include "daemon/model/gradient_buffers.h"
#include "daemon/model/job.h"

bool member_buffer_takes(const struct member *member, uint32_t buffer, uint32_t unit)
{
	const struct job *job = member->job;

	return gradient_buffer_takes(&job->gradient_buffers, buffer,
				     unit_gradient_bytes(&job->catalog.units[unit]));
}

bool member_has_leases(const struct member *member)
{
	for (uint32_t unit = 0; member->has_pages && unit < member->job->catalog.unit_count; unit++)
		if (member_has_lease(member, unit))
			return true;
	return false;
}

void members_describe(const struct job *job, char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (uint32_t rank = 0; rank < job->options.world_size && used + 32 < size; rank++)
		if (job->members.ranks[rank])
			used += (size_t)snprintf(text + used, size - used, "%srank %u (pid %d)",
						 used ? ", " : "", rank, (int)job->members.ranks[rank]->pid);
}

bool member_has_steps(const struct member *member)
{
	return member->step || member->next_step || member->awaited.count > 0;
}

void member_step_over(struct member *member)
{
	if (member->leaving && !member_has_steps(member))
		event_active(member->leaving->timer, EV_TIMEOUT, 0);
}

uint64_t member_last_version(const struct member *member)
{
	return member->job->decided + member->is_closed + (member->next_step != NULL);
}

bool member_owes_step(const struct member *member)
{
	return member->is_closed && !member->is_finished;
}

const char *member_owed_call(const struct member *member)
{
	return step_is_writing(&member->job->current) ? "tierd_write_end" : "tierd_step_finish";
}

void member_release(struct member *member)
{
	if (member->has_left && member->busy == 0)
		member->job->node->parts->life->let_go(member);
}
