/* Spilled sums.
 *
 *   ABSENT ─wanted─► LOADING, unless it is new ─► PRESENT ─its buffer is wanted─► WRITING ─► ABSENT
 *
 * A pack's sums are written when others want their buffer, unless what lies on NVMe is the same, and read
 * again for the next micro-batch's addition, or ahead of the sweep, which looks at the packs that it comes to
 * next. The one to go is the one whose next use is farthest: sums that are complete (as many micro-batches as
 * the last step had) wait for the sweep, which begins where the backward ends, so those that were completed
 * first go first; of the others, which the next micro-batch comes to in the same order again, those that were
 * added to last. The square sums for the norm are kept before a sum is written, so that a decision reads
 * nothing.
 *
 * Nobody waits for ever. A buffer cannot be taken while its sums are pinned, which a reduction, a worker or
 * an update ends, in transfer, which ends, or wanted by somebody who has not pinned them yet: reductions, and
 * what tensors read and write there, are tried as soon as they are present, and need nothing else that a
 * buffer could hold up.
 * The sweep needs staging buffers, slots and the end of leases, none of which waits for a sum. It comes
 * first: pushes take no buffer from what it has still to apply, but wait for its end; it takes theirs, and,
 * while none of its packs has one, its own last one's. So with one buffer everything goes on, one pack after
 * the other. */

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "common/size.h"
#include "daemon/gradients/gradient_listener.h"
#include "daemon/gradients/gradients.h"
#include "daemon/gradients/spill.h"
#include "daemon/gradients/spilled.h"

/* ---- Who has to go ---- */

/* That have been added. */
static uint32_t micro_batches_of(const struct spilled *spilled)
{
	const struct job *job = spilled->spill->job;
	const struct pack *units = &job->catalog.packs[spilled_pack(spilled)];
	uint32_t most = 0;

	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++)
		if (gradient_sum_of(job, u, 0)->next > most)
			most = gradient_sum_of(job, u, 0)->next;
	return most;
}

static bool is_complete(const struct spilled *spilled)
{
	return micro_batches_of(spilled) >= spilled->spill->micro_batches;
}

static bool is_farther(const struct spilled *a, const struct spilled *b)
{
	if (spilled_is_in_sweep(a) != spilled_is_in_sweep(b))
		return spilled_is_in_sweep(b);
	if (spilled_is_in_sweep(a) || (is_complete(a) && is_complete(b)))
		return a->used < b->used;
	if (is_complete(a) != is_complete(b))
		return is_complete(a);
	return a->used > b->used;
}

static bool is_evictable(const struct spilled *spilled)
{
	return spilled->state == SPILL_PRESENT && spilled->pins == 0 && !spilled->is_wanted &&
	       !spilled->is_void;
}

/* The sweep will give its buffer back without another one. */
static bool is_under_way(const struct spilled *spilled)
{
	return spilled_is_in_sweep(spilled) &&
	       (spilled->is_wanted || spilled->pins > 0 || spilled->state == SPILL_WRITING);
}

static struct spilled *find_victim(const struct spill *spill, bool is_for_sweep)
{
	struct spilled *victim = NULL;

	for (uint32_t i = 0; i < spill->buffer_count; i++) {
		struct spilled *owner = spill->owners[i];

		if (is_under_way(owner))
			is_for_sweep = false;
		if (is_evictable(owner) && (!victim || is_farther(owner, victim)))
			victim = owner;
	}
	return victim && spilled_is_in_sweep(victim) && !is_for_sweep ? NULL : victim;
}

/* ---- Turns ---- */

static bool is_for_sweep(const struct spill *spill, const struct queue *wishes)
{
	return wishes == &spill->sweep_wishes;
}

/* promised: buffers that are being written, for as many of those who wait. */
static void serve(struct spill *spill, struct queue *wishes, unsigned *promised)
{
	struct queue *link = wishes->next;

	while (link != wishes) {
		struct spilled *spilled = queue_entry(link, struct spilled, link), *victim;

		link = link->next;
		if (!spilled_take_buffer(spilled)) {
			if (*promised > 0) {
				--*promised;
				continue;
			}
			victim = find_victim(spill, is_for_sweep(spill, wishes));
			if (!victim)
				return;
			if (!victim->is_stored) {
				spilled_write(victim);
				continue;
			}
			spilled_give_buffer(victim);
			spilled_take_buffer(spilled);
		}
		queue_remove(&spilled->link);
		spilled_start(spilled);
		if (spilled->state == SPILL_PRESENT)
			queue_push(&spill->ready, &spilled->link);
	}
}

static void tell_ready(struct spill *spill)
{
	struct job *job = spill->job;

	for (struct queue *link = queue_pop(&spill->ready); link; link = queue_pop(&spill->ready)) {
		const struct spilled *spilled = queue_entry(link, struct spilled, link);
		const struct pack *units = &job->catalog.packs[spilled_pack(spilled)];

		for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++)
			gradient_try(job, u);
	}
}

void spill_serve(struct job *job)
{
	struct spill *spill = job->gradients->spill;
	unsigned promised;

	if (!spill || job_is_ending(job) || job_is_broken(job))
		return;
	promised = spill->writing;
	serve(spill, &spill->sweep_wishes, &promised);
	serve(spill, &spill->wishes, &promised);
	tell_ready(spill);
	/* All of them, as one that has gone may have wanted the same as another. */
	if (job_writes_sums(job))
		job->gradients->listener->sums_came(job);
	gradient_unblock(job, false);
	job->gradients->listener->changed(job);
}

bool spill_is_used(const struct job *job)
{
	return job->gradients->spill;
}

bool spill_is_wished(const struct job *job)
{
	return job->gradients->spill && (!queue_is_empty(&job->gradients->spill->sweep_wishes) ||
					 !queue_is_empty(&job->gradients->spill->wishes) ||
					 !queue_is_empty(&job->gradients->spill->ready));
}

/* ---- Users ---- */

/* NULL: the pack's sums are never spilled. */
static struct spilled *spilled_of(const struct job *job, uint32_t pack)
{
	return job->gradients->spill && job->gradients->spill->packs[pack].bytes > 0
		       ? &job->gradients->spill->packs[pack]
		       : NULL;
}

/* At once, if nobody else waits. */
static bool is_served_at_once(struct spilled *spilled)
{
	if (spill_is_wished(spilled->spill->job) || !spilled_take_buffer(spilled))
		return false;
	spilled_start(spilled);
	return true;
}

bool spill_want(struct job *job, uint32_t pack)
{
	struct spilled *spilled = spilled_of(job, pack);

	if (!spilled)
		return true;
	spilled->is_wanted = true;
	if (spilled->state == SPILL_ABSENT && !is_served_at_once(spilled))
		spilled_wish(spilled);
	spilled_raise(spilled);
	return spilled->state == SPILL_PRESENT && !spilled->is_void;
}

void spill_forget(struct job *job, uint32_t pack)
{
	struct spilled *spilled = spilled_of(job, pack);

	if (!spilled)
		return;
	spilled->is_wanted = false;
	queue_remove(&spilled->link);
	job_settle(job);
}

void spill_pin(struct job *job, uint32_t pack, bool is_changed)
{
	struct spilled *spilled = spilled_of(job, pack);

	if (!spilled)
		return;
	assert(spilled->state == SPILL_PRESENT && !spilled->is_void);
	spilled->is_wanted = false;
	spilled->pins++;
	if (is_changed) {
		spilled->is_stored = false;
		spilled->used = ++spilled->spill->clock;
	}
}

bool spill_pin_if_here(struct job *job, uint32_t pack)
{
	struct spilled *spilled = spilled_of(job, pack);

	if (spilled && (spilled->state != SPILL_PRESENT || spilled->is_void))
		return false;
	spill_pin(job, pack, false);
	return true;
}

void spill_unpin(struct job *job, uint32_t pack)
{
	struct spilled *spilled = spilled_of(job, pack);

	if (!spilled || --spilled->pins > 0)
		return;
	if (spilled->is_void)
		spilled_clear(spilled);
	if (spilled->is_wanted && spilled->state == SPILL_ABSENT)
		spilled_wish(spilled);
	if (spill_is_wished(job))
		job_settle(job);
}

void spill_drop(struct job *job, uint32_t pack)
{
	struct spilled *spilled = spilled_of(job, pack);
	uint32_t micro_batches;

	/* Its units are dropped one after the other. */
	if (!spilled || spilled->is_void)
		return;
	micro_batches = micro_batches_of(spilled);
	if (micro_batches > 0)
		spilled->spill->micro_batches = micro_batches;
	spilled->is_wanted = false;
	queue_remove(&spilled->link);
	if (spilled->pins > 0 || spilled->state == SPILL_LOADING || spilled->state == SPILL_WRITING)
		spilled->is_void = true;
	else
		spilled_clear(spilled);
	if (spill_is_wished(job))
		job_settle(job);
}

char *spill_address(const struct job *job, uint32_t pack)
{
	const struct spilled *spilled = spilled_of(job, pack);

	return spilled ? spilled->buffer : NULL;
}

const double *spill_norm(const struct job *job, uint32_t unit)
{
	return norm_sums_of(&job->gradients->spill->measured, unit);
}

/* ---- Memory ---- */

static int allocate(struct spill *spill)
{
	spill->owners = calloc(spill->buffer_count + 1, sizeof(*spill->owners));
	return spill->owners ? norm_sums_init(spill->job, &spill->measured) : -ENOMEM;
}

int spill_new(struct job *job)
{
	struct spill *spill;

	if (job->gradients->sum_buffer_bytes == 0)
		return 0;
	spill = calloc(1, sizeof(*spill) + job->catalog.pack_count * sizeof(spill->packs[0]));
	if (!spill)
		return -ENOMEM;
	job->gradients->spill = spill;
	spill->job = job;
	spill->micro_batches = 1;
	spill->buffer_count =
		(uint32_t)(job->gradients->sums_memory.length / job->gradients->sum_buffer_bytes);
	queue_init(&spill->sweep_wishes);
	queue_init(&spill->wishes);
	queue_init(&spill->ready);
	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++) {
		spill->packs[pack].spill = spill;
		spill->packs[pack].bytes = spill_pack_bytes(job, pack);
		queue_init(&spill->packs[pack].link);
	}
	return allocate(spill);
}

void spill_free(struct job *job)
{
	struct spill *spill = job->gradients->spill;

	if (!spill)
		return;
	free(spill->owners);
	norm_sums_free(&spill->measured);
	free(spill);
	job->gradients->spill = NULL;
}
