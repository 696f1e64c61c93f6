/* The life of a job, from its opening to its end.
 *
 * Ranks open a job (opening.c), define its units (unit_requests.c), and say that they are ready (ready.c).
 * When all are there the setup plans memory and disk (setup_plan.c), and reserves them off the loop
 * (setup.c). Then an epoch begins. It ends when a rank is lost or leaves (epoch.c, leave.c), and the ranks
 * meet again. A job without ranks is idle: after some time, or when others need memory, it gives its host
 * memory back (idle.c, release.c). Ranks may open it with another shape then (reshape.c). A job ends because
 * it is dropped, replaced, rolled back, or because the daemon ends. A lost job is one whose store cannot be
 * opened: it stays, and says why, until somebody mends that or drops it (lost.c).
 *
 * state.c has two tables, of a job and of its epochs: each state, what may happen in it, and what follows. It
 * changes nothing but the state; callers do the rest.
 *
 * A job goes on in turns (job.c): job_settle() asks for one, from wherever something has ended, and the loop
 * gives each module its part of it. A dropped job is freed in a turn alone, when nothing of it is in flight.
 *
 * Life is above all modules that work for a job, makes what they keep of it (job_new()), and fills in the
 * tables by which they report (listeners.c, life_callbacks). Jobs that come back are recovery's: life asks
 * for them by life_recovery.h.
 *
 * Users rule jobs here: share.c, drop.c, evict.c, drain.c. plan.c answers what a job would take, by the same
 * code, on a node that has no memory, disk or threads. */
#ifndef TIERD_DAEMON_LIFE_FRONT_H
#define TIERD_DAEMON_LIFE_FRONT_H

#include "daemon/life/idle.h"
#include "daemon/life/life_recovery.h"
#include "daemon/life/lost.h"
#include "daemon/life/plan.h"
#include "daemon/life/refusal.h"
#include "daemon/life/replaced.h"
#include "daemon/life/setup.h"
#include "daemon/life/share.h"
#include "daemon/life/state.h"
#include "daemon/model/model.h"

/* What the model and the resources call of it. */
extern const struct job_callbacks life_callbacks;
/* What it keeps of a node. -ENOMEM. */
int node_life_new(struct node *node);
void node_life_free(struct node *node);
/* Of a job that is or was lost: what its record says, and whether it is to be tried again. */
const struct loss_record *life_lost_record(const struct job *job);
bool life_is_asked_again(const struct job *job);

/* ---- job.c, opening.c, unit_requests.c, ready.c, epoch.c: membership and epochs ---- */
/* A job without ranks and units, in JOB_FORMING; freed by job_free(). */
int job_new(struct node *node, uid_t uid, const struct quota *quota, const char *name,
	    const struct job_options *options, struct job **ret_job);
/* What it may take of memory, of disk and of the devices' time, by what its owner may. */
void job_set_limits(struct job *job, const struct quota *quota);
/* 0, or a negative errno with a message: whether a user may have one more, and a new one that name. */
int job_check_count(const struct node *node, uid_t uid, char *message, size_t size);
int job_check_name(const struct node *node, const char *name, char *message, size_t size);
/* Checks and charges the next unit. A negative errno with a message. */
int job_add_unit(struct job *job, const Tierd__Wire__UnitDefine *definition, char *message, size_t size);
void job_open(struct pending *pending, const Tierd__Wire__JobOpen *open, struct memberships *client,
	      uint32_t handle);
void job_define(struct pending *pending, const Tierd__Wire__UnitDefine *definition);
void job_ready(struct pending *pending, int timeout_ms);
/* Those that wait to be ready are told why they will not be. */
void job_fail_ready(struct job *job, int r, const char *message);
/* The member leaves. is_orderly: nobody is disturbed until a step would need it. */
void job_leave(struct member *member, bool is_orderly, const char *reason);
/* In its turn: starts what all ranks are ready for. */
void job_go_on(struct job *job);
/* But scans, which need no more than its store: a scrub that is hurried reads on and on, and would keep an
 * idle job from giving back its memory. */
bool job_is_at_rest(const struct job *job);
/* But scans, and early updates that are ready and wait for the step's decision. */
bool job_is_still(const struct job *job);
void job_free(struct job *job);

/* ---- What users ask of their jobs, and administrators of all: each answers its request ---- */

/* drop.c: a job and its state end. Its memory and files are given back when nothing of it is in flight. */
void drop_job(struct pending *pending, const Tierd__Wire__JobDrop *request);
/* Its ranks leave at once, and are told why. */
void drop_ranks(struct job *job, const char *reason);
/* If nothing is written to its store before all jobs in it have let go of it: each does, and comes back. */
void drop_others(const struct job *job);
/* evict.c: units that nobody uses leave host memory. */
void evict_units(struct pending *pending, const Tierd__Wire__JobEvict *request);
/* release.c: an idle job gives its host memory back at once. */
void release_job(struct pending *pending, const Tierd__Wire__JobRelease *request);
/* drain.c: jobs come to their end, and no new ones begin. Who waits looks at the ranks that are left. */
void drain_node(struct pending *pending, const Tierd__Wire__NodeDrain *request);
/* leave.c: a rank closes its job, or detaches from it. Answers when the member has left. */
void leave_job(struct pending *pending, const Tierd__Wire__JobLeave *leave);

/* ---- setup.c: reserving memory and disk; daemon/life/setup_plan.c plans them ---- */

/* Plans and reserves, and calls job_planned(). */
void setup_start(struct job *job);
/* Gives back what host memory a job needs only while it is used. It has no ranks, all of its state is on
 * NVMe, and nothing is in flight. */
void setup_release(struct job *job);
/* is_read: by processes that live, though the job ends. */
void setup_clear(struct job *job, bool is_read);
void job_planned(struct job *job, int r, const char *message);

#endif
