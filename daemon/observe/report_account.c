/* The account of a job, as its ranks and tierctl read it. */
#include "daemon/observe/report.h"

#include "daemon/resources/resources.h"
#include "daemon/telemetry/telemetry.h"

void report_account(struct job *job, struct member *member, Tierd__Wire__StatisticsReply *reply)
{
	account_statistics(job, member, reply);
	reply->job_host_bytes = budget_host_bytes(job);
	reply->job_host_budget = budget_limits(job)->host_budget;
	reply->job_nvme_bytes = budget_nvme_bytes(job);
}

void report_statistics(struct pending *pending)
{
	Tierd__Wire__StatisticsReply statistics = TIERD__WIRE__STATISTICS_REPLY__INIT;

	report_account(pending->member->job, pending->member, &statistics);
	pending_reply(pending, WIRE_REPLY(STATISTICS, statistics, &statistics));
}
