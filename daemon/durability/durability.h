/* Records, commits, snapshots, the list of jobs. */
#ifndef TIERD_DAEMON_DURABILITY_FRONT_H
#define TIERD_DAEMON_DURABILITY_FRONT_H

#include "daemon/durability/backup.h"
#include "daemon/durability/blob_requests.h"
#include "daemon/durability/blobs.h"
#include "daemon/durability/devices.h"
#include "daemon/durability/durable.h"
#include "daemon/durability/store_task.h"
#include "daemon/durability/family.h"
#include "daemon/durability/pinned_step.h"
#include "daemon/durability/listing.h"
#include "daemon/durability/pace.h"
#include "daemon/durability/presence.h"
#include "daemon/durability/record.h"
#include "daemon/durability/record_unpack.h"
#include "daemon/durability/host_load.h"
#include "daemon/durability/reserve.h"
#include "daemon/durability/retain.h"
#include "daemon/durability/retention.h"
#include "daemon/durability/snapshot.h"
#include "daemon/durability/snapshot_list.h"
#include "daemon/durability/state_file.h"
#include "daemon/durability/job_file.h"

/* What it keeps of a job that has its options, and of a node. directory: that of the list of jobs, borrowed;
 * NULL: there is none. -ENOMEM; of a node also as listing_new(). What ends them takes one that was not made
 * whole. */
int durability_new(struct job *job);
void durability_free(struct job *job);
int durability_open(struct node *node, const char *directory);
void durability_close(struct node *node);

/* Nothing of the job's is on its way to or from its store, but for scans. */
bool durability_is_quiet(const struct job *job);

#endif
