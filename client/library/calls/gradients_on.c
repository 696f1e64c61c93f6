/* Gradients in the memory of a GPU. */
#include <errno.h>

#include "client/library/calls/calls.h"
#include "client/library/pages/hold.h"

/* ---- The daemon is asked for their memory ---- */

static void memory_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	const Tierd__Wire__GpuGradientsReply *reply = answer->reply->gpu_gradients;
	struct attachment *attachment = ticket->job->attachment;
	int r;

	if (ticket_is_refused(ticket, answer))
		return;
	if (!attachment->gpu || reply->bytes < attachment->gradient_mapping.bytes) {
		ticket_violation(ticket, "memory that is too small");
		return;
	}
	r = gpu_tier_add_gradients(attachment->gpu, answer->fds[0], reply->bytes);
	ticket_complete(ticket, TIERD_DONE, r, r < 0 ? tierd_message() : NULL);
}

static const struct ticket_kind memory_kind = {
	.name = "tierd_gradients_on",
	.body = TIERD__WIRE__REPLY__BODY_GPU_GRADIENTS,
	.fd_count = 1,
	.answer = memory_answer,
};

static int ask_for_memory(struct tierd_job *job)
{
	Tierd__Wire__GpuGradients gradients = TIERD__WIRE__GPU_GRADIENTS__INIT;
	struct tierd_ticket *ticket = NULL;
	int r = ticket_new(job->node, job, &memory_kind, &ticket);

	if (r < 0)
		return r;
	gradients.job = job->number;
	gradients.epoch = job->epoch;
	return ticket_run(ticket, WIRE_REQUEST(GPU_GRADIENTS, gpu_gradients, &gradients),
			  connection_deadline(job->node, -1));
}

/* Whoever waits gives the lock away meanwhile. */
int gpu_have_gradients(struct tierd_job *job)
{
	int r = gpu_check_tier(job, "tierd_gradients");

	while (r == 0 && !job->attachment->gpu->gradients) {
		r = ask_for_memory(job);
		if (r == 0)
			r = job_check(job, JOB_READY);
		if (r == 0)
			r = gpu_check_tier(job, "tierd_gradients");
	}
	return r;
}

static int show(struct tierd_job *job, uint32_t unit, uint32_t flags, struct driver_stream *stream,
		struct tierd_view *ret_gradients)
{
	const struct buffer_writer writer = { job->gpu, stream };
	int r = job_check_unit(job, unit);

	if (r == 0)
		r = gpu_have_gradients(job);
	return r < 0 ? r : gradients_show(job, unit, flags, &writer, ret_gradients);
}

int tierd_gradients_on(struct tierd_job *job, uint32_t unit, uint32_t flags, void *stream,
		       struct tierd_view *ret_gradients)
{
	int r = CHECK_GIVEN(job, ret_gradients);

	if (r == 0)
		r = gradients_check_flags(flags, "tierd_gradients_on");
	return r < 0 ? r : JOB_CALL(job, JOB_READY, show(job, unit, flags, stream, ret_gradients));
}
