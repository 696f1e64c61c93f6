#include "daemon/residency/damage.h"

#include <stdio.h>

#include "daemon/model/model.h"
#include "daemon/residency/own.h"
#include "daemon/telemetry/telemetry.h"

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

const char *damage_explain(const struct job *job, const char *what, const struct store_transfer *fault,
			   int status, char text[DAMAGE_TEXT])
{
	char place[LOCATION_FAULT_TEXT];

	if (fault && fault->direction == TIER_WRITE)
		snprintf(text, DAMAGE_TEXT, "%s cannot be written: %s; look at the disk",
			 location_print_fault(job, fault, place), store_error(status));
	else if (fault)
		snprintf(text, DAMAGE_TEXT,
			 "%s cannot be read: %s; see what else is damaged (tierctl verify %s), look at the "
			 "disk, and go back to a snapshot or an export",
			 location_print_fault(job, fault, place), store_error(status), job->name);
	else
		snprintf(text, DAMAGE_TEXT, "%.160s cannot be read: %s", what, store_error(status));
	return text;
}

void damage_find(const struct job *job, const struct store_flaw *flaw, struct damage *ret_damage)
{
	static const char *const parts[] = {
		[STORE_SUPERBLOCK] = "superblock", [STORE_TABLE] = "table of snapshots"
	};

	if (flaw->part == STORE_EXTENT) {
		location_find(job, &flaw->block, &ret_damage->location);
		return;
	}
	if (flaw->part == STORE_NODE)
		snprintf(ret_damage->part, sizeof(ret_damage->part), "map, node %llu of level %u",
			 (unsigned long long)flaw->index, flaw->level);
	else
		snprintf(ret_damage->part, sizeof(ret_damage->part), "%s", parts[flaw->part]);
	ret_damage->location = (struct location){ .unit = "", .state = ret_damage->part };
}

/* What follows from it, and what to do. */
static const char *consequence_of(const struct store_flaw *flaw)
{
	if (flaw->is_mended)
		return "it was written again from its other copy, which is good: look at the disk";
	if (flaw->part == STORE_SUPERBLOCK)
		return "the next two commits write it again: look at the disk";
	if (flaw->part != STORE_EXTENT && flaw->has_other)
		return "its other copy is good, and it could not be written again: look at the disk";
	if (flaw->part == STORE_TABLE)
		return "the next commit writes it again: look at the disk";
	if (flaw->part == STORE_NODE && flaw->is_of_job)
		return "so is its other copy; the job's next commit writes it again, for the job: look at "
		       "the disk";
	if (flaw->part == STORE_NODE)
		return "so is its other copy, and what it leads to cannot be found: look at the disk, and "
		       "delete the snapshot, which destroys what is left of it";
	if (!flaw->is_of_job)
		return "who reads them gets an error, nobody the wrong values: look at the disk, and delete "
		       "the snapshot, which destroys what is left of it";
	return "who reads them gets an error, nobody the wrong values: look at the disk, and go back to a "
	       "checkpoint";
}

/* ", copy 2, of the job and snapshot a" */
static const char *print_whose(const struct store_flaw *flaw, char text[STORE_NAMES_TEXT + 64])
{
	int used = 0;

	text[0] = '\0';
	if (flaw->part != STORE_EXTENT)
		used = snprintf(text, STORE_NAMES_TEXT + 64, ", copy %u", flaw->copy + 1);
	if (flaw->snapshots[0])
		snprintf(text + used, STORE_NAMES_TEXT + 64 - (size_t)used, ", %s snapshot %s",
			 flaw->is_of_job ? "also of" : "of", flaw->snapshots);
	return text;
}

void damage_tell(const struct job *job, const struct store_flaw *flaw, const char *by)
{
	char what[LOCATION_TEXT], whose[STORE_NAMES_TEXT + 64];
	struct damage damage;

	damage_find(job, flaw, &damage);
	events_of_job(job, flaw->is_mended ? EVENT_MENDED : EVENT_DAMAGED,
		      &(struct log_fields){ .unit = *damage.location.unit ? damage.location.unit : NULL,
					    .tier = "nvme",
					    .device = flaw->device },
		      "%s%s, at byte %llu of %s, %llu bytes: %s, as %s has found; %s",
		      location_print(&damage.location, what), print_whose(flaw, whose),
		      (unsigned long long)flaw->device_offset, flaw->device ? flaw->device : "its store",
		      (unsigned long long)flaw->length, store_error(flaw->status), by, consequence_of(flaw));
}
