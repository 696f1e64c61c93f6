#include "daemon/durability/durable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/little_endian.h"
#include "common/size.h"
#include "daemon/durability/backup.h"
#include "daemon/durability/store_task.h"
#include "daemon/durability/presence.h"
#include "daemon/durability/record.h"
#include "daemon/durability/retention.h"
#include "daemon/durability/own.h"
#include "daemon/gradients/gradients.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/update.h"

/* A page-aligned piece of the record that is being written. */
struct record_write {
	struct durable *durable;
	struct store_transfer transfer;
	uint32_t stream;
	uint64_t offset, length; /* in it */
	char *bytes;		 /* NULL: it is written */
};

enum commit_state {
	COMMIT_NONE,
	COMMIT_WRITING, /* what the step has is written, and the state stands still for that */
	COMMIT_SEALING, /* the store commits it; the state moves again */
};

struct durable {
	struct job *job;
	const struct durable_listener *listener;
	struct record_write definition, progress, blobs;
	struct pace pace;
	unsigned record_writes; /* being written */
	unsigned writing;	/* these, and the backup */
	enum commit_state commit;
	bool wants_definition, is_defining; /* a commit is due, or on its way, for that alone */
	uint64_t step, committed;	    /* being committed; durable */
	int status;
	uint64_t began_ns; /* what is traced: freezing, then committing */
	struct store_request request;
};

/* ---- Layout ---- */

int durable_lay_out(struct job *job, struct store_layout *layout)
{
	uint64_t offset, definition = sizeof(struct record_header) + record_definition_bytes(job);
	uint64_t progress = sizeof(struct progress_header) + record_progress_bytes(job);
	int r;

	store_layout_set_durable(layout);
	store_layout_set_snapshots(layout, job->options.snapshots);
	r = store_layout_add_stream(layout, "record");
	if (r >= 0)
		r = store_layout_add_section(layout, RECORD_STREAM,
					     size_align(definition, STORE_EXTENT_BYTES), &offset);
	return r < 0 ? r : store_layout_add_section(layout, RECORD_STREAM, progress, &offset);
}

int durable_find_layout(const struct record_header *header, uint64_t extents,
			struct store_layout **ret_layout, uint64_t *ret_progress_offset)
{
	_cleanup_(store_layout_freep) struct store_layout *layout = NULL;
	uint64_t most = extents * STORE_EXTENT_BYTES, definition, progress, offset;
	int r;

	if (header->definition_bytes > most || header->progress_bytes > most)
		return -EBADMSG;
	definition = size_align(sizeof(*header) + header->definition_bytes, STORE_EXTENT_BYTES);
	progress = sizeof(struct progress_header) + header->progress_bytes;
	if (definition + size_align(progress, STORE_EXTENT_BYTES) > most)
		return -EBADMSG;
	r = store_layout_new(&layout);
	if (r < 0)
		return r;
	store_layout_set_durable(layout);
	r = store_layout_add_stream(layout, "record");
	if (r >= 0)
		r = store_layout_add_section(layout, RECORD_STREAM, definition, &offset);
	if (r >= 0)
		r = store_layout_add_section(layout, RECORD_STREAM, progress, ret_progress_offset);
	most -= definition + size_align(progress, STORE_EXTENT_BYTES);
	if (r >= 0 && most > 0)
		r = store_layout_add_section(layout, RECORD_STREAM, most, &offset);
	if (r < 0)
		return r;
	*ret_layout = TAKE_PTR(layout);
	return 0;
}

/* ---- Life ---- */

static int make_write(struct durable *durable, struct record_write *write, uint64_t offset, uint64_t length)
{
	write->durable = durable;
	write->stream = RECORD_STREAM;
	write->offset = offset;
	write->length = size_align(length, STORE_PAGE_BYTES);
	write->bytes = aligned_alloc(STORE_PAGE_BYTES, write->length);
	if (!write->bytes)
		return -ENOMEM;
	memset(write->bytes, 0, write->length);
	return 0;
}

static int make_definition(struct durable *durable)
{
	struct job *job = durable->job;
	uint64_t bytes = record_definition_bytes(job), progress = record_progress_bytes(job);
	struct record_write *write = &durable->definition;
	int r = make_write(durable, write, 0,
			   size_align(sizeof(struct record_header) + bytes, STORE_EXTENT_BYTES));

	if (r < 0)
		return r;
	memcpy(write->bytes, RECORD_MAGIC, 8);
	put64((uint8_t *)write->bytes + 8, bytes);
	put64((uint8_t *)write->bytes + 16, progress);
	return record_encode_definition(job, write->bytes + sizeof(struct record_header), bytes);
}

static void on_backed_up(struct job *job, int status);

uint64_t durable_progress(const struct job *job, uint64_t *ret_offset)
{
	*ret_offset =
		size_align(sizeof(struct record_header) + record_definition_bytes(job), STORE_EXTENT_BYTES);
	return size_align(sizeof(struct progress_header) + record_progress_bytes(job), STORE_PAGE_BYTES);
}

int durable_init(struct job *job, bool is_found, const struct durable_listener *listener)
{
	struct durable *durable = calloc(1, sizeof(*durable));
	uint64_t offset, length = durable_progress(job, &offset);
	int r;

	if (!durable)
		return -ENOMEM;
	durable->job = job;
	durable->listener = listener;
	r = pace_init(&durable->pace, job);
	if (r == 0)
		r = make_write(durable, &durable->progress, offset, length);
	if (r == 0 && !is_found)
		r = make_definition(durable);
	if (r == 0 && job->location.has_backup)
		r = backup_init(job, on_backed_up);
	durable->committed = job->step;
	job->durability->durable = durable;
	job_store_step(job, is_found ? JOB_STORE_FOUND : JOB_STORE_MADE);
	if (r < 0)
		durable_free(job);
	return r;
}

void durable_free(struct job *job)
{
	struct durable *durable = TAKE_PTR(job->durability->durable);

	if (!durable)
		return;
	job_store_step(job, JOB_STORE_CLOSE);
	backup_free(job);
	pace_end(&durable->pace);
	free(durable->definition.bytes);
	free(durable->progress.bytes);
	free(durable);
}

bool durable_has_store(const struct job *job)
{
	return job->durability->store != JOB_STORE_NONE;
}

int durable_note_earlier_updates(struct job *job)
{
	if (job->durability->has_earlier_updates)
		return 0;
	job->durability->has_earlier_updates = true;
	return durable_redefine(job);
}

int durable_redefine(struct job *job)
{
	if (!job->durability->durable)
		return 0;
	free(TAKE_PTR(job->durability->durable->definition.bytes));
	return make_definition(job->durability->durable);
}

int durable_redefine_now(struct job *job)
{
	int r = durable_redefine(job);

	if (r == 0)
		job->durability->durable->wants_definition = true;
	return r;
}

bool durable_is_redefined(const struct job *job)
{
	return job->durability->durable &&
	       (job->durability->durable->wants_definition || job->durability->durable->is_defining);
}

/* Nothing of it is on the devices yet. */
static bool is_new(const struct job *job)
{
	return job->durability->store == JOB_STORE_NEW;
}

/* There is a step that no commit has taken, or the definition alone has changed. */
static bool has_news(const struct durable *durable)
{
	enum job_state state = durable->job->state;

	if (durable->wants_definition && (state == JOB_TRAINED || state == JOB_RELEASED))
		return true;
	if (state != JOB_TRAINED)
		return false;
	if (durable->commit != COMMIT_NONE)
		return durable->step < durable->job->step;
	return is_new(durable->job) || durable->committed < durable->job->step;
}

/* Nobody comes to wait for what has no ranks. */
static bool is_due(const struct durable *durable)
{
	const struct job *job = durable->job;

	return durable->pace.is_due || durable->wants_definition || is_new(job) || job->members.count == 0 ||
	       job->node->is_stopping;
}

/* Else what is on NVMe is that of the last backup, whatever a step does in host memory. */
static bool sweeps_write(const struct job *job)
{
	return job->location.has_nvme_parameters || job->location.has_nvme_optimizer;
}

static bool has_room_to_wait(const struct job *job)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->members.ranks[rank] && !awaited_has_room(&job->members.ranks[rank]->awaited))
			return false;
	return true;
}

bool durable_holds(const struct job *job)
{
	const struct durable *durable = job->durability->durable;

	if (!durable)
		return false;
	if (!store_tasks_are_quiet(job) && has_news(durable) && is_due(durable))
		return true;
	if (durable_is_quiet(job))
		return false;
	if (!sweeps_write(job))
		return durable->record_writes > 0 || !has_room_to_wait(job);
	return durable->commit == COMMIT_WRITING || durable->step < job->step;
}

bool durable_is_quiet(const struct job *job)
{
	return !job->durability->durable || job->durability->durable->commit == COMMIT_NONE;
}

bool durable_is_behind(const struct job *job)
{
	const struct durable *durable = job->durability->durable;

	return durable && job->state == JOB_TRAINED && (is_new(job) || durable->committed < job->step);
}

bool durable_is_owed(const struct job *job)
{
	return durable_is_behind(job) && is_new(job);
}

bool durable_has_step(const struct job *job, uint64_t *ret_step)
{
	if (job->durability->store != JOB_STORE_COMMITTED)
		return false;
	*ret_step = job->durability->durable->committed;
	return true;
}

bool durable_survives(const struct job *job, uint64_t *ret_step)
{
	return !job->durability->files.is_removed && durable_has_step(job, ret_step);
}

uint64_t durable_lag_ns(const struct job *job)
{
	return job->durability->durable ? pace_lag_ns(&job->durability->durable->pace) : 0;
}

/* ---- Answers ---- */

void durable_answer(struct member *member, struct pending *pending)
{
	struct job *job = member->job;

	if (!job->durability->durable) {
		pending_error(pending, -EOPNOTSUPP,
			      job->location.durability == DURABILITY_NONE
				      ? "job %s is not durable: it was opened so"
				      : "job %s is not durable: tierd has no NVMe path",
			      job->name);
		return;
	}
	awaited_add(&member->awaited, job->step, pending->number);
	if (pending->is_hurried || !awaited_has_room(&member->awaited))
		job->durability->durable->pace.is_due = true;
	pending_drop(pending);
}

void durable_hurry_step(struct pending *pending, const Tierd__Wire__StepHurry *hurry)
{
	struct member *member = pending->member;
	struct pending *steps[] = { member->step, member->next_step };

	for (size_t i = 0; i < ARRAY_LENGTH(steps); i++)
		if (steps[i] && steps[i]->number == hurry->request)
			steps[i]->is_hurried = true;
	if (awaited_has(&member->awaited, hurry->request))
		durable_hurry(member->job);
	pending_reply(pending, NULL);
}

/* ---- A commit ---- */

static void fail_commit(struct durable *durable, int status, const char *what)
{
	struct job *job = durable->job;

	durable->commit = COMMIT_NONE;
	pace_end_commit(&durable->pace);
	job_break(job, &(struct log_fields){ .step = &durable->step }, "step %llu cannot be made durable: %s",
		  (unsigned long long)durable->step, what);
	job_settle(job);
}

static void tell_durable(struct durable *durable)
{
	struct job *job = durable->job;

	durable->listener->committed(job);
	events_of_job(job, EVENT_DURABLE, &(struct log_fields){ .step = &durable->step },
		      "step %llu is durable", (unsigned long long)durable->step);
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->members.ranks[rank])
			awaited_answer(job->members.ranks[rank], durable->committed);
}

/* What was committed goes with the daemon. */
static void tell_removed(struct job *job)
{
	char message[PRESENCE_TEXT + 80];
	int r = presence_refuse(job, message, sizeof(message));

	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->members.ranks[rank])
			awaited_fail(job->members.ranks[rank], r, message);
}

static void on_committed(struct store_request *request, int status)
{
	struct durable *durable = container_of(request, struct durable, request);
	struct job *job = durable->job;

	durable->commit = COMMIT_NONE;
	trace_span(job, TRACE_COMMIT, durable->began_ns, durable->step);
	if (status < 0) {
		fail_commit(durable, status, store_message(job_nvme_store(job)));
		return;
	}
	free(TAKE_PTR(durable->definition.bytes));
	durable->is_defining = false;
	job_store_step(job, JOB_STORE_COMMIT);
	durable->committed = durable->step;
	pace_end_commit(&durable->pace);
	if (presence_check(job))
		tell_durable(durable);
	else
		tell_removed(job);
	retention_note_commit(job);
	durable_advance(job);
	step_advance(job);
	job_settle(job);
	node_check_idle(job->node);
}

/* All of the step is written, and the state stands still: from here on it may move again. */
static void freeze(struct durable *durable)
{
	struct job *job = durable->job;
	int r = durable->status;

	if (r == -ECANCELED) {
		durable->commit = COMMIT_NONE;
		pace_end_commit(&durable->pace);
		job_settle(job);
		return;
	}
	if (r == 0) {
		durable->commit = COMMIT_SEALING;
		trace_span(job, TRACE_SAVE, durable->began_ns, durable->step);
		durable->began_ns = trace_now(job);
		r = store_commit(job_nvme_store(job), durable->step, &durable->request);
	}
	if (r < 0) {
		fail_commit(durable, r,
			    durable->status < 0 ? "its record cannot be written"
						: store_message(job_nvme_store(job)));
		return;
	}
	step_advance(job);
	job_settle(job);
}

static void end_write(struct durable *durable, int status)
{
	if (status < 0 && durable->status == 0)
		durable->status = status;
	if (--durable->writing == 0)
		freeze(durable);
}

static void on_written(struct store_transfer *transfer, int status)
{
	struct durable *durable = container_of(transfer, struct record_write, transfer)->durable;
	struct job *job = durable->job;

	trace_transferred(job, PACK_NONE, job_nvme_store(job), transfer);
	durable->record_writes--;
	end_write(durable, status);
	/* The backup may take longer; a step need not. */
	step_advance(job);
}

/* The job is broken already by what is not told here. */
static void on_backed_up(struct job *job, int status)
{
	end_write(job->durability->durable, status < 0 ? -ECANCELED : 0);
}

static void submit_write(struct durable *durable, struct record_write *write)
{
	int r;

	write->transfer = (struct store_transfer){ .direction = TIER_WRITE,
						   .priority = TIER_DEMAND,
						   .stream = write->stream,
						   .offset = write->offset,
						   .length = write->length,
						   .buffer = write->bytes,
						   .done = on_written };
	r = store_submit(job_nvme_store(durable->job), &write->transfer);
	if (r < 0) {
		durable->status = r;
		return;
	}
	trace_submitted(durable->job, TRACE_RECORD_WRITE, &write->transfer);
	durable->record_writes++;
	durable->writing++;
}

/* Where they lie says the progress; they do not change while a commit takes them. */
static void write_blobs(struct durable *durable)
{
	struct job *job = durable->job;
	struct record_write *write = &durable->blobs;

	if (!blobs_take_dirty(job, &write->offset, &write->length))
		return;
	write->durable = durable;
	write->stream = job->location.streams.blobs;
	write->bytes = job->durability->blobs.image.base + write->offset;
	submit_write(durable, write);
}

static void begin(struct durable *durable)
{
	struct job *job = durable->job;
	uint64_t bytes =
		record_encode_progress(job, durable->progress.bytes + sizeof(struct progress_header));

	put64((uint8_t *)durable->progress.bytes, bytes);
	pace_take(&durable->pace);
	durable->step = job->step;
	durable->is_defining = durable->wants_definition;
	durable->wants_definition = false;
	durable->status = 0;
	durable->began_ns = trace_now(job);
	durable->commit = COMMIT_WRITING;
	durable->request.done = on_committed;
	durable->writing = 1;
	submit_write(durable, &durable->progress);
	if (durable->definition.bytes)
		submit_write(durable, &durable->definition);
	write_blobs(durable);
	/* What is released has been written. */
	if (job->durability->backup && job->state == JOB_TRAINED) {
		durable->writing++;
		backup_begin(job);
	}
	/* As above. */
	if (warm_has_dirty(job)) {
		durable->writing++;
		warm_flush_all(job, on_backed_up);
	}
	end_write(durable, 0);
}

void durable_advance(struct job *job)
{
	struct durable *durable = job->durability->durable;

	/* They are for the step that is durable now. */
	if (store_tasks_advance(job) || !durable || !has_news(durable))
		return;
	pace_note_step(&durable->pace);
	/* A step that is being measured is decided when that has ended: nothing would hold it up then. */
	if (is_due(durable) && durable_is_quiet(job) && !norm_is_running(job) && !update_is_sweeping(job) &&
	    job->decided == job->step && !job_is_ending(job))
		begin(durable);
}

void durable_hurry(struct job *job)
{
	if (!job->durability->durable || !has_news(job->durability->durable))
		return;
	job->durability->durable->pace.is_due = true;
	durable_advance(job);
}
