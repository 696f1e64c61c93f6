/* Gradients on their way from the ranks' buffers into the sums of the open step.
 *
 * A push is a contribution. In stages 2 and 3 a unit has one sum; its micro-batch m is added when every rank
 * has pushed it or has closed its part of the step with fewer. In stages 0 and 1 each rank has a sum of its
 * own, to which its contributions are added as they come, and the ranks' sums are folded when the step is
 * decided.
 *
 * A contribution that has to wait for other ranks stays in the buffer where the rank wrote it, until that
 * rank wants the buffer back: then it is put aside. So ranks that skip units block nobody as long as there is
 * room to put aside. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/size.h"
#include "daemon/job.h"

#define REDUCTIONS 16

/* One sum being added to, on the workers. */
struct reduction {
	struct collective_push push;
	struct queue link;
	struct job *job;
	struct sum *sum; /* NULL: folds the ranks' sums of a unit */
	struct collective_segment segments[2];
	const void **pointers;		     /* by rank */
	struct contribution **contributions; /* by rank */
};

/* Room for one contribution beside the ranks' buffers. */
struct held_buffer {
	struct queue link;     /* of the free ones */
	struct queue all_link; /* of all */
	struct memory memory;
	struct contribution contribution;
	struct work work; /* copies it here */
	struct contribution *source;
	uint64_t source_bytes;
};

static bool is_early_stage(const struct job *job)
{
	return job->sum_ranks > 1 || job->options.stage < 2;
}

static struct sum *sum_of(const struct job *job, uint32_t unit, uint32_t rank)
{
	return &job->sums[(uint64_t)unit * job->sum_ranks + (is_early_stage(job) ? rank : 0)];
}

static float *sum_address(const struct job *job, const struct sum *sum)
{
	uint64_t region = job->sums_memory.length / sizeof(float) / job->sum_ranks;

	return (float *)job->sums_memory.base + sum->rank * region + job->sum_offsets[sum->unit];
}

float *gradient_sum(const struct job *job, uint32_t unit)
{
	return sum_address(job, sum_of(job, unit, 0));
}

bool gradient_has_content(const struct job *job, uint32_t unit)
{
	for (uint32_t rank = 0; rank < job->sum_ranks; rank++)
		if (sum_of(job, unit, rank)->has_content)
			return true;
	return false;
}

void gradient_reset_unit(struct job *job, uint32_t unit)
{
	for (uint32_t rank = 0; rank < job->sum_ranks; rank++) {
		sum_of(job, unit, rank)->has_content = false;
		sum_of(job, unit, rank)->next = 0;
	}
}

/* The step that ranks push to now. */
static uint64_t open_step(const struct job *job)
{
	return job->decided + 1;
}

/* ---- Contributions come and go ---- */

static void free_contribution(struct contribution *contribution)
{
	struct member *member = contribution->member;
	struct job *job = member->job;

	queue_remove(&contribution->link);
	contribution->is_active = contribution->is_reading = contribution->is_void = false;
	contribution->pending = NULL;
	if (contribution->held)
		queue_push(&job->free_held, &contribution->held->link);
	else
		atomic_store_explicit(&lease_buffers(member->leases)[contribution->buffer],
				      GRADIENT_BUFFER_FREE, memory_order_release);
}

static void serve_buffer_waiters(struct member *member)
{
	for (struct queue *link = queue_pop(&member->buffer_waiters); link;
	     link = queue_pop(&member->buffer_waiters))
		pending_reply(queue_entry(link, struct pending, link), NULL);
}

/* Read to its end: the rank has its buffer back, and hears of it. */
static void finish_contribution(struct contribution *contribution, int status)
{
	struct member *member = contribution->member;
	struct pending *pending = contribution->pending;
	bool was_buffer = contribution->held == NULL;

	free_contribution(contribution);
	member->busy--;
	if (pending && status < 0)
		pending_error(pending, status, "unit %u: its gradients cannot be summed: %s",
			      contribution->unit, strerror(-status));
	else if (pending)
		pending_reply(pending, NULL);
	if (was_buffer && !member->has_left)
		serve_buffer_waiters(member);
}

/* ---- Reductions ---- */

/* One that cannot be summed yet leaves its turn to the next. */
static void run_waiting_sums(struct job *job)
{
	while (!queue_is_empty(&job->free_reductions)) {
		struct queue *link = queue_pop(&job->sums_waiting);

		if (!link)
			return;
		gradient_try(job, queue_entry(link, struct sum, link)->unit);
	}
}

static void on_reduced(struct collective_op *op, int status)
{
	struct reduction *reduction = container_of(op, struct reduction, push.op);
	struct job *job = reduction->job;
	struct sum *sum = reduction->sum;
	uint32_t unit = sum ? sum->unit : op->unit;

	job->reductions_running--;
	for (uint32_t rank = 0; sum && rank < job->options.world_size; rank++) {
		struct contribution *contribution = TAKE_PTR(reduction->contributions[rank]);
		struct member *member = contribution ? contribution->member : NULL;

		if (!contribution)
			continue;
		finish_contribution(contribution, status);
		member_release(member);
	}
	if (sum)
		sum->is_reducing = false;
	queue_push(&job->free_reductions, &reduction->link);
	gradient_try(job, unit);
	run_waiting_sums(job);
	gradient_unblock(job, false);
	step_advance(job);
	job_settle(job);
}

static struct reduction *take_reduction(struct job *job, uint32_t unit)
{
	struct queue *link = queue_pop(&job->free_reductions);

	if (!link)
		return NULL;
	struct reduction *reduction = queue_entry(link, struct reduction, link);

	memset(reduction->pointers, 0, job->options.world_size * sizeof(*reduction->pointers));
	memset(reduction->contributions, 0, job->options.world_size * sizeof(*reduction->contributions));
	reduction->push.op = (struct collective_op){
		.job = (uint64_t)(uintptr_t)job,
		.epoch = job->epoch,
		.unit = unit,
		.version = open_step(job),
		.done = on_reduced,
	};
	reduction->push.contributions = reduction->pointers;
	reduction->push.rank_count = job->options.world_size;
	reduction->push.segments = reduction->segments;
	return reduction;
}

static void submit_reduction(struct job *job, struct reduction *reduction)
{
	job->reductions_running++;
	int r = collective_push(job->node->collective, &reduction->push);

	/* Only our own mistakes are refused: nobody contributing, or too many ranks. */
	if (r < 0) {
		log_error("job %s: a reduction was refused: %s", job->name, strerror(-r));
		abort();
	}
}

static void set_segments(struct reduction *reduction, const struct unit_layout *layout)
{
	reduction->segments[0] =
		(struct collective_segment){ REDUCE_BF16, 0, layout->elements[SECTION_BF16] };
	reduction->segments[1] = (struct collective_segment){ REDUCE_FP32, 2 * layout->elements[SECTION_BF16],
							      layout->elements[SECTION_FP32] };
	reduction->push.segment_count = 2;
}

static struct contribution *find_contribution(const struct job *job, struct sum *sum, uint32_t rank)
{
	QUEUE_FOREACH (link, &sum->waiting) {
		struct contribution *contribution = queue_entry(link, struct contribution, link);

		if (contribution->rank == rank && contribution->micro_batch == sum->next &&
		    contribution->step == open_step(job) && !contribution->is_reading)
			return contribution;
	}
	return NULL;
}

/* Whether the rank will not push the sum's next micro-batch any more. */
static bool is_absent(const struct job *job, const struct sum *sum, uint32_t rank)
{
	const struct member *member = job->ranks[rank];

	return !member || (member->is_closed && member->closed_pushed[sum->unit] <= sum->next);
}

/* Collects the contributions to the next micro-batch. False if one is still to come, or there is none. */
static bool collect(struct job *job, struct sum *sum, struct contribution **ret_contributions)
{
	uint32_t first = is_early_stage(job) ? sum->rank : 0;
	uint32_t end = is_early_stage(job) ? first + 1 : job->options.world_size;
	bool has_some = false;

	for (uint32_t rank = first; rank < end; rank++) {
		ret_contributions[rank] = find_contribution(job, sum, rank);
		if (ret_contributions[rank])
			has_some = true;
		else if (!is_absent(job, sum, rank))
			return false;
	}
	return has_some;
}

/* The unit's sum still belongs to the step that is being applied. */
static bool is_in_use(const struct job *job, uint32_t unit)
{
	return job->residences[job->catalog.units[unit].pack].sweep != SWEEP_NOTHING;
}

static void try_sum(struct job *job, struct sum *sum)
{
	struct reduction *reduction;

	if (sum->is_reducing || queue_is_empty(&sum->waiting) || is_in_use(job, sum->unit))
		return;
	reduction = take_reduction(job, sum->unit);
	if (!reduction) {
		queue_remove(&sum->link);
		queue_push(&job->sums_waiting, &sum->link);
		return;
	}
	if (!collect(job, sum, reduction->contributions)) {
		queue_push(&job->free_reductions, &reduction->link);
		return;
	}
	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		struct contribution *contribution = reduction->contributions[rank];

		if (!contribution)
			continue;
		queue_remove(&contribution->link);
		contribution->is_reading = true;
		reduction->pointers[rank] = contribution->data;
	}
	set_segments(reduction, &job->catalog.units[sum->unit].layout);
	reduction->sum = sum;
	reduction->push.sum = sum_address(job, sum);
	reduction->push.is_added = sum->has_content;
	sum->has_content = true;
	sum->is_reducing = true;
	sum->next++;
	submit_reduction(job, reduction);
}

void gradient_try(struct job *job, uint32_t unit)
{
	for (uint32_t rank = 0; rank < job->sum_ranks; rank++)
		try_sum(job, sum_of(job, unit, rank));
}

void gradient_try_all(struct job *job)
{
	for (uint32_t unit = 0; unit < job->catalog.unit_count; unit++)
		gradient_try(job, unit);
}

bool gradient_is_complete(const struct job *job)
{
	if (job->reductions_running > 0)
		return false;
	for (uint64_t i = 0; i < (uint64_t)job->catalog.unit_count * job->sum_ranks; i++)
		QUEUE_FOREACH (link, &job->sums[i].waiting)
			if (queue_entry(link, struct contribution, link)->step == open_step(job))
				return false;
	return true;
}

static void fold_unit(struct job *job, uint32_t unit)
{
	struct reduction *reduction = take_reduction(job, unit);

	for (uint32_t rank = 0; rank < job->sum_ranks; rank++)
		if (sum_of(job, unit, rank)->has_content)
			reduction->pointers[rank] = sum_address(job, sum_of(job, unit, rank));
	reduction->sum = NULL;
	reduction->segments[0] =
		(struct collective_segment){ REDUCE_FP32, 0,
					     unit_layout_trainable(&job->catalog.units[unit].layout) };
	reduction->push.segment_count = 1;
	/* In place: the kernels read an element of every contribution before they write it. */
	reduction->push.sum = gradient_sum(job, unit);
	reduction->push.is_added = false;
	submit_reduction(job, reduction);
}

/* Marks what is folded by giving the content to rank 0 alone. */
bool gradient_fold(struct job *job)
{
	bool has_started = false;

	if (job->sum_ranks == 1)
		return false;
	for (uint32_t unit = 0; unit < job->catalog.unit_count; unit++) {
		bool has_others = false;

		for (uint32_t rank = 1; rank < job->sum_ranks; rank++)
			has_others |= sum_of(job, unit, rank)->has_content;
		if (!has_others)
			continue;
		has_started = true;
		if (queue_is_empty(&job->free_reductions))
			return true;
		fold_unit(job, unit);
		for (uint32_t rank = 0; rank < job->sum_ranks; rank++)
			sum_of(job, unit, rank)->has_content = rank == 0;
	}
	return has_started || job->reductions_running > 0;
}

/* ---- Putting aside ---- */

static void run_copy(struct work *work)
{
	struct held_buffer *held = container_of(work, struct held_buffer, work);

	memcpy(held->memory.base, held->source->data, held->source_bytes);
}

/* The copy takes the contribution's place. */
static void on_copied(struct work *work)
{
	struct held_buffer *held = container_of(work, struct held_buffer, work);
	struct contribution *source = held->source;
	struct member *member = source->member;
	struct job *job = member->job;
	uint32_t unit = source->unit;

	held->contribution = (struct contribution){ .member = member,
						    .rank = source->rank,
						    .unit = unit,
						    .micro_batch = source->micro_batch,
						    .step = source->step,
						    .data = held->memory.base,
						    .held = held,
						    .pending = TAKE_PTR(source->pending),
						    .is_active = !source->is_void };
	queue_init(&held->contribution.link);
	job->reductions_running--;
	if (source->is_void) {
		queue_push(&job->free_held, &held->link);
	} else {
		member->busy++;
		queue_push(&sum_of(job, unit, source->rank)->waiting, &held->contribution.link);
	}
	finish_contribution(source, 0);
	member_release(member);
	gradient_try(job, unit);
	gradient_unblock(job, false);
	step_advance(job);
	job_settle(job);
}

static struct contribution *waiting_buffer(struct member *member)
{
	for (uint32_t i = 0; i < member->buffer_count; i++)
		if (member->contributions[i].is_active && !member->contributions[i].is_reading)
			return &member->contributions[i];
	return NULL;
}

static bool has_reading_buffer(const struct member *member)
{
	for (uint32_t i = 0; i < member->buffer_count; i++)
		if (member->contributions[i].is_reading)
			return true;
	return false;
}

static struct held_buffer *held_new(struct job *job)
{
	struct held_buffer *held = calloc(1, sizeof(*held));

	if (!held)
		return NULL;
	held->memory = (struct memory)MEMORY_INIT;
	if (memory_new_private(job->catalog.gradient_bytes_maximum, &held->memory) < 0) {
		free(held);
		return NULL;
	}
	held->work = (struct work){ .run = run_copy, .done = on_copied, .urgency = WORK_URGENT };
	queue_push(&job->all_held, &held->all_link);
	queue_push(&job->free_held, &held->link);
	return held;
}

/* More room than planned, as long as the node has some, beyond the job's own budget too: ranks that skip
 * units would block each other for ever. */
static bool grow_held(struct job *job)
{
	uint64_t bytes = gradient_held_bytes(job, 1);
	struct node *node = job->node;

	if (node->host_used + bytes > node->host_budget || !held_new(job))
		return false;
	node->host_used += bytes;
	job->host_bytes += bytes;
	job->held_count++;
	return true;
}

/* Nobody is left who could push or close anything. with_gathers: ranks that wait for a slot are stuck too, as
 * no slot is or becomes free unless some rank releases a unit. */
static bool all_are_blocked(const struct job *job, bool with_gathers)
{
	/* The step is about to be decided, which frees what was pushed to the next one. */
	if (job->closed_count == job->options.world_size)
		return false;
	/* A decision, or its sweep, frees what waits for it. */
	if (job->closed_count == job->options.world_size || job->sweep || job->norm)
		return false;
	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		const struct member *member = job->ranks[rank];

		if (!member)
			return false;
		if (!member->is_closed && queue_is_empty(&member->buffer_waiters) &&
		    !(with_gathers && residency_is_wished_by(job, member)))
			return false;
	}
	return true;
}

/* False: there is no room. */
static bool put_aside(struct job *job, struct contribution *contribution, bool with_gathers)
{
	if (queue_is_empty(&job->free_held) && !(all_are_blocked(job, with_gathers) && grow_held(job)))
		return false;
	struct held_buffer *held = queue_entry(queue_pop(&job->free_held), struct held_buffer, link);

	queue_remove(&contribution->link);
	contribution->is_reading = true;
	held->source = contribution;
	held->source_bytes = unit_layout_gradient_bytes(&job->catalog.units[contribution->unit].layout);
	job->reductions_running++;
	workers_submit(job->node->workers, &held->work);
	return true;
}

static void fail_buffer_waiters(struct member *member)
{
	struct job *job = member->job;
	const struct contribution *stuck = waiting_buffer(member);

	for (struct queue *link = queue_pop(&member->buffer_waiters); link;
	     link = queue_pop(&member->buffer_waiters))
		pending_error(queue_entry(link, struct pending, link), -ENOBUFS,
			      "all %u gradient buffers of rank %u wait for other ranks to push unit \"%s\" "
			      "or close their "
			      "step, all ranks wait for buffers, and host_budget has no room to put "
			      "gradients aside; raise "
			      "it, or gradient_buffers",
			      member->buffer_count, member->rank,
			      stuck ? job->catalog.units[stuck->unit].name : "?");
}

/* Ranks that can go on neither by themselves nor by each other get room, or an error. */
void gradient_unblock(struct job *job, bool with_gathers)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		struct member *member = job->ranks[rank];

		if (job->reductions_running > 0 || !all_are_blocked(job, with_gathers))
			return;
		if (queue_is_empty(&member->buffer_waiters))
			continue;
		struct contribution *waiting = waiting_buffer(member);

		if (waiting && !put_aside(job, waiting, with_gathers))
			fail_buffer_waiters(member);
	}
}

void gradient_wait(struct pending *pending, const Tierd__Wire__BufferWait *wait)
{
	struct member *member = pending->member;
	struct contribution *waiting;

	if (!job_check_live(pending, wait->epoch))
		return;
	for (uint32_t i = 0; i < member->buffer_count; i++)
		if (!member->contributions[i].is_active) {
			pending_reply(pending, NULL);
			return;
		}
	queue_push(&member->buffer_waiters, &pending->link);
	if (has_reading_buffer(member))
		return;
	waiting = waiting_buffer(member);
	if (waiting && !put_aside(member->job, waiting, false))
		gradient_unblock(member->job, false);
}

/* ---- Push ---- */

static bool check_push(struct pending *pending, const Tierd__Wire__Push *push)
{
	const struct member *member = pending->member;
	const struct announcement *announced =
		member->is_closed ? &member->announced_next : &member->announced;
	struct job *job = member->job;

	if (!job_check_live(pending, push->epoch) || !job_check_unit(pending, push->unit))
		return false;
	if (!unit_is_trainable(&job->catalog.units[push->unit]))
		pending_error(pending, -EINVAL, "unit \"%s\" is frozen: it has no gradients",
			      job->catalog.units[push->unit].name);
	else if (push->buffer >= member->buffer_count)
		pending_error(pending, -EINVAL, "there is no gradient buffer %u", push->buffer);
	else if (member->contributions[push->buffer].is_active)
		pending_error(pending, -EINVAL, "gradient buffer %u is on its way already", push->buffer);
	else if (member->next_step)
		pending_error(pending, -EBUSY,
			      "rank %u has two steps on their way; wait for one before it pushes more",
			      member->rank);
	else if (announced->is_made && member->pushed[push->unit] >= announced->micro_batches)
		pending_error(pending, -EINVAL,
			      "unit \"%s\": %u micro-batches were announced, this is one more",
			      job->catalog.units[push->unit].name, announced->micro_batches);
	else
		return true;
	return false;
}

void gradient_push(struct pending *pending, const Tierd__Wire__Push *push)
{
	struct member *member = pending->member;
	struct job *job = member->job;
	struct contribution *contribution;

	/* The library takes the buffer of a push that is refused back by itself. */
	if (!check_push(pending, push))
		return;
	if (job->departed[0]) {
		job_abort(job, -ESTALE, "%s", job->departed);
		return;
	}
	contribution = &member->contributions[push->buffer];
	*contribution = (struct contribution){
		.member = member,
		.rank = member->rank,
		.unit = push->unit,
		.buffer = push->buffer,
		.micro_batch = member->pushed[push->unit]++,
		.step = open_step(job) + member->is_closed,
		.data = member->gradients.base + push->buffer * job->catalog.gradient_bytes_maximum,
		.pending = push->is_silent ? NULL : pending,
		.is_active = true,
	};
	queue_push(&sum_of(job, push->unit, member->rank)->waiting, &contribution->link);
	member->busy++;
	member->pushes++;
	account_push(job, member, push->unit);
	if (push->is_silent)
		pending_drop(pending);
	gradient_try(job, push->unit);
}

bool gradient_has_pushed(const struct member *member)
{
	for (uint32_t i = 0; i < member->buffer_count; i++)
		if (member->contributions[i].is_active)
			return true;
	for (uint32_t unit = 0; member->pushed && unit < member->job->catalog.unit_count; unit++)
		if (member->pushed[unit] > 0)
			return true;
	return false;
}

/* ---- Ends ---- */

void gradient_forget_pendings(struct member *member)
{
	for (uint32_t i = 0; i < member->buffer_count; i++)
		member->contributions[i].pending = NULL;
	QUEUE_FOREACH (link, &member->job->all_held) {
		struct held_buffer *held = queue_entry(link, struct held_buffer, all_link);

		if (held->contribution.is_active && held->contribution.member == member)
			held->contribution.pending = NULL;
	}
}

/* What a worker reads just now is freed when it is done with it. */
static void void_contribution(struct contribution *contribution)
{
	if (!contribution->is_active)
		return;
	if (contribution->is_reading) {
		contribution->is_void = true;
		return;
	}
	contribution->member->busy--;
	free_contribution(contribution);
}

void gradient_forget_member(struct member *member)
{
	gradient_forget_pendings(member);
	for (uint32_t i = 0; i < member->buffer_count; i++)
		void_contribution(&member->contributions[i]);
	QUEUE_FOREACH (link, &member->job->all_held) {
		struct held_buffer *held = queue_entry(link, struct held_buffer, all_link);

		if (held->contribution.is_active && held->contribution.member == member)
			void_contribution(&held->contribution);
	}
}

/* Sums of units that the running sweep still consumes belong to a decided step. */
static void reset_open_sums(struct job *job)
{
	for (uint32_t unit = 0; job->sums && unit < job->catalog.unit_count; unit++)
		if (!is_in_use(job, unit))
			gradient_reset_unit(job, unit);
}

void gradient_abort(struct job *job)
{
	QUEUE_FOREACH (link, &job->all_held)
		void_contribution(&queue_entry(link, struct held_buffer, all_link)->contribution);
	collective_abort(job->node->collective, (uint64_t)(uintptr_t)job, job->epoch - 1);
	reset_open_sums(job);
}

/* Contributions that ranks made to the step after it are to the open one now. */
void gradient_drop_open(struct job *job)
{
	reset_open_sums(job);
	for (uint64_t i = 0; i < (uint64_t)job->catalog.unit_count * job->sum_ranks; i++)
		QUEUE_FOREACH (link, &job->sums[i].waiting)
			queue_entry(link, struct contribution, link)->step = open_step(job);
}

/* ---- Memory ---- */

uint64_t gradient_held_bytes(const struct job *job, unsigned count)
{
	return count * (size_align(job->catalog.gradient_bytes_maximum, 4096) + sizeof(struct held_buffer));
}

static int make_reductions(struct job *job)
{
	job->reductions = calloc(REDUCTIONS, sizeof(*job->reductions));
	if (!job->reductions)
		return -ENOMEM;
	for (unsigned i = 0; i < REDUCTIONS; i++) {
		struct reduction *reduction = &job->reductions[i];

		reduction->job = job;
		reduction->pointers = calloc(job->options.world_size, sizeof(*reduction->pointers));
		reduction->contributions = calloc(job->options.world_size, sizeof(*reduction->contributions));
		if (!reduction->pointers || !reduction->contributions)
			return -ENOMEM;
		queue_push(&job->free_reductions, &reduction->link);
	}
	return 0;
}

int gradient_init(struct job *job)
{
	uint64_t count = (uint64_t)job->catalog.unit_count * job->sum_ranks;
	unsigned held_count = job->catalog.gradient_bytes_maximum ? job->held_count : 0;

	job->sums = calloc(count, sizeof(*job->sums));
	if (!job->sums || make_reductions(job) < 0)
		return -ENOMEM;
	for (uint64_t i = 0; i < count; i++) {
		job->sums[i].unit = (uint32_t)(i / job->sum_ranks);
		job->sums[i].rank = (uint32_t)(i % job->sum_ranks);
		queue_init(&job->sums[i].waiting);
		queue_init(&job->sums[i].link);
	}
	for (unsigned i = 0; i < held_count; i++)
		if (!held_new(job))
			return -ENOMEM;
	return 0;
}

void gradient_clear(struct job *job)
{
	for (unsigned i = 0; job->reductions && i < REDUCTIONS; i++) {
		free(job->reductions[i].pointers);
		free(job->reductions[i].contributions);
	}
	for (struct queue *link = queue_pop(&job->all_held); link; link = queue_pop(&job->all_held)) {
		struct held_buffer *held = queue_entry(link, struct held_buffer, all_link);

		memory_free(&held->memory);
		free(held);
	}
	free(job->reductions);
	free(job->sums);
	job->reductions = NULL;
	job->sums = NULL;
	queue_init(&job->free_reductions);
	queue_init(&job->sums_waiting);
	queue_init(&job->free_held);
}
