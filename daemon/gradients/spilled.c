/* The sums of one pack, their buffer and their transfers.
 *
 * A transfer that fails ends the epoch, if the step is not decided, and the job stands at the last applied
 * one. Of a decided step, or before training, the sums are a part of the state, and the job is broken. When
 * an epoch ends, sums that are pinned or in transfer are void, and go when that comes home; job->
 * reductions_running counts the transfers, so no epoch begins before. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/size.h"
#include "daemon/gradients/gradients.h"
#include "daemon/gradients/spilled.h"
#include "daemon/residency/residency.h"
#include "daemon/telemetry/telemetry.h"

/* ---- Buffers ---- */

uint32_t spilled_pack(const struct spilled *spilled)
{
	return (uint32_t)(spilled - spilled->spill->packs);
}

bool spilled_is_in_sweep(const struct spilled *spilled)
{
	return residency_is_claimed(spilled->spill->job, spilled_pack(spilled));
}

static struct queue *wishes_of(const struct spilled *spilled)
{
	return spilled_is_in_sweep(spilled) ? &spilled->spill->sweep_wishes : &spilled->spill->wishes;
}

bool spilled_take_buffer(struct spilled *spilled)
{
	struct spill *spill = spilled->spill;

	for (uint32_t i = 0; i < spill->buffer_count; i++)
		if (!spill->owners[i]) {
			spill->owners[i] = spilled;
			spilled->buffer = spill->job->gradients->sums_memory.base +
					  i * spill->job->gradients->sum_buffer_bytes;
			return true;
		}
	return false;
}

void spilled_give_buffer(struct spilled *spilled)
{
	struct spill *spill = spilled->spill;

	for (uint32_t i = 0; i < spill->buffer_count; i++)
		if (spill->owners[i] == spilled)
			spill->owners[i] = NULL;
	spilled->buffer = NULL;
	spilled->state = SPILL_ABSENT;
}

void spilled_clear(struct spilled *spilled)
{
	spilled_give_buffer(spilled);
	spilled->is_stored = spilled->is_void = false;
}

void spilled_wish(struct spilled *spilled)
{
	if (!queue_is_empty(&spilled->link))
		return;
	queue_push(wishes_of(spilled), &spilled->link);
	job_settle(spilled->spill->job);
}

/* ---- Transfers ---- */

static enum tier_priority priority_of(const struct spilled *spilled)
{
	return !spilled_is_in_sweep(spilled) ||
			       residency_is_awaited(spilled->spill->job, spilled_pack(spilled))
		       ? TIER_DEMAND
		       : TIER_PREFETCH;
}

void spilled_raise(struct spilled *spilled)
{
	if (spilled->state == SPILL_LOADING)
		store_raise(spilled->spill->job->location.gradient_store, &spilled->transfer,
			    priority_of(spilled));
}

static void on_transferred(struct store_transfer *transfer, int status);

static void submit(struct spilled *spilled, enum tier_direction direction)
{
	struct job *job = spilled->spill->job;
	uint32_t pack = spilled_pack(spilled);

	spilled->transfer = (struct store_transfer){
		.direction = direction,
		.priority = direction == TIER_READ ? priority_of(spilled) : TIER_WRITE_BACK,
		.stream = job->location.streams.accumulator,
		.offset = job->location.places[pack].accumulator,
		.length = size_align(spilled->bytes, STORE_PAGE_BYTES),
		.buffer = spilled->buffer,
		.done = on_transferred,
	};
	int r = store_submit(job->location.gradient_store, &spilled->transfer);

	/* Only our own mistakes are refused: no section, or no page. */
	if (r < 0) {
		log_about(LOG_LEVEL_ERROR, &(struct log_fields){ .job = job->name, .user = &job->uid },
			  "job %s of user %u: a transfer of sums was refused: %s; this is a mistake of "
			  "tierd, which ends here: please report it",
			  job->name, (unsigned)job->uid, strerror(-r));
		abort();
	}
	/* Zeros that were never written are not read, either. */
	if (direction == TIER_WRITE || spilled->is_stored)
		account_transfer(job, STATISTICS_GRADIENT, &spilled->transfer);
}

static void fail(struct spilled *spilled, int status)
{
	const struct store_transfer *transfer = &spilled->transfer;
	struct job *job = spilled->spill->job;
	const char *verb = transfer->direction == TIER_READ ? "read back from" : "spilled to";
	const struct log_fields fault = store_fault(job, spilled_pack(spilled), transfer);
	const char *device = fault.device ? fault.device : "the store";
	unsigned long long at = (unsigned long long)transfer->fault.device_offset;

	if (!job_has_state(job) || spilled_is_in_sweep(spilled)) {
		job_break(job, &fault, "unit \"%s\": its sums cannot be %s %s at byte %llu: %s", fault.unit,
			  verb, device, at, store_error(status));
		return;
	}
	/* The device is the administrator's business; that the step is lost, its owner's. */
	events_of_job(
		job, transfer->direction == TIER_READ ? EVENT_READ_FAILED : EVENT_WRITE_FAILED, &fault,
		"the gradient sums of unit \"%s\" cannot be %s %s at byte %llu: %s; the open step is lost: "
		"look at the disk",
		fault.unit, verb, device, at, store_error(status));
	job_abort(job, -ESTALE,
		  "step %llu is lost: the gradient sums of unit \"%s\" cannot be %s %s at byte %llu: "
		  "%s",
		  (unsigned long long)gradient_open_step(job), fault.unit, verb, device, at,
		  store_error(status));
}

/* What comes home is present, or has failed. */
static void come_home(struct spilled *spilled, int status)
{
	struct spill *spill = spilled->spill;

	spill->job->gradients->reductions_running--;
	if (spilled->is_void) {
		spilled_clear(spilled);
		if (spilled->is_wanted)
			spilled_wish(spilled);
	} else if (status < 0) {
		fail(spilled, status);
	} else if (spilled->is_wanted) {
		queue_push(&spill->ready, &spilled->link);
	} else if (spilled->transfer.direction == TIER_WRITE) {
		spilled_give_buffer(spilled);
	}
	job_settle(spill->job);
}

static void on_transferred(struct store_transfer *transfer, int status)
{
	struct spilled *spilled = container_of(transfer, struct spilled, transfer);

	trace_transferred(spilled->spill->job, spilled_pack(spilled),
			  spilled->spill->job->location.gradient_store, transfer);
	spilled->state = SPILL_PRESENT;
	if (transfer->direction == TIER_WRITE) {
		spilled->spill->writing--;
		spilled->is_stored = status == 0;
	}
	come_home(spilled, status);
}

/* On a worker. Units that nobody has pushed are measured, too, and not asked for. */
static void run_measure(struct work *work)
{
	struct spilled *spilled = container_of(work, struct spilled, work);

	norm_measure_pack(spilled->spill->job, &spilled->spill->measured, spilled_pack(spilled));
}

static void on_measured(struct work *work)
{
	struct spilled *spilled = container_of(work, struct spilled, work);

	if (spilled->is_void) {
		spilled->spill->writing--;
		come_home(spilled, 0);
		return;
	}
	submit(spilled, TIER_WRITE);
}

/* What tensors are written with has no norm, and that of a reduced step has been taken. */
void spilled_write(struct spilled *spilled)
{
	struct job *job = spilled->spill->job;

	spilled->state = SPILL_WRITING;
	spilled->spill->writing++;
	job->gradients->reductions_running++;
	if (job_writes_sums(job)) {
		submit(spilled, TIER_WRITE);
		return;
	}
	spilled->work = (struct work){ .run = run_measure, .done = on_measured, .urgency = WORK_NORMAL };
	workers_submit(job->node->workers, &spilled->work);
}

/* It has a buffer. Before training, what was never written are the zeros that a store has without being told.
 */
void spilled_start(struct spilled *spilled)
{
	struct job *job = spilled->spill->job;

	if (!spilled->is_stored && job_has_state(job)) {
		spilled->state = SPILL_PRESENT;
		return;
	}
	spilled->state = SPILL_LOADING;
	job->gradients->reductions_running++;
	submit(spilled, TIER_READ);
}
