/* A copy pins the pack, so that no sweep begins on it, reads what is on NVMe, and has a worker copy. The pin
 * is held for one transfer and one memcpy. The node's staging buffers are for jobs that are trained; a reader
 * has its own. */

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "daemon/gradients/gradients.h"
#include "daemon/model/model.h"
#include "daemon/residency/residency.h"
#include "daemon/update/update.h"
#include "daemon/values/copy.h"
#include "offload/optimizer/moments.h"
#include "daemon/values/own.h"

/* As many values are moved in a microsecond or two. */
#define BRIEF_ELEMENTS 4096

uint64_t copy_element_bytes(enum unit_section section, int state)
{
	return state == STATE_PARAMETER ? section_element_bytes(section) : sizeof(float);
}

void copy_values(const struct copy_range *range, const void *parameter, const void *kept, void *target)
{
	enum unit_section section = range->section;

	if (range->state == STATE_PARAMETER)
		memcpy(target, parameter, range->count * section_element_bytes(section));
	else if (range->state == STATE_MASTER)
		format_restore(state_master_kind(section), parameter, kept, range->count, target);
	else
		moments_restore(state_moments(section), (unsigned)range->state - STATE_SLOTS, kept,
				range->first, range->count, target);
}

enum copy_outlook copy_look(const struct job *job, const struct copy_range *range, uint64_t version)
{
	bool is_in_sweep = residency_is_claimed(job, range->pack);

	if (!section_is_trainable(range->section))
		return is_in_sweep ? COPY_LATER : COPY_POSSIBLE;
	/* One that waits for its sweep is not held up: its next version is decided. */
	return !is_in_sweep && update_begun_step(job, range->pack) <= version ? COPY_POSSIBLE : COPY_GONE;
}

/* ---- The end ---- */

/* A snapshot does not change, whatever a sweep does: the job only has to stay. */
static void hold(struct copy *copy)
{
	if (copy->ready)
		return;
	if (copy->snapshot)
		copy->job->values->snapshot_copies++;
	else
		residency_pin(copy->job, copy->range.pack);
}

static void release(struct copy *copy)
{
	if (copy->ready)
		return;
	if (!copy->snapshot) {
		residency_unpin(copy->job, copy->range.pack);
		return;
	}
	copy->job->values->snapshot_copies--;
	job_settle(copy->job);
}

static void end(struct copy *copy, int status)
{
	release(copy);
	copy->done(copy, status);
}

/* ---- On a worker ---- */

static void run_copy(struct work *work)
{
	struct copy *copy = container_of(work, struct copy, work);

	const struct copy_range *range = &copy->range;

	if (copy->ready)
		memcpy(copy->target, copy->ready,
		       range->count * copy_element_bytes(range->section, range->state));
	else
		copy_values(range, copy->parameter.data, copy->kept.data, copy->target);
}

static void on_copied(struct work *work)
{
	end(container_of(work, struct copy, work), 0);
}

static void start_work(struct copy *copy)
{
	copy->work = (struct work){ .run = run_copy,
				    .done = on_copied,
				    .urgency = WORK_NORMAL,
				    .is_brief = copy->range.count <= BRIEF_ELEMENTS };
	workers_submit(copy->job->node->workers, &copy->work);
}

/* ---- Sources ---- */

static bool needs_parameter(const struct copy *copy)
{
	return copy->range.state <= STATE_MASTER;
}

static bool needs_kept(const struct copy *copy)
{
	return copy->range.state != STATE_PARAMETER &&
	       state_exists(copy->range.section, (unsigned)copy->range.state);
}

static bool is_in_slot(const struct copy *copy)
{
	return !copy->snapshot && residency_state(copy->job, copy->range.pack) == DIRECTORY_RESIDENT;
}

static void on_read(struct store_transfer *transfer, int status)
{
	struct copy_source *source = container_of(transfer, struct copy_source, transfer);
	struct copy *copy = source->copy;

	source->is_reading = false;
	if (status < 0) {
		copy->status = status;
		damage_tell_read(copy->job, transfer, status, "the reader is told");
	}
	if (--copy->transfers_left > 0)
		return;
	if (copy->status < 0)
		end(copy, copy->status);
	else
		start_work(copy);
}

static bool reads_kept(const struct copy *copy)
{
	const struct job *job = copy->job;

	return copy->snapshot || job->location.has_nvme_optimizer || job->state != JOB_TRAINED;
}

unsigned copy_streams(const struct copy *copy)
{
	if (copy->ready)
		return 0;
	return (needs_parameter(copy) && !is_in_slot(copy)) + (needs_kept(copy) && reads_kept(copy));
}

/* Whole blocks around a piece of a stream. Returns how much of the buffer they take. */
static uint64_t read_source(struct copy *copy, struct copy_source *source, const struct store_range *piece,
			    char *buffer)
{
	struct store_range blocks;

	store_find_blocks(source->store, piece->stream, piece->offset, piece->length, &blocks);
	/* Of what has wider blocks than others a copy takes less than COPY_BYTES: an element is smaller. */
	assert(blocks.length <= COPY_BUFFER_BYTES / 2);
	source->transfer = (struct store_transfer){ .direction = TIER_READ,
						    .priority = TIER_PREFETCH,
						    .stream = blocks.stream,
						    .offset = blocks.offset,
						    .length = blocks.length,
						    .buffer = buffer,
						    .done = on_read };
	source->copy = copy;
	source->data = buffer + (piece->offset - blocks.offset);
	int r = store_submit(source->store, &source->transfer);

	if (r < 0) {
		copy->status = r;
		return 0;
	}
	source->is_reading = true;
	copy->transfers_left++;
	return source->transfer.length;
}

static uint64_t find_parameter(struct copy *copy)
{
	struct job *job = copy->job;
	const struct copy_range *range = &copy->range;

	if (!needs_parameter(copy))
		return 0;
	if (is_in_slot(copy)) {
		copy->parameter.data = residency_element(job, range->pack, range->section, range->first);
		return 0;
	}
	const struct store_range piece =
		job_find_parameters(job, range->pack, range->section, range->first, range->count);

	copy->parameter.store = copy->snapshot ? copy->snapshot : job->location.parameter_store;
	return read_source(copy, &copy->parameter, &piece, copy->buffer);
}

static void find_kept(struct copy *copy, uint64_t used)
{
	struct job *job = copy->job;
	const struct copy_range *range = &copy->range;

	if (!needs_kept(copy))
		return;
	const struct store_range piece = job_find_kept(job, range->pack, range->section,
						       (unsigned)range->state, range->first, range->count);

	copy->kept.store = copy->snapshot ? copy->snapshot : job_nvme_store(job);
	if (reads_kept(copy))
		read_source(copy, &copy->kept, &piece, copy->buffer + used);
	else
		copy->kept.data = store_address(job->location.optimizer_store, piece.stream, piece.offset);
}

/* ---- Start ---- */

static int read_sources(struct copy *copy)
{
	find_kept(copy, find_parameter(copy));
	if (copy->transfers_left > 0)
		return 0;
	if (copy->status == 0)
		start_work(copy);
	else
		release(copy);
	return copy->status;
}

/* The store would have what it was some steps ago. */
static bool has_to_wait(const struct copy *copy)
{
	return !copy->snapshot && needs_kept(copy) && warm_is_dirty(copy->job, copy->range.pack);
}

int copy_start(struct copy *copy)
{
	copy->parameter = copy->kept = (struct copy_source){ .data = NULL };
	copy->transfers_left = 0;
	copy->status = 0;
	hold(copy);
	if (copy->ready) {
		start_work(copy);
		return 0;
	}
	if (!has_to_wait(copy))
		return read_sources(copy);
	queue_init(&copy->link);
	queue_push(&copy->job->values->copies_waiting, &copy->link);
	warm_flush(copy->job);
	return 0;
}

static void resume(struct copy *copy)
{
	int r;

	if (has_to_wait(copy) && !job_is_broken(copy->job) && !job_is_ending(copy->job)) {
		queue_push(&copy->job->values->copies_waiting, &copy->link);
		return;
	}
	if (has_to_wait(copy)) {
		end(copy, -EIO);
		return;
	}
	r = read_sources(copy);
	if (r < 0)
		copy->done(copy, r);
}

void copies_resume(struct job *job)
{
	struct queue waiting;

	queue_init(&waiting);
	for (struct queue *link = queue_pop(&job->values->copies_waiting); link;
	     link = queue_pop(&job->values->copies_waiting))
		queue_push(&waiting, link);
	for (struct queue *link = queue_pop(&waiting); link; link = queue_pop(&waiting))
		resume(queue_entry(link, struct copy, link));
}

const struct store_transfer *copy_fault(const struct copy *copy)
{
	const struct copy_source *sources[] = { &copy->parameter, &copy->kept };

	for (size_t i = 0; i < ARRAY_LENGTH(sources); i++)
		if (sources[i]->transfer.status < 0)
			return &sources[i]->transfer;
	return NULL;
}

void copy_raise(struct copy *copy)
{
	struct copy_source *sources[] = { &copy->parameter, &copy->kept };

	for (size_t i = 0; i < ARRAY_LENGTH(sources); i++)
		if (sources[i]->is_reading)
			store_raise(sources[i]->store, &sources[i]->transfer, TIER_DEMAND);
}
