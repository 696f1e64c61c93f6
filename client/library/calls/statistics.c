#include <errno.h>

#include "client/library/calls/calls.h"
#include "client/library/connection/structure.h"

static void statistics_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	if (answer->status == 0)
		ticket->statistics = *answer->reply->statistics;
	ticket_complete_answer(ticket, answer);
}

static const struct ticket_kind statistics_kind = { .name = "tierd_statistics",
						    .body = TIERD__WIRE__REPLY__BODY_STATISTICS,
						    .answer = statistics_answer };

static void count_gathers(const struct tierd_job *job, struct tierd_statistics *statistics)
{
	uint64_t elements = atomic_load_explicit(&job->elements_of_many, memory_order_relaxed);

	statistics->gathers = atomic_load_explicit(&job->gathers_of_many, memory_order_relaxed);
	for (uint32_t unit = 0; unit < job->ready_units; unit++) {
		uint64_t gathers = atomic_load_explicit(&job->hot[unit].gathers, memory_order_relaxed);

		statistics->gathers += gathers;
		elements += gathers * job->hot[unit].elements;
	}
	/* Below stage 3 every rank has the parameters: nothing is communicated to gather them. */
	if (job->stage == 3)
		statistics->communicated_elements += elements;
}

static void merge(const struct tierd_job *job, const Tierd__Wire__StatisticsReply *reply,
		  struct tierd_statistics *ret_statistics)
{
	*ret_statistics = (struct tierd_statistics){
		.size = sizeof(*ret_statistics),
		.gather_misses = job->gather_misses,
		.gather_wait_ns = job->gather_wait_ns,
		.pushes = reply->pushes,
		.gradient_wait_ns = job->gradient_wait_ns,
		.step_wait_ns = job->step_wait_ns,
		.communicated_elements = reply->communicated_elements,
		.logical_parameter_bytes = reply->logical_parameter_bytes,
		.logical_gradient_bytes = reply->logical_gradient_bytes,
		.logical_optimizer_bytes = reply->logical_optimizer_bytes,
		.job_parameters = reply->job_parameters,
		.job_host_bytes = reply->job_host_bytes,
		.job_host_budget = reply->job_host_budget,
		.job_nvme_bytes = reply->job_nvme_bytes,
		.job_gather_read_bytes = reply->job_gather_read_bytes,
		.job_update_read_bytes = reply->job_update_read_bytes,
		.job_update_written_bytes = reply->job_update_written_bytes,
		.job_initialize_written_bytes = reply->job_initialize_written_bytes,
		.job_steps = reply->job_steps,
		.job_step_ns = reply->job_step_ns,
		.job_gradient_read_bytes = reply->job_gradient_read_bytes,
		.job_gradient_written_bytes = reply->job_gradient_written_bytes,
		.job_gpu_parameter_bytes = reply->job_gpu_parameter_bytes,
		.job_gpu_gradient_bytes = reply->job_gpu_gradient_bytes,
		.job_gpu_update_bytes = reply->job_gpu_update_bytes,
		.job_gpu_state_bytes = reply->job_gpu_state_bytes,
	};
	count_gathers(job, ret_statistics);
}

static int statistics_locked(struct tierd_job *job, struct tierd_statistics *ret_statistics)
{
	Tierd__Wire__StatisticsRead read = TIERD__WIRE__STATISTICS_READ__INIT;
	struct tierd_ticket *ticket = NULL;
	int r = ticket_new(job->node, job, &statistics_kind, &ticket);

	if (r < 0)
		return r;
	read.job = job->number;
	r = ticket_ask(ticket, WIRE_REQUEST(STATISTICS_READ, statistics_read, &read),
		       connection_deadline(job->node, -1));
	if (r < 0)
		return r;
	merge(job, &ticket->statistics, ret_statistics);
	ticket_abandon(ticket);
	return 0;
}

int tierd_statistics(struct tierd_job *job, struct tierd_statistics *ret_statistics)
{
	struct tierd_statistics own;
	int r = CHECK_GIVEN(job, ret_statistics);

	if (r == 0)
		r = JOB_CALL(job, JOB_LIVE, statistics_locked(job, &own));
	return r < 0 ? r : STRUCTURE_GIVE(ret_statistics, &own, "the statistics have", TIERD_STATISTICS_INIT);
}
