#include "client/library/joining/gpu_attach.h"

#include <errno.h>
#include <stdio.h>

bool gpu_attach_ask(struct tierd_ticket *ticket)
{
	struct tierd_job *job = ticket->job;
	Tierd__Wire__GpuAttach attach = TIERD__WIRE__GPU_ATTACH__INIT;
	ProtobufCBinaryData events[GPU_EVENTS];

	if (!job->gpu || job->attachment->gpu || job->attachment->is_without_gpu)
		return false;
	for (unsigned i = 0; i < GPU_EVENTS; i++)
		events[i] = (ProtobufCBinaryData){ sizeof(gpu_handles(job->gpu)[i]),
						   (uint8_t *)gpu_handles(job->gpu)[i].bytes };
	attach.job = job->number;
	attach.epoch = job->epoch;
	attach.uuid = (ProtobufCBinaryData){ GPU_UUID_BYTES, (uint8_t *)gpu_uuid(job->gpu)->bytes };
	attach.budget = job->gpu_budget;
	attach.has_gradients = job->has_gpu_gradients;
	attach.update_fraction = job->gpu_update;
	attach.n_events = GPU_EVENTS;
	attach.events = events;
	ticket->is_attaching = true;
	ticket->fd_count = GPU_TIER_FDS;
	ticket_send_again(ticket, WIRE_REQUEST(GPU_ATTACH, gpu_attach, &attach));
	return true;
}

static void go_on_without(struct tierd_job *job, const char *text)
{
	snprintf(job->gpu_refusal, sizeof(job->gpu_refusal), "%s",
		 text && *text ? text : "tierd gave no reason");
}

bool gpu_attach_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	struct tierd_job *job = ticket->job;
	struct gpu_tier *tier = NULL;
	int r;

	if (answer->status < 0) {
		go_on_without(job, answer->text);
		return true;
	}
	if (answer->reply->body_case != TIERD__WIRE__REPLY__BODY_GPU_ATTACH) {
		ticket_violation(ticket, "another reply");
		return false;
	}
	r = gpu_tier_new(job, answer->reply->gpu_attach, answer->fds, &tier);
	if (r == -EPROTO) {
		ticket_violation(ticket, "pages of a GPU of another layout");
		return false;
	}
	if (r < 0) {
		go_on_without(job, tierd_message());
		job->attachment->is_without_gpu = true;
		return true;
	}
	job->attachment->gpu = tier;
	return true;
}
