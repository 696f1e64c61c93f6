#include "daemon/durability/host_load.h"

#include <errno.h>

#include "daemon/durability/host_stream.h"
#include "daemon/request/request.h"
#include "daemon/residency/residency.h"
#include "daemon/telemetry/telemetry.h"

static void go_on(struct host_load *load);

static void fail(struct host_load *load, uint32_t pack, const struct store_transfer *transfer, int status)
{
	struct log_fields fault = store_fault(load->job, pack, transfer);

	if (load->status == 0)
		load->status = refuse(load->message, sizeof(load->message), status,
				      "unit \"%.60s\" cannot be read from %.80s: %s", fault.unit,
				      fault.device ? fault.device : "its store", store_error(status));
}

static void on_read(struct store_transfer *transfer, int status)
{
	struct host_load_read *read = container_of(transfer, struct host_load_read, transfer);
	struct host_load *load = read->load;

	trace_transferred(load->job, read->pack, job_nvme_store(load->job), transfer);
	if (status < 0)
		fail(load, read->pack, transfer, status);
	queue_push(&load->free, &read->link);
	load->running--;
	go_on(load);
}

/* Finds the next stream that is in host memory; false: there is none. */
static bool find_stream(struct host_load *load, struct store_transfer *transfer)
{
	for (; load->pack < load->job->catalog.pack_count; load->pack++, load->stream = 0)
		while (load->stream < HOST_STREAMS)
			if (host_stream_find(load->job, load->pack, host_stream_at(load->stream++), transfer))
				return true;
	return false;
}

static bool read_next(struct host_load *load)
{
	struct store_transfer transfer = { .direction = TIER_READ, .priority = TIER_DEMAND, .done = on_read };
	struct host_load_read *read;
	int r;

	if (load->status < 0 || queue_is_empty(&load->free) || !find_stream(load, &transfer))
		return false;
	read = queue_entry(queue_pop(&load->free), struct host_load_read, link);
	read->pack = load->pack;
	read->transfer = transfer;
	r = store_submit(job_nvme_store(load->job), &read->transfer);
	if (r < 0) {
		fail(load, read->pack, &read->transfer, r);
		queue_push(&load->free, &read->link);
		return false;
	}
	load->running++;
	account_transfer(load->job, STATISTICS_PREFETCH, &read->transfer);
	return true;
}

static void publish(struct job *job)
{
	for (uint32_t pack = 0; pack < job->catalog.pack_count && !job->location.has_nvme_parameters; pack++)
		residency_publish(job, pack, residency_version(job, pack));
}

static void go_on(struct host_load *load)
{
	if (job_is_ending(load->job) && load->status == 0)
		load->status = refuse(load->message, sizeof(load->message), -ECANCELED, "it is dropped");
	while (read_next(load))
		;
	if (load->running > 0)
		return;
	if (load->status == 0)
		publish(load->job);
	load->done(load, load->status);
}

void host_load_start(struct host_load *load, struct job *job,
		     void (*done)(struct host_load *load, int status))
{
	*load = (struct host_load){ .job = job, .done = done };
	queue_init(&load->free);
	for (unsigned i = 0; i < HOST_LOAD_READS; i++) {
		load->reads[i].load = load;
		queue_push(&load->free, &load->reads[i].link);
	}
	go_on(load);
}
