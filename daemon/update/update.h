/* Updates: the module takes a step of a job from its first closed part to the moment at which all packs are
 * updated.
 *
 * Its nouns. A step is closed by all ranks, measured, decided, and applied; step_table.h has its states and
 * events. With the optimizer none a step is reduced before it is decided: its owners read the gradients and
 * write the masters. A sweep passes over all packs that have gradients, and applies the decided step to them;
 * it cuts packs into chunks, which are read, updated by a worker, and written. An early update does the same
 * for one pack before the decision, and nobody sees it until then. State is read ahead of its update while
 * the ranks compute. Warm state stays in host memory from one sweep to the next; it is dirty until it is
 * written back.
 *
 * GPUs that the job's ranks use update some of the chunks, if they are asked to, or are fast (share.h).
 *
 * Life cycle: update_new() when the job is made, update_make_packs() when it is planned, step_close() and
 * step_advance() for each step, update_release() when its host memory is given back, update_clear() when its
 * plan goes, update_free().
 *
 * Who calls it: sessions hand requests of steps to it; gradients report what is summed; the job's turn has
 * sweep_go_on(), early_go_on() and read_ahead_go_on() go on; the writing of values takes the number of a
 * step, and reports its events by step_happens().
 *
 * It reports to the listeners of step_listeners.h, and asks them before a decision and before each pack.
 *
 * Limits: a sweep has at most as many chunks on their way as the node has staging buffers, early updates have
 * half of that, and what is read ahead gives its buffers to whoever wants them. A rank has at most one step
 * on its way beyond the open one. Nothing of a step is seen or overwritten before it is decided; what is
 * decided is finished, whoever goes. */
#ifndef TIERD_DAEMON_UPDATE_FRONT_H
#define TIERD_DAEMON_UPDATE_FRONT_H

#include "daemon/model/model.h"
#include "daemon/residency/residency.h"
#include "daemon/update/read_ahead.h"
#include "daemon/update/early.h"
#include "daemon/update/groups.h"
#include "daemon/update/share.h"
#include "daemon/update/step_listeners.h"
#include "daemon/update/step_table.h"
#include "daemon/update/sweep_watch.h"
#include "daemon/update/warm.h"

/* ---- step.c ---- */
/* Closes the rank's part of a step or a writing, or keeps the request until it can. False: it is refused. */
bool step_take(struct pending *pending, struct step_rates *rates);
void step_fail_refused(struct member *member);
/* The open step is decided: ranks can begin with the next one. */
void step_begin_decided(struct job *job);
/* The open step cannot be taken: its gradients are dropped, the ranks may push again. */
void step_fail(struct job *job, int r, const char *message);
void step_close(struct pending *pending, const Tierd__Wire__Step *step);
void step_begin(struct pending *pending, const Tierd__Wire__StepBegin *begin);
/* Decides the open step if everything is there. */
void step_advance(struct job *job);
/* Decides the open step. broken: a unit with gradients that are not finite, for which the step is skipped; or
 * NULL. */
void step_decide(struct job *job, const char *broken);
void step_applied(struct job *job); /* the sweep is done */
void step_abort(struct job *job);

/* ---- reduced.c ---- */
/* The gradients of the open step are final: their owners may read them. */
void reduced_begin(struct job *job);
/* Decides the step if all owners have finished and no copy of theirs is in flight. */
void reduced_advance(struct job *job);
void reduced_finish(struct pending *pending, const Tierd__Wire__StepFinish *finish);
/* The member has finished. */
void reduced_end_part(struct member *member);
/* A copy between a rank's window and the sums of a reduced step begins and ends. The step is not decided
 * meanwhile: who ends a copy calls reduced_advance(). */
void reduced_begin_copy(struct job *job);
void reduced_end_copy(struct job *job);
unsigned reduced_copies(const struct job *job); /* under way */
/* False, and the request is answered: the tensor's gradients cannot be read now, nor its masters written. Any
 * rank may take any tensor. */
bool reduced_check(struct pending *pending, uint32_t index, const struct tensor *tensor);

/* ---- update.c ---- */

/* -ENOMEM. Of a job that has its options. */
int update_new(struct job *job);
/* Nothing happens to a job that has none. */
void update_free(struct job *job);
/* Who hears of its steps: daemon/update/step_listeners.h. */
void update_listen(struct job *job, const struct commit_listener *commit,
		   const struct writing_listener *writing, const struct sweep_listener *sweep);
/* Gives back the memory that a job without ranks does not need; it has no step under way. */
void update_release(struct job *job);
/* Gives back all that belongs to a plan. */
void update_clear(struct job *job);

/* For a plan: the memory that updates take, and that each pack takes beside it. */
uint64_t update_metadata_bytes(const struct job *job);
uint64_t update_pack_bytes(void);
/* Of a job that is planned. */
int update_make_packs(struct job *job);

/* A sweep is under way. */
bool update_is_sweeping(const struct job *job);
/* Neither a sweep nor an early update is. */
bool update_is_over(const struct job *job);
/* Nothing is in flight; and no staging buffer is held either. */
bool update_is_still(const struct job *job);
bool update_is_at_rest(const struct job *job);

/* As the last decided step left them: the loss scale of the next step, and the rates of the groups. */
const struct loss_scale *update_loss_scale(const struct job *job);
const struct optimizer_group *update_groups(const struct job *job);
/* Sets both to those of a record. Below 0: they do not fit the job, and the message says why. */
int update_restore(struct job *job, Tierd__Wire__Group *const *groups, size_t group_count,
		   const struct loss_scale *loss_scale, char *message, size_t size);
/* Early updates of units that have been published. */
uint64_t update_early_count(const struct job *job);
/* Elements, and what fills units up, that updates went through. */
uint64_t update_elements(const struct job *job, enum share_side side);
/* When the last step was decided; 0: none was. */
uint64_t step_decided_ns(const struct job *job);
/* What the gradients of the reduced or decided step are multiplied with. */
float step_factor(const struct job *job);

/* Chunks of the pack are updated and not written yet; of an update that is seen. */
bool update_is_writing(const struct job *job, uint32_t pack);
bool update_is_dirty(const struct job *job, uint32_t pack);
/* An early update has taken the pack's sums. */
bool update_has_taken_sums(const struct job *job, uint32_t pack);
/* The decided step begins to update the pack: who comes now does not find the old values any more. */
void update_begin_pack(struct job *job, uint32_t pack);
/* The last step that has begun to. */
uint64_t update_begun_step(const struct job *job, uint32_t pack);
/* The open or applied writing has values of the pack, which its sweep stores. */
void update_note_written(struct job *job, uint32_t pack, bool is_written);
bool update_is_written(const struct job *job, uint32_t pack);
/* A backup begins: packs that were updated since the last one await it, until they begin to be written or the
 * backup is given up. */
void update_begin_backup(struct job *job);
bool update_awaits_backup(const struct job *job, uint32_t pack);
void update_leave_backup(struct job *job, uint32_t pack);

/* ---- sweep.c, sweep_issue.c, chunk_work.c ---- */
/* The memory that a sweep takes. */
uint64_t sweep_metadata_bytes(const struct job *job);
/* Passes over all packs that have something to do: applies the decided step, or splits the first masters. */
int sweep_start(struct job *job, bool is_initializing);
/* In the job's turn alone. */
void sweep_go_on(struct job *job);
/* Packs that somebody waits for come first. */
extern const struct residency_listener sweep_residency_listener;
void sweep_free(struct job *job);
/* Transfers come home, no more are started, and nothing is applied. */
void sweep_cancel(struct job *job);
/* The initializer's values of elements of a tensor. */
void sweep_fill_tensor(const struct job *job, const struct tensor *tensor, uint64_t first, uint64_t count,
		       float *values);

#endif
