/* What setting up a job has to remember, from the plan to the memory and disk that are there. */
#ifndef TIERD_DAEMON_SETUP_H
#define TIERD_DAEMON_SETUP_H

#include "daemon/disposal.h"
#include "daemon/job.h"
#include "daemon/placement.h"
#include "daemon/spill.h"

struct setup {
	struct work work;
	struct job *job;
	struct store_layout *nvme, *host; /* NULL: no such store */
	bool is_return; /* of a released job: it has its packs, its stores and their metadata */
	bool is_strict;
	uint64_t arena_bytes, sums_bytes, directory_bytes, device_bytes;
	struct placement placement;
	struct spill_plan spill;    /* of sums that may be spilled */
	char folder[16], file[128]; /* of its owner on each path, and of the job in it */
	struct made made;
	int pinning; /* what engine_buffer_add() said */
	int status;
	char message[1024];
};

/* Decides where everything of the job lies, how much memory and disk that takes, and takes it from the
 * budgets. A negative errno with a message. */
int setup_plan(struct setup *setup);

#endif
