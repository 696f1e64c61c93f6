/* Resources: the node's memory, disk and devices, and who holds what of them.
 *
 * A budget (budget.h) is what jobs may hold of host memory and of the paths: all together, each by itself,
 * and all of one user. A job's plan takes its needs from the budgets before anything is allocated, and gives
 * them back at its end. Placement (placement.h) decides where the state of a job goes: it is pure. Slots
 * (slots.h) lay out an arena.
 *
 * When there is not enough, a shortage (shortage.h) waits while holders (holders.h) are asked to give memory
 * back, in the order of node_parts: caches, idle jobs, readers, what replaced jobs have left. It ends when
 * there is room, or when nobody has more to give; then a message names who holds what.
 *
 * Memory that clients have had is given back by a disposal (disposal.h), on a worker: it stays charged until
 * the kernel has it. What a living process may still read is withheld, and counts as its user's.
 *
 * Staging buffers (staging.h) are shared by all jobs for transfers, by user first. The node (node.h) is made
 * here: its paths, engine, threads and loop (loop.h).
 *
 * Modules above take and give by budget_*() and staging_*(); the parts that they give a node stand in struct
 * node_parts. Limits: the budgets, STAGING_* and 256 withheld pieces of a user. */
#ifndef TIERD_DAEMON_RESOURCES_FRONT_H
#define TIERD_DAEMON_RESOURCES_FRONT_H

#include "daemon/resources/budget.h"
#include "daemon/resources/disposal.h"
#include "daemon/resources/loop.h"
#include "daemon/resources/node.h"
#include "daemon/resources/placement.h"
#include "daemon/resources/slots.h"
#include "daemon/resources/shortage.h"
#include "daemon/resources/staging.h"

#endif
