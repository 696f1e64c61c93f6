/* Evict: units that nobody uses leave host memory because the job's owner or an administrator says so. */
#include "daemon/life/life.h"

#include <errno.h>

#include "common/plural.h"
#include "common/size.h"
#include "daemon/gradients/gradients.h"
#include "daemon/model/model.h"
#include "daemon/residency/residency.h"
#include "daemon/telemetry/telemetry.h"

static void evict_pack(struct job *job, uint32_t pack, Tierd__Wire__JobEvictReply *result)
{
	const struct pack *units = &job->catalog.packs[pack];

	/* What is on NVMe alone, or has just left with another unit of the pack, is where it is to be. */
	if (!residency_has_slot(job, pack))
		return;
	if (residency_evict(job, pack)) {
		result->units += units->unit_count;
		result->bytes += residency_class(job, pack)->bytes;
	} else if (residency_is_leased(job, pack)) {
		result->leased_units += units->unit_count;
	} else {
		result->busy_units += units->unit_count;
	}
}

static void evict(struct pending *pending, struct job *job, const Tierd__Wire__JobEvict *request)
{
	Tierd__Wire__JobEvictReply result = TIERD__WIRE__JOB_EVICT_REPLY__INIT;

	for (size_t i = 0; i < request->n_units; i++)
		evict_pack(job, job->catalog.units[request->units[i]].pack, &result);
	for (uint32_t pack = 0; request->n_units == 0 && pack < job->catalog.pack_count; pack++)
		evict_pack(job, pack, &result);
	if (result.units > 0)
		events_of_job(job, EVENT_EVICTED, NULL,
			      "user %u has evicted %u unit%s, %llu KiB, from host memory",
			      (unsigned)pending_port(pending)->uid, result.units, PLURAL(result.units),
			      (unsigned long long)(result.bytes / KIB));
	/* Somebody may have waited for a slot. */
	job_settle(job);
	pending_reply(pending, WIRE_REPLY(JOB_EVICT, job_evict, &result));
}

static bool has_units(struct pending *pending, const struct job *job, const Tierd__Wire__JobEvict *request)
{
	if (request->n_units > job->catalog.unit_count) {
		pending_error(pending, -EINVAL, "job %s has %u unit%s, not the %zu that are named", job->name,
			      job->catalog.unit_count, PLURAL(job->catalog.unit_count), request->n_units);
		return false;
	}
	for (size_t i = 0; i < request->n_units; i++)
		if (request->units[i] >= job->catalog.unit_count) {
			pending_error(pending, -EINVAL, "job %s has no unit %u; it has %u", job->name,
				      request->units[i], job->catalog.unit_count);
			return false;
		}
	return true;
}

void evict_units(struct pending *pending, const Tierd__Wire__JobEvict *request)
{
	struct job *job = access_find(pending, request->name, request->has_owner, request->owner);

	if (!job)
		return;
	if (!access_may_drop(job, pending_port(pending)))
		pending_error(pending, -EPERM, "job %s is for its owner to evict from, user %u", job->name,
			      (unsigned)job->uid);
	else if (!job->location.has_nvme_parameters && job->state >= JOB_FILLING)
		pending_error(pending, -EOPNOTSUPP, "job %s keeps its parameters in host memory", job->name);
	else if (job->state == JOB_PLANNING || job->state == JOB_RETURNING || job->state == JOB_INITIALIZING)
		pending_error(pending, -EAGAIN, "job %s is %s; try again", job->name, job_status_name(job));
	else if (job->state != JOB_TRAINED && job->state != JOB_RELEASED)
		pending_error(pending, -EBUSY, "job %s is %s; units can be evicted when it has a state",
			      job->name, job_status_name(job));
	else if (has_units(pending, job, request))
		evict(pending, job, request);
}
