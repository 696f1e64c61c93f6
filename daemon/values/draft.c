#include "daemon/values/draft.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "daemon/residency/residency.h"
#include "daemon/resources/resources.h"

static uint64_t record_bytes(const struct job *job, const struct draft_record *record)
{
	const struct tensor *tensor = &job->catalog.units[record->unit].tensors[record->tensor];
	bool is_wide = record->is_master || record->state >= STATE_SLOTS;
	uint64_t bytes =
		record->count * (is_wide ? sizeof(float) : section_element_bytes(tensor->layout.section));

	return sizeof(*record) + size_align(bytes, DRAFT_ALIGN_BYTES);
}

/* ---- What ranks write ---- */

/* What it has taken of the values in the buffer counts only now: a failure takes them away. */
static void end_write(struct draft *draft, int status)
{
	struct tensor_operation *operation = TAKE_PTR(draft->operation);
	struct pending *pending = status < 0 ? TAKE_PTR(operation->pending) : NULL;
	const struct job *job = draft->job;

	draft->is_busy = false;
	operation->status = status;
	if (pending)
		pending_error(pending, status, "job %s, tensor \"%s\": %s", job->name,
			      operation->tensor->name, draft->message);
	operation_end(operation);
}

static struct draft_record describe(const struct draft *draft)
{
	const struct tensor_operation *operation = draft->operation;
	const struct unit *unit = &draft->job->catalog.units[operation->unit];

	return (struct draft_record){ .first = operation->first,
				      .count = operation->count,
				      .unit = operation->unit,
				      .tensor = (uint32_t)(operation->tensor - unit->tensors),
				      .state = operation->state,
				      .is_master = !operation->is_same_format };
}

static void on_rest_moved(struct work *work)
{
	end_write(container_of(work, struct draft, work), 0);
}

static void run_move_rest(struct work *work)
{
	struct draft *draft = container_of(work, struct draft, work);

	memmove(draft->buffer, draft->buffer + DRAFT_BLOCK_BYTES, draft->used);
}

static void on_block_written(struct draft *draft, int status)
{
	if (status < 0) {
		draft->used -= draft->length;
		end_write(draft, status);
		return;
	}
	draft->blocks++;
	draft->used -= DRAFT_BLOCK_BYTES;
	draft->work = (struct work){ .run = run_move_rest, .done = on_rest_moved, .urgency = WORK_NORMAL };
	workers_submit(draft->job->node->workers, &draft->work);
}

static void run_take(struct work *work)
{
	struct draft *draft = container_of(work, struct draft, work);
	char *place = draft->buffer + draft->used;

	memcpy(place, &draft->record, sizeof(draft->record));
	memcpy(place + sizeof(draft->record), draft->operation->values,
	       draft->length - sizeof(draft->record));
}

static void on_taken(struct work *work)
{
	struct draft *draft = container_of(work, struct draft, work);

	draft->used += draft->length;
	if (draft->used >= DRAFT_BLOCK_BYTES)
		draft_move(draft, TIER_WRITE, draft->blocks, draft->buffer, on_block_written);
	else
		end_write(draft, 0);
}

/* There is always room for the block that is complete, and for what lies behind it. */
static void take(struct draft *draft, int status)
{
	if (status < 0) {
		end_write(draft, status);
	} else if (draft->blocks + 1 + (draft->used + draft->length) / DRAFT_BLOCK_BYTES > draft->capacity) {
		draft_grow(draft, take);
	} else {
		draft->work = (struct work){ .run = run_take, .done = on_taken, .urgency = WORK_NORMAL };
		workers_submit(draft->job->node->workers, &draft->work);
	}
}

/* Each time that an eighth more is defined, so that it takes no longer than the units do. */
static int check_room(struct draft *draft, draft_check *check)
{
	uint64_t parameters = draft->job->catalog.parameters;
	int r;

	if (!check)
		return 0;
	if (draft->checked > 0 && parameters - draft->checked <= draft->checked / 8)
		return 0;
	r = check(draft->job, draft->message, sizeof(draft->message));
	if (r == 0)
		draft->checked = parameters;
	return r;
}

static bool take_next(struct draft *draft, draft_check *check)
{
	struct queue *link = queue_pop(&draft->writes);

	if (!link)
		return false;
	draft->operation = queue_entry(link, struct tensor_operation, link);
	draft->operation->stage = IN_FLIGHT;
	draft->record = describe(draft);
	draft->length = record_bytes(draft->job, &draft->record);
	draft->is_busy = true;
	take(draft, check_room(draft, check));
	return true;
}

static int new (struct job *job, char *message, size_t size)
{
	struct draft *draft;
	int r = budget_charge(job, DRAFT_BUFFER_BYTES, message, size);

	if (r < 0)
		return r;
	draft = calloc(1, sizeof(*draft));
	if (draft)
		draft->buffer = aligned_alloc(STORE_PAGE_BYTES, DRAFT_BUFFER_BYTES);
	if (!draft || !draft->buffer) {
		free(draft);
		budget_uncharge(job, DRAFT_BUFFER_BYTES);
		snprintf(message, size, "out of memory");
		return -ENOMEM;
	}
	draft->job = job;
	queue_init(&draft->writes);
	job->values->draft = draft;
	return 0;
}

void draft_write(struct tensor_operation *operation)
{
	struct job *job = operation->job;
	char message[640];
	int r = job->values->draft ? 0 : new (job, message, sizeof(message));

	if (r < 0) {
		pending_error(TAKE_PTR(operation->pending), r, "job %s: %s", job->name, message);
		operation->status = r;
		operation_end(operation);
		return;
	}
	operation->stage = WAITING_FOR_TURN;
	queue_push(&job->values->draft->writes, &operation->link);
	job_settle(job);
}

/* ---- Where it belongs ---- */

/* Said again as it is written. */
static void forget_written(struct catalog *catalog)
{
	for (uint32_t u = 0; u < catalog->unit_count; u++)
		for (uint32_t t = 0; t < catalog->units[u].tensor_count; t++)
			catalog->units[u].tensors[t].written_count = 0;
}

static void fail(struct job *job, int status)
{
	job_break(job, NULL, "the values that it was given cannot be written where they belong: %s",
		  job->values->draft->message[0] ? job->values->draft->message : store_error(status));
}

static void on_sealed(struct draft *draft, int status)
{
	draft->is_busy = false;
	draft->blocks += status == 0;
	if (status < 0)
		fail(draft->job, status);
	job_settle(draft->job);
}

/* What the buffer still has becomes a block, too. */
static void begin(struct draft *draft)
{
	draft->has_begun = true;
	draft->message[0] = '\0';
	draft->begin = draft->end = DRAFT_BLOCK_BYTES;
	forget_written(&draft->job->catalog);
	draft->is_busy = true;
	memset(draft->buffer + draft->used, 0, sizeof(struct draft_record));
	draft_move(draft, TIER_WRITE, draft->blocks, draft->buffer, on_sealed);
}

static void on_read(struct draft *draft, int status)
{
	draft->is_busy = false;
	if (status < 0) {
		fail(draft->job, status);
	} else {
		draft_forget_block(draft, draft->read++);
		draft->end = DRAFT_BUFFER_BYTES;
	}
	job_settle(draft->job);
}

/* What is left is less than a record, and a window holds half a block. */
static void read_on(struct draft *draft)
{
	uint64_t left = draft->end - draft->begin;

	memmove(draft->buffer + DRAFT_BLOCK_BYTES - left, draft->buffer + draft->begin, left);
	draft->begin = DRAFT_BLOCK_BYTES - left;
	draft->end = DRAFT_BLOCK_BYTES;
	draft->is_busy = true;
	draft_move(draft, TIER_READ, draft->read, draft->buffer + DRAFT_BLOCK_BYTES, on_read);
}

static void on_written(struct job *job, int status)
{
	job->values->draft->operation = NULL;
	job->values->draft->is_busy = false;
	/* Who wrote it in too many pieces has been told. */
	if (status < 0 && status != -E2BIG)
		fail(job, status);
}

static int write_record(struct draft *draft, const struct draft_record *record)
{
	struct tensor_operation *operation = operation_new(draft->job, NULL, OPERATION_WRITE, record->unit,
							   record->tensor, record->first, record->count);

	if (!operation)
		return -ENOMEM;
	operation_set_values(operation, draft->buffer + draft->begin + sizeof(*record), record->is_master);
	operation->state = record->state;
	operation->done = on_written;
	draft->begin += record_bytes(draft->job, record);
	draft->operation = operation;
	draft->is_busy = true;
	if (operation_is_of_state(operation))
		state_write_start(operation);
	else
		operation_start_write(operation);
	return 0;
}

/* NULL: it is not there, or not whole. */
static const struct draft_record *next_record(const struct draft *draft)
{
	const struct draft_record *record = (const void *)(draft->buffer + draft->begin);
	uint64_t left = draft->end - draft->begin;

	if (left < sizeof(*record) || (record->count > 0 && left < record_bytes(draft->job, record)))
		return NULL;
	return record;
}

static bool write_on(struct draft *draft)
{
	struct job *job = draft->job;
	const struct draft_record *record;

	if (!draft->has_begun) {
		begin(draft);
		return true;
	}
	record = next_record(draft);
	if (!record) {
		read_on(draft);
		return true;
	}
	if (record->count > 0) {
		int r = write_record(draft, record);

		if (r < 0)
			fail(job, r);
		return true;
	}
	draft_free(job);
	tensor_fill_waiting(job);
	return false;
}

bool draft_go_on(struct job *job, draft_check *check)
{
	struct draft *draft = job->values->draft;

	if (!draft)
		return false;
	if (draft->is_busy)
		return true;
	return job->state == JOB_FORMING || job->current.state == WRITING_OPEN ? take_next(draft, check)
									       : write_on(draft);
}

/* ---- The end ---- */

bool draft_exists(const struct job *job)
{
	return job->values->draft;
}

bool draft_is_quiet(const struct job *job)
{
	return !job->values->draft || !job->values->draft->is_busy;
}

void draft_cancel(struct job *job)
{
	struct draft *draft = job->values->draft;

	if (!draft || !draft->has_begun || !draft->operation || draft->operation->stage == IN_FLIGHT)
		return;
	operation_give_up(TAKE_PTR(draft->operation));
	draft->is_busy = false;
}

void draft_give_up(struct job *job)
{
	draft_cancel(job);
	if (draft_is_quiet(job))
		draft_free(job);
}

void draft_free(struct job *job)
{
	struct draft *draft = TAKE_PTR(job->values->draft);

	if (!draft)
		return;
	assert(!draft->is_busy);
	draft_free_storage(draft);
	budget_uncharge(job, DRAFT_BUFFER_BYTES);
	free(draft->buffer);
	free(draft);
}
