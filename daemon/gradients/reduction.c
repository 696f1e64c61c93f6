/* Reductions: adds the contributions of a micro-batch to a sum, on the workers, when all of them are there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "daemon/gradients/own.h"
#include "daemon/gradients/gradient_listener.h"
#include "daemon/gradients/gradients.h"
#include "daemon/model/model.h"
#include "daemon/telemetry/telemetry.h"

/* Of elements: fewer are measured sooner than a worker would wake. */
#define LEAST_MEASURED 65536

/* One that cannot be summed yet leaves its turn to the next. */
static void run_waiting_sums(struct job *job)
{
	while (!queue_is_empty(&job->gradients->free_reductions)) {
		struct queue *link = queue_pop(&job->gradients->sums_waiting);

		if (!link)
			return;
		sum_try(job, queue_entry(link, struct sum, link));
	}
}

static void note_piece(const struct collective_push *push, const struct work *work, uint64_t elements)
{
	const struct reduction *reduction = container_of(push, const struct reduction, push);

	trace_worked(reduction->job, reduction->sum ? TRACE_REDUCE : TRACE_FOLD, reduction->unit, elements,
		     work);
}

static void give_contributions_back(struct reduction *reduction)
{
	struct job *job = reduction->job;

	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		struct contribution *contribution = TAKE_PTR(reduction->contributions[rank]);
		struct member *member = contribution ? contribution->member : NULL;

		if (!contribution)
			continue;
		contribution_finish(contribution);
		member_release(member);
	}
}

static void finish(struct reduction *reduction)
{
	struct job *job = reduction->job;
	struct sum *sum = reduction->sum;

	job->gradients->reductions_running--;
	queue_push(&job->gradients->free_reductions, &reduction->link);
	if (sum) {
		spill_unpin(job, job->catalog.units[sum->unit].pack);
		sum->is_reducing = false;
		sum_try(job, sum);
		job->gradients->listener->summed(job, sum->unit);
	}
	run_waiting_sums(job);
	gradient_unblock(job, false);
	job->gradients->listener->changed(job);
	job_settle(job);
}

void reduction_void(struct reduction *reduction)
{
	give_contributions_back(reduction);
	finish(reduction);
}

void reduction_put_back(struct reduction *reduction)
{
	struct sum *sum = reduction->sum;

	for (uint32_t rank = 0; rank < reduction->job->options.world_size; rank++) {
		struct contribution *contribution = TAKE_PTR(reduction->contributions[rank]);

		if (!contribution)
			continue;
		contribution->is_reading = false;
		contribution_wait(contribution);
	}
	sum->has_content = reduction->push.is_added;
	sum->next--;
	finish(reduction);
}

/* It has as many micro-batches as in the last step: so this is likely all of it, some of which caches still
 * have, and a step that ends need not wait for it to be read again. Spilled sums are measured when they
 * leave; small ones together with the step. */
static bool is_worth_measuring(const struct job *job, const struct sum *sum)
{
	return sum && sum->next == sum->usual && job->catalog.units[sum->unit].trainable >= LEAST_MEASURED &&
	       gradient_sums_per_unit(job) == 1 && !job->gradients->spill && !job_writes_sums(job);
}

static void run_measuring(struct work *work)
{
	const struct reduction *reduction = container_of(work, struct reduction, measuring);
	struct job *job = reduction->job;

	norm_measure(job, &job->gradients->measured, reduction->unit,
		     gradient_sum_address(job, reduction->sum));
}

/* If the epoch has ended meanwhile the sum has none. */
static void on_measured(struct work *work)
{
	struct reduction *reduction = container_of(work, struct reduction, measuring);

	trace_worked(reduction->job, TRACE_MEASURE, reduction->unit, 0, work);
	reduction->sum->measured = reduction->sum->next;
	finish(reduction);
}

static void on_reduced(struct collective_push *push)
{
	struct reduction *reduction = container_of(push, struct reduction, push);
	struct job *job = reduction->job;

	if (reduction->is_combined && combined_add_next(reduction))
		return;
	if (reduction->sum) {
		combined_note(reduction);
		give_contributions_back(reduction);
	}
	if (!is_worth_measuring(job, reduction->sum)) {
		finish(reduction);
		return;
	}
	reduction->measuring = (struct work){ .run = run_measuring,
					      .done = on_measured,
					      .urgency = WORK_NORMAL,
					      .is_timed = push->worked != NULL };
	workers_submit(job->node->workers, &reduction->measuring);
}

static struct reduction *take_reduction(struct job *job, uint32_t unit)
{
	struct queue *link = queue_pop(&job->gradients->free_reductions);

	if (!link)
		return NULL;
	struct reduction *reduction = queue_entry(link, struct reduction, link);

	memset(reduction->pointers, 0, job->options.world_size * sizeof(*reduction->pointers));
	memset(reduction->contributions, 0, job->options.world_size * sizeof(*reduction->contributions));
	reduction->unit = unit;
	reduction->is_combined = false;
	reduction->push.done = on_reduced;
	reduction->push.worked = trace_is_on(job) ? note_piece : NULL;
	reduction->push.contributions = reduction->pointers;
	reduction->push.rank_count = job->options.world_size;
	reduction->push.segments = reduction->segments;
	return reduction;
}

static void submit_reduction(struct job *job, struct reduction *reduction)
{
	job->gradients->reductions_running++;
	if (reduction->is_combined)
		combined_begin(reduction);
	else
		collective_push(job->node->collective, &reduction->push);
}

/* Copied, as numbers of which nobody asks what they mean. */
static void set_copy(struct reduction *reduction, const struct unit *unit)
{
	reduction->segments[0] =
		(struct collective_segment){ REDUCE_FP32, 0, unit_gradient_bytes(unit) / sizeof(float) };
	reduction->push.segment_count = 1;
}

/* Of what is pushed. */
static enum reduce_format format_of(const struct unit_part *part)
{
	static const enum reduce_format formats[UNIT_TRAINABLE_FORMATS] = {
		[SECTION_BF16] = REDUCE_BF16, [SECTION_FP16] = REDUCE_FP16, [SECTION_FP32] = REDUCE_FP32
	};

	return part->has_wide_gradients ? REDUCE_FP32 : formats[section_plain(part->section)];
}

static void set_segments(struct reduction *reduction, const struct unit *unit)
{
	uint64_t first = 0;

	reduction->push.segment_count = 0;
	for (uint32_t i = 0; i < unit->part_count; i++) {
		const struct unit_part *part = &unit->parts[i];

		if (!section_is_trainable(part->section))
			break;
		reduction->segments[reduction->push.segment_count++] =
			(struct collective_segment){ format_of(part), first, part->elements };
		first += unit_part_gradient_bytes(part);
	}
}

/* Whether the rank will not push the sum's next micro-batch any more. */
static bool is_absent(const struct job *job, const struct sum *sum, uint32_t rank)
{
	const struct member *member = job->members.ranks[rank];

	return !member || (member->is_closed && member->pusher->closed_pushed[sum->unit] <= sum->next);
}

/* More are missing than can be absent: without looking at each rank. */
static bool is_hopeless(const struct job *job, const struct sum *sum)
{
	uint32_t absent = job->current.closed_count + job->options.world_size - job->members.count;

	if (gradient_is_of_ranks(job))
		return sum->waiting_count == 0;
	return sum->waiting_count == 0 || sum->waiting_count + absent < job->options.world_size;
}

/* Collects the contributions to the next micro-batch. False if one is still to come, or there is none. */
static bool collect(struct job *job, struct sum *sum, struct contribution **ret_contributions)
{
	uint32_t first = gradient_is_of_ranks(job) ? sum->rank : 0;
	uint32_t end = gradient_is_of_ranks(job) ? first + 1 : job->options.world_size;
	bool has_some = false;

	QUEUE_FOREACH (link, &sum->waiting) {
		struct contribution *contribution = queue_entry(link, struct contribution, link);

		if (contribution->micro_batch != sum->next || contribution->step != gradient_open_step(job))
			continue;
		ret_contributions[contribution->rank] = contribution;
		has_some = true;
	}
	for (uint32_t rank = first; has_some && rank < end; rank++)
		if (!ret_contributions[rank] && !is_absent(job, sum, rank))
			return false;
	return has_some;
}

/* Nobody looks at them yet: the sum is the open step's. */
static void note_present(struct unit *unit, const struct contribution *contribution)
{
	for (uint32_t i = 0; i < unit->tensor_count; i++)
		if (!unit->tensors[i].is_frozen && !contribution_lacks(contribution, i))
			unit->tensors[i].is_present = true;
}

void sum_try(struct job *job, struct sum *sum)
{
	uint32_t pack = job->catalog.units[sum->unit].pack;
	struct reduction *reduction;

	if (sum->is_reducing || is_hopeless(job, sum) || gradient_is_in_use(job, sum->unit))
		return;
	reduction = take_reduction(job, sum->unit);
	if (!reduction) {
		queue_remove(&sum->link);
		queue_push(&job->gradients->sums_waiting, &sum->link);
		return;
	}
	if (!collect(job, sum, reduction->contributions) || !combined_choose(reduction) ||
	    !spill_want(job, pack)) {
		queue_push(&job->gradients->free_reductions, &reduction->link);
		return;
	}
	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		struct contribution *contribution = reduction->contributions[rank];

		if (!contribution)
			continue;
		contribution_take(contribution);
		contribution->is_reading = true;
		note_present(&job->catalog.units[sum->unit], contribution);
		reduction->pointers[rank] = contribution->data;
	}
	spill_pin(job, pack, true);
	if (sums_are_as_pushed(job))
		set_copy(reduction, &job->catalog.units[sum->unit]);
	else
		set_segments(reduction, &job->catalog.units[sum->unit]);
	reduction->sum = sum;
	reduction->push.sum = (float *)gradient_sum_address(job, sum);
	reduction->push.is_added = sum->has_content;
	sum->has_content = true;
	sum->is_reducing = true;
	sum->next++;
	submit_reduction(job, reduction);
}

void gradient_try(struct job *job, uint32_t unit)
{
	for (uint32_t rank = 0; rank < gradient_sums_per_unit(job); rank++)
		sum_try(job, gradient_sum_of(job, unit, rank));
}

void gradient_try_all(struct job *job)
{
	for (uint32_t unit = 0; unit < job->catalog.unit_count; unit++)
		gradient_try(job, unit);
}

bool gradient_is_complete(const struct job *job)
{
	return job->gradients->reductions_running == 0 &&
	       job->gradients->waiting_of_step[gradient_open_step(job) % 2] == 0;
}

static bool needs_fold(const struct job *job, uint32_t unit)
{
	for (uint32_t rank = 1; rank < gradient_sums_per_unit(job); rank++)
		if (gradient_sum_of(job, unit, rank)->has_content)
			return true;
	return false;
}

/* Marks what is folded by giving the content to rank 0 alone. */
static void fold_unit(struct job *job, uint32_t unit)
{
	struct reduction *reduction = take_reduction(job, unit);

	for (uint32_t rank = 0; rank < gradient_sums_per_unit(job); rank++) {
		struct sum *sum = gradient_sum_of(job, unit, rank);

		if (sum->has_content)
			reduction->pointers[rank] = gradient_sum_address(job, sum);
		sum->has_content = rank == 0;
	}
	reduction->sum = NULL;
	reduction->segments[0] =
		(struct collective_segment){ REDUCE_FP32, 0, job->catalog.units[unit].trainable };
	reduction->push.segment_count = 1;
	/* In place: the kernels read an element of every contribution before they write it. */
	reduction->push.sum = (float *)gradient_sum(job, unit);
	reduction->push.is_added = false;
	submit_reduction(job, reduction);
}

/* From where it was when the reductions ran out. */
bool gradient_fold(struct job *job)
{
	for (; gradient_sums_per_unit(job) > 1 && job->gradients->folded_units < job->catalog.unit_count;
	     job->gradients->folded_units++) {
		if (!needs_fold(job, job->gradients->folded_units))
			continue;
		if (queue_is_empty(&job->gradients->free_reductions))
			return true;
		fold_unit(job, job->gradients->folded_units);
	}
	if (job->gradients->reductions_running > 0)
		return true;
	job->gradients->folded_units = 0;
	return false;
}

int reduction_init(struct job *job)
{
	job->gradients->reductions = calloc(REDUCTIONS, sizeof(*job->gradients->reductions));
	if (!job->gradients->reductions)
		return -ENOMEM;
	for (unsigned i = 0; i < REDUCTIONS; i++) {
		struct reduction *reduction = &job->gradients->reductions[i];

		reduction->job = job;
		reduction->pointers = calloc(job->options.world_size, sizeof(*reduction->pointers));
		reduction->contributions = calloc(job->options.world_size, sizeof(*reduction->contributions));
		if (!reduction->pointers || !reduction->contributions)
			return -ENOMEM;
		queue_push(&job->gradients->free_reductions, &reduction->link);
	}
	return 0;
}

void reduction_clear(struct job *job)
{
	for (unsigned i = 0; job->gradients->reductions && i < REDUCTIONS; i++) {
		free(job->gradients->reductions[i].pointers);
		free(job->gradients->reductions[i].contributions);
	}
	free(job->gradients->reductions);
	job->gradients->reductions = NULL;
	queue_init(&job->gradients->free_reductions);
}
