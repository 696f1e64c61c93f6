/* Contributions that a GPU sums, because all ranks of the job push from it; or several GPUs that exchange.
 *
 * Each waits in its GPU's memory, once it is complete there, until all of its micro-batch are there. They are
 * summed there in the order of docs/numerics.md. That sum takes their place in host memory, and workers add
 * it to the unit's as if one rank had pushed it in fp32: the same bits. So each sum is begun, spilled and
 * measured as any other.
 *
 * This is for stages 2 and 3, and for as many contributions as are no smaller than their sum. Then the bus
 * moves no more, and host memory is neither written nor read once for each rank; and they have room for the
 * sum. All else comes home first (arrival.c): what meets a contribution from host memory, a rank that waits
 * for its buffer, ranks on several GPUs that do not exchange; and what could not be summed.
 *
 * Whether that is faster is measured, anew in each epoch, because ranks may come back on other GPUs: from
 * when the last contribution is complete on its GPU until all are added. Micro-batches go each way in turn,
 * with all of their units: so both ways are measured with the same units, and in the company that they would
 * have. What is to come home begins to, as soon as it is complete, whatever it waits for there. */
#include <assert.h>
#include <errno.h>

#include "common/clock.h"
#include "common/size.h"
#include "daemon/gradients/own.h"

/* Elements. */
#define SHARE_GRAIN 64

static_assert(GPU_SUMS >= REDUCTIONS, "a sum for each");

static const struct unit *unit_of(const struct reduction *reduction)
{
	return &reduction->job->catalog.units[reduction->unit];
}

/* So many contributions have as many bytes as their sum, at least. */
static bool is_worth_it(const struct unit *unit, uint32_t count)
{
	return count * unit_gradient_bytes(unit) >= unit->trainable * sizeof(float);
}

/* As it is set now. */
static struct gpu_choice *choice_of(struct job *job)
{
	struct gpu_choice *choice = &job->gradients->choice;

	choice->is_given = job->node->settings.gpu_sums == GPU_SUMS_ALWAYS;
	return choice;
}

/* Both ways are open to contributions of all ranks. */
static bool has_choice(struct job *job, const struct unit *unit)
{
	return !gradient_is_of_ranks(job) && is_worth_it(unit, job->options.world_size) &&
	       (choice_of(job)->is_given || unit_gradient_bytes(unit) >= GPU_CHOICE_LEAST_BYTES) &&
	       gpu_can_sum(job);
}

bool combined_may_be(const struct contribution *contribution)
{
	struct job *job = contribution->member->job;
	uint64_t number = contribution->step + contribution->micro_batch;

	return gpu_choice_way(choice_of(job), number) == GPU_WAY_TOGETHER &&
	       has_choice(job, &job->catalog.units[contribution->unit]);
}

/* The first that cannot come ends the epoch, and with it the others. */
static void bring_home(const struct reduction *reduction)
{
	for (uint32_t rank = 0; rank < reduction->job->options.world_size; rank++) {
		struct contribution *contribution = reduction->contributions[rank];

		if (contribution && contribution->is_on_gpu && !arrival_bring_home(contribution))
			return;
	}
}

bool combined_choose(struct reduction *reduction)
{
	uint32_t count = 0, on_gpu = 0;

	for (uint32_t rank = 0; rank < reduction->job->options.world_size; rank++) {
		const struct contribution *contribution = reduction->contributions[rank];

		count += contribution != NULL;
		on_gpu += contribution && contribution->is_on_gpu;
	}
	reduction->is_combined = on_gpu > 0 && on_gpu == count && is_worth_it(unit_of(reduction), count) &&
				 gpu_can_sum(reduction->job);
	if (on_gpu == 0 || reduction->is_combined)
		return true;
	bring_home(reduction);
	return false;
}

/* ---- The sum on the GPU, and its parts ---- */

static bool is_void(const struct reduction *reduction)
{
	for (uint32_t rank = 0; rank < reduction->job->options.world_size; rank++)
		if (reduction->contributions[rank] && reduction->contributions[rank]->is_void)
			return true;
	return false;
}

static void on_summed(void *context, int status)
{
	struct reduction *reduction = context;

	if (status == 0)
		combined_add_next(reduction);
	else if (is_void(reduction))
		reduction_void(reduction);
	else
		reduction_put_back(reduction);
}

/* Evenly, so that GPUs which sum together have as much to copy; and aligned for them. */
static uint64_t share_of(const struct unit *unit, uint32_t contributions)
{
	uint64_t room = unit_gradient_bytes(unit) / sizeof(float);
	uint64_t share = size_align(size_divide_up(unit->trainable, contributions), SHARE_GRAIN);

	return share < room ? share : room;
}

void combined_begin(struct reduction *reduction)
{
	struct gpu_sum_order order = { .job = reduction->job,
				       .name = unit_of(reduction)->name,
				       .segments = reduction->segments,
				       .segment_count = reduction->push.segment_count,
				       .done = on_summed,
				       .context = reduction };
	uint32_t count = 0;

	for (uint32_t rank = 0; rank < reduction->job->options.world_size; rank++) {
		const struct contribution *contribution = reduction->contributions[rank];

		order.first[rank] = contribution ? (uint64_t)((const char *)contribution->data -
							      contribution->member->gradients.base)
						 : GPU_SUM_NONE;
		count += contribution != NULL;
	}
	reduction->share = order.share = share_of(unit_of(reduction), count);
	reduction->place = 0;
	reduction->added = 0;
	gpu_sum_begin(&order);
}

bool combined_add_next(struct reduction *reduction)
{
	uint64_t left = unit_of(reduction)->trainable - reduction->added;
	uint64_t count = left < reduction->share ? left : reduction->share;

	if (left == 0)
		return false;
	while (!reduction->contributions[reduction->place])
		reduction->place++;
	reduction->pointers[0] = reduction->contributions[reduction->place++]->data;
	reduction->segments[0] = (struct collective_segment){ REDUCE_FP32, 0, count };
	reduction->push.rank_count = reduction->push.segment_count = 1;
	reduction->push.sum =
		(float *)gradient_sum_address(reduction->job, reduction->sum) + reduction->added;
	reduction->added += count;
	collective_push(reduction->job->node->collective, &reduction->push);
	return true;
}

void combined_note(const struct reduction *reduction)
{
	struct job *job = reduction->job;
	uint64_t complete_ns = 0, bytes = 0;

	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		const struct contribution *contribution = reduction->contributions[rank];

		if (!contribution)
			continue;
		if (contribution->is_void || contribution->complete_ns == 0)
			return;
		if (contribution->complete_ns > complete_ns)
			complete_ns = contribution->complete_ns;
		bytes += unit_gradient_bytes(unit_of(reduction));
	}
	if (has_choice(job, unit_of(reduction)))
		gpu_choice_note(choice_of(job), reduction->is_combined ? GPU_WAY_TOGETHER : GPU_WAY_PLAIN,
				bytes, clock_now_ns() - complete_ns);
}
