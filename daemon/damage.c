#include "daemon/damage.h"

#include <stdio.h>

#include "daemon/job.h"

void damage_tell_read(const struct job *job, const struct store_transfer *transfer, int status,
		      const char *consequence)
{
	char what[LOCATION_TEXT];
	struct location location;

	location_of_fault(job, transfer, &location);
	events_of_job(job, EVENT_READ_FAILED,
		      &(struct log_fields){ .unit = *location.unit ? location.unit : NULL,
					    .tier = transfer->fault.device ? "nvme" : NULL,
					    .device = transfer->fault.device },
		      "%s, cannot be read from %s at byte %llu: %s; %s: look at the disk",
		      location_print(&location, what),
		      transfer->fault.device ? transfer->fault.device : "its store",
		      (unsigned long long)transfer->fault.device_offset, store_error(status), consequence);
}

void damage_tell(const struct job *job, const struct scan_finding *finding, const char *by)
{
	char what[LOCATION_TEXT];
	struct location location;

	location_find(job, &finding->block, &location);
	events_of_job(
		job, EVENT_DAMAGED,
		&(struct log_fields){ .unit = *location.unit ? location.unit : NULL,
				      .tier = "nvme",
				      .device = finding->device },
		"%s, at byte %llu of %s, %llu bytes: %s, as %s has found; who reads them gets an error, "
		"nobody the wrong values: look at the disk, and go back to a checkpoint",
		location_print(&location, what), (unsigned long long)finding->device_offset,
		finding->device ? finding->device : "its store", (unsigned long long)finding->block.length,
		store_error(finding->status), by);
}
