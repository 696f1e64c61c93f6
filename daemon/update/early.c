/* early_state.c has what becomes of a pack.
 *
 * A pack is complete when all of its units have the micro-batches that were announced: no rank can push more.
 * Updates begin only where all ranks have announced the same rates, and these are all that a step needs: not
 * where its norm clips. The gradients are measured first, as the new parameters take their place; the sum of
 * their squares is what it would be at the decision, in the same order.
 *
 * Where sums may be spilled, a buffer that they had is free as soon as all is computed, so that nothing is
 * spilled while updates keep up with the backward; parameters are not kept then. Sums that have been spilled
 * already wait for the sweep.
 *
 * A rewrite that is held back needs a place beside the committed one and keeps what is visible: so that two
 * places are enough they are the same, which they are once the last step is durable. */

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "daemon/gradients/gradients.h"
#include "daemon/residency/residency.h"
#include "daemon/update/read_ahead.h"
#include "daemon/update/early.h"
#include "daemon/update/early_state.h"
#include "daemon/update/groups.h"
#include "daemon/update/own.h"
#include "daemon/update/rates.h"
#include "daemon/update/step_listeners.h"
#include "daemon/update/sweep.h"
#include "daemon/update/update.h"
#include "daemon/update/warm.h"

struct early {
	struct job *job;
	struct sweep *sweep;
	struct step_rates rates;
	uint32_t micro_batches;
	bool is_decided, is_void;
	struct queue complete; /* packs, in EARLY_NOTHING */
	uint32_t packs;	       /* that are not */
	struct work measuring;
	uint32_t measured_pack; /* SLOT_NONE: none is being measured */
	struct norm_sums measured;
	struct optimizer_group groups[]; /* of its rates */
};

/* ---- Whether there can be any ---- */

static bool is_possible(const struct job *job)
{
	const struct job_options *options = &job->options;

	return job->location.has_nvme_optimizer && job->location.is_durable &&
	       gradient_sums_per_unit(job) == 1 && (early_keeps(job) || job->location.has_nvme_parameters) &&
	       !options->optimizer->is_by_owner;
}

/* The open step is neither decided nor about to be, and the state is as the last commit has it. */
static bool is_time(const struct job *job)
{
	return job_is_live(job) && job->state == JOB_TRAINED && !norm_is_running(job) &&
	       !job->update->sweep && job->decided == job->step &&
	       job->update->commit_listener->is_quiet(job) && !job->update->commit_listener->is_behind(job);
}

/* NULL: not all ranks have announced the open step, or not the same; or it moves tensors to other groups,
 * which are theirs from the decision on. micro_batches: the most of any rank; of
 * one that has less the next one is summed when it has closed its part. */
static const struct step_rates *find_announced(const struct job *job, uint32_t *ret_micro_batches)
{
	const struct step_rates *first = NULL;
	char message[256];
	uint32_t most = 0;

	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		struct announcement *announced =
			job->members.ranks[rank] ? &job->members.ranks[rank]->announced : NULL;

		if (!announced || !announced->is_made || job->members.ranks[rank]->has_moved)
			return NULL;
		/* The step before is decided. */
		rates_complete(job, &announced->rates);
		if (rank == 0)
			first = &announced->rates;
		else if (rates_compare(&announced->rates, first, "", message, sizeof(message)) < 0)
			return NULL;
		if (announced->micro_batches > most)
			most = announced->micro_batches;
	}
	*ret_micro_batches = most;
	return first;
}

/* ---- Packs ---- */

static void happens(struct early *early, uint32_t pack, enum early_event event)
{
	struct pack_update *update = pack_update(early->job, pack);
	enum early_state before = update->early;

	update->early = transition_take(&early_table, before, event);
	early->packs += (uint32_t)(before == EARLY_NOTHING) - (uint32_t)(update->early == EARLY_NOTHING);
}

static bool unit_is_complete(const struct early *early, uint32_t unit)
{
	return gradient_is_summed(early->job, unit, early->micro_batches);
}

static void look_at_pack(struct early *early, uint32_t pack)
{
	const struct catalog *catalog = &early->job->catalog;
	const struct pack *units = &catalog->packs[pack];
	struct pack_update *update = pack_update(early->job, pack);

	if (update->early != EARLY_NOTHING || !queue_is_empty(&update->early_link) || pack_is_frozen(units) ||
	    (sweep_has_frozen(units) && !early_keeps(early->job)))
		return;
	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++)
		if (unit_is_trainable(&catalog->units[u]) && !unit_is_complete(early, u))
			return;
	/* Where updates do not keep up, what is left for the sweep is what became complete first: layers that
	 * the next forward comes to last. */
	queue_push_front(&early->complete, &update->early_link);
}

void early_note_sum(struct job *job, uint32_t unit)
{
	struct early *early = job->update->early;

	if (early && !early->is_decided && !early->is_void && unit_is_complete(early, unit))
		look_at_pack(early, job->catalog.units[unit].pack);
}

/* ---- Measuring ---- */

const double *early_norm(const struct job *job, uint32_t unit)
{
	return pack_update(job, job->catalog.units[unit].pack)->early > EARLY_MEASURING
		       ? norm_sums_of(&job->update->early->measured, unit)
		       : NULL;
}

static void run_measuring(struct work *work)
{
	struct early *early = container_of(work, struct early, measuring);

	norm_measure_pack(early->job, &early->measured, early->measured_pack);
}

static bool is_finite(const struct early *early, uint32_t pack)
{
	const struct pack *units = &early->job->catalog.packs[pack];

	/* Units that are frozen have no blocks. */
	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++)
		if (!norm_sums_are_finite(&early->measured, u))
			return false;
	return true;
}

/* They may have been measured when they were complete. */
static bool take_measured(struct early *early)
{
	const struct pack *units = &early->job->catalog.packs[early->measured_pack];

	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++) {
		uint64_t count = norm_sums_count(&early->measured, u);
		const double *blocks = norm_find(early->job, u);

		if (count > 0 && !blocks)
			return false;
		if (count > 0)
			memcpy(norm_sums_of(&early->measured, u), blocks, count * sizeof(*blocks));
	}
	return true;
}

/* Whoever measures the step has taken the pack's sums as they are. */
static void on_measured(struct work *work)
{
	struct early *early = container_of(work, struct early, measuring);
	uint32_t pack = early->measured_pack;

	early->measured_pack = SLOT_NONE;
	job_settle(early->job);
	if (early->is_void)
		return;
	if (early->is_decided || norm_is_running(early->job) || !is_finite(early, pack)) {
		spill_unpin(early->job, pack);
		happens(early, pack, EARLY_EVENT_REFUSE);
		return;
	}
	happens(early, pack, EARLY_EVENT_START);
	sweep_enter(early->sweep, pack);
}

static bool is_complete(const struct job *job, uint32_t pack)
{
	return !queue_is_empty(&pack_update(job, pack)->early_link);
}

/* What has been read ahead first, so that its buffers are free again. */
static struct pack_update *next_complete(const struct early *early)
{
	uint32_t pack = read_ahead_find(early->job, is_complete);
	struct queue *link = queue_first(&early->complete);

	if (link && pack != SLOT_NONE)
		return pack_update(early->job, pack);
	return link ? queue_entry(link, struct pack_update, early_link) : NULL;
}

static struct pack_update *take_complete(struct early *early)
{
	struct pack_update *update;

	while ((update = next_complete(early))) {
		queue_remove(&update->early_link);
		if (spill_pin_if_here(early->job, pack_update_pack(early->job, update)))
			return update;
	}
	return NULL;
}

static void begin_next_pack(struct early *early)
{
	struct pack_update *update = is_time(early->job) ? take_complete(early) : NULL;

	if (!update)
		return;
	early->measured_pack = pack_update_pack(early->job, update);
	happens(early, early->measured_pack, EARLY_EVENT_BEGIN);
	early->measuring = (struct work){ .run = run_measuring, .done = on_measured, .urgency = WORK_NORMAL };
	if (take_measured(early))
		on_measured(&early->measuring);
	else
		workers_submit(early->job->node->workers, &early->measuring);
}

/* ---- Chunks ---- */

bool early_keeps(const struct job *job)
{
	return !spill_is_used(job);
}

static void consume_sums(struct job *job, uint32_t pack)
{
	spill_unpin(job, pack);
	spill_drop(job, pack);
}

void early_check_pack(struct job *job, uint32_t pack)
{
	const struct pack_update *update = pack_update(job, pack);
	struct early *early = job->update->early;

	if (early->is_void)
		return;
	if (update->early == EARLY_RUNNING && update->is_issued && update->uncomputed == 0) {
		happens(early, pack, EARLY_EVENT_COMPUTED);
		consume_sums(job, pack);
	}
	if (update->early == EARLY_WRITING && update->unwritten == 0)
		happens(early, pack, EARLY_EVENT_WRITTEN);
}

static void issue(struct early *early)
{
	struct sweep *sweep = early->sweep;
	uint32_t pack = sweep->pack;
	enum sweep_issue issue = SWEEP_HAS_ISSUED;

	while (pack != SLOT_NONE && issue == SWEEP_HAS_ISSUED && !sweep->has_failed)
		issue = sweep_issue(sweep);
	if (issue == SWEEP_HAS_LEFT)
		early_check_pack(early->job, pack);
}

/* ---- Beginning and end ---- */

static struct early *early_free(struct early *early)
{
	if (!early)
		return NULL;
	while (queue_pop(&early->complete))
		;
	sweep_destroy(early->sweep);
	norm_sums_free(&early->measured);
	free(early);
	return NULL;
}

/* What has begun is in line before all that the next forward pass wants: so it is no more than keeps the
 * device busy, and the sweep finds buffers. */
static unsigned most_chunks(const struct job *job)
{
	return (job->node->staging->count + 1) / 2;
}

uint64_t early_metadata_bytes(const struct job *job)
{
	return job->location.has_nvme_optimizer
		       ? sizeof(struct early) + job->options.group_count * sizeof(struct optimizer_group) +
				 norm_sums_bytes(job) + sweep_bytes(most_chunks(job))
		       : 0;
}

static int allocate(struct early *early)
{
	int r = norm_sums_init(early->job, &early->measured);

	return r < 0 ? r : sweep_new(early->job, most_chunks(early->job), &early->sweep);
}

/* Without memory for it the step is as if it had not been announced. */
static void begin(struct job *job, const struct step_rates *rates, uint32_t micro_batches)
{
	struct early *early = calloc(1, sizeof(*early) + rates->group_count * sizeof(*early->groups));

	if (!early)
		return;
	*early = (struct early){ .job = job,
				 .rates.groups = early->groups,
				 .micro_batches = micro_batches,
				 .measured_pack = SLOT_NONE };
	rates_copy(&early->rates, rates);
	queue_init(&early->complete);
	if (allocate(early) < 0) {
		early_free(early);
		return;
	}
	early->sweep->is_early = true;
	early->sweep->rates = &early->rates;
	early->sweep->factor = (float)rates_scale(rates);
	job->update->early = early;
	for (uint32_t pack = job->catalog.pack_count; pack > 0; pack--)
		look_at_pack(early, pack - 1);
}

/* Of all that is in the store of a pack. Neither can fail: nothing of it is in flight. No commit is under way
 * when it is published, as its sweep is; one may be when it is given up, which takes nothing that is held
 * back. */
static void for_each_stream(const struct job *job, uint32_t pack,
			    int (*call)(struct store *store, uint32_t stream, uint64_t offset,
					uint64_t length))
{
	const struct pack_place *place = &job->location.places[pack];
	int r = 0;

	for (unsigned i = 0; i < UNIT_TRAINABLE_SECTIONS; i++) {
		enum unit_section section = (enum unit_section)i;
		uint64_t elements = job->catalog.packs[pack].elements[section];

		if (elements == 0)
			continue;
		if (sweep_writes_parameters(job))
			r |= call(job->location.parameter_store, job->location.streams.parameter[section],
				  place->parameter[section],
				  size_align(elements * section_element_bytes(section), STORE_PAGE_BYTES));
		for (unsigned state = 0; state < state_count(&job->options); state++) {
			const struct store_range kept = job_find_kept(job, pack, section, state, 0, elements);

			if (kept.length > 0)
				r |= call(job->location.optimizer_store, kept.stream, kept.offset,
					  size_align(kept.length, STORE_PAGE_BYTES));
		}
	}
	assert(r == 0);
}

/* The gradients have gone with it. */
static void undo(struct job *job, uint32_t pack)
{
	const struct pack *units = &job->catalog.packs[pack];
	enum early_state state = pack_update(job, pack)->early;

	if (state == EARLY_NOTHING)
		return;
	if (state < EARLY_WRITING)
		spill_unpin(job, pack);
	if (state == EARLY_ADOPTED)
		residency_end_write(job, pack);
	for_each_stream(job, pack, store_abandon);
	warm_forget_pack(job, pack);
	happens(job->update->early, pack, EARLY_EVENT_WITHDRAW);
	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++)
		gradient_reset_unit(job, u);
}

static void finish_withdrawal(struct job *job)
{
	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
		undo(job, pack);
	job->update->early = early_free(job->update->early);
	gradient_try_all(job);
	gradient_unblock(job, false);
	step_advance(job);
	job_settle(job);
	node_check_idle(job->node);
}

/* False: what was withdrawn is still on its way. */
static bool settle(struct job *job)
{
	const struct early *early = job->update->early;

	if (!early)
		return true;
	if (early->is_void && (early->sweep->running > 0 || early->measured_pack != SLOT_NONE))
		return false;
	if (early->is_void)
		finish_withdrawal(job);
	else if (early->is_decided && early->packs == 0)
		job->update->early = early_free(job->update->early);
	return true;
}

void early_go_on(struct job *job)
{
	const struct step_rates *rates;
	uint32_t micro_batches;

	if (!settle(job))
		return;
	if (!job->update->early && is_possible(job) && is_time(job) &&
	    (rates = find_announced(job, &micro_batches)) != NULL && rates->clip_norm == 0 &&
	    !rates->is_dropped)
		begin(job, rates, micro_batches);
	if (!job->update->early)
		return;
	issue(job->update->early);
	if (job->update->early->measured_pack == SLOT_NONE && job->update->early->sweep->pack == SLOT_NONE)
		begin_next_pack(job->update->early);
}

bool early_has_work(const struct job *job)
{
	const struct early *early = job->update->early;

	return early && (early->measured_pack != SLOT_NONE || early->sweep->pack != SLOT_NONE ||
			 !queue_is_empty(&early->complete));
}

void early_withdraw(struct job *job)
{
	struct early *early = job->update->early;

	if (!early || early->is_void)
		return;
	early->is_void = true;
	while (queue_pop(&early->complete))
		;
	sweep_stop(early->sweep);
	job_settle(job);
}

void early_give_up(struct job *job)
{
	if (job->update->early && !job->update->early->is_decided)
		early_withdraw(job);
}

bool early_is_ending(const struct job *job)
{
	return job->update->early && job->update->early->is_void;
}

bool early_is_busy(const struct job *job)
{
	return job->update->early && (job->update->early->packs > 0 || job->update->early->is_void);
}

bool early_is_under_way(const struct job *job)
{
	if (!early_is_busy(job))
		return false;
	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
		if (pack_update(job, pack)->early != EARLY_NOTHING &&
		    pack_update(job, pack)->early != EARLY_READY)
			return true;
	return job->update->early->is_void;
}

void early_clear(struct job *job)
{
	job->update->early = early_free(job->update->early);
}

/* ---- The decision ---- */

void early_decide(struct job *job)
{
	struct early *early = job->update->early;

	if (!early || early->is_void)
		return;
	early->is_decided = true;
	while (queue_pop(&early->complete))
		;
	if (early->packs == 0)
		job->update->early = early_free(early);
	else
		chunks_hasten(early->sweep);
}

bool early_is_decided(const struct job *job)
{
	return job->update->early && job->update->early->is_decided;
}

/* As after any update a pack in a slot can be used when it is computed, another one when it is written. */
static bool can_be_adopted(const struct job *job, uint32_t pack)
{
	enum early_state early = pack_update(job, pack)->early;

	return early == EARLY_READY ||
	       (early == EARLY_WRITING && residency_has_slot(job, pack) && early_keeps(job));
}

bool early_lets(struct job *job, uint32_t pack)
{
	if (pack_update(job, pack)->early == EARLY_NOTHING)
		return true;
	/* No commit begins as long as the sweep runs. */
	if (can_be_adopted(job, pack) && job->update->commit_listener->is_quiet(job))
		return true;
	if (residency_is_awaited(job, pack))
		chunks_raise(job->update->early->sweep, pack);
	return false;
}

static void publish(struct job *job, uint32_t pack)
{
	const struct pack *units = &job->catalog.packs[pack];

	for_each_stream(job, pack, store_publish);
	happens(job->update->early, pack, EARLY_EVENT_PUBLISH);
	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++)
		job->update->early_updates += unit_is_trainable(&job->catalog.units[u]);
	job_settle(job);
}

bool early_publish(struct job *job, uint32_t pack)
{
	enum early_state state = pack_update(job, pack)->early;

	if (state == EARLY_NOTHING)
		return false;
	if (state == EARLY_READY) {
		publish(job, pack);
		return true;
	}
	happens(job->update->early, pack, EARLY_EVENT_ADOPT);
	/* The slot cannot be given up before its bytes can be read again. */
	residency_begin_write(job, pack);
	return true;
}

void early_end_adoption(struct job *job, uint32_t pack)
{
	if (pack_update(job, pack)->early != EARLY_ADOPTED || job->update->early->is_void)
		return;
	publish(job, pack);
	residency_end_write(job, pack);
}
