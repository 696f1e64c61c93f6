/* The account of a job, as its ranks and tierctl read it. */
#include "daemon/observe/report.h"

#include "daemon/gpu/gpu.h"
#include "daemon/resources/resources.h"
#include "daemon/telemetry/telemetry.h"

static void add_gpus(const struct job *job, Tierd__Wire__StatisticsReply *reply)
{
	struct gpu_job_figures figures[GPUS_MAX];
	unsigned count = gpu_figures_of_job(job, figures);

	for (unsigned i = 0; i < count; i++) {
		reply->job_gpu_parameter_bytes += figures[i].parameter_bytes;
		reply->job_gpu_gradient_bytes += figures[i].gradient_bytes;
		reply->job_gpu_update_bytes += figures[i].update_bytes;
		reply->job_gpu_state_bytes += figures[i].state_bytes;
	}
}

void report_account(struct job *job, struct member *member, Tierd__Wire__StatisticsReply *reply)
{
	account_statistics(job, member, reply);
	reply->job_host_bytes = budget_host_bytes(job);
	reply->job_host_budget = budget_limits(job)->host_budget;
	reply->job_nvme_bytes = budget_nvme_bytes(job);
	add_gpus(job, reply);
}

void report_statistics(struct pending *pending)
{
	Tierd__Wire__StatisticsReply statistics = TIERD__WIRE__STATISTICS_REPLY__INIT;

	report_account(pending->member->job, pending->member, &statistics);
	pending_reply(pending, WIRE_REPLY(STATISTICS, statistics, &statistics));
}
