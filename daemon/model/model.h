/* The model: what a job and a node are, as data that all modules above read.
 *
 * A job (job.h) is one training run. It has a user, a name, and options (options.h), which its first rank
 * gave and later ranks must agree with. Its catalog (catalog.h) has the units, their tensors, and the packs
 * that small neighbouring units form. Its location says where its state is kept: which stores, which streams,
 * which paths. A member (member.h) is a rank of it: its window, its pages, and what it has closed and pushed.
 * A node (node.h) is this daemon: its settings, its paths, its threads, and all jobs.
 *
 * What a module does with a job is not here. A job and a node have a pointer to a struct of each module
 * above, which that module alone knows (MODULE/own.h) and makes when the job or the node is made.
 *
 * Three states may be read by everybody: what becomes of a job (enum job_state), of its epoch (enum
 * epoch_state), and of the step that it is at (step_state.h). Their tables are in daemon/life/state.c and
 * daemon/update/step_table.c, and only these change them.
 *
 * The model calls nothing above it. What modules below a job's life have to report to it goes through the
 * table of a node's parts: job_settle(), job_abort(), job_break(), job_throw_out(). Access
 * (access.h) says what a user may do with a job; quotas (quota.h) what a user may hold.
 *
 * Limits: those of the catalog and of the node's settings. */
#ifndef TIERD_DAEMON_MODEL_FRONT_H
#define TIERD_DAEMON_MODEL_FRONT_H

#include "daemon/model/access.h"
#include "daemon/model/catalog.h"
#include "daemon/model/definition.h"
#include "daemon/model/gradient_buffers.h"
#include "daemon/model/job.h"
#include "daemon/model/location.h"
#include "daemon/model/member.h"
#include "daemon/model/node.h"
#include "daemon/model/options.h"
#include "daemon/model/quota.h"
#include "daemon/model/state.h"
#include "daemon/model/step_state.h"
#include "daemon/model/sums.h"

#endif
