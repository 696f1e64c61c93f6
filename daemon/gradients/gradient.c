/* Contributions: how they come, which sum they wait for, and how a step or an epoch ends for them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/plural.h"
#include "common/size.h"
#include "daemon/gradients/own.h"
#include "daemon/gradients/gradients.h"
#include "daemon/model/model.h"
#include "daemon/request/request.h"
#include "daemon/residency/residency.h"
#include "daemon/telemetry/telemetry.h"

bool gradient_is_of_ranks(const struct job *job)
{
	return job->options.stage < 2;
}

uint32_t gradient_sums_per_unit(const struct job *job)
{
	return gradient_is_of_ranks(job) ? job->options.world_size : 1;
}

struct sum *gradient_sum_of(const struct job *job, uint32_t unit, uint32_t rank)
{
	return &job->gradients->sums[(uint64_t)unit * gradient_sums_per_unit(job) +
				     (gradient_is_of_ranks(job) ? rank : 0)];
}

char *gradient_sum_address(const struct job *job, const struct sum *sum)
{
	uint64_t region = job->gradients->sums_memory.length / gradient_sums_per_unit(job) /
			  UNIT_ALIGN_BYTES * UNIT_ALIGN_BYTES;

	if (job->gradients->spill)
		return spill_address(job, job->catalog.units[sum->unit].pack) +
		       job->gradients->sum_offsets[sum->unit];
	return job->gradients->sums_memory.base + sum->rank * region + job->gradients->sum_offsets[sum->unit];
}

char *gradient_sum(const struct job *job, uint32_t unit)
{
	return gradient_sum_address(job, gradient_sum_of(job, unit, 0));
}

bool gradient_has_content(const struct job *job, uint32_t unit)
{
	for (uint32_t rank = 0; rank < gradient_sums_per_unit(job); rank++)
		if (gradient_sum_of(job, unit, rank)->has_content)
			return true;
	return false;
}

bool gradient_is_summed(const struct job *job, uint32_t unit, uint32_t micro_batches)
{
	const struct sum *sum = gradient_sum_of(job, unit, 0);

	return sum->next == micro_batches && !sum->is_reducing;
}

bool gradient_awaits(const struct member *member, const struct member *other)
{
	const struct job *job = member->job;

	for (uint32_t i = 0; i < member->buffer_count; i++) {
		const struct contribution *contribution = &member->pusher->contributions[i];

		if (contribution->is_active && !contribution->is_reading &&
		    contribution->step == gradient_open_step(job) &&
		    other->pusher->pushed[contribution->unit] <=
			    gradient_sum_of(job, contribution->unit, 0)->next)
			return true;
	}
	return false;
}

static void forget_present(struct unit *unit)
{
	for (uint32_t i = 0; i < unit->tensor_count; i++)
		unit->tensors[i].is_present = false;
}

void gradient_reset_unit(struct job *job, uint32_t unit)
{
	spill_drop(job, job->catalog.units[unit].pack);
	forget_present(&job->catalog.units[unit]);
	for (uint32_t rank = 0; rank < gradient_sums_per_unit(job); rank++) {
		gradient_sum_of(job, unit, rank)->has_content = false;
		gradient_sum_of(job, unit, rank)->next = 0;
		gradient_sum_of(job, unit, rank)->measured = 0;
	}
}

uint64_t gradient_open_step(const struct job *job)
{
	return job->decided + 1;
}

/* The unit's sum still belongs to the step that is being applied, or it is not a sum any more. */
bool gradient_is_in_use(const struct job *job, uint32_t unit)
{
	uint32_t pack = job->catalog.units[unit].pack;

	return job->current.state >= WRITING_DECIDED || residency_is_claimed(job, pack) ||
	       job->gradients->listener->has_taken_sums(job, pack);
}

/* ---- Contributions come and go ---- */

static struct sum *sum_of(const struct contribution *contribution)
{
	return gradient_sum_of(contribution->member->job, contribution->unit, contribution->rank);
}

void contribution_wait(struct contribution *contribution)
{
	struct sum *sum = sum_of(contribution);

	queue_push(&sum->waiting, &contribution->link);
	sum->waiting_count++;
	contribution->member->job->gradients->waiting_of_step[contribution->step % 2]++;
}

void contribution_take(struct contribution *contribution)
{
	if (queue_is_empty(&contribution->link))
		return;
	queue_remove(&contribution->link);
	sum_of(contribution)->waiting_count--;
	contribution->member->job->gradients->waiting_of_step[contribution->step % 2]--;
}

static void free_contribution(struct contribution *contribution)
{
	struct member *member = contribution->member;
	struct job *job = member->job;

	contribution_take(contribution);
	contribution->is_active = contribution->is_reading = contribution->is_arriving =
		contribution->is_void = false;
	contribution->pending = NULL;
	if (contribution->spare)
		queue_push(&job->gradients->free_spares, &contribution->spare->link);
	else
		atomic_store_explicit(&lease_buffers(member->leases)[contribution->buffer],
				      GRADIENT_BUFFER_FREE, memory_order_release);
}

static void serve_buffer_waiters(struct member *member)
{
	for (struct queue *link = queue_pop(&member->pusher->buffer_waiters); link;
	     link = queue_pop(&member->pusher->buffer_waiters))
		pending_reply(queue_entry(link, struct pending, link), NULL);
}

void contribution_finish(struct contribution *contribution)
{
	struct member *member = contribution->member;
	struct pending *pending = contribution->pending;
	bool was_buffer = contribution->spare == NULL;

	free_contribution(contribution);
	member->busy--;
	if (pending)
		pending_reply(pending, NULL);
	if (was_buffer && !member->has_left)
		serve_buffer_waiters(member);
}

/* ---- Push ---- */

/* Empty: it has a gradient of each tensor. What is said of frozen ones is nothing new. */
static int check_absent(const struct job *job, const Tierd__Wire__Push *push, char *message, size_t size)
{
	const struct unit *unit = &job->catalog.units[push->unit];
	uint32_t tensors = unit->tensor_count;

	if (push->absent.len == 0)
		return 0;
	if (push->absent.len != size_divide_up(tensors, 8) ||
	    (tensors % 8 && push->absent.data[tensors / 8] >> tensors % 8))
		return refuse(message, size, -EINVAL,
			      "unit \"%s\" has %u tensor%s: as many bits say which of them have no gradient",
			      unit->name, tensors, PLURAL(tensors));
	if (job->location.record_format < RECORD_FORMAT_TENSORS)
		return refuse(
			message, size, -EOPNOTSUPP,
			"unit \"%s\": the store of job %s was made by an older tierd, and has no place "
			"for the updates of each tensor, which differ where one has no gradient: begin a "
			"job with its state (\"from\", with_optimizer)",
			unit->name, job->name);
	return 0;
}

static int check_push(const struct member *member, const Tierd__Wire__Push *push, char *message, size_t size)
{
	const struct announcement *announced =
		member->is_closed ? &member->announced_next : &member->announced;
	const struct catalog *catalog = &member->job->catalog;
	int r;

	if (push->unit >= catalog->unit_count)
		return refuse(message, size, -EINVAL, "there is no unit %u", push->unit);
	if (!unit_is_trainable(&catalog->units[push->unit]))
		return refuse(message, size, -EINVAL, "unit \"%s\" is frozen: it has no gradients",
			      catalog->units[push->unit].name);
	r = buffers_check(member, push, message, size);
	if (r == 0 && push->event > 0)
		r = gpu_check_push(member, message, size);
	if (r < 0)
		return r;
	if (member->job->options.is_pushed_once && member->pusher->pushed[push->unit] > 0)
		return refuse(message, size, -EINVAL,
			      "unit \"%s\": the job was opened as one whose units are pushed once in a step "
			      "(pushed_once), and this is its second push",
			      catalog->units[push->unit].name);
	if (member_owes_step(member))
		return refuse(message, size, -EBUSY,
			      "rank %u has to finish its step before it pushes more; call %s first",
			      member->rank, member_owed_call(member));
	if (member->next_step)
		return refuse(message, size, -EBUSY,
			      "rank %u has two steps on their way; wait for one before it pushes more",
			      member->rank);
	if (announced->is_made && member->pusher->pushed[push->unit] >= announced->micro_batches)
		return refuse(message, size, -EINVAL,
			      "unit \"%s\": %u micro-batches were announced, this is one more",
			      catalog->units[push->unit].name, announced->micro_batches);
	return check_absent(member->job, push, message, size);
}

/* The library takes the buffer back by itself. Of a silent push it may read the answer only after it has sent
 * its step. */
static void refuse_push(struct pending *pending, bool is_silent, int r, const char *message)
{
	struct member *member = pending->member;

	if (is_silent) {
		member->refused_pushes++;
		member->push_error = r;
		snprintf(member->push_message, sizeof(member->push_message), "%s", message);
	}
	pending_error(pending, r, "%s", message);
}

/* The frame is gone when it is summed. */
static const uint8_t *keep_absent(struct member *member, const Tierd__Wire__Push *push)
{
	uint8_t *absent = member->pusher->absent + push->buffer * gradient_absent_bytes(member->job);

	return push->absent.len > 0 ? memcpy(absent, push->absent.data, push->absent.len) : NULL;
}

void gradient_push(struct pending *pending, const Tierd__Wire__Push *push)
{
	struct member *member = pending->member;
	struct job *job = member->job;
	struct contribution *contribution;
	char message[sizeof(member->push_message)];
	int r;

	if (!job_check_live(pending, push->epoch))
		return;
	r = check_push(member, push, message, sizeof(message));
	if (r < 0) {
		refuse_push(pending, push->is_silent, r, message);
		return;
	}
	if (job->members.departed[0]) {
		job_abort(job, -ESTALE, "%s", job->members.departed);
		return;
	}
	contribution = &member->pusher->contributions[push->buffer];
	*contribution = (struct contribution){
		.member = member,
		.rank = member->rank,
		.unit = push->unit,
		.buffer = push->buffer,
		.micro_batch = member->pusher->pushed[push->unit]++,
		.step = gradient_open_step(job) + member->is_closed,
		.data = member->gradients.base + buffers_offset(member, push),
		.absent = keep_absent(member, push),
		.pending = push->is_silent ? NULL : pending,
		.is_active = true,
	};
	member->busy++;
	member->pusher->pushed_count++;
	member->pushes++;
	account_push(job, member, push->unit);
	if (push->is_silent)
		pending_drop(pending);
	if (push->event > 0) {
		arrival_begin(contribution, push->event);
	} else {
		contribution_wait(contribution);
		sum_try(job, sum_of(contribution));
	}
}

bool gradient_has_pushed(const struct member *member)
{
	for (uint32_t i = 0; i < member->buffer_count; i++)
		if (member->pusher->contributions[i].is_active)
			return true;
	return member->pusher && member->pusher->pushed_count > 0;
}

uint64_t gradient_waits_since(const struct member *member)
{
	if (!member->pusher || queue_is_empty(&member->pusher->buffer_waiters))
		return 0;
	return queue_entry(member->pusher->buffer_waiters.next, struct pending, link)->asked_ns;
}

static void forget_pushed(struct member *member)
{
	memset(member->pusher->pushed, 0, member->job->catalog.unit_count * sizeof(*member->pusher->pushed));
	member->pusher->pushed_count = 0;
}

/* A rank's own sum waits for nobody else. */
void gradient_close_part(struct member *member)
{
	struct pusher *pusher = member->pusher;
	struct job *job = member->job;

	memcpy(pusher->closed_pushed, pusher->pushed, job->catalog.unit_count * sizeof(*pusher->pushed));
	forget_pushed(member);
	if (!gradient_is_of_ranks(job) && job->gradients->waiting_of_step[gradient_open_step(job) % 2] > 0)
		gradient_try_all(job);
}

/* ---- Ends ---- */

/* In its buffers, or put aside. */
static void for_each_contribution(struct member *member, void (*call)(struct contribution *contribution))
{
	for (uint32_t i = 0; i < member->buffer_count; i++)
		call(&member->pusher->contributions[i]);
	QUEUE_FOREACH (link, &member->job->gradients->all_spares) {
		struct spare_buffer *spare = queue_entry(link, struct spare_buffer, all_link);

		if (spare->contribution.is_active && spare->contribution.member == member)
			call(&spare->contribution);
	}
}

static void forget_pending(struct contribution *contribution)
{
	contribution->pending = NULL;
}

void gradient_forget_pendings(struct member *member)
{
	for_each_contribution(member, forget_pending);
}

/* What a worker reads just now, or a GPU writes, is freed when it is done with it. */
static void void_contribution(struct contribution *contribution)
{
	if (!contribution->is_active)
		return;
	if (contribution->is_reading) {
		if (contribution->is_arriving && !contribution->is_void)
			arrival_void(contribution);
		contribution->is_void = true;
		return;
	}
	contribution->member->busy--;
	free_contribution(contribution);
}

void gradient_forget_member(struct member *member)
{
	if (!member->pusher)
		return;
	forget_pushed(member);
	gradient_forget_pendings(member);
	for_each_contribution(member, void_contribution);
}

/* Sums of units that the running sweep still consumes belong to a decided step. */
void gradient_reset_open(struct job *job)
{
	for (uint32_t unit = 0; job->gradients->sums && unit < job->catalog.unit_count; unit++)
		if (!gradient_is_in_use(job, unit))
			gradient_reset_unit(job, unit);
	job->gradients->folded_units = 0;
}

void gradient_abort(struct job *job)
{
	QUEUE_FOREACH (link, &job->gradients->all_spares)
		void_contribution(&queue_entry(link, struct spare_buffer, all_link)->contribution);
	gradient_reset_open(job);
	/* Ranks may come back on other GPUs. */
	job->gradients->choice = (struct gpu_choice){ 0 };
}

static void relabel_waiting(struct job *job, uint64_t step)
{
	for (uint64_t i = 0; i < (uint64_t)job->catalog.unit_count * gradient_sums_per_unit(job); i++)
		QUEUE_FOREACH (link, &job->gradients->sums[i].waiting)
			queue_entry(link, struct contribution, link)->step = step;
	job->gradients->waiting_of_step[step % 2] += job->gradients->waiting_of_step[(step + 1) % 2];
	job->gradients->waiting_of_step[(step + 1) % 2] = 0;
}

/* Contributions that ranks made to the step after it are to the open one now, those that are being put aside
 * too. */
void gradient_drop_open(struct job *job)
{
	gradient_reset_open(job);
	relabel_waiting(job, gradient_open_step(job));
	arrivals_relabel(job, gradient_open_step(job));
	QUEUE_FOREACH (link, &job->gradients->all_spares) {
		struct contribution *source = queue_entry(link, struct spare_buffer, all_link)->source;

		if (source)
			source->step = gradient_open_step(job);
	}
}
