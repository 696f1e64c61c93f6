#include "daemon/durability/refill.h"

#include <errno.h>
#include <string.h>

#include "daemon/durability/hosted.h"
#include "daemon/request/request.h"
#include "daemon/residency/residency.h"
#include "daemon/telemetry/telemetry.h"

static void go_on(struct refill *refill);

static void fail(struct refill *refill, uint32_t pack, const struct store_transfer *transfer, int status)
{
	struct log_fields fault = store_fault(refill->job, pack, transfer);

	if (refill->status == 0)
		refill->status = refuse(refill->message, sizeof(refill->message), status,
					"unit \"%.60s\" cannot be read from %.80s: %s", fault.unit,
					fault.device ? fault.device : "its store", store_error(status));
}

static void on_read(struct store_transfer *transfer, int status)
{
	struct refill_read *read = container_of(transfer, struct refill_read, transfer);
	struct refill *refill = read->refill;

	trace_transferred(refill->job, read->pack, job_nvme_store(refill->job), transfer);
	if (status < 0)
		fail(refill, read->pack, transfer, status);
	queue_push(&refill->free, &read->link);
	refill->running--;
	go_on(refill);
}

/* Finds the next part that is in host memory; false: there is none. */
static bool find_part(struct refill *refill, struct store_transfer *transfer)
{
	for (; refill->pack < refill->job->catalog.pack_count; refill->pack++, refill->part = 0)
		while (refill->part < HOSTED_PARTS)
			if (hosted_find(refill->job, refill->pack, hosted_part(refill->part++), transfer))
				return true;
	return false;
}

static bool read_next(struct refill *refill)
{
	struct store_transfer transfer = { .direction = TIER_READ, .priority = TIER_DEMAND, .done = on_read };
	struct refill_read *read;
	int r;

	if (refill->status < 0 || queue_is_empty(&refill->free) || !find_part(refill, &transfer))
		return false;
	read = queue_entry(queue_pop(&refill->free), struct refill_read, link);
	read->pack = refill->pack;
	read->transfer = transfer;
	r = store_submit(job_nvme_store(refill->job), &read->transfer);
	if (r < 0) {
		fail(refill, read->pack, &read->transfer, r);
		queue_push(&refill->free, &read->link);
		return false;
	}
	refill->running++;
	account_transfer(refill->job, STATISTICS_PREFETCH, &read->transfer);
	return true;
}

static void publish(struct job *job)
{
	for (uint32_t pack = 0; pack < job->catalog.pack_count && !job->location.has_nvme_parameters; pack++)
		residency_publish(job, pack, residency_version(job, pack));
}

static void go_on(struct refill *refill)
{
	if (refill->job->life.is_dropped && refill->status == 0)
		refill->status =
			refuse(refill->message, sizeof(refill->message), -ECANCELED, "it is dropped");
	while (read_next(refill))
		;
	if (refill->running > 0)
		return;
	if (refill->status == 0)
		publish(refill->job);
	refill->done(refill, refill->status);
}

void refill_start(struct refill *refill, struct job *job, void (*done)(struct refill *refill, int status))
{
	*refill = (struct refill){ .job = job, .done = done };
	queue_init(&refill->free);
	for (unsigned i = 0; i < REFILL_READS; i++) {
		refill->reads[i].refill = refill;
		queue_push(&refill->free, &refill->reads[i].link);
	}
	go_on(refill);
}
