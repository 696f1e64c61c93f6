/* Units in the memory of a GPU. */
#include <errno.h>

#include "client/library/calls/calls.h"
#include "client/library/pages/hold.h"
#include "common/clock.h"

/* False: the daemon has to be asked. What the directory shows has arrived, so no stream has to wait. */
static inline bool gather_at_once(struct tierd_job *job, uint32_t unit, struct tierd_view *ret_parameters)
{
	const struct attachment *attachment;
	uint64_t offset, version;

	if (UNLIKELY(!hold_is_possible(job, unit, &attachment)) ||
	    UNLIKELY(hold_take(job, attachment, PLACE_GPU, unit, &offset, &version) != 1))
		return false;
	hold_note(job, attachment, unit);
	hold_show(job, attachment, PLACE_GPU, unit, offset, version, ret_parameters);
	return true;
}

/* ---- The daemon is asked ---- */

int gpu_check_tier(const struct tierd_job *job, const char *instead)
{
	if (!job->gpu)
		return message_fail(-EOPNOTSUPP,
				    "job \"%s\" was opened without a GPU: set gpu in its options, or call %s",
				    job->name, instead);
	if (!job->attachment->gpu)
		return message_fail(-EOPNOTSUPP, "job \"%s\" has no memory on GPU %d: %s; call %s", job->name,
				    (int)gpu_number(job->gpu), job->gpu_refusal, instead);
	return 0;
}

static int wait_for_copy(const struct tierd_ticket *ticket, struct driver_stream *stream)
{
	const struct attachment *attachment = ticket->gather.attachment;

	return ticket->gather.has_arrived ? 0 : gpu_tier_wait(attachment->gpu, ticket->gather.event, stream);
}

static int finish(struct tierd_ticket *ticket, struct driver_stream *stream,
		  struct tierd_view *ret_parameters)
{
	struct tierd_job *job = ticket->job;
	struct tierd_view view;
	int r = gather_finish(ticket, connection_deadline(job->node, -1), &view);

	if (r < 0)
		return r;
	r = wait_for_copy(ticket, stream);
	if (r < 0)
		hold_give(job, PLACE_GPU, ticket->gather.unit);
	else
		*ret_parameters = view;
	return r;
}

static int gather_locked(struct tierd_job *job, uint32_t unit, struct driver_stream *stream,
			 struct tierd_view *ret_parameters)
{
	struct tierd_ticket *ticket = NULL;
	uint64_t start = clock_now_ns();
	int r = job_check_unit(job, unit);

	if (r == 0)
		r = gpu_check_tier(job, "tierd_gather");
	if (r == 0)
		r = gather_send(job, PLACE_GPU, unit, GATHER_ONE, &ticket);
	if (r < 0)
		return r;
	r = finish(ticket, stream, ret_parameters);
	ticket_abandon(ticket);
	job->gather_misses++;
	job->gather_wait_ns += clock_now_ns() - start;
	return r;
}

int tierd_gather_on(struct tierd_job *job, uint32_t unit, void *stream, struct tierd_view *ret_parameters)
{
	int r;

	if (LIKELY(job && ret_parameters) && LIKELY(gather_at_once(job, unit, ret_parameters)))
		return 0;
	r = CHECK_GIVEN(job, ret_parameters);
	return r < 0 ? r : JOB_CALL(job, JOB_READY, gather_locked(job, unit, stream, ret_parameters));
}
